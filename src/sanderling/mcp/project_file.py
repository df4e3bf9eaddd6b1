"""
Servers that a project proposes: in its settings, and in `.mcp.json`, the file that other agents read, too.

Both count once the person trusts them as they are, and each server starts once they have allowed that. In `.mcp.json` `${NAME}` stands for a
variable of our environment, `${NAME:-default}` for that or else the default; no variable that may hold the key of a model's provider
is put in. Keys that others have put there for themselves are passed over.
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
from sanderling.config.project import PROJECT_FILE
from sanderling.errors import ConfigError
from sanderling.mcp.servers import McpServer, load_server
from sanderling.project.trust.trust import MCP_FILE, Trust
from sanderling.providers.endpoint import keys_of_providers

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}", re.ASCII)
_VARIABLE_OR_DOLLAR = re.compile(rf"{_VARIABLE.pattern}|\$", re.ASCII)
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
        The server with the variables put in that its program or its URL needs; those in `env` and `headers` wait until it starts.

        Raises:
            ConfigError: a variable is not set, or is one of `keys`, or it is no server.
        """

        def fill(text: str) -> str:
            return _VARIABLE.sub(lambda found: _value(found, environment), text)

        if withheld := self._variables() & keys:
            raise ConfigError(
                f"it wants {min(withheld)}, the key of a model's provider, which no server of a project is given"
            )
        if self.type == "sse":
            raise ConfigError(
                "the protocol has given up the type sse: is there a url of type http?"
            )
        try:
            if self.url and self.type in ("", *_HTTP):
                return McpServer(
                    url=fill(self.url), headers=_as_in_settings(self.headers, environment)
                )
            if self.command and self.type in ("", "stdio"):
                command = tuple(map(fill, (self.command, *self.args)))
                return McpServer(command, env=_as_in_settings(self.env, environment))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        raise ConfigError("it needs a command, or a url and the type http")

    def _variables(self) -> set[str]:
        texts = (self.command, *self.args, self.url, *self.env.values(), *self.headers.values())
        return {found[1] for text in texts for found in _VARIABLE.finditer(text)}

    @property
    def shown(self) -> str:
        """The declaration as the person reads it: with the names of variables, not with what they hold."""
        own = self.headers if self.url else self.env
        lines = (f"{name}: {value}" for name, value in own.items())
        return "\n".join((self.url or shlex.join((self.command, *self.args)), *lines))

    @property
    def digest(self) -> str:
        return sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class _File(msgspec.Struct, frozen=True, rename="camel"):
    mcp_servers: dict[str, _Declared] = {}


class Proposal(msgspec.Struct, frozen=True):
    """
    A server that a project proposes: as it is `shown` to the person, and what tells it from any other.

    `problem` is why there is none.
    """

    shown: str
    digest: str
    server: McpServer | None = None
    problem: str = ""

    def without_server(self, problem: str) -> "Proposal":
        return msgspec.structs.replace(self, server=None, problem=problem)


def proposals(trust: Trust, settings: Settings) -> tuple[dict[str, Proposal], ConfigError | None]:
    """The servers that a project proposes, by name, as far as its files are trusted; and what is wrong with `.mcp.json`."""
    in_file, problem = dict[str, Proposal](), None
    try:
        in_file = servers_in(trust.read(MCP_FILE) or "{}", providers=settings.providers)
    except ConfigError as error:
        problem = error
    tables = settings.project_mcp_servers
    return in_file | {name: _proposal(name, table) for name, table in tables.items()}, problem


def servers_in(
    text: str,
    environment: Mapping[str, str] = os.environ,
    *,
    providers: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Proposal]:
    """
    The servers that `.mcp.json` proposes, by name. None of them is given a key of a preset's, or of the person's `providers`.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{MCP_FILE} is wrong: {error}") from error
    keys = keys_of_providers(providers)
    return {name: _server(each, environment, keys) for name, each in file.mcp_servers.items()}


def _proposal(name: str, table: Mapping[str, Any]) -> Proposal:
    digest = sha256(msgspec.json.encode(table, order="sorted")).hexdigest()
    try:
        server = load_server(name, table)
    except ConfigError as error:
        return Proposal(PROJECT_FILE, digest, problem=str(error))
    return Proposal(server.url or shlex.join(server.command), digest, server)


def _server(declared: _Declared, environment: Mapping[str, str], keys: frozenset[str]) -> Proposal:
    shown, digest = declared.shown, declared.digest
    try:
        return Proposal(shown, digest, declared.filled(environment, keys))
    except ConfigError as error:
        return Proposal(shown, digest, problem=str(error))


def _as_in_settings(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The values as settings would have them, where `$NAME` stands for a variable, too, and none has a default."""

    def spelled(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            return "$$"
        is_set = default is None or environment.get(name)
        return f"${{{name}}}" if is_set else str(default).replace("$", "$$")

    return {name: _VARIABLE_OR_DOLLAR.sub(spelled, value) for name, value in values.items()}


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = found.groups()
    if name not in environment and default is None:
        raise ConfigError(f"it needs the variable {name}, which is not set")
    return environment.get(name) or default or ""
