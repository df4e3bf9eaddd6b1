"""A WebSocket as the two streams of a connection: a message is a text frame, without the end of a line."""

import anyio
from websockets.asyncio.connection import Connection as WebSocket
from websockets.exceptions import ConnectionClosed


class WebSocketStreams:
    """The streams of one WebSocket. Frames that are not text are passed over, as the transport's draft has it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> bytes:
        try:
            while True:
                frame = await self._socket.recv()
                if isinstance(frame, str):
                    # No text of JSON has a line break in it: outside of texts that is but a blank.
                    return frame.encode(errors="replace").replace(b"\n", b" ") + b"\n"
        except ConnectionClosed as error:
            raise anyio.EndOfStream from error

    async def send(self, item: bytes) -> None:
        try:
            for line in item.splitlines():
                await self._socket.send(line, text=True)
        except ConnectionClosed as error:
            raise anyio.BrokenResourceError from error
