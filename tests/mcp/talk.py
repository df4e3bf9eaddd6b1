"""Sessions with tool servers whose model replays a script, and servers over HTTP that run beside them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.protocol.actions import AnswerApproval, SubmitPrompt
from sanderling.protocol.events import ApprovalRequested, ToolServersChanged, TurnEnded
from sanderling.protocol.messages import Prompt, ToolResult
from tests.conftest import DEADLINE_S, ROOT, wait_until

NOTES = Path(__file__).parent / "notes_server.py"
PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


PATIENT_CLI = f"""
import sys
from sanderling.__main__ import main
from sanderling.mcp import server

server.CONNECT_S = {DEADLINE_S}
sys.exit(main())
"""
"""`sanderling`, with more patience: on a machine that is busy Python's SDK, in a server, needs more than ten seconds to get ready."""


@contextmanager
def notes_over_http(port: int, *how: str, **environment: str) -> Iterator[str]:
    """The URL of a server of ours over HTTP, as long as it runs."""
    argv = [sys.executable, "-m", "tests.mcp.notes_server", "http", str(port), *how]
    server = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **environment})
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()


@contextmanager
def everything_over_http(port: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Npm's `server-everything` over HTTP, and its process."""
    program = (
        ROOT / "tests/peers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    )
    if not (shutil.which("node") and program.exists()):
        pytest.skip("no Node, or not its programs")
    argv = ["node", str(program), "streamableHttp"]
    server = subprocess.Popen(
        argv, env={**os.environ, "PORT": str(port)}, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp", server
    finally:
        server.kill()
        server.wait()


def wait_for_port(port: int) -> None:
    def answers() -> bool:
        try:
            httpx2.get(f"http://127.0.0.1:{port}/", timeout=DEADLINE_S)
        except httpx2.TransportError:
            return False
        return True

    wait_until(answers, "the server listens")


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that uses a tool."""
    return {"step": [{"tool_use": {"name": name, "input": arguments}}]}


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def tables_of(servers: dict[str, dict[str, Any]]) -> str:
    """What declares them in a file of settings."""
    lines: list[str] = []
    for name, fields in servers.items():
        lines.append(f"[mcp.servers.{name}]")
        lines += [f"{key} = {toml(value)}" for key, value in fields.items()]
    return "\n".join(lines)


def says(text: str) -> dict[str, Any]:
    return {"step": [{"text": text}]}


class Talk:
    """A session that is open. `answers` are given to questions, by their kind; without one, a question waits."""

    def __init__(self, agent: Any, events: list[Any]) -> None:
        self.agent = agent
        self.events = events
        self.services = agent.services

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, condition: Any) -> Any:
        while not (found := condition()):
            await anyio.sleep(0.01)
        return found

    async def question(self, kind: str, count: int = 1) -> ApprovalRequested:
        """The question of this kind, as soon as there are so many."""
        asked = await self.until(
            lambda: [
                found
                for found in self.of(ApprovalRequested)
                if found.kind == kind and len(self._asked(kind)) >= count
            ]
        )
        return asked[-1]

    def _asked(self, kind: str) -> list[ApprovalRequested]:
        return [each for each in self.of(ApprovalRequested) if each.kind == kind]

    def answer(self, question: ApprovalRequested, answer: Any, **more: Any) -> None:
        self.agent.act(AnswerApproval(question.id, answer, **more))

    async def say(self, text: str) -> None:
        """Have a turn, and wait for its end."""
        count = len(self.of(TurnEnded))
        self.submit(text)
        await self.until(lambda: len(self.of(TurnEnded)) > count)

    def submit(self, text: str) -> None:
        self.agent.act(SubmitPrompt(Prompt(f"p{len(self.events)}", text)))

    async def state(self, name: str, state: str) -> Any:
        """The server of this name, as soon as it is so."""

        def found() -> Any:
            servers = self.of(ToolServersChanged)[-1:]
            each = [s for changed in servers for s in changed.servers if s.name == name]
            return each[0] if each and each[0].state == state else None

        return await self.until(found)

    def told(self) -> str:
        """All that the model was told, in the order in which it was."""
        blocks = (block for message in self.services.session.history for block in message.content)
        return "\n".join(
            str(getattr(block, "text", getattr(block, "content", ""))) for block in blocks
        )

    def results(self) -> list[Any]:
        blocks = (block for message in self.services.session.history for block in message.content)
        return [block.content for block in blocks if isinstance(block, ToolResult)]


@asynccontextmanager
async def talking(
    base: Path, *replies: dict[str, Any], project: Path | None = None, **settings: Any
) -> AsyncIterator[Talk]:
    """A session of a project below `base`."""
    place = project or base / "project"
    place.mkdir(parents=True, exist_ok=True)
    script = base / "script.json"
    script.write_text(
        json.dumps({"version": 1, "reply": [*replies, {**says("Done."), "repeat": True}]})
    )
    options = {"provider": "scripted", "script": str(script), **settings}
    if servers := options.pop("mcp_servers", None):
        options["mcp"] = {"servers": servers}
    layers = Layers(state_dir=str(base / "state"), setup=Layer("setup()", options))
    events: list[Any] = []
    with anyio.fail_after(DEADLINE_S):
        opened = await open_conversation(
            "s1", str(place), layers, events.append, SessionOptions(is_shown=True)
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.agent.serve)
            yield Talk(opened.agent, events)
            opened.agent.close()
