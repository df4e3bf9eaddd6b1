"""
The MCP servers of a plugin, in its `mcp.json`, as tables of settings.

A server with a mistake is left out, and the others are used. Only `${PLUGIN_ROOT}` and `${PLUGIN_DATA}` are replaced, once, and not in
`command`, `url` and `headers`; a `$` in a value is a dollar sign.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from sanderling.config import Table
from sanderling.errors import ConfigError
from sanderling.hosts import canonical_host, is_address, is_loopback
from sanderling.paths import is_within
from sanderling.project.plugins.manifest import check_version, object_in, read_inside
from sanderling.text import visible_line

SERVERS = "mcp.json"
VARIABLES = ("PLUGIN_ROOT", "PLUGIN_DATA")
_KEYS = ("$schema", "mcpServers")
_PLACEHOLDER = r"\$\{(PLUGIN_ROOT|PLUGIN_DATA)\}"
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


class Directories(NamedTuple):
    """The resolved directories of a plugin, in the order of `VARIABLES`."""

    root: str
    data: str

    def put_into(self, text: str) -> str:
        return re.sub(_PLACEHOLDER, lambda found: self[VARIABLES.index(found[1])], text)


class PluginServers(NamedTuple):
    """The servers of a plugin as tables of settings, by name, and a sentence for each server that cannot be used."""

    tables: dict[str, Table]
    problems: tuple[str, ...] = ()


class _Declared(
    msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True, omit_defaults=True
):
    pass


class _Stdio(_Declared, frozen=True, tag="stdio"):
    command: Annotated[str, msgspec.Meta(min_length=1)]
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = "./"

    def table(self, directories: Directories) -> Table:
        for text in (*self.args, *self.env.values()):
            if "\0" in text:
                raise ConfigError("`args` and `env` cannot contain the character NUL")
        for name in self.env:
            if name in VARIABLES:
                raise ConfigError(f"`env` must not set {name}")
            if not name or "=" in name or "\0" in name:
                raise ConfigError(f"`env`: '{name}' is not the name of a variable")
        env = {name: directories.put_into(value) for name, value in self.env.items()}
        env |= dict(zip(VARIABLES, directories, strict=True))
        return {
            "command": [self._program(directories.root), *map(directories.put_into, self.args)],
            "cwd": self._directory(directories),
            "env": {name: _literal(value) for name, value in env.items()},
            "paths": [directories.root],
            "write_paths": [directories.data],
            "pass_env": False,
        }

    def _program(self, root: str) -> str:
        if self.command.startswith("./"):
            _existing(root, self.command, "command", os.path.isfile)
            return f"{root}/{self.command.removeprefix('./')}"  # not resolved: a program may look at its name
        if "/" in self.command or self.command.startswith("~") or "\0" in self.command:
            raise ConfigError("`command` must be the name of a program, or begin with ./")
        if self.command.split() != [self.command]:
            raise ConfigError("`command` must be only the program: its arguments belong in `args`")
        return self.command

    def _directory(self, directories: Directories) -> str:
        place = directories.put_into(self.cwd)
        first = self.cwd.partition("/")[0]
        if "\0" in self.cwd or first not in (".", "${PLUGIN_ROOT}", "${PLUGIN_DATA}"):
            raise ConfigError("`cwd` must begin with ./, ${PLUGIN_ROOT} or ${PLUGIN_DATA}")
        if self.cwd == ".":
            raise ConfigError("`cwd` must begin with ./")
        if first != "${PLUGIN_DATA}":
            return _existing(directories.root, place, "cwd", os.path.isdir)
        real = os.path.realpath(place)
        if not is_within(real, directories.data):
            raise ConfigError("`cwd` leads out of ${PLUGIN_DATA}")
        return real


class _Http(_Declared, frozen=True, tag="streamable-http"):
    url: Annotated[str, msgspec.Meta(min_length=1)]
    headers: dict[str, str] = {}

    def table(self, directories: Directories) -> Table:
        del directories  # nothing in it is replaced
        _check_url(self.url)
        seen = set[str]()
        for name, value in self.headers.items():
            if not re.fullmatch(_HEADER, name):
                raise ConfigError(f"'{name}' is not the name of a header")
            if not (value.isascii() and (value.isprintable() or not value)):
                raise ConfigError(f"the header {name} contains an invalid character")
            if name.lower() in seen:
                raise ConfigError(f"it has the header {name} twice")
            seen.add(name.lower())
        headers = {name: _literal(value) for name, value in self.headers.items()}
        return {"url": self.url, **({"headers": headers} if headers else {})}


class _Sse(_Http, frozen=True, tag="sse"):
    def table(self, directories: Directories) -> Table:
        super().table(directories)
        raise ConfigError(
            "the transport `sse` is not supported; it has been replaced by `streamable-http`"
        )


def read_servers(directories: Directories) -> PluginServers:
    """Return the servers of the plugin; none if the file as a whole is wrong."""
    try:
        data = read_inside(directories.root, SERVERS)
        declared = {} if data is None else _declared(object_in(data))
    except ConfigError as error:
        words = str(error) if str(error).startswith(SERVERS) else f"{SERVERS}: {error}"
        return PluginServers({}, (f"{words}, so no MCP server of the plugin is used",))
    tables, problems = dict[str, Table](), list[str]()
    for name, each in declared.items():
        try:
            tables[name] = _table(name, each, directories)
        except ConfigError as error:
            said = visible_line(f"{SERVERS}: server '{name[:80]}' is not used: {error}")
            problems.append(said)
    return PluginServers(tables, tuple(problems))


def shown_server(table: Mapping[str, Any]) -> str:
    """Return the command of a server, or its URL, as the user reads it."""
    return visible_line(table.get("url") or shlex.join(table["command"]))


def _declared(fields: dict[str, Any]) -> dict[str, Any]:
    check_version(fields, "mcp")
    if unknown := [key for key in fields if key not in _KEYS]:
        raise ConfigError(f"it has the unknown field `{visible_line(unknown[0])}`")
    servers = fields.get("mcpServers")
    if not isinstance(servers, dict):
        raise ConfigError("its `mcpServers` must be an object")
    return cast("dict[str, Any]", servers)


def _table(name: str, declared: Any, directories: Directories) -> Table:
    if visible_line(name) != name or not re.search(r"[A-Za-z0-9]", name):
        raise ConfigError("its name needs a letter or a digit, and only visible characters")
    try:
        server = msgspec.convert(declared, _Stdio | _Http | _Sse)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from error
    return server.table(directories)


def _existing(root: str, name: str, key: str, exists: Callable[[str], bool]) -> str:
    """Return the resolved path of a part of the plugin."""
    if "\0" in name:
        raise ConfigError(f"`{key}` cannot contain the character NUL")
    path = name if is_within(name, root) else f"{root}/{name}"
    real = os.path.realpath(path)
    if not is_within(real, root):
        raise ConfigError(f"`{key}` leads out of the plugin")
    if not exists(real):
        kind = "file" if key == "command" else "directory"
        raise ConfigError(f"`{key}`: there is no {kind} {name}")
    return real


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = canonical_host(parts.hostname or ""), parts.port
    except ValueError as error:
        raise ConfigError("its `url` is not valid") from error
    if parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise ConfigError("its `url` must begin with https://")
    if parts.username is not None or "#" in url:
        raise ConfigError("its `url` must not have a user or a #")
    is_here = is_loopback(host) if is_address(host) else host == "localhost"
    if parts.scheme == "http" and not is_here:
        raise ConfigError("its `url` must begin with https://, except on this machine")


def _literal(value: str) -> str:
    """Return `value` in the syntax of settings, where a `$` begins a variable."""
    return value.replace("$", "$$")
