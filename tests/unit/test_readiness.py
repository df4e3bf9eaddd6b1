"""What tools need is there when the model asks for one: got ready while it thinks, or while it writes the use."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from tests import loopback
from tests.conftest import DEADLINE_S, happens, prove
from tests.loopback import LoopbackServer, Reply, Until
from tests.sandbox.test_sandbox import supervisors
from tests.talk import BaseTalk, scripted

from sanderling.changes import commands
from sanderling.changes.states import FileChange
from sanderling.config import Settings
from sanderling.conversation import turn
from sanderling.conversation.turn import EAGER_DELAY_S
from sanderling.protocol.events import ToolEnded, TurnEnded, TurnStarted
from sanderling.protocol.messages import Prompt
from sanderling.providers import Provider
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.sandbox.execution_environment import ExecutionEnvironment
from sanderling.sandbox.manager import REST_AFTER_S
from sanderling.session.session import Session

FOR_EVER_MS = 3_600_000
BEGUN = loopback.message_start() + loopback.block_start(
    type="tool_use", id="t1", name="read", input={}
)
REST = (
    loopback.delta(kind="input_json_delta", partial_json='{"path": "file"}')
    + loopback.block_stop()
    + loopback.done("tool_use")
)


class Talk(BaseTalk):
    """A session in a project of its own."""

    def __init__(self, base: Path, provider: Provider, **options: Any) -> None:
        project = base / "home/project"
        project.mkdir(parents=True)
        (project / "file").write_text("what it says\n")
        super().__init__(
            Session.open(base / "state/sessions", "s1", str(project)), provider, **options
        )

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Self]:
        """While the session is served, with a prompt that has been sent."""
        async with self.served():
            self.submit()
            yield self
        await self.provider.aclose()

    def submit(self) -> None:
        self.conversation.submit(Prompt(f"p{len(self.events)}", "Do it."))

    async def turns(self, count: int = 1) -> None:
        await happens(lambda: len(self.of(TurnEnded)) == count)


def is_open() -> bool:
    return bool(supervisors(os.getpid()))


@pytest.fixture
def talk(tmp_path) -> Callable[..., Talk]:
    def make(*replies: list[dict[str, Any]], **options: Any) -> Talk:
        return Talk(tmp_path, scripted(*replies), **options)

    return make


@pytest.fixture
def talk_to(tmp_path, monkeypatch) -> Callable[..., Talk]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setenv("NO_PROXY", "*")

    def make(server: LoopbackServer, **options: Any) -> Talk:
        settings = Settings(str(tmp_path), base_url=server.url)
        return Talk(tmp_path, AnthropicProvider(settings), **options)

    return make


@pytest.mark.parametrize("is_eager", [True, False])
async def test_sandbox_is_open_before_the_model_that_takes_its_time_asks_for_a_tool(talk, is_eager):
    thinking = talk([{"delay_ms": FOR_EVER_MS}], is_eager=is_eager)
    async with thinking.asked():
        await happens(
            lambda: thinking.conversation.services.sandbox.manager.workers._files
        )  # its worker, too
        assert thinking.of(TurnEnded) == []


async def test_turn_that_needs_no_tool_leaves_no_processes(talk):
    """Though the project was looked at while the model was thinking, as for a command."""
    chatting = talk([{"delay_ms": FOR_EVER_MS}])
    async with chatting.asked():
        await happens(lambda: chatting.conversation.services.workspace.journal.scan._known)
        assert is_open()
        chatting.conversation.cancel()
        await chatting.turns()
        await happens(lambda: not is_open())


@prove
async def test_project_that_takes_long_is_looked_at_once_for_turns_without_tools(talk, monkeypatch):
    monkeypatch.setattr(commands, "QUICK_S", 0)
    chatting = talk(*[[{"delay_ms": FOR_EVER_MS}]] * 2)
    services, looks = chatting.conversation.services, []
    look = services.workspace.changes._look

    async def noted(environment: ExecutionEnvironment) -> list[FileChange]:
        looks.append(environment)
        return await look(environment)

    monkeypatch.setattr(services.workspace.changes, "_look", noted)
    async with chatting.asked():
        await happens(lambda: not services.workspace.changes.is_quick)
        chatting.conversation.cancel()
        await happens(lambda: not is_open())
        chatting.submit()
        await happens(lambda: services.sandbox.manager.workers._files)
        await anyio.sleep(4 * EAGER_DELAY_S)  # in which one that is quick would be looked at
    assert len(looks) == 1


@prove
async def test_turn_without_tools_looks_at_nothing_where_nothing_is_confined(talk):
    """Such a look cannot be cut off: the end of the turn would wait for it."""
    chatting = talk([{"delay_ms": FOR_EVER_MS}])
    chatting.conversation.services.sandbox.switch(is_on=False)
    async with chatting.asked():
        await happens(lambda: chatting.of(TurnStarted))
        await anyio.sleep(8 * EAGER_DELAY_S)
        assert not chatting.conversation.services.workspace.journal.scan._known


async def test_sandbox_opens_when_the_model_begins_to_write_a_tool_use(talk_to, monkeypatch):
    """However little time it has taken before."""
    monkeypatch.setattr(turn, "EAGER_DELAY_S", DEADLINE_S)
    may_go_on = threading.Event()
    with LoopbackServer() as server:
        server.answer(Reply(BEGUN, Until(may_go_on), REST), loopback.hello())
        beginning = talk_to(server)
        async with beginning.asked():
            await happens(is_open)
            assert beginning.of(ToolEnded) == []
            may_go_on.set()
            await beginning.turns()
    assert "what it says" in beginning.results[0].content


@pytest.mark.parametrize("is_eager", [True, False])
async def test_answer_that_comes_soon_starts_no_process(talk, monkeypatch, is_eager):
    """Print mode's is not eager."""
    monkeypatch.setattr(turn, "EAGER_DELAY_S" if is_eager else "PATIENT_DELAY_S", DEADLINE_S)
    quick = talk([{"delay_ms": 400}, {"text": "Done."}], is_eager=is_eager)
    async with quick.asked():
        await quick.turns()
        assert quick.conversation.services.sandbox.manager.sandbox is None
        assert not is_open()


@prove
async def test_shell_goes_on_after_a_rest_where_it_was(talk):
    first = {"command": "mkdir sub; cd sub; export GREETING=hello; echo there >/tmp/left"}
    again = {"command": 'echo "$(basename $PWD) $GREETING $(cat /tmp/left)"'}
    resting = talk(
        [{"tool_use": {"name": "bash", "input": first}}],
        [{"text": "Done."}],
        [{"tool_use": {"name": "bash", "input": again}}],
        [{"text": "Done."}],
    )
    resting.conversation.controls.set_mode("auto")
    async with resting.asked():
        await resting.turns()
        sandbox = resting.conversation.services.sandbox
        sandbox.manager.rest_after_s = 0
        with sandbox.manager.kept_open():
            pass
        await happens(lambda: not is_open())
        sandbox.manager.rest_after_s = REST_AFTER_S
        resting.submit()
        await resting.turns(2)
    assert "sub hello there" in resting.results[1].content
