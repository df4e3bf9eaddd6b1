"""Reports of a shell at its start and end: its directory and exported variables. The command can write to the same file."""

import os
import re
from itertools import islice

from sanderling.paths import normal_path

MAX_REPORT_BYTES = 8 << 20  # bash escapes an unprintable byte as four
MAX_VALUE_BYTES = 32 * 1024
MAX_NAMES = 4096
MAX_PATH_CHARS = 4096

# A line of `export -p`, also in POSIX mode. Bash quotes unprintable values with $'', and in double quotes escapes only these themselves,
# `$`, the backquote and the backslash.
_EXPORTED = (
    rb"(?ms)^(?:declare -\w+|export) (?P<name>\w+)="
    rb"""(?:"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"|\$'(?P<ansi>[^'\\]*+(?:\\.[^'\\]*+)*+)')$"""
)
_END = b".end=\0"


def reports_in(data: bytes) -> list[dict[str, str]]:
    """Return the first and last complete, valid report in `data`; a shell writes at most two."""
    whole, end, _ = data.rpartition(_END)
    first, is_more, more = whole.partition(_END)
    parts = (first, more.rpartition(_END)[2]) if is_more else (first,) if end else ()
    return [report for part in parts if (report := _report(part))]


def _report(part: bytes) -> dict[str, str] | None:
    """Parse a report; return None if it is not from a shell."""
    entries = (entry.partition(b"=") for entry in part.split(b"\0", MAX_NAMES))
    report = {os.fsdecode(name): value for name, _, value in entries}
    report |= _exported(report.pop(".exported", b""))
    if len(report) > MAX_NAMES or not report.keys() >= {".cwd", ".oldpwd", ".lost"}:
        return None
    decoded = {name: os.fsdecode(value) for name, value in report.items()}
    cwd = decoded[".cwd"].removesuffix("\n")
    decoded[".cwd"] = valid_cwd(cwd)
    return None if cwd and not decoded[".cwd"] else decoded


def valid_cwd(path: str) -> str:
    """
    Return the normalized path if a shell may report it, else "".

    The permission check of the next command and bash's `cd` must agree on the directory. They do not for a relative path, nor for `..`
    after a link, which bash resolves textually.
    """
    is_valid = path.startswith("/") and len(path) <= MAX_PATH_CHARS
    return normal_path(path) if is_valid else ""


def get_ready() -> None:
    """Compile the report parser before the first use."""
    _exported(rb'export A="\\"')


def _exported(listing: bytes) -> dict[str, bytes]:
    """Parse the output of bash's `export -p`, without arrays, which commands do not inherit."""
    lines = islice(re.finditer(_EXPORTED, listing), MAX_NAMES + 1)
    return {line["name"].decode(): _plain(line) for line in lines}


def _plain(line: re.Match[bytes]) -> bytes:
    """Return a variable's value without bash's escapes; values too long for the environment stay escaped, as they are only compared."""
    quoted, ansi = line["double"], line["ansi"]
    escaped = quoted if ansi is None else ansi
    if len(escaped) > 4 * MAX_VALUE_BYTES:
        return escaped
    if ansi is None:
        parts = quoted.split(rb"\\")
        plain = (
            part.replace(rb"\$", b"$").replace(rb"\`", b"`").replace(rb"\"", b'"') for part in parts
        )
    else:
        plain = map(_ansi, ansi.split(rb"\\"))
    return b"\\".join(plain)


def _ansi(part: bytes) -> bytes:
    """Decode part of a $'' string; bash's escapes are Python's, except for ESC."""
    known = part.replace(rb"\E", rb"\033").decode("unicode_escape", "replace")
    return known.encode("latin-1", "replace")
