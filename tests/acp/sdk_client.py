"""A client on the official SDK for Python: `python -m tests.acp.sdk_client CWD PROMPT COMMAND…` prints what it has seen as JSON."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block


class Client:
    """Takes what is told, and allows what is asked."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.permissions = 0

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ARG002
        self.updates.append(update.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def request_permission(
        self,
        session_id: str,  # noqa: ARG002
        tool_call: Any,  # noqa: ARG002
        options: Any,
        **_: Any,
    ) -> Any:
        self.permissions += 1
        return {"outcome": {"outcome": "selected", "optionId": options[0].option_id}}

    def on_connect(self, conn: Any) -> None:
        pass


async def use(agent: Any, cwd: str, prompt: str) -> tuple[Any, Any]:
    """How a prompt ended, and one that was cancelled."""
    await agent.initialize(protocol_version=PROTOCOL_VERSION)
    session = await agent.new_session(cwd=cwd, mcp_servers=[])
    session_id = session.session_id
    ended = await agent.prompt(session_id=session_id, prompt=[text_block(prompt)])
    waiting = asyncio.create_task(agent.prompt(session_id=session_id, prompt=[text_block("wait")]))
    await asyncio.sleep(0.5)
    await agent.cancel(session_id=session_id)
    return ended, await waiting


async def main(cwd: str, prompt: str, *command: str) -> None:
    client = Client()
    async with spawn_agent_process(lambda _: client, *command, cwd=cwd) as (agent, _):
        ended, cancelled = await use(agent, cwd, prompt)
        seen = {
            "updates": client.updates,
            "permissions": client.permissions,
            "ended": ended.stop_reason,
            "cancelled": cancelled.stop_reason,
            "usage": ended.usage and ended.usage.input_tokens,
        }
    print(json.dumps(seen))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
