"""
Forms that a server asks the user to fill in: a JSON schema as fields, and the entries as values.

Entries are text as it was typed; `true` or `false` for a checkbox, one line per choice where several are possible. They are checked
against the schema here, before the server sees them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, cast

import msgspec

from sanderling.errors import SanderlingError
from sanderling.protocol.events import FormChoice, FormField
from sanderling.text import visible

MAX_FIELDS = 40
MAX_CHOICES = 200
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")

Value = str | int | float | bool | list[str]


class FormError(SanderlingError):
    """The form cannot be shown, or an entry is invalid."""


class _Titled(msgspec.Struct, frozen=True):
    const: str
    title: str = ""


class _Items(msgspec.Struct, frozen=True, rename="camel"):
    enum: tuple[str, ...] = ()
    any_of: tuple[_Titled, ...] = ()
    one_of: tuple[_Titled, ...] = ()


class _Property(msgspec.Struct, frozen=True, rename="camel"):
    """A property in either version of the protocol; `enum_names` is the older way to give choices titles."""

    type: str = "string"
    title: str = ""
    description: str = ""
    default: Any = None
    format: str = ""
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_items: int | None = None
    max_items: int | None = None
    enum: tuple[str, ...] = ()
    enum_names: tuple[str, ...] = ()
    one_of: tuple[_Titled, ...] = ()
    items: _Items = _Items()

    @property
    def kind(self) -> str:
        if self.type == "array":
            return "choices"
        return "choice" if self.choices else self.type

    @property
    def choices(self) -> tuple[FormChoice, ...]:
        titled = (*self.one_of, *self.items.any_of, *self.items.one_of)
        if titled:
            return tuple(FormChoice(each.const, visible(each.title)) for each in titled)
        names = (*self.enum_names, *[""] * len(self.enum))
        named = [*zip(self.enum, names, strict=False), *((name, "") for name in self.items.enum)]
        return tuple(FormChoice(value, visible(title)) for value, title in named)


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, _Property] = {}
    required: tuple[str, ...] = ()


class Form:
    """
    One form.

    Raises:
        FormError: the schema has something that no form in the protocol has.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            self._schema = msgspec.convert(schema, _Schema)
        except msgspec.ValidationError as error:
            raise FormError(f"it sent an invalid form: {error}") from error
        for name, asked in self._schema.properties.items():
            if asked.kind not in _READERS or (asked.kind == "choices" and not asked.choices):
                raise FormError(f"its form has '{name}' of an invalid type: {asked.type}")
            if len(asked.choices) > MAX_CHOICES:
                raise FormError(f"its form has more than {MAX_CHOICES} choices for '{name}'")
        if len(self._schema.properties) > MAX_FIELDS:
            raise FormError(f"its form has more than {MAX_FIELDS} fields")

    def fields(self, filled: Mapping[str, str]) -> tuple[FormField, ...]:
        """Return the fields, with earlier entries (`filled`) or else the server's defaults."""
        return tuple(
            FormField(
                name,
                asked.kind,  # pyright: ignore[reportArgumentType] - _READERS has it
                label=visible(asked.title),
                help=_help(asked),
                value=filled.get(name, _as_text(asked)),
                is_required=name in self._schema.required,
                choices=asked.choices,
            )
            for name, asked in self._schema.properties.items()
        )

    def values(self, filled: Mapping[str, str]) -> dict[str, Value]:
        """
        Return the entered values; an empty optional field has none.

        Raises:
            FormError: with a sentence for each invalid entry.
        """
        values, problems = dict[str, Value](), list[str]()
        for name, asked in self._schema.properties.items():
            text = filled.get(name, "")
            label = visible(asked.title or name)
            try:
                if text:
                    values[name] = _READERS[asked.kind](asked, text)
                elif name in self._schema.required:
                    problems.append(f"{label} is needed.")
            except ValueError as error:
                problems.append(f"{label} must be {error}.")
        if problems:
            raise FormError(" ".join(problems))
        return values


def _read_text(asked: _Property, text: str) -> str:
    fits = {
        "email": lambda: _EMAIL.fullmatch(text),
        "uri": lambda: _URI.fullmatch(text),
        "date": lambda: date.fromisoformat(text),
        "date-time": lambda: datetime.fromisoformat(text),
    }.get(asked.format)
    try:
        is_one = fits is None or fits()
    except ValueError:
        is_one = False
    is_long_enough = len(text) >= (asked.min_length or 0)
    if not is_one or not is_long_enough or len(text) > (asked.max_length or len(text)):
        raise ValueError(_bounds(asked))
    return text


def _read_number(asked: _Property, text: str) -> int | float:
    try:
        number = int(text) if asked.kind == "integer" else float(text)
    except ValueError as error:
        raise ValueError(_bounds(asked)) from error
    low = number if asked.minimum is None else asked.minimum
    high = number if asked.maximum is None else asked.maximum
    if not low <= number <= high:  # false for nan, too
        raise ValueError(_bounds(asked))
    return number


def _read_boolean(_: _Property, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("yes or no")
    return text == "true"


def _read_choice(asked: _Property, text: str) -> str:
    if text not in _values(asked.choices):
        raise ValueError("one of its choices")
    return text


def _read_choices(asked: _Property, text: str) -> list[str]:
    chosen = text.splitlines()
    is_enough = len(chosen) >= (asked.min_items or 0)
    is_known = set(chosen) <= set(_values(asked.choices)) and len(set(chosen)) == len(chosen)
    if not is_known or not is_enough or len(chosen) > (asked.max_items or len(chosen)):
        raise ValueError(_bounds(asked) or "some of its choices")
    return chosen


_READERS = {
    "string": _read_text,
    "integer": _read_number,
    "number": _read_number,
    "boolean": _read_boolean,
    "choice": _read_choice,
    "choices": _read_choices,
}


def _values(choices: Sequence[FormChoice]) -> list[str]:
    return [choice.value for choice in choices]


def _help(asked: _Property) -> str:
    words, bounds = visible(asked.description), _bounds(asked)
    return f"{words} ({bounds})" if words and bounds else words or bounds


def _as_text(asked: _Property) -> str:
    """Return the server's default; a checkbox always has one."""
    match asked.default:
        case None:
            return "false" if asked.kind == "boolean" else ""
        case bool():
            return "true" if asked.default else "false"
        case list():
            return "\n".join(map(str, cast("list[Any]", asked.default)))
        case _:
            return str(asked.default)


_FORMATS = {
    "email": "an email address",
    "uri": "a URI",
    "date": "a date such as 2026-11-23",
    "date-time": "a time such as 2026-11-23T14:30:00",
}


def _bounds(asked: _Property) -> str:
    """Describe the values that a field accepts: "a whole number, 1 to 100"; empty if it accepts all."""
    match asked.kind:
        case "string":
            words = _FORMATS.get(asked.format, "")
            span = _span(asked.min_length, asked.max_length, " characters")
            return ", ".join(filter(None, (words or "text", span))) if words or span else ""
        case "integer" | "number":
            words = "a whole number" if asked.kind == "integer" else "a number"
            return ", ".join(filter(None, (words, _span(asked.minimum, asked.maximum))))
        case "choices":
            return _span(asked.min_items, asked.max_items, " of them")
        case _:
            return ""


def _span(low: float | None, high: float | None, unit: str = "") -> str:
    if low is not None and high is not None:
        return f"{low:,.10g} to {high:,.10g}{unit}"
    if low is not None:
        return f"at least {low:,.10g}{unit}"
    return "" if high is None else f"at most {high:,.10g}{unit}"
