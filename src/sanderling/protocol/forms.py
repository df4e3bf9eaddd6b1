"""Forms: what somebody wants to know from the person, field by field."""

from typing import Literal

import msgspec


class FormChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str
    title: str = ""


class FormField(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A field of a form. `value` is what stands in it, as text: `true` or `false` where it is ticked, a line for each of several `choices`.

    `help` says in words what it is for and what it takes.
    """

    name: str
    kind: Literal["string", "integer", "number", "boolean", "choice", "choices"]
    label: str = ""
    help: str = ""
    value: str = ""
    is_required: bool = False
    choices: tuple[FormChoice, ...] = ()
