"""Settings tables that start from a preset: one of their own name, or one that they name."""

from collections.abc import Iterable, Mapping
from typing import Any

from sanderling.errors import ConfigError
from sanderling.text import did_you_mean

Table = Mapping[str, Any]


def base_of(own: Table, presets: Mapping[str, Table], table: str, name: str) -> Table:
    """
    Return the preset that `own`, the table `[table.name]`, starts from, or {}.

    Raises:
        ConfigError: it names an unknown preset.
    """
    base = str(own.get("preset", name))
    if base in presets:
        return presets[base]
    if "preset" in own:
        hint = did_you_mean(base, presets)
        raise ConfigError(
            f"[{table}.{name}] names an unknown preset '{base}'{hint}",
            (table, name, "preset"),
        )
    return {}


def merged(own: Table, base: Table, tables: Iterable[str]) -> dict[str, Any]:
    """Merge `own` over `base`. In `tables`, it replaces single keys; elsewhere, whole values."""
    inside = {
        key: {**base.get(key, {}), **own[key]}
        for key in tables
        if isinstance(own.get(key), Mapping)
    }
    return {**base, **own, **inside}
