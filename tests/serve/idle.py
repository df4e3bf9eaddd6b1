"""
`python -m tests.serve.idle URL TOKEN PROJECT`: a client in a process of its own, which asks now and then.

For each time a line: the ms until the server has answered a ping, and until it has answered a prompt.
"""

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from websockets.asyncio.client import connect

from tests.serve.talk import Client

PAUSE_S = 0.5


async def main(url: str, token: str, project: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=headers) as socket:
        client = Client(socket)
        await client.initialize()
        session = await client.new(SimpleNamespace(project=Path(project)))
        while True:
            began = time.monotonic()
            await (await socket.ping())
            pinged = time.monotonic()
            assert await client.prompt(session, "ping") == "end_turn"
            ended = time.monotonic()
            print(1000 * (pinged - began), 1000 * (ended - pinged), flush=True)
            await asyncio.sleep(PAUSE_S)


asyncio.run(main(*sys.argv[1:]))
