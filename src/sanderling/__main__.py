"""
The command line.

`sanderling` opens Neovim with the chat, `sanderling -p PROMPT` sends one prompt and prints the answer (`cli/print_mode`). The other commands
are a table in `cli`.
"""

import errno
import gc
import os
import shlex
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import sanderling
from sanderling.cli import COMMANDS
from sanderling.cli.print_mode.arguments import print_parser

EXIT_UNWRITTEN, EXIT_INTERRUPTED, EXIT_UNREAD = 1, 130, 141


def main() -> NoReturn:
    """Run the command and exit at once: a normal shutdown of the interpreter takes 0.1 s."""
    sanderling.forget_empty_home()
    sanderling.open_missing_streams()
    gc.disable()  # until everything that lives as long as the process is loaded
    try:
        exit_status = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:  # before there is a turn to stop
        exit_status = EXIT_INTERRUPTED
    except BrokenPipeError:
        exit_status = EXIT_UNREAD
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename:
            raise
        sys.stderr.write(f"sanderling: standard output cannot be written: {error.strerror}\n")
        exit_status = EXIT_UNWRITTEN
    with suppress(OSError):  # the reader has closed it
        sys.stderr.flush()
    os._exit(exit_status)


def run(argv: list[str]) -> int:
    if argv[:1] == ["acp"] and argv[1:2] != ["login"]:
        from sanderling.serve.stdio import serve  # an editor is waiting

        return serve(argv[1:])
    if argv[:1] == ["serve"]:
        from sanderling.serve.run import serve as serve_clients

        return serve_clients(argv[1:])
    if argv[:2] == ["acp", "login"]:
        argv = argv[1:]  # the protocol's convention: the agent's own command, and arguments
    return run_command(argv) if argv and argv[0] in COMMANDS else ask(argv)


def ask(argv: list[str]) -> int:
    if not argv and sys.stdin.isatty() and sys.stdout.isatty():
        from sanderling.cli.neovim import open_chat

        return open_chat()
    parser = print_parser({name: what for name, (_, what) in COMMANDS.items()})
    arguments, rest = parser.parse_known_args(argv)
    if not arguments.print and arguments.prompt in COMMANDS:
        parser.error(f"options come after the command: sanderling {arguments.prompt} …")
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    is_piped = not sys.stdin.isatty()
    if not arguments.print and arguments.prompt is not None:
        parser.error(
            f"there is no command '{arguments.prompt}'; to ask the model: sanderling -p {shlex.quote(arguments.prompt)}"
        )
    if not arguments.print and not is_piped:
        parser.error("-p PROMPT, or a command")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the turn can be stopped. While modules load, an exception can get lost in a callback of the import system.
        signal.signal(signal.SIGINT, _leave)
    from sanderling.cli.print_mode.run import print_answer

    return print_answer(arguments)


def _leave(*_: object) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def run_command(argv: list[str]) -> int:
    import argparse
    from importlib import import_module

    from sanderling.protocol.remedies import SHELL, use

    use(SHELL)

    gc.enable()
    parser = argparse.ArgumentParser(prog="sanderling", description=sanderling.__doc__)
    module, _ = COMMANDS[argv[0]]
    add = import_module(f"sanderling.cli.{module}").add  # the others are not loaded
    commands = parser.add_subparsers(dest="command", required=True)
    add(commands)
    arguments, rest = parser.parse_known_args(argv)
    if rest:  # `parse_args` would show the usage of the program
        commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments.run(arguments)


if __name__ == "__main__":
    main()
