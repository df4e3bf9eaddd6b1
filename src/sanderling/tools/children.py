"""The child sessions of a session as tools know them: the task, and the interface that runs it."""

from typing import Annotated, Literal, Protocol

import msgspec

from sanderling.protocol.actions import AnswerApproval
from sanderling.tools.outcome import Outcome


class Task(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    # Not a docstring, which would be sent to the model: a task for a child session. `budget` is in tokens; 0 leaves it to the settings.
    task: str
    role: str
    files: tuple[str, ...] = ()
    isolation: Literal["none", "worktree"] | None = None
    model: str = ""
    budget: Annotated[int, msgspec.Meta(ge=0)] = 0
    fork: bool = False

    @property
    def first_line(self) -> str:
        return next(iter(self.task.strip().splitlines()), "")


class Children(Protocol):
    def check(self, task: Task) -> None:
        """
        Check what can be checked before the user is asked.

        Raises:
            ToolError: the task cannot be given to a child.
        """
        ...

    def estimate(self, task: Task) -> str:
        """Return in a few lines what the user is asked about: who works on what, and what it may cost."""
        ...

    async def run(self, task: Task, tool_use_id: str) -> Outcome:
        """
        Run the task, and return the child's report; if this is cancelled, `take_interrupted` returns it.

        Raises:
            ToolError: the child cannot start.
        """
        ...

    def take_interrupted(self, tool_use_id: str) -> Outcome | None: ...

    def stop(self, child_id: str) -> None: ...

    def answer(self, answer: AnswerApproval) -> None:
        """Pass on an answer to a child's question."""
        ...
