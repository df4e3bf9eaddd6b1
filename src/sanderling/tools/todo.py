"""The todo tool: the model writes its list as a whole, the user sees it, and the model is reminded of it."""

from typing import Annotated

import msgspec

from sanderling.protocol.events import TodoItem
from sanderling.tools.base import Context, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from sanderling.tools.todo_list import MAX_ITEMS


class TodoInput(msgspec.Struct, forbid_unknown_fields=True):
    items: Annotated[
        tuple[TodoItem, ...],
        msgspec.Meta(description=f"All items, ≤ {MAX_ITEMS}, one line of ≤ 200 characters each"),
    ]


def _title(args: TodoInput, _: object) -> str:
    current = (item.content for item in args.items if item.status == "in_progress")
    return next(current, "")


@tool(TodoInput, effect=lambda _args, _workspace: Effect("todo", "none"), title=_title)
async def todo(args: TodoInput, context: Context) -> Outcome:
    """
    Keep a todo list, shown to the user: `items` replaces all of it.

    Use it for work of three or more steps. While you work, one item is in_progress. Mark an item completed once it is done and checked,
    not before; add work that turns up. An empty list clears it.
    """
    todo_list = context.workspace.todo
    todo_list.replace(args.items)
    detail = "\n".join(todo_list.lines())
    return Outcome(content=f"Saved: {todo_list.summary}.", summary=todo_list.summary, detail=detail)
