"""The child sessions that run in this process, by the paths of their logs."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import anyio

from sanderling.conversation.conversation import Conversation
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    CommandsRunning,
    ConnectionChanged,
    EffortChanged,
    Event,
    GuestOptionsChanged,
    HistoryShown,
    JobOutput,
    JobsChanged,
    ModeChanged,
    ModelChanged,
    RoleChanged,
    SandboxChanged,
    SessionOpened,
    SlashCommandsChanged,
    TitleChanged,
    TodoChanged,
    ToolServersChanged,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
    WaitingChanged,
)
from sanderling.protocol.pieces import Piece, Pieces

Emit = Callable[[Event], None]

OF_OPENING = SessionOpened | HistoryShown | JobOutput
"""Events for one frontend, which others get on their own request."""
WHOLE = (
    CommandsRunning
    | ConnectionChanged
    | EffortChanged
    | GuestOptionsChanged
    | JobsChanged
    | ModeChanged
    | ModelChanged
    | RoleChanged
    | SandboxChanged
    | SlashCommandsChanged
    | TitleChanged
    | TodoChanged
    | ToolServersChanged
    | UsageUpdated
    | WaitingChanged
)
"""Events that describe the whole of something, so that the last one is enough."""


MAX_PIECES_CHARS = 1 << 18  # of one call's output that a newcomer gets


class RunningChild:
    """
    What frontends need to open a child while it works: its conversation, its events so far, and the next ones.

    All events go to `emit` as well, which is its parent's.

    Open the child with `self.emit`, and serve its conversation within `running`.
    """

    def __init__(self, emit: Emit) -> None:
        self.ended = anyio.Event()
        self._emit = emit
        self._frontends: list[Emit] = []
        self._so_far: dict[object, Event | Pieces] = {}
        self._last: Pieces | None = None
        self._last_chars = 0
        self._numbers = count()
        self.is_in_turn = False

    def emit(self, event: Event) -> None:
        self._keep(event)
        self._emit(event)
        if not isinstance(event, OF_OPENING):
            for emit in tuple(self._frontends):
                emit(event)

    def attach(self, emit: Emit) -> None:
        """Send a frontend the events since the child was opened, and from now on each new one."""
        for event in self._events():
            emit(event)
        self._frontends.append(emit)

    def detach(self, emit: Emit) -> None:
        if emit in self._frontends:
            self._frontends.remove(emit)

    @contextmanager
    def running(self, conversation: Conversation) -> Generator[None]:
        """Let frontends open the child in this context. At its end the child's log must be closed."""
        self.conversation = conversation
        path = conversation.services.session.path
        _running[path] = self
        try:
            yield
        finally:
            del _running[path]
            if self.is_in_turn:  # it crashed
                for emit in tuple(self._frontends):
                    emit(TurnEnded("error"))
            self.ended.set()

    def _keep(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.is_in_turn = True
            case TurnEnded():
                self.is_in_turn = False
            case _:
                pass
        last, self._last = self._last, None
        match event:
            case SessionOpened() | HistoryShown() | JobOutput():
                self._last = last
            case ApprovalSettled(approval_id):
                self._so_far.pop(approval_id, None)
            case ApprovalRequested(approval_id):
                self._so_far[approval_id] = event
            case _ if isinstance(event, WHOLE):
                self._so_far.pop(type(event), None)
                self._so_far[type(event)] = event
                self._last = last
            case _ if isinstance(event, Piece):
                self._keep_piece(event, last)
            case _:
                self._so_far[next(self._numbers)] = event

    def _keep_piece(self, piece: Piece, last: Pieces | None) -> None:
        if not last or not last.is_continued_by(piece):
            self._last = self._so_far[next(self._numbers)] = Pieces(piece)
            self._last_chars = len(piece.text)
            return
        self._last = last
        last.add(piece)
        self._last_chars += len(piece.text)
        while self._last_chars > MAX_PIECES_CHARS and len(last.pieces) > 1:
            self._last_chars -= len(last.pieces.popleft())

    def _events(self) -> Iterator[Event]:
        for event in tuple(self._so_far.values()):
            yield event.joined() if isinstance(event, Pieces) else event


_running: dict[Path, RunningChild] = {}


def find_running(log: Path) -> RunningChild | None:
    return _running.get(log)
