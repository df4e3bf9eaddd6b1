"""An agent on the official Python SDK: thinks, reads through its client, asks about an edit, and says what came of it."""

import asyncio
from typing import Any

from acp.helpers import (
    start_tool_call,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)

from acp import PROTOCOL_VERSION, Agent, run_agent
from acp.schema import (
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)


class Answering(Agent):
    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=PROTOCOL_VERSION)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self.cwd = cwd
        return NewSessionResponse(session_id="sdk")

    async def cancel(self, **_: Any) -> None:
        self.stopped.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        self.stopped.clear()
        client, text = self.client, prompt[0].text
        if text == "wait":
            await self.stopped.wait()
            return PromptResponse(stop_reason="cancelled")
        await client.session_update(session_id, update_agent_thought_text("Let me see."))
        path = f"{self.cwd}/a.txt"
        found = await client.read_text_file(session_id=session_id, path=path)
        diff = tool_diff_content(path, "two\n", found.content)
        call = start_tool_call("c1", "Edit a.txt", kind="edit", status="pending", content=[diff])
        await client.session_update(session_id, call)
        options = [PermissionOption(option_id="y", name="Yes", kind="allow_once")]
        asked = ToolCallUpdate(tool_call_id="c1")
        answer = await client.request_permission(
            session_id=session_id, tool_call=asked, options=options
        )
        await client.write_text_file(session_id=session_id, path=path, content="two\n")
        await client.session_update(session_id, update_tool_call("c1", status="completed"))
        said = f"{found.content!r} {answer.outcome.outcome}"
        await client.session_update(session_id, update_agent_message_text(said))
        return PromptResponse(stop_reason="end_turn")


asyncio.run(run_agent(Answering()))
