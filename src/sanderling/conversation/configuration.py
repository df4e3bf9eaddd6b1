"""Settings held against the parts that they are about: all that these cannot take is found, each with its file and line."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, cast

import msgspec

from sanderling.agents.declared import AgentTable, load_agent
from sanderling.config import KeyPath, Settings, Table, dotted
from sanderling.config.expansion import variables_in
from sanderling.config.file import Mistake, in_order, mistakes_of, refusal
from sanderling.config.layers import check_script, place_of
from sanderling.errors import ConfigError
from sanderling.mcp.servers import McpServer, load_server, load_servers
from sanderling.models.known import KnownModels, Price, mistakes_in_own
from sanderling.paths import real_path
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import load_rule
from sanderling.providers.choice import choose
from sanderling.providers.endpoint import ProviderTable, Quirks, key_variables, load_endpoint
from sanderling.sandbox.policy import HOLDS_TOO_MUCH, is_too_wide
from sanderling.tools.catalog import check_disabled

_QUIRKS: dict[str, Any] = {"quirks": Quirks, "models": dict[str, Quirks]}
_Provider = msgspec.defstruct(
    "Provider",
    [
        (field.name, _QUIRKS.get(field.name, field.type))
        for field in msgspec.structs.fields(ProviderTable)
    ],
    forbid_unknown_fields=True,
)

KINDS: dict[str, Any] = {
    "permissions": tuple[Rule, ...],
    "prices": dict[str, Price],
    "providers": dict[str, _Provider],
    "mcp_servers": dict[str, McpServer],
    "agents": dict[str, AgentTable],
}
"""The types of what `Settings` holds as it was written."""


def explained(error: ConfigError, settings: Settings, project: str) -> ConfigError:
    """All that is wrong in the settings, with which a session cannot be opened because of `error`."""
    mistakes = mistakes_in(settings, project)
    return refusal(mistakes) if mistakes else error


def mistakes_in(settings: Settings, project: str, told: Iterable[Mistake] = ()) -> list[Mistake]:
    """
    All that is wrong in settings whose types are right.

    `told` is what was taken out of their layers for that: it is among it, and what lacks it is not.
    """
    found = [*told, *(each for layer in settings.layers for each in mistakes_of(layer, KINDS))]
    wrong = {each.path for each in found}
    errors = (
        *_complaints(settings, project, wrong),
        *_literal_secrets(settings),
        *_wide_paths(settings),
    )
    found += [
        Mistake(place_of(error.path, settings.layers), str(error), error.path) for error in errors
    ]
    return in_order([*found, *mistakes_in_own(settings)])


def _complaints(
    settings: Settings, project: str, wrong: Collection[KeyPath]
) -> Iterator[ConfigError]:
    """The complaints of the parts, each once, but for those about what holds something wrong."""
    told = set[str]()
    for path, check in _checks(settings, project):
        try:
            check()
        except ConfigError as error:
            place = error.path or path
            is_told = str(error) in told or any(place == each[: len(place)] for each in wrong)
            if not is_told:
                yield ConfigError(str(error), place)
            told.add(str(error))


def _literal_secrets(settings: Settings) -> Iterator[ConfigError]:
    """Secrets where a variable should be named; none is repeated. Those in `api_key` its provider finds."""
    from sanderling.providers.redaction import is_secret  # compiles for 13 ms

    for above, tables in (
        (("providers",), settings.providers),
        (("mcp", "servers"), settings.mcp_servers),
        (("agents",), settings.agents),
    ):
        for name, table in tables.items():
            for group in ("headers", "env", "sandboxed_env", "oauth"):
                for key, value in _texts(table.get(group)):
                    if value and not variables_in(value) and is_secret(key, value):
                        path = (*above, name, group, key)
                        words = f"'{dotted(path)}': a secret is not written down: name a variable, as in {key} = \"$NAME\""
                        yield ConfigError(words, path)


def _texts(table: object) -> list[tuple[str, str]]:
    items = cast("Table", table).items() if isinstance(table, dict) else ()
    return [(key, value) for key, value in items if isinstance(value, str)]


def _wide_paths(settings: Settings) -> Iterator[ConfigError]:
    """The paths that would open everything: with one of them no command runs."""
    lists: dict[KeyPath, object] = {
        ("sandbox", "read"): settings.sandbox_read,
        ("sandbox", "write"): settings.sandbox_write,
    }
    for name, table in settings.mcp_servers.items():
        for key in ("paths", "write_paths"):
            lists["mcp", "servers", name, key] = table.get(key)
    for name, table in settings.agents.items():
        lists["agents", name, "paths"] = table.get("paths")
    home = real_path(os.path.expanduser("~"))  # noqa: PTH111 - a name as text
    for path, told in lists.items():
        for number, each in enumerate(
            cast("list[Any]", told) if isinstance(told, list | tuple) else ()
        ):
            if isinstance(each, str) and is_too_wide(real_path(os.path.expanduser(each)), home):  # noqa: PTH111
                yield ConfigError(f"'{dotted(path)}': {each} {HOLDS_TOO_MUCH}", (*path, number))


def _checks(settings: Settings, project: str) -> Iterator[tuple[KeyPath, Callable[[], object]]]:
    """The checks of the parts, each with the path of what it takes."""
    for number, table in enumerate(settings.permissions):
        yield ("permissions", number), partial(load_rule, table, number + 1, project)
    for name, table in settings.providers.items():
        yield ("providers", name), partial(load_endpoint, name, settings.providers)
        if isinstance(key := table.get("api_key"), str):
            yield ("providers", name, "api_key"), partial(key_variables, name, key)
    servers = {**settings.mcp_servers, **settings.project_mcp_servers}
    for name, table in servers.items():
        yield ("mcp", "servers", name), partial(load_server, name, table)
    yield ("mcp", "servers"), partial(load_servers, servers)
    for name in settings.agents:
        yield ("agents", name), partial(load_agent, name, settings.agents)
    for name, price in settings.prices.items():
        yield ("prices", name), partial(KnownModels, prices={name: price})
    yield ("tools", "disabled"), partial(check_disabled, settings.tools_disabled)
    yield ("provider",), partial(check_script, settings)
    yield ("model",), partial(choose, settings)
