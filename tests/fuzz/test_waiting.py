"""Queue and steer as a state machine: whatever is done in whatever order, each prompt goes once, comes back once, or still waits."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sanderling.conversation.waiting import Waiting
from sanderling.protocol.events import WaitingChanged
from sanderling.protocol.messages import Prompt, Selection
from tests.conftest import examples

TEXTS = st.text(min_size=1).filter(str.strip)
SELECTIONS = st.just(()) | st.just((Selection("a.py", 1, 2, "x = 1\n"),))


class WaitingMachine(RuleBasedStateMachine):
    """Beside the real one stands the obvious one: two lists. What `changed` has told is what the disk and the screen have."""

    @initialize()
    def begin(self) -> None:
        self.steering: list[Prompt] = []
        self.queued: list[Prompt] = []
        self.is_held = False
        self.gone: list[Prompt] = []
        self.count = 0
        self._open()

    def _open(self) -> None:
        self.waiting = Waiting(self._keep)
        self._keep()

    def _keep(self) -> None:
        self.shown = self.waiting.shown()
        self.saved = msgspec.json.encode(self.waiting.state())

    def _prompt(self, text: str, selections: tuple[Selection, ...]) -> Prompt:
        self.count += 1
        return Prompt(f"p{self.count}", text, selections)

    @rule(text=TEXTS, selections=SELECTIONS)
    def queue(self, text: str, selections: tuple[Selection, ...]) -> None:
        prompt = self._prompt(text, selections)
        self.waiting.queue(prompt)
        self.queued.append(prompt)
        self.is_held = False

    @rule(text=TEXTS, selections=SELECTIONS)
    def steer(self, text: str, selections: tuple[Selection, ...]) -> None:
        prompt = self._prompt(text, selections)
        self.waiting.steer(prompt)
        self.steering.append(prompt)
        self.is_held = False

    @rule(number=st.integers(0, 20), text=TEXTS | st.sampled_from(["", " \n"]))
    def edit(self, number: int, text: str) -> None:
        self.waiting.edit(f"p{number}", text)
        self.steering = _edited(self.steering, f"p{number}", text)
        self.queued = _edited(self.queued, f"p{number}", text)
        self.is_held = self.is_held and bool(self.steering or self.queued)

    @rule()
    def hold(self) -> None:
        self.waiting.hold()
        self.is_held = bool(self.steering or self.queued)

    @rule()
    def release(self) -> None:
        self.waiting.release()
        self.is_held = False

    @precondition(lambda self: not self.is_held)  # else no turn is going on
    @rule()
    def reach_a_tool_boundary(self) -> None:
        taken = self.waiting.take_steering()
        self._keep()
        assert taken == tuple(self.steering)
        self.gone += taken
        self.steering = []

    @rule()
    def end_a_turn(self) -> None:
        expected = next(iter([] if self.is_held else [*self.steering, *self.queued]), None)
        assert self.waiting.take_next() == expected
        self._keep()
        if expected:
            (self.steering or self.queued).remove(expected)
            self.gone.append(expected)

    @rule()
    def give_back(self) -> None:
        assert self.waiting.take_all() == (*self.steering, *self.queued)
        self.steering, self.queued, self.is_held = [], [], False

    @rule(is_told=st.booleans())
    def be_resumed(self, is_told: bool) -> None:
        """`is_told`: the log says which prompts have gone, as when the host died between the two."""
        gone = {prompt.id for prompt in self.gone} if is_told else set[str]()
        self._open_from(self.saved, gone)

    @rule()
    def be_resumed_with_what_was_there_before_the_last_went(self) -> None:
        """The host died when the log had the prompt's turn already, and not yet that it waits no longer."""
        before = self.saved
        if (prompt := self.waiting.take_next()) is None:
            return
        (self.steering or self.queued).remove(prompt)
        self.gone.append(prompt)
        self._open_from(before, {each.id for each in self.gone})

    def _open_from(self, saved: bytes, gone: set[str]) -> None:
        self._open()
        self.waiting.restore(msgspec.json.decode(saved), gone)
        self._keep()
        self.is_held = bool(self.steering or self.queued)

    @invariant()
    def it_is_what_was_told_last(self) -> None:
        expected = WaitingChanged(tuple(self.steering), tuple(self.queued), self.is_held)
        assert self.waiting.shown() == self.shown == expected
        assert bool(self.waiting) is bool(self.steering or self.queued)


def _edited(prompts: list[Prompt], prompt_id: str, text: str) -> list[Prompt]:
    def change(prompt: Prompt) -> list[Prompt]:
        if prompt.id != prompt_id:
            return [prompt]
        return [Prompt(prompt.id, text, prompt.selections)] if text.strip() else []

    return [changed for prompt in prompts for changed in change(prompt)]


WaitingMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None
)
TestWaiting = WaitingMachine.TestCase
