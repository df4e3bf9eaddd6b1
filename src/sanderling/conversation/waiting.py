"""The prompts that wait: those that steer go in at the next tool boundary, those that are queued each get a turn of their own."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from sanderling.protocol.events import WaitingChanged
from sanderling.protocol.messages import Prompt


class Waiting:
    """
    The prompts of one session that wait. None is ever dropped: each is taken exactly once, or given back.

    While they are held, nothing takes them but the person. `changed` is called after every change except `take_steering` and
    `take_next`: who takes a prompt puts it into the log first, and then says that it does not wait any more. `is_in_turn` is for
    the conversation to set.
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
        """Let `prompt` wait for a turn of its own; those that were held go before it."""
        self._queued.append(prompt)
        self.is_held = False
        self._changed()

    def steer(self, prompt: Prompt) -> None:
        """Let `prompt` wait for the next tool boundary."""
        self._steering.append(prompt)
        self.is_held = False
        self._changed()

    def edit(self, prompt_id: str, text: str) -> None:
        """Change the words of a prompt that waits; blank ones take it out. One that has gone is left alone."""
        self._steering = _edited(self._steering, prompt_id, text)
        self._queued = _edited(self._queued, prompt_id, text)
        self.is_held = self.is_held and bool(self)
        self._changed()

    def hold(self) -> None:
        """Let what waits go only when the person says so: what came before it has failed."""
        if self and not self.is_held:
            self.is_held = True
            self._changed()

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            self._changed()

    def put_back(self, prompt: Prompt) -> None:
        """Have a prompt that was taken wait again, before all others."""
        self._queued.insert(0, prompt)
        self._changed()

    def remove(self, prompt_id: str) -> bool:
        """Take out a prompt; say whether it was there."""
        left = [each for each in self._queued if each.id != prompt_id]
        is_there = len(left) < len(self._queued)
        self._queued = left
        if is_there:
            self._changed()
        return is_there

    def take_steering(self) -> tuple[Prompt, ...]:
        """Take the prompts that go into the turn that is going on."""
        if self.is_held:
            return ()
        taken, self._steering = tuple(self._steering), []
        return taken

    def take_next(self) -> Prompt | None:
        """The prompt of the next turn: those that were to steer a turn that has ended come first."""
        waiting = self._steering or self._queued
        if self.is_held or not waiting:
            return None
        return waiting.pop(0)

    def take_all(self) -> tuple[Prompt, ...]:
        """Take all prompts that wait, in the order in which they would have gone."""
        taken = (*self._steering, *self._queued)
        self._steering, self._queued, self.is_held = [], [], False
        if taken:
            self._changed()
        return taken

    def set_aside(self) -> tuple[Prompt, ...]:
        """
        Return the prompts that wait. They stay in the log, and nothing sends them while this session is open.

        This is for a frontend that cannot ask whether to send them: they must neither hold up its own prompt nor go before it.
        """
        self._aside, self._steering, self._queued = [*self._steering, *self._queued], [], []
        self.is_held = False
        return tuple(self._aside)

    def drop_aside(self) -> None:
        self._aside = []

    def shown(self) -> WaitingChanged:
        return WaitingChanged(tuple(self._steering), tuple(self._queued), self.is_held)

    def news(self) -> WaitingChanged | None:
        """The prompts to show; None: leave what is shown, for a prompt that goes at once never is."""
        goes_at_once = not (self.is_in_turn or self.is_held)
        is_one = len(self._steering) + len(self._queued) == 1
        return None if goes_at_once and is_one else self.shown()

    def state(self) -> dict[str, Any]:
        """Plain data, for `restore`."""
        queued = [*self._aside, *self._queued]
        return msgspec.to_builtins({"steering": self._steering, "queued": queued})

    def restore(self, state: object, gone: Collection[str]) -> None:
        """Take up what waited when the session ended, except the prompts whose turn has begun; it is held."""
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
