"""
The file worker: what file tools do, done inside the sandbox.

It is an init without a command: confined as every other, it opens paths in the view's own root. A symbolic link that is swapped
between a check and its use cannot lead it out, for there is no check: the kernel refuses, or the path does not exist.
"""

import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import Any, NoReturn

from sanderling.sandbox import wire


def serve(channel: socket.socket) -> NoReturn:
    """Answer requests until the host lets go of `channel`: ("ok", result), or ("error", errno) for an `OSError`."""
    while (received := wire.receive(channel)) is not None:
        name, *arguments = received[0]
        try:
            wire.send(channel, ("ok", OPERATIONS[name](*arguments)))
        except OSError as error:
            wire.send(channel, ("error", error.errno or 0))
        except ValueError:  # what cannot be a path
            wire.send(channel, ("error", errno.EINVAL))
    os._exit(0)


def _read(path: str, offset: int, limit: int) -> tuple[bytes, int]:
    """At most `limit` bytes from `offset`, and the file's size. Nothing but a regular file is read, and nothing waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, path)
        file.seek(offset)
        data = b""
        while len(data) < limit and (chunk := file.read(limit - len(data))):
            data += chunk
        return data, status.st_size


def _write(path: str, data: bytes) -> None:
    """Put `data` in the place of what `path` holds, all of it or nothing; the mode stays, and a link stays a link."""
    path = os.path.realpath(path)
    directory, name = os.path.split(path)
    temporary = f"{directory}/.{name}.{os.urandom(4).hex()}"
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mode = None
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _list(path: str) -> list[tuple[str, str]]:
    """The names in a directory, sorted, each with its kind."""
    with os.scandir(path) as entries:
        return sorted((entry.name, _kind(entry)) for entry in entries)


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


OPERATIONS: dict[str, Callable[..., Any]] = {"read": _read, "write": _write, "list": _list}
