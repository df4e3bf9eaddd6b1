"""
The settings in effect as the user sees them, each with its origin.

Secrets are not shown, nor the values of variables, because any of them may be a secret.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from sanderling.config import FIELDS, KeyPath, Layer, Settings, Table, dotted, key_of
from sanderling.config.expansion import is_reference, is_secret
from sanderling.config.layers import place_of, reference_at

HIDDEN = "(hidden)"
DEFAULT = "default"
Hide = Callable[[str], str]
"""Masks what looks like a secret in a text."""

_SECRET_OPTION = re.compile(r"(?i)-.*(?:key|token|secret|passw(?:or)?d|passphrase|auth)")


def shown_tables(settings: Settings, hide: Hide) -> Table:
    """Return the settings in the tables of a file, without secrets. A project's servers are listed with the user's."""
    tables = Table()
    servers = {**settings.mcp_servers, **settings.project_mcp_servers}
    values = cast("Table", msgspec.to_builtins(settings)) | {"mcp_servers": servers}
    for field in FIELDS:
        *group, name = path = key_of(field)
        table = tables.setdefault(group[0], {}) if group else tables
        table[name] = _Display(settings.layers, hide).value(values[field], path)
    return tables


def places(settings: Settings, tables: Table) -> dict[str, str]:
    """Return the origin of each shown setting, by its dotted key."""
    return {
        dotted(path): str(place_of(path, settings.layers)) or DEFAULT for path, _ in _values(tables)
    }


def as_toml(tables: Table, origins: dict[str, str]) -> str:
    """Return the settings as lines of TOML, with their `origins`, if any, as comments."""
    lines, rules = list[str](), list[str]()
    for path, value in _values(tables):
        comment = f"  # {origins[dotted(path)]}" if origins else ""
        if isinstance(path[-1], int):
            rules.append(f"\n[[{path[0]}]]{comment}")
            rules += (f"{key} = {_toml(item)}" for key, item in value.items())
        else:
            lines.append(f"{dotted(path)} = {_toml(value)}{comment}")
    return "\n".join((*lines, *rules)) + "\n"


def settings_report(settings: Settings, model: str, hide: Hide) -> str:
    """Return the settings in effect as a Markdown list; `model` is the current model."""
    tables = shown_tables(settings, hide)
    origins = places(settings, tables)
    if model != settings.model:
        tables["model"], origins["model"] = model, "this session"
    lines = [f"* state_dir: {settings.state_dir}"]
    for path, value in _values(tables):
        origin = origins[dotted(path)]
        lines.append(
            f"* {dotted(path)}: {_toml(value)}" + (f" ({origin})" if origin != DEFAULT else "")
        )
    return "\n".join(lines) + "\n"


class _Display(NamedTuple):
    """Converts values from `layers` for display."""

    layers: Sequence[Layer]
    hide: Hide

    def value(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            items = cast("Table", value).items()
            return {key: self.value(item, (*path, key)) for key, item in items}
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            before = ("", *map(str, items))
            return [
                HIDDEN
                if _SECRET_OPTION.fullmatch(word) and not reference_at((*path, number), self.layers)
                else self.value(item, (*path, number))
                for number, (word, item) in enumerate(zip(before, items, strict=False))
            ]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: KeyPath) -> str:
        if is_secret(path):
            return text if is_reference(text) or not text else HIDDEN
        option, equals, _ = text.partition("=")
        shown = reference_at(path, self.layers) or text
        if shown == text and equals and _SECRET_OPTION.fullmatch(option):
            return f"{option}={HIDDEN}"
        return self.hide(shown)


def _values(tables: Table, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values with their paths. Tables are entered; lists are values, except that each permission rule is one."""
    for key, value in tables.items():
        place = (*path, key)
        if isinstance(value, dict) and value:
            yield from _values(cast("Table", value), place)
        elif place == ("permissions",):
            yield from (
                ((*place, number), rule) for number, rule in enumerate(cast("list[Any]", value))
            )
        else:
            yield place, value


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("Table", value).items()
        inside = ", ".join(f"{dotted((key,))} = {_toml(item)}" for key, item in items)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, cast("list[Any]", value))) + "]"
    return msgspec.json.encode(value).decode()
