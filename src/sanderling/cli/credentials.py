"""
`sanderling credentials add|list|test|remove`: secrets that commands in the sandbox can use but not read.

`add` reads the secret once before it writes anything, and no action prints it.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from getpass import getpass
from typing import Any

import msgspec

from sanderling.cli.alone import add_options, add_project, list_alone, refuse_options
from sanderling.cli.check import shown_line
from sanderling.cli.streams import say
from sanderling.config import ALL_PATHS, REMOTES, Credential, Settings, Table
from sanderling.config.file import read_text, replace_text, shown_path, user_file
from sanderling.config.layers import own_settings
from sanderling.errors import ConfigError, SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.sandbox.credentials import (
    KEYCHAIN_SERVICE,
    READ_S,
    check_credentials,
    read_secret,
    trusted_environment,
)
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.text import did_you_mean, visible

EXIT_FAILED, EXIT_USAGE = 1, 2
NONE = "No credentials: `:help sanderling-credentials` says how to add one."
PRESETS: dict[str, Table] = {
    "github": {
        "hosts": ["github.com", "api.github.com"],
        "source": "command",
        "placeholders": ["GH_TOKEN"],
    },
    "gitlab": {"hosts": ["gitlab.com"], "user": "oauth2", "placeholders": ["GITLAB_TOKEN"]},
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "credentials",
        description="Add, list, test and remove secrets that commands in the sandbox can use but not read. Without an action, list them."
        " `:help sanderling-credentials` describes them.",
        epilog=f"The exit status is 0; {EXIT_FAILED} if a secret cannot be read; {EXIT_USAGE} for a mistake.",
    )
    list_alone(parser, list_them)
    actions = parser.add_subparsers(metavar="{add,list,test,remove}")
    action = actions.add_parser(
        "add",
        help="declare a credential in config.toml, and store its secret in the keychain if that is its source",
        description=f"Declare a credential in config.toml. {' and '.join(PRESETS)} need no options. The secret of the source `keychain` is"
        " typed, or piped in; if the credential exists already, it replaces the stored one.",
    )
    action.add_argument("name", metavar="NAME", help=f"{', '.join(PRESETS)}, or any other name")
    action.add_argument("--host", action="append", metavar="H", help="a host that gets the secret")
    action.add_argument("--source", choices=("keychain", "command", "env"))
    action.add_argument("--command", dest="words", metavar="WORDS", help="prints the secret")
    action.add_argument("--variable", metavar="V", help="the variable with the secret")
    action.add_argument("--user", metavar="U", help="the user that git sends with the secret")
    action.add_argument(
        "--path",
        action="append",
        metavar="P",
        help=f"a path that gets the secret, like /owner/*, or {REMOTES}: those of the project's remotes; without it, all do",
    )
    action.set_defaults(run=add_it)
    action = actions.add_parser("list", help="list the credentials, and what they are for here")
    add_options(action)
    action.set_defaults(run=list_them)
    action = actions.add_parser("test", help="read each secret, without showing it")
    action.add_argument("names", nargs="*", metavar="NAME", help="only these")
    add_project(action)
    action.set_defaults(run=test_them)
    action = actions.add_parser(
        "remove", help="remove it from config.toml, and its secret from the keychain"
    )
    action.add_argument("name", metavar="NAME")
    action.set_defaults(run=remove_it)


def add_it(arguments: argparse.Namespace) -> int:
    name = arguments.name
    try:
        refuse_options(arguments, "json", "project")
        settings = own_settings()
        known = settings.sandbox_credentials.get(name)
        table = _table_of(arguments)
        if known and (known.source != "keychain" or _is_changed(arguments)):
            raise UsageError(f"there is a credential '{name}' already: change it in {_file()}")
        credential = known or _checked(name, table, settings)
        writable = (project_root(""), *settings.sandbox_write)
        if credential.source == "keychain":
            _store(name, writable)
        read_secret(name, credential, writable)
        if not known:
            _declare(name, table)
    except SanderlingError as error:
        return _fail(error)
    done = f"Stored {name} in the keychain." if known else f"Added {name} to {_file()}."
    if not known and ALL_PATHS in credential.paths:
        done += (
            " Commands can use it for all paths of its hosts;"
            f' paths = ["{REMOTES}"] there limits it to the project\'s remotes.'
        )
    unlisted = _unlisted(credential, settings)
    steps = [f"add {json.dumps(unlisted)} to sandbox.hosts there"] if unlisted else []
    steps += (
        ['set network = "proxy" there, or use :AgentNet in Neovim']
        if settings.network != "proxy"
        else []
    )
    advice = f" Next: {'; '.join(steps)}." if steps else ""
    sys.stdout.write(visible(f"{done}{advice}\n"))
    return 0


def remove_it(arguments: argparse.Namespace) -> int:
    name = arguments.name
    try:
        refuse_options(arguments, "json", "project")
        settings = own_settings()
        known = settings.sandbox_credentials
        if name not in known:
            raise UsageError(f"there is no credential '{name}'{did_you_mean(name, known)}")
        changed = _without(name)
        if known[name].source == "keychain":
            writable = (project_root(""), *settings.sandbox_write)
            if _in_keychain("del", name, "", writable).returncode:
                say(f"the keychain has no secret of '{name}', or is locked")
        replace_text(user_file(), changed)
    except SanderlingError as error:
        return _fail(error)
    sys.stdout.write(visible(f"Removed {name} from {_file()}.\n"))
    return 0


def list_them(arguments: argparse.Namespace) -> int:
    return _print(arguments, (), is_asking=False)


def test_them(arguments: argparse.Namespace) -> int:
    return _print(arguments, arguments.names, is_asking=True)


def _print(arguments: argparse.Namespace, names: Sequence[str], *, is_asking: bool) -> int:
    from sanderling.cli.health import credential_lines

    try:
        settings = own_settings()
        known = settings.sandbox_credentials
        for name in names:
            if name not in known:
                raise UsageError(f"there is no credential '{name}'{did_you_mean(name, known)}")
        lines = [
            *credential_lines(
                settings, project_root(arguments.project), is_asking=is_asking, names=names
            )
        ]
    except SanderlingError as error:
        return _fail(error)
    shown = [for_terminal(each) if arguments.json else shown_line(each) for each in lines]
    if not lines and not arguments.json:
        shown = [NONE]
    sys.stdout.writelines(f"{visible(each)}\n" for each in shown)
    return EXIT_FAILED if any(line.level == "error" for line in lines) else 0


def _is_changed(arguments: argparse.Namespace) -> bool:
    return any(
        (
            arguments.host,
            arguments.source,
            arguments.words,
            arguments.variable,
            arguments.user,
            arguments.path,
        )
    )


def _table_of(arguments: argparse.Namespace) -> Table:
    table = {**PRESETS.get(arguments.name, {})}
    if table.get("source") == "command" and not shutil.which("gh"):
        del table["source"]
    command = shlex.split(arguments.words or "")
    source = "command" if command else "env" if arguments.variable else ""
    given = {
        "hosts": arguments.host,
        "source": arguments.source or source,
        "command": command,
        "variable": arguments.variable,
        "user": arguments.user,
        "paths": arguments.path,
    }
    return table | {key: value for key, value in given.items() if value}


def _checked(name: str, table: Table, settings: Settings) -> Credential:
    """
    Return the credential after the checks of a settings file.

    Raises:
        ConfigError: it would not be accepted.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise UsageError(f"'{name}' is not a name: use letters, digits, - and _")
    if not table.get("hosts"):
        raise UsageError(f"name the hosts that get the secret of '{name}': --host git.example.com")
    for host in table["hosts"]:
        if not re.fullmatch(r"[^\s/@*]+", host):
            raise UsageError(
                f"'{host}' is not a host: use a name like git.example.com, without * and https://"
            )
    try:
        credential = msgspec.convert(table, Credential)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the credential '{name}' is wrong: {error}") from error
    check_credentials({**settings.sandbox_credentials, name: credential}, settings.sandbox_env)
    return credential


def _store(name: str, writable: Sequence[str]) -> None:
    """Read the secret from the user, and store it in the keychain by a process, as `read_secret` reads it."""
    is_terminal = sys.stdin.isatty()
    try:
        secret = getpass(f"Secret of {name}: ") if is_terminal else sys.stdin.readline()
    except EOFError:
        secret = ""
    if not secret.strip():
        raise UsageError("no secret was given, so nothing changed")
    done = _in_keychain("set", name, secret.strip(), writable)
    if done.returncode:
        raise ConfigError(
            "the keychain did not keep the secret: unlock or install one, or use --variable or --command"
        )


def _in_keychain(
    action: str, name: str, given: str, writable: Sequence[str]
) -> subprocess.CompletedProcess[bytes]:
    argv = (sys.executable, "-m", "keyring", action, KEYCHAIN_SERVICE, name)
    try:
        return subprocess.run(  # noqa: S603
            argv,
            input=given.encode(),
            capture_output=True,
            cwd="/",
            env=trusted_environment(writable),
            timeout=READ_S,
            check=False,
        )
    except subprocess.SubprocessError as error:
        raise ConfigError("the keychain does not answer: unlock it and try again") from error


def _declare(name: str, table: Table) -> None:
    """
    Add the table to the user's config.toml, whose other lines stay as they are.

    Raises:
        ConfigError: the file is invalid, cannot be written, or declares credentials in another form.
    """
    text, mistakes = read_text(user_file())
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
    text = text or ""
    lines = [f"[sandbox.credentials.{name}]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    gap = "\n" * (bool(text) + (bool(text) and not text.endswith("\n")))
    changed = "\n".join((f"{text}{gap}{lines[0]}", *lines[1:], ""))
    try:
        wanted = deepcopy(tomllib.loads(text))
        wanted.setdefault("sandbox", {}).setdefault("credentials", {})[name] = table
        is_right = tomllib.loads(changed) == wanted
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError, TypeError):
        is_right = False
    if not is_right:
        raise ConfigError(f"add this to {_file()} yourself:\n" + "\n".join(lines))
    replace_text(user_file(), changed)


def _without(name: str) -> str:
    """
    Return the user's config.toml without the table, whose other lines stay as they are.

    Raises:
        ConfigError: the file declares credentials in another form.
    """
    text, _ = read_text(user_file())
    text = (text or "").removesuffix("\n") + "\n"
    header = rf"[ \t]*\[sandbox\.credentials\.{re.escape(name)}\]"
    # Comments before the next table are about that one.
    found = re.search(
        rf"(?m)^{header}.*\n?(?:(?![ \t]*\[).*\n)*?(?=(?:[ \t]*(?:#.*)?\n)*(?:[ \t]*\[|\Z))", text
    )
    changed = text[: found.start()] + text[found.end() :] if found else text
    try:
        wanted = deepcopy(tomllib.loads(text))
        del wanted["sandbox"]["credentials"][name]
        after = tomllib.loads(changed)
        after.setdefault("sandbox", {}).setdefault("credentials", {})
        is_right = after == wanted
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError, TypeError, KeyError):
        is_right = False
    if not is_right:
        raise ConfigError(f"remove the credential '{name}' from {_file()} yourself")
    return changed


def _unlisted(credential: Credential, settings: Settings) -> list[str]:
    rules = HostRules(settings.sandbox_hosts)
    return [host for host in credential.hosts if not rules.allow_all_of(host)]


def _file() -> str:
    return shown_path(user_file())


def _fail(error: SanderlingError) -> int:
    say(str(error))
    return EXIT_USAGE if isinstance(error, (ConfigError, UsageError)) else EXIT_FAILED
