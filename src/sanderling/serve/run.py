"""`sanderling serve`: serves clients until a signal arrives; sessions are saved and can be resumed."""

import argparse
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio

import sanderling
from sanderling.acp.agent.options import LEVELS
from sanderling.cli.print_mode.arguments import add_sandbox
from sanderling.cli.streams import say, stopping_signals
from sanderling.config import make_private, state_dir
from sanderling.conversation.opening import check_settings
from sanderling.errors import ConfigError, SanderlingError
from sanderling.protocol.remedies import CLIENT, use
from sanderling.sandbox.outer import VARIABLE as OUTER_VARIABLE
from sanderling.sandbox.sandbox import Sandbox
from sanderling.serve.listen_address import DEFAULT, ListenAddress, listening, parse_listen_address
from sanderling.serve.registry import SessionRegistry, ToolsOf
from sanderling.serve.server import Door, close_server, open_server
from sanderling.serve.stdio import collect_later, own_layers_with
from sanderling.serve.token import current_token, own_token

EXIT_USAGE, EXIT_SIGNAL = 2, 128
LAST_WORDS_S = 5.0  # for sessions to close
FAR = (
    "{listen} can be reached from other machines, without encryption: put a TLS reverse proxy in front of "
    "127.0.0.1, use ssh, or add --insecure-remote on a trusted network"
)


def serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sanderling serve",
        description="Serve sessions over WebSocket (the Agent Client Protocol, one message per frame). Clients may disconnect and return.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen",
        default=DEFAULT,
        metavar="HOST:PORT|unix:PATH",
        help="where to listen (default: unix:, a socket in the state directory)",
    )
    parser.add_argument(
        "--token", action="store_true", help="print the token that clients need, and exit"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="allow browser pages of this origin, e.g. https://example.com",
    )
    parser.add_argument(
        "--insecure-remote",
        action="store_true",
        help="allow an address that other machines can reach, unencrypted",
    )
    add_sandbox(parser)
    parser.add_argument(
        "--tools",
        choices=("server", "client"),
        default="server",
        help="where tools run: on this server, or on each client's machine; models, keys and history stay on the server",
    )
    parser.add_argument(
        "--model", default="", metavar="NAME", help="model for new sessions; 'demo' needs no key"
    )
    parser.add_argument(
        "--version", action="version", version=f"sanderling {sanderling.__version__}"
    )
    return parser


def serve(argv: list[str]) -> int:
    """Serve until a signal arrives; return the exit status."""
    arguments = serve_parser().parse_args(argv)
    try:
        if arguments.token:
            sys.stdout.write(f"{own_token(state_dir())}\n")
            return 0
        listen_address = parse_listen_address(arguments.listen)
        if not listen_address.is_local and not arguments.insecure_remote:
            raise ConfigError(FAR.format(listen=arguments.listen))
        if arguments.sandbox:
            os.environ[OUTER_VARIABLE] = arguments.sandbox
        own = own_layers_with(arguments.model).settings()
        check_settings(own, str(Path.cwd()))  # or each client would be the first to see a mistake
        make_private(own)
        renew = partial(current_token, state_dir())
        door = Door(own_token(state_dir()), frozenset(arguments.allow_origin), renew)
        return anyio.run(_serve, arguments.model, arguments.tools, listen_address, door)
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE


async def _serve(model: str, tools: ToolsOf, listen_address: ListenAddress, door: Door) -> int:
    use(CLIENT)
    with (
        listening(listen_address) as socket,
        anyio.open_signal_receiver(*stopping_signals()) as signals,
    ):
        async with anyio.create_task_group() as tasks:
            registry = SessionRegistry(lambda: own_layers_with(model), tasks, tools)
            server = await open_server(registry, door, socket)
            _say_where(listen_address, socket.getsockname())
            tasks.start_soon(registry.sweep)
            tasks.start_soon(collect_later)
            if tools == "server":
                tasks.start_soon(_learn_sandbox, registry)
            number = await anext(signals)
            tasks.start_soon(_leave_at_signal, signals)
            say(f"{signal.Signals(number).name}: sessions are saved and can be resumed")
            with anyio.move_on_after(LAST_WORDS_S):
                await registry.close_all()
            # Before the server closes: a new server may bind the path as soon as this one is gone.
            _remove(listen_address)
            await close_server(server)
            tasks.cancel_scope.cancel()
    return 0


async def _leave_at_signal(signals: AsyncIterator[signal.Signals]) -> None:
    async for number in signals:
        os._exit(EXIT_SIGNAL + number)  # a second signal: do not wait


def _say_where(listen_address: ListenAddress, address: tuple[str, int] | str) -> None:
    where = f"unix:{listen_address.path}"
    if not isinstance(address, str):
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        where = f"ws://{host}:{address[1]}/acp"
    sys.stdout.write(f"{where}\n")
    sys.stdout.flush()
    say("clients need the token that `sanderling serve --token` prints")


async def _learn_sandbox(registry: SessionRegistry) -> None:
    """Determine the sandbox's level. Clients receive it before they open a session."""
    with suppress(SanderlingError, OSError):
        report = await Sandbox.probe()
        registry.sandbox = LEVELS[report.level]


def _remove(listen_address: ListenAddress) -> None:
    if listen_address.path:
        Path(listen_address.path).unlink(missing_ok=True)
