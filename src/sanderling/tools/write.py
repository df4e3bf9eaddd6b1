"""The write tool: creates a file, or replaces one that the model knows."""

from typing import Annotated

import msgspec

from sanderling.changes.editing.lines import TextDifference, lines_of
from sanderling.changes.editing.text import FileText, character_name, decode
from sanderling.errors import ToolError
from sanderling.text import counted
from sanderling.tools.base import Context, on_path, path_shown, tool
from sanderling.tools.change import Change, CompletedChange
from sanderling.tools.edit import described
from sanderling.tools.known import ProposedContent
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.texts import difference


class WriteInput(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    content: Annotated[str, msgspec.Meta(description="The whole file")]


def _change(args: WriteInput, context: Context) -> Change:
    def propose(old: bytes | None) -> ProposedContent:
        return ProposedContent(encoded(args.content, decode(old) if old else None))

    return Change(context, context.workspace.path(args.path), propose, is_whole=True)


async def _preview(args: WriteInput, context: Context) -> Preview:
    return await _change(args, context).preview()


@tool(WriteInput, effect=on_path("write", "write"), title=path_shown, preview=_preview)
async def write(args: WriteInput, context: Context) -> Outcome:
    """
    Create a file with its parent directories, or replace all of one.

    To change part of a file, use `edit`. A file that you have not read, or that changed since, is not replaced: you get the difference
    instead. An existing file keeps its encoding, mode and links, and CRLF line endings if it has only those. Yours are merged with the
    user's unsaved changes.
    """
    changed = await _change(args, context).make()
    what = await difference(changed.old or "", changed.new)
    name = path_shown(args, context.workspace)
    return described(name, changed, what, _headline(changed, what, name))


def encoded(content: str, old: FileText | None) -> bytes:
    """
    Encode `content` for a file, with the encoding of the `old` one, and CRLF line endings if it has only those.

    Raises:
        ToolError: the encoding lacks a character.
    """
    if old is None or old.is_binary:
        encoding, bom = "utf-8", b""
    else:
        encoding, bom = old.encoding, old.bom
        if old.line_ending == "\r\n" and not old.has_mixed_line_endings and "\r" not in content:
            content = content.replace("\n", "\r\n")
    try:
        return bom + content.removeprefix("\ufeff" if bom else "").encode(encoding)
    except UnicodeEncodeError as error:
        line = content.count("\n", 0, error.start) + 1
        name = old.encoding_name if old else "UTF-8"
        raise ToolError(
            f"The file is {name}, which has no {character_name(content[error.start])}, in line {line} of the content. Nothing was written: use another"
            " character, or convert the file first."
        ) from error


def _headline(changed: CompletedChange, difference: TextDifference, name: str) -> str:
    if not changed.is_written:
        return f"Changed {name} in the editor: {difference.summary}."
    lines = len(lines_of(changed.new))
    size = f"{counted(lines, 'line')}, {changed.byte_count:,} bytes"
    if changed.old is None:
        return f"Created {name}: {size}."
    return f"Replaced {name}: {size} ({difference.summary})."
