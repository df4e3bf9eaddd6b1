"""The edit tool: replacements in a file, all or none."""

from typing import TYPE_CHECKING, Annotated

import msgspec

from sanderling.changes.editing.lines import TextDifference, lines_of, shown
from sanderling.changes.editing.replace import NOTEBOOK_SUFFIX, Edited, Replacement, replace
from sanderling.protocol.events import ChangedLines
from sanderling.tools.base import Context, on_path, path_shown, tool
from sanderling.tools.change import Change, CompletedChange
from sanderling.tools.known import ProposedContent
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.texts import difference, shown_to_person

if TYPE_CHECKING:
    from sanderling.changes.editing.notebook import CellDifference

MAX_EDITS = 100
MAX_REGION_LINES = 60


class EditInput(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    edits: Annotated[
        list[Replacement],
        msgspec.Meta(min_length=1, max_length=MAX_EDITS, description="Made in this order"),
    ]


def _change(args: EditInput, context: Context) -> Change:
    path = context.workspace.path(args.path)

    def propose(old: bytes | None) -> ProposedContent:
        edited = _edited(old or b"", args.edits, context.workspace.shown(path))
        return ProposedContent(edited.data, edited.notes)

    counts_lines = any(each.insert_at_line is not None and not each.cell for each in args.edits)
    is_quoting = all(each.old for each in args.edits)
    return Change(context, path, propose, counts_lines=counts_lines, is_quoting=is_quoting)


def _edited(data: bytes, edits: list[Replacement], name: str) -> Edited:
    if name.endswith(NOTEBOOK_SUFFIX):
        from sanderling.changes.editing.notebook import replace_in_notebook  # only for notebooks

        if edited := replace_in_notebook(data, edits, path=name):
            return edited
    return replace(data, edits, path=name)


def _cells(name: str, changed: CompletedChange) -> "CellDifference | None":
    if not name.endswith(NOTEBOOK_SUFFIX):
        return None
    from sanderling.changes.editing.notebook import cell_difference  # only for notebooks

    return cell_difference(changed.old or "", changed.new)


async def _preview(args: EditInput, context: Context) -> Preview:
    return await _change(args, context).preview()


@tool(EditInput, effect=on_path("edit", "write"), title=path_shown, preview=_preview)
async def edit(args: EditInput, context: Context) -> Outcome:
    """
    Change parts of a file: applies `edits` in order, all or none.

    Copy `old` exactly as `read` shows it, without line numbers, with enough context to occur once; `replace_all` replaces every
    occurrence. To insert, give `insert_at_line` and no `old`. Everything else stays byte for byte: encoding, line endings, mode, links.
    The result says which lines are new: do not read the file again. Yours are merged with the user's unsaved changes.
    """
    change = _change(args, context)
    changed = await change.make()
    what = await difference(changed.old or "", changed.new)
    where = "" if changed.is_written else " in the editor"
    name = path_shown(args, context.workspace)
    headline = f"Changed {name}{where}: {what.summary}"
    if cells := _cells(name, changed):  # lines of JSON are nothing that the model has seen
        texts = [shown(cells.lines(), MAX_REGION_LINES).text] if changed.notes else []
        return described(name, changed, what, f"{headline}, {cells.places}.", *filter(None, texts))
    if not (change.counts_lines or changed.notes):  # exactly what the model wrote
        places = f", {what.places}" if what.places else ""
        return described(name, changed, what, f"{headline}{places}.")
    regions = shown(what.regions(), MAX_REGION_LINES)
    shown_lines = [line for line in regions.text.split("\n") if line != "…"]
    if regions.is_whole and len(shown_lines) == len(lines_of(changed.new)):
        change.know(changed.new)
    return described(name, changed, what, *filter(None, (f"{headline}.", regions.text)))


def described(name: str, changed: CompletedChange, what: TextDifference, *words: str) -> Outcome:
    """Return the outcome of a change to the file `name`: `words` for the model, the difference for the screen."""
    is_changed = changed.old != changed.new
    words = words if is_changed else ("No change: it already has this content.",)
    is_unsaved = is_changed and not changed.is_written
    return Outcome(
        content="\n".join([*words, *changed.notes]),
        summary=what.summary + " · not saved" * is_unsaved,
        detail=shown_to_person(what).subject,
        filetype="diff",
        changed=(ChangedLines(name, *what.counts),) if is_changed else (),
    )
