"""SBPL, the Scheme dialect of Seatbelt's profiles, as text."""

from collections.abc import Iterable, Sequence
from typing import Literal

from sanderling.errors import SandboxError

_SPECIAL = frozenset(r".^$*+?()[]{}|\\")


def quoted(text: str) -> str:
    """
    Return `text` as a string of SBPL, in which only quotes and backslashes have a meaning.

    Raises:
        SandboxError: the text cannot be written there: it has a NUL, or bytes that are not UTF-8. No file of APFS has such a name.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise SandboxError(f"{text!r} cannot be named in a sandbox profile: it is not UTF-8.")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(text: str) -> str:
    """Return a regular expression that matches `text`."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def literal(path: str) -> str:
    return f"(literal {quoted(path)})"


def subpath(path: str) -> str:
    """Return a filter for `path` and everything below."""
    return f"(subpath {quoted(path)})"


def regex(pattern: str) -> str:
    return f"(regex {quoted(pattern)})"


def but(included: str, excluded: Sequence[str]) -> str:
    """Return a filter for what `included` matches and none of `excluded`."""
    exceptions = "".join(f"\n    (require-not {each})" for each in dict.fromkeys(excluded))
    return f"(require-all {included}{exceptions})" if exceptions else included


def rule(effect: Literal["allow", "deny"], operations: str, filters: Iterable[str] = ()) -> str:
    """
    Return a rule for these operations, separated by spaces. It applies where one of the `filters` matches.

    Raises:
        ValueError: there is no filter, which would make the rule apply everywhere. `everywhere` is for that.
    """
    lines = dict.fromkeys(filters)
    if not lines:
        raise ValueError(f"({effect} {operations}) has no filter")
    return f"({effect} {operations}\n" + "\n".join(f"  {each}" for each in lines) + ")"


def everywhere(effect: Literal["allow", "deny"], operations: str) -> str:
    return f"({effect} {operations})"
