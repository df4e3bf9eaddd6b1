"""Lines added to a file at its end unless it has them: an edit that Sanderling itself proposes."""

import re
from collections.abc import Iterable

import msgspec

from sanderling.changes.editing.replace import Replacement, replace
from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError
from sanderling.tools.base import Context, Tool, on_path, path_shown
from sanderling.tools.change import Change
from sanderling.tools.edit import described
from sanderling.tools.known import ProposedContent
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.texts import difference

_BULLET = r"([-*+])[ \t]+"


class AppendInput(msgspec.Struct, frozen=True):
    """`lines` are items of a list, without bullets. The file may have `max_bytes` afterwards."""

    path: str
    lines: tuple[str, ...]
    max_bytes: int


def new_lines(lines: Iterable[str], text: str) -> list[str]:
    """Return the `lines` that `text` does not contain, whatever their case, bullets and final stops."""
    found = dict.fromkeys(map(_plain, text.split("\n")), "")
    for words in map(_without_bullet, lines):
        found.setdefault(_plain(words), words)
    return list(filter(None, found.values()))


def _without_bullet(line: str) -> str:
    return re.sub(rf"\s*{_BULLET}", "", line, count=1).strip()


def _plain(line: str) -> str:
    return " ".join(_without_bullet(line).split()).rstrip(".!;").casefold()


def appended(data: bytes, lines: Iterable[str], path: str) -> bytes:
    """
    Return the file with the new ones of `lines` as items of a list.

    Raises:
        ToolError: the file is binary.
    """
    text = decode(data).text
    if not (lines := new_lines(lines, text)):
        return data
    bullets = re.findall(rf"(?m)^{_BULLET}", text)
    last = text.rstrip("\n").rpartition("\n")[2]
    items = "".join(f"{bullets[-1] if bullets else '*'} {each}\n" for each in lines)
    begins_list = bool(last.strip()) and not re.match(rf"\s*{_BULLET}|\s", last)
    is_apart = text.endswith("\n\n") or not begins_list
    added = Replacement(
        new=("" if is_apart else "\n") + items, insert_at_line=decode(data).line_count
    )
    return replace(data, [added], path=path).data


def _change(args: AppendInput, context: Context) -> Change:
    path = context.workspace.path(args.path)
    name = context.workspace.shown(path)

    def propose(old: bytes | None) -> ProposedContent:
        data = appended(old or b"", args.lines, name)
        if len(data) > args.max_bytes and data != old:
            raise ToolError(
                f"{name} would have {len(data):,} bytes, and the model is sent at most {args.max_bytes:,}: shorten it first."
            )
        return ProposedContent(data)

    is_new = not context.workspace.disk.exists(path)
    return Change(context, path, propose, is_whole=is_new, is_quoting=True)


async def _preview(args: AppendInput, context: Context) -> Preview:
    preview = await _change(args, context).preview()
    if not preview.subject:
        raise ToolError(f"{path_shown(args, context.workspace)} has these lines already.")
    return preview


async def _run(args: AppendInput, context: Context) -> Outcome:
    changed = await _change(args, context).make()
    context.workspace.read_cache.forget(
        context.workspace.path(args.path)
    )  # the model has not seen the lines
    what = await difference(changed.old or "", changed.new)
    name = path_shown(args, context.workspace)
    return described(name, changed, what, f"Changed {name}: {what.summary}.")


append = Tool("edit", AppendInput, _run, on_path("edit", "write"), path_shown, _preview)
"""Not offered to the model. Rules and roles that are about `edit` are about it."""
