"""The host's end of the file worker."""

import os
import socket
from typing import Any

import anyio

from sanderling.errors import SandboxError
from sanderling.sandbox import wire
from sanderling.sandbox.processes import Process


class Files:
    """
    Files as the sandbox sees them. Paths are absolute.

    Every method raises `OSError` with what the kernel said inside (a hidden path does not exist, what is protected is read-only),
    and `SandboxError` when the sandbox has ended.
    """

    def __init__(self, channel: socket.socket, process: Process) -> None:
        self._channel = channel
        self._process = process
        self._turn = anyio.Lock()

    async def read(self, path: str, offset: int = 0, limit: int = 1 << 20) -> tuple[bytes, int]:
        """At most `limit` bytes of a regular file from `offset`, and the size of all of it."""
        data, size = await self._ask("read", path, offset, limit)
        return data, size

    async def write(self, path: str, data: bytes) -> None:
        """Put `data` in the place of what `path` holds, all of it or nothing."""
        await self._ask("write", path, data)

    async def list(self, path: str) -> list[tuple[str, str]]:
        """The names in a directory, sorted, each with "file", "directory", "link" or "other"."""
        return await self._ask("list", path)

    async def _ask(self, operation: str, path: str, *arguments: object) -> Any:
        received: tuple[wire.Message, list[int]] | None = None
        async with self._turn:
            try:
                wire.send(self._channel, (operation, path, *arguments))
                with anyio.CancelScope(
                    shield=True
                ):  # or its answer would be taken for the next one's
                    await anyio.wait_readable(self._channel)
                    received = wire.receive(self._channel)
            except OSError as error:
                raise SandboxError(f"The sandbox has ended: {error.strerror}.") from error
        match received:
            case (("ok", result), _):
                return result
            case (("error", code), _):
                raise OSError(code, os.strerror(code), path)
            case _:
                raise SandboxError("The sandbox has ended.")

    def close(self) -> None:
        self._channel.close()
        self._process.close()
