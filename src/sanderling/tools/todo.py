"""The model's list of what is to be done: written by it as a whole, seen by the person, called to its mind again in time."""

from typing import TYPE_CHECKING, Annotated

import msgspec

from sanderling.protocol.events import TodoItem
from sanderling.tools.base import Context, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from sanderling.tools.todo_list import MAX_ITEMS

if TYPE_CHECKING:  # it holds the list
    from sanderling.tools.workspace import Workspace


class TodoInput(msgspec.Struct, forbid_unknown_fields=True):
    items: Annotated[
        tuple[TodoItem, ...],
        msgspec.Meta(description=f"All items, ≤ {MAX_ITEMS}, one line of ≤ 200 characters each"),
    ]


def _effect(_args: TodoInput, _workspace: "Workspace") -> Effect:
    return Effect("todo", "none")


def _title(args: TodoInput, _: "Workspace") -> str:
    current = (item.content for item in args.items if item.status == "in_progress")
    return next(current, "")


@tool(TodoInput, effect=_effect, title=_title)
async def todo(args: TodoInput, context: Context) -> Outcome:
    """
    Keep the list of what is to be done, which the person sees: `items` replaces all of it.

    Use it for work of three steps or more; not for less, and not for questions. While you work exactly one item is in_progress.
    Mark an item completed as soon as it is done and checked, not before; add what turns up. An empty list clears it.
    """
    todo_list = context.workspace.todo
    todo_list.replace(args.items)
    detail = "\n".join(todo_list.lines())
    return Outcome(
        content=f"The list is kept: {todo_list.summary}.", summary=todo_list.summary, detail=detail
    )
