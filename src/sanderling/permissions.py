"""What a tool use may do without asking: the mode, the rules, and what the use would do, held against each other."""

from typing import Literal

import msgspec

Mode = Literal["ask", "auto", "plan"]
"""Whether changes and commands ask first, run when the sandbox confines them, or are not possible at all."""


class Effect(msgspec.Struct, frozen=True):
    """
    What a tool use would do. `kind` says which of the others are set.

    `path` is absolute; `command` is a line for the shell; `host` may end in `:port`. `none` touches nothing outside of the
    conversation.
    """

    tool: str
    kind: Literal["none", "read", "write", "run", "fetch"]
    path: str = ""
    command: str = ""
    host: str = ""
