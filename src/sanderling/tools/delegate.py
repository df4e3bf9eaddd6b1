"""The delegate tool: a child session does a part of the task, and the model gets only its report."""

from sanderling.errors import ToolError
from sanderling.tools.base import Context, tool
from sanderling.tools.children import Children, Task
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.workspace import Workspace

NO_CHILDREN = "A child session cannot delegate: do the work here, or report what is left to do."


def _children(workspace: Workspace) -> Children:
    if workspace.children is None:
        raise ToolError(NO_CHILDREN)
    return workspace.children()


def _effect(args: Task, workspace: Workspace) -> Effect:
    _children(workspace).check(args)
    return Effect("delegate", "delegate")


def _title(args: Task, _: Workspace) -> str:
    return f"{args.role}: {args.first_line}"


async def _preview(args: Task, context: Context) -> Preview:
    return Preview(_children(context.workspace).estimate(args))


@tool(Task, effect=_effect, title=_title, preview=_preview)
async def delegate(args: Task, context: Context) -> Outcome:
    """
    Give a child session a task, and get its report.

    For broad searches and separate work, not for what takes a few calls. Unless you `fork`, it sees nothing of this conversation: say all it
    needs. Several in one message run in parallel. Roles: explore, review (read-only), edit, or the user's. `budget`: tokens.
    """
    return await _children(context.workspace).run(args, context.tool_use_id)
