"""Undoing: what the agent has changed is taken back, and made again; the conversation goes back to before a prompt."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal
from uuid import uuid4

from anyio import to_thread

from sanderling.changes.restoring import Left, Plan, Step
from sanderling.changes.states import FileChange, State
from sanderling.changes.timeline import Timeline
from sanderling.conversation.compaction import estimated_tokens
from sanderling.conversation.parts import Parts
from sanderling.editing.lines import Difference
from sanderling.editing.text import decode
from sanderling.errors import SandboxError, SessionError, ToolError
from sanderling.protocol.actions import RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import Notice, PromptsReturned
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
from sanderling.session.session import derived_title
from sanderling.tools.restoring import Restorer

Asked = UndoTurn | RedoTurn | Rewind
MAX_COMPARED_BYTES = 1 << 20
MAX_COUNTED_BYTES, MAX_COUNTED_S = 64 << 20, 5.0
"""The most that is compared for a list that says how many lines came and went."""
NOTHING_TO_UNDO = "The agent has changed nothing that could be undone."
NOTHING_TO_REDO = "Nothing was undone that could be done again."
NO_SUCH_TURN = "There is no such turn in this session."
READ_ONLY = "In plan mode the project is read-only. Switch to another mode first."
UNSEEN = "A command was interrupted with Sanderling: what it had changed by then is not known, and is not undone."
UNFINISHED = "Undoing was interrupted, and cannot be finished now: {reason}"
FORGOTTEN = "The conversation cannot go back to before this prompt: it was summarized away. A fork of the session can be made there."


class Undoer:
    """
    Undoes what one session has done. What is asked for is done between turns.

    An undoing has three parts: the files, of which the journal knows; that it was done, which the session's log has; and for a
    rewind the conversation. `finish_interrupted` does those that a process which was killed has left.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._session, self._workspace = parts.session, parts.workspace
        self._emit = parts.emit
        self._asked = deque[Asked]()

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    def ask(self, action: Asked) -> None:
        self._asked.append(action)

    async def run(self) -> None:
        """Do what was asked for first."""
        action = self._asked.popleft()
        await self.finish_interrupted()
        await self._workspace.changes.look_at_jobs(self._workspace.ground)
        try:
            match action:
                case UndoTurn(turn):
                    await self._undo(turn)
                case RedoTurn(turn):
                    await self._redo(turn)
                case Rewind(prompt_id, what):
                    await self._rewind(prompt_id, what)
        except (ToolError, SandboxError, SessionError) as error:
            self._parts.warn(str(error))

    async def finish_interrupted(self) -> None:
        """Finish what a process that was killed has begun to undo."""
        last = (await self._timeline()).latest
        if last is None:
            return
        try:
            if not last.is_finished:
                self._require_writable()
                done = await Restorer(self._workspace).finish(last)
                await self._tell("finish", last.turns, done, last.id)
            elif last.kind and last.id != self._session.undoing_id:
                done = await Restorer(self._workspace).done(last)
                await self._tell("finish", last.turns, done, last.id)
        except (ToolError, SandboxError, SessionError) as error:
            self._parts.warn(UNFINISHED.format(reason=error))
            return
        if last.prompt_id and self._session.has_just_restored(last.id):
            self._rewind_conversation(last.prompt_id)

    # --- what is asked for -------------------------------------------------------------------------------------------------

    async def _undo(self, turn: str) -> None:
        timeline = await self._timeline()
        last = timeline.last_turn
        turns = (turn,) if turn else (last.turn,) if last else ()
        self._require_turn(turn)
        await self._restore("undo", turns, timeline, otherwise=NOTHING_TO_UNDO)

    async def _redo(self, turn: str) -> None:
        timeline = await self._timeline()
        undoing = timeline.last_undoing_of(turn) if turn else timeline.last_undoing
        self._require_turn(turn)
        if undoing is None:
            self._emit(Notice("info", NOTHING_TO_REDO))
            return
        self._require_writable()
        undoing_id = _new_id()
        done = await Restorer(self._workspace).restore(
            undoing_id, undoing.turns, undoing.changes, undoing.id, kind="redo"
        )
        await self._tell("redo", undoing.turns, done, undoing_id)

    async def _rewind(self, prompt_id: str, what: str) -> None:
        self._require_turn(prompt_id)
        is_forgotten = self._session.asked.history_before(prompt_id) is None
        if what != "files" and is_forgotten:
            raise SessionError(FORGOTTEN)
        if what != "conversation":
            timeline = await self._timeline()
            turns = self._turns_from(prompt_id, timeline)
            if what == "both":
                await self._restore("rewind", turns, timeline, prompt_id=prompt_id)
            else:
                await self._restore("rewind", turns, timeline, otherwise=NOTHING_TO_UNDO)
        if what != "files":
            self._rewind_conversation(prompt_id)

    def _rewind_conversation(self, prompt_id: str) -> None:
        prompt = self._session.asked.find(prompt_id)
        messages = self._session.asked.history_before(prompt_id)
        if prompt is None or messages is None:
            return
        title = derived_title(prompt)
        self._parts.notes.forget()
        self._parts.memory.keep()  # first: else whoever is killed in between never tells the model again
        self._session.append(LoggedRewind(prompt_id, title, estimated_tokens(messages)))
        self._workspace.seen.forget_all()
        self._emit(ConversationRewound(title))
        self._emit(PromptsReturned((prompt,)))
        self._parts.calls.show_usage()

    async def _restore(
        self,
        kind: Literal["undo", "rewind"],
        turns: tuple[str, ...],
        timeline: Timeline,
        *,
        otherwise: str = "",
        prompt_id: str = "",
    ) -> None:
        """Take back what was done in `turns`, say `otherwise` where that is nothing; with a `prompt_id` a rewind of the conversation follows."""
        if timeline.interrupted & set(turns):
            self._emit(Notice("warning", UNSEEN))
        changes, doubtful = timeline.changes_of(turns), timeline.doubtful_of(turns)
        if not changes and not doubtful:
            if otherwise:
                self._emit(Notice("info", otherwise))
            return
        self._require_writable()
        undoing_id = _new_id()
        done = await Restorer(self._workspace).restore(
            undoing_id, turns, changes, kind=kind, prompt_id=prompt_id
        )
        await self._tell(kind, turns, _with_doubtful(done, doubtful), undoing_id)

    async def _tell(
        self, kind: Restoration, turns: Sequence[str], done: Plan, undoing_id: str
    ) -> None:
        files = await to_thread.run_sync(self._shown, done)
        restored = FilesRestored(kind, tuple(turns), files)
        self._session.append(LoggedRestored(restored, undoing_id))
        self._emit(restored)

    def _require_turn(self, prompt_id: str) -> None:
        if prompt_id and prompt_id not in self._session.asked.turn_ids:
            raise SessionError(NO_SUCH_TURN)

    def _require_writable(self) -> None:
        if self._parts.gate.mode == "plan":
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
        texts = {prompt.id: derived_title(prompt) for prompt in self._session.asked.prompts}
        shown: list[TurnShown] = []
        for number, each in enumerate(self._session.asked.turn_ids, 1):
            if each != (turn or each) or (each not in texts and each not in timeline.turns):
                continue
            made = timeline.turns.get(each)
            files = await self._changed((*made.changes, *made.doubtful)) if made else ()
            is_undone = each in timeline.undone_turns
            shown.append(TurnShown(each, number, texts.get(each, ""), files, is_undone))
        return Changes(tuple(shown))

    async def before(self, what: str, path: str = "") -> FilesBefore:
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
        return await to_thread.run_sync(files_before, planned)

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
        asked, prompt = self._session.asked, self._session.asked.find(prompt_id)
        text = derived_title(prompt) if prompt else ""
        count = len(asked.prompts) - asked.prompts.index(prompt) if prompt else 0
        refusal = "" if asked.history_before(prompt_id) is not None else FORGOTTEN
        return RewindPreview(text, count, await to_thread.run_sync(self._shown, planned), refusal)

    async def _changed(self, changes: Collection[FileChange]) -> tuple[ChangedFile, ...]:
        counter, stored = _Counter(), self._workspace.journal.stored

        def shown() -> Iterator[ChangedFile]:
            for each in changes:
                if "directory" not in (each.before.kind, each.after.kind):
                    counts = counter.counts(each.before, each.after, stored)
                    yield _changed_file(self._workspace.shown(each.path), each, counts)

        return await to_thread.run_sync(lambda: tuple(shown()))

    def _shown(self, planned: Plan) -> tuple[RestoredFile, ...]:
        shown, counter = self._workspace.shown, _Counter()
        left = [RestoredFile(shown(each.path), "left", each.why) for each in planned.left]
        steps = (each for each in planned.steps if not _is_directory(each))
        done = (_restored_file(shown(each.path), each, counter) for each in steps)
        return (*sorted(done, key=lambda file: file.path), *left)

    # --- where it stands ---------------------------------------------------------------------------------------------------

    async def _timeline(self) -> Timeline:
        records = tuple(await self._workspace.journal.records())
        return await to_thread.run_sync(Timeline, records)

    def _turns_from(self, prompt_id: str, timeline: Timeline) -> tuple[str, ...]:
        ids = self._session.asked.turn_ids
        since = set(ids[ids.index(prompt_id) :])
        return tuple(turn for turn in timeline.turns if turn in since)


def _with_doubtful(planned: Plan, doubtful: Sequence[FileChange]) -> Plan:
    known = {each.path for each in (*planned.steps, *planned.left)}
    left = (Left(each.path, each.doubt) for each in doubtful if each.path not in known)
    return Plan(planned.steps, (*planned.left, *left))


def _is_directory(step: Step) -> bool:
    return "directory" in (step.now.state.kind, step.then.state.kind)


def _restored_file(path: str, step: Step, counter: "_Counter") -> RestoredFile:
    data = {step.now.state: step.now.data, step.then.state: step.then.data}
    added, removed = counter.counts(step.now.state, step.then.state, data.__getitem__)
    how = "merged" if step.is_merged else "restored"
    return RestoredFile(path, how, added=added, removed=removed)


def _changed_file(path: str, change: FileChange, counts: tuple[int, int]) -> ChangedFile:
    before, after = change.before, change.after
    what = "created" if before.kind == "absent" else "changed"
    what = "removed" if after.kind == "absent" else what
    return ChangedFile(path, what, *counts, change.doubt or _lost(before) or _lost(after))


def _lost(state: State) -> str:
    return f"not restorable: {state.lost}" if state.lost else ""


class _Counter:
    """Counts lines for a list of files, as far as there is time and room: a list must come to its end, whatever was made of the files."""

    def __init__(self) -> None:
        self._end = time.monotonic() + MAX_COUNTED_S
        self._room = MAX_COUNTED_BYTES

    def counts(
        self, before: State, after: State, content: Callable[[State], bytes | None]
    ) -> tuple[int, int]:
        """The numbers of lines that are added and removed; none of what is no text."""
        self._room -= before.size + after.size
        if self._room < 0 or time.monotonic() > self._end:
            return 0, 0
        texts = [decode(content(each) or b"") for each in (before, after)]
        if any(text.is_binary for text in texts):
            return 0, 0
        hunks = Difference(texts[0].text, texts[1].text).hunks
        return sum(len(hunk.lines) for hunk in hunks), sum(hunk.line_count for hunk in hunks)


def _new_id() -> str:
    return uuid4().hex


def files_before(planned: Plan) -> FilesBefore:
    """The files that a plan would bring back; takes a moment."""
    files = tuple(each for step in planned.steps if (each := _before(step)))
    left = tuple(RestoredFile(each.path, "left", each.why) for each in planned.left)
    return FilesBefore(files, left)


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
