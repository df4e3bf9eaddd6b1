"""`sanderling remote`: a conversation with Sanderling on another machine or in a container, over ssh or another command."""

import argparse
from typing import Any

from sanderling.acp.remote.address import ssh_address, via_address
from sanderling.cli.client import EXIT_USAGE, HELP, talk
from sanderling.cli.streams import say
from sanderling.errors import ConfigError
from sanderling.text import printable


def add(commands: Any) -> None:
    remote = commands.add_parser(
        "remote", epilog=f"{HELP}. Files, commands and the sandbox are on the other machine."
    )
    remote.add_argument(
        "place", metavar="HOST:PATH", help="over ssh; ssh://HOST/PATH is the same. With --via: PATH"
    )
    remote.add_argument(
        "--via",
        default="",
        metavar="COMMAND",
        help="command to reach the machine instead of ssh, e.g. 'docker exec -i NAME'",
    )
    remote.add_argument(
        "--remote-keys",
        action="store_true",
        help="call models from the other machine, with its API keys",
    )
    remote.add_argument("-p", dest="prompt", metavar="TEXT", help="send one prompt, then exit")
    remote.set_defaults(run=talk_there)


def talk_there(arguments: argparse.Namespace) -> int:
    try:
        address = _address(arguments)
    except ConfigError as error:
        say(str(error))
        return EXIT_USAGE
    fixed = {"agent": "", "connect": address, "cwd": "", "no_sandbox": False}
    return talk(argparse.Namespace(prompt=arguments.prompt, **fixed))


def _address(arguments: argparse.Namespace) -> str:
    place, via, has_own_keys = printable(arguments.place), arguments.via, arguments.remote_keys
    if via:
        return via_address(printable(via), place, has_own_keys=has_own_keys)
    return ssh_address(place, has_own_keys=has_own_keys)
