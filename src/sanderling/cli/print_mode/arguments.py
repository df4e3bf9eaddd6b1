"""The flags of `sanderling -p`. Imports nothing that would delay the report of a wrong flag."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import sanderling
from sanderling.cli.numbers import positive, whole
from sanderling.protocol.modes import Effort

EXIT_STATUS = """\
exit status: 0 success; 1 error; 2 usage error; 3 something was denied;
4 --max-cost, --max-tokens or --max-time reached; 5 the answer does not fit --json-schema;
128 + N stopped by signal N (130: interrupted)"""


def print_parser(commands: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser, whose help also lists the program's other `commands`, each with a summary."""
    listed = "\n".join(f"  {name:<10}{what}" for name, what in commands.items())
    parser = argparse.ArgumentParser(
        prog="sanderling",
        usage="sanderling\n       sanderling -p [options] [PROMPT]\n       sanderling COMMAND ...",
        description=f"{sanderling.__doc__} Open Neovim with the chat, or with -p run one prompt without Neovim.",
        epilog=f"commands, each with a --help:\n{listed}\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new flag must not break an abbreviation that scripts use
    )
    add = parser.add_argument
    add("--version", action="version", version=f"sanderling {sanderling.__version__}")
    add(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="the prompt; piped input is attached to it, or is the prompt without it",
    )
    add("-p", "--print", action="store_true", help="send one prompt, print the answer")
    _add_output_flags(parser)
    _add_permission_flags(parser)
    add(
        "--model",
        default="",
        metavar="NAME",
        help="the model; script:FILE replays a recording, demo needs no key",
    )
    add("--no-thinking", action="store_true", help="turn off thinking where the model allows it")
    add(
        "--effort",
        choices=get_args(Effort),
        help="how much the model thinks and writes, if it takes the level",
    )
    add(
        "--role",
        "--agent",
        default="",
        metavar="NAME",
        help="the role: a table of `roles` in the settings, or a file agents/NAME.md",
    )
    add("--max-turns", type=whole, metavar="N", help="limit on model calls; 0: no limit")
    _add_limits(parser)
    _add_session_flags(parser)
    add(
        "--project",
        default="",
        metavar="DIR",
        help="project directory (default: the nearest one upwards with .git)",
    )
    # For the process that `sanderling batch` starts for a task.
    add("--settings", type=Path, help=argparse.SUPPRESS)
    add("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--output-format",
        choices=("text", "json", "stream-json"),
        default="text",
        help="text: the answer; json: one object with it; stream-json: one line per event (default: text)",
    )
    add(
        "--record",
        type=Path,
        metavar="FILE",
        help="write the answers to FILE as a script, redacted",
    )
    add(
        "--trajectory",
        type=Path,
        metavar="FILE",
        help="write the session to FILE as a trajectory (ATIF 1.8), which Harbor reads",
    )
    add("--quiet", action="store_true", help="print only errors on standard error")


def _add_permission_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode",
        choices=("ask", "auto", "plan"),
        help="ask: only what needs no approval; auto: also what the sandbox confines; plan: read-only (default: that of the settings, ask)",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="allow a tool use, e.g. 'bash git status', 'edit src/**', 'web_fetch docs.example.com'; can be repeated",
    )
    parser.add_argument(
        "--net",
        choices=("off", "proxy", "on"),
        help="network of commands: off, proxy (listed hosts only) or on (default: that of the settings, off)",
    )
    add_sandbox(parser)


def add_sandbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sandbox",
        choices=("outer", "outer-unchecked"),
        help="outer: the container around Sanderling is the sandbox, refused if there seems to be none (outer-unchecked: in a virtual machine)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--max-cost",
        type=positive,
        default=0.0,
        metavar="USD",
        help="make no more requests after this many dollars",
    )
    add(
        "--max-tokens",
        type=whole,
        default=0,
        metavar="N",
        help="make no more requests after this many tokens, of child sessions as well",
    )
    add(
        "--max-time",
        type=positive,
        default=0.0,
        metavar="SECONDS",
        help="stop the run after this many seconds",
    )
    add(
        "--json-schema",
        type=Path,
        metavar="FILE",
        help="answer with JSON that fits the schema in FILE",
    )
    add(
        "--fallback-model",
        default="",
        metavar="NAME",
        help="the model to continue with if the first is overloaded or unavailable",
    )


def _add_session_flags(parser: argparse.ArgumentParser) -> None:
    session = parser.add_mutually_exclusive_group()
    session.add_argument(
        "--continue",
        dest="is_continued",
        action="store_true",
        help="continue the project's newest session",
    )
    session.add_argument("--resume", metavar="ID", help="continue this session")
    parser.add_argument(
        "--drop-waiting",
        action="store_true",
        help="remove the prompts waiting in the session; by default they are kept, and not sent",
    )
    parser.add_argument(
        "--worktree",
        nargs="?",
        const="",
        metavar="REF",
        help="work in a new worktree of HEAD, or of this branch or commit; the project stays as it is",
    )
    session.add_argument("--no-session", action="store_true", help="do not store the session")
