"""The hosts that a person allows."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import anyio

from sanderling.errors import SandboxError
from sanderling.hosts import canonical_host, is_address, split_authority


class HostRules:
    """
    The hosts that can be reached.

    Each is a name, `*.name` (every name below, not itself) or an address (IPv6 in brackets), and means its ports 443 and 80, or
    the one that it ends in: `:port`.

    Raises:
        SandboxError: an entry is none of these.
    """

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._entries: set[tuple[str, int]] = set()
        self._in_use: dict[anyio.CancelScope, tuple[str, int]] = {}
        self.change(hosts)

    def change(self, hosts: tuple[str, ...]) -> None:
        """Let in these from now on; connections to what is not among them are cut."""
        entries: set[tuple[str, int]] = set()
        for text in hosts:
            try:
                entries.update(_entries(text))
            except ValueError as error:
                raise SandboxError(
                    f"{text!r} is no host: write a name, *.name or an address ([::1] for IPv6), with or without :port"
                ) from error
        self._entries = entries
        for connection, target in self._in_use.items():
            if not self.allows(*target):
                connection.cancel()

    @contextmanager
    def in_use(self, host: str, port: int, connection: anyio.CancelScope) -> Generator[None]:
        """While this lasts, `connection` is cancelled when the host is no longer among them."""
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

    def allow_all_of(self, entry: str) -> bool:
        """Say whether `entry` adds nothing to them."""
        return all(self.allows(host, port) for host, port in _entries(entry))


def _entries(text: str) -> Iterator[tuple[str, int]]:
    below = "*." if text.startswith("*.") else ""
    host, port = split_authority(text.removeprefix(below))
    if below and is_address(host):
        raise ValueError(text)
    yield from ((below + host, port) for port in ((port,) if port else (443, 80)))
