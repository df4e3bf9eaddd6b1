"""Undo, redo and rewind: restores files that the agent changed, and takes the conversation back to before a prompt."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal
from uuid import uuid4

from anyio import to_thread

from sanderling.changes.editing.text import decode
from sanderling.changes.restoring import RestorePlan, RestoreStep, SkippedPath
from sanderling.changes.states import TOO_LARGE, FileChange, State, merged
from sanderling.changes.timeline import Timeline, Undoing
from sanderling.conversation.compaction import estimated_tokens
from sanderling.conversation.services import SessionServices
from sanderling.conversation.undo.counting import LineCounter, ShownNames
from sanderling.errors import SandboxError, SessionError, ToolError, WorktreeError
from sanderling.protocol.actions import ApplyWorktree, RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import (
    ConversationRewound,
    FilesRestored,
    Notice,
    PromptsReturned,
    Restoration,
    RestoredFile,
)
from sanderling.protocol.requests import (
    ChangedFile,
    Changes,
    Edit,
    Edits,
    FileBefore,
    FilesBefore,
    RewindPreview,
    TurnShown,
)
from sanderling.session.records import LoggedRestored, LoggedRewind
from sanderling.session.titles import prompt_title
from sanderling.tools.restoring import FileRestorer
from sanderling.tools.workspace import Workspace

Asked = UndoTurn | RedoTurn | Rewind | ApplyWorktree
MAX_COMPARED_BYTES = 1 << 20
MAX_COUNTED_BYTES, MAX_COUNTED_S = 64 << 20, 5.0
"""Limits for counting the added and removed lines of a list of files."""
NOTHING_TO_UNDO = "Nothing to undo."
NOTHING_TO_REDO = "Nothing to redo."
NO_SUCH_TURN = "There is no such turn in this session."
READ_ONLY = "In plan mode the project is read-only. Switch to another mode first."
UNSEEN = "Sanderling stopped while a command of this turn ran. Its changes were not recorded and are not undone."
UNFINISHED = "Undoing was interrupted and cannot be finished now: {reason}"
FORGOTTEN = "Cannot rewind the conversation to this prompt: it was summarized away. Fork the session there instead."


class Undoer:
    """
    Undoes, redoes and rewinds in one session. Requests are processed between turns.

    An undo has up to three parts, each recorded: the files (in the journal), the fact that they were restored (in the session's log), and
    for a rewind the conversation. `finish_interrupted` completes an undo whose process was killed.
    """

    def __init__(self, services: SessionServices) -> None:
        self._services = services
        self._session, self._workspace = services.session, services.workspace
        self._emit = services.emit
        self._asked = deque[Asked]()

    @property
    def is_asked(self) -> bool:
        return bool(self._asked)

    def ask(self, action: Asked) -> None:
        self._asked.append(action)

    async def run(self) -> None:
        """Process the oldest request."""
        action = self._asked[0]
        is_possible = await self.finish_interrupted()
        if not self._asked or self._asked[0] is not action:
            return  # it asked for the undo that was just finished
        self._asked.popleft()
        if not is_possible:
            return
        await self._workspace.changes.look_at_jobs(self._workspace.environment)
        try:
            match action:
                case UndoTurn(turn):
                    await self._undo(turn)
                case RedoTurn(turn):
                    await self._redo(turn)
                case Rewind(prompt_id, what):
                    await self._rewind(prompt_id, what)
                case ApplyWorktree(name):
                    await self._apply_worktree(name)
        except (ToolError, SandboxError, SessionError, WorktreeError) as error:
            self._services.warn(str(error))

    async def finish_interrupted(self) -> bool:
        """
        Finish the undo that a killed process has begun; return False if that failed.

        If the oldest request asks for the same, it counts as done. A user who runs `undo` again after it was killed wants it finished,
        and undoing one more turn would be the opposite.
        """
        timeline = await self._timeline()
        last = timeline.latest
        if last is None:
            return True
        is_reported = not last.kind or last.id == self._session.undoing_id
        if last.is_finished and is_reported and not self._misses_rewind(last):
            return True
        is_asked_again = bool(self._asked) and self._asks_for(self._asked[0], last, timeline)
        kind = last.kind if is_asked_again and last.kind else "finish"
        try:
            if not last.is_finished:
                self._require_writable()
                done = await FileRestorer(self._workspace).finish(last)
                await self._report(kind, last.turns, done, last.id)
            elif not is_reported:
                done = await FileRestorer(self._workspace).done(last)
                await self._report(kind, last.turns, done, last.id)
        except (ToolError, SandboxError, SessionError) as error:
            self._services.warn(UNFINISHED.format(reason=error))
            return False
        if is_asked_again:
            self._asked.popleft()
        if self._misses_rewind(last):
            self._rewind_conversation(last.prompt_id)
        return True

    def _misses_rewind(self, undoing: Undoing) -> bool:
        """Return whether a rewind restored the files but not yet the conversation."""
        return bool(undoing.prompt_id) and self._session.has_just_restored(undoing.id)

    def _asks_for(self, action: Asked, undoing: Undoing, timeline: Timeline) -> bool:
        """Return whether `action` asks for exactly this undo."""
        match action:
            case UndoTurn(turn) | RedoTurn(turn):
                kind = "undo" if isinstance(action, UndoTurn) else "redo"
                return undoing.kind == kind and turn in ("", *undoing.turns)
            case Rewind(prompt_id, "files"):
                return (
                    undoing.kind == "rewind"
                    and not undoing.prompt_id
                    and prompt_id in self._session.prompt_history.turn_ids
                    and undoing.turns == self._turns_from(prompt_id, timeline)
                )
            case Rewind(prompt_id, what):
                return what == "both" and undoing.prompt_id == prompt_id
            case ApplyWorktree():
                return False

    # --- requests ----------------------------------------------------------------------------------------------------------

    async def _undo(self, turn: str) -> None:
        timeline = await self._timeline()
        self._require_turn(turn)
        turns = (turn,) if turn else await self._last_turn(timeline)
        await self._restore("undo", turns, timeline, otherwise=NOTHING_TO_UNDO)

    async def _last_turn(self, timeline: Timeline) -> tuple[str, ...]:
        """
        Return the last turn that still has something to undo, or an empty tuple.

        A turn that was undone only in part (the disk was full, a file was immutable) is still the last one while the rest can be tried
        again. Changes that stay because the user changed the same lines would stay every time and block the way to all earlier turns, so
        such a turn counts only the first time. The plan, which looks at the current files, tells the two cases apart.
        """
        for turn in reversed(timeline.turns):
            if turn not in timeline.tried_turns:
                return (turn,)
            if (await planned_for(timeline.changes_of((turn,)), self._workspace)).steps:
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
        done = await FileRestorer(self._workspace).restore(
            undoing_id, undoing.turns, undoing.changes, undoing.id, kind="redo"
        )
        await self._report("redo", undoing.turns, done, undoing_id, undoing.changes)

    async def _rewind(self, prompt_id: str, what: str) -> None:
        self._require_turn(prompt_id)
        is_forgotten = self._session.prompt_history.history_before(prompt_id) is None
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
        prompt = self._session.prompt_history.find(prompt_id)
        messages = self._session.prompt_history.history_before(prompt_id)
        if prompt is None or messages is None:
            return
        title = prompt_title(prompt.text)
        self._services.notes.forget()
        self._services.memory.keep()  # first: if the process is killed in between, the model must get its notes again
        self._session.append(LoggedRewind(prompt_id, title, estimated_tokens(messages)))
        self._workspace.read_cache.forget_all()
        self._emit(ConversationRewound(title, prompt_id))
        self._emit(PromptsReturned((prompt,)))
        self._services.calls.show_usage()

    async def _apply_worktree(self, name: str) -> None:
        from sanderling.conversation.undo.bringing import bring  # runs git

        self._require_writable()
        done = await bring(self._services, name, await self._timeline())
        if not (done.steps or done.left):
            self._emit(FilesRestored("worktree", (), worktree=name))
            return
        # The undo before remains the last one.
        await self._report("worktree", (), done, self._session.undoing_id, worktree=name)

    async def _restore(
        self,
        kind: Literal["undo", "rewind"],
        turns: tuple[str, ...],
        timeline: Timeline,
        *,
        otherwise: str = "",
        prompt_id: str = "",
    ) -> None:
        """Restore the files of `turns`, or show `otherwise` if there is nothing. With a `prompt_id` a rewind of the conversation follows."""
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
        done = await FileRestorer(self._workspace).restore(
            undoing_id, turns, changes, kind=kind, prompt_id=prompt_id
        )
        await self._report(kind, turns, _with_doubtful(done, doubtful), undoing_id, changes)

    async def _report(
        self,
        kind: Restoration,
        turns: Sequence[str],
        done: RestorePlan,
        undoing_id: str,
        changes: Sequence[FileChange] = (),
        *,
        worktree: str = "",
    ) -> None:
        files = await to_thread.run_sync(self._shown, done)
        rest = self._rest_of(turns, done, changes)
        restored = FilesRestored(kind, tuple(turns), files, rest, worktree)
        gone = await to_thread.run_sync(
            self._names, [each for each in done.steps if _is_removal(each)]
        )
        self._session.append(LoggedRestored(restored, undoing_id, tuple(sorted(gone.values()))))
        self._emit(restored)

    def _rest_of(
        self, turns: Sequence[str], done: RestorePlan, changes: Sequence[FileChange]
    ) -> int:
        """Return the number of the turn to undo again, if that may restore what was left of its `changes`; else 0."""
        kept = {
            change.path
            for change in changes
            if not change.before.lost and change.after.lost != TOO_LARGE
        }
        ids = self._session.prompt_history.turn_ids
        has_rest = any(each.path in kept for each in done.left)
        return ids.index(turns[0]) + 1 if has_rest and turns[0] in ids and len(turns) == 1 else 0

    def _require_turn(self, prompt_id: str) -> None:
        if prompt_id and prompt_id not in self._session.prompt_history.turn_ids:
            raise SessionError(NO_SUCH_TURN)

    def _require_writable(self) -> None:
        if self._services.gate.mode == "plan":
            raise SessionError(READ_ONLY)

    # --- reports -----------------------------------------------------------------------------------------------------------

    async def changes(self, turn: str) -> Changes:
        """
        Return the turns of the session, or only `turn`, with the changes in each.

        Raises:
            SessionError: there is no such turn.
        """
        self._require_turn(turn)
        timeline = await self._timeline()
        texts = {
            prompt.id: prompt_title(prompt.text) for prompt in self._session.prompt_history.prompts
        }
        shown: list[TurnShown] = []
        for number, each in enumerate(self._session.prompt_history.turn_ids, 1):
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
        Return the files that the agent changed, or only `path`, as they would be without its changes.

        Raises:
            ToolError: no sandbox is available, or the editor does not answer.
        """
        timeline = await self._timeline()
        is_all = what == "session"
        turns = tuple(timeline.turns) if is_all else await self._last_turn(timeline)
        changes = [each for each in timeline.changes_of(turns) if path in ("", each.path)]
        planned = await planned_for(changes, self._workspace)
        return await to_thread.run_sync(files_before, planned)

    async def edits(self, turn: str, paths: Collection[str]) -> Edits:
        """Return what a turn changed in the files `paths`, without those whose content is not kept or no text."""
        found = (await self._timeline()).turns.get(turn)
        changes = [each for each in found.changes if each.path in paths] if found else []
        states = [state for each in changes for state in (each.before, each.after)]
        kept = await self._workspace.journal.contents(states)

        def shown() -> Iterator[Edit]:
            for each in changes:
                before, after = _text_of(each.before, kept), _text_of(each.after, kept)
                if before is not None and after is not None:
                    yield Edit(each.path, _what(each.before, each.after), before, after)

        return Edits(await to_thread.run_sync(lambda: tuple(shown())))

    async def preview(self, prompt_id: str) -> RewindPreview:
        """
        Return what rewinding to before this prompt would do.

        Raises:
            SessionError: there is no such prompt.
            ToolError: no sandbox is available, or the editor does not answer.
        """
        self._require_turn(prompt_id)
        timeline = await self._timeline()
        turns = self._turns_from(prompt_id, timeline)
        planned = await self.planned(turns, timeline)
        asked, prompt = self._session.prompt_history, self._session.prompt_history.find(prompt_id)
        text = prompt_title(prompt.text) if prompt else ""
        count = len(asked.prompts) - asked.prompts.index(prompt) if prompt else 0
        refusal = "" if asked.history_before(prompt_id) is not None else FORGOTTEN
        return RewindPreview(text, count, await to_thread.run_sync(self._shown, planned), refusal)

    async def planned(
        self, turns: Collection[str], timeline: Timeline | None = None
    ) -> RestorePlan:
        """
        Return how to undo `turns`.

        Raises:
            ToolError: no sandbox is available, or the editor does not answer.
        """
        timeline = timeline or await self._timeline()
        planned = await planned_for(timeline.changes_of(turns), self._workspace)
        return _with_doubtful(planned, timeline.doubtful_of(turns))

    async def changed_in(self, turns: Collection[str]) -> tuple[ChangedFile, ...]:
        """Return what `turns` changed together and what is not undone, by path."""
        made = merged("", (await self._timeline()).changes_of(turns))
        files = await self._changed((*made.changes, *made.doubtful))
        return tuple(sorted(files, key=lambda file: file.path))

    async def _changed(self, changes: Collection[FileChange]) -> tuple[ChangedFile, ...]:
        counter, stored = (
            LineCounter(MAX_COUNTED_BYTES, MAX_COUNTED_S),
            self._workspace.journal.stored,
        )

        names = ShownNames((each.path, each.before, each.after) for each in changes)

        def shown() -> Iterator[ChangedFile]:
            for each in changes:
                if name := names.shown(each.path, self._workspace.shown):
                    counts = counter.counts(each.before, each.after, stored)
                    yield _changed_file(name, each, counts)

        return await to_thread.run_sync(lambda: tuple(shown()))

    def _shown(self, planned: RestorePlan) -> tuple[RestoredFile, ...]:
        shown, counter = self._workspace.shown, LineCounter(MAX_COUNTED_BYTES, MAX_COUNTED_S)
        left = [RestoredFile(shown(each.path), "left", each.why) for each in planned.left]
        names = self._names(planned.steps)
        done = (
            _restored_file(name, each, counter)
            for each in planned.steps
            if (name := names.get(each.path))
        )
        return (*sorted(done, key=lambda file: file.path), *left)

    def _names(self, steps: Sequence[RestoreStep]) -> dict[str, str]:
        """Return the names to show, by path, without omitted ones."""
        names = ShownNames((each.path, each.now.state, each.then.state) for each in steps)
        found = {each.path: names.shown(each.path, self._workspace.shown) for each in steps}
        return {path: name for path, name in found.items() if name}

    # --- state -------------------------------------------------------------------------------------------------------------

    async def _timeline(self) -> Timeline:
        records = tuple(await self._workspace.journal.records())
        return await to_thread.run_sync(Timeline, records)

    def _turns_from(self, prompt_id: str, timeline: Timeline) -> tuple[str, ...]:
        ids = self._session.prompt_history.turn_ids
        since = set(ids[ids.index(prompt_id) :])
        return tuple(turn for turn in timeline.turns if turn in since)


async def planned_for(changes: Sequence[FileChange], workspace: Workspace) -> RestorePlan:
    """Plan how to take back `changes`; without changes it needs neither sandbox nor editor."""
    return await FileRestorer(workspace).plan(changes) if changes else RestorePlan(())


def _with_doubtful(planned: RestorePlan, doubtful: Sequence[FileChange]) -> RestorePlan:
    known = {each.path for each in (*planned.steps, *planned.left)}
    left = (SkippedPath(each.path, each.doubt) for each in doubtful if each.path not in known)
    return RestorePlan(planned.steps, (*planned.left, *left))


def _is_removal(step: RestoreStep) -> bool:
    return step.then.state.kind == "absent" and not step.is_merged


def _restored_file(path: str, step: RestoreStep, counter: LineCounter) -> RestoredFile:
    data = {step.now.state: step.now.data, step.then.state: step.then.data}
    added, removed = counter.counts(step.now.state, step.then.state, data.__getitem__)
    how = "merged" if step.is_merged else "restored"
    return RestoredFile(path, how, added=added, removed=removed)


def _changed_file(path: str, change: FileChange, counts: tuple[int, int]) -> ChangedFile:
    before, after = change.before, change.after
    why = change.doubt or _lost(before) or _lost(after)
    return ChangedFile(path, _what(before, after), *counts, why)


def _what(before: State, after: State) -> Literal["created", "changed", "removed"]:
    if after.kind == "absent":
        return "removed"
    return "created" if before.kind == "absent" else "changed"


def _text_of(state: State, kept: Mapping[str, bytes]) -> str | None:
    """Return the text of a file, "" if it is absent; None if the state is no text, or its content is not kept."""
    if state.kind == "absent":
        return ""
    data = kept.get(state.content) if state.kind == "file" else None
    text = None if data is None else decode(data)
    return None if text is None or text.is_binary else text.text


def _lost(state: State) -> str:
    return f"not restorable: {state.lost}" if state.lost else ""


def _new_id() -> str:
    return uuid4().hex


def files_before(planned: RestorePlan) -> FilesBefore:
    """Return the files that a plan would restore, with their earlier text. Takes a moment."""
    files = tuple(each for step in planned.steps if (each := _before(step)))
    left = tuple(RestoredFile(each.path, "left", each.why) for each in planned.left)
    return FilesBefore(files, left)


def _before(step: RestoreStep) -> FileBefore | None:
    """Return the file that a step would restore; None for links, directories, and files that are too large to compare."""
    now, then = step.now, step.then
    if {now.state.kind, then.state.kind} - {"file", "absent"}:
        return None
    if max(now.state.size, then.state.size) > MAX_COMPARED_BYTES:
        return None
    is_new, is_gone = then.state.kind == "absent", now.state.kind == "absent"
    text = decode(then.data or b"").text
    return FileBefore(step.path, "created" if is_new else "removed" if is_gone else "changed", text)
