"""A tool call as an external agent describes it, and the command, paths or host found in it."""

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
    """A file change that the agent shows: `old` (None for a new file) becomes `new`. Both may be a part of the file."""

    path: str
    old: str | None
    new: str


class ToolCall(NamedTuple):
    """
    A tool call that an agent asks about.

    Attributes:
        kind: ACP tool kind ("execute", "edit", …).
        raw_input: the input of the agent's tool.
        paths: the files that it names as locations.
    """

    kind: str = "other"
    raw_input: Any = None
    diffs: tuple[Diff, ...] = ()
    paths: tuple[str, ...] = ()


def command_of(call: ToolCall) -> str:
    """Return the shell command line that the call would run; "" if unknown."""
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
    found = _first(call, _CWD_KEYS)
    return os.path.normpath(os.path.join(project, found)) if isinstance(found, str) else project


def paths_of(call: ToolCall, project: str) -> tuple[str, ...]:
    """Return all files that the call names, as absolute paths without duplicates."""
    given = cast("dict[str, Any]", call.raw_input) if isinstance(call.raw_input, dict) else {}
    named = (given.get(key) for key in _PATH_KEYS)
    paths = (*(diff.path for diff in call.diffs), *call.paths, *named)
    return tuple(
        dict.fromkeys(
            os.path.normpath(os.path.join(project, os.path.expanduser(each)))
            for each in paths
            if isinstance(each, str) and each and "\0" not in each
        )
    )


def host_of(call: ToolCall) -> str:
    """Return the host of the call's URL, with a non-default port; "" without one or it is invalid."""
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
