"""A client on the official SDK for Python, over WebSocket: `python -m tests.serve.sdk_client CWD PROMPT URL TOKEN` prints what it has seen."""

import asyncio
import json
import sys

from acp.ws import create_websocket_stream

from acp import connect_to_agent
from tests.acp.sdk_client import Client, use


async def main(cwd: str, prompt: str, url: str, token: str) -> None:
    client = Client()
    stream = await create_websocket_stream(url, headers={"Authorization": f"Bearer {token}"})
    ended, cancelled = await use(connect_to_agent(client, stream), cwd, prompt)
    seen = {
        "updates": client.updates,
        "permissions": client.permissions,
        "ended": {"stopReason": ended.stop_reason},
        "cancelled": {"stopReason": cancelled.stop_reason},
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
