"""Tables of settings that begin from a preset: by their own name, or by the one that they give."""

from collections.abc import Iterable, Mapping
from typing import Any

from sanderling.errors import ConfigError
from sanderling.text import did_you_mean

Table = Mapping[str, Any]


def base_of(own: Table, presets: Mapping[str, Table], table: str, name: str) -> Table:
    """
    The preset that `own`, which is `[table.name]`, begins from; empty if there is none.

    Raises:
        ConfigError: it gives a name that no preset has.
    """
    base = str(own.get("preset", name))
    if base in presets:
        return presets[base]
    if "preset" in own:
        hint = did_you_mean(base, presets)
        raise ConfigError(
            f"[{table}.{name}] begins from '{base}', which is no preset{hint}",
            (table, name, "preset"),
        )
    return {}


def merged(own: Table, base: Table, tables: Iterable[str]) -> dict[str, Any]:
    """`own` over `base`: what it has of `tables` changes single keys, whatever else it has takes the place of the base's."""
    inside = {
        key: {**base.get(key, {}), **own[key]}
        for key in tables
        if isinstance(own.get(key), Mapping)
    }
    return {**base, **own, **inside}
