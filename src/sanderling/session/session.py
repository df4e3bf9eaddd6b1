"""
A session: one conversation, in memory and on disk.

What changes a session is a record. `append` applies it and writes it to the log; to read the log back is to apply what it holds.
(Of an answer that streams, the conversation appends a piece each quarter of a second.) A turn without its `turn_ended` was
interrupted; reading the log back says so and keeps what the model had said.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.asked import Asked
from sanderling.session.history import History, continued, with_results
from sanderling.session.ledger import Ledger
from sanderling.session.log import Log, log_path
from sanderling.session.records import (
    LOG_VERSION,
    Header,
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
from sanderling.text import shortened

MAX_TITLE_CHARS = 60
_MARKDOWN = r"^[#>*\-\s`]+|[`*]+"


class Session:
    """
    A session: what was said, what is known of it, and its log; `face` is where a new one begins.

    `commands` are those of the person's that no prompt has told the model of, `taken_back` what they have undone: the next one does.
    """

    def __init__(self, session_id: str, project: str, path: Path, face: str = "") -> None:
        self.id = session_id
        header = Header(LOG_VERSION, session_id, project, face=face or msgspec.UNSET)
        self.log = Log(path, header, self._known_records)
        self.path = path
        self.prompts: list[Prompt] = []
        self.commands: list[CommandRecord] = []
        self.taken_back: list[LoggedRestored | LoggedRewind] = []
        self.undoing_id = ""  # of the last of them
        self.ledger = Ledger()
        self._history = History()
        self.ran = self._history.ran
        self.asked = Asked(self._history)
        self._states: dict[StateKey, LoggedState] = {}
        self._is_in_turn, self._partial_text = False, ""

    @classmethod
    def open(cls, session_dir: Path, session_id: str, project: str, face: str = "") -> "Session":
        """
        Open the session `session_id`, with what its log holds when there is one.

        Raises:
            SessionInUseError: another process has it open.
            SessionError: the id is no file name, or the log is not one that this version can read.
        """
        session = cls(session_id, project, log_path(session_dir, session_id), face)
        try:
            for record in session.log.read():
                session.apply(record)
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
    def is_resumed(self) -> bool:
        return self.log.resumed_bytes > 0

    @property
    def title(self) -> str:
        """The title that the person has given, else what they asked first."""
        named = self.state("title")
        if isinstance(named, str) and named:
            return named
        return derived_title(self.prompts[0]) if self.prompts else ""

    @property
    def model(self) -> str:
        """The model that was asked last; empty if none was."""
        return self.ledger.last_model

    @property
    def history(self) -> list[Message]:
        """The messages that the model is shown."""
        return self._history.messages

    @property
    def last_usage(self) -> Usage:
        """The usage of the last request, or what a compaction has left of it."""
        return self._history.last_usage

    @property
    def tool_use_ids(self) -> set[str]:
        return self._history.tool_use_ids

    # --- records -------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Have the session and its log hold `record`; nobody can act on it in between."""
        self.apply(record)  # first: a log that was cut is written anew from what the session holds
        self.log.write(record)

    def apply(self, record: Record) -> None:
        """Take up what `record` says, in memory alone."""
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
                self.asked.end(stop_reason)
            case LoggedUsage(model=model, usage=usage, is_aside=True):
                self.ledger.add_aside(model, usage)
            case LoggedUsage(model=model, usage=usage):
                self.ledger.add(model, usage)
                self._history.last_usage = usage
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
            self.asked.add(logged.prompt)
            self.commands, self.taken_back = [], []
            self.ledger.begin_turn()
        self.prompts += logged.steered
        self._is_in_turn, self._partial_text = True, ""

    def _apply_rewind(self, record: LoggedRewind) -> None:
        self.taken_back.append(record)
        if prompt := self.asked.rewind(record.prompt_id, record.after_tokens):
            del self.prompts[self.prompts.index(prompt) :]

    def _apply_to_history(self, record: Record) -> None:
        match record:
            case LoggedToolStart(tool_use_id=tool_use_id):
                self._history.ran.started.add(tool_use_id)
            case LoggedToolEnd(result=ToolResult() as result):
                self._history.ran.ended[result.tool_use_id] = result
            case LoggedClearing(results=results, after_tokens=tokens):
                self._history.compact(with_results(self.history, results), tokens)
            case LoggedSummary(history=history, after_tokens=tokens):
                self._history.compact(list(history), tokens)
            case LoggedUndo():
                self._history.undo_compaction()
            case _:
                pass

    # --- what is said --------------------------------------------------------------------------------------------------

    def append_prompt(self, message: Message, prompt: Prompt) -> None:
        self.append(LoggedMessage(message, prompt))

    def append_message(self, message: Message, steered: tuple[Prompt, ...] = ()) -> None:
        self.append(LoggedMessage(message, steered=steered))

    def append_reply(self, message: Message) -> list[ToolUse]:
        """Append what of the model's message the API takes back, if anything; return its tool uses."""
        whole = continued(self.history, message, self._history.ran)
        if not whole:
            return []
        self.append_message(whole[-1])
        return [block for block in whole[-1].content if isinstance(block, ToolUse)]

    def undo_compaction(self) -> bool:
        """Show the model again what the last compaction took away; False if there was none."""
        is_compacted = self._history.is_compacted
        if is_compacted:
            self.append(LoggedUndo())
        return is_compacted

    def has_just_restored(self, undoing_id: str) -> bool:
        """Say whether this undoing is the last thing that happened, so that a rewind which was to follow has not."""
        last = self.taken_back[-1] if self.taken_back else None
        return isinstance(last, LoggedRestored) and last.undoing_id == undoing_id

    # --- what is known again -------------------------------------------------------------------------------------------

    def keep_state(self, key: StateKey, value: Any) -> None:
        """Keep what is to be known again when the session is resumed, plain data; nothing if that is known."""
        if value != self.state(key):
            self.append(LoggedState(key, value))

    def state(self, key: StateKey) -> Any:
        """The value that was kept last; None if none was."""
        return self._states[key].value if key in self._states else None

    def switch_model(self, model: str) -> None:
        """Another model goes on, without the thoughts of the one before."""
        self.append(LoggedState("model", model))

    def _known_records(self) -> Iterator[Record]:
        """The records of a log that is read back as the session is now."""
        prompts = {id(message): prompt for message, prompt in self.asked.messages}
        yield from self._states.values()
        for message in self.history:
            prompt = prompts.get(id(message))
            if prompt and message is not self.history[0]:
                yield LoggedTurnEnd("end_turn")
            yield LoggedMessage(message, prompt)
        if not self._is_in_turn:
            yield LoggedTurnEnd("end_turn")
        yield from map(LoggedToolStart, sorted(self._history.ran.started))
        yield from map(LoggedCommand, self.commands)
        yield from (each for each in self.taken_back if isinstance(each, LoggedRestored))
        yield from (LoggedUsage(model, usage) for model, usage in self.ledger.by_model.items())
        yield LoggedUsage(self.model, Usage())

    def _end_interrupted_turn(self) -> None:
        if not self._is_in_turn:
            return
        text = self._partial_text
        if text.strip():
            self.append_message(Message("assistant", (TextBlock(text),)))
        elif missing := continued(self.history, Message("user", ()), self._history.ran):
            self.append_message(missing[0])
        self.append(LoggedTurnEnd("interrupted"))


def derived_title(prompt: Prompt) -> str:
    """The first line of a prompt that says something, short and without Markdown."""
    lines = (re.sub(_MARKDOWN, "", line).strip() for line in prompt.text.splitlines())
    line = " ".join(next(filter(None, lines), "").split())
    return shortened(line, MAX_TITLE_CHARS)
