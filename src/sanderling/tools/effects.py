"""Effects: a tool describes as data what a call would do, and permissions decide about that."""

import re
from hashlib import sha256
from typing import Literal

import msgspec

OUTSIDE = "__"
"""Separates source and tool in the name of a third-party tool: `mcp__server__tool`, `lua__tool`."""
LUA = f"lua{OUTSIDE}"
"""The beginning of the names of tools that the user's Neovim provides."""
DEBUG = "debug"
"""The tool for the user's debug session, offered only while one runs."""
_PART = "[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*"
_OUTSIDE_NAME = f"({LUA}|{_PART}{OUTSIDE}{_PART}{OUTSIDE}){_PART}"
MAX_NAME_CHARS = 64  # the smallest limit of all APIs


def is_outside_name(name: str) -> bool:
    """True if a third-party tool may have this name: otherwise a rule for one server could match another server's tool."""
    return len(name) <= MAX_NAME_CHARS and re.fullmatch(_OUTSIDE_NAME, name) is not None


Does = Literal["", "read", "write", "run", "network"]


class Effect(msgspec.Struct, frozen=True):
    """
    The effect that a tool call would have. `kind` determines which other fields are set.

    `path` is absolute; `command` is a shell line to run in `cwd` (empty: the project root); `host` may end in `:port`. The kind `none`
    has no effect outside the conversation; `call` has one that only the tool knows; `delegate` starts a session whose own calls are judged.
    `leaves_sandbox`: it needs more than the session's sandbox grants. `paths` are all files of a change to several; `path` is then a directory that contains them. `server` identifies the
    declaration of the called server, so that a permission does not hold for another server of the same name. `does` is what a tool
    outside the sandbox declares to do; nothing confines it. `exported` lists variables
    set by earlier commands that can change what runs (`NAME='value'`, `NAME (unset)`), in readable form. `terminal`: it is input in a
    terminal, for a shell that no input has changed, or for another program; for a program, `server` names the terminal and the input. Without
    a `command`, it is unknown which line the input completes.
    """

    tool: str
    kind: Literal["none", "read", "write", "run", "fetch", "call", "delegate"]
    path: str = ""
    paths: tuple[str, ...] = ()
    command: str = ""
    host: str = ""
    server: str = ""
    does: Does = ""
    cwd: str = ""
    leaves_sandbox: bool = False
    exported: tuple[str, ...] = ()
    terminal: Literal["", "shell", "program"] = ""

    @property
    def is_unknown(self) -> bool:
        """Return whether it is input that completes an unknown line, such as keys."""
        return self.terminal != "" and not self.command

    @property
    def is_line(self) -> bool:
        """Return whether it is a shell line for the session's commands, whose parts are judged one by one."""
        return self.kind == "run" and not self.does

    @property
    def may_change_anything(self) -> bool:
        """Return whether only a comparison before and after can find which files it changes."""
        return self.kind == "run" or (self.kind == "call" and self.does != "read")


def outside_sandbox(effect: Effect, owner: str, does: Does) -> Effect:
    """
    Return `effect` for a tool of the package or plugin `owner`, whose code has all of the user's rights: `does` is never verified.

    What the user allows holds for this owner's tool, as long as it declares the same.
    """
    mark = sha256(f"{owner}\0{does}".encode()).hexdigest()[:16]
    return msgspec.structs.replace(effect, server=mark, does=does, leaves_sandbox=not does)
