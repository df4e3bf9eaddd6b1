"""What a session's log says about its turns and tool calls: prompt, model, cost, time."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from sanderling.errors import SessionError
from sanderling.paths import stamp_of
from sanderling.protocol.messages import Prompt, ToolUse
from sanderling.session.codec import Codec
from sanderling.session.ledger import Tally
from sanderling.session.log import header_of, log_path, opened, whole_lines
from sanderling.session.records import (
    Header,
    LoggedChild,
    LoggedMessage,
    LoggedRestored,
    LoggedState,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUsage,
    Record,
)

_READ = tuple(
    b'{"type":"%s",' % name
    for name in (
        b"prompt",
        b"message",
        b"usage",
        b"tool_started",
        b"child",
        b"turn_ended",
        b"state",
        b"restored",
    )
)
"""How the lines begin that are decoded: output and the pieces of answers are most of a log."""


class Turn:
    """A turn; `number` counts from 1. Its `tally` includes the requests of children."""

    def __init__(self, prompt: Prompt, number: int, at: datetime) -> None:
        self.prompt = prompt
        self.number = number
        self.at = at
        self.tally = Tally()


class Use(msgspec.Struct):
    """A tool call; `model` is empty if unknown. `child` names the child session that made it, `child_id` is its id."""

    at: datetime
    model: str = ""
    child: str = ""
    child_id: str = ""


class SessionTurns:
    """The turns of a session by the ids of their prompts, and its tool calls and its children's by their ids."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.turns: dict[str, Turn] = {}
        self.uses: dict[str, Use] = {}
        self.agent = ""
        self.brought: list[datetime] = []  # when the work of a worktree was applied
        self.stamps: dict[Path, tuple[int, ...] | None] = {}
        """Of the logs that this was read from, from before they were read."""
        self._children: dict[str, str] = {}  # their names
        self._turn: Turn | None = None
        self._model = ""
        self._unattributed: list[str] = []

    def take(self, record: Record) -> None:
        match record:
            case LoggedMessage(prompt=Prompt() as prompt, at=at):
                self._turn = Turn(prompt, len(self.turns) + 1, at)
                self.turns[prompt.id] = self._turn
                self._model, self._unattributed = "", []
            case LoggedMessage(message=message, at=at):
                for block in message.content:
                    if isinstance(block, ToolUse):
                        self._add(block.id, at)
            case LoggedToolStart(tool_use_id=use_id, at=at):
                self._add(use_id, at)
                self.uses[use_id].at = at
            case LoggedUsage(is_aside=False):
                self._count(record)
            case LoggedChild(id=child, name=name):
                self._children[child] = name
            case LoggedState(key="agent", value={"name": str(name)}):
                self.agent = name
            case LoggedRestored(restored=restored, at=at) if restored.kind == "worktree":
                self.brought.append(at)
            case LoggedTurnEnd():
                self._unattributed = []
            case _:
                pass

    def is_current(self) -> bool:
        return all(stamp_of(log) == stamp for log, stamp in self.stamps.items())

    def _add(self, use_id: str, at: datetime) -> None:
        if use_id not in self.uses:
            self.uses[use_id] = Use(at, self._model)
            if not self._model:  # an external agent reports its usage after its calls
                self._unattributed.append(use_id)

    def _count(self, record: LoggedUsage) -> None:
        if self._turn:
            self._turn.tally.add(record.model, record.usage)
        if not record.child:
            self._model = record.model
            for use_id in self._unattributed:
                self.uses[use_id].model = record.model
            self._unattributed = []

    def children(self) -> Iterator[tuple[str, str]]:
        yield from self._children.items()

    def take_over(self, child_id: str, name: str, child: "SessionTurns") -> None:
        """Add the calls of a child, whose changes are in this session's journal."""
        for use_id, use in child.uses.items():
            names = f"{name}, {use.child}" if use.child else name
            found = Use(use.at, use.model, names, use.child_id or child_id)
            self.uses.setdefault(use_id, found)
        self.stamps |= child.stamps


def read_turns(session_dir: Path, session_id: str, above: tuple[str, ...] = ()) -> SessionTurns:
    """
    Read the logs of a session and of its children, even while another process writes them.

    Raises:
        SessionError: the session does not exist, or its log cannot be read.
    """
    log = log_path(session_dir, session_id)
    stamp = stamp_of(log)
    with opened(log) as file:
        lines = whole_lines(file)
        found, codec = SessionTurns(header_of(log, next(lines, b""))), Codec()
        for line in lines:
            if line.startswith(_READ) and (record := codec.decoded(line)):
                found.take(record)
    found.stamps[log] = stamp
    family = (*above, session_id)
    for child_id, name in found.children():
        if child_id not in family:
            with suppress(SessionError):  # it was deleted
                found.take_over(child_id, name, read_turns(session_dir, child_id, family))
    return found
