"""Agents that end, hang, or say what is no message: their turn ends, and nothing else."""

import json
import os

import anyio
import anyio.lowlevel
import pytest

from sanderling.acp.client import link
from sanderling.errors import ProviderError
from sanderling.protocol.actions import CancelTurn
from sanderling.protocol.events import TurnStarted
from tests.acp_client.test_turns import OPTIONS, call, news, update
from tests.conftest import DEADLINE_S, prove

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _unchecked(guests):
    guests.is_checked = False


@prove
async def test_one_that_ends_in_mid_turn_is_started_again_by_the_next_prompt(guests):
    script = {
        "prompts": {
            "go": [
                call("1", title="Work", kind="other", status="in_progress"),
                {"stderr": "something broke\n"},
                {"sleep": 0.2},
                {"exit": 3},
            ]
        }
    }
    async with guests.talk(script) as talk:
        assert await talk.ask("go") == "error"
        assert "Mine has ended: it ended with exit status 3: something broke" in talk.errors[0]
        assert talk.tools() == [("tool", "Work", "stopped")]
        assert await talk.ask("again") == "end_turn"
        assert talk.text == "heard: again"


@prove
async def test_one_that_cannot_be_started_is_told_before_anything_is_asked(guests):
    async with guests.talk({}, command=["/no/such/program"]) as talk:
        await talk.wait_for(lambda: talk.errors)
        assert "there is no program '/no/such/program'" in talk.errors[0]
        assert await talk.ask("go") == "error"


@prove
async def test_one_that_speaks_another_version_is_refused(guests):
    async with guests.talk({"settings": {"version": 2}}) as talk:
        assert await talk.ask("go") == "error"
        words = "Mine cannot be talked to: the agent speaks version 2 of the Agent Client Protocol"
        assert talk.errors[-1].startswith(words)


@prove
async def test_one_that_never_answers_is_given_up(guests, monkeypatch):
    monkeypatch.setattr(link.Link, "start_s", 2.0)
    async with guests.talk({"settings": {"is_silent": True}}) as talk:
        assert await talk.ask("go") == "error"
        assert "does not answer" in talk.errors[-1]


async def test_one_that_does_not_stop_is_ended(guests):
    script = {"settings": {"is_deaf": True}, "prompts": {"go": [{"say": "on"}, {"sleep": 60}]}}
    async with guests.talk(script) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: talk.text)
        talk.act(CancelTurn())
        talk.act(CancelTurn())  # the person does not want to wait
        assert await talk.wait_for_turns() == "cancelled"
        assert "did not stop in time" in talk.notices[-1]
        assert await talk.ask("again") == "end_turn"


async def test_what_it_has_started_ends_with_it(guests):
    pid_file = guests.project / "pid"
    code = f"""
import os, time
open("new", "w").write(str(os.getpid()))
os.replace("new", {str(pid_file)!r})
time.sleep(600)
"""
    spawn = {"spawn": ["python3", "-c", code]}
    script = {"prompts": {"go": [spawn, {"wait_for": str(pid_file)}, {"exit": 0}]}}
    async with guests.talk(script, sandbox=False) as talk:
        assert await talk.ask("go") == "error"
        assert "runs outside the sandbox" in talk.notices[0]
        pid = int(pid_file.read_text())
        with anyio.fail_after(DEADLINE_S):
            while _is_running(pid):
                await anyio.sleep(0.05)


def _is_running(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().split(")")[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


GARBAGE = (
    "no JSON at all",
    "[1, 2, 3]",
    '{"jsonrpc": "2.0"}',
    '{"jsonrpc": "2.0", "method": "session/update"}',
    '{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": 1, "update": 2}}',
    '{"jsonrpc": "2.0", "id": 77, "result": {}}',
    '{"jsonrpc": "2.0", "id": "x", "method": "session/request_permission", "params": {}}',
    '{"half": ',
    "\x00\x01",
    "[" * 5000,
)


async def test_garbage_unknown_updates_and_wrong_types_are_survived(guests):
    steps = [{"raw": line} for line in GARBAGE]
    steps += [
        update("of_tomorrow", what=[1, 2]),
        update("agent_message_chunk", content=7),
        update("agent_message_chunk", content={"type": "hologram", "data": "x"}),
        update("plan", entries="none"),
        update("tool_call", title="without an id"),
        news("nobody", status="strange", kind="unheard of"),
        update("usage_update", used=-5, size="many"),
        update("available_commands_update", availableCommands=[{"name": 5}]),
        {"say": "still here"},
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        assert await talk.ask("go") == "end_turn"
        assert talk.text == "[hologram]still here"
        assert set(talk.notices) == {
            "Ignored a malformed update from Mine.",
            "Mine sent 'of_tomorrow', which this version of Sanderling cannot show.",
        }
        assert await talk.ask("again") == "end_turn"


@prove
async def test_a_line_of_10_mb_is_shown_and_one_of_40_mb_passed_over(guests):
    steps = [
        {"flood": {"count": 1, "text": "0123456789", "times": 1 << 20}},
        {"flood": {"count": 1, "text": "0123456789", "times": 4 << 20}},
        {"say": "end"},
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        assert await talk.ask("go") == "end_turn"
        assert len(talk.text) == (10 << 20) + 3


@prove
async def test_a_flood_of_chunks_is_shown_whole(guests):
    steps = [{"flood": {"count": 20_000, "text": "word "}}, {"say": "end"}]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        assert await talk.ask("go") == "end_turn"
        assert len(talk.text) == 100_003


@prove
async def test_stderr_that_nobody_reads_stops_nothing(guests):
    steps = [{"stderr": "x" * 79 + "\n"}] * 3 + [{"stderr": "y" * 2_000_000}, {"say": "end"}]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        assert await talk.ask("go") == "end_turn"
        assert talk.text == "end"


@prove
async def test_questions_outside_of_a_turn_are_cancelled(guests):
    asked = {"toolCall": {"toolCallId": "1", "title": "x", "kind": "other"}, "options": OPTIONS}
    line = {"jsonrpc": "2.0", "id": 5, "method": "session/request_permission"}
    line["params"] = {"sessionId": "another", **asked}
    steps = [{"raw": json.dumps(line)}, {"say": "end"}]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn"


async def test_closing_in_mid_turn_ends_it(guests):
    script = {"prompts": {"go": [{"say": "on"}, {"wait_cancel": 60}]}}
    with anyio.fail_after(DEADLINE_S):
        async with guests.talk(script) as talk:
            talk.submit("go")
            await talk.wait_for(lambda: talk.text)
            assert talk.of(TurnStarted)


async def test_an_agent_that_is_ended_while_it_is_about_to_start_does_not_start(guests):
    async def is_refused(link):
        with pytest.raises(ProviderError, match="stopped"):
            await link.ready()

    async with guests.talk({"prompts": {}}) as talk:
        link = talk.agent.external.link
        await link.ready()
        await link.ended()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(is_refused, link)
            await anyio.lowlevel.checkpoint()
            link.end("It was stopped.")
