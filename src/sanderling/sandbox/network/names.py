"""The name server of the session: it knows no name, and says which ones were asked for."""

import asyncio
import socket
import struct
from contextlib import suppress

import anyio.lowlevel

from sanderling.sandbox.denials import Denial, Rule
from sanderling.sandbox.network.denied import Once, OnDenial

# NXDOMAIN is believed at once by all: after REFUSED glibc asks again and calls the failure temporary, and musl goes on waiting for
# an answer until its time is up.
_NXDOMAIN = 3

_IS_ANSWER, _OPCODE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080

_HEADER_BYTES = 12

_MAX_LABEL_BYTES, _MAX_NAME_BYTES = 63, 255

_MAX_QUERY_BYTES = 4096


async def answer_names(responder: socket.socket, report: OnDenial, rule: Rule) -> None:
    """
    Answer every DNS query with "no such name" until cancelled; the socket is closed then.

    The names asked for are reported, with `rule`; not those of this machine, nor of addresses.
    """
    report = Once(report)
    own = socket.gethostname().lower()
    quiet = {"", "localhost", own, own.partition(".")[0]}
    with responder:
        responder.setblocking(False)
        while True:
            query, client = await asyncio.get_running_loop().sock_recvfrom(
                responder, _MAX_QUERY_BYTES
            )
            await anyio.lowlevel.checkpoint()
            if question := _question(query):
                name, answer = question
                with suppress(OSError):  # nobody waits for it
                    responder.sendto(answer, client)
                if not (
                    name in quiet or name.endswith((".localhost", ".in-addr.arpa", ".ip6.arpa"))
                ):
                    report(Denial("resolve", name, rule))


def _question(query: bytes) -> tuple[str, bytes] | None:
    """The name that a well-formed query asks for, made printable, and the answer to it."""
    labels: list[bytes] = []
    at = _HEADER_BYTES
    try:
        flags, questions = struct.unpack_from("!HH", query, 2)
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length])
            at += 1 + length
    except (struct.error, IndexError):
        return None
    end = at + 1 + 4  # the final empty label, type and class
    if (
        flags & (_IS_ANSWER | _OPCODE)
        or questions != 1
        or end > len(query)
        or at + 1 - _HEADER_BYTES > _MAX_NAME_BYTES
        or any(len(label) > _MAX_LABEL_BYTES for label in labels)
    ):
        return None
    flags = _IS_ANSWER | flags & _RECURSION_DESIRED | _RECURSION_AVAILABLE | _NXDOMAIN
    answer = query[:2] + struct.pack("!5H", flags, 1, 0, 0, 0) + query[_HEADER_BYTES:end]
    name = b".".join(labels).decode("ascii", "replace").lower()
    return "".join(c if c.isprintable() else "\ufffd" for c in name), answer
