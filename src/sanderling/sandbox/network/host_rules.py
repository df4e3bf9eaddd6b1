"""The hosts that the user allows."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import anyio

from sanderling.errors import SandboxError
from sanderling.hosts import canonical_host, is_address, is_loopback, split_authority


class HostRules:
    """
    The allowed hosts.

    Each entry is a name, `*.name` (all names below it, not itself) or an address (IPv6 in brackets), optionally with `:port`. Without a
    port it allows 443 and 80.

    Raises:
        SandboxError: an entry is malformed.
    """

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._entries: set[tuple[str, int]] = set()
        self._in_use: dict[anyio.CancelScope, tuple[str, int]] = {}
        self.change(hosts)

    def change(self, hosts: tuple[str, ...]) -> None:
        """Replace the list, and close connections to hosts that are no longer allowed."""
        entries: set[tuple[str, int]] = set()
        for text in hosts:
            try:
                entries.update(_entries(text))
            except ValueError as error:
                raise SandboxError(
                    f"{text!r} is not a host: use a name, *.name or an address ([::1] for IPv6), with or without :port"
                ) from error
        self._entries = entries
        for connection, target in self._in_use.items():
            if not self.allows(*target):
                connection.cancel()

    @contextmanager
    def in_use(self, host: str, port: int, connection: anyio.CancelScope) -> Generator[None]:
        """Cancel `connection` if the host is removed from the list during this context."""
        self._in_use[connection] = (host, port)
        try:
            yield
        finally:
            del self._in_use[connection]

    def allows(self, host: str, port: int) -> bool:
        try:
            host = canonical_host(host)
        except ValueError:
            return False
        labels = host.split(".")
        above = ("*." + ".".join(labels[i:]) for i in range(1, len(labels)))
        return any((name, port) in self._entries for name in (host, *above))

    @property
    def on_this_machine(self) -> frozenset[tuple[str, int]]:
        """The allowed loopback addresses and ports of this machine."""
        return frozenset(
            (host, port)
            for host, port in self._entries
            if is_loopback(host) and not host.startswith("*.")
        )

    def allow_all_of(self, entry: str) -> bool:
        """Return whether `entry` adds nothing to the list."""
        return all(self.allows(host, port) for host, port in _entries(entry))


def _entries(text: str) -> Iterator[tuple[str, int]]:
    below = "*." if text.startswith("*.") else ""
    host, port = split_authority(text.removeprefix(below))
    if below and is_address(host):
        raise ValueError(text)
    yield from ((below + host, port) for port in ((port,) if port else (443, 80)))
