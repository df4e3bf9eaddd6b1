"""`--tools client` on the wire: who is asked, how often, and what is refused."""

import pytest

from sanderling.acp.wire.client_tools import ToolOutput
from sanderling.serve.tool_proxy import ShownOutput
from tests.acp.talk import FULL, AgentError
from tests.conftest import prove, prove_rest
from tests.serve.talk import attached

RUN = "_sanderling/tool"
BASH = {"tool_use": {"id": "t1", "name": "bash", "input": {"command": "make"}}}
TURN = [[{"text": "I look. "}, BASH], [{"text": "done"}]]


def tool_proxy(name):
    return FULL | {"_meta": {"sanderling": {"resume": True, "tools": name}}}


def made(params):
    return {"content": f"ran {params['input']['command']}", "summary": "ok", "notes": ["[a note]"]}


async def test_the_client_that_has_asked_runs_the_tools_and_the_others_watch(serve, home):
    server = serve("--tools", "client", "--model", home.script(*TURN))
    async with (
        attached(server, tool_proxy("one"), is_judged=False) as one,
        attached(server, tool_proxy("two"), is_judged=False) as two,
        attached(server, FULL, is_judged=False) as plain,
    ):
        session = await one.new(home)
        for each in (two, plain):
            await each.again("resume", home, session)
        one.answers[RUN] = made
        notes = ("[a fact]",)
        assert await one.prompt(session, "go", "p1", notes=notes) == "end_turn"
        [asked] = one.asked
        assert asked["params"]["name"] == "bash"
        assert two.asked == plain.asked == []
        for each in (two, plain):
            await each.wait_for(lambda each=each: each.text() == "I look. done")
            assert each.of("tool_call_update")[-1]["status"] == "completed"
        with pytest.raises(AgentError, match="--tools client"):
            await plain.prompt(session, "me too")
        with pytest.raises(AgentError, match="--tools client"):
            await plain.new(home)
    [log] = home.state.rglob("sessions/*.jsonl")
    for said in ("[a fact]", "ran make", "[a note]"):
        assert log.read_text().count(said) >= 1
    assert not (home.project / "ran").exists()


@prove
async def test_a_tool_that_nobody_has_answered_is_asked_for_again_under_its_id(serve, home):
    server = serve("--tools", "client", "--model", home.script(*TURN))
    async with attached(server, tool_proxy("one"), is_judged=False) as client:
        session = await client.new(home)
        await client.begin_prompt(session, "go", "p1")
        [first] = await client.wait_for(lambda: client.asked)
    async with attached(server, tool_proxy("other"), is_judged=False) as other:
        await other.again("load", home, session)
    async with attached(server, tool_proxy("one"), is_judged=False) as again:
        again.answers[RUN] = made
        await again.again("load", home, session)
        assert await again.prompt(session, "go", "p1") == "end_turn"
        assert [each["params"]["id"] for each in again.asked] == [first["params"]["id"]]
    assert other.asked == []


@pytest.mark.parametrize(
    "answer",
    prove_rest(
        [{"content": {"x": 1}}, {"summary": "no content"}, {"content": [{"type": "video"}]}], (-1,)
    ),
)
async def test_an_answer_that_is_no_outcome_fails_that_tool_alone(serve, home, answer):
    server = serve("--tools", "client", "--model", home.script(*TURN))
    async with attached(server, tool_proxy("one"), is_judged=False) as client:
        client.answers[RUN] = lambda _: answer
        session = await client.new(home)
        assert await client.prompt(session, "go", "p1") == "end_turn"
        assert client.of("tool_call_update")[-1]["status"] == "failed"
        assert client.text() == "I look. done"


async def test_a_turn_that_is_stopped_takes_its_tools_back(serve, home):
    server = serve("--tools", "client", "--model", home.script(*TURN))
    async with attached(server, tool_proxy("one"), is_judged=False) as client:
        session = await client.new(home)
        turn = await client.begin_prompt(session, "go", "p1")
        [asked] = await client.wait_for(lambda: client.asked)
        await client.notify("session/cancel", sessionId=session)
        assert (await turn)["stopReason"] == "cancelled"
        await client.wait_for(lambda: client.cancelled == [asked["id"]])


@prove
async def test_a_directory_of_that_name_on_the_server_is_not_looked_at(serve, home):
    (home.project / "AGENTS.md").write_text("WORDS OF THERE")
    server = serve("--tools", "client", "--model", home.script([{"text": "pong"}]))
    async with attached(server, tool_proxy("one"), is_judged=False) as client:
        session = await client.new(home)
        assert await client.prompt(session, "/trust", "p0") == "end_turn"
        assert await client.prompt(session, "hello", "p1") == "end_turn"
        assert "WORDS" not in str(client.told)
        home.project = home.folder / "nowhere"
        await client.new(home)
        with pytest.raises(AgentError, match="absolute"):
            await client.request("session/new", cwd="here", mcpServers=[])
    [*logs] = home.state.rglob("sessions/*.jsonl")
    assert not any("WORDS" in log.read_text() or "git:" in log.read_text() for log in logs)


# --- the output of a tool that a client runs ----------------------------------------------------------------------------


def shown(*pieces: tuple[str, int | None]) -> str:
    screen: list[str] = []
    output = ShownOutput(screen.append)
    for text, start in pieces:
        output.take(ToolOutput("s", "t", text, start))
    return "".join(screen)


def test_what_is_sent_again_after_a_cut_is_shown_once():
    assert shown(("one\n", 0), ("one\ntwo\n", 0), ("three\n", 8)) == "one\ntwo\nthree\n"


def test_what_the_cut_has_taken_is_shown_where_it_belongs():
    assert shown(("one\n", 0), ("three\n", 8), ("one\ntwo\nthree\n", 0)) == "one\ntwo\nthree\n"


def test_a_client_that_does_not_count_is_shown_as_it_speaks():
    assert shown(("one\n", None), ("one\n", None)) == "one\none\n"
