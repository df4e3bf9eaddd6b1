"""The base class of all messages, and the mapping of field names to the wire."""

from typing import Any, ClassVar

import msgspec

PROTOCOL_VERSION = 1
"""The protocol version of these modules. Another version would be separate modules, selected when a connection is opened."""


def _on_wire(name: str) -> str:
    if name == "meta":
        return "_meta"
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(map(str.capitalize, rest))


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_on_wire):
    """
    A message or a part of one.

    Missing and null fields are the same. Unknown fields are ignored. A kind is a plain string, so that unknown kinds are kept; readers
    have a `case _`. Optional fields that fail to decode count as absent where the protocol allows that, except for those in `exact`.
    """

    exact: ClassVar[tuple[str, ...]] = ()
    meta: dict[str, Any] | None = None


class Empty(Wire, frozen=True):
    """A capability that is present, or an empty result."""


EMPTY = Empty()


class Implementation(Wire, frozen=True):
    """A program at one end: `name` for programs, `title` for people."""

    name: str
    version: str = ""
    title: str | None = None
