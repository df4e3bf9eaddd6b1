"""
`sanderling mcp add|remove`: change the user's `mcp.json`, or with `--project` the project's `.mcp.json`.

The rest of the file stays as it is, keys of other agents included. A project's file has to be trusted again afterwards.
"""

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any, cast

from sanderling.cli.streams import say
from sanderling.config.file import read_text, shown_path, sound, user_servers_file
from sanderling.config.layers import place_of
from sanderling.config.servers_file import parse_servers, servers_of
from sanderling.errors import ConfigError, SanderlingError
from sanderling.mcp.project_file import servers_in
from sanderling.mcp.servers import load_servers
from sanderling.paths import replacing
from sanderling.project.root import project_root
from sanderling.project.trust.trust import MCP_FILE
from sanderling.text import visible

EXIT_USAGE = 2
_USAGE = (
    "sanderling mcp add NAME [--user | --project] [--env K=V] [--host H] [--path P] [--timeout S] -- COMMAND…\n"
    "       sanderling mcp add NAME [--user | --project] [--header 'K: V'] [--host H] URL"
)
GUARD_S = 0.3
"""The time in which the guard of a session's open sandbox removes a new file: it cannot know who made it."""
_REMOVED = f"an open session in this project removed {MCP_FILE}, which its commands must not make: end it, or send it :clear, and add the server again"
_ONLY_OWN = "a project's server cannot have hosts, paths or a timeout: add it with --user"


def add(actions: Any) -> None:
    action = actions.add_parser(
        "add", help="declare a server: its command after --, or its URL", usage=_USAGE
    )
    _add_options(action)
    action.add_argument("name", metavar="NAME")
    action.add_argument("rest", nargs=argparse.REMAINDER, metavar="-- COMMAND… or URL")
    action.set_defaults(run=add_server)
    action = actions.add_parser("remove", help="remove a server that `add` or you wrote into JSON")
    action.add_argument("name", metavar="NAME")
    _add_scope(action)
    action.set_defaults(run=remove_server)


def _add_options(action: argparse.ArgumentParser) -> None:
    _add_scope(action)
    for option, metavar, what in (
        ("--env", "K=V", "a variable only for this server; K alone: from the environment"),
        ("--header", "'K: V'", "a header for a URL"),
        ("--host", "H", "a host that it may reach"),
        ("--path", "P", "a path that it may read"),
    ):
        action.add_argument(option, action="append", metavar=metavar, help=what)
    action.add_argument("--timeout", type=float, metavar="S", help="seconds for a call or a start")


def _add_scope(action: argparse.ArgumentParser) -> None:
    scope = action.add_mutually_exclusive_group()
    scope.add_argument("--user", action="store_true", help="in your own mcp.json (default)")
    scope.add_argument("--project", action="store_true", help=f"in the project's {MCP_FILE}")


def add_server(arguments: argparse.Namespace) -> int:
    words = _words(arguments)
    try:
        path, name = _file(is_projects=arguments.project), arguments.name
        declared = _declared(arguments, words)
        content, servers = _read(path)
        if name in servers:
            remove = f"sanderling mcp remove {shlex.quote(name)}{' --project' * arguments.project}"
            raise ConfigError(f"{shown_path(path)} has a server '{name}': run {remove} first")
        _check(name, declared, is_projects=arguments.project)
        servers[name] = declared
        _write(path, content)
        if arguments.project:
            time.sleep(GUARD_S)
            if not path.exists():
                raise ConfigError(_REMOVED)
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE
    check = f"sanderling mcp check {shlex.quote(name)}"
    then = (
        f"trust it with `sanderling trust`, or :Agent trust in Neovim, then {check}"
        if arguments.project
        else check
    )
    sys.stdout.write(visible(f"Added {name} to {shown_path(path)}. Next: {then}\n"))
    return 0


def remove_server(arguments: argparse.Namespace) -> int:
    name = arguments.name
    try:
        scopes = [arguments.project] if arguments.project or arguments.user else [False, True]
        for is_projects in scopes:
            path = _file(is_projects=is_projects)
            content, servers = _read(path)
            if name in servers:
                del servers[name]
                _write(path, content)
                sys.stdout.write(visible(f"Removed {name} from {shown_path(path)}.\n"))
                return 0
        raise ConfigError(_not_found(name))
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE


def _file(*, is_projects: bool) -> Path:
    """
    Return the file to change.

    Raises:
        ConfigError: the project's is a link out of the project, so that its author chooses what is changed.
    """
    if not is_projects:
        return user_servers_file()
    root = project_root("")
    path = Path(root, MCP_FILE)
    if not path.resolve().is_relative_to(Path(root).resolve()):
        raise ConfigError(f"{shown_path(path)} is a link that leads out of the project: remove it")
    return path


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the command or URL. Options between it and the name, and those after a URL, are added to `arguments`."""
    options = argparse.ArgumentParser(prog="sanderling mcp add", usage=_USAGE)
    _add_options(options)
    options.add_argument("words", nargs=argparse.REMAINDER)
    options.parse_args(arguments.rest, arguments)
    words: list[str] = arguments.words
    if words[:1] == ["--"]:
        return words[1:]
    if words and _is_url(words[0]) and words[1:]:
        url = words[0]
        options.parse_args(words[1:], arguments)
        words = [url, *arguments.words]
    return words


def _is_url(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def _declared(arguments: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    """Return the server as JSON has it."""
    own = {"hosts": arguments.host, "paths": arguments.path, "timeout_s": arguments.timeout}
    own = {key: value for key, value in own.items() if value}
    if arguments.project and own:
        raise ConfigError(_ONLY_OWN)
    if not words:
        raise ConfigError("the command is missing: write it after --, or a URL")
    if _is_url(words[0]):
        if len(words) > 1 or arguments.env:
            raise ConfigError("a URL takes no arguments and no --env: send keys with --header")
        headers = dict(_pair(each, ":", "--header 'K: V'") for each in arguments.header or ())
        return {"type": "http", "url": words[0], **({"headers": headers} if headers else {}), **own}
    if "://" in words[0]:
        raise ConfigError(f"'{words[0]}' is not a URL that begins with https:// or http://")
    if arguments.header:
        raise ConfigError("--header is for a URL: a program gets --env")
    env = dict(
        _pair(each, "=", "--env K=V") if "=" in each else (each, f"${{{each}}}")
        for each in arguments.env or ()
    )
    return {"command": words[0], "args": words[1:], **({"env": env} if env else {}), **own}


def _pair(text: str, sign: str, usage: str) -> tuple[str, str]:
    key, found, value = text.partition(sign)
    if not (found and key.strip()):
        raise ConfigError(f"'{text}': write {usage}")
    return key.strip(), value.strip() if sign == ":" else value


def _check(name: str, declared: dict[str, Any], *, is_projects: bool) -> None:
    """
    Check a server as the session will.

    Raises:
        ConfigError: it would not be accepted.
    """
    text = json.dumps({"mcpServers": {name: declared}})
    if is_projects and (problem := servers_in(text, _AnyVariable())[name].problem):
        raise ConfigError(problem)
    layer = sound(*parse_servers("", text, _AnyVariable()))
    load_servers(layer.options["mcp"]["servers"])


class _AnyVariable(dict[str, str]):
    """An environment in which every variable is set, to its default or else to its own name: that of a later start is not known here."""

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return default or key


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Return the content of the file, and the servers in it, which are a part of it.

    Raises:
        ConfigError: it is malformed.
    """
    text, mistakes = read_text(path)
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
    if text is None:
        content: dict[str, Any] = {}
    else:
        try:
            servers_of(text)
        except ConfigError as error:
            line = getattr(error, "line", 0)
            where = f"{shown_path(path)}:{line}" if line else shown_path(path)
            raise ConfigError(f"{where}: {error}") from error
        content = cast("dict[str, Any]", json.loads(text))
    return content, content.setdefault("mcpServers", {})


def _write(path: Path, content: dict[str, Any]) -> None:
    """
    Replace the file.

    Raises:
        ConfigError: it cannot be written.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    real = path.resolve()  # a link, as in a repository of dotfiles, stays one
    try:
        mode = real.stat().st_mode & 0o777 if real.exists() else None
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(real) as file:
            file.write(text.encode(errors="surrogatepass"))
            if mode is not None or path.name == MCP_FILE:
                os.fchmod(file.fileno(), mode or 0o644)
    except OSError as error:
        raise ConfigError(f"{shown_path(path)} cannot be written: {error.strerror}") from error


def _not_found(name: str) -> str:
    from sanderling.config.layers import own_layers

    layers = own_layers()
    location = place_of(("mcp", "servers", name), (layers.file,))
    if location.origin:
        return f"'{name}' is declared in {location}: remove its table there"
    return f"there is no server '{name}' in {shown_path(user_servers_file())} or {MCP_FILE}"
