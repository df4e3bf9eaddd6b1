"""Sessions that live elsewhere, reached by a program that executes there."""

import shlex

import anyio
import pytest

from sanderling.protocol.actions import CancelTurn, SetMode
from sanderling.protocol.events import (
    ApprovalRequested,
    ConnectionChanged,
    ModeChanged,
    PromptsReturned,
    SandboxChanged,
    SessionOpened,
    TextDelta,
    TurnStarted,
    WaitingChanged,
)
from tests.conftest import prove, prove_rest
from tests.remote.conftest import program

pytestmark = pytest.mark.anyio


def states(talk):
    return [event.state for event in talk.of(ConnectionChanged)]


@pytest.mark.parametrize(
    "engine", ["docker exec -i box", pytest.param("kubectl exec -i pod --", marks=prove)]
)
async def test_files_commands_and_sandbox_are_those_of_there(elsewhere, engine):
    elsewhere.script(
        [
            {
                "step": [
                    {"tool_use": {"name": "bash", "input": {"command": "pwd > where; echo hi"}}}
                ]
            },
            {"step": [{"text": "done"}]},
        ]
    )
    async with elsewhere.talk(address=elsewhere.address(engine)) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn", talk.errors
        assert talk.text == "done"
        [question] = talk.of(ApprovalRequested)
        assert question.subject == "pwd > where; echo hi"
        assert question.reason.endswith(" asks. It is redirected to a file: 'pwd'.")
        assert talk.tools()[0][:2] == ("bash", "pwd > where; echo hi")
        assert (elsewhere.project / "where").read_text().strip() == str(elsewhere.project)
        assert talk.of(SandboxChanged)[-1].level not in ("", "off")
        assert talk.of(SessionOpened)[0].agent == elsewhere.address(engine)
        assert states(talk) == ["connecting", "connected"]
    assert not (elsewhere.here / "where").exists()


@prove
async def test_tools_of_there_have_the_lines_that_they_have_here(elsewhere):
    (elsewhere.project / "a.txt").write_text("one\n")
    uses = [
        ("grep", {"pattern": "one"}, "'one'"),
        ("glob", {"pattern": "*.txt"}, "*.txt"),
        ("ls", {}, "."),
        ("read", {"path": "a.txt"}, "a.txt"),
        ("write", {"path": "b.txt", "content": "two\n"}, "b.txt"),
        ("bash", {"command": "bash -c true"}, "bash -c true"),
    ]
    steps = [{"tool_use": {"name": name, "input": given}} for name, given, _ in uses]
    elsewhere.script([{"step": steps}, {"step": [{"text": "done"}]}])
    async with elsewhere.talk() as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn", talk.errors
        lines = {(name, title) for name, title, _ in talk.tools()}
        assert lines == {(name, title) for name, _, title in uses}


async def test_the_mode_is_that_of_there(elsewhere):
    async with elsewhere.talk() as talk:
        await talk.ask("hello")
        talk.act(SetMode("plan"))
        await talk.wait_for(lambda: talk.of(ModeChanged))
        await talk.ask("hello again")
        assert [event.mode for event in talk.of(ModeChanged)] == ["plan"]


@prove
async def test_a_prompt_that_was_not_accepted_waits_in_the_list_and_runs_once(elsewhere):
    async with elsewhere.talk() as talk:
        assert await talk.ask("one") == "end_turn"
        elsewhere.cut("down", "down", "-")
    async with elsewhere.talk() as talk:
        talk.submit("two")
        listed = await talk.wait_for(lambda: talk.of(WaitingChanged))
        assert [each.text for each in listed[-1].queued] == ["two"]
        assert not talk.of(TurnStarted)
        assert await talk.wait_for_turns(1) == "end_turn"
        assert [each.prompt.text for each in talk.of(TurnStarted)] == ["two"]
        assert talk.of(WaitingChanged)[-1].queued == ()
        assert states(talk)[-2:] == ["connecting", "connected"]
        assert [each.delay_s for each in talk.of(ConnectionChanged) if each.delay_s] == [0.5, 2]


async def test_a_prompt_that_waits_for_the_connection_can_be_taken_back(elsewhere):
    async with elsewhere.talk() as talk:
        await talk.ask("one")
        elsewhere.cut(*["down"] * 9)
    async with elsewhere.talk() as talk:
        talk.submit("two")
        await talk.wait_for(lambda: talk.of(WaitingChanged))
        talk.act(CancelTurn())
        await talk.wait_for(lambda: talk.of(PromptsReturned))
        await talk.wait_for_turns(1)
        assert [each.text for each in talk.of(PromptsReturned)[0].prompts] == ["two"]
        assert talk.of(WaitingChanged)[-1].queued == ()


@prove
async def test_a_turn_whose_connection_ends_is_interrupted_and_the_session_goes_on(elsewhere):
    elsewhere.answer({"text": "word " * 400, "chunk_chars": 5, "chunk_delay_ms": 5})
    elsewhere.cut("out 12000")
    async with elsewhere.talk() as talk:
        assert await talk.ask("one") == "error"
        assert "the turn was interrupted" in talk.errors[0]
        assert talk.of(TextDelta)
        elsewhere.answer({"text": "pong"})
        # what was asked before is known there
        assert await talk.ask("two") == "end_turn"
        assert states(talk)[:3] == ["connecting", "connected", "waiting"]
        assert states(talk)[-1] == "connected"
    [log] = (elsewhere.there / "state").rglob("sessions/*.jsonl")
    assert log.read_text().count('"prompt":{') == 2


@pytest.mark.parametrize(
    "engine, path, words",
    prove_rest(
        [
            ("docker exec -i box", "/no/such/project", "There is no project /no/such/project"),
            ("sh -c 'exit 127' --", None, "There is no `sanderling` on sh"),
            ("no-such-program run", None, "`no-such-program` cannot be started"),
        ],
        keep=(0,),
    ),
)
async def test_what_cannot_be_had_is_said_once_and_not_tried_again(elsewhere, engine, path, words):
    async with elsewhere.talk(address=elsewhere.address(engine, path)) as talk:
        await talk.wait_for(lambda: talk.errors)
        assert words in talk.errors[0]
        await anyio.sleep(0.8)
        assert states(talk) == ["connecting", "refused"]


async def test_an_older_one_there_is_refused_with_how_to_install(elsewhere):
    answer = '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"sanderling","version":"0.0.9"}}}'
    (elsewhere.bin / "sanderling").write_text(f"#!/bin/sh\nread line\necho '{answer}'\ncat\n")
    async with elsewhere.talk() as talk:
        await talk.wait_for(lambda: talk.errors)
        assert "runs Sanderling 0.0.9, which is too old: install" in talk.errors[0]
        assert "`:AgentInstall` in Neovim there" in talk.errors[0]


async def test_another_agent_there_is_refused_by_its_name(elsewhere):
    answer = '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"other","version":"9"}}}'
    (elsewhere.bin / "sanderling").write_text(f"#!/bin/sh\nread line\necho '{answer}'\ncat\n")
    async with elsewhere.talk() as talk:
        await talk.wait_for(lambda: talk.errors)
        assert "other 9 answers on docker box, not Sanderling" in talk.errors[0]


async def test_what_agentinstall_has_built_there_needs_no_path(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "my data"))
    built = tmp_path / "my data" / "nvim" / "sanderling" / "venv" / "bin"
    built.mkdir(parents=True)
    (elsewhere.bin / "sanderling").rename(built / "sanderling")
    async with elsewhere.talk() as talk:
        assert await talk.ask("go") == "end_turn", talk.errors
        assert talk.text == "pong"


@pytest.mark.parametrize(
    "banner", prove_rest(["Welcome", "\\033[1mHi\\033[0m {you}, ", 'last: "{" '])
)
async def test_a_banner_without_a_line_end_does_not_hide_the_first_answer(elsewhere, banner):
    docker = elsewhere.bin / "docker"
    first, *rest = docker.read_text().splitlines()
    program(docker, f"printf %b {shlex.quote(banner)}", *rest)
    assert first == "#!/bin/sh"
    async with elsewhere.talk() as talk:
        assert await talk.ask("ping") == "end_turn", talk.errors
        assert talk.text == "pong"
