"""
Servers as settings declare them: a program that runs in the sandbox, or a URL.

Their tools have names for the model, `mcp__server__tool`, in the characters and the length that every API accepts.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from sanderling.config.expansion import expand, variables_in
from sanderling.config.server_names import fitted, fitted_server, mark_of
from sanderling.errors import ConfigError, SandboxError
from sanderling.hosts import canonical_host, is_address, is_loopback, is_public
from sanderling.mcp import START_S
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.text import did_you_mean
from sanderling.tools.effects import MAX_NAME_CHARS, OUTSIDE

PREFIX = "mcp"
MAX_NUMBER = 99
PORTS = {"https": 443, "http": 80}
CALL_S = 120.0
LEAST_START_S = 10.0
_OF_PROGRAMS = ("paths", "write_paths", "env", "cwd")


def names_begin(server: str) -> str:
    return OUTSIDE.join((PREFIX, fitted_server(server), ""))


def tool_name(server: str, tool: str, *, number: int = 1) -> str:
    """
    Return the name for the tool `tool` of `server`; `number` distinguishes tools that would have the same name.

    It is appended to the name, which leaves room for it: a rule that denies by name applies to all of them (`permissions/rules.py`).
    """
    start = names_begin(server)
    room = MAX_NAME_CHARS - len(start) - len(f"-{MAX_NUMBER}")
    part = fitted(tool, room) or f"tool-{mark_of(tool)}"
    return start + part + (f"-{number}" if number > 1 else "")


class ServerAddress:
    """
    The address that `url` names.

    `hosts` are declared for the server. With `has_secrets` its headers must be sent encrypted.

    Raises:
        ConfigError: it is not the URL of a server.
    """

    def __init__(self, url: str, hosts: tuple[str, ...] = (), *, has_secrets: bool = False) -> None:
        try:
            parts = urlsplit(url)
            self.host = canonical_host(parts.hostname or "")
            self._scheme, self._port = parts.scheme, parts.port or PORTS[parts.scheme]
            self._declared = HostRules(hosts)
        except (ValueError, KeyError) as error:
            raise ConfigError(
                "its url must be https://host/path, or http:// on this machine"
            ) from error
        except SandboxError as error:
            raise ConfigError(f"in its hosts, {error}") from error
        if parts.username is not None or parts.fragment:
            raise ConfigError("its url must have no password and no # in it; use headers")
        self.url = url
        self.is_local = is_loopback(self.host)
        if has_secrets and self._scheme == "http" and not self.is_local:
            raise ConfigError("its headers would be sent unencrypted: use https")

    def is_own(self, scheme: str, host: str, port: int) -> bool:
        """Recognize the server's own origin, or the same over TLS."""
        own, other = (self._scheme, self._port), (scheme, port)
        is_upgrade = (own, other) == (("http", 80), ("https", 443))
        return host == self.host and (own == other or is_upgrade)

    def declares(self, host: str, port: int) -> bool:
        return self._declared.allows(host, port)

    def may_lead_to(self, host: str) -> bool:
        """Keep a remote server away from programs on this machine. `host` must be in canonical spelling."""
        return self.is_local or not is_loopback(host)

    def may_be_at(self, host: str, address: str, port: int) -> bool:
        """Allow addresses of this machine and the networks around it only where the declaration names them."""
        if is_public(address) or self.declares(address, port):
            return True
        is_named = host == self.host and is_address(host)
        return is_named or (self.is_local and is_loopback(host) and is_loopback(address))


class OAuthClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Our registration at a server where we cannot register ourselves. `client_secret` may be a variable, as in `headers`.

    `port` is the registered port of the page on 127.0.0.1 to which the browser returns; 0: any.
    """

    client_id: str
    client_secret: str = ""
    port: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    One server.

    `command` is a program and its arguments, run in `cwd`, by default the project's root. In addition to what commands see, it can read
    `paths`, write `write_paths` and reach `hosts`; `env` are variables for it alone, and the only ones with `pass_env` false, except for
    harmless ones. `url` is the address of a server over HTTP, which receives `headers`. In `env` and `headers`, `$NAME` and `${NAME}` stand
    for variables of our own environment, so that no secret has to be written down; `$$` is a `$`.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    paths: tuple[str, ...] = ()
    write_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    pass_env: bool = True
    headers: dict[str, str] = {}
    oauth: OAuthClient | None = None
    enabled: bool = True
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("it needs either a command or a url")
        if self.command and not self.command[0]:
            raise ValueError("its command has no program")
        if self.command and (self.headers or self.oauth):
            raise ValueError("headers and oauth are for servers with a url")
        if self.url and (wrong := [name for name in _OF_PROGRAMS if getattr(self, name)]):
            raise ValueError(f"{', '.join(wrong)}: only for servers with a command")
        if self.url:
            try:
                ServerAddress(self.url, self.hosts, has_secrets=bool(self.headers))
            except ConfigError as error:
                raise ValueError(str(error)) from error

    @property
    def call_s(self) -> float:
        return self.timeout_s or CALL_S

    @property
    def start_s(self) -> float:
        """The timeout of a start, which is never as short as that of a call may be."""
        return max(self.timeout_s, LEAST_START_S) if self.timeout_s else START_S

    @property
    def mark(self) -> str:
        """Identifies this declaration among all that had the same name."""
        same = msgspec.structs.replace(
            self, enabled=True, timeout_s=1.0
        )  # constant, because it is part of stored marks
        return sha256(msgspec.json.encode(same, order="sorted")).hexdigest()[:16]


def load_servers(declared: Mapping[str, Mapping[str, Any]]) -> dict[str, McpServer]:
    """
    Check the content of `settings.mcp_servers`, by name.

    Raises:
        ConfigError: names the server, and the unknown key with the nearest known one, or what is wrong.
    """
    servers: dict[str, McpServer] = {}
    by_part: dict[str, str] = {}
    for name, fields in declared.items():
        if not fitted_server(name):
            raise ConfigError(f"tool server '{name}': a name needs a letter or a digit")
        other = by_part.setdefault(fitted_server(name), name)
        if other != name:
            raise ConfigError(
                f"the tool servers '{other}' and '{name}' have names that are too similar"
            )
        servers[name] = load_server(name, fields)
    return servers


def load_server(name: str, fields: Mapping[str, Any]) -> McpServer:
    """
    Check the declaration of the server `name`.

    Raises:
        ConfigError: as `load_servers`.
    """
    known = McpServer.__struct_fields__
    for key in fields:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"tool server '{name}': unknown key '{key}'{hint}")
    try:
        return msgspec.convert(dict(fields), McpServer)
    except msgspec.ValidationError as error:
        raise ConfigError(f"tool server '{name}': {error}") from error


class FilledServer(NamedTuple):
    """Values with their variables filled in, and the secrets among them."""

    values: dict[str, str]
    secrets: frozenset[str]


def filled_in(
    values: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> FilledServer:
    """
    Fill in the variables in `values` of a server. This happens when it starts, so displayed settings contain no secrets.

    Raises:
        ConfigError: a variable is not set.
    """
    filled = {key: expand(value, environment) for key, value in values.items()}
    secrets = {
        environment[variable] for value in values.values() for variable in variables_in(value)
    }
    return FilledServer(filled, frozenset({*secrets, *filled.values()}))
