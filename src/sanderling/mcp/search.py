"""
Deferred tools: beyond a limit, tool definitions are not sent until the model searches for them.

A deferred tool can be called by its name. A tool that was found is sent from the next request on, behind all others, so that the API's
cache of everything before it stays valid.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import msgspec

from sanderling.text import counted
from sanderling.tools.base import Context, OutsideTool, Tool, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome

MAX_SENT = 20
SHARE_OF_WINDOW = 0.1
USUAL_WINDOW_TOKENS = 200_000
BYTES_PER_TOKEN = 4  # about
MAX_FOUND = 8
MAX_SHOWN_CHARS = 200
_IN_NAME, _IN_DESCRIPTION = 3, 1  # the weight of a word


class SearchInput(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[
        str, msgspec.Meta(min_length=1, description="Words for the task: create issue")
    ]


class ToolIndex:
    """The tools of all servers of a session. `window_tokens` returns the model's context window; 0 if unknown."""

    def __init__(self, window_tokens: Callable[[], int] = lambda: 0) -> None:
        self._window_tokens = window_tokens
        self._sent: dict[str, Tool] = {}
        self._waiting: dict[str, OutsideTool] = {}
        self._search = _search_of(self)

    def __contains__(self, name: str) -> bool:
        return name in self._sent or name in self._waiting

    def put(self, tools: Iterable[OutsideTool]) -> None:
        """Add new tools. All of them are sent, or all are deferred."""
        new = {tool.name: tool for tool in tools}
        if not new:
            return
        if self._waiting or self._is_too_much([*self._sent.values(), *new.values()]):
            self._waiting |= new
            self._sent.setdefault(self._search.name, self._search)
        else:
            self._sent |= new

    def tools(self) -> tuple[Tool, ...]:
        """Return all tools: those sent, in the order in which they were first sent, then the deferred ones."""
        waiting = (
            msgspec.structs.replace(each, is_waiting=True) for each in self._waiting.values()
        )
        return (*self._sent.values(), *waiting)

    def find(self, query: str) -> list[OutsideTool]:
        """Return the tools that match `query`, the best first; from now on they are sent."""
        words = _words(query)
        known = [each for each in self._sent.values() if isinstance(each, OutsideTool)]
        ranked = sorted(
            ((_score(each, words), each) for each in (*self._waiting.values(), *known)),
            key=lambda found: -found[0],
        )
        found = [each for score, each in ranked if score][:MAX_FOUND]
        for each in found:
            if self._waiting.pop(each.name, None):
                self._sent[each.name] = each
        return found

    def count_waiting(self) -> int:
        return len(self._waiting)

    def _is_too_much(self, tools: Sequence[Tool]) -> bool:
        room = (self._window_tokens() or USUAL_WINDOW_TOKENS) * SHARE_OF_WINDOW * BYTES_PER_TOKEN
        size = sum(
            len(each.name) + len(each.description) + len(msgspec.json.encode(each.schema))
            for each in tools
        )
        return len(tools) > MAX_SENT or size > room


def _search_of(shelf: ToolIndex) -> Tool:
    @tool(SearchInput, effect=_effect, title=lambda args, _: args.query)
    async def mcp_search(args: SearchInput, _: Context) -> Outcome:
        """
        Find more tools of the connected MCP servers (mcp__server__tool); there are too many to list.

        Search by words for the task before you say that it cannot be done. Found tools can be used from then on.
        """
        found = shelf.find(args.query)
        if not found:
            rest = f"There are {shelf.count_waiting()} more: try other words."
            return Outcome(content=f"No tool matches. {rest}", summary="0 tools")
        lines = [
            f"{each.name}: {' '.join(each.description.split())[:MAX_SHOWN_CHARS]}" for each in found
        ]
        text = "\n".join(lines)
        return Outcome(
            content=f"These can be used now:\n{text}",
            summary=counted(len(found), "tool"),
            detail=text,
        )

    return mcp_search


def _effect(_args: SearchInput, _workspace: object) -> Effect:
    return Effect("mcp_search", "none")


def _words(text: str) -> set[str]:
    """Split `text` into words; a name too: `createIssue` has two."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return {word for word in re.split(r"[^\w]+|_", spaced.lower()) if word}


def _score(each: OutsideTool, words: set[str]) -> int:
    name, description = _words(each.name), _words(each.description)
    return sum(
        _IN_NAME * any(_is_like(word, other) for other in name)
        + _IN_DESCRIPTION * any(_is_like(word, other) for other in description)
        for word in words
    )


def _is_like(word: str, other: str) -> bool:
    """Match words by their beginnings: issue, issues."""
    return other.startswith(word) or (len(other) > 3 and word.startswith(other))  # noqa: PLR2004
