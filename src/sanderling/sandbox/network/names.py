"""A name server that resolves nothing and reports the names it is asked for (RFC 1035, section 4)."""

import asyncio
import socket
import struct
from contextlib import suppress

import anyio.lowlevel

from sanderling.sandbox.denials import Denial, Rule
from sanderling.sandbox.environment import mark_in_name
from sanderling.sandbox.network.denied import DenialThrottle, OnDenial

# Every client accepts NXDOMAIN at once. After REFUSED, glibc asks again and reports a temporary failure, and musl waits for its timeout.
_NXDOMAIN = 3
_IS_ANSWER, _OPCODE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080

_HEADER_BYTES = 12
_MAX_LABEL_BYTES, _MAX_NAME_BYTES = 63, 255
_MAX_QUERY_BYTES = 4096


async def answer_names(responder: socket.socket, report: OnDenial, rule: Rule) -> None:
    """
    Answer every DNS query with NXDOMAIN until cancelled, then close the socket.

    Requested names are reported with `rule`, except this machine's names and reverse lookups.
    """
    report = DenialThrottle(report)
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
                asked, answer = question
                name, mark = mark_in_name(asked)
                with suppress(OSError):  # the client is gone
                    responder.sendto(answer, client)
                if not (
                    name in quiet or name.endswith((".localhost", ".in-addr.arpa", ".ip6.arpa"))
                ):
                    report(Denial("resolve", name, rule, by=mark))


def _question(query: bytes) -> tuple[str, bytes] | None:
    """Return the requested name of a well-formed query, made printable, and the response."""
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
