"""Effects: a tool says in data what one use of it would do; permissions judge that."""

import re
from typing import Literal

import msgspec

OUTSIDE = "__"
"""Stands between the source and the tool in the name of a tool that is not ours: `mcp__server__tool`."""
_PART = "[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*"
_OUTSIDE_NAME = OUTSIDE.join((_PART, _PART, _PART))
MAX_NAME_CHARS = 64  # what every API takes


def is_outside_name(name: str) -> bool:
    """Say whether a tool that is not ours can be called so: else a rule for one server could hold for another one's tool."""
    return len(name) <= MAX_NAME_CHARS and re.fullmatch(_OUTSIDE_NAME, name) is not None


class Effect(msgspec.Struct, frozen=True):
    """
    The effect that a tool use would have. `kind` says which of the other fields are set.

    `path` is absolute; `command` is a line for the shell, to be run in `cwd` (empty: the project's root); `host` may end in `:port`.
    `none` touches nothing outside of the conversation; `call` does what only the tool knows. `leaves_sandbox`: it wants more than
    the session's sandbox gives.
    `paths` are all files of a change of several; `path` is then a directory that has them.
    `server` marks the declaration of the server that is called, so that what was allowed to one holds for no other of its name.
    `exported` is what earlier commands have set that can change what runs (`NAME='value'`, `NAME (unset)`), as a person can read it.
    """

    tool: str
    kind: Literal["none", "read", "write", "run", "fetch", "call"]
    path: str = ""
    paths: tuple[str, ...] = ()
    command: str = ""
    host: str = ""
    server: str = ""
    cwd: str = ""
    leaves_sandbox: bool = False
    exported: tuple[str, ...] = ()
