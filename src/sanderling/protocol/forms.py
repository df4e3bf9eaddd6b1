"""Forms: questions of a tool server or an external agent to the user, field by field."""

from typing import Literal

import msgspec


class FormChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    value: str
    title: str = ""


class FormField(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A field of a form. `value` is its initial text: `true` or `false` for "boolean", one line per selected item for "choices".

    `help` explains the field and its valid values.
    """

    name: str
    kind: Literal["string", "integer", "number", "boolean", "choice", "choices"]
    label: str = ""
    help: str = ""
    value: str = ""
    is_required: bool = False
    choices: tuple[FormChoice, ...] = ()
