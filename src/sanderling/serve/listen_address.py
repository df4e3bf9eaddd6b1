"""The address where a server listens: a host and port, or a Unix socket that only the user can open."""

import errno
import ipaddress
import os
import socket
import stat
from typing import NamedTuple

from sanderling.config import server_socket
from sanderling.errors import ConfigError

UNIX = DEFAULT = (
    "unix:"  # a socket that the kernel protects from other users; a port could be bound by any of them
)
BACKLOG = 128
MAX_PORT = 65_535


class ListenAddress(NamedTuple):
    """A `host` and `port`, or the `path` of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_listen_address(text: str) -> ListenAddress:
    """
    Parse the value of `--listen`.

    Raises:
        ConfigError: it is invalid.
    """
    if text.startswith(UNIX) or "/" in text:
        path = os.path.expanduser(text.removeprefix(UNIX)) or server_socket()
        return ListenAddress(path=os.path.abspath(path))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ConfigError(f"--listen takes HOST:PORT or unix:PATH, not {text!r}")
    return ListenAddress(host.removeprefix("[").removesuffix("]"), int(port))


def listening(listen_address: ListenAddress) -> socket.socket:
    """
    Return a listening socket.

    Raises:
        ConfigError: it is impossible to listen there.
    """
    try:
        return (
            _unix_socket(listen_address.path)
            if listen_address.path
            else _tcp_socket(listen_address)
        )
    except OSError as error:
        where = listen_address.path or f"{listen_address.host}:{listen_address.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error


def _tcp_socket(listen_address: ListenAddress) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen_address.host, listen_address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
    before = os.umask(0o177)  # closed to other users from the start
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
    """Remove the socket of a server that was killed."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "a file with this name exists")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another server listens there")
