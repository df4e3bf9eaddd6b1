"""Callbacks: functions of the user's editor that run before something happens, and decide about it as hooks do."""

from typing import Any, Literal, Protocol

from sanderling.hooks.hooks import Verdict

Point = Literal["prompt", "tool", "compact"]


class Callbacks(Protocol):
    """The callbacks of one session."""

    def are_for(self, point: Point) -> bool: ...

    async def run(self, point: Point, subject: Any) -> Verdict:
        """
        Run the callbacks for `point`, one after the other, each with what the one before it has made of `subject`.

        The subject is a prompt's text, a tool call's `name` and `input`, or the focus of a summary. A callback that fails decides nothing,
        but before a tool call the user is asked.
        """
        ...


class NoCallbacks:
    """Replaces `Callbacks` in a session without an editor."""

    def are_for(self, point: Point) -> bool:
        del point
        return False

    async def run(self, point: Point, subject: Any) -> Verdict:
        del point, subject
        return Verdict()
