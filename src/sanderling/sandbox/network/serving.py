"""The host's side of a session's network: starts and stops the proxy, and runs the name server."""

import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.abc import TaskGroup

from sanderling.hosts import is_address
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.network.names import answer_names

if TYPE_CHECKING:
    from sanderling.sandbox.network.credentials import SecretProxy

PROXY_BACKLOG = 128
LOCALHOST = ("127.0.0.1", "::1")

Place = tuple[str, int]
"""A loopback address and a port."""


class _Forward(NamedTuple):
    listener: socket.socket
    scope: anyio.CancelScope


class HostNetwork:
    """Serves the loopback listeners of a sandbox's views, according to the mode. Denials are passed to `on_event`."""

    def __init__(
        self,
        mode: NetworkMode,
        hosts: tuple[str, ...],
        tasks: TaskGroup,
        on_event: Callable[[Denial], None],
        secrets: "SecretProxy | None" = None,
    ) -> None:
        self._mode: NetworkMode = mode
        self._hosts = hosts
        self._rules = HostRules(hosts)
        self._tasks = tasks
        self._on_event = on_event
        self._secrets = secrets
        self._proxies: list[socket.socket] = []
        self._proxy_scopes: list[anyio.CancelScope] = []
        self._forwards: dict[tuple[int, Place], _Forward] = {}  # by view and place

    def serve(self, name: str, listener: socket.socket) -> None:
        """Serve `listener` on the loopback of a new view."""
        listener.setblocking(False)
        if name == "proxy":
            self._proxies.append(listener)
            self._start_proxy(listener)
        else:
            self._tasks.start_soon(answer_names, listener, self._report_name, "network_off")

    def change(self, mode: NetworkMode, hosts: tuple[str, ...]) -> None:
        """
        Apply a mode and a list of allowed hosts.

        Raises:
            OSError: a command has taken the proxy's port. Nothing is changed then.
        """
        before = self._mode, self._hosts
        self._mode, self._hosts = mode, hosts
        self._rules.change(hosts)
        self._stop_forwards()
        if mode == before[0]:
            return
        self._stop_proxies()
        try:
            for listener in self._proxies:
                self._start_proxy(listener)
        except OSError:
            self._stop_proxies()
            self._mode, self._hosts = before
            self._rules.change(self._hosts)
            for listener in self._proxies:
                with suppress(OSError):
                    self._start_proxy(listener)
            raise

    def places_to_forward(self) -> dict[Place, tuple[Place, ...]]:
        """
        Return the loopback ports to forward: from places inside to those of this machine.

        Programs look up `localhost` in different ways, so its three spellings are served alike, and the declared one is tried first.
        """
        if self._mode != "proxy":
            return {}
        places = dict[Place, tuple[Place, ...]]()
        for host, port in sorted(self._rules.on_this_machine):
            outside = LOCALHOST if host == "localhost" or not is_address(host) else (host,)
            inside = LOCALHOST if host in LOCALHOST or not is_address(host) else (host,)
            for each in inside:
                place = (each, port)
                places[place] = (*places.get(place, ()), *((name, port) for name in outside))
        return places

    def missing_in(self, view: int, places: Iterable[Place]) -> list[Place]:
        return [place for place in places if (view, place) not in self._forwards]

    def forward(self, view: int, listeners: Mapping[Place, socket.socket]) -> None:
        """Forward connections to `listeners`, on the loopback of the view with that number, to this machine."""
        for place, listener in listeners.items():
            forward = self._forwards[view, place] = _Forward(listener, anyio.CancelScope())
            self._tasks.start_soon(self._serve_forward, place, forward)

    async def _serve_forward(self, place: Place, forward: "_Forward") -> None:
        from sanderling.sandbox.network.forward import serve_forward

        with forward.scope:
            await serve_forward(forward.listener, lambda: self.places_to_forward().get(place, ()))

    def _stop_forwards(self) -> None:
        """Close listeners, and their connections, that are no longer allowed. So commands can use the port themselves."""
        allowed = self.places_to_forward()
        for key, forward in list(self._forwards.items()):
            if key[1] not in allowed:
                forward.scope.cancel()
                with suppress(OSError):
                    forward.listener.shutdown(socket.SHUT_RDWR)  # frees the port at once
                del self._forwards[key]

    def _report_name(self, denial: Denial) -> None:
        is_off = self._mode == "off"
        self._on_event(denial if is_off else denial._replace(rule="not_listed"))

    def _stop_proxies(self) -> None:
        for scope in self._proxy_scopes:
            scope.cancel()
        self._proxy_scopes = []

    def _start_proxy(self, listener: socket.socket) -> None:
        if self._mode == "proxy":
            scope = anyio.CancelScope()
            self._proxy_scopes.append(scope)
            listener.listen(PROXY_BACKLOG)
            self._tasks.start_soon(self._serve_proxy, listener, scope)

    async def _serve_proxy(self, listener: socket.socket, scope: anyio.CancelScope) -> None:
        from sanderling.sandbox.network.proxy import serve_proxy

        with scope:
            try:
                await serve_proxy(listener.dup(), self._rules, self._on_event, self._secrets)
            finally:
                if (
                    self._mode != "proxy" and listener.family != socket.AF_UNIX
                ):  # otherwise another task has taken over
                    with suppress(OSError):  # closed with the sandbox
                        # Unlike close, this refuses connections at once, and the socket can listen again.
                        listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for listener in self._proxies:
            listener.close()
