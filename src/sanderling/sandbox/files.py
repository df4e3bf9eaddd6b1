"""File access through the file worker, or directly where there is no sandbox."""

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
from sanderling.sandbox.descriptors import close
from sanderling.sandbox.inside.reading import Stamp
from sanderling.sandbox.processes import Process

if TYPE_CHECKING:
    from sanderling.sandbox.inside.naming import Inspected

HEAD_BYTES = 64 * 1024
WRITE_S = 60.0
"""A started write is awaited even if its caller is cancelled, because its outcome must be known."""
SYNCED_AT_ONCE = LOOKED_AT_ONCE = 1000
MAX_LOOKED_BYTES = 8 << 20
RETIRE_S = 1.0
LOOKS = frozenset(("read", "load", "lines", "identify", "list", "check", "look", "looks"))
"""Operations without lasting changes. `check` creates and removes a temporary file."""
ABSENT = ()
"""The expected stamp if no file must exist."""
Expected = Stamp | tuple[()]
Answer = tuple[str, Any]
"""A worker's answer: "ok" and the result, or "error" and the errno."""


class Loaded(NamedTuple):
    """A file's content, or its beginning unless `is_whole`, and the stamp of that state."""

    data: bytes
    is_whole: bool
    stamp: Stamp


class Inspection(NamedTuple):
    """
    The result of inspecting a name.

    Attributes:
        mode: 0 for a link.
        data: a file's content; None if it is too large or unreadable.
        target: a link's target.
    """

    kind: Literal["absent", "file", "link", "directory", "fifo", "socket", "other"]
    mode: int
    size: int
    data: bytes | None
    target: str
    stamp: Expected


class Identity(NamedTuple):
    """
    The identity of a file, independent of its name.

    A missing file has a `place`, its real path; device and inode then identify the nearest existing parent directory.
    """

    device: int
    inode: int
    place: str = ""


class Page(NamedTuple):
    """
    Some lines of a file: the beginning of each, and its full length.

    `line_count` is the file's if `is_counted`; otherwise the file has more lines.
    """

    lines: list[tuple[bytes, int]]
    line_count: int
    is_counted: bool


class FileChangedError(OSError):
    """The file is not the expected one, and nothing was written."""


class Files:
    """
    Files as seen from the sandbox. Paths are absolute.

    Every method raises `OSError` with the kernel's error inside (hidden paths do not exist, protected ones are read-only), and
    `SandboxError` if the sandbox has ended. Only regular files are read and written (else EINVAL, EISDIR).
    """

    def __init__(self, channel: socket.socket, process: Process) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._process = process
        self._turn = anyio.Lock()
        self._numbers = itertools.count()

    async def read(self, path: str, offset: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
        """Return at most `limit` bytes of a file from `offset`, and the file's size."""
        data, size = await self.ask("read", path, offset, limit)
        return data, size

    async def load(self, path: str, limit: int, head: int = HEAD_BYTES) -> Loaded:
        """Return a file's content, or its first `head` bytes if it has more than `limit`."""
        data, is_whole, stamp = await self.ask("load", path, limit, head)
        return Loaded(data, is_whole, Stamp(*stamp))

    async def page(
        self, path: str, first: int, count: int, *, line_bytes: int, page_bytes: int
    ) -> Page:
        """Return up to `count` lines from number `first` (from 1), at most `page_bytes` in total, and `line_bytes` of each."""
        return Page(*await self.ask("lines", path, first, count, line_bytes, page_bytes))

    async def identify(self, path: str) -> Identity:
        return Identity(*await self.ask("identify", path))

    async def real_path(self, path: str) -> str:
        """Return `path` with its links resolved as the sandbox sees them; it need not exist."""
        return await self.ask("real_path", path)

    async def list(self, path: str) -> list[tuple[str, str]]:
        """Return the sorted names in a directory, each with "file", "directory", "link" or "other"."""
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
        Replace the content of `path` by `data`, completely or not at all. Return the new stamp.

        Mode, owner, attributes, links and hard links are preserved. With `mode`, the file gets that mode, links are not followed, and the
        data is on disk only after the next `sync`. With `is_split`, the file is separated from its hard links. `expected` is the stamp of
        the file to replace, or `ABSENT`.

        Raises:
            FileChangedError: the file is not the expected one.
        """
        stamp = None if expected is None else tuple(expected)
        return Stamp(*await self._change("write", path, data, stamp, makes_parents, mode, is_split))

    # The following methods do not follow links. As with `write`, only the `expected` file is replaced.

    async def look(self, path: str, limit: int) -> Inspection:
        """Return what this name is, with the content of a file of at most `limit` bytes."""
        return _look(await self.ask("look", path, limit))

    async def looks(self, paths: Sequence[str], limit: int) -> tuple[Inspection, ...]:
        """Inspect all `paths`. Paths that cannot be inspected have the kind "other"."""
        found: tuple[Inspection, ...] = ()
        while len(found) < len(paths):
            some = tuple(paths[len(found) : len(found) + LOOKED_AT_ONCE])
            found += tuple(map(_look, await self.ask("looks", some, limit, MAX_LOOKED_BYTES)))
        return found

    async def unlink(self, path: str, expected: Expected) -> None:
        await self._change("unlink", path, tuple(expected))

    async def symlink(self, path: str, target: str, expected: Expected) -> None:
        """Create a link, replacing the expected file or link, and create missing parents."""
        await self._change("symlink", path, target, tuple(expected))

    async def link(
        self, path: str, twin: str, data: bytes, mode: int, expected: Expected
    ) -> Stamp | None:
        """
        Make `path` a hard link to the file `twin`, if that has this content and mode. Return the stamp.

        Return None, without changes, if `twin` differs or `path` already is that file.
        """
        stamp = await self._change("link", path, twin, data, mode, tuple(expected))
        return Stamp(*stamp) if stamp else None

    async def mkfifo(self, path: str, mode: int) -> None:
        """Create a FIFO and its parent directories."""
        await self._change("mkfifo", path, mode)

    async def chmod(self, path: str, mode: int, expected: Expected) -> None:
        await self._change("chmod", path, mode, tuple(expected))

    async def mkdir(self, path: str, mode: int) -> None:
        """Create a directory and its parents."""
        await self._change("mkdir", path, mode)

    async def rmdir(self, path: str) -> None:
        await self._change("rmdir", path)

    async def sync(self, paths: Sequence[str]) -> None:
        """Wait until files that were written with a mode are on disk."""
        for first in range(0, len(paths), SYNCED_AT_ONCE):
            await self._change("sync", tuple(paths[first : first + SYNCED_AT_ONCE]))

    @property
    def has_ended(self) -> bool:
        if self._channel.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._channel, 0)
        return bool(poll.poll(0))

    async def retire(self) -> None:
        """Close after the running request."""
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
        """Execute one of the worker's operations."""
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
            except BlockingIOError:  # full of requests by cancelled callers
                await anyio.wait_writable(self._channel)
            else:
                return

    async def _receive(self, number: int) -> Answer:
        while True:
            await anyio.wait_readable(self._channel)
            if (received := wire.receive(self._channel)) is None:
                raise SandboxError("The sandbox has ended.")
            answered, *answer = received[0]
            if answered == number:  # otherwise the answer belongs to a cancelled caller
                kind, value = answer
                return kind, value


class UnconfinedFiles(Files):
    """Files with all of the user's rights, without a sandbox."""

    def __init__(self) -> None: ...

    @property
    def has_ended(self) -> bool:
        return False

    async def retire(self) -> None: ...

    def close(self) -> None: ...

    async def ask(self, operation: str, path: str | tuple[str, ...], *arguments: object) -> Any:
        from sanderling.sandbox.inside import worker  # otherwise it runs in the sandbox's processes

        answer = await anyio.to_thread.run_sync(
            worker.answer,
            operation,
            path,
            *arguments,
            abandon_on_cancel=operation in LOOKS,
        )
        return _result(answer, path)


def _look(sight: "Inspected | int") -> Inspection:
    if isinstance(sight, int):  # an errno
        return Inspection("other", 0, 0, None, "", ABSENT)
    kind, mode, size, data, target, stamp = sight
    return Inspection(kind, mode, size, data, target, Stamp(*stamp) if stamp else ABSENT)


def _result(answer: Answer, path: str | tuple[str, ...]) -> Any:
    kind, value = answer
    if kind == "error":
        raise OSError(value, os.strerror(value), path if isinstance(path, str) else None)
    return value
