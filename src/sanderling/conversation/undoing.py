"""Undoing: what the agent has changed is taken back, and made again; the conversation goes back to before a prompt."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Literal
from uuid import uuid4

from anyio import to_thread

from sanderling.changes.restoring import Left, Plan, Step
from sanderling.changes.states import TOO_LARGE, FileChange, State
from sanderling.changes.timeline import Timeline, Undoing
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
UNSEEN = "Sanderling stopped while a command of this turn ran. What it had changed by then is not known, and is not undone."
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
        action = self._asked[0]
        is_possible = await self.finish_interrupted()
        if not self._asked or self._asked[0] is not action:
            return  # it asked for what was interrupted
        self._asked.popleft()
        if not is_possible:
            return
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

    async def finish_interrupted(self) -> bool:
        """
        Finish what a killed process began to undo; return False if that failed.

        If the first request asks for the same, it is answered by this. Whoever runs `undo` again after it was killed wants it
        finished: to undo one turn more would be the opposite of what they asked for.
        """
        timeline = await self._timeline()
        last = timeline.latest
        if last is None:
            return True
        is_told = not last.kind or last.id == self._session.undoing_id
        if last.is_finished and is_told and not self._misses_rewind(last):
            return True
        is_asked_again = bool(self._asked) and self._asks_for(self._asked[0], last, timeline)
        kind = last.kind if is_asked_again and last.kind else "finish"
        try:
            if not last.is_finished:
                self._require_writable()
                done = await Restorer(self._workspace).finish(last)
                await self._tell(kind, last.turns, done, last.id)
            elif not is_told:
                done = await Restorer(self._workspace).done(last)
                await self._tell(kind, last.turns, done, last.id)
        except (ToolError, SandboxError, SessionError) as error:
            self._parts.warn(UNFINISHED.format(reason=error))
            return False
        if is_asked_again:
            self._asked.popleft()
        if self._misses_rewind(last):
            self._rewind_conversation(last.prompt_id)
        return True

    def _misses_rewind(self, undoing: Undoing) -> bool:
        """Say whether the files went back to before a prompt, and the conversation did not."""
        return bool(undoing.prompt_id) and self._session.has_just_restored(undoing.id)

    def _asks_for(self, action: Asked, undoing: Undoing, timeline: Timeline) -> bool:
        """Say whether `action` asks for just this undoing."""
        match action:
            case UndoTurn(turn) | RedoTurn(turn):
                kind = "undo" if isinstance(action, UndoTurn) else "redo"
                return undoing.kind == kind and turn in ("", *undoing.turns)
            case Rewind(prompt_id, "files"):
                return (
                    undoing.kind == "rewind"
                    and not undoing.prompt_id
                    and prompt_id in self._session.asked.turn_ids
                    and undoing.turns == self._turns_from(prompt_id, timeline)
                )
            case Rewind(prompt_id, what):
                return what == "both" and undoing.prompt_id == prompt_id

    # --- what is asked for -------------------------------------------------------------------------------------------------

    async def _undo(self, turn: str) -> None:
        timeline = await self._timeline()
        self._require_turn(turn)
        turns = (turn,) if turn else await self._last_turn(timeline)
        await self._restore("undo", turns, timeline, otherwise=NOTHING_TO_UNDO)

    async def _last_turn(self, timeline: Timeline) -> tuple[str, ...]:
        """
        Return the last turn of which something can still be undone; empty if there is none.

        A turn that was undone in part (the disk was full, a file was immutable) is still the last one while the rest can be tried
        again. What stays because the user has changed the same lines would stay every time, and block the way to all earlier turns,
        so such a turn counts only the first time. Which of the two it is, the plan says: it looks at the files as they are now.
        """
        for turn in reversed(timeline.turns):
            if turn not in timeline.tried_turns:
                return (turn,)
            left = timeline.changes_of((turn,))
            if left and (await Restorer(self._workspace).plan(left)).steps:
                return (turn,)
        return ()

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
        await self._tell("redo", undoing.turns, done, undoing_id, undoing.changes)

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
        is_interrupted = bool(timeline.interrupted & set(turns))
        if is_interrupted:
            self._emit(Notice("warning", UNSEEN))
        changes, doubtful = timeline.changes_of(turns), timeline.doubtful_of(turns)
        if not changes and not doubtful and not (is_interrupted and kind == "undo"):
            if otherwise:
                self._emit(Notice("info", otherwise))
            return
        self._require_writable()
        undoing_id = _new_id()
        done = await Restorer(self._workspace).restore(
            undoing_id, turns, changes, kind=kind, prompt_id=prompt_id
        )
        await self._tell(kind, turns, _with_doubtful(done, doubtful), undoing_id, changes)

    async def _tell(
        self,
        kind: Restoration,
        turns: Sequence[str],
        done: Plan,
        undoing_id: str,
        changes: Sequence[FileChange] = (),
    ) -> None:
        files = await to_thread.run_sync(self._shown, done)
        rest = self._rest_of(turns, done, changes)
        restored = FilesRestored(kind, tuple(turns), files, rest)
        self._session.append(LoggedRestored(restored, undoing_id))
        self._emit(restored)

    def _rest_of(self, turns: Sequence[str], done: Plan, changes: Sequence[FileChange]) -> int:
        """The number of the turn to ask for again, if that may bring what was left of its `changes`."""
        kept = {
            change.path
            for change in changes
            if not change.before.lost and change.after.lost != TOO_LARGE
        }
        ids = self._session.asked.turn_ids
        has_rest = any(each.path in kept for each in done.left)
        return ids.index(turns[0]) + 1 if has_rest and turns[0] in ids and len(turns) == 1 else 0

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
            shown.append(
                TurnShown(
                    each,
                    number,
                    texts.get(each, ""),
                    files,
                    is_undone=bool(files) and each in timeline.undone_turns,
                    is_interrupted=each in timeline.interrupted,
                )
            )
        return Changes(tuple(shown), self._workspace.journal.problems)

    async def before(self, what: str, path: str = "") -> FilesBefore:
        """
        Return the files that the agent has changed, or the one at `path`, as they would be without that.

        Raises:
            ToolError: there is no sandbox to be had, or the editor does not answer.
        """
        timeline = await self._timeline()
        is_all = what == "session"
        turns = tuple(timeline.turns) if is_all else await self._last_turn(timeline)
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

        names = _Names((each.path, each.before, each.after) for each in changes)

        def shown() -> Iterator[ChangedFile]:
            for each in changes:
                if name := names.shown(each.path, self._workspace.shown):
                    counts = counter.counts(each.before, each.after, stored)
                    yield _changed_file(name, each, counts)

        return await to_thread.run_sync(lambda: tuple(shown()))

    def _shown(self, planned: Plan) -> tuple[RestoredFile, ...]:
        shown, counter = self._workspace.shown, _Counter()
        left = [RestoredFile(shown(each.path), "left", each.why) for each in planned.left]
        names = _Names((each.path, each.now.state, each.then.state) for each in planned.steps)
        done = (
            _restored_file(name, each, counter)
            for each in planned.steps
            if (name := names.shown(each.path, shown))
        )
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


class _Names:
    """
    The names of a list of changes: each a path, and its states on both sides.

    A directory that comes or goes is shown by what is in it, and by itself only if that is nothing.
    """

    def __init__(self, changes: Iterable[tuple[str, State, State]]) -> None:
        self._hidden: set[str] = set()
        self._modes: set[str] = set()
        self._directories: set[str] = set()
        for path, *states in changes:
            kinds = {state.kind for state in states}
            if "directory" in kinds:
                self._directories.add(path)
            self._hidden.update(map(str, PurePath(path).parents))
            if kinds == {"directory"}:
                self._modes.add(path)

    def shown(self, path: str, shown: Callable[[str], str]) -> str:
        """The name of the path in the list; empty if it is left out."""
        if path not in self._directories:
            return shown(path)
        return "" if path in self._hidden and path not in self._modes else f"{shown(path)}/"


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
