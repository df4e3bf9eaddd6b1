"""The pending prompts: steering prompts are sent at the next tool boundary, queued prompts each get a turn of their own."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from sanderling.protocol.events import WaitingChanged
from sanderling.protocol.messages import Prompt


class Waiting:
    """
    The pending prompts of one session. They are never dropped: each is taken exactly once, or returned to the user.

    While they are held, only the user can release or take them. `changed` is called after every change except `take_steering` and
    `take_next`: their callers log the prompt first, and then report that it is no longer pending. The conversation sets `is_in_turn`.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.is_held = self.is_in_turn = False
        self._steering: list[Prompt] = []
        self._queued: list[Prompt] = []
        self._aside: list[Prompt] = []
        self._changed = changed

    def __bool__(self) -> bool:
        return bool(self._steering or self._queued)

    def queue(self, prompt: Prompt) -> None:
        """Queue `prompt` for a turn of its own. Held prompts are released and go first."""
        self._queued.append(prompt)
        self.is_held = False
        self._changed()

    def steer(self, prompt: Prompt) -> None:
        """Queue `prompt` for the next tool boundary."""
        self._steering.append(prompt)
        self.is_held = False
        self._changed()

    def edit(self, prompt_id: str, text: str) -> None:
        """Change the text of a pending prompt; a blank text removes it. Prompts that were already sent do not change."""
        self._steering = _edited(self._steering, prompt_id, text)
        self._queued = _edited(self._queued, prompt_id, text)
        self.is_held = self.is_held and bool(self)
        self._changed()

    def hold(self) -> None:
        """Hold the pending prompts until the user releases them, because the turn before them failed."""
        if self and not self.is_held:
            self.is_held = True
            self._changed()

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            self._changed()

    def put_back(self, prompt: Prompt) -> None:
        """Put a prompt that was taken back at the head of the queue."""
        self._queued.insert(0, prompt)
        self._changed()

    def remove(self, prompt_id: str) -> bool:
        """Remove a queued prompt; return whether it was there."""
        left = [each for each in self._queued if each.id != prompt_id]
        is_there = len(left) < len(self._queued)
        self._queued = left
        if is_there:
            self._changed()
        return is_there

    def take_steering(self) -> tuple[Prompt, ...]:
        """Take the prompts for the current turn."""
        if self.is_held:
            return ()
        taken, self._steering = tuple(self._steering), []
        return taken

    def take_next(self) -> Prompt | None:
        """Take the prompt of the next turn. Steering prompts whose turn has ended come first."""
        waiting = self._steering or self._queued
        if self.is_held or not waiting:
            return None
        return waiting.pop(0)

    def take_all(self) -> tuple[Prompt, ...]:
        """Take all pending prompts, in the order in which they would have been sent."""
        taken = (*self._steering, *self._queued)
        self._steering, self._queued, self.is_held = [], [], False
        if taken:
            self._changed()
        return taken

    def set_aside(self) -> tuple[Prompt, ...]:
        """
        Set the pending prompts aside and return them. They stay in the log, and this session does not send them.

        This is for frontends that cannot ask whether to send them: they must neither delay nor precede the frontend's own prompt.
        """
        self._aside, self._steering, self._queued = [*self._steering, *self._queued], [], []
        self.is_held = False
        return tuple(self._aside)

    def drop_aside(self) -> None:
        self._aside = []

    def shown(self) -> WaitingChanged:
        return WaitingChanged(tuple(self._steering), tuple(self._queued), self.is_held)

    def news(self) -> WaitingChanged | None:
        """Return the prompts to show. None means no change: a prompt that is sent at once is never shown as pending."""
        goes_at_once = not (self.is_in_turn or self.is_held)
        is_one = len(self._steering) + len(self._queued) == 1
        return None if goes_at_once and is_one else self.shown()

    def state(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        queued = [*self._aside, *self._queued]
        return msgspec.to_builtins({"steering": self._steering, "queued": queued})

    def restore(self, state: object, gone: Collection[str]) -> None:
        """Restore the pending prompts of the last session, except those whose turn has begun, and hold them."""
        waiting = msgspec.convert(state, dict[str, list[Prompt]])
        self._steering = [each for each in waiting.get("steering", []) if each.id not in gone]
        self._queued = [each for each in waiting.get("queued", []) if each.id not in gone]
        self.is_held = bool(self)


def _edited(prompts: list[Prompt], prompt_id: str, text: str) -> list[Prompt]:
    changed = (
        msgspec.structs.replace(prompt, text=text, sent="") if prompt.id == prompt_id else prompt
        for prompt in prompts
    )
    return [prompt for prompt in changed if prompt.id != prompt_id or text.strip()]
