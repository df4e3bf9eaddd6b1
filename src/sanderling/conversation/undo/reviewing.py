"""Reviews that outlive the editor: the journal records which changes are still to be reviewed."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.editing.lines import TextDifference
from sanderling.changes.editing.text import decode
from sanderling.changes.journal import Journal
from sanderling.changes.records import Reviewed
from sanderling.changes.restoring import RestorePlan
from sanderling.changes.states import FileChange, State
from sanderling.changes.unreviewed import unreviewed
from sanderling.conversation.undo.undoing import files_before
from sanderling.protocol.actions import NoteReviewed
from sanderling.protocol.events import ChangesUnreviewed, Event
from sanderling.protocol.requests import FileBefore, FilesBefore
from sanderling.protocol.reviews import ReviewLeft, UnreviewedFile
from sanderling.tools.buffers import bytes_or_text
from sanderling.tools.editor import Buffer
from sanderling.tools.restoring import FileRestorer
from sanderling.tools.workspace import Workspace

MODE = 0o644  # of the contents stored for a review, which are only compared, never written


class Reviews:
    """The reviews of one session."""

    def __init__(self, workspace: Workspace, emit: Callable[[Event], None]) -> None:
        self._workspace = workspace
        self._emit = emit

    @property
    def _journal(self) -> Journal:
        return self._workspace.journal

    async def note(self, action: NoteReviewed) -> None:
        """Record what is left to be reviewed of a file."""
        path, left = action.path, action.left
        if path not in unreviewed(await self._journal.records(), has_commands=True):
            return
        if left is None:
            await self._journal.append(Reviewed(path))
        else:
            before = await self._journal.keep(path, _bytes(left, left.before), MODE)
            after = await self._journal.keep(path, _bytes(left, left.after), MODE)
            await self._journal.append(Reviewed(path, before, after))

    async def waiting(self) -> frozenset[str]:
        """Return the files with unreviewed changes."""
        return frozenset(unreviewed(await self._journal.records()))

    async def show_waiting(self, before: Collection[str] = ()) -> None:
        """Emit the files with unreviewed changes, and which files of `before` are settled."""
        changes = unreviewed(await self._journal.records())
        settled = tuple(sorted(path for path in before if path not in changes))
        states = [state for each in changes.values() for state in (each[0].before, each[-1].after)]
        kept = await self._journal.contents(states)

        def shown() -> tuple[UnreviewedFile, ...]:
            return tuple(_shown(path, made, kept) for path, made in changes.items())

        if changes or settled:
            self._emit(ChangesUnreviewed(await to_thread.run_sync(shown), settled))

    async def before(self, path: str) -> FilesBefore:
        """
        Return the files with unreviewed changes, or only `path`, as they would be without these changes.

        Raises:
            ToolError: no sandbox is available, or the editor does not answer.
        """
        left = unreviewed(await self._journal.records())
        return await self._without(made for each, made in left.items() if path in {"", each})

    async def with_reviewed(self, found: FilesBefore) -> FilesBefore:
        """
        Return `found` with its review state filled in.

        Raises:
            ToolError: no sandbox is available, or the editor does not answer.
        """
        left = unreviewed(await self._journal.records(), has_commands=True)
        paths = {file.path for file in found.files} & left.keys()
        baselines = await self._without(left[path] for path in paths)
        known = {each.path: each.text for each in baselines.files}

        def marked(file: FileBefore) -> FileBefore:
            baseline = known.get(file.path, file.text)
            if file.path not in left:
                return replace(file, reviewed="all")
            if baseline == file.text:
                return file
            return replace(file, reviewed="some", baseline=baseline)

        return replace(found, files=tuple(map(marked, found.files)))

    async def _without(self, changes: Iterable[Sequence[FileChange]]) -> FilesBefore:
        taken = list(chain.from_iterable(changes))
        planned = await FileRestorer(self._workspace).plan(taken) if taken else RestorePlan(())
        return await to_thread.run_sync(files_before, planned)


def _bytes(left: ReviewLeft, text: str) -> bytes:
    return bytes_or_text(
        Buffer(
            0,
            "",
            0,
            text,
            is_modified=False,
            encoding=left.encoding,
            line_ending=left.line_ending,
            has_bom=left.has_bom,
        )
    )


def _shown(path: str, made: Sequence[FileChange], kept: dict[str, bytes]) -> UnreviewedFile:
    def text_of(state: State) -> str:
        return decode(kept.get(state.content, b"")).text

    hunks = TextDifference(text_of(made[0].before), text_of(made[-1].after)).hunks
    return UnreviewedFile(path, max(len(hunks), 1), hunks[0].first_line + 1 if hunks else 1)
