"""The hooks of a session: run all that an event concerns at the same time, and make one verdict of their answers."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import anyio
import msgspec

from sanderling.hooks.declared import Hook, HookEvent, project_hooks
from sanderling.hooks.messages import (
    MAX_MESSAGE_CHARS,
    MAX_TEXT_CHARS,
    Answer,
    Decision,
    Surroundings,
)
from sanderling.hooks.running import run_hook
from sanderling.project.trust.trust import Trust
from sanderling.protocol.events import Event, Notice
from sanderling.sandbox.execution_environment import ExecutionEnvironment
from sanderling.text import printable, shortened, visible_prose

_STRICTNESS: tuple[Decision, ...] = ("deny", "ask", "allow")


class Verdict(msgspec.Struct, frozen=True):
    """
    What all hooks of an event said together: the strictest decision with its reason, and all of their contexts.

    `input` replaces a tool call's input, `text` a prompt or the focus of a summary.
    """

    decision: Decision | None = None
    reason: str = ""
    context: str = ""
    input: dict[str, Any] | None = None
    text: str | None = None

    @property
    def is_denied(self) -> bool:
        return self.decision == "deny"

    def and_also(self, later: "Verdict") -> "Verdict":
        """Return what both say. Of two decisions the stricter one counts, of two replacements the later one."""
        decision, reason = strictest(
            (each.decision, each.reason) for each in (self, later) if each.decision
        )
        return Verdict(
            decision,
            reason,
            "\n".join(filter(None, (self.context, later.context))),
            self.input if later.input is None else later.input,
            self.text if later.text is None else later.text,
        )


def strictest(decided: Iterable[tuple[Decision, str]]) -> tuple[Decision | None, str]:
    """Return the first of the strictest decisions, with its reason; None without any."""
    by_strictness = sorted(decided, key=lambda each: _STRICTNESS.index(each[0]))
    return by_strictness[0] if by_strictness else (None, "")


NOTHING = Verdict()
Owner = Literal["project", "user"]


class Hooks:
    """
    The hooks of one session. The project's hooks are read again for each turn.

    `confined` is the session's sandbox, in which a project's hooks run even if the user switched it off for commands. `problem_of` says what
    is wrong with a hook's condition, and `start` starts a task in the background.
    """

    def __init__(
        self,
        own: Sequence[Hook],
        trust: Trust | None,
        confined: ExecutionEnvironment,
        surroundings: Surroundings,
        emit: Callable[[Event], None],
        *,
        problem_of: Callable[[str], str],
        start: Callable[..., None],
    ) -> None:
        self._own = own
        self._problem_of = problem_of
        self._start = start
        self._trust = trust
        self._confined = confined
        self._surroundings = surroundings
        self._emit = emit
        self._hooks = list(own)
        self._problems: list[str] = []
        self._failed = set[tuple[Hook, str]]()
        self._stop = ""
        self._late: list[str] = []
        self.read_again()

    def read_again(self) -> None:
        """Read the project's hooks, and show what is wrong with the hooks, unless that was shown before."""
        theirs, problems = project_hooks(self._trust) if self._trust else ([], [])
        self._hooks = [*self._own]
        for hook in reversed(theirs):
            if hook.condition and (problem := self._problem_of(hook.condition)):
                problems.append(f"The hook {hook.shown} is not used: {problem}.")
            else:
                self._hooks.insert(0, hook)
        problems += [each.problem for each in self._hooks if each.problem]
        for problem in problems:
            if problem not in self._problems:
                self._emit(Notice("warning", _for_reading(problem)))
        self._problems = problems

    def are_for(self, event: HookEvent, subjects: Sequence[str] = ()) -> bool:
        return bool(self._matching(event, subjects))

    def _matching(self, event: HookEvent, subjects: Sequence[str]) -> list[Hook]:
        """Return the hooks, each once, the project's before the user's."""
        hooks = dict.fromkeys(each for each in self._hooks if each.event == event)
        return [each for each in hooks if each.matches(tuple(subjects))]

    async def run(
        self,
        event: HookEvent,
        fields: dict[str, Any],
        subjects: Sequence[str] = (),
        *,
        owner: Owner | None = None,
        is_met: Callable[[str], bool] = lambda _: True,
    ) -> Verdict:
        """
        Run the hooks for the event, or only the hooks of `owner`, at the same time. `subjects` are the names that a matcher can mean.

        `is_met` returns whether a hook's condition holds.
        """
        hooks = self._matching(event, subjects)
        hooks = [each for each in hooks if not each.condition or is_met(each.condition)]
        if owner:
            hooks = [each for each in hooks if each.is_projects == (owner == "project")]
        if not hooks:
            return NOTHING
        message = self._surroundings.message(event, fields)
        answers = dict[Hook, Answer]()

        async def run_one(hook: Hook) -> None:
            project = self._surroundings.project
            answers[hook] = await run_hook(hook, message, self._confined, project)

        async with anyio.create_task_group() as tasks:
            for hook in hooks:
                if hook.is_async and event != "SessionEnd":  # after which nothing runs
                    self._start(self._run_aside, hook, message)
                else:
                    tasks.start_soon(partial(run_one, hook))
        return self._verdict([(hook, answers[hook]) for hook in hooks if hook in answers])

    async def _run_aside(self, hook: Hook, message: bytes) -> None:
        """Run a hook that nothing waits for. It decides nothing; its context is for the model's next message."""
        answer = await run_hook(hook, message, self._confined, self._surroundings.project)
        self._show(hook, answer)
        said = answer.reason if hook.wakes and answer.decision == "deny" else answer.context
        if said:
            self._late.append(_for_reading(said, MAX_TEXT_CHARS))

    def take_late(self) -> list[str]:
        """Return what hooks in the background have said to the model since the last time."""
        late, self._late = self._late, []
        return late

    def take_stop(self) -> str:
        """Return why a hook wants the turn to end, since the last time; "" if none does."""
        stop, self._stop = self._stop, ""
        return stop

    def _verdict(self, answers: Sequence[tuple[Hook, Answer]]) -> Verdict:
        decided = list[tuple[Decision, str]]()
        contexts = list[str]()
        its_input: dict[str, Any] | None = None
        for hook, answer in answers:
            self._show(hook, answer)
            is_asked = answer.decision == "ask"  # the user reads the reason below the call
            reason = _for_reading(answer.reason, MAX_MESSAGE_CHARS if is_asked else MAX_TEXT_CHARS)
            if answer.decision and not (hook.is_projects and answer.decision == "allow"):
                decided.append((answer.decision, reason))
            elif answer.is_late and hook.event == "PreToolUse":
                # It may have been there to deny the call.
                failure = _for_reading(answer.failure)
                decided.append(("ask", f"The hook {hook.shown} failed: {failure}."))
            if answer.context:
                contexts.append(answer.context)
            its_input = answer.input if answer.input is not None else its_input
            self._stop = self._stop or _for_reading(answer.stop)
        decision, reason = strictest(decided)
        return Verdict(decision, reason, "\n".join(contexts), its_input)

    def _show(self, hook: Hook, answer: Answer) -> None:
        if answer.message:
            self._emit(Notice("info", f"Hook {hook.shown}: {_for_reading(answer.message)}"))
        if answer.failure and (hook, answer.failure) not in self._failed:
            self._failed.add((hook, answer.failure))
            failure = _for_reading(answer.failure, MAX_TEXT_CHARS)
            words = f"The {hook.event} hook {hook.shown} failed: {failure}."
            self._emit(Notice("warning", words))


def _for_reading(text: str, most: int = MAX_MESSAGE_CHARS) -> str:
    """Return a hook's text for the user, who must see invisible characters: a project's hook may print a file's content."""
    return shortened(visible_prose(printable(text)), most)


def quoted(text: str) -> str:
    """Return a hook's text for a note. If it could end the note or begin another one, its lines are marked as a quotation."""
    lines = text.splitlines()  # at any character that may look like the end of a line to the model
    is_like_note = any(
        line.lstrip()[:1] in ("[", "]") or line.rstrip()[-1:] == "]" for line in lines
    )
    return "\n".join(f"> {line}" for line in lines) if is_like_note else text
