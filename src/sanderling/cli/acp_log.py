"""`sanderling acp-log FILE`: the log of a connection in readable form."""

import argparse
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET

from sanderling.acp.wire.wire_log import Logged
from sanderling.text import visible

ARROWS = {"in": "→", "out": "←"}
SHOWN_CHARS = 400
EXIT_USAGE = 2


def add(commands: Any) -> None:
    command = commands.add_parser("acp-log")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--full", action="store_true", help="do not shorten messages")
    command.set_defaults(run=show_log)


def show_log(arguments: argparse.Namespace) -> int:
    methods: dict[Any, str] = {}
    try:
        with arguments.file.open("rb") as file:
            for number, line in enumerate(file, 1):
                sys.stdout.write(f"{_shown(line, number, methods, is_full=arguments.full)}\n")
    except OSError as error:
        sys.stderr.write(f"sanderling: {arguments.file}: {error.strerror}\n")
        return EXIT_USAGE
    return 0


def _shown(line: bytes, number: int, methods: dict[Any, str], *, is_full: bool) -> str:
    try:
        logged = msgspec.json.decode(line, type=Logged)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"(line {number} is incomplete)"
    head = f"{logged.at:%H:%M:%S.%f}"[:-3] + f" {ARROWS[logged.direction]}"
    if logged.message is UNSET:
        text = f"not a message: {logged.text}"
    else:
        text = _described(msgspec.json.decode(logged.message), logged.direction, methods)
    shown = visible(text).replace("\n", "<U+000A>")  # methods and ids are arbitrary text
    return f"{head} {_cut(shown, is_full=is_full)}"


def _described(message: dict[str, Any], direction: str, methods: dict[Any, str]) -> str:
    request_id, method = message.get("id"), message.get("method")
    if isinstance(method, str):
        if "id" in message:
            methods[direction, str(request_id)] = method
        return " ".join(filter(None, (_name(message, method), _json(message.get("params")))))
    other = "in" if direction == "out" else "out"
    what = methods.pop((other, str(request_id)), "")
    if "error" in message:
        error = message["error"]
        return f"#{request_id} {what} failed: {_json(error)}"
    return f"#{request_id} {what} → {_json(message.get('result'))}"


def _name(message: dict[str, Any], method: str) -> str:
    """Return the method, with the kind if it is an update."""
    params = message.get("params")
    update = cast("dict[str, Any]", params).get("update") if isinstance(params, dict) else None
    kind = cast("dict[str, Any]", update).get("sessionUpdate") if isinstance(update, dict) else ""
    number = f"#{message['id']} " if "id" in message else ""
    return f"{number}{method} {kind or ''}".rstrip()


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _cut(text: str, *, is_full: bool) -> str:
    return text if is_full or len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
