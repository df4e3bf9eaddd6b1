"""A tool call as an agent describes it, and what can be made out of that: a command, paths."""

import os
import shlex
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from sanderling.hosts import authority_of, canonical_host

_SHELLS = frozenset(("bash", "sh", "zsh", "dash", "fish"))
_PATH_KEYS = (
    *("path", "file_path", "filePath", "filepath", "abs_path", "absolute_path", "file", "filename"),
    *("notebook_path", "target_file", "source", "destination", "old_path", "new_path"),
)
_CWD_KEYS = ("cwd", "workdir", "working_directory", "workingDirectory", "directory", "dir_path")


class Diff(NamedTuple):
    """A change of a file that the agent shows: the text `old` (None: there is none) becomes `new`; either may be a part of the file."""

    path: str
    old: str | None
    new: str


class ToolCall(NamedTuple):
    """
    A tool call that an agent asks about, as far as it has described it.

    `kind` is one of the protocol's ("execute", "edit", …), `raw_input` what it would give its tool, `paths` are the files that it says
    it is about.
    """

    kind: str = "other"
    raw_input: Any = None
    diffs: tuple[Diff, ...] = ()
    paths: tuple[str, ...] = ()


def command_of(call: ToolCall) -> str:
    """The line for a shell that the call would run; "" if it does not say."""
    found = _first(call, ("command", "cmd"))
    if isinstance(found, str):
        more = _first(call, ("args", "arguments"))
        words = _words(more)
        return f"{found} {shlex.join(words)}" if words else found.strip()
    words = _words(found)
    if len(words) == 3 and os.path.basename(words[0]) in _SHELLS and words[1] in ("-c", "-lc"):  # noqa: PLR2004
        return words[2].strip()
    return shlex.join(words)


def cwd_of(call: ToolCall, project: str) -> str:
    """The directory in which it would run."""
    found = _first(call, _CWD_KEYS)
    return os.path.normpath(os.path.join(project, found)) if isinstance(found, str) else project


def paths_of(call: ToolCall, project: str) -> tuple[str, ...]:
    """The files that the call names anywhere, absolute, each once."""
    given = cast("dict[str, Any]", call.raw_input) if isinstance(call.raw_input, dict) else {}
    named = (given.get(key) for key in _PATH_KEYS)
    told = (*(diff.path for diff in call.diffs), *call.paths, *named)
    return tuple(
        dict.fromkeys(
            os.path.normpath(os.path.join(project, os.path.expanduser(each)))
            for each in told
            if isinstance(each, str) and each and "\0" not in each
        )
    )


def host_of(call: ToolCall) -> str:
    """The host that it would ask, with its port if it is no usual one; "" if it does not say, or that is none."""
    found = _first(call, ("url", "uri"))
    if not isinstance(found, str):
        return ""
    try:
        parts = urlsplit(found)
        host = canonical_host(parts.hostname or "")
        return authority_of(host, parts.port) if parts.port else host
    except ValueError:
        return ""


def _first(call: ToolCall, keys: tuple[str, ...]) -> object:
    if not isinstance(call.raw_input, dict):
        return None
    given = cast("dict[str, Any]", call.raw_input)
    return next((given[key] for key in keys if given.get(key)), None)


def _words(value: object) -> list[str]:
    words = cast("list[Any]", value) if isinstance(value, list) else []
    return words if all(isinstance(each, str) for each in words) else []
