"""
MCP servers as READMEs declare them: JSON with `mcpServers`, in the user's own `mcp.json` and in a project's `.mcp.json`.

`${NAME}` stands for a variable of our environment, and `${NAME:-default}` for the variable or else the default. Keys of other agents are
ignored. What people paste is often nearly right, so an error names the line and the repair.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from sanderling.config import KeyPath, Layer, Table
from sanderling.config.commands import join_command
from sanderling.config.file import (
    Mistake,
    SettingLocation,
    placed,
    read_text,
    shown_path,
    sound,
    user_servers_file,
)
from sanderling.errors import ConfigError

SHAPE = '{"mcpServers": {"NAME": {"command": "npx", "args": ["-y", "PACKAGE"]}}}'
OLD_TRANSPORT = "the protocol no longer has the type sse: is there a url of type http?"

_KEY = "mcpServers"
_KEYS_OF_OTHERS = ("servers", "context_servers", "mcp", "mcp_servers")
_URLS = ("httpUrl", "serverUrl")
_TAKEN = ("env", "headers", "oauth", "paths", "write_paths", "hosts", "enabled", "timeout_s")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}", re.ASCII)
_VARIABLE_OR_DOLLAR = re.compile(rf"{_VARIABLE.pattern}|\$", re.ASCII)
_BYTE = re.compile(r" ?\(byte (\d+)\)$")
_BARE_MEMBER = re.compile(r'\s*"[^"]*"\s*:')
_WRONG_QUOTES = "'\u201c\u201d\u2018\u2019\u201e"


class ServersFileError(ConfigError):
    """A file of servers is malformed on this `line`; 0 if the whole file is wrong."""

    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.line = line


def read_user_servers(environment: Mapping[str, str] = os.environ) -> Layer:
    """
    Read the user's file of servers; return an empty layer if it does not exist.

    Raises:
        ConfigError: names every mistake with file and line.
    """
    return sound(*parse_user_servers(environment))


def parse_user_servers(environment: Mapping[str, str] = os.environ) -> tuple[Layer, list[Mistake]]:
    path = user_servers_file(environment)
    text, mistakes = read_text(path)
    if text is None:
        return Layer(shown_path(path)), mistakes
    return parse_servers(shown_path(path), text, environment)


def parse_servers(
    origin: str, text: str, environment: Mapping[str, str] = os.environ
) -> tuple[Layer, list[Mistake]]:
    """Return the servers in the text of the user's file as a layer of settings, and its mistakes."""
    try:
        declared = servers_of(text)
    except ServersFileError as error:
        return Layer(origin), [Mistake(SettingLocation(origin, error.line), str(error))]
    errors = list[ConfigError]()
    servers, written = Table(), Table()
    for name, table in declared.items():
        path = ("mcp", "servers", name)
        servers[name] = _as_table(table, path, errors, _filler(environment), environment)
        written[name] = _as_table(table, path, [], lambda value: value, environment)
    layer = Layer(origin, {"mcp": {"servers": servers}}, text, {"mcp": {"servers": written}})
    return layer, placed(layer, errors)


def servers_of(text: str) -> dict[str, Any]:
    """
    Return what `mcpServers` contains, by name, unchecked.

    Raises:
        ServersFileError: the text is not JSON, or has servers in another place.
    """
    text = text.removeprefix("\ufeff")
    try:
        data: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _malformed(text, error) from error
    except RecursionError as error:
        raise ServersFileError("it is nested too deeply") from error
    if not isinstance(data, dict):
        raise ServersFileError(f"it must be an object: {SHAPE}", 1)
    table = cast("dict[str, Any]", data)
    servers = table.get(_KEY)
    if servers is None:
        _check_place(table)
        return {}
    if not isinstance(servers, dict):
        raise ServersFileError(f'"{_KEY}" must be an object of servers by name: {SHAPE}', 1)
    return {
        name: _with_url(each) if isinstance(each, dict) else each
        for name, each in cast("dict[str, Any]", servers).items()
    }


def filled(text: str, environment: Mapping[str, str]) -> str:
    """
    Fill in the variables in `text`.

    Raises:
        ConfigError: one is not set and has no default.
    """
    return _VARIABLE.sub(lambda found: _value(found, environment), text)


def as_in_settings(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values in the syntax of settings, which has `$NAME` as well, and no defaults."""

    def spelled(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            return "$$"
        is_set = default is None or environment.get(name)
        return f"${{{name}}}" if is_set else str(default).replace("$", "$$")

    return {name: _VARIABLE_OR_DOLLAR.sub(spelled, value) for name, value in values.items()}


def variables_of(text: str) -> set[str]:
    return {found[1] for found in _VARIABLE.finditer(text)}


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = found.groups()
    if name not in environment and default is None:
        raise ConfigError(f"it needs the variable {name}, which is not set")
    return environment.get(name, default) or default or ""


def _filler(environment: Mapping[str, str]) -> Callable[[str], str]:
    return lambda text: filled(text, environment)


def _as_table(
    declared: Any,
    path: KeyPath,
    errors: list[ConfigError],
    fill: Callable[[str], str],
    environment: Mapping[str, str],
) -> Any:
    """Return a server of the user's file as a table of settings. Values of a wrong type stay, for the checks of settings."""
    if not isinstance(declared, dict):
        return declared
    given = cast("dict[str, Any]", declared)

    def filled_in(value: Any, place: KeyPath) -> Any:
        try:
            return fill(value) if isinstance(value, str) else value
        except ConfigError as error:
            errors.append(ConfigError(f"MCP server {path[-1]}: {error}", place))
            return value

    table: Table = {key: given[key] for key in _TAKEN if key in given}
    if given.get("disabled") is True:
        table["enabled"] = False
    if given.get("type") == "sse":
        errors.append(ConfigError(f"MCP server {path[-1]}: {OLD_TRANSPORT}", (*path, "type")))
    if "command" in given:
        joined = {key: given[key] for key in ("command", "args") if key in given}
        joined = join_command(joined, path, errors.append)
        table |= joined
        if isinstance(joined["command"], list):
            words = cast("list[Any]", joined["command"])
            table["command"] = [filled_in(each, (*path, "command")) for each in words]
    if "url" in given:
        table["url"] = filled_in(given["url"], (*path, "url"))
    for key in ("env", "headers"):
        values = table.get(key)
        if isinstance(values, dict):
            texts = cast("dict[str, Any]", values)
            table[key] = {
                name: as_in_settings({name: value}, environment)[name]
                if isinstance(value, str)
                else value
                for name, value in texts.items()
            }
    return table


def _with_url(declared: Any) -> Any:
    """Return a server whose `url` has the name that it has in other agents."""
    table = cast("dict[str, Any]", declared)
    other = next((key for key in _URLS if "url" not in table and key in table), None)
    return {**table, "url": table[other]} if other else table


def _check_place(data: dict[str, Any]) -> None:
    """
    Check that a file without `mcpServers` has no servers elsewhere.

    Raises:
        ServersFileError: it has.
    """
    if _is_server(data):
        words = f"this server has no name: wrap it as {SHAPE}"
        raise ServersFileError(words, 1)
    for key in _KEYS_OF_OTHERS:
        inside = data.get(key)
        if isinstance(inside, dict) and any(map(_is_server, cast("Table", inside).values())):
            raise ServersFileError(f'"{key}" is another program\'s key: rename it "{_KEY}"', 1)
    if named := [name for name, each in data.items() if _is_server(each)]:
        words = f'{", ".join(named)}: put servers inside "{_KEY}": {SHAPE}'
        raise ServersFileError(words, 1)


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and any(
        isinstance(cast("Table", value).get(key), str) for key in ("command", "url", *_URLS)
    )


def _malformed(text: str, error: msgspec.DecodeError) -> ServersFileError:
    """Return the error in the user's terms."""
    found = _BYTE.search(str(error))
    data = text.encode(errors="surrogatepass")
    at = int(found[1]) if found else len(data)
    said = _BYTE.sub("", str(error)).removeprefix("JSON is malformed: ")
    before, rest = data[:at].decode(errors="replace").rstrip(), data[at:].decode(errors="replace")
    line = data.count(b"\n", 0, at) + 1
    if not text.strip():
        return ServersFileError(f"it is empty: write {SHAPE}", 1)
    if _BARE_MEMBER.match(text):
        words = f'the braces around it are missing: put it inside {{"{_KEY}": {{ }}}}'
        return ServersFileError(words, 1)
    if "trailing comma" in said:  # the library's place is the bracket
        words = f"JSON allows no comma before {rest[:1]}: delete it"
        return ServersFileError(words, before.count("\n") + 1)
    return ServersFileError(_words_for(rest, said), line)


def _words_for(rest: str, said: str) -> str:
    """Return what is wrong with a text of which `rest` was not understood."""
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments: delete this one"
    if rest[:1] in tuple(_WRONG_QUOTES):
        return f'JSON has only straight double quotes: write " for {rest[0]}'
    if rest.startswith(("...", "…")):
        return "replace the placeholder … by what it stands for"
    if not rest or "truncated" in said:
        return "it ends too early: a } or ] is missing"
    return f"not valid JSON: {said}"
