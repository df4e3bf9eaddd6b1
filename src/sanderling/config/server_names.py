"""The names of tool servers, as parts of their tools' names and of directories."""

import re
from hashlib import sha256

MAX_SERVER_CHARS = 24
_HASH_CHARS = 6


def fitted_server(name: str) -> str:
    """Return a server's name as a part of its tools' names; empty if no character of it can be used."""
    return fitted(name, MAX_SERVER_CHARS)


def fitted(name: str, max_chars: int) -> str:
    """
    Return the name in letters, digits, `-` and single `_`, so that only `__` separates its parts.

    A name that is too long keeps its beginning, and gets a hash of the whole.
    """
    kept = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "-", name)).strip("_-")
    if len(kept) <= max_chars:
        return kept
    return f"{kept[: max_chars - _HASH_CHARS - 1].rstrip('_-')}-{mark_of(name)}"


def mark_of(name: str) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]
