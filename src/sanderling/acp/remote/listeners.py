"""Owners of the TCP sockets of this machine, from /proc/net/tcp and tcp6 (proc_pid_net(5))."""

import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class _ListenerRow(NamedTuple):
    local: tuple[Address, int]
    remote: tuple[Address, int]
    state: str
    uid: int


def uids_of_listeners(host: str, port: int) -> set[int]:
    """Return the user IDs that listen on `port` for connections to the address `host`; empty if unknown."""
    wanted = _plain(ipaddress.ip_address(host))
    return {
        row.uid
        for row in _rows()
        if row.state == LISTEN
        and row.local[1] == port
        and (row.local[0] == wanted or row.local[0].is_unspecified)
    }


def uid_of_peer(connected: socket.socket) -> int | None:
    """
    Return the user ID at the other end of a connection within this machine; None if unknown.

    Until the other end accepts, the kernel reports user 0.
    """
    here, there = (_place(name) for name in (connected.getsockname(), connected.getpeername()))
    return next((row.uid for row in _rows() if (row.local, row.remote) == (there, here)), None)


def _place(name: tuple[str, int]) -> tuple[Address, int]:
    return _plain(ipaddress.ip_address(name[0].partition("%")[0])), name[1]


def _rows() -> Iterator[_ListenerRow]:
    for table in _TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, uid, *_ = line.split()
            yield _ListenerRow(_parsed(local), _parsed(remote), state, int(uid))


def _parsed(text: str) -> tuple[Address, int]:
    """Parse `0100007F:0BB8`: an address in 32-bit words of the machine's byte order, and a port."""
    address, _, port = text.partition(":")
    words = (int(address[start : start + 8], 16) for start in range(0, len(address), 8))
    return _plain(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))), int(
        port, 16
    )


def _plain(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; other addresses as they are."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
