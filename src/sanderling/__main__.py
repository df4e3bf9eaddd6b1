"""
The command line.

`sanderling -p PROMPT` asks once and prints the answer (`print_mode`). `sanderling sessions [--json]` lists what was said before.

`sanderling check [--api]` prints, as one JSON object, what `:checkhealth` and a bug report need: versions, whether a key was
found (never the key), and with `--api` whether the API answers. Exit code 1: the API was asked and did not answer.

`sanderling check PROVIDER` tries whether a provider can do what a conversation needs. Exit code 1: it cannot.

`sanderling login|logout [PROVIDER]` keeps an API key in the system's keychain, or removes it. The key is typed, or piped in: as an
argument others on the machine could see it.

`sanderling acp` is the agent of an editor that speaks the Agent Client Protocol (`acp_agent`); `sanderling acp-log FILE` shows what was
said there.

`sanderling client` is `cli/client.py`, `sanderling sandbox status|exec` is `sandbox/cli.py`, `sanderling changes|undo|redo` is `cli/undo.py`.
"""

import argparse
import gc
import os
import platform
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import sanderling
from sanderling.print_mode.arguments import print_parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from sanderling.providers.credentials import Credentials

WIDE = 1_000  # columns of what is no terminal
UNDOING = ("changes", "undo", "redo")
COMMANDS = (
    "acp",
    "acp-log",
    "check",
    "client",
    "config",
    "login",
    "logout",
    "mcp",
    "sandbox",
    "sessions",
    *UNDOING,
)
EXIT_USAGE, EXIT_INTERRUPTED, EXIT_UNREAD = 2, 130, 141

PACKAGES = (
    *("pynvim", "anthropic", "msgspec", "anyio", "landlock", "httpx2", "greenlet", "msgpack"),
    *("h11", "httpcore2", "html-to-markdown", "mcp", "tree-sitter", "tree-sitter-bash", "keyring"),
)


def main() -> NoReturn:
    """Run the command and leave at once: the interpreter would take 0.3 s to take the SDK down."""
    sanderling.forget_empty_home()
    gc.disable()  # until what lives as long as the process is loaded, as the SDK is
    try:
        exit_status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before there is something to stop
        exit_status = EXIT_INTERRUPTED
    except BrokenPipeError:
        exit_status = EXIT_UNREAD
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # closed from the start, or its reader has gone
            stream.flush()
    os._exit(exit_status)


def run(argv: list[str]) -> int:
    if argv[:1] == ["acp"] and argv[1:2] != ["login"]:
        from sanderling.acp_agent.run import serve  # an editor waits for it

        return serve(argv[1:])
    if argv[:2] == [
        "acp",
        "login",
    ]:  # the way of the protocol: the agent's own command, and something more
        argv = argv[1:]
    return run_command(argv) if argv and argv[0] in COMMANDS else ask(argv)


def ask(argv: list[str]) -> int:
    parser = print_parser()
    arguments = parser.parse_args(argv)
    is_piped = sys.stdin is not None and not sys.stdin.isatty()
    if not arguments.print and arguments.prompt is not None:
        parser.error(
            f"there is no command '{arguments.prompt}'; to ask the model: sanderling -p {shlex.quote(arguments.prompt)}"
        )
    if not arguments.print and not is_piped:
        parser.error("-p PROMPT, or a command")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the turn can be stopped. An exception can get lost while modules load: in a callback of the import system.
        signal.signal(signal.SIGINT, _leave)
    from sanderling.print_mode.run import print_answer

    return print_answer(arguments)


def _leave(*_: object) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def run_command(argv: list[str]) -> int:
    from sanderling.protocol.remedies import SHELL, use
    from sanderling.sandbox.cli import add_sandbox_commands

    use(SHELL)

    gc.enable()
    parser = argparse.ArgumentParser(prog="sanderling", description=sanderling.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_own_commands(commands)
    if argv[0] == "acp-log":
        from sanderling.cli.acp_log import add_acp_log_command

        add_acp_log_command(commands)
    if argv[0] == "client":
        from sanderling.cli.client import add_client_command

        add_client_command(commands)
    if argv[0] == "config":
        from sanderling.cli.config import add_config_commands  # loads much that the others need not

        add_config_commands(commands)
    if argv[0] == "mcp":
        from sanderling.cli.mcp import add_mcp_commands

        add_mcp_commands(commands)
    if argv[0] in UNDOING:
        from sanderling.cli.undo import add_undo_commands

        add_undo_commands(commands)
    add_sandbox_commands(commands)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


def _add_own_commands(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="print versions, the key's presence and, with --api, the API's answer as JSON; of a PROVIDER, what it can do",
    )
    check.add_argument(
        "providers", nargs="*", metavar="PROVIDER[:MODEL]", help="try these: it costs some tokens"
    )
    check.add_argument("--json", action="store_true", help="what was tried, as JSON")
    check.add_argument(
        "--api", action="store_true", help="ask the API for the model (costs no tokens)"
    )
    check.add_argument("--model", default="")
    check.add_argument("--base-url", default="")
    check.set_defaults(run=check_installation)
    sessions = commands.add_parser(
        "sessions", help="list the sessions of this project, newest first"
    )
    sessions.add_argument("list", nargs="?", choices=("list",), help="the same")
    sessions.add_argument("--all", action="store_true", help="of every project")
    sessions.add_argument("--json", action="store_true", help="as JSON, a line each")
    sessions.set_defaults(run=list_sessions)
    for name, run, what in (
        ("login", log_in, "keep an API key in the system's keychain"),
        ("logout", log_out, "remove an API key from the system's keychain"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("provider", nargs="?", default="", help="else that of the settings")
        command.set_defaults(run=run)


def list_sessions(arguments: argparse.Namespace) -> int:
    from datetime import datetime

    import msgspec

    from sanderling.errors import ConfigError
    from sanderling.print_mode.inputs import UsageError, own_settings, project_root
    from sanderling.session import store
    from sanderling.text import visible

    try:
        settings = own_settings()
        project = "" if arguments.all else project_root("")
    except (ConfigError, UsageError) as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE
    for info in store.list_sessions(settings.session_dir, project, ""):
        if arguments.json:
            line = msgspec.json.encode(info).decode()
        else:
            at = datetime.fromtimestamp(info.changed_at)  # noqa: DTZ006 - the person's own time
            where = f"  {info.project}" if arguments.all else ""
            line = f"{info.id}  {at:%Y-%m-%d %H:%M}{where}  {info.title}"
            line = visible(line).replace("\n", " ")
        print(line)  # noqa: T201 - that is what it is for
    return 0


def log_in(arguments: argparse.Namespace) -> int:
    def keep(kept: "Credentials") -> str:
        backend, name = kept.backend(), kept.account.name
        kept.store(_read_key(f"API key for {name}, to be kept in {backend}: "))
        return (
            f"The API key for {name} is kept in {backend}; `sanderling logout {name}` removes it."
        )

    return _with_credentials(arguments.provider, keep)


def log_out(arguments: argparse.Namespace) -> int:
    def forget(kept: "Credentials") -> str:
        if kept.remove():
            return f"The API key for {kept.account.name} is removed from the keychain."
        return f"No API key for {kept.account.name} is kept: there is nothing to remove."

    return _with_credentials(arguments.provider, forget)


def _read_key(question: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        return sys.stdin.readline().strip() if sys.stdin else ""
    from getpass import getpass

    return getpass(question).strip()


def _with_credentials(provider: str, do: "Callable[[Credentials], str]") -> int:
    from sanderling.errors import ConfigError
    from sanderling.print_mode.inputs import own_settings
    from sanderling.providers.choice import credentials
    from sanderling.providers.credentials import CredentialsError

    try:
        told = do(credentials(own_settings(), provider))
    except (ConfigError, CredentialsError) as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE if isinstance(error, ConfigError) else 1
    except EOFError:
        sys.stderr.write("sanderling: no key was given: nothing has changed\n")
        return 1
    sys.stdout.write(f"{told}\n")
    return 0


def check_installation(arguments: argparse.Namespace) -> int:
    import anyio
    import msgspec

    if arguments.providers:
        if arguments.api or arguments.base_url:
            sys.stderr.write(
                "sanderling: a PROVIDER is asked where its table in the configuration says, without --api\n"
            )
            return EXIT_USAGE
        return check_providers(arguments)
    report = describe_installation()
    if arguments.api:
        report["api"] = anyio.run(ask_api, arguments.model, arguments.base_url)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    return 0 if not arguments.api or report["api"]["is_reachable"] else 1


def check_providers(arguments: argparse.Namespace) -> int:
    import anyio
    import msgspec

    from sanderling.conversation.trial import shown, try_all
    from sanderling.errors import ConfigError
    from sanderling.print_mode.inputs import own_settings

    try:
        trials = anyio.run(try_all, arguments.providers, arguments.model, own_settings())
    except ConfigError as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(trials)).decode() + "\n")
    else:
        sys.stdout.write(shown(trials, shutil.get_terminal_size((WIDE, 0)).columns))
    return 0 if all(trial.is_passed for trial in trials) else 1


def describe_installation() -> dict[str, Any]:
    from sanderling.config import Settings
    from sanderling.print_mode.inputs import state_dir
    from sanderling.providers.choice import credentials

    kept = credentials(Settings(str(state_dir())))
    return {
        "sanderling": sanderling.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "has_api_key": kept.account.is_set(),
        "has_login": kept.is_known(),
    }


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


async def ask_api(model: str, base_url: str) -> dict[str, Any]:
    from sanderling.config import DEFAULT_MODEL, Settings
    from sanderling.errors import ProviderError
    from sanderling.print_mode.inputs import state_dir
    from sanderling.providers.choice import DEFAULT, make_provider

    settings = Settings(
        state_dir=str(state_dir()),
        provider=DEFAULT,
        model=model or DEFAULT_MODEL,
        base_url=base_url,
        idle_timeout_s=20.0,
    )
    try:
        limits = await make_provider(settings).fetch_limits()
    except ProviderError as error:
        return {"is_reachable": False, "message": error.message, "remedy": error.remedy}
    known = {
        "context_window_tokens": limits.context_window_tokens,
        "max_output_tokens": limits.max_output_tokens,
    }
    return {"is_reachable": True, "model": settings.model, "limits": known}


if __name__ == "__main__":
    main()
