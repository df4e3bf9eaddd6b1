"""The state of a conversation that outlives the process: what its parts remember is saved and restored in one place."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from sanderling.protocol.events import Event, Notice, TitleChanged
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.session.records import StateKey
from sanderling.session.session import Session
from sanderling.session.titles import title_of_answer


def _nothing() -> None:
    return None


class Remembered(NamedTuple):
    """
    A piece of state that a resumed session restores. `state` returns plain data, stored under `key` in the log.

    `restore` may raise `msgspec.ValidationError` for data of another version. `shown` returns the event that shows the current state on
    the screen, or None if there is nothing new.
    """

    key: StateKey
    state: Callable[[], Any]
    restore: Callable[[Any], None]
    shown: Callable[[], Event | None] = _nothing


class Memory:
    """The session's log as the parts of a conversation use it. `emit` receives the events."""

    def __init__(self, session: Session, emit: Callable[[Event], None]) -> None:
        self._session = session
        self._emit = emit
        self._parts: Sequence[Remembered] = ()
        self._kept: dict[StateKey, Any] = {}
        self._shown: dict[StateKey, Event | None] = {}
        self._last_problem = ""

    def restore(self, parts: Sequence[Remembered], instead: Mapping[StateKey, Any]) -> None:
        """Restore each part from the log, or from `instead`, which is not recorded; then start recording."""
        for part in parts:
            if state := instead.get(part.key) or self._session.state(part.key):
                with suppress(msgspec.ValidationError):
                    part.restore(state)
            self._kept[part.key] = part.state()
            self._shown[part.key] = part.shown()
        self._parts = parts

    def keep(self) -> None:
        """Record the state that has changed, and show it on the screen."""
        for part in self._parts:
            if (state := part.state()) != self._kept[part.key]:
                self._kept[part.key] = state
                self._session.keep_state(part.key, state)
            shown = part.shown()
            if shown and shown != self._shown[part.key]:
                self._shown[part.key] = shown
                self._emit(shown)

    def begin_turn(self, message: Message, prompt: Prompt) -> None:
        """Record the start of a turn: the prompt, and the message that it became."""
        session = self._session
        title = session.title
        session.append_prompt(message, prompt)
        self.keep()
        if session.title != title:
            self._emit(TitleChanged(session.title))
        self.report_problem()

    def name_by_answer(self) -> None:
        """Title the session by the last answer, unless it has a title: its prompts may say nothing, such as `@file`."""
        session = self._session
        last = session.history[-1] if session.history else None
        if session.title or last is None or last.role != "assistant":
            return
        text = "\n".join(block.text for block in last.content if isinstance(block, TextBlock))
        if title := title_of_answer(text):
            session.keep_state("title", title)
            self._emit(TitleChanged(title))

    async def sync(self) -> None:
        """Wait until everything so far is on the disk."""
        self._session.log.write_again()
        await self._session.log.synced()

    def report_problem(self) -> None:
        """Warn the user, once, if the log cannot be written."""
        problem = self._session.log.write_error
        if problem and problem != self._last_problem:
            text = (
                f"Cannot write the session's log ({problem}). The conversation continues in memory."
            )
            self._emit(Notice("warning", text))
        self._last_problem = problem
