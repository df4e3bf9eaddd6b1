"""Compares buffers with their files: which buffer a tool may use, and the bytes that it would write."""

import codecs

from sanderling.changes.editing.text import character_name
from sanderling.errors import ToolError
from sanderling.paths import is_within
from sanderling.sandbox.execution_environment import Disk
from sanderling.sandbox.files import Identity, Loaded
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.editor import Buffer
from sanderling.tools.workspace import Workspace

LINE_ENDINGS = {"unix": "\n", "dos": "\r\n", "mac": "\r"}
BOMS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
# Vim's names for encodings that Python lacks or uses differently.
_CODECS = {
    "": "utf-8",
    "ucs-2": "utf-16-be",
    "ucs-2be": "utf-16-be",
    "ucs-2le": "utf-16-le",
    "utf-16": "utf-16-be",
    "utf-16le": "utf-16-le",
    "ucs-4": "utf-32-be",
    "ucs-4be": "utf-32-be",
    "ucs-4le": "utf-32-le",
    "utf-32": "utf-32-be",
    "utf-32le": "utf-32-le",
}


async def buffer_of(workspace: Workspace, path: str, stamp: Stamp | None) -> Buffer | None:
    """
    Return the loaded buffer of a file that the sandbox shows; `stamp` is the file's inside the sandbox, None if it does not exist.

    The editor has all the user's rights, so a file that the sandbox hides or covers must not come through a buffer. So the editor is
    asked for the file that was opened inside (device and inode), not for a name that may lead elsewhere a moment later.

    Raises:
        ToolError: the editor does not answer.
    """
    if workspace.editor is None:
        return None
    identity = await _known_to_editor(workspace, path, stamp)
    return await workspace.editor.buffer(path, identity) if identity else None


async def opened(
    workspace: Workspace, path: str, loaded: Loaded | None, tool_use_id: str
) -> Buffer | None:
    """
    Return the buffer of a file for a review, opened if needed; None if the editor offers none.

    Raises:
        ToolError: the editor does not answer.
    """
    if workspace.editor is None:
        return None
    identity = await _known_to_editor(workspace, path, loaded.stamp if loaded else None)
    return await workspace.editor.opened(path, identity, tool_use_id) if identity else None


async def _known_to_editor(workspace: Workspace, path: str, stamp: Stamp | None) -> Identity | None:
    """Return the file for which the editor may be asked; None if it must not be."""
    if stamp:
        return Identity(stamp.device, stamp.inode)
    identity = await identify(workspace, path)
    is_projects = identity is not None and is_within(
        identity.place, workspace.disk.real_path(workspace.project)
    )
    return identity if is_projects else None


async def identify(workspace: Workspace, path: str) -> Identity | None:
    """Return the file at `path` inside the sandbox; None if nothing is visible there."""
    try:
        return await (await workspace.files()).identify(path)
    except OSError:
        return None


def covers(disk: Disk, path: str, stamp: Stamp) -> bool:
    """True if the sandbox has another file at `path` than the user: its own, or an empty one over a secret."""
    if is_within(path, "/proc"):  # each sandbox mounts its own /proc
        return False
    status = disk.status(path)
    return status is None or (status.st_dev, status.st_ino) != (stamp.device, stamp.inode)


def bytes_of(buffer: Buffer) -> bytes:
    """
    Return the bytes that the editor would write.

    Raises:
        ToolError: the encoding is not supported, or cannot represent the text.
    """
    encoding = _encoding(buffer)
    text = buffer.text.replace("\n", LINE_ENDINGS[buffer.line_ending])
    try:
        data = text.encode(encoding, "surrogateescape")
    except UnicodeEncodeError as error:
        character = character_name(text[error.start])
        raise ToolError(
            f"The editor's encoding for this file, {buffer.encoding}, has no {character}. Write it differently."
        ) from error
    return (BOMS.get(encoding, b"") if buffer.has_bom else b"") + data


def bytes_or_text(buffer: Buffer) -> bytes:
    """Return the bytes that the editor would write, or the text as UTF-8 if it cannot be encoded."""
    try:
        return bytes_of(buffer)
    except ToolError:
        return buffer.text.encode("utf-8", "surrogateescape")


def text_in(buffer: Buffer, data: bytes) -> str:
    """
    Return `data` as text in `buffer`.

    Raises:
        ToolError: the encoding is not supported, or `data` is not valid in it.
    """
    encoding = _encoding(buffer)
    data = data.removeprefix(BOMS.get(encoding, b"") if buffer.has_bom else b"")
    errors = "surrogateescape" if encoding == "utf-8" else "strict"
    try:
        text = data.decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"The file is not valid {buffer.encoding}, the editor's encoding for it: reload it there."
        ) from error
    return text.replace(LINE_ENDINGS[buffer.line_ending], "\n")


def is_utf_8(buffer: Buffer) -> bool:
    return _encoding(buffer) == "utf-8"


def plain(text: str) -> str:
    r"""Return a buffer's text as a file's text is read. With mixed line endings, a buffer keeps "\r" at the end of some lines."""
    return text.replace("\r\n", "\n")


def is_in_step(buffer: Buffer, data: bytes) -> bool:
    """True if the file's bytes are exactly the buffer's."""
    if not data:
        return buffer.text in {"", "\n"}
    return bytes_of(buffer) == data


def _encoding(buffer: Buffer) -> str:
    name = _CODECS.get(buffer.encoding.lower(), buffer.encoding)
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except LookupError as error:
        raise ToolError(
            f"The editor's encoding for this file, {buffer.encoding}, is not supported: change it there."
        ) from error
