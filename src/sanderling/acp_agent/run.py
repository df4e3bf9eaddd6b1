"""One run of `sanderling acp`: from the first message to the end of the input, or a signal; nothing is left running."""

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
from sanderling.acp.connection import Connection
from sanderling.acp.wire_log import VARIABLE, WireLog
from sanderling.acp_agent.stdio import Stdin, Stdout, keep_to_messages
from sanderling.config import Layer
from sanderling.config.layers import Layers, own_layers
from sanderling.protocol.remedies import CLIENT, use

EXIT_USAGE, EXIT_SIGNAL = 2, 128
LAST_WORDS_S = 5.0  # for sessions that end


def acp_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sanderling acp",
        description="Sanderling as an agent in an editor that speaks the Agent Client Protocol, over standard input and output.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "login", nargs="?", choices=("login",), help="keep an API key in the keychain, then end"
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="the model of new sessions; demo needs no key"
    )
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
    """Serve the client until it has gone; return the exit status."""
    arguments = acp_parser().parse_args(argv)
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
    from sanderling.acp_agent.face import AgentFace
    from sanderling.acp_agent.own_sessions import OwnSessions

    use(CLIENT)
    ended: list[int] = []
    async with anyio.create_task_group() as tasks:
        sessions = OwnSessions(lambda: own_layers_with(model), tasks)
        face = AgentFace(lambda: own_layers_with(model), sessions)
        connection = Connection(
            Stdin(),
            Stdout(messages),
            face.methods(),
            {**face.notifications(), **sessions.keys.notifications()},
            wire_log=wire_log,
            on_end=sessions.end,
        )
        face.connect(connection)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            tasks.start_soon(_end_at_signal, signals, connection, ended)
            tasks.start_soon(collect_later)
            await connection.serve()
            with anyio.move_on_after(LAST_WORDS_S):
                await sessions.ended()
            tasks.cancel_scope.cancel()
    return ended[0] if ended else 0


async def _end_at_signal(
    signals: AsyncIterator[signal.Signals], connection: Connection, ended: list[int]
) -> None:
    async for number in signals:
        ended.append(EXIT_SIGNAL + number)
        connection.close()


async def collect_later() -> None:
    """Have garbage collected once what lives as long as the process is loaded, which `__main__` waits for."""
    await anyio.sleep(2)
    gc.freeze()
    gc.enable()


def own_layers_with(model: str) -> Layers:
    """The settings of the person's own file, and of the command line the model of new sessions, if it names one."""
    layers = own_layers()
    return (
        replace(layers, command_line=Layer("the command line", {"model": model}))
        if model
        else layers
    )
