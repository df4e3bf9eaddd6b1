"""Settings held against the parts that they are about: all that these cannot take is found, each with its file and line."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from sanderling.config import KeyPath, Settings
from sanderling.config.file import Mistake, mistakes_of, refusal
from sanderling.config.layers import place_of
from sanderling.errors import ConfigError
from sanderling.mcp.servers import McpServer, load_server, load_servers
from sanderling.models.known import Price, load_models
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import load_rule
from sanderling.providers.choice import choose
from sanderling.providers.endpoint import ProviderTable, Quirks, load_endpoint
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
}
"""The types of what `Settings` holds as it was written."""


def explained(error: ConfigError, settings: Settings, project: str) -> ConfigError:
    """All that is wrong in the settings, with which a session cannot be opened because of `error`."""
    mistakes = mistakes_in(settings, project)
    return refusal(mistakes) if mistakes else error


def mistakes_in(settings: Settings, project: str) -> list[Mistake]:
    """All that is wrong in settings whose keys and types are right."""
    found = [each for layer in settings.layers for each in mistakes_of(layer, KINDS)]
    if found:
        return found
    errors = list(_complaints(settings, project))
    return [Mistake(place_of(error.path, settings.layers), str(error)) for error in errors]


def _complaints(settings: Settings, project: str) -> Iterator[ConfigError]:
    told = set[str]()
    for path, check in _checks(settings, project):
        try:
            check()
        except ConfigError as error:
            if str(error) not in told:
                yield error if error.path else ConfigError(str(error), path)
            told.add(str(error))


def _checks(settings: Settings, project: str) -> Iterator[tuple[KeyPath, Callable[[], object]]]:
    """The checks of the parts, each with the path of what it takes."""
    for number, table in enumerate(settings.permissions):
        yield ("permissions", number), partial(load_rule, table, number + 1, project)
    for name in settings.providers:
        yield ("providers", name), partial(load_endpoint, name, settings.providers)
    servers = {**settings.mcp_servers, **settings.project_mcp_servers}
    for name, table in servers.items():
        yield ("mcp", "servers", name), partial(load_server, name, table)
    yield ("mcp", "servers"), partial(load_servers, servers)
    yield ("prices",), partial(load_models, settings)
    yield ("tools", "disabled"), partial(check_disabled, settings.tools_disabled)
    yield ("model",), partial(choose, settings)
