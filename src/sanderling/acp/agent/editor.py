"""
File tools that see the client's unsaved text.

A client returns the text of a path, and does not say whether it is open in the editor. A file counts as open if that text differs from
the disk's. Other files are written on disk by the tools, because the sandbox confines the tools and not the client.
"""

import os
from pathlib import Path
from zlib import crc32

import anyio
from anyio import to_thread

from sanderling.acp.agent.clients import Client
from sanderling.acp.wire.asking import (
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
)
from sanderling.acp.wire.base import Empty
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.errors import RpcError
from sanderling.changes.editing.lines import Hunk, applied
from sanderling.errors import ToolError
from sanderling.paths import open_plain
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import Stamp
from sanderling.text import printable
from sanderling.tools.editor import Buffer, Diagnostic

DEADLINE_S = 10.0
MAX_BYTES = 8 << 20
READ, WRITE = "fs/read_text_file", "fs/write_text_file"


class ClientEditor:
    """The `Editor` interface, implemented by the session's client."""

    def __init__(self, session_id: str, connection: AcpConnection, client: Client) -> None:
        self._session_id = session_id
        self._connection = connection
        self._can_write = client.writes_files
        self._identities: dict[int, Identity] = {}

    async def buffer(self, path: str, identity: Identity) -> Buffer | None:
        if not await to_thread.run_sync(_is_there, path, identity):
            return None  # inside the sandbox, this path is another file than for the user
        text = await self._read(path)
        on_disk = await to_thread.run_sync(_text_on_disk, path)
        if text is None or on_disk is None or _plain(text) == _plain(on_disk):
            return None
        buffer = _buffer(path, text)
        self._identities[buffer.id] = identity
        return buffer

    async def opened(self, path: str, identity: Identity, tool_use_id: str) -> Buffer | None:  # noqa: ARG002
        return None  # clients have a review of their own

    async def again(self, buffer: Buffer) -> Buffer | None:
        text = await self._read(buffer.path)
        return None if text is None else _buffer(buffer.path, text)

    async def change(self, buffer: Buffer, hunks: tuple[Hunk, ...], tool_use_id: str) -> bool:  # noqa: ARG002
        if not self._can_write:
            raise ToolError(
                f"The user has unsaved changes in {buffer.path}, and their editor cannot change files. Ask them to save it first."
            )
        now, identity = await self.again(buffer), self._identities.get(buffer.id)
        if now is None or now.tick != buffer.tick or identity is None:
            return False
        if not await to_thread.run_sync(_is_there, buffer.path, identity):
            return False
        text = applied(buffer.text, hunks)
        text = text.replace("\n", "\r\n") if buffer.line_ending == "dos" else text
        asked = WriteTextFileRequest(
            session_id=self._session_id, path=buffer.path, content=printable(text)
        )
        try:
            with anyio.fail_after(DEADLINE_S):
                await self._connection.request(WRITE, asked, Empty)
        except RpcError as error:
            raise ToolError(f"The editor rejected the change: {error}") from error
        except TimeoutError as error:
            raise _late() from error
        return True

    async def before_write(self, buffer: Buffer) -> Buffer | None:
        return await self.again(buffer)

    async def after_write(self, buffer: Buffer, stamp: Stamp) -> None: ...

    async def not_written(self, buffer: Buffer) -> None: ...

    async def unsaved(self) -> tuple[str, ...]:
        return ()  # the protocol cannot list them

    async def save_buffer(self, path: str) -> str:
        return f"The client cannot be asked to save {path}."

    async def files_changed(self, paths: tuple[str, ...]) -> None: ...

    async def changed_on_disk(
        self, path: str, hunks: tuple[Hunk, ...], tool_use_id: str
    ) -> None: ...

    async def watch(self, buffer: Buffer, watch: str) -> None: ...

    async def new_diagnostics(
        self,
        watches: tuple[str, ...],  # noqa: ARG002
        *,
        waits: bool,  # noqa: ARG002
    ) -> tuple[Diagnostic, ...]:
        return ()

    async def _read(self, path: str) -> str | None:
        """Return the client's text of the file; None if it has none."""
        asked = ReadTextFileRequest(session_id=self._session_id, path=path)
        try:
            with anyio.fail_after(DEADLINE_S):
                return (await self._connection.request(READ, asked, ReadTextFileResponse)).content
        except RpcError:  # missing, or not shown by this client
            return None
        except TimeoutError as error:
            raise _late() from error


def _late() -> ToolError:
    return ToolError(f"The editor did not answer within {DEADLINE_S:g} s. Try again.")


def _is_there(path: str, identity: Identity) -> bool:
    """Return whether `path` is this file, or for a new file, would be in this directory. A file hidden by the sandbox also exists."""
    if identity.place and os.path.lexists(path):
        return False
    try:
        status = os.stat(os.path.dirname(path) if identity.place else path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (identity.device, identity.inode)


def _text_on_disk(path: str) -> str | None:
    """Return the text of a file, empty if it is missing; None if it is binary or too long."""
    try:
        with open_plain(Path(path)) as file:
            data = file.read(MAX_BYTES + 1)
        return None if len(data) > MAX_BYTES else data.decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        return None


def _plain(text: str) -> str:
    """Return `text` without what clients may normalize: line endings, a final newline and a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n")


def _buffer(path: str, text: str) -> Buffer:
    is_dos = "\r\n" in text and text.count("\r\n") == text.count("\n")
    return Buffer(
        id=crc32(path.encode(errors="replace")),
        path=path,
        tick=crc32(text.encode(errors="replace")),
        text=text.replace("\r\n", "\n") if is_dos else text,
        is_modified=True,
        line_ending="dos" if is_dos else "unix",
    )
