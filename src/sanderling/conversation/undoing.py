"""Undoing: what the agent has changed is taken back, and made again; the conversation goes back to before a prompt."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Literal
from uuid import uuid4

from anyio import to_thread

from sanderling.changes.restoring import Left, Plan, Step
from sanderling.changes.states import FileChange, State
from sanderling.changes.timeline import Timeline
from sanderling.conversation.compaction import estimated_tokens
from sanderling.conversation.notes import Notes
from sanderling.editing.lines import Difference
from sanderling.editing.text import decode
from sanderling.errors import SessionError, ToolError
from sanderling.permissions.gate import Gate
from sanderling.protocol.actions import RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import Event, Notice, PromptsReturned
from sanderling.protocol.requests import (
    ChangedFile,
    Changes,
    FileBefore,
    FilesBefore,
    RewindPreview,
    TurnShown,
)
from sanderling.protocol.restoring import (
    ConversationRewound,
    FilesRestored,
    Restoration,
    RestoredFile,
)
from sanderling.session.records import LoggedRestored, LoggedRewind
from sanderling.session.session import Session, derived_title
from sanderling.tools.restoring import Restorer
from sanderling.tools.workspace import Workspace

Asked = UndoTurn | RedoTurn | Rewind
MAX_COMPARED_BYTES = 1 << 20
NOTHING_TO_UNDO = "The agent has changed nothing that could be undone."
NOTHING_TO_REDO = "Nothing was undone that could be done again."
NO_SUCH_TURN = "There is no such turn in this session."
READ_ONLY = "In plan mode the project is read-only. Switch to another mode first."
FORGOTTEN = "The conversation cannot go back to before this prompt: it was summarized away. A fork of the session can be made there."


class Undoer:
    """Undoes what one session has done. What is asked for is done between turns."""

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        gate: Gate,
        emit: Callable[[Event], None],
        *,
        notes: Notes,
        on_rewound: Callable[[], None],
    ) -> None:
        self._session = session
        self._workspace = workspace
        self._gate = gate
        self._notes = notes
        self._emit = emit
        self._on_rewound = on_rewound
        self._asked = deque[Asked]()

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    def ask(self, action: Asked) -> None:
        self._asked.append(action)

    async def run(self) -> None:
        """Do what was asked for first."""
        action = self._asked.popleft()
        await self._workspace.changes.look_at_jobs(self._workspace.ground)
        try:
            match action:
                case UndoTurn(turn):
                    await self._undo(turn)
                case RedoTurn(turn):
                    await self._redo(turn)
                case Rewind(prompt_id, what):
                    await self._rewind(prompt_id, what)
        except (ToolError, SessionError) as error:
            self._emit(Notice("warning", str(error)))

    async def finish_interrupted(self) -> None:
        """Finish what a process that was killed has begun to undo."""
        unfinished = (await self._timeline()).unfinished
        if unfinished is None:
            return
        try:
            done = await Restorer(self._workspace).finish(unfinished)
        except ToolError as error:
            self._emit(
                Notice("warning", f"Undoing was interrupted, and cannot be finished: {error}")
            )
        else:
            await self._tell("finish", unfinished.turns, done)

    # --- what is asked for -------------------------------------------------------------------------------------------------

    async def _undo(self, turn: str) -> None:
        timeline = await self._timeline()
        last = timeline.last_turn
        turns = (turn,) if turn else (last.turn,) if last else ()
        self._require_turn(turn)
        await self._restore("undo", turns, timeline, NOTHING_TO_UNDO)

    async def _redo(self, turn: str) -> None:
        timeline = await self._timeline()
        undoing = timeline.last_undoing_of(turn) if turn else timeline.last_undoing
        self._require_turn(turn)
        if undoing is None:
            self._emit(Notice("info", NOTHING_TO_REDO))
            return
        self._require_writable()
        done = await Restorer(self._workspace).restore(
            _new_id(), undoing.turns, undoing.changes, undoing.id
        )
        await self._tell("redo", undoing.turns, done)

    async def _rewind(self, prompt_id: str, what: str) -> None:
        self._require_turn(prompt_id)
        messages = self._session.history_before(prompt_id)
        if what != "files" and messages is None:
            raise SessionError(FORGOTTEN)
        if what != "conversation":
            timeline = await self._timeline()
            turns = self._turns_from(prompt_id, timeline)
            await self._restore(
                "rewind", turns, timeline, "" if what == "both" else NOTHING_TO_UNDO
            )
        if what != "files" and messages is not None:
            prompt = next(each for each in self._session.asked if each.id == prompt_id)
            title = derived_title(prompt)
            self._session.append(LoggedRewind(prompt_id, title, estimated_tokens(messages)))
            self._workspace.seen.forget_all()
            self._notes.forget()
            self._emit(ConversationRewound(title))
            self._emit(PromptsReturned((prompt,)))
            self._on_rewound()

    async def _restore(
        self, kind: Restoration, turns: tuple[str, ...], timeline: Timeline, otherwise: str
    ) -> None:
        changes, doubtful = timeline.changes_of(turns), timeline.doubtful_of(turns)
        if not changes and not doubtful:
            if otherwise:
                self._emit(Notice("info", otherwise))
            return
        self._require_writable()
        done = await Restorer(self._workspace).restore(_new_id(), turns, changes)
        await self._tell(kind, turns, _with_doubtful(done, doubtful))

    async def _tell(self, kind: Restoration, turns: Sequence[str], done: Plan) -> None:
        files = await to_thread.run_sync(self._shown, done)
        restored = FilesRestored(kind, tuple(turns), files)
        self._session.append(LoggedRestored(restored))
        self._emit(restored)

    def _require_turn(self, prompt_id: str) -> None:
        if prompt_id and prompt_id not in self._session.turn_ids:
            raise SessionError(NO_SUCH_TURN)

    def _require_writable(self) -> None:
        if self._gate.mode == "plan":
            raise SessionError(READ_ONLY)

    # --- what is shown -----------------------------------------------------------------------------------------------------

    async def changes(self, turn: str) -> Changes:
        """
        The turns of the session, or one of them, with what was changed in each.

        Raises:
            SessionError: there is no such turn.
        """
        self._require_turn(turn)
        timeline = await self._timeline()
        texts = {prompt.id: derived_title(prompt) for prompt in self._session.asked}
        shown: list[TurnShown] = []
        for number, each in enumerate(self._session.turn_ids, 1):
            if each != (turn or each) or (each not in texts and each not in timeline.turns):
                continue
            made = timeline.turns.get(each)
            files = await self._changed((*made.changes, *made.doubtful)) if made else ()
            is_undone = each in timeline.undone_turns
            shown.append(TurnShown(each, number, texts.get(each, ""), files, is_undone))
        return Changes(tuple(shown))

    async def before(self, what: Literal["turn", "session"], path: str = "") -> FilesBefore:
        """
        Return the files that the agent has changed, or the one at `path`, as they would be without that.

        Raises:
            ToolError: there is no sandbox to be had, or the editor does not answer.
        """
        timeline = await self._timeline()
        last = timeline.last_turn
        turns = tuple(timeline.turns) if what == "session" else (last.turn,) if last else ()
        planned = Plan(())
        changes = timeline.changes_of(turns)
        if changes := tuple(each for each in changes if each.path == (path or each.path)):
            planned = await Restorer(self._workspace).plan(changes)
        files = await to_thread.run_sync(
            lambda: [each for step in planned.steps if (each := _before(step))]
        )
        left = tuple(RestoredFile(each.path, "left", each.why) for each in planned.left)
        return FilesBefore(tuple(files), left)

    async def preview(self, prompt_id: str) -> RewindPreview:
        """
        Return what rewinding to before this prompt would do.

        Raises:
            SessionError: there is no such prompt.
            ToolError: there is no sandbox to be had, or the editor does not answer.
        """
        self._require_turn(prompt_id)
        timeline = await self._timeline()
        turns = self._turns_from(prompt_id, timeline)
        planned = Plan(())
        if changes := timeline.changes_of(turns):
            planned = await Restorer(self._workspace).plan(changes)
        planned = _with_doubtful(planned, timeline.doubtful_of(turns))
        ids = [prompt.id for prompt in self._session.asked]
        count = len(ids) - ids.index(prompt_id) if prompt_id in ids else 0
        text = next(
            (derived_title(each) for each in self._session.asked if each.id == prompt_id), ""
        )
        refusal = "" if self._session.history_before(prompt_id) is not None else FORGOTTEN
        return RewindPreview(text, count, await to_thread.run_sync(self._shown, planned), refusal)

    async def _changed(self, changes: Collection[FileChange]) -> tuple[ChangedFile, ...]:
        kept = await self._workspace.journal.contents(
            [state for each in changes for state in (each.before, each.after)]
        )

        def shown() -> tuple[ChangedFile, ...]:
            return tuple(
                _changed_file(self._workspace.shown(each.path), each, kept)
                for each in changes
                if "directory" not in (each.before.kind, each.after.kind)
            )

        return await to_thread.run_sync(shown)

    def _shown(self, planned: Plan) -> tuple[RestoredFile, ...]:
        shown = self._workspace.shown
        left = [RestoredFile(shown(each.path), "left", each.why) for each in planned.left]
        steps = (each for each in planned.steps if not _is_directory(each))
        done = (_restored_file(shown(each.path), each) for each in steps)
        return (*sorted(done, key=lambda file: file.path), *left)

    # --- where it stands ---------------------------------------------------------------------------------------------------

    async def _timeline(self) -> Timeline:
        return Timeline(await self._workspace.journal.records())

    def _turns_from(self, prompt_id: str, timeline: Timeline) -> tuple[str, ...]:
        ids = self._session.turn_ids
        since = set(ids[ids.index(prompt_id) :])
        return tuple(turn for turn in timeline.turns if turn in since)


def _with_doubtful(planned: Plan, doubtful: Sequence[FileChange]) -> Plan:
    known = {each.path for each in (*planned.steps, *planned.left)}
    left = (Left(each.path, each.doubt) for each in doubtful if each.path not in known)
    return Plan(planned.steps, (*planned.left, *left))


def _is_directory(step: Step) -> bool:
    return "directory" in (step.now.state.kind, step.then.state.kind)


def _restored_file(path: str, step: Step) -> RestoredFile:
    added, removed = _counts(step.now.data or b"", step.then.data or b"")
    how = "merged" if step.is_merged else "restored"
    return RestoredFile(path, how, added=added, removed=removed)


def _changed_file(path: str, change: FileChange, kept: dict[str, bytes]) -> ChangedFile:
    before, after = change.before, change.after
    what = "created" if before.kind == "absent" else "changed"
    what = "removed" if after.kind == "absent" else what
    added, removed = _counts(kept.get(before.content, b""), kept.get(after.content, b""))
    return ChangedFile(path, what, added, removed, change.doubt or _lost(before) or _lost(after))


def _lost(state: State) -> str:
    return f"not restorable: {state.lost}" if state.lost else ""


def _counts(old: bytes, new: bytes) -> tuple[int, int]:
    """The numbers of lines that are added and removed; none of what is no text."""
    texts = decode(old), decode(new)
    if any(text.is_binary for text in texts):
        return 0, 0
    hunks = Difference(texts[0].text, texts[1].text).hunks
    return sum(len(hunk.lines) for hunk in hunks), sum(hunk.line_count for hunk in hunks)


def _new_id() -> str:
    return uuid4().hex


def _before(step: Step) -> FileBefore | None:
    """The file that a step would bring back; None of links and directories, and of what is too large to be compared."""
    now, then = step.now, step.then
    if {now.state.kind, then.state.kind} - {"file", "absent"}:
        return None
    if max(now.state.size, then.state.size) > MAX_COMPARED_BYTES:
        return None
    is_new, is_gone = then.state.kind == "absent", now.state.kind == "absent"
    text = decode(then.data or b"").text
    return FileBefore(step.path, "created" if is_new else "removed" if is_gone else "changed", text)
