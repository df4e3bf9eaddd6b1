"""Names of servers and tools for the model: `mcp__server__tool`, in the characters and the length that every API accepts."""

import hashlib
import re

from sanderling.tools.effects import MAX_NAME_CHARS, OUTSIDE

PREFIX = "mcp"
MAX_SERVER_CHARS = 24
MAX_NUMBER = 99
_HASH_CHARS = 6


def fitted_server(name: str) -> str:
    """Return a server's name as a part of its tools' names; empty if no character of it can be used."""
    return _fitted(name, MAX_SERVER_CHARS)


def names_begin(server: str) -> str:
    return OUTSIDE.join((PREFIX, fitted_server(server), ""))


def tool_name(server: str, tool: str, *, number: int = 1) -> str:
    """
    Return the name for the tool `tool` of `server`; `number` distinguishes tools that would have the same name.

    It is appended to the name, which leaves room for it: a rule that denies by name applies to all of them (`permissions/rules.py`).
    """
    start = names_begin(server)
    room = MAX_NAME_CHARS - len(start) - len(f"-{MAX_NUMBER}")
    fitted = _fitted(tool, room) or f"tool-{_mark(tool)}"
    return start + fitted + (f"-{number}" if number > 1 else "")


def _fitted(name: str, max_chars: int) -> str:
    """
    Return the name in letters, digits, `-` and single `_`, so that only `OUTSIDE` separates its parts.

    A name that is too long keeps its beginning, and gets a hash of the whole.
    """
    fitted = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "-", name)).strip("_-")
    if len(fitted) <= max_chars:
        return fitted
    return f"{fitted[: max_chars - _HASH_CHARS - 1].rstrip('_-')}-{_mark(name)}"


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
