"""The model's reasons for its changes: what it said before the tool calls that made them."""

from collections.abc import Mapping, Sequence

from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.editing.lines import TextDifference, lines_of
from sanderling.changes.editing.text import decode
from sanderling.changes.journal import Journal
from sanderling.changes.records import Changed
from sanderling.changes.states import FileChange, State
from sanderling.protocol.requests import FilesBefore, Reason
from sanderling.session.log import Log

MAX_CHANGES = 500
"""At most so many changes, the latest, are explained: the texts of each are compared."""
MAX_TEXT_CHARS = 2000


async def with_reasons(found: FilesBefore, journal: Journal, log: Log) -> FilesBefore:
    """
    Return `found` with the model's reasons.

    Raises:
        SessionError: the log cannot be read.
    """
    paths = {file.path for file in found.files}
    records = await journal.records()
    changes = [
        record.change
        for record in records
        if isinstance(record, Changed) and record.change.path in paths and not record.change.doubt
    ][-MAX_CHANGES:]
    said = await to_thread.run_sync(log.said_before, {each.tool_use_id for each in changes})
    explained = [each for each in changes if each.tool_use_id in said]
    kept = await journal.contents(
        state for each in explained for state in (each.before, each.after)
    )

    def reasons_of(path: str) -> tuple[Reason, ...]:
        return tuple(
            _reason(said[each.tool_use_id], each, kept) for each in explained if each.path == path
        )

    def explain() -> FilesBefore:
        return FilesBefore(
            tuple(replace(file, reasons=reasons_of(file.path)) for file in found.files), found.left
        )

    return await to_thread.run_sync(explain)


def _reason(text: str, change: FileChange, kept: Mapping[str, bytes]) -> Reason:
    old, new = _text(change.before, kept), _text(change.after, kept)
    hunks, lines = TextDifference(old, new).hunks, lines_of(old)
    added = [line for hunk in hunks for line in hunk.lines]
    removed: Sequence[str] = [
        line
        for hunk in hunks
        for line in lines[hunk.first_line : hunk.first_line + hunk.line_count]
    ]
    return Reason(text[:MAX_TEXT_CHARS], tuple(added), tuple(removed))


def _text(state: State, kept: Mapping[str, bytes]) -> str:
    return decode(kept.get(state.content, b"")).text
