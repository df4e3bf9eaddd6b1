"""Names of servers and tools as the model is told them: `mcp__server__tool`, in the characters and the length that every API takes."""

import hashlib
import re

from sanderling.tools.effects import MAX_NAME_CHARS, OUTSIDE

PREFIX = "mcp"
MAX_SERVER_CHARS = 24
MAX_NUMBER = 99
_HASH_CHARS = 6


def fitted_server(name: str) -> str:
    """The name of a server as a part of its tools' names; empty if nothing of it can stand there."""
    return _fitted(name, MAX_SERVER_CHARS)


def names_begin(server: str) -> str:
    """The beginning of the names of a server's tools."""
    return OUTSIDE.join((PREFIX, fitted_server(server), ""))


def tool_name(server: str, tool: str, *, number: int = 1) -> str:
    """
    The name for the tool `tool` of `server`; `number` tells those apart that would be called the same.

    It only follows the name, for which there is room: a rule that denies by the name holds for all of them (`permissions/rules.py`).
    """
    start = names_begin(server)
    room = MAX_NAME_CHARS - len(start) - len(f"-{MAX_NUMBER}")
    fitted = _fitted(tool, room) or f"tool-{_mark(tool)}"
    return start + fitted + (f"-{number}" if number > 1 else "")


def _fitted(name: str, max_chars: int) -> str:
    """
    The name in letters, digits, `-` and single `_` between them, so that only `OUTSIDE` divides names into parts.

    One that is too long keeps its beginning, and gets a mark of all of it.
    """
    fitted = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "-", name)).strip("_-")
    if len(fitted) <= max_chars:
        return fitted
    return f"{fitted[: max_chars - _HASH_CHARS - 1].rstrip('_-')}-{_mark(name)}"


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
