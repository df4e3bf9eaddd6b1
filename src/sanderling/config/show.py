"""The settings in force as a person is shown them, each with the place where it comes from. A secret is never told."""

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from sanderling.config import FIELDS, KeyPath, Settings, Table, dotted, key_of
from sanderling.config.expansion import is_reference, is_secret
from sanderling.config.layers import place_of

HIDDEN = "(hidden)"
DEFAULT = "default"
Hide = Callable[[str], str]
"""Takes what looks like a secret out of a text."""

_SECRET_OPTION = re.compile(r"(?i)-.*(?:key|token|secret|passw(?:or)?d|auth)$")


def shown_tables(settings: Settings, hide: Hide) -> Table:
    """The settings in the tables of a file, without secrets. A project's servers stand among the person's."""
    tables = Table()
    servers = {**settings.mcp_servers, **settings.project_mcp_servers}
    values = cast("Table", msgspec.to_builtins(settings)) | {"mcp_servers": servers}
    for field in FIELDS:
        *group, name = path = key_of(field)
        table = tables.setdefault(group[0], {}) if group else tables
        table[name] = _shown(values[field], path, hide)
    return tables


def places(settings: Settings, tables: Table) -> dict[str, str]:
    """The place, by its dotted key, where each of the settings that are shown comes from."""
    return {
        dotted(path): str(place_of(path, settings.layers)) or DEFAULT for path, _ in _values(tables)
    }


def as_toml(tables: Table, origins: dict[str, str]) -> str:
    """The settings as lines of TOML; with their `origins`, if there are any, as comments."""
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
    """The settings in force as a list in Markdown; `model` is the one that answers."""
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


def _shown(value: Any, path: KeyPath, hide: Hide) -> Any:
    if isinstance(value, dict):
        items = cast("Table", value).items()
        return {key: _shown(item, (*path, key), hide) for key, item in items}
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        before = ("", *map(str, items))
        return [
            HIDDEN if _SECRET_OPTION.fullmatch(word) else _shown(item, (*path, number), hide)
            for number, (word, item) in enumerate(zip(before, items, strict=False))
        ]
    if not isinstance(value, str):
        return value
    if is_secret(path):
        return value if is_reference(value) else HIDDEN
    return hide(value)


def _values(tables: Table, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The values with their paths: tables are entered, lists are values, but for rules, each of which is one."""
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
