"""Inputs of the tools that query language servers."""

from typing import Annotated, Literal

import msgspec


class NavInput(msgspec.Struct, forbid_unknown_fields=True):
    op: Literal[
        "definition",
        "references",
        "implementations",
        "type",
        "hover",
        "outline",
        "symbols",
        "callers",
        "callees",
    ]
    symbol: Annotated[
        str,
        msgspec.Meta(description="`parse`, `Parser/parse`, or as in the source: `self.parse`"),
    ] = ""
    path: Annotated[str, msgspec.Meta(description="A file where it occurs, if known")] = ""
    line: Annotated[int, msgspec.Meta(ge=0, description="Its line there; 0: unknown")] = 0
    within: Annotated[str, msgspec.Meta(description="Only results in this directory or file")] = ""


class RefactorInput(msgspec.Struct, forbid_unknown_fields=True):
    op: Literal["rename", "action", "move_file"]
    path: Annotated[str, msgspec.Meta(description="The file where it occurs, or to move")]
    symbol: Annotated[
        str, msgspec.Meta(description="As for code_nav; for an action the place on the line")
    ] = ""
    line: Annotated[int, msgspec.Meta(ge=0, description="Its line; 0: unknown")] = 0
    to: Annotated[
        str,
        msgspec.Meta(
            description="New name, new path, or an action's title; without it, actions are listed"
        ),
    ] = ""


class DiagnosticsInput(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="A file; without it, all known files")] = ""
