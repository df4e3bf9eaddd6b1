"""Requests about inline edits, outside the sessions. Each is a task that can be stopped on its own."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread

from sanderling.config.layers import Layers
from sanderling.editor.bridge import Bridge
from sanderling.errors import ProviderError, SanderlingError
from sanderling.protocol.messages import Usage
from sanderling.protocol.requests import PriceRewrites, Rewrite, RewritePiece

if TYPE_CHECKING:
    from sanderling.editor.rewriting.rewriter import Rewriter

STOPPED = {"error": "Stopped."}


class BackgroundRequests:
    """The requests in progress."""

    def __init__(self, bridge: Bridge, on_usage: Callable[[str, str, Usage], None]) -> None:
        self._bridge = bridge
        self._on_usage = on_usage
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._stopped: set[int] = set()  # stopped before they began
        self._loading = anyio.Lock()
        self._rewriter: Rewriter | None = None

    def stop(self, request_id: int) -> None:
        if scope := self._scopes.get(request_id):
            scope.cancel()
        else:
            self._stopped.add(request_id)

    async def serve(
        self, request_id: int, request: Rewrite | PriceRewrites, layers: Layers
    ) -> None:
        """Answer `request`. Pieces and the answer are sent to Neovim under the same id."""
        answer: dict[str, Any] = STOPPED
        try:
            with anyio.CancelScope() as scope:
                self._scopes[request_id] = scope
                if request_id in self._stopped:
                    scope.cancel()
                answer = await self._answer(request_id, request, layers)
        finally:
            del self._scopes[request_id]
            self._stopped.discard(request_id)
        self._bridge.notify("require('sanderling.host').answered(...)", request_id, answer)

    async def _answer(
        self, request_id: int, request: Rewrite | PriceRewrites, layers: Layers
    ) -> dict[str, Any]:
        try:
            rewriter = await self._loaded()
            if isinstance(request, PriceRewrites):
                return msgspec.to_builtins(await rewriter.price(request, layers))
            show = partial(self._show, request_id)
            return msgspec.to_builtins(await rewriter.rewrite(request, layers, show))
        except ProviderError as error:
            return {"error": f"{error.message} {error.remedy}".rstrip()}
        except SanderlingError as error:
            return {"error": str(error)}

    def _show(self, request_id: int, piece: RewritePiece) -> None:
        shown = msgspec.to_builtins(piece)
        self._bridge.notify("require('sanderling.host').streamed(...)", request_id, shown)

    async def _loaded(self) -> "Rewriter":
        """Return the rewriter, which the first request loads: a session has loaded most of its modules already."""
        async with self._loading:
            if self._rewriter is None:
                self._rewriter = await to_thread.run_sync(
                    _load, self._on_usage, abandon_on_cancel=True
                )
            return self._rewriter


def _load(on_usage: Callable[[str, str, Usage], None]) -> "Rewriter":
    from sanderling.editor.rewriting.rewriter import Rewriter

    return Rewriter(on_usage=on_usage)
