"""
Tools that come after a session's first request, such as those of tool servers: declared where they came, not in `tools`.

`tools` is the beginning of every request, so a change there invalidates the API's whole cache. Instead a system message after the last one
adds the tool by its definition (https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages). It stays at its
place in later requests.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sanderling.protocol.messages import Message
from sanderling.providers import ToolSpec

BETAS = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")


class Addition(NamedTuple):
    """Tools that were added after so many messages."""

    after: int
    tools: tuple[ToolSpec, ...]

    def encoded(self) -> msgspec.Raw:
        blocks = [
            {
                "type": "tool_addition",
                "tool": {"type": "tool_definition", "definition": tool},
            }
            for tool in self.tools
        ]
        return msgspec.Raw(msgspec.json.encode({"role": "system", "content": blocks}))


class LateTools:
    """Remembers with which request each tool came. A conversation that begins otherwise, as after a summary, starts anew."""

    def __init__(self) -> None:
        self._first: Message | None = None
        self._known: tuple[ToolSpec, ...] = ()
        self._base = 0
        self._added: list[Addition] = []

    @property
    def has_any(self) -> bool:
        return bool(self._added)

    def split(
        self, tools: tuple[ToolSpec, ...], history: Sequence[Message]
    ) -> tuple[tuple[ToolSpec, ...], Sequence[Addition]]:
        """Return the tools of the first request, and the additions since."""
        known = len(self._known)
        is_continued = (
            bool(history)
            and history[0] is self._first
            and tools[:known] == self._known
            and all(each.after <= len(history) for each in self._added)
        )
        if not is_continued:
            self._first = history[0] if history else None
            self._base, self._added = len(tools), []
        elif len(tools) > known:
            self._added.append(Addition(len(history), tools[known:]))
        self._known = tools
        return tools[: self._base], self._added
