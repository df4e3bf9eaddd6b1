"""
Addresses of remote sessions, as users write them and session logs store them.

* `ssh://[USER@]HOST[:PORT]/PATH`
* `via://COMMAND/PATH`: a URL-quoted command line that runs commands elsewhere, such as `docker exec -i NAME`
* `ws://HOST:PORT` and `wss://HOST`: a server
* `unix:/PATH`: a server's socket on this machine; `unix:` is the default socket of `sanderling serve`

A path that begins with `~` is relative to the remote home directory. Query parameters: `keys=remote` calls models from there, with the
keys there. For servers also `cwd=PATH`, `token-file=PATH` and `tools=client`, which lets the server run its tools here.
"""

import os
import re
import shlex
from collections.abc import Sequence
from typing import Literal
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from sanderling.config import server_socket
from sanderling.errors import ConfigError

SCHEMES = ("ssh", "via", "ws", "wss")
UNIX = "unix:"
HOME = "."
SHOWN_CHARS = 40
_HOST = re.compile(r"[A-Za-z0-9._:%][A-Za-z0-9._:%-]*")
_USER = re.compile(r"[A-Za-z0-9._+][A-Za-z0-9._+@-]*")
_SCP = re.compile(r"(?P<host>(?:[^/:\[\]]+@)?(?:\[[^\]/]+\]|[^/:\[\]]+)):(?P<path>.*)", re.DOTALL)


class Address(msgspec.Struct, frozen=True):
    """
    The address of a remote session.

    Attributes:
        text: the whole address.
        title: short name for the screen.
        path: the remote project.
        argv: command line that runs commands there; empty for a server.
        url: URL of a server.
        socket: path of a server's Unix socket on this machine.
        has_own_keys: models are called from there, with the keys there.
        lends_tools: the server may run its tools here.
    """

    text: str
    kind: Literal["ssh", "via", "server"]
    title: str
    path: str = HOME
    argv: tuple[str, ...] = ()
    url: str = ""
    socket: str = ""
    has_own_keys: bool = False
    token_file: str = ""
    lends_tools: bool = False


def is_address(text: str) -> bool:
    """Return whether `text` begins like an address, valid or not."""
    scheme, separator, _ = text.partition("://")
    return text.startswith(UNIX) or (bool(separator) and scheme in SCHEMES)


def parse_address(text: str) -> Address:
    """
    Parse an address.

    Raises:
        ConfigError: it is invalid.
    """
    if not is_address(text):
        raise ConfigError(
            f"'{text}' is not an address: it must begin with ssh://, ws://, wss:// or unix:/"
        )
    if not text.isprintable():
        raise ConfigError("the address contains unprintable characters")
    try:
        parts = urlsplit(text)
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"'{text}' is not an address: {error}") from error
    if unknown := sorted(set(query) - {"keys", "cwd", "token-file", "tools"}):
        raise ConfigError(f"'{text}': unknown parameter '{unknown[0]}'")
    keys = query.get("keys", ["local"])[-1]
    if keys not in ("local", "remote"):
        raise ConfigError(f"'{text}': keys must be 'local' or 'remote', not '{keys}'")
    tools = query.get("tools", ["server"])[-1]
    if tools not in ("server", "client"):
        raise ConfigError(f"'{text}': tools must be 'server' or 'client', not '{tools}'")
    match parts.scheme:
        case "ssh":
            return _ssh(text, parts, has_own_keys=keys == "remote")
        case "via":
            return _via(text, parts, has_own_keys=keys == "remote")
        case _:
            cwd, token_file = (query.get(name, [""])[-1] for name in ("cwd", "token-file"))
            place = _socket if parts.scheme == "unix" else _host_of_server
            server = Address(text, "server", "", cwd or HOME, token_file=token_file)
            return replace(server, lends_tools=tools == "client", **place(text, parts))


def ssh_address(place: str, *, has_own_keys: bool = False) -> str:
    """
    Return the address of `HOST:PATH`, written as for scp.

    Raises:
        ConfigError: it is invalid.
    """
    query = "?keys=remote" if has_own_keys else ""
    if is_address(place):
        return place + ("" if "?" in place else query)
    found = _SCP.fullmatch(place)
    if found is None:
        raise ConfigError(f"'{place}' has no project: write HOST:PATH, for example box:src/app")
    text = f"ssh://{quote(found['host'], safe='@[]:')}{_url_path(found['path'])}{query}"
    parse_address(text)
    return text


def via_address(command: str, path: str, *, has_own_keys: bool = False) -> str:
    """
    Return the address of `path` on the machine where `command` runs the command line appended to it.

    Raises:
        ConfigError: it is invalid.
    """
    query = "?keys=remote" if has_own_keys else ""
    text = f"via://{quote(command, safe='')}{_url_path(path)}{query}"
    parse_address(text)
    return text


def _url_path(path: str) -> str:
    if path in ("", "~", HOME):
        return ""
    return quote(path if path.startswith("/") else f"/~/{path.removeprefix('~/')}")


def _path_of(parts: SplitResult) -> str:
    """Return the remote path; a relative path starts in the home directory."""
    path = unquote(parts.path)
    if path in ("", "/", "/~", "/~/"):
        return HOME
    if path.startswith("/~/"):
        return path[3:]
    return path


def _ssh(text: str, parts: SplitResult, *, has_own_keys: bool) -> Address:
    user, _, place = parts.netloc.rpartition("@")
    host, port = unquote(parts.hostname or ""), _port(text, parts)
    if parts.password is not None:
        raise ConfigError("an address cannot contain a password: ssh uses a key or its agent")
    # ssh would read a word that begins with a dash as an option.
    if not _HOST.fullmatch(host) or place.startswith("-"):
        raise ConfigError(f"'{host}' is not a valid host name")
    if user and not _USER.fullmatch(unquote(user)):
        raise ConfigError(f"'{unquote(user)}' is not a valid user name")
    written = place.rpartition("@")[2] if port is None else place.rpartition(":")[0]
    written = written.strip("[]")  # host names in ssh's configuration may be case-sensitive
    argv = (*("-p", str(port)), "--") if port else ("--",)
    target = f"{unquote(user)}@{unquote(written)}" if user else unquote(written)
    return Address(
        text, "ssh", unquote(written), _path_of(parts), (*argv, target), has_own_keys=has_own_keys
    )


def _via(text: str, parts: SplitResult, *, has_own_keys: bool) -> Address:
    command = unquote(parts.netloc)
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"the command '{command}' cannot be parsed: {error}") from error
    if not words:
        raise ConfigError("the command is empty")
    return Address(text, "via", _title(words), _path_of(parts), words, has_own_keys=has_own_keys)


def _title(words: Sequence[str]) -> str:
    """Return a short name for a command line: its program and its last argument that is not an option."""
    last = next((word for word in reversed(words[1:]) if not word.startswith("-")), "")
    program = os.path.basename(words[0])  # noqa: PTH119
    return f"{program} {last}".strip()[:SHOWN_CHARS]


def _host_of_server(text: str, parts: SplitResult) -> dict[str, str]:
    if not parts.hostname:
        raise ConfigError(f"'{text}' has no host")
    port = _port(text, parts)
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "an address cannot contain a password: a server's token is in a file or the keychain"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{port}" if port else host
    return {"title": place, "url": f"{parts.scheme}://{place}{parts.path or '/acp'}"}


def _socket(text: str, parts: SplitResult) -> dict[str, str]:
    path = os.path.expanduser(unquote(parts.path)) or server_socket()  # noqa: PTH111
    if parts.netloc or not path.startswith("/"):
        raise ConfigError(f"'{text}' does not name a socket: write its whole path, unix:/PATH")
    return {"title": os.path.basename(path), "url": "ws://localhost/acp", "socket": path}  # noqa: PTH119


def _port(text: str, parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as error:
        raise ConfigError(f"'{text}': a port is a number from 1 to 65535") from error
