"""`sanderling acp`: serves a client on standard input and output until the input ends or a signal arrives, then stops everything."""

import argparse
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
from msgspec.structs import replace

import sanderling
from sanderling.acp.agent.stdio import Stdin, Stdout, keep_to_messages
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.wire_log import VARIABLE, WireLog
from sanderling.cli.print_mode.arguments import add_sandbox
from sanderling.config import Layer
from sanderling.config.layers import Layers, own_layers
from sanderling.protocol.remedies import CLIENT, use
from sanderling.sandbox.outer import VARIABLE as OUTER_VARIABLE

EXIT_USAGE, EXIT_SIGNAL = 2, 128
LAST_WORDS_S = 5.0  # for sessions to close


def acp_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sanderling acp",
        description="Run as an agent for an editor that speaks the Agent Client Protocol, over standard input and output.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "login", nargs="?", choices=("login",), help="store an API key in the keychain and exit"
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="model for new sessions; 'demo' needs no key"
    )
    add_sandbox(parser)
    parser.add_argument(
        "--log-dir",
        default=os.environ.get(VARIABLE, ""),
        metavar="DIR",
        help=f"write each message, unredacted, to a new file in DIR (${VARIABLE})",
    )
    parser.add_argument(
        "--version", action="version", version=f"sanderling {sanderling.__version__}"
    )
    return parser


def serve(argv: list[str]) -> int:
    """Serve the client until it disconnects; return the exit status."""
    arguments = acp_parser().parse_args(argv)
    if arguments.sandbox:
        os.environ[OUTER_VARIABLE] = arguments.sandbox
    messages = keep_to_messages()
    with ExitStack() as stack:
        wire_log = None
        if arguments.log_dir:
            try:
                wire_log = WireLog(Path(arguments.log_dir).expanduser())
            except OSError as error:
                sys.stderr.write(f"sanderling: {arguments.log_dir}: {error.strerror}\n")
                return EXIT_USAGE
            stack.callback(wire_log.close)
        return anyio.run(_serve, arguments.model, messages, wire_log)


async def _serve(model: str, messages: int, wire_log: WireLog | None) -> int:
    from sanderling.acp.agent.frontend import AgentFrontend
    from sanderling.acp.agent.own_sessions import OwnSessions
    from sanderling.conversation.opening import open_for_client

    use(CLIENT)
    ended: list[int] = []
    async with anyio.create_task_group() as tasks:
        sessions = OwnSessions(open_for_client, lambda: own_layers_with(model), tasks)
        frontend = AgentFrontend(lambda: own_layers_with(model), sessions)
        connection = AcpConnection(
            Stdin(),
            Stdout(messages),
            frontend.methods(),
            {**frontend.notifications(), **sessions.keys.notifications()},
            wire_log=wire_log,
            on_end=sessions.end,
        )
        frontend.connect(connection)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            tasks.start_soon(_end_at_signal, signals, connection, ended)
            tasks.start_soon(collect_later)
            await connection.serve()
            with anyio.move_on_after(LAST_WORDS_S):
                await sessions.ended()
            tasks.cancel_scope.cancel()
    return ended[0] if ended else 0


async def _end_at_signal(
    signals: AsyncIterator[signal.Signals], connection: AcpConnection, ended: list[int]
) -> None:
    async for number in signals:
        ended.append(EXIT_SIGNAL + number)
        connection.close()


async def collect_later() -> None:
    """Enable garbage collection, which `__main__` disables, once the long-lived objects are loaded."""
    await anyio.sleep(2)
    gc.freeze()
    gc.enable()


def own_layers_with(model: str) -> Layers:
    """Return the user's settings, with `model` as if given on the command line, if it is not empty."""
    layers = own_layers()
    return (
        replace(layers, command_line=Layer("the command line", {"model": model}))
        if model
        else layers
    )
