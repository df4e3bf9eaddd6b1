"""The part of a conversation that outlives the process: all that its parts remember is kept, and taken up again, in one place."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from sanderling.protocol.events import Event, Notice, TitleChanged
from sanderling.protocol.messages import Message, Prompt
from sanderling.session.records import StateKey
from sanderling.session.session import Session


def _nothing() -> None:
    return None


class Remembered(NamedTuple):
    """
    One thing that a session knows again when it is resumed. Its `state`, plain data, stands under `key` in the log.

    `restore` may raise `msgspec.ValidationError` at what another version has written. `shown` is the event that tells the screen
    of it as it is now; None: nothing new.
    """

    key: StateKey
    state: Callable[[], Any]
    restore: Callable[[Any], None]
    shown: Callable[[], Event | None] = _nothing


class Memory:
    """The session's log as the parts of a conversation use it. `emit` takes the events."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session = session
        self._emit = emit
        self._parts: Sequence[Remembered] = ()
        self._kept: dict[StateKey, Any] = {}
        self._shown: dict[StateKey, Event | None] = {}
        self._last_problem = ""

    def restore(self, parts: Sequence[Remembered], instead: Mapping[StateKey, Any]) -> None:
        """Have `parts` take up what the session has left, or what stands in `instead`, which is not kept; from now on, keep it."""
        for part in parts:
            if state := instead.get(part.key) or self._session.state(part.key):
                with suppress(msgspec.ValidationError):
                    part.restore(state)
            self._kept[part.key] = part.state()
            self._shown[part.key] = part.shown()
        self._parts = parts

    def keep(self) -> None:
        """Write down what has changed, and tell the screen."""
        for part in self._parts:
            if (state := part.state()) != self._kept[part.key]:
                self._kept[part.key] = state
                self._session.keep_state(part.key, state)
            shown = part.shown()
            if shown and shown != self._shown[part.key]:
                self._shown[part.key] = shown
                self._emit(shown)

    def begin_turn(self, message: Message, prompt: Prompt) -> None:
        """Write down what a turn begins with: the prompt, and the message that it has become."""
        session = self._session
        session.append_prompt(message, prompt)
        self.keep()
        if len(session.prompts) == 1:
            self._emit(TitleChanged(session.title))
        self.report_problem()

    async def sync(self) -> None:
        """Wait until the disk has what was said so far."""
        self._session.log.write_again()
        await self._session.log.synced()

    def report_problem(self) -> None:
        """Tell the person, once, why the log lags behind, if it does."""
        problem = self._session.log.write_error
        if problem and problem != self._last_problem:
            text = f"The session's log cannot be written ({problem}). The conversation goes on in memory."
            self._emit(Notice("warning", text))
        self._last_problem = problem
