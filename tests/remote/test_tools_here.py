"""`sanderling serve --tools client`: the conversation and the keys are the server's, files and commands those of here."""

import random

import anyio
import pytest

from sanderling.protocol.actions import (
    CancelTurn,
    RunCommand,
    SetMode,
    TypeInTerminal,
    UndoTurn,
    UseTerminal,
    WatchJob,
)
from sanderling.protocol.events import (
    ApprovalRequested,
    CommandEnded,
    JobOutput,
    JobsChanged,
    ModeChanged,
    SandboxChanged,
    ToolEnded,
    ToolOutput,
)
from tests.conftest import DEADLINE_S, prove
from tests.remote.served import Server, cuts_at_random
from tests.remote.test_elsewhere import states

pytestmark = pytest.mark.anyio

WORDS = " ".join(map(str, range(200)))


def use(name, **arguments):
    return {"tool_use": {"name": name, "input": arguments}}


def shown(talk):
    """All that the screen has of tools' output."""
    return "".join(
        each.text if isinstance(each, ToolOutput) else f"{each.detail}\n"
        for each in talk.of(ToolOutput, ToolEnded)
    )


@pytest.fixture
def server(elsewhere):
    """A server whose person has a project of the same name, with words for the model that are nobody's business here."""
    (elsewhere.there / "AGENTS.md").write_text("SECRET OF THERE")
    it = Server(elsewhere, "--tools", "client")
    yield it
    it.stop()


async def test_what_the_model_asks_for_is_done_here_and_kept_there(elsewhere, server):
    (elsewhere.here / "a.txt").write_text("one\n")
    elsewhere.script(
        [
            {"step": [use("read", path="a.txt")]},
            {"step": [use("edit", path="a.txt", edits=[{"old": "one", "new": "two"}])]},
            {"step": [use("bash", command="pwd; cat a.txt; echo hi > b.txt")]},
            {"step": [{"text": "done"}]},
        ]
    )
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn", talk.errors
        assert talk.text == "done"
        assert [each[0] for each in talk.tools()] == ["read", "edit", "bash"]
        assert not [each for each in talk.of(ToolEnded) if each.is_error], talk.of(ToolEnded)
        assert f"{elsewhere.here}\ntwo\n" in shown(talk)
        assert talk.of(SandboxChanged)[-1].level not in ("", "off")
        assert any("tools run here" in each for each in talk.notices)
    assert (elsewhere.here / "a.txt").read_text() == "two\n"
    assert (elsewhere.here / "b.txt").read_text() == "hi\n"
    assert not (elsewhere.project / "b.txt").exists()
    log = server.log()
    assert '"content":"go"' in log or '"text":"go"' in log
    assert f"project root: {elsewhere.here}" in log
    assert "hi > b.txt" in log
    assert "SECRET" not in log


async def test_a_mode_that_is_set_before_the_server_has_answered_is_that_of_here(elsewhere, server):
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.act(SetMode("auto"))
        await talk.wait_for(lambda: [each.mode for each in talk.of(ModeChanged)][-1:] == ["auto"])
        assert not [each for each in talk.notices if "Nothing changed" in each]


async def test_the_model_has_a_terminal_here_which_the_user_can_take(elsewhere, server):
    elsewhere.script(
        [
            {"step": [use("bash", command="exec cat", pty=True)]},
            {"step": [use("jobs", action="send", id="j1", text="over here\n")]},
            {"step": [{"text": "one"}]},
            {"step": [use("jobs", action="screen", id="j1", wait_s=30)]},
            {"step": [{"text": "two"}]},
        ]
    )
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        await talk.wait_for(lambda: "connected" in states(talk))
        talk.act(SetMode("auto"))
        assert await talk.ask("go") == "end_turn", talk.errors
        assert talk.of(JobsChanged)[-1].jobs[0].has_terminal
        talk.act(WatchJob("j1"))
        talk.act(UseTerminal("j1", "take"))
        talk.act(TypeInTerminal("j1", b"secret words\r"))
        await talk.wait_for(
            lambda: "secret words" in "".join(each.text for each in talk.of(JobOutput))
        )
        talk.act(UseTerminal("j1", "hand_back"))
        assert await talk.ask("again") == "end_turn", talk.errors
    log = server.log()
    assert r"over here\nover here\n[hidden]" in log
    assert "secret" not in log


async def test_mode_rules_questions_and_undo_are_those_of_here(elsewhere, server):
    elsewhere.script(
        [
            {"step": [use("write", path="new.txt", content="made\n")]},
            {"step": [{"text": "one"}]},
            {"step": [use("bash", command="echo no > no.txt")]},
            {"step": [{"text": "two"}]},
            {"step": [use("bash", command="echo no > no.txt")]},
            {"step": [{"text": "three"}]},
        ]
    )
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        await talk.wait_for(lambda: "connected" in states(talk))
        talk.act(SetMode("auto"))
        assert await talk.ask("go") == "end_turn", talk.errors
        assert not talk.of(ApprovalRequested)  # which mode it is says the person here
        assert (elsewhere.here / "new.txt").exists()
        talk.act(UndoTurn())
        await talk.wait_for(lambda: not (elsewhere.here / "new.txt").exists())
        talk.act(SetMode("plan"))
        assert await talk.ask("plan") == "end_turn", talk.errors
        assert talk.of(ToolEnded)[-1].is_error
        talk.act(SetMode("ask"))
        talk.answer = {"answer": "deny", "reason": "not now"}
        assert await talk.ask("again") == "end_turn", talk.errors
        assert talk.of(ToolEnded)[-1].is_error
        assert [each.mode for each in talk.of(ModeChanged)] == ["auto", "plan", "ask"]
        talk.act(RunCommand("c1", "pwd > mine.txt"))
        await talk.wait_for(lambda: talk.of(CommandEnded))
    assert not (elsewhere.here / "no.txt").exists()
    assert (elsewhere.here / "mine.txt").read_text() == f"{elsewhere.here}\n"
    log = server.log()
    assert "not now" in log
    assert "Plan mode: " in log
    assert "The user undid" in log


async def test_that_tool_servers_of_here_are_not_offered_is_said(elsewhere, server):
    elsewhere.answer({"text": "pong"})
    server.start()
    options = {"mcp": {"servers": {"notes": {"command": ["notes-server"]}}}}
    async with elsewhere.talk(address=server.address(), options=options) as talk:
        assert await talk.ask("ping") == "end_turn", talk.errors
        assert any("does not know your tool servers" in each for each in talk.notices)


async def test_to_deny_one_use_of_a_message_denies_the_others(elsewhere, server):
    uses = [use("bash", command=f"touch {name}") for name in ("a", "b")]
    uses.append(use("write", path="c", content=""))  # which waits for the commands
    elsewhere.script([{"step": uses}, {"step": [{"text": "done"}]}])
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.answer = {"answer": "deny"}
        assert await talk.ask("go") == "end_turn", talk.errors
        assert talk.of(ApprovalRequested)[0].is_of_several
        details = [each.detail for each in talk.of(ToolEnded)]
        assert sorted(details) == ["denied", "not run", "not run"]
    assert sorted(path.name for path in elsewhere.here.iterdir() if len(path.name) == 1) == []
    assert server.log().count("denied another tool call of the same message") >= 2


@prove
async def test_a_tool_that_runs_when_the_connection_is_cut_runs_once(elsewhere, server):
    elsewhere.script(
        [
            {"step": [use("bash", command="echo ran >> runs; sleep 2; echo after")]},
            {"step": [{"text": "done"}]},
        ]
    )
    async with server.talk_over_a_cutter() as (cutter, talk):
        talk.answer = {"answer": "once"}
        talk.submit("go")
        await talk.wait_for(lambda: (elsewhere.here / "runs").exists() or talk.of(ToolOutput))
        cutter.cut()
        await talk.wait_for(lambda: "waiting" in states(talk))
        assert await talk.wait_for_turns() == "end_turn", talk.errors
        assert talk.text == "done"
        assert "after" in shown(talk)
    assert (elsewhere.here / "runs").read_text() == "ran\n"


@prove
async def test_whoever_comes_back_as_another_process_does_not_run_again_what_had_begun(
    elsewhere, server
):
    elsewhere.script(
        [
            {"step": [use("bash", command="echo ran >> runs; sleep 60")]},
            {"step": [{"text": "done"}]},
        ]
    )
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.answer = {"answer": "once"}
        talk.submit("go")
        with anyio.fail_after(DEADLINE_S):
            while not (elsewhere.here / "runs").exists():
                await anyio.sleep(0.05)
    async with elsewhere.talk(address=server.address()) as again:
        assert await again.wait_for_turns() == "end_turn", again.errors
        assert again.text == "done"
    assert (elsewhere.here / "runs").read_text() == "ran\n"


@prove
async def test_a_turn_that_is_stopped_ends_what_runs_here(elsewhere, server):
    elsewhere.script([{"step": [use("bash", command="echo $$ > pid; exec sleep 60")]}])
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.answer = {"answer": "once"}
        talk.submit("go")
        with anyio.fail_after(DEADLINE_S):
            while not (elsewhere.here / "pid").exists():
                await anyio.sleep(0.05)
        talk.act(CancelTurn())
        assert await talk.wait_for_turns() == "cancelled"
        with anyio.fail_after(DEADLINE_S):
            while talk.agent.external.tools._uses:
                await anyio.sleep(0.01)
        assert not talk.agent.services.workspace.jobs.are_running


@prove
@pytest.mark.parametrize("seed", range(10))
async def test_cuts_at_random_bytes_run_each_tool_once(elsewhere, server, seed):
    chance = random.Random(seed)
    turn = [
        {
            "step": [
                {"text": WORDS, "chunk_chars": 6, "chunk_delay_ms": 2},
                use("bash", command="echo ran >> runs; sleep 0.2; echo after"),
            ]
        },
        {"step": [{"text": "done"}]},
    ]
    elsewhere.script(turn * 3)
    async with server.talk_over_a_cutter() as (cutter, talk):
        talk.answer = {"answer": "once"}
        await talk.wait_for(lambda: "connected" in states(talk))
        cutter.cuts = cuts_at_random(chance)
        cutter.cut()
        talk.agent.external.reconnecting._pause = lambda *_: anyio.sleep(0.01)
        with anyio.fail_after(120):
            for number in range(1, 4):
                talk.submit(f"go {number}")
                while len([e for e in talk.events if type(e).__name__ == "TurnEnded"]) < number:
                    await talk._changed.wait()
        assert talk.errors == []
        assert talk.text == f"{WORDS}done" * 3
        assert len(talk.of(ToolEnded)) == 3
    assert (elsewhere.here / "runs").read_text() == "ran\n" * 3
