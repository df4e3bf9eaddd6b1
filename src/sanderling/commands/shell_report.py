"""The reports of a shell, from its begin and its end: where it is, and what it exports. A command can write there as well."""

import os
import re
from itertools import islice

from sanderling.paths import normal_path

MAX_REPORT_BYTES = 8 << 20  # bash makes four bytes of one that cannot be printed
MAX_VALUE_BYTES = 32 * 1024
MAX_NAMES = 4096
MAX_PATH_CHARS = 4096

# A line of `export -p`, of a shell in POSIX mode too. Bash quotes with $'' what cannot be printed, and in double quotes escapes
# nothing but these themselves, `$`, the backquote and the backslash.
_EXPORTED = (
    rb"(?ms)^(?:declare -\w+|export) (?P<name>\w+)="
    rb"""(?:"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)"|\$'(?P<ansi>[^'\\]*+(?:\\.[^'\\]*+)*+)')$"""
)
_END = b".end=\0"


def reports_in(data: bytes) -> list[dict[str, str]]:
    """The first and the last report in `data` that are whole, and such as a shell makes; it makes no more."""
    whole, end, _ = data.rpartition(_END)
    first, is_more, more = whole.partition(_END)
    parts = (first, more.rpartition(_END)[2]) if is_more else (first,) if end else ()
    return [report for part in parts if (report := _report(part))]


def _report(part: bytes) -> dict[str, str] | None:
    """One report; None if no shell has made it."""
    entries = (entry.partition(b"=") for entry in part.split(b"\0", MAX_NAMES))
    report = {os.fsdecode(name): value for name, _, value in entries}
    report |= _exported(report.pop(".exported", b""))
    if len(report) > MAX_NAMES or not report.keys() >= {".cwd", ".oldpwd", ".lost"}:
        return None
    told = {name: os.fsdecode(value) for name, value in report.items()}
    cwd = told[".cwd"].removesuffix("\n")
    told[".cwd"] = valid_cwd(cwd)
    return None if cwd and not told[".cwd"] else told


def valid_cwd(path: str) -> str:
    """
    The path, its `..` taken off, if a shell can say that it is there, else "".

    It must be the same directory for who judges the next command and for bash's `cd`. A relative one is not, nor one with a `..`
    behind a link: bash takes that off the text.
    """
    is_valid = path.startswith("/") and len(path) <= MAX_PATH_CHARS
    return normal_path(path) if is_valid else ""


def get_ready() -> None:
    """Compile what reads a report, ahead of the first."""
    _exported(rb'export A="\\"')


def _exported(listing: bytes) -> dict[str, bytes]:
    """The variables in the output of bash's `export -p`, but for arrays, which no command is given."""
    lines = islice(re.finditer(_EXPORTED, listing), MAX_NAMES + 1)
    return {line["name"].decode(): _plain(line) for line in lines}


def _plain(line: re.Match[bytes]) -> bytes:
    """The value of a variable, without what bash escapes in it; one that no command can be given is only compared."""
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
    """The bytes that a part of a string in $'' stands for; bash escapes one as Python does, but for ESC."""
    known = part.replace(rb"\E", rb"\033").decode("unicode_escape", "replace")
    return known.encode("latin-1", "replace")
