"""The model's todo list."""

from collections.abc import Callable, Sequence

import msgspec

from sanderling.errors import ToolError
from sanderling.protocol.events import TodoItem
from sanderling.text import printable

MAX_ITEMS = 50
MAX_CONTENT_CHARS = 200
STALE_AFTER = 10  # messages
MARKS = {"pending": "☐", "in_progress": "◐", "completed": "☑"}


class TodoList:
    """
    The current list, initially from an earlier `state`. `changed` is called after each change.

    `reminder` tracks what the model has seen of the list, and how long ago.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None, state: object = ()) -> None:
        self._changed = changed
        self._messages_since = 0
        self.restore(state)

    @property
    def is_open(self) -> bool:
        return any(item.status != "completed" for item in self.items)

    @property
    def summary(self) -> str:
        done = sum(item.status == "completed" for item in self.items)
        return f"{done} of {len(self.items)} done" if self.items else "empty"

    def lines(self) -> list[str]:
        return [f"{MARKS[item.status]} {item.content}" for item in self.items]

    def replace(self, items: Sequence[TodoItem]) -> None:
        """
        Set the list that the model wrote.

        Raises:
            ToolError: the list is invalid; the old one stays.
        """
        items, before = _checked(items), self.items
        self.items, self._is_known, self._messages_since = items, True, 0
        if items != before:
            self._changed()

    def show(self, items: Sequence[TodoItem]) -> None:
        """Show an external agent's plan, which follows other rules, cut to the limits of the list."""
        lines = (" ".join(printable(item.content).split()) for item in items[:MAX_ITEMS])
        shown = (
            TodoItem(line[:MAX_CONTENT_CHARS], item.status)
            for line, item in zip(lines, items, strict=False)
            if line
        )
        self.items, before = tuple(shown), self.items
        self._is_known = True
        if self.items != before:
            self._changed()

    def state(self) -> list[dict[str, str]]:
        return [{"content": item.content, "status": item.status} for item in self.items]

    def restore(self, state: object) -> None:
        self.items = _restored(state)
        self._is_known = not self.items  # the model may not know a resumed list

    def reminder(self, *, is_prompt: bool = False) -> str:
        """
        Return the reminder for the next message to the model; mostly empty.

        Call it once for each user message, prompts (`is_prompt`) and tool results alike, before the message enters the history. The
        reminder stays in that message: removing it later would invalidate the API's cache of everything after it.
        """
        self._messages_since += 1
        if not self.is_open:
            return ""
        is_stale = self._messages_since >= STALE_AFTER
        if self._is_known and not is_stale and not is_prompt:
            return ""
        self._is_known, self._messages_since = True, 0
        end = "Keep it up to date with `todo`." if is_stale else "Update it with `todo` as you go."
        return "\n".join(["Your current todo list:", *self.lines(), end])


def _restored(state: object) -> tuple[TodoItem, ...]:
    """Return the items of a saved state; an old or damaged one counts as empty."""
    try:
        return _checked(msgspec.convert(state, tuple[TodoItem, ...]))
    except (msgspec.ValidationError, ToolError):
        return ()


def _checked(items: Sequence[TodoItem]) -> tuple[TodoItem, ...]:
    if len(items) > MAX_ITEMS:
        raise ToolError(f"The list has {len(items)} items; the limit is {MAX_ITEMS}: merge some.")
    checked = tuple(_checked_item(item, number) for number, item in enumerate(items, 1))
    statuses = [item.status for item in checked]
    in_progress = statuses.count("in_progress")
    if in_progress > 1:
        raise ToolError(
            f"{in_progress} items are in_progress: mark only your current one, the others pending."
        )
    if not in_progress and "pending" in statuses and "completed" in statuses:
        raise ToolError("No item is in_progress: mark the next one.")
    return checked


def _checked_item(item: TodoItem, number: int) -> TodoItem:
    content = printable(item.content).strip()
    if not content:
        raise ToolError(f"Item {number} is empty: describe the task.")
    if not content.isprintable():
        raise ToolError(f"Item {number} is not one line of plain text.")
    if len(content) > MAX_CONTENT_CHARS:
        raise ToolError(
            f"Item {number} has {len(content):,} characters; the limit is {MAX_CONTENT_CHARS}: shorten or split it."
        )
    return TodoItem(content, item.status)
