"""A client on the official SDK for Python, over WebSocket: `python -m tests.serve.sdk_client CWD PROMPT URL TOKEN` prints what it has seen."""

import asyncio
import json
import sys

from acp.ws import create_websocket_stream

from acp import PROTOCOL_VERSION, connect_to_agent, text_block
from tests.acp.sdk_client import Client


async def main(cwd: str, prompt: str, url: str, token: str) -> None:
    client = Client()
    stream = await create_websocket_stream(url, headers={"Authorization": f"Bearer {token}"})
    agent = connect_to_agent(client, stream)
    await agent.initialize(protocol_version=PROTOCOL_VERSION)
    session = await agent.new_session(cwd=cwd, mcp_servers=[])
    session_id = session.session_id
    ended = await agent.prompt(session_id=session_id, prompt=[text_block(prompt)])
    waiting = asyncio.create_task(agent.prompt(session_id=session_id, prompt=[text_block("wait")]))
    await asyncio.sleep(0.5)
    await agent.cancel(session_id=session_id)
    cancelled = await waiting
    seen = {
        "updates": client.updates,
        "permissions": client.permissions,
        "ended": {"stopReason": ended.stop_reason},
        "cancelled": {"stopReason": cancelled.stop_reason},
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
