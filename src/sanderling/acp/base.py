"""The base of all messages: how our names stand on the wire."""

from typing import Any, ClassVar

import msgspec

PROTOCOL_VERSION = 1
"""The version that these modules speak. Another one would be modules beside them, chosen where a connection is opened."""


def _on_wire(name: str) -> str:
    if name == "meta":
        return "_meta"
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(map(str.capitalize, rest))


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_on_wire):
    """
    A message or a part of one.

    What it does not say is left out; null says the same. What a later schema adds is passed over, and where a kind is told by a word, an
    unknown word is kept as it is: whoever reads it has a `case _`. What is not understood is as if it had not been said, where the protocol
    lets that be missing: not in the fields whose names are `exact`.
    """

    exact: ClassVar[tuple[str, ...]] = ()
    meta: dict[str, Any] | None = None


class Empty(Wire, frozen=True):
    """A capability that is there, or a result that says no more than that it is done."""


EMPTY = Empty()


class Implementation(Wire, frozen=True):
    """A program at one end: `name` for programs, `title` for persons."""

    name: str
    version: str = ""
    title: str | None = None
