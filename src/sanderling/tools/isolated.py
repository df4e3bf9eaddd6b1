"""Programs of our own that run inside the sandbox, because they parse what strangers wrote."""

import os
import sys
from contextlib import suppress

import anyio
from anyio.abc import ByteReceiveStream

MAX_REPLY_BYTES = 1 << 20
_START = (
    "import sys; sys.path += {path!r};"
    " from sanderling.tools.inside.{module} import main; main(sys.argv[1])"
)


def command(module: str) -> list[str]:
    """
    Return the command for a module of `inside`, with this Python and its packages; one argument follows.

    A virtual environment's Python is not visible inside the sandbox, but its base Python is.
    """
    python: str = getattr(sys, "_base_executable", "") or sys.executable
    path = [directory for directory in sys.path if directory]
    return [os.path.realpath(python), "-I", "-S", "-c", _START.format(path=path, module=module)]


async def output_of(stdout: ByteReceiveStream) -> bytes:
    output = bytearray()
    with suppress(anyio.EndOfStream):
        while len(output) < MAX_REPLY_BYTES:
            output += await stdout.receive()
    return bytes(output)
