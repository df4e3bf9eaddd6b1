"""
Servers that a project proposes: in its settings, and in `.mcp.json`, the file that other agents read, too.

Both take effect once the user trusts them as they are, and each server starts once the user has allowed it. In `.mcp.json`, `${NAME}`
stands for a variable of our environment, and `${NAME:-default}` for the variable or else the default. Variables that may contain the key
of a model's provider or of web_search, or the secret of a credential, are not filled in. Keys of other agents are ignored.
"""

import os
import re
import shlex
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

from sanderling.config import Settings
from sanderling.config.expansion import variables_in
from sanderling.config.lines import line_finder
from sanderling.config.project import PROJECT_FILE
from sanderling.config.servers_file import (
    OLD_TRANSPORT,
    ServersFileError,
    as_in_settings,
    filled,
    servers_of,
    variables_of,
)
from sanderling.errors import ConfigError
from sanderling.mcp.servers import McpServer, load_server
from sanderling.project.trust.trust import MCP_FILE, Trust
from sanderling.providers.endpoint import keys_of_providers
from sanderling.sandbox.credentials import secret_variables

_HTTP = ("http", "streamable-http", "streamableHttp")


class _Declared(msgspec.Struct, frozen=True):
    type: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}

    def filled(self, environment: Mapping[str, str], keys: frozenset[str]) -> McpServer:
        """
        Return the server with the variables in its command or URL filled in; those in `env` and `headers` wait until it starts.

        Raises:
            ConfigError: a variable is not set or one of `keys`, or the declaration is invalid.
        """

        def fill(text: str) -> str:
            return filled(text, environment)

        if withheld := self._variables() & keys:
            raise ConfigError(
                f"it requires {min(withheld)}, the key of a model's provider or of web_search, or the secret of a credential, which a project's server does not get"
            )
        if self.type == "sse":
            raise ConfigError(OLD_TRANSPORT)
        try:
            if self.url and self.type in ("", *_HTTP):
                return McpServer(
                    url=fill(self.url), headers=as_in_settings(self.headers, environment)
                )
            if self.command and self.type in ("", "stdio"):
                command = tuple(map(fill, (self.command, *self.args)))
                return McpServer(command, env=as_in_settings(self.env, environment))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        raise ConfigError("it needs a command, or a url and the type http")

    def _variables(self) -> set[str]:
        texts = (self.command, *self.args, self.url, *self.env.values(), *self.headers.values())
        return {name for text in texts for name in variables_of(text)}

    @property
    def shown(self) -> str:
        """The declaration as the user reads it: with the names of variables, not their values."""
        own = self.headers if self.url else self.env
        lines = (f"{name}: {value}" for name, value in own.items())
        return "\n".join((self.url or shlex.join((self.command, *self.args)), *lines))

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class ProposedServer(msgspec.Struct, frozen=True):
    """
    A server that a project proposes: as it is `shown` to the user, and a `digest` that identifies it.

    `problem` says why there is no server.
    """

    shown: str
    digest: str
    server: McpServer | None = None
    problem: str = ""

    def without_server(self, problem: str) -> "ProposedServer":
        return msgspec.structs.replace(self, server=None, problem=problem)


def proposals(
    trust: Trust, settings: Settings
) -> tuple[dict[str, ProposedServer], ConfigError | None]:
    """Return the servers in a project's trusted files, by name, and what is wrong with `.mcp.json`."""
    in_file, problem = dict[str, ProposedServer](), None
    try:
        in_file = servers_in(
            trust.read(MCP_FILE) or "{}",
            providers=settings.providers,
            search_key=settings.web_search_api_key,
            secrets=secret_variables(settings.sandbox_credentials),
        )
    except ConfigError as error:
        problem = error
    tables = settings.project_mcp_servers
    return in_file | {name: _proposal(name, table) for name, table in tables.items()}, problem


def servers_in(
    text: str,
    environment: Mapping[str, str] = os.environ,
    *,
    providers: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    search_key: str = "",
    secrets: frozenset[str] = frozenset(),
) -> dict[str, ProposedServer]:
    """
    Return the servers that `.mcp.json` proposes, by name.

    They get no key of a preset or of the user's `providers`, not the variable that `search_key` names, and none of the `secrets`.

    Raises:
        ConfigError: the file is invalid.
    """
    keys = keys_of_providers(providers) | {*variables_in(search_key)} | secrets
    try:
        declared = servers_of(text)
    except ServersFileError as error:
        line = f"line {error.line}: " if error.line else ""
        raise ConfigError(f"{MCP_FILE} is wrong: {line}{error}") from error
    return {
        name: _server(_converted(name, each, text), environment, keys)
        for name, each in declared.items()
    }


def _converted(name: str, declared: object, text: str) -> _Declared:
    try:
        return msgspec.convert(declared, _Declared)
    except msgspec.ValidationError as error:
        path = re.findall(r"\.(\w+)", str(error).partition(" - at ")[2])
        line = line_finder(text)(("mcp", "servers", name, *path))
        raise ConfigError(f"{MCP_FILE} is wrong: line {line}: server {name}: {error}") from error


def _proposal(name: str, table: Mapping[str, Any]) -> ProposedServer:
    digest = sha256(msgspec.json.encode(table, order="sorted")).hexdigest()
    try:
        server = load_server(name, table)
    except ConfigError as error:
        return ProposedServer(PROJECT_FILE, digest, problem=str(error))
    return ProposedServer(server.url or shlex.join(server.command), digest, server)


def _server(
    declared: _Declared, environment: Mapping[str, str], keys: frozenset[str]
) -> ProposedServer:
    shown, digest = declared.shown, declared.digest
    try:
        return ProposedServer(shown, digest, declared.filled(environment, keys))
    except ConfigError as error:
        return ProposedServer(shown, digest, problem=str(error))
