"""The host's end of the file worker, and the same without one."""

import errno
import itertools
import os
import select
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import anyio.to_thread

from sanderling.errors import SandboxError
from sanderling.sandbox import wire
from sanderling.sandbox.inside.reading import Stamp
from sanderling.sandbox.processes import Process, close

if TYPE_CHECKING:
    from sanderling.sandbox.inside.naming import Sight

HEAD_BYTES = 64 * 1024
WRITE_S = 60.0
"""A write that has begun is waited for, also by who is being cancelled: whether it was done must be known."""
SYNCED_AT_ONCE = LOOKED_AT_ONCE = 1000
MAX_LOOKED_BYTES = 8 << 20
RETIRE_S = 1.0
LOOKS = frozenset(("read", "load", "lines", "identify", "list", "check", "look", "looks"))
"""The operations that leave everything as it is, but for `check`, which leaves no trace."""
ABSENT = ()
"""The stamp that is expected where there must be no file."""
Expected = Stamp | tuple[()]
Answer = tuple[str, Any]
"""A worker's: "ok" and the result, or "error" and its number."""


class Loaded(NamedTuple):
    """A file's bytes, or if it is not `is_whole` the first of them, and which state of it that is."""

    data: bytes
    is_whole: bool
    stamp: Stamp


class Look(NamedTuple):
    """A thing that has a name: its mode if it is no link, the `data` of a file (None if it is too long, or may not be read), the `target` of a link."""

    kind: Literal["absent", "file", "link", "directory", "fifo", "socket", "other"]
    mode: int
    size: int
    data: bytes | None
    target: str
    stamp: Expected


class Identity(NamedTuple):
    """
    A file, by whatever name.

    One that is not there has a `place`, its real path; device and inode are then those of the next directory above it that is there.
    """

    device: int
    inode: int
    place: str = ""


class Page(NamedTuple):
    """
    Some lines of a file: of each its first bytes, and how many it has.

    `line_count` is that of the file if `is_counted`; else the file has more than that.
    """

    lines: list[tuple[bytes, int]]
    line_count: int
    is_counted: bool


class FileChangedError(OSError):
    """The file is not the one that was expected: nothing was written."""


class Files:
    """
    Files as the sandbox sees them. Paths are absolute.

    Every method raises `OSError` with what the kernel said inside (a hidden path does not exist, what is protected is read-only),
    and `SandboxError` when the sandbox has ended. What is no regular file is neither read nor written (EINVAL, EISDIR).
    """

    def __init__(self, channel: socket.socket, process: Process) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._process = process
        self._turn = anyio.Lock()
        self._numbers = itertools.count()

    async def read(self, path: str, offset: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
        """At most `limit` bytes of a regular file from `offset`, and the size of all of it."""
        data, size = await self.ask("read", path, offset, limit)
        return data, size

    async def load(self, path: str, limit: int, head: int = HEAD_BYTES) -> Loaded:
        """Return all of a file, or if it is longer than `limit` bytes its first `head`."""
        data, is_whole, stamp = await self.ask("load", path, limit, head)
        return Loaded(data, is_whole, Stamp(*stamp))

    async def page(
        self, path: str, first: int, count: int, *, line_bytes: int, page_bytes: int
    ) -> Page:
        """`count` lines from number `first` (from 1) of a file of any size, as many as `page_bytes` hold, each up to `line_bytes`."""
        return Page(*await self.ask("lines", path, first, count, line_bytes, page_bytes))

    async def identify(self, path: str) -> Identity:
        """The identity of the file, or of the place where it would be."""
        return Identity(*await self.ask("identify", path))

    async def list(self, path: str) -> list[tuple[str, str]]:
        """The names in a directory, sorted, each with "file", "directory", "link" or "other"."""
        return await self.ask("list", path)

    async def check(self, path: str) -> None:
        """Raise the `OSError` that writing would raise now."""
        await self.ask("check", path)

    async def write(
        self,
        path: str,
        data: bytes,
        *,
        expected: Expected | None = None,
        makes_parents: bool = False,
        mode: int | None = None,
        is_split: bool = False,
    ) -> Stamp:
        """
        Put `data` in the place of what `path` holds, all of it or nothing; return the stamp of what is there now.

        Mode, owner, attributes, links and hard links stay; where a `mode` is given, it is the file's, no link is
        followed, and the disk has the file after the next `sync`. If it `is_split`, it is a file of its own from then on.
        `expected` is the stamp of what may be replaced, or `ABSENT`.

        Raises:
            FileChangedError: it is not what was expected.
        """
        stamp = None if expected is None else tuple(expected)
        return Stamp(*await self._change("write", path, data, stamp, makes_parents, mode, is_split))

    # None of the following methods follows a link, and what is replaced must be what is `expected`, as with `write`.

    async def look(self, path: str, limit: int) -> Look:
        """Return what has this name, and the content of a file that has no more than `limit` bytes."""
        return _look(await self.ask("look", path, limit))

    async def looks(self, paths: Sequence[str], limit: int) -> tuple[Look, ...]:
        """Look at each of `paths`; what cannot be looked at is something other."""
        found: tuple[Look, ...] = ()
        while len(found) < len(paths):
            some = tuple(paths[len(found) : len(found) + LOOKED_AT_ONCE])
            found += tuple(map(_look, await self.ask("looks", some, limit, MAX_LOOKED_BYTES)))
        return found

    async def unlink(self, path: str, expected: Expected) -> None:
        """Take away the name of whatever is no directory."""
        await self._change("unlink", path, tuple(expected))

    async def symlink(self, path: str, target: str, expected: Expected) -> None:
        """Put a link in the place of a file, a link, or of nothing; directories above it are made."""
        await self._change("symlink", path, target, tuple(expected))

    async def link(
        self, path: str, twin: str, data: bytes, mode: int, expected: Expected
    ) -> Stamp | None:
        """
        Make `path` another name of the file `twin`, if that holds `data` and has this mode; return its stamp.

        None, and nothing done, if `twin` is something else, or the same file already.
        """
        stamp = await self._change("link", path, twin, data, mode, tuple(expected))
        return Stamp(*stamp) if stamp else None

    async def mkfifo(self, path: str, mode: int) -> None:
        """Make a FIFO, and the directories above it."""
        await self._change("mkfifo", path, mode)

    async def chmod(self, path: str, mode: int, expected: Expected) -> None:
        """Set the mode of a file or a directory."""
        await self._change("chmod", path, mode, tuple(expected))

    async def mkdir(self, path: str, mode: int) -> None:
        """Make a directory, and those above it."""
        await self._change("mkdir", path, mode)

    async def rmdir(self, path: str) -> None:
        """Remove a directory that is empty."""
        await self._change("rmdir", path)

    async def sync(self, paths: Sequence[str]) -> None:
        """Wait until the disk has what was written at `paths` with a mode."""
        for first in range(0, len(paths), SYNCED_AT_ONCE):
            await self._change("sync", tuple(paths[first : first + SYNCED_AT_ONCE]))

    @property
    def has_ended(self) -> bool:
        """Say whether the worker is gone."""
        if self._channel.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._channel, 0)
        return bool(poll.poll(0))

    async def retire(self) -> None:
        """Close when what was asked is answered."""
        with anyio.move_on_after(RETIRE_S, shield=True):
            async with self._turn:
                pass
        self.close()

    def close(self) -> None:
        close(self._channel.detach())
        self._process.close()

    async def _change(self, operation: str, path: str | tuple[str, ...], *arguments: object) -> Any:
        with anyio.move_on_after(WRITE_S, shield=True):
            try:
                return await self.ask(operation, path, *arguments)
            except OSError as error:
                if error.errno == errno.ESTALE:
                    raise FileChangedError(errno.ESTALE, "changed meanwhile", path) from error
                raise
        raise SandboxError(f"{path} could not be changed within {WRITE_S:g} s.")

    async def ask(self, operation: str, path: str | tuple[str, ...], *arguments: object) -> Any:
        """Have the worker do something that it can do by that name."""
        async with self._turn:
            number = next(self._numbers)
            try:
                await self._send((number, operation, path, *arguments))
                answer = await self._receive(number)
            except (OSError, anyio.ClosedResourceError) as error:
                raise SandboxError(f"The sandbox has ended: {error}.") from error
        return _result(answer, path)

    async def _send(self, request: wire.Message) -> None:
        while True:
            try:
                wire.send(self._channel, request)
            except BlockingIOError:  # full of what was asked for by some who were cancelled
                await anyio.wait_writable(self._channel)
            else:
                return

    async def _receive(self, number: int) -> Answer:
        while True:
            await anyio.wait_readable(self._channel)
            if (received := wire.receive(self._channel)) is None:
                raise SandboxError("The sandbox has ended.")
            answered, *answer = received[0]
            if answered == number:  # else it is for one who was cancelled
                kind, value = answer
                return kind, value


class UnconfinedFiles(Files):
    """Files with all of the person's rights, when there is no sandbox."""

    def __init__(self) -> None: ...

    @property
    def has_ended(self) -> bool:
        return False

    async def retire(self) -> None: ...

    def close(self) -> None: ...

    async def ask(self, operation: str, path: str | tuple[str, ...], *arguments: object) -> Any:
        from sanderling.sandbox.inside import worker  # what else works beyond the host

        answer = await anyio.to_thread.run_sync(
            worker.answer,
            operation,
            path,
            *arguments,
            abandon_on_cancel=operation in LOOKS,
        )
        return _result(answer, path)


def _look(sight: "Sight | int") -> Look:
    if isinstance(sight, int):  # the number of an error
        return Look("other", 0, 0, None, "", ABSENT)
    kind, mode, size, data, target, stamp = sight
    return Look(kind, mode, size, data, target, Stamp(*stamp) if stamp else ABSENT)


def _result(answer: Answer, path: str | tuple[str, ...]) -> Any:
    kind, value = answer
    if kind == "error":
        raise OSError(value, os.strerror(value), path if isinstance(path, str) else None)
    return value
