"""The page on this machine's loopback to which a browser returns after a login, with the code of the login."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from sanderling.mcp.problems import ServerError
from sanderling.text import visible

PATH = "/callback"
LOGIN_S = 300.0
HEAD_S = 10.0
MAX_HEAD_BYTES = 16 << 10
MAX_TOLD_CHARS = 200


class BrowserCallback(NamedTuple):
    """The parameters of a browser that returned."""

    code: str
    state: str
    issuer: str | None


class Callback:
    """The page of one login. A request counts only with the `state` of the URL to which the browser was sent."""

    def __init__(self, port: int) -> None:
        self.redirect_uri = f"http://127.0.0.1:{port}{PATH}"
        self._state = ""
        self._came_back: BrowserCallback | None = None
        self._refusal = ""
        self._done = anyio.Event()

    def expect(self, url: str) -> None:
        self._state = _first(parse_qs(urlsplit(url).query), "state")

    async def wait(self) -> BrowserCallback:
        """
        Return the parameters of the login.

        Raises:
            ServerError: the login was refused, or did not happen within `LOGIN_S`.
        """
        with anyio.move_on_after(LOGIN_S):
            await self._done.wait()
        if self._came_back is None:
            minutes = f"there was no login within {LOGIN_S / 60:.0f} min"
            raise ServerError(self._refusal or minutes)
        return self._came_back

    def take(self, target: str) -> bool:
        """Handle an address that a browser requests, or the user has pasted; return True if it is the login's."""
        url = urlsplit(target)
        query = parse_qs(url.query)
        state = _first(query, "state")
        if url.path != PATH or not self._state or state != self._state or self._done.is_set():
            return False
        if code := _first(query, "code"):
            self._came_back = BrowserCallback(code, state, _first(query, "iss") or None)
        else:
            said = _first(query, "error_description") or _first(query, "error") or "no code"
            self._refusal = f"the login was refused ({visible(said)[:MAX_TOLD_CHARS]})"
        self._done.set()
        return True

    async def serve(self, stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, ValueError):  # nonsense
            async with stream:
                with anyio.move_on_after(HEAD_S):
                    is_it = self.take(await _asked_for(stream))
                    await stream.send(_page(is_it=is_it, refusal=self._refusal))


@asynccontextmanager
async def waiting_for_browser(port: int = 0) -> AsyncGenerator[Callback]:
    """
    Listen on `port` of the loopback; 0 for any free one.

    Raises:
        ServerError: it is in use.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise ServerError(
            f"cannot listen on port {port} of this machine ({error.strerror})"
        ) from error
    async with listener, anyio.create_task_group() as tasks:
        callback = Callback(listener.extra(SocketAttribute.local_port))  # noqa: S610 - no database
        tasks.start_soon(listener.serve, callback.serve)
        yield callback
        tasks.cancel_scope.cancel()


async def _asked_for(stream: SocketStream) -> str:
    """Return the path and query of a GET; empty for anything else."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        head += await stream.receive()
    method, _, rest = head.partition(b"\r\n")[0].decode("ascii").partition(" ")
    return rest.partition(" ")[0] if method == "GET" else ""


def _page(*, is_it: bool, refusal: str) -> bytes:
    status = HTTPStatus.OK if is_it else HTTPStatus.NOT_FOUND
    words = "Sanderling has logged in. You can close this page."
    if not is_it:
        words = "No login is waiting for this page."
    elif refusal:
        words = "The login was refused. Sanderling shows the reason."
    body = f"<!doctype html><meta charset=utf-8><title>Sanderling</title><p>{words}\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _first(query: dict[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]
