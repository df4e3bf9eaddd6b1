"""
The entry point for Neovim: decode, hand over, return.

Sanderling's own host loads this file (lua/sanderling/host/init.lua starts it). Under `:UpdateRemotePlugins` the shared python3 host loads
it too, and finds no command to register. So only pynvim is imported before the first call.
"""

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import pynvim


def _logged(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Log an exception: one that reached pynvim would become a hit-enter prompt, which blocks every client."""

    @functools.wraps(handler)
    def handle(*args: Any) -> Any:
        try:
            return handler(*args)
        except Exception:
            logging.getLogger("sanderling").exception("%s failed", handler.__name__)
            return None

    return handle


@pynvim.plugin
class SanderlingHost:
    def __init__(self, nvim: pynvim.Nvim) -> None:
        from sanderling.editor.bridge import Bridge
        from sanderling.editor.host import EditorHost

        self.host = EditorHost(Bridge(nvim))

    @pynvim.rpc_export("sanderling_configure")
    @_logged
    def configure(self, options: dict[str, Any]) -> None:
        self.host.configure(options)

    @pynvim.rpc_export("sanderling_declare")
    @_logged
    def declare(self, declared: dict[str, Any]) -> None:
        self.host.declare(declared)

    @pynvim.rpc_export("sanderling_act")
    @_logged
    def act(self, session_id: str, action: dict[str, Any]) -> None:
        self.host.act(session_id, action)

    @pynvim.rpc_export("sanderling_request")
    @_logged
    def request(self, request_id: int, request: dict[str, Any]) -> None:
        self.host.request(request_id, request)

    @pynvim.rpc_export("sanderling_stop_request")
    @_logged
    def stop_request(self, request_id: int) -> None:
        self.host.stop_request(request_id)

    @pynvim.rpc_export("sanderling_acknowledge")
    @_logged
    def acknowledge(self, session_id: str, seq: int) -> None:
        self.host.acknowledge(session_id, seq)

    @pynvim.rpc_export("sanderling_answer")
    @_logged
    def answer(self, number: int, answer: dict[str, Any]) -> None:
        self.host.bridge.settle(number, answer)

    @pynvim.rpc_export("sanderling_show")
    @_logged
    def show(self, number: int, text: str) -> None:
        self.host.bridge.show(number, text)

    @pynvim.rpc_export("sanderling_ping", sync=True)
    @_logged
    def ping(self) -> int:
        return os.getpid()
