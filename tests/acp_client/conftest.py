"""A conversation with an agent that does as its script says: all of it is real, the sandbox too, but for a face."""

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sanderling.acp.wire.wire_log import VARIABLE
from sanderling.config.file import setup_layer
from sanderling.config.layers import Layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.protocol.actions import AnswerApproval, SubmitPrompt
from sanderling.protocol.events import (
    ApprovalRequested,
    ErrorOccurred,
    Notice,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from sanderling.protocol.messages import Prompt
from sanderling.sandbox.policy import TOO_WIDE
from tests.acp.schema import check_wire
from tests.conftest import DEADLINE_S

AGENT = Path(__file__).with_name("agent.py")
OF_PYTHON = [sys.prefix, *{sys.base_prefix} - TOO_WIDE]
"""The paths that this interpreter needs; /usr, where it is the system's, is shown to all."""


class Talk:
    """One session that is open, and all that it has told."""

    def __init__(self):
        self.events = []
        self.agent = None
        self.answer = None  # to questions
        self._changed = anyio.Event()
        self._numbers = iter(range(1, 1000))

    def emit(self, event):
        self.events.append(event)
        if isinstance(event, ApprovalRequested) and self.answer:
            self.act(AnswerApproval(event.id, **self.answer))
        self._changed.set()
        self._changed = anyio.Event()

    def act(self, action):
        self.agent.act(action)

    def of(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    async def wait_for(self, condition):
        with anyio.fail_after(DEADLINE_S):
            while not (found := condition()):
                with anyio.move_on_after(0.05):  # not all that is waited for is an event
                    await self._changed.wait()
        return found

    async def wait_for_turns(self, count=1):
        await self.wait_for(lambda: len(self.of(TurnEnded)) >= count)
        return self.of(TurnEnded)[-1].stop_reason

    def submit(self, text):
        self.act(SubmitPrompt(Prompt(f"p{next(self._numbers)}", text)))

    async def ask(self, text):
        count = len(self.of(TurnEnded)) + 1
        self.submit(text)
        return await self.wait_for_turns(count)

    @property
    def text(self):
        return "".join(event.text for event in self.of(TextDelta))

    @property
    def notices(self):
        return [event.text for event in self.of(Notice)]

    @property
    def errors(self):
        return [event.message for event in self.of(ErrorOccurred)]

    def tools(self):
        """The tool uses as the screen shows them: name, title, summary."""
        ends = {event.id: event for event in self.of(ToolEnded)}
        return [
            (event.tool, event.title, ends[event.id].summary if event.id in ends else None)
            for event in self.of(ToolStarted)
        ]


class Guests:
    """Sessions with a scripted agent, in one project."""

    def __init__(self, tmp_path, state_dir):
        self.project = tmp_path / "project"
        self.project.mkdir()
        self.state_dir = state_dir
        self.is_checked = True
        self.script_path = tmp_path / "agent" / "script.json"
        self.script_path.parent.mkdir()
        shutil.copy(AGENT, self.script_path.parent)

    def table(self, script, **more):
        self.script_path.write_text(json.dumps(script))
        here = self.script_path.parent
        command = [sys.executable, str(here / "agent.py"), str(self.script_path)]
        return {"command": command, "paths": [str(here), *OF_PYTHON], "title": "Mine", **more}

    @asynccontextmanager
    async def talk(self, script, session_id="s1", agent="mine", **more) -> AsyncIterator[Talk]:
        options = {"is_shown": True, "has_history": True, **more.pop("wishes", {})}
        mcp = {"mcp": {"servers": more.pop("mcp")}} if "mcp" in more else {}
        tables = {"agents": {"mine": self.table(script, **more)}, **mcp}
        layers = Layers(state_dir=str(self.state_dir), setup=setup_layer(tables))
        talk = Talk()
        opened = await open_conversation(
            session_id, str(self.project), layers, talk.emit, SessionOptions(agent=agent, **options)
        )
        talk.agent = opened.agent
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.agent.serve)
            yield talk
            opened.agent.close()


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """Sessions with guests; what we and they have said is held against the schema, where they say nothing wrong on purpose."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "wire"))
    it = Guests(tmp_path, tmp_path / "state")
    yield it
    for path in (tmp_path / "wire").glob("*.ndjson") if it.is_checked else ():
        assert path.stat().st_mode & 0o777 == 0o600
        check_wire([json.loads(line) for line in path.read_text().splitlines()])


@pytest.fixture
def anyio_backend():
    return "asyncio"
