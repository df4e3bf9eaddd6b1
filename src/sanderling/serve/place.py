"""The place where a server listens: a host and a port, or a socket that only the person can open."""

import errno
import ipaddress
import os
import socket
import stat
from typing import NamedTuple

from sanderling.config import server_socket
from sanderling.errors import ConfigError

UNIX = DEFAULT = (
    "unix:"  # a socket, which the kernel keeps other users from; any of them can bind a port
)
BACKLOG = 128
MAX_PORT = 65_535


class Place(NamedTuple):
    """A `host` and a `port`, or the `path` of a socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_near(self) -> bool:
        """Say whether only this machine reaches it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def place_of(text: str) -> Place:
    """
    The place that `--listen` names.

    Raises:
        ConfigError: it names none.
    """
    if text.startswith(UNIX) or "/" in text:
        path = os.path.expanduser(text.removeprefix(UNIX)) or server_socket()
        return Place(path=os.path.abspath(path))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(f"--listen takes HOST:PORT or unix:PATH, and {text!r} is neither")
    return Place(host.removeprefix("[").removesuffix("]"), int(port))


def listening(place: Place) -> socket.socket:
    """
    A socket that listens there.

    Raises:
        ConfigError: it cannot be had.
    """
    try:
        return _unix_socket(place.path) if place.path else _tcp_socket(place)
    except OSError as error:
        where = place.path or f"{place.host}:{place.port}"
        raise ConfigError(f"{where} cannot be listened on: {error.strerror or error}") from error


def _tcp_socket(place: Place) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def _unix_socket(path: str) -> socket.socket:
    _remove_left(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no other user can open it, from its first moment
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        found.bind(path)
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    finally:
        os.umask(before)
    return found


def _remove_left(path: str) -> None:
    """Remove a socket that a server has left when it was killed."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "there is a file of that name")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another server listens there")
