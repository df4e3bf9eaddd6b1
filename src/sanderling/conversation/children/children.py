"""The child sessions of one session: started by its model, with a part of its budget, and stopped with its turn."""

from math import inf

import anyio
from anyio import to_thread

from sanderling.conversation.budget import Amount, Budget, BudgetError, dollars
from sanderling.conversation.children.child import Child, ChildStart, OpenChild, title_of
from sanderling.conversation.compaction import estimated_tokens
from sanderling.conversation.services import SessionServices
from sanderling.errors import ConfigError, ToolError
from sanderling.project.roles import Role, is_read_only
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import Notice
from sanderling.protocol.messages import Usage
from sanderling.session.records import new_session_id
from sanderling.text import counted, duration, shortened, visible_line, visible_prose
from sanderling.tools.children import Task
from sanderling.tools.outcome import Outcome

NO_TASK = "`task` is empty: say what the child session must do, and what it reports."
IN_WORKTREE = "The child session {name} has changed files in the worktree {worktree}. `:AgentWorktrees` in Neovim, or `sanderling worktrees`, shows and applies them."
MAX_SHOWN_CHARS = 1_000
MAX_MODEL_CHARS = 100


class Children:
    """The `Children` of the session `services`. `open_child` opens the conversation of one."""

    def __init__(self, services: SessionServices, open_child: OpenChild) -> None:
        self._services = services
        self._open_child = open_child
        self._slots = anyio.CapacityLimiter(services.settings.delegate_running)
        self._started = len(services.session.children)
        self._running: dict[str, Child] = {}
        self._interrupted: dict[str, Outcome] = {}

    # --- before the question -------------------------------------------------------------------------------------------

    def check(self, task: Task) -> None:
        if not task.task.strip():
            raise ToolError(NO_TASK)
        self._role(task)

    def _role(self, task: Task) -> Role:
        try:
            return self._services.project.roles.of_child(task.role)
        except ConfigError as error:
            raise ToolError(str(error)) from error

    def estimate(self, task: Task) -> str:
        """Return what the user is asked about: the first child of a session, whose answer holds for the later ones."""
        role, settings = self._role(task), self._services.settings
        tokens = self._services.calls.budget.for_child(_wanted(task)).tokens
        access = (
            "only reads, kept so by the kernel" if is_read_only(role) else "as you allow it here"
        )
        model = task.model or role.model or self._services.provider.model
        worst = self._worst_cost(model, tokens)
        limits = f"{counted(settings.delegate_calls, 'model call')}, {duration(settings.delegate_seconds)}"
        in_all = settings.delegate_tree_tokens
        then_asked = f"{in_all:,} tokens, then you are asked; " if in_all else ""
        # The task is last: it is the model's, and its lines could look like any of these.
        lines = [
            f"Role: {role.name} ({access})",
            f"Model: {visible_line(shortened(model, MAX_MODEL_CHARS))}",
            *(
                ("Works in a worktree of its own, from the last commit",)
                if task.isolation == "worktree"
                else ()
            ),
            f"Each child: at most {tokens:,.0f} tokens{worst}",
            f"  and {limits}",
            f"All children: {then_asked}{settings.delegate_running} run at the same time",
            *([self._reading_cost(model)] if task.fork else ()),
            "Asked once: your answer holds for all children of this session, in any role.",
            "",
            "Task:",
            visible_prose(shortened(task.task.strip(), MAX_SHOWN_CHARS)),
        ]
        return "\n".join(lines)

    def _worst_cost(self, model: str, tokens: float) -> str:
        cost = self._services.calls.prices.cost_usd(model, Usage(input_tokens=int(tokens)))
        return f" (about {dollars(cost)} as new input)" if cost is not None else ""

    def _reading_cost(self, model: str) -> str:
        tokens = estimated_tokens(self._services.session.history)
        return self._services.calls.reading_cost(model, tokens)

    # --- running -------------------------------------------------------------------------------------------------------

    async def run(self, task: Task, tool_use_id: str) -> Outcome:
        role, budget = self._role(task), await self._reserve(task)
        self._started += 1
        name = f"{role.name} {self._started}"
        start = ChildStart(
            new_session_id(),
            role,
            f"{name}: {title_of(task)}",
            task.model,
            tool_use_id if task.fork else "",
            task.isolation == "worktree",
        )
        child = Child(
            self._services,
            start,
            task,
            tool_use_id,
            name=name,
            budget=budget,
            open_child=self._open_child,
        )
        self._running[child.id] = child
        try:
            await child.run(self._slots)
        except anyio.get_cancelled_exc_class():
            self._interrupted[tool_use_id] = child.report().outcome()
            raise
        finally:
            del self._running[child.id]
        report = await to_thread.run_sync(child.report)
        if report.worktree and report.changed:
            words = IN_WORKTREE.format(name=name, worktree=report.worktree)
            self._services.emit(Notice("info", words))
        return report.outcome()

    async def _reserve(self, task: Task) -> Budget:
        """
        Reserve the budget for a task, before its first request.

        Raises:
            ToolError: too little is left.
        """
        try:
            return await self._services.calls.reserve_child(_wanted(task), is_fork=task.fork)
        except BudgetError as error:
            raise ToolError(str(error)) from error

    def take_interrupted(self, tool_use_id: str) -> Outcome | None:
        return self._interrupted.pop(tool_use_id, None)

    def stop(self, child_id: str) -> None:
        if child := self._running.get(child_id):
            child.stop()

    def answer(self, answer: AnswerApproval) -> None:
        if child := self._running.get(answer.id.partition("/")[0]):
            child.answer(answer)


def _wanted(task: Task) -> Amount:
    return Amount(tokens=task.budget or inf)
