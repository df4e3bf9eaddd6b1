"""Checks settings against the parts that use them, and reports every mistake with its file and line."""

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
from sanderling.hooks.declared import HookEvent, HookTable, load_hooks
from sanderling.mcp.servers import McpServer, load_server, load_servers
from sanderling.paths import real_path
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import load_rule
from sanderling.project.roles import RoleTable, load_roles
from sanderling.providers.choice import choose
from sanderling.providers.endpoint import ProviderTable, Quirks, key_variables, load_endpoint
from sanderling.providers.models.known import KnownModels, Price, mistakes_in_own
from sanderling.providers.web_search import load_search
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
    "hooks": dict[HookEvent, tuple[HookTable, ...]],
    "roles": dict[str, RoleTable],
}
"""The types of the tables that `Settings` holds unparsed."""


def explained(error: ConfigError, settings: Settings, project: str) -> ConfigError:
    """Return all mistakes in the settings, if there are any, instead of the `error` that kept a session from opening."""
    mistakes = mistakes_in(settings, project)
    return refusal(mistakes) if mistakes else error


def mistakes_in(settings: Settings, project: str, told: Iterable[Mistake] = ()) -> list[Mistake]:
    """
    Return all mistakes in settings whose types are right.

    `told` are mistakes whose values were already removed from the layers. They are included, and errors that follow from the removal are
    not.
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
    """Yield the errors of the parts, each once, without those about tables that are already known to be wrong."""
    seen = set[str]()
    for path, check in _checks(settings, project):
        try:
            check()
        except ConfigError as error:
            place = error.path or path
            is_known = str(error) in seen or any(place == each[: len(place)] for each in wrong)
            if not is_known:
                yield ConfigError(str(error), place)
            seen.add(str(error))


def _literal_secrets(settings: Settings) -> Iterator[ConfigError]:
    """Yield secrets that should be variables, without repeating them. Providers check their own `api_key`."""
    from sanderling.providers.redaction import is_secret  # takes 13 ms to compile

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
                        words = f"'{dotted(path)}': write secrets as variables: {key} = \"$NAME\""
                        yield ConfigError(words, path)


def _texts(table: object) -> list[tuple[str, str]]:
    items = cast("Table", table).items() if isinstance(table, dict) else ()
    return [(key, value) for key, value in items if isinstance(value, str)]


def _wide_paths(settings: Settings) -> Iterator[ConfigError]:
    """Yield the paths that would open everything. With one of them no command runs."""
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
    """Yield the checks of the parts, each with the path of the setting that it checks."""
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
    yield ("hooks",), partial(load_hooks, settings.hooks)
    yield ("roles",), partial(load_roles, settings.roles)
    yield ("web_search",), partial(load_search, settings)
    yield ("tools", "disabled"), partial(check_disabled, settings.tools_disabled)
    yield ("provider",), partial(check_script, settings)
    yield ("model",), partial(choose, settings)
