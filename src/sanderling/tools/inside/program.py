"""The frame of a program that runs inside the sandbox: its limits, one JSON value in, one out (`isolated.py` reads it)."""

import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

MAX_MEMORY_BYTES = 2 << 30  # 5 MB of list items need 0.7 GB as Markdown
MAX_CPU_S = 30

T = TypeVar("T")


def serve(argument: str, kind: type[T], reply_to: Callable[[T], object]) -> None:
    """Print the reply to the JSON `argument` as the last line."""
    with suppress(ValueError, OSError):  # not supported on every system
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    reply = reply_to(msgspec.json.decode(argument, type=kind))
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(reply))
