"""
A session: one conversation, in memory and on disk.

Every change of a session is a record: `append` applies it and writes it to the log, and reading the log applies its records again. (A
streaming answer is logged in pieces, every quarter of a second.) A turn without a `turn_ended` was interrupted; reading the log back
records that, and keeps what the model had said.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.history import History, PromptHistory, continued, with_results
from sanderling.session.ledger import Last, Ledger
from sanderling.session.log import Log, log_path
from sanderling.session.records import (
    LOG_VERSION,
    Header,
    LoggedChild,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedRestored,
    LoggedRewind,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
    Record,
    StateKey,
)
from sanderling.session.titles import first_title


class Session:
    """
    A session: history, metadata and log. `header` has what is recorded of a new one.

    `children` are the child sessions that were started, by their tool calls. `commands` are the user's commands, and `taken_back` the undo
    and rewind records, that the next prompt will report to the model.
    """

    def __init__(
        self,
        session_id: str,
        project: str,
        path: Path,
        face: str = "",
        *,
        parent: str = "",
        is_read_only: bool = False,
    ) -> None:
        self.id = session_id
        header = Header(
            LOG_VERSION,
            session_id,
            project,
            face=face or UNSET,
            parent=parent or UNSET,
            access="ro" if is_read_only else UNSET,
        )
        self.log = Log(path, header, self._known_records)
        self.path = path
        self.prompts: list[Prompt] = []
        self.commands: list[CommandRecord] = []
        self.taken_back: list[LoggedRestored | LoggedRewind] = []
        self.undoing_id = ""  # of the last restore
        self.ledger = Ledger()
        self.children: dict[str, LoggedChild] = {}
        self._history = History()
        self.ran = self._history.ran
        self.prompt_history = PromptHistory(self._history)
        self._states: dict[StateKey, LoggedState] = {}
        self._is_in_turn, self._partial_text = False, ""
        self._work_dir = ""

    @classmethod
    def open(
        cls,
        session_dir: Path,
        session_id: str,
        project: str,
        face: str = "",
        *,
        parent: str = "",
        is_read_only: bool = False,
        recover: Callable[[LoggedChild], ToolResult] | None = None,
    ) -> "Session":
        """
        Open the session `session_id`, from its log if that exists; a new one has this `face`, `parent` and access.

        `recover` returns the result of a tool call that started a child session, and was interrupted before its own result was logged.

        Raises:
            SessionInUseError: another process has it open.
            SessionError: the id is not a valid file name, or the log cannot be read by this version.
        """
        path = log_path(session_dir, session_id)
        session = cls(session_id, project, path, face, parent=parent, is_read_only=is_read_only)
        try:
            for record in session.log.read():
                session.apply(record)
            if recover:
                session._recover(recover)
            session._end_interrupted_turn()
            session.log.resumed_bytes = session.log.size
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        self.log.close()

    @property
    def project(self) -> str:
        return self.log.header.project

    @property
    def parent(self) -> str:
        """The id of the session that this one is a child of, or ""."""
        return self.log.header.parent or ""

    @property
    def is_read_only(self) -> bool:
        """True if nothing that runs in this session may ever write to the project."""
        return self.log.header.access == "ro"

    @property
    def work_dir(self) -> str:
        """The directory in which the session works: its project, or a worktree of it. Rules and trust are the project's in both."""
        return self._work_dir or self.project

    @property
    def worktree(self) -> str:
        """The name of that worktree, or ""."""
        return self.log.header.worktree or ""

    def work_in(self, worktree: str, directory: str) -> None:
        """Work in the worktree `worktree` of the project, in `directory`. A new session's log records that."""
        self._work_dir = directory
        if not self.is_resumed:
            self.log.header = msgspec.structs.replace(self.log.header, worktree=worktree)

    @property
    def is_resumed(self) -> bool:
        return self.log.resumed_bytes > 0

    @property
    def title(self) -> str:
        """The title that the user or the first answer has set, or else that of the first prompts."""
        named = self.state("title")
        if isinstance(named, str) and named:
            return named
        return first_title(prompt.text for prompt in self.prompts)

    @property
    def model(self) -> str:
        return self.ledger.last_model

    @property
    def history(self) -> list[Message]:
        return self._history.messages

    @property
    def last_usage(self) -> Usage:
        return self._history.last_usage

    @property
    def tool_use_ids(self) -> set[str]:
        return self._history.tool_use_ids

    def append(self, record: Record) -> None:
        """Apply `record` and write it to the log, in one step."""
        self.apply(record)  # first: a truncated log is rebuilt from the session's state
        self.log.write(record)

    def apply(self, record: Record) -> None:
        """Apply `record` in memory only."""
        match record:
            case LoggedMessage():
                self._apply_message(record)
            case LoggedCommand(record=command):
                self.commands.append(command)
            case LoggedRestored():
                self.taken_back.append(record)
                self.undoing_id = record.undoing_id
            case LoggedRewind():
                self._apply_rewind(record)
            case LoggedPartial(block="text", text=text):
                self._partial_text += text
            case LoggedRestart():
                self._partial_text = ""
            case LoggedTurnEnd(stop_reason=stop_reason):
                self._is_in_turn = False
                self.prompt_history.end(stop_reason)
            case LoggedUsage():
                self._apply_usage(record)
            case LoggedState(key=key):
                self._states[key] = record
                if key == "model":
                    self._history.forget_thoughts()
            case _:
                self._apply_to_history(record)

    def _apply_message(self, logged: LoggedMessage) -> None:
        self._history.add(logged.message)
        if logged.prompt:
            self.prompts.append(logged.prompt)
            self.prompt_history.add(logged.prompt)
            self.commands, self.taken_back = [], []
            self.ledger.begin_turn()
        self.prompts += logged.steered
        self._is_in_turn, self._partial_text = True, ""

    def _apply_usage(self, logged: LoggedUsage) -> None:
        model, usage = logged.model, logged.usage
        if logged.child:
            self.ledger.add_child(logged.child, model, usage)
        elif logged.is_aside:
            self.ledger.add_aside(model, usage)
        else:
            self.ledger.add(model, usage)
            last = Last(model, usage, logged.at)
            self.ledger.end_request(last, logged.missed_tokens, logged.missed_why)
            self._history.last_usage = usage

    def _apply_rewind(self, record: LoggedRewind) -> None:
        self.taken_back.append(record)
        if prompt := self.prompt_history.rewind(record.prompt_id, record.after_tokens):
            del self.prompts[self.prompts.index(prompt) :]

    def _apply_to_history(self, record: Record) -> None:
        match record:
            case LoggedToolStart(tool_use_id=tool_use_id):
                self._history.ran.started.add(tool_use_id)
            case LoggedToolEnd(result=ToolResult() as result):
                self._history.ran.ended[result.tool_use_id] = result
            case LoggedChild(tool_use_id=tool_use_id):
                self.children[tool_use_id] = record
            case LoggedClearing(results=results, after_tokens=tokens):
                self._history.compact(with_results(self.history, results), tokens)
            case LoggedSummary(history=history, after_tokens=tokens):
                self._history.compact(list(history), tokens)
            case LoggedUndo():
                self._history.undo_compaction()
            case _:
                pass

    def append_prompt(self, message: Message, prompt: Prompt) -> None:
        self.append(LoggedMessage(message, prompt))

    def append_message(self, message: Message, steered: tuple[Prompt, ...] = ()) -> None:
        self.append(LoggedMessage(message, steered=steered))

    def append_reply(self, message: Message) -> list[ToolUse]:
        """Append what the API accepts of the model's message, if anything; return its tool calls."""
        whole = continued(self.history, message, self._history.ran)
        if not whole:
            return []
        self.append_message(whole[-1])
        return [block for block in whole[-1].content if isinstance(block, ToolUse)]

    def undo_compaction(self) -> bool:
        """Undo the last compaction; return False if there was none."""
        is_compacted = self._history.is_compacted
        if is_compacted:
            self.append(LoggedUndo())
        return is_compacted

    def has_just_restored(self, undoing_id: str) -> bool:
        """Return whether this restore was the last thing that happened, so that the rewind that should follow did not happen."""
        last = self.taken_back[-1] if self.taken_back else None
        return isinstance(last, LoggedRestored) and last.undoing_id == undoing_id

    def keep_state(self, key: StateKey, value: Any) -> None:
        """Record `value`, plain data, to be restored when the session is resumed. Does nothing if it is unchanged."""
        if value != self.state(key):
            self.append(LoggedState(key, value))

    def state(self, key: StateKey) -> Any:
        """Return the last recorded value, or None."""
        return self._states[key].value if key in self._states else None

    def switch_model(self, model: str) -> None:
        """Switch to another model, which does not get the previous model's thoughts."""
        self.append(LoggedState("model", model))

    def _known_records(self) -> Iterator[Record]:
        """Yield records from which a log can be rebuilt that restores the session's current state."""
        prompts = {id(message): prompt for message, prompt in self.prompt_history.messages}
        yield from self._states.values()
        for message in self.history:
            prompt = prompts.get(id(message))
            if prompt and message is not self.history[0]:
                yield LoggedTurnEnd("end_turn")
            yield LoggedMessage(message, prompt)
        if not self._is_in_turn:
            yield LoggedTurnEnd("end_turn")
        yield from map(LoggedToolStart, sorted(self._history.ran.started))
        yield from self.children.values()
        yield from map(LoggedCommand, self.commands)
        yield from (each for each in self.taken_back if isinstance(each, LoggedRestored))
        for child, used in self.ledger.children.items():
            for model, usage in used.by_model.items():
                yield LoggedUsage(model, usage, is_aside=True, child=child)
        yield from (LoggedUsage(model, usage) for model, usage in self.ledger.own.by_model.items())
        yield LoggedUsage(self.model, Usage())

    def _recover(self, recover: Callable[[LoggedChild], ToolResult]) -> None:
        """Answer the interrupted calls that started children, with the work of these."""
        ran = self._history.ran
        for tool_use_id in ran.started - ran.ended.keys():
            if child := self.children.get(tool_use_id):
                ran.ended[tool_use_id] = recover(child)

    def _end_interrupted_turn(self) -> None:
        if not self._is_in_turn:
            return
        text = self._partial_text
        if text.strip():
            self.append_message(Message("assistant", (TextBlock(text),)))
        elif missing := continued(self.history, Message("user", ()), self._history.ran):
            self.append_message(missing[0])
        self.append(LoggedTurnEnd("interrupted"))


class KeptPosition(msgspec.Struct, frozen=True):
    """The position up to which updates were shown: `life` and `seq`, and the other fields of `acp.ours.Position`."""

    life: str = ""
    seq: int | UnsetType = UNSET
    is_continued: bool | UnsetType = UNSET
    running: str | UnsetType = UNSET


class KeptAgent(msgspec.Struct, frozen=True):
    """
    The agent `name`, with its own id for the session. `of` is our session's id. Unset fields are not in the log.

    `turn` is the prompt whose turn is still running remotely; `whole`: nothing of that turn was shown yet.
    """

    name: str = ""
    session: str = ""
    of: str = ""
    turn: str | UnsetType = UNSET
    whole: bool | UnsetType = UNSET
    seen: KeptPosition | UnsetType = UNSET


def kept_agent(session: Session) -> KeptAgent:
    """Return the agent of `session`; without one, the name is empty. A fork keeps only the name."""
    try:
        kept = msgspec.convert(session.state("agent"), KeptAgent)
    except msgspec.ValidationError:
        return KeptAgent()
    return kept if kept.of == session.id else KeptAgent(kept.name)


def keep_agent(session: Session, kept: KeptAgent) -> None:
    session.keep_state("agent", msgspec.to_builtins(kept))
