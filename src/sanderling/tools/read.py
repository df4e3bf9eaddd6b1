"""The read tool: a page of a file as the user sees it, a directory, or an image."""

import base64
import errno
import shlex
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple

import anyio.to_thread
import msgspec

from sanderling.changes.editing.lines import CUT, MAX_LINE_CHARS, numbered
from sanderling.changes.editing.replace import NOTEBOOK_SUFFIX
from sanderling.changes.editing.text import FileText, decode, utf_16_hint
from sanderling.errors import ToolError
from sanderling.images import MAX_IMAGE_BYTES, ImageError, checked, kind_of
from sanderling.protocol.messages import ImageBlock, ImageSource, TextBlock
from sanderling.sandbox.files import Loaded
from sanderling.text import printable
from sanderling.tools.base import Context, on_path, path_shown, tool
from sanderling.tools.buffers import buffer_of, covers, is_in_step, is_utf_8, plain
from sanderling.tools.editor import Buffer
from sanderling.tools.elsewhere import missing
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.texts import fitting
from sanderling.tools.workspace import SENTENCES, Workspace

MAX_LINES = 2000
MAX_PAGE_BYTES = 50 * 1024
WHOLE_BYTES = 8 << 20
"""Larger files are read by page only."""
NOTEBOOK_BYTES = 64 << 20  # with their images; larger ones are shown as text
MAX_NAMES = 500
MAX_REST_BYTES = 10_000  # bash shows 16,000
UTF_8_CHAR_BYTES = 4
PDF, PDF_WITHIN_BYTES = b"%PDF-", 1024  # some programs write something before it


class ReadInput(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="Absolute, below ~, or relative to the project")]
    offset: Annotated[int, msgspec.Meta(ge=1, description="First line, from 1")] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES)] = MAX_LINES


class NumberedExcerpt(NamedTuple):
    """Numbered lines, and a description of their range."""

    lines: list[str]
    extent: str


def _title(args: ReadInput, workspace: Workspace) -> str:
    first = f":{args.offset}" if args.offset > 1 else ""
    return path_shown(args, workspace) + first


@tool(ReadInput, effect=on_path("read", "read"), title=_title)
async def read(args: ReadInput, context: Context) -> Outcome:
    """
    Read a file as the user sees it, including unsaved text.

    Each line is prefixed by its number and a tab, which are not part of the text. At most 2000 lines or 50 KB per call; the last line, in
    parentheses, gives the range, the total, and anything unusual (encoding, line endings). Continue with `offset`. Lines are cut after
    2000 characters. Images (PNG, JPEG, GIF, WebP) are shown, directories listed, notebooks shown by cell, PDFs by page.
    """
    workspace = context.workspace
    path = workspace.path(args.path)
    if workspace.is_scratch(path):
        await workspace.require_scratch(path)
    try:
        with workspace.explaining(path, "read"):
            limit = NOTEBOOK_BYTES if path.endswith(NOTEBOOK_SUFFIX) else WHOLE_BYTES
            loaded = await (await workspace.files()).load(path, limit)
    except ToolError as error:
        if isinstance(error.__cause__, IsADirectoryError):
            return await _listing(workspace, path)
        if isinstance(error.__cause__, FileNotFoundError):
            return await _read_unsaved(args, context, path)
        raise
    if kind_of(loaded.data):
        return await _image(workspace, path, loaded)
    if is_pdf(loaded.data, path):
        return await _pdf(args, workspace, path)
    if buffer := await buffer_in_step(workspace, path, loaded):
        workspace.read_cache.note(path, plain(buffer.text))
        note = await _note(loaded, "" if is_utf_8(buffer) else buffer.encoding)
        if buffer.is_modified:
            note = "unsaved changes in the editor"
        page = await _page(buffer.text, args, path)
        rest = "" if buffer.is_modified else _rest_of_line(page, args, path, buffer.encoding)
        return _outcome(page, [each for each in (note, rest) if each])
    return await _read_file(args, workspace, path, loaded)


async def buffer_in_step(workspace: Workspace, path: str, loaded: Loaded) -> Buffer | None:
    """
    Return the file's buffer, after reloading outside changes.

    An unmodified buffer adds nothing to the file. If it still differs, it is not used: it may have been loaded when the name led
    elsewhere.
    """
    buffer = await buffer_of(workspace, path, loaded.stamp)
    if buffer is None or workspace.editor is None or buffer.is_modified:
        return buffer
    if not loaded.is_whole:
        return None
    with suppress(ToolError):  # the encoding is unknown to Python
        if not is_in_step(buffer, loaded.data):
            await workspace.editor.files_changed((path,))
            buffer = await workspace.editor.again(buffer)
            if buffer and not buffer.is_modified and not is_in_step(buffer, loaded.data):
                return None
    return buffer


def is_pdf(data: bytes, path: str) -> bool:
    """Return whether this is a PDF. Its mark may be further back only by name: programs contain it too."""
    if data[:PDF_WITHIN_BYTES].lstrip().startswith(PDF):
        return True
    return path.lower().endswith(".pdf") and PDF in data[:PDF_WITHIN_BYTES]


async def _note(loaded: Loaded, encoding: str) -> str:
    """Return what is unusual about a file that the editor shows in `encoding`."""
    if not loaded.is_whole:
        return ""
    return (await anyio.to_thread.run_sync(decode, loaded.data)).note_in(encoding)


async def _read_file(args: ReadInput, workspace: Workspace, path: str, loaded: Loaded) -> Outcome:
    text = await anyio.to_thread.run_sync(decode, loaded.data)
    if loaded.is_whole:
        workspace.read_cache.note(path, text.text)
    else:
        workspace.read_cache.note_large(path, loaded.stamp)
    if text.is_binary:
        what = f"{workspace.shown(path)} is a binary file of {loaded.stamp.size:,} bytes.{utf_16_hint(loaded.data)}"
        return Outcome(content=what, summary="binary")
    notes = [text.note] if text.note else []
    real = workspace.disk.status(path)
    if real and covers(workspace.disk, path, loaded.stamp):
        if not stat.S_ISREG(real.st_mode):  # an empty file covers a socket
            raise ToolError(SENTENCES[errno.EINVAL].format(name=workspace.shown(path)))
        notes.append("the sandbox hides this file's real content")
    if loaded.is_whole:
        page = await _page(text.text, args, path)
    else:
        notes = [f"{loaded.stamp.size:,} bytes", *([text.note] if text.encoding != "utf-8" else [])]
        page = await _page_of_large(args, workspace, path, text)
    rest = _rest_of_line(page, args, path, text.encoding)
    return _outcome(page, [*notes, rest] if rest else notes)


async def _read_unsaved(args: ReadInput, context: Context, path: str) -> Outcome:
    """Return a file that is only in the editor: deleted, or not yet written."""
    workspace, may_read = context.workspace, context.may_read
    if buffer := await buffer_of(workspace, path, None):
        workspace.read_cache.note(path, plain(buffer.text))
        page = await _page(buffer.text, args, path)
        return _outcome(page, ["only in the editor, not on disk"])
    raise await missing(workspace, path, may_read)


# --- text --------------------------------------------------------------------------------------------------------------


async def _page(text: str, args: ReadInput, path: str) -> NumberedExcerpt:
    if path.endswith(NOTEBOOK_SUFFIX):
        from sanderling.changes.editing.notebook import parse_notebook  # only for notebooks
        from sanderling.tools.notebooks import cells_shown

        if notebook := await anyio.to_thread.run_sync(parse_notebook, text):
            return NumberedExcerpt(*cells_shown(notebook, args.offset, args.limit, MAX_PAGE_BYTES))
    return await anyio.to_thread.run_sync(_page_of, text, args.offset, args.limit)


def _page_of(text: str, first: int, limit: int) -> NumberedExcerpt:
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    if not count:
        return NumberedExcerpt([], "empty file")
    if first > count:
        raise ToolError(f"The file has {count} lines: there is no line {first}.")
    following = text.split("\n", first - 1 + limit)[first - 1 : first - 1 + limit]
    lines = fitting(numbered(following[: count - first + 1], first), MAX_PAGE_BYTES)
    return NumberedExcerpt(lines, _extent(first, len(lines), count))


async def _page_of_large(
    args: ReadInput, workspace: Workspace, path: str, head: FileText
) -> NumberedExcerpt:
    if head.encoding.startswith(("utf-16", "utf-32")):
        raise ToolError(
            f"{workspace.shown(path)} is {head.encoding_name} and too large to be paged: convert a part of it with `iconv`."
        )
    with workspace.explaining(path, "read"):
        files = await workspace.files()
        page = await files.page(
            path,
            args.offset,
            args.limit,
            line_bytes=MAX_LINE_CHARS * UTF_8_CHAR_BYTES,
            page_bytes=MAX_PAGE_BYTES,
        )
    if not page.lines:
        raise ToolError(_not_reached(args.offset, page.line_count, is_all=page.is_counted))
    shown = (
        f"{number}\t{_shown_bytes(data, length, head.encoding)}"
        for number, (data, length) in enumerate(page.lines, args.offset)
    )
    lines = fitting(shown, MAX_PAGE_BYTES)
    extent = _extent(args.offset, len(lines), page.line_count, is_counted=page.is_counted)
    return NumberedExcerpt(lines, extent)


def _not_reached(first: int, count: int, *, is_all: bool) -> str:
    if is_all:
        return f"The file has {count:,} lines: there is no line {first}."
    return f"Line {first} is too far into this file: it was read up to line {count:,}. Use bash (sed, awk) to get there."


def _shown_bytes(data: bytes, length: int, encoding: str) -> str:
    line = data.decode(encoding, "replace").removesuffix("\r")
    if length > len(data) or len(line) > MAX_LINE_CHARS:
        return f"{printable(line[:MAX_LINE_CHARS])}{CUT} {length} bytes]"
    return line


def _extent(first: int, shown: int, count: int, *, is_counted: bool = True) -> str:
    last = first + shown - 1
    if is_counted and shown == count:
        return f"{count} line{'s' * (count > 1)}"
    total = f"{count}" if is_counted else f"more than {count:,}"
    more = f"; continue with offset={last + 1}" if last < count or not is_counted else ""
    return f"lines {first}-{last} of {total}{more}"


def _rest_of_line(page: NumberedExcerpt, args: ReadInput, path: str, encoding: str) -> str:
    """Return how to read the rest of the page's first cut line, if bash can: cells have no lines, and UTF-16 is not text to `cut`."""
    if path.endswith(NOTEBOOK_SUFFIX) or encoding.startswith(("utf-16", "utf-32", "ucs-")):
        return ""
    found = (at for at, line in enumerate(page.lines, args.offset) if CUT in line[MAX_LINE_CHARS:])
    if not (at := next(found, 0)):
        return ""
    more = f"{MAX_LINE_CHARS + 1}-{MAX_LINE_CHARS + MAX_REST_BYTES}"
    name = shlex.quote(path if args.path.startswith("~") else args.path)
    return f"line {at} goes on: bash `sed -n '{at}{{p;q}}' {name} | cut -c{more}`"


def _outcome(page: NumberedExcerpt, notes: Sequence[str]) -> Outcome:
    summary = page.extent.partition(";")[0]
    return Outcome(
        content="\n".join([*page.lines, f"({'; '.join([page.extent, *notes])})"]), summary=summary
    )


# --- images, PDFs and directories --------------------------------------------------------------------------------------


async def _image(workspace: Workspace, path: str, loaded: Loaded) -> Outcome:
    name, size = workspace.shown(path), loaded.stamp.size
    if not loaded.is_whole or size > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{name} is an image of {size:,} bytes; at most {MAX_IMAGE_BYTES:,} can be shown. Make it smaller first."
        )
    try:
        picture = await anyio.to_thread.run_sync(checked, loaded.data)
    except ImageError as error:
        remedy = " Make it smaller first." if "at most" in str(error) else ""
        raise ToolError(f"{name} is an image that cannot be shown: {error}.{remedy}") from error
    data = await anyio.to_thread.run_sync(base64.b64encode, loaded.data)
    what = f"{picture.media_type}, {size:,} bytes"
    blocks = (
        TextBlock(f"{name}: {what}"),
        ImageBlock(ImageSource(picture.media_type, data.decode("ascii"))),
    )
    return Outcome(content=blocks, summary=what, detail=what)


async def _pdf(args: ReadInput, workspace: Workspace, path: str) -> Outcome:
    """Return the whole PDF if the API takes it, unless only some pages are wanted; else its text."""
    from sanderling.tools.pdf import read_pdf, whole_pdf  # only for PDFs

    is_whole = (args.offset, args.limit) == (1, MAX_LINES)
    max_pages = workspace.document_pages()
    if is_whole and max_pages and (pdf := await whole_pdf(workspace, path, max_pages)):
        return pdf
    return await read_pdf(workspace, path, args.offset, args.limit, MAX_PAGE_BYTES)


async def _listing(workspace: Workspace, path: str) -> Outcome:
    with workspace.explaining(path, "listed"):
        entries = await (await workspace.files()).list(path)
    names = [escaped(name) + _MARKS[kind] for name, kind in entries]
    more = [f"… and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    count = f"{len(names)} entr{'y' if len(names) == 1 else 'ies'}"
    lines = [f"{workspace.shown(path)} is a directory with {count}:", *names[:MAX_NAMES], *more]
    return Outcome(content="\n".join(lines), summary=count)


_MARKS = {"directory": "/", "link": "@", "file": "", "other": " (special file)"}
