"""
Addresses of sessions that live elsewhere, as a person writes them, and as a session's log keeps them.

`ssh://[USER@]HOST[:PORT]/PATH`, `via://COMMAND/PATH` (a command line, quoted as a URL is, that executes in another place, as
`docker exec -i NAME`), `ws://HOST:PORT`, `wss://HOST` and `unix:/PATH`, a server's socket on this machine, or `unix:`, the one where `sanderling serve` listens by
default. A path that begins with `~` is
relative to the home directory there. Behind a `?` stand `keys=remote`: model calls are made there, with the keys of there; and, of a
server, `cwd=PATH`, `token-file=PATH` and `tools=client`: it may have its tools run here.
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
    A place where a session lives: `text` is the whole address, `title` what a person calls it, `path` the project there.

    `argv` is what executes a command there; a server has none, and `url` in its stead, and maybe `socket`, a path here. With
    `lends_tools` it may have tools run here.
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
    """Say whether `text` is the address of a session elsewhere, or is meant to be."""
    scheme, separator, _ = text.partition("://")
    return text.startswith(UNIX) or (bool(separator) and scheme in SCHEMES)


def parse_address(text: str) -> Address:
    """
    The address that `text` is.

    Raises:
        ConfigError: it is none.
    """
    if not is_address(text):
        raise ConfigError(f"'{text}' is no address: it begins with ssh://, ws://, wss:// or unix:/")
    if not text.isprintable():
        raise ConfigError("an address has characters that cannot be printed")
    try:
        parts = urlsplit(text)
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"'{text}' is no address: {error}") from error
    if unknown := sorted(set(query) - {"keys", "cwd", "token-file", "tools"}):
        raise ConfigError(f"'{text}' has '{unknown[0]}', which no address has")
    keys = query.get("keys", ["local"])[-1]
    if keys not in ("local", "remote"):
        raise ConfigError(f"'{text}': keys are 'local' or 'remote', not '{keys}'")
    tools = query.get("tools", ["server"])[-1]
    if tools not in ("server", "client"):
        raise ConfigError(f"'{text}': tools are 'server' or 'client', not '{tools}'")
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
    The address of `HOST:PATH`, as scp has it.

    Raises:
        ConfigError: it is none.
    """
    query = "?keys=remote" if has_own_keys else ""
    if is_address(place):
        return place + ("" if "?" in place else query)
    found = _SCP.fullmatch(place)
    if found is None:
        raise ConfigError(f"'{place}' names no project: write HOST:PATH, for instance box:src/app")
    text = f"ssh://{quote(found['host'], safe='@[]:')}{_url_path(found['path'])}{query}"
    parse_address(text)
    return text


def via_address(command: str, path: str, *, has_own_keys: bool = False) -> str:
    """
    The address of `path` where the command line `command` executes what follows it.

    Raises:
        ConfigError: it is none.
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
    """The path there; what is relative begins in the home directory."""
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
        raise ConfigError("an address has no password: ssh takes a key, or what its agent has")
    # A word that begins with a dash would be an option of ssh's.
    if not _HOST.fullmatch(host) or place.startswith("-"):
        raise ConfigError(f"'{host}' is no name of a host")
    if user and not _USER.fullmatch(unquote(user)):
        raise ConfigError(f"'{unquote(user)}' is no name of a user")
    written = place.rpartition("@")[2] if port is None else place.rpartition(":")[0]
    written = written.strip("[]")  # ssh's configuration may tell names apart by their letters
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
        raise ConfigError(f"the command '{command}' cannot be read: {error}") from error
    if not words:
        raise ConfigError("there is no command that executes there")
    return Address(text, "via", _title(words), _path_of(parts), words, has_own_keys=has_own_keys)


def _title(words: Sequence[str]) -> str:
    """A short name for what a command line reaches: the program, and the last that is no option."""
    last = next((word for word in reversed(words[1:]) if not word.startswith("-")), "")
    program = os.path.basename(words[0])  # noqa: PTH119
    return f"{program} {last}".strip()[:SHOWN_CHARS]


def _host_of_server(text: str, parts: SplitResult) -> dict[str, str]:
    if not parts.hostname:
        raise ConfigError(f"'{text}' names no host")
    port = _port(text, parts)
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "an address has no password: a server's token is in a file, or the keychain"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = f"{host}:{port}" if port else host
    return {"title": place, "url": f"{parts.scheme}://{place}{parts.path or '/acp'}"}


def _socket(text: str, parts: SplitResult) -> dict[str, str]:
    path = os.path.expanduser(unquote(parts.path)) or server_socket()  # noqa: PTH111
    if parts.netloc or not path.startswith("/"):
        raise ConfigError(f"'{text}' names no socket: write its whole path, unix:/PATH")
    return {"title": os.path.basename(path), "url": "ws://localhost/acp", "socket": path}  # noqa: PTH119


def _port(text: str, parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as error:
        raise ConfigError(f"'{text}': a port is a number from 1 to 65535") from error
