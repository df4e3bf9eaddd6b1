"""
Files that an external agent reads and writes through its client: the newest text, from the buffer or disk, and Sanderling's edit path.

The agent can read what commands can see. Its writes go through the gate, the journal and the merge with unsaved changes, and only into
the project and directories added to it. The agent may also read files directly. So the text on disk counts as known to it, but changes
since its last read through Sanderling are merged with what it writes.
"""

import os
from collections.abc import Callable

import anyio
from anyio import to_thread

from sanderling.agents.permits import Permits
from sanderling.changes.editing.lines import TextDifference
from sanderling.changes.editing.merge import merge
from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError
from sanderling.paths import is_in_any
from sanderling.permissions.gate import DeniedError, Permit
from sanderling.sandbox.files import Loaded
from sanderling.tools.base import Context, UseRequest
from sanderling.tools.buffers import buffer_of, plain
from sanderling.tools.outcome import UnsavedConflictError
from sanderling.tools.read import ReadInput, buffer_in_step, read
from sanderling.tools.texts import done
from sanderling.tools.workspace import Workspace
from sanderling.tools.write import WriteInput, write

MAX_BYTES = 16 << 20
"""Limit for a file that is read whole, because it is sent as one line."""

MAX_READING = 4

OUTSIDE = "{path} is outside the project; only files in the project can be written."
RELATIVE = "{path} is not an absolute path."
STALE = "{path} has changed in these lines since you read it. Nothing was written; read it again."


class NotThereError(ToolError):
    """The file does not exist, or the sandbox hides it."""


class ServedFiles:
    """
    The files of a session's agent. `additional` are absolute paths of directories added to the project.

    `show` is called with the output of a write while it runs.
    """

    def __init__(
        self,
        workspace: Workspace,
        permits: Permits,
        additional: tuple[str, ...] = (),
        show: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._workspace = workspace
        self._permits = permits
        self._additional = additional
        self._show = show
        self._limiter = anyio.CapacityLimiter(MAX_READING)

    async def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """
        Return the text of a file, unsaved changes included; at most `limit` lines from `line`, counted from 1.

        Raises:
            NotThereError: the file does not exist.
            ToolError: it cannot be read, is binary, or a rule forbids it.
            DeniedError: the user denied it.
        """
        path = self._absolute(path)
        request = self._permits.request(read, ReadInput(path=path))
        permit = await self._permits.of_read(request)
        workspace = self._workspace.granted(permit.grant)
        async with self._limiter, workspace.environment.lending(permit.grant):
            text = await self._text(workspace, path)
        if not _is_text(text):
            raise ToolError(f"{path} contains bytes that are not text.")
        workspace.read_cache.note(path, text)
        return await to_thread.run_sync(_excerpt, text, line, limit)

    async def write(self, path: str, content: str, use_id: str = "") -> None:
        """
        Write `content` to a file, or to its buffer if that has unsaved changes, which are merged.

        `use_id` is the unique ID of the write in the journal; one is made if it is empty.

        Raises:
            ToolError: it cannot be written, a rule or the mode forbids it, or the user accepted only a part; the message says which.
            DeniedError: the user denied it.
        """
        path = self._absolute(path)
        self._check_place(path, path)
        content = await self._merged(path, content)
        args = WriteInput(path=path, content=content)
        request = self._permits.request(write, args, use_id=use_id)
        permit = await self._permits.of_write(request, path, content)
        for granted in permit.grant.write_paths:  # a link may have changed meanwhile
            self._check_place(granted, path)
        await self._run(request, permit)

    def _check_place(self, place: str, path: str) -> None:
        disk = self._workspace.disk
        roots = map(disk.real_path, (self._workspace.project, *self._additional))
        if not is_in_any(disk.real_path(place), roots):
            raise ToolError(OUTSIDE.format(path=path))

    # --- reading ---------------------------------------------------------------------------------------------------------

    async def _text(self, workspace: Workspace, path: str) -> str:
        loaded = await self._load(workspace, path)
        if loaded is None:
            if buffer := await buffer_of(workspace, path, None):
                return plain(buffer.text)
            raise NotThereError(str(await workspace.missing(path)))
        if buffer := await buffer_in_step(workspace, path, loaded):
            return plain(buffer.text)
        return await self._text_on_disk(path, loaded)

    async def _text_on_disk(self, path: str, loaded: Loaded) -> str:
        if not loaded.is_whole:
            limit = f"{MAX_BYTES >> 20} MB"
            raise ToolError(f"{path} is larger than {limit}. Read it with a command.")
        text = await to_thread.run_sync(decode, loaded.data)
        if text.is_binary:
            raise ToolError(f"{path} is a binary file of {loaded.stamp.size:,} bytes.")
        return text.text

    async def _load(self, workspace: Workspace, path: str) -> Loaded | None:
        """Return the file, or None if it does not exist."""
        try:
            with workspace.explaining(path, "read"):
                return await (await workspace.files()).load(path, MAX_BYTES)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def _absolute(self, path: str) -> str:
        if not os.path.isabs(path):
            raise ToolError(RELATIVE.format(path=path))
        return self._workspace.path(path)

    # --- writing ---------------------------------------------------------------------------------------------------------

    async def _merged(self, path: str, content: str) -> str:
        """
        Return the content, merged with changes since the agent last read the file through Sanderling.

        Text that it read directly counts as known.
        """
        workspace, known_file = self._workspace, self._workspace.read_cache.get(path)
        loaded = await self._load(workspace, path)
        if loaded is None or not loaded.is_whole:
            return content
        text = await to_thread.run_sync(decode, loaded.data)
        if text.is_binary:
            return content
        buffer = await buffer_of(workspace, path, loaded.stamp)
        if buffer and buffer.is_modified:
            # Later, the change of the buffer merges its text with what the agent has seen.
            seen = known_file.text if known_file else None
            if seen is None or await done(len(content), _is_nearer, text.text, seen, content):
                workspace.read_cache.note(path, text.text)
            return content
        if (
            known_file
            and known_file.text is not None
            and not known_file.is_of(text.text, loaded.stamp)
        ):
            found = await done(len(content), merge, known_file.text, text.text, content)
            if found.conflicts:
                raise ToolError(STALE.format(path=workspace.shown(path)))
            content = found.text
        workspace.read_cache.note(path, text.text)
        return content

    async def _run(self, request: UseRequest, permit: Permit) -> None:
        """Write the file. Where it overlaps unsaved changes, ask the user, again if there are new ones."""
        while True:
            try:
                return await self._write(request, permit)
            except UnsavedConflictError as overlap:
                try:
                    permit = await self._permits.gate.review(request, overlap, permit)
                except DeniedError as denied:
                    raise DeniedError(f"{denied}\n{overlap}", denied.reason) from denied

    async def _write(self, request: UseRequest, permit: Permit) -> None:
        workspace = self._workspace.granted(permit.grant)
        request.check_ground(workspace)
        context = Context(
            workspace,
            request.tool_use_id,
            self._show,
            overruled=permit.overruled,
            accepted=permit.accepted,
        )
        async with workspace.environment.lending(permit.grant):
            outcome = await request.tool.run(request.args, context)
        if permit.accepted and (review := permit.accepted.review_notes()).notes:
            raise ToolError("\n".join((str(outcome.content).partition("\n")[0], *review.notes)))


def _is_nearer(disk: str, seen: str, content: str) -> bool:
    """Return whether `content` is based on the text on disk rather than on the text read through Sanderling."""
    return _distance(disk, content) < _distance(seen, content)


def _distance(old: str, new: str) -> int:
    return sum(hunk.line_count + len(hunk.lines) for hunk in TextDifference(old, new).hunks)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _excerpt(text: str, line: int | None, limit: int | None) -> str:
    """Return at most `limit` lines from number `line`, with their line ends."""
    if line is None and limit is None:
        return text
    *lines, rest = text.split("\n")
    lines = [*(f"{each}\n" for each in lines), *([rest] if rest else [])]
    first = max(0, (line or 1) - 1)
    return "".join(lines[first : None if limit is None else first + max(0, limit)])
