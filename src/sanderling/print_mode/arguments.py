"""The flags of `sanderling -p`. Nothing is imported here that a wrong one would have to wait for."""

import argparse
from pathlib import Path

import sanderling

EXIT_STATUS = "exit status: 0 done; 1 an error; 2 wrong usage; 3 something was denied; 128 + N stopped by signal N (130: interrupted)"


def print_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sanderling",
        usage="sanderling -p [options] [PROMPT]\n       sanderling {check,sandbox,sessions} ...",
        description=f"{sanderling.__doc__} Ask it once, without Neovim.",
        epilog=EXIT_STATUS,
        allow_abbrev=False,  # or a new flag would take away what a script has called an old one
    )
    add = parser.add_argument
    add("--version", action="version", version=f"sanderling {sanderling.__version__}")
    add(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="what to ask; standard input goes along, or is the prompt",
    )
    add("-p", "--print", action="store_true", help="ask once, print the answer")
    add(
        "--output-format",
        choices=("text", "json", "stream-json"),
        default="text",
        help="the answer; one object; an event per line (text)",
    )
    add(
        "--mode",
        choices=("ask", "auto", "plan"),
        default="ask",
        help="nothing that changes or runs something; what the sandbox confines; only looking (ask)",
    )
    add(
        "--allow",
        action="append",
        default=[],
        metavar="RULE",
        help="let this through: 'bash git status', 'edit src/**', 'web_fetch docs.example.com'",
    )
    add("--net", choices=("off", "proxy", "on"), default="off", help="commands' network (off)")
    add("--model", default="", metavar="NAME", help="who answers; script:FILE replays a recording")
    add("--max-turns", type=_count, metavar="N", help="calls of the model; 0: no limit")
    session = parser.add_mutually_exclusive_group()
    session.add_argument(
        "--continue", dest="is_continued", action="store_true", help="the project's newest session"
    )
    session.add_argument("--resume", default="", metavar="ID", help="this session")
    session.add_argument("--no-session", action="store_true", help="leave no log")
    add("--project", default="", metavar="DIR", help="the nearest directory upwards with .git")
    add("--record", type=Path, metavar="FILE", help="keep the answers as a script, redacted")
    add("--quiet", action="store_true", help="nothing but errors on standard error")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0 on")
    return int(text)
