"""A WebSocket as the two streams of a connection: each text frame is a message, without a newline."""

import anyio
from websockets.asyncio.connection import Connection as WebSocket
from websockets.exceptions import ConnectionClosed


class WebSocketStreams:
    """The streams of one WebSocket. Frames that are not text are ignored, as the draft of the transport requires."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> bytes:
        try:
            while True:
                frame = await self._socket.recv()
                if isinstance(frame, str):
                    # JSON strings contain no raw line breaks, and elsewhere a line break is just whitespace.
                    return frame.encode(errors="replace").replace(b"\n", b" ") + b"\n"
        except ConnectionClosed as error:
            raise anyio.EndOfStream from error

    async def send(self, item: bytes) -> None:
        try:
            for line in item.splitlines():
                await self._socket.send(line, text=True)
        except ConnectionClosed as error:
            raise anyio.BrokenResourceError from error
