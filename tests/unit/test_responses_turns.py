"""Turns of a model behind the Responses API: tools, retries, a session that is taken up again, another model's words."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.cached_api import text, thought, use
from tests.cached_responses import CachedResponses
from tests.conftest import DEADLINE_S, happens, prove
from tests.loopback import HANG_UP, Reply, Wait
from tests.talk import BaseTalk
from tests.wires import responses as wire
from tests.wires.servers import ResponsesServer

from sanderling.config import Settings
from sanderling.protocol.events import (
    AnswerRestarted,
    ErrorOccurred,
    ToolEnded,
    TurnEnded,
    UsageUpdated,
)
from sanderling.protocol.messages import Message, TextBlock, ThinkingBlock, ToolResult
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session

TODO = {"items": [{"content": "Look.", "status": "pending"}]}
ROUND = [[thought("Hm."), text("I plan."), use("call_1", "todo", **TODO)], [text("Done.")]]


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def talk_with(url: str, folder: Path, model: str = "openai:gpt-6.1-sol") -> BaseTalk:
    """A session whose model is behind the server."""
    own = {"openai": {"base_url": f"{url}/v1"}}
    settings = Settings(str(folder), model=model, providers=own, idle_timeout_s=0.5)
    session = Session.open(folder, "s1", str(folder))
    backoff = Backoff(3, first_s=0)
    return BaseTalk(session, make_provider(settings), settings=settings, backoff=backoff)


@pytest.fixture
async def server() -> AsyncIterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


@pytest.fixture
async def talk(server, tmp_path) -> AsyncIterator[BaseTalk]:
    talk = talk_with(server.url, tmp_path)
    yield talk
    await talk.aclose()


def cut_off(stream: bytes) -> bytes:
    """`stream` without what is said at once where it ends."""
    return stream[: stream.rindex(b"event: response.output_text.done")]


async def test_tool_runs_and_the_model_goes_on_with_its_thoughts(tmp_path):
    answers = iter(ROUND)
    with CachedResponses(lambda _body: next(answers)) as api:
        talk = talk_with(api.url, tmp_path)
        await talk.say("Plan it.")
        await talk.aclose()
    assert (api.refused, api.changes) == ([], [])
    assert talk.events[-1] == TurnEnded("end_turn")
    assert len(talk.of(ToolEnded)) == 1
    types = [item.get("type") for item in api.asked[1].request["input"]]
    assert types[-4:] == ["reasoning", "message", "function_call", "function_call_output"]
    first, second = (each.counts for each in api.asked)
    assert second["cached"] == first["input_tokens"], "what was written is read"
    usage = talk.of(UsageUpdated)[-1]
    assert usage.total.cache_creation_input_tokens == first["written"] + second["written"]
    assert usage.is_priced


async def test_session_that_is_taken_up_again_sends_what_it_has_sent(tmp_path):
    answers = iter([*ROUND, *ROUND[1:] * 2])
    with CachedResponses(lambda _body: next(answers)) as api:
        for words in ("Plan it.", "Go on."):
            talk = talk_with(api.url, tmp_path)
            await talk.say(words)
            await talk.aclose()
    assert (api.refused, api.changes) == ([], [])
    before, after = api.asked[1:]
    assert after.counts["cached"] == before.counts["input_tokens"]


async def test_another_model_is_not_shown_the_thoughts_of_the_one_before(tmp_path):
    answers = iter([*ROUND, *ROUND[1:]])
    with CachedResponses(lambda _body: next(answers)) as api:
        talk = talk_with(api.url, tmp_path)
        await talk.say("Plan it.")
        talk.conversation.controls.set_model("openai:gpt-6-luna")
        await talk.say("Go on.")
        await talk.aclose()
    assert api.refused == []
    last = api.asked[-1].request
    assert last["model"] == "gpt-6-luna"
    said = [item for item in last["input"] if item.get("role") == "assistant"]
    assert said == [{"role": "assistant", "content": words} for words in ("I plan.", "Done.")]
    assert not [item for item in last["input"] if "id" in item or item.get("type") == "reasoning"]


async def test_answer_that_is_cut_is_asked_for_again_and_replaced(server, talk):
    cut = cut_off(wire.item(0, wire.said("Good morning to you.")))
    server.answer(Reply(wire.begin(), cut, Wait(0.05), HANG_UP), Reply(wire.hello()))
    await talk.say("Good morning.")
    assert (talk.of(ErrorOccurred), len(talk.of(AnswerRestarted))) == ([], 1)
    words = TextBlock("Hello there.", {"id": "msg_1"})
    assert talk.session.history[-1] == Message("assistant", (words,))
    assert server.prompts[0].body == server.prompts[1].body


async def test_refusal_ends_the_turn(server, talk):
    part = {"type": "refusal", "refusal": "I can't help with that."}
    item = wire.said("") | {"content": [part]}
    done = wire.event("response.output_item.done", output_index=0, item=item)
    server.answer(Reply(wire.begin(), done, wire.done(item)))
    await talk.say("Do it.")
    assert talk.events[-1] == TurnEnded("refusal")


async def test_input_that_is_no_json_is_told_to_the_model(server, talk):
    server.answer(
        Reply(wire.events_of([wire.call("call_1", "todo", '{"items": [')])), Reply(wire.hello())
    )
    await talk.say("Plan it.")
    output = server.prompts[1].json()["input"][-1]
    assert output["call_id"] == "call_1"
    assert "must be a JSON object" in output["output"][-1]["text"]
    [result] = [b for b in talk.session.history[2].content if isinstance(b, ToolResult)]
    assert result.is_error


async def test_thought_that_is_cut_off_by_the_person_leaves_a_history_that_is_taken(server, talk):
    begun = wire.item(0, wire.thought("Hm.", "gAAAAA")) + wire.item(1, wire.said("Good mor"))
    server.answer(Reply(wire.begin(), cut_off(begun), Wait(30)), Reply(wire.hello()))

    async def stop() -> None:
        await happens(lambda: "Good" in str(talk.events))
        talk.conversation.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        await talk.say("Greet me.")
    assert talk.events[-1] == TurnEnded("cancelled")
    kept = talk.session.history[-1].content
    assert [type(block) for block in kept] == [ThinkingBlock, TextBlock]
    await talk.say("Go on.")
    assert talk.events[-1] == TurnEnded("end_turn")
    [said] = [i for i in server.prompts[1].json()["input"] if i.get("role") == "assistant"]
    assert (said["content"].startswith("Good"), "id" in said) == (True, False)


@prove
def test_print_mode_asks_it_uses_a_tool_and_tells_the_cost(tmp_path):
    project, config = tmp_path / "project", tmp_path / "config" / "sanderling"
    (project / ".git").mkdir(parents=True)
    config.mkdir(parents=True)
    answers = iter(ROUND)
    with CachedResponses(lambda _body: next(answers)) as api:
        table = f'[providers.openai]\nbase_url = "{api.url}/v1"\n'
        (config / "config.toml").write_text(table)
        argv = [sys.executable, "-m", "sanderling", "-p", "Plan it.", "--output-format", "json"]
        run = subprocess.run(
            [*argv, "--model", "openai:gpt-6.1-sol"],
            cwd=project,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
            check=True,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert api.refused == []
    result = json.loads(run.stdout)
    first, second = (each.counts for each in api.asked)
    assert (result["text"], result["model_calls"]) == ("Done.", 2)
    assert result["usage"]["cache_read_input_tokens"] == second["cached"] == first["input_tokens"]
    written = first["written"] + second["written"]  # $2.50 for a million, $0.10 for what is read
    given = result["usage"]["output_tokens"]
    cost = (2.5 * written + 0.1 * second["cached"] + 10 * given) / 1e6
    assert result["cost_usd"] == pytest.approx(cost, rel=1e-3)
