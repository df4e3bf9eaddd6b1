"""What another agent is offered besides: forms and pages, the person's tool servers, a place for its own commands' output."""

import json
import sys

import anyio
import pytest

from sanderling.acp.wire.setup import AgentCapabilities, McpCapabilities
from sanderling.agents.declared import load_agent
from sanderling.config.file import setup_layer
from sanderling.config.layers import Layers
from sanderling.conversation.external.servers import sent, with_servers
from sanderling.errors import ConfigError
from sanderling.protocol.actions import AnswerApproval, CancelTurn
from sanderling.protocol.events import ApprovalRequested, CompactionStarted, ToolEnded, ToolOutput
from sanderling.protocol.guests import GuestOptionsChanged
from tests.acp_client.test_turns import call, news, update
from tests.conftest import prove

pytestmark = pytest.mark.anyio

FORM = {
    "mode": "form",
    "message": "Which \u001b[31mbranch\u202e?",
    "requestedSchema": {
        "type": "object",
        "properties": {"branch": {"type": "string"}, "force": {"type": "boolean"}},
        "required": ["branch"],
    },
}
PAGE = {"mode": "url", "message": "Log in", "url": "https://a.example/login", "elicitationId": "e1"}


def asks(params):
    return {"prompts": {"go": [{"call": {"method": "elicitation/create", "params": params}}]}}


def got(talk):
    return json.loads(talk.text.partition("got: ")[2])


async def test_a_form_of_its_is_filled_in(guests):
    async with guests.talk(asks(FORM)) as talk:
        talk.submit("go")
        [question] = await talk.wait_for(lambda: talk.of(ApprovalRequested))
        assert (question.kind, question.tool) == ("form", "mine")
        assert [field.name for field in question.fields] == ["branch", "force"]
        assert question.reason.isprintable()
        values = {"branch": "main", "force": "true"}
        talk.act(AnswerApproval(question.id, "once", values=values))
        await talk.wait_for_turns()
        assert got(talk) == {"action": "accept", "content": {"branch": "main", "force": True}}


@prove
@pytest.mark.parametrize("answer, action", [("deny", "decline"), ("cancel", "cancel")])
async def test_a_form_need_not_be_filled_in(guests, answer, action):
    async with guests.talk(asks(FORM)) as talk:
        talk.answer = {"answer": answer}
        await talk.ask("go")
        assert got(talk) == {"action": action}


@prove
async def test_a_page_is_opened_by_the_person_and_what_is_no_page_is_refused(guests):
    async with guests.talk(asks(PAGE)) as talk:
        talk.answer = {"answer": "once"}
        await talk.ask("go")
        assert [question.subject for question in talk.of(ApprovalRequested)] == [PAGE["url"]]
        assert got(talk) == {"action": "accept"}
    guests.is_checked = False
    for wrong in ("file:///etc/passwd", "javascript:alert(1)", "https://a\u202e.example"):
        async with guests.talk(asks(PAGE | {"url": wrong})) as talk:
            await talk.ask("go")
            assert talk.of(ApprovalRequested) == []
            assert got(talk)["code"] == -32602


@prove
async def test_a_form_is_taken_back_when_the_turn_is_stopped(guests):
    async with guests.talk(asks(FORM)) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: talk.of(ApprovalRequested))
        talk.act(CancelTurn())
        assert await talk.wait_for_turns() == "cancelled"


@prove
async def test_outside_of_a_turn_nobody_is_asked(guests):
    form = {"jsonrpc": "2.0", "id": 900, "method": "elicitation/create"}
    form["params"] = FORM | {"sessionId": "$SESSION"}
    async with guests.talk({"prompts": {}, "after": [form]}) as talk:
        await talk.ask("go")
        await anyio.sleep(1)
        assert talk.of(ApprovalRequested) == []


# --- what its own commands put out ------------------------------------------------------------------------------------------


def put_out(data, key="terminal_output"):
    return news("1", _meta={key: {"terminal_id": "1", "data": data}})


@pytest.mark.parametrize("key", ["terminal_output", "terminal_output_delta"])
async def test_output_of_a_command_that_it_runs_itself_streams_into_its_block(guests, key):
    terminal = [{"type": "terminal", "terminalId": "1"}]
    began = {"rawInput": {"command": "make"}, "kind": "execute", "content": terminal}
    left = {"terminal_exit": {"terminal_id": "1", "exit_code": 2, "signal": None}}
    script = {
        "prompts": {
            "go": [
                call("1", title="make", _meta={"terminal_info": {"terminal_id": "1"}}, **began),
                put_out("one\r\n\u001b[3", key),
                put_out("1mred\u001b[0m\r\n", key),
                put_out(5, key),
                put_out("last", key),
                news("1", status="completed", _meta=left),
            ]
        }
    }
    async with guests.talk(script) as talk:
        await talk.ask("go")
        assert [event.text for event in talk.of(ToolOutput)] == ["one", "\nred"]
        [ended] = talk.of(ToolEnded)
        assert (ended.detail, ended.is_error) == ("last", True)
        assert ended.summary.startswith("exit status 2")


@prove
async def test_output_without_an_end_is_kept_in_bounds(guests):
    script = {
        "prompts": {
            "go": [
                call("1", title="yes", kind="execute", rawInput={"command": "yes"}),
                *[put_out("y\n" * 500_000)] * 4,
                news("1", status="completed"),
            ]
        }
    }
    async with guests.talk(script) as talk:
        await talk.ask("go")
        shown = sum(len(event.text) for event in talk.of(ToolOutput))
        assert 100_000 < shown < 300_000


# --- tool servers -----------------------------------------------------------------------------------------------------------


def layers_of(servers, agent):
    tables = {"mcp": {"servers": servers}, "agents": {"mine": {"command": ["agent"], **agent}}}
    return Layers(state_dir="/tmp/none", setup=setup_layer(tables)).settings()


SERVERS = {
    "py": {"command": [sys.executable, "-m", "it"], "paths": ["/opt/it"], "env": {"A": "$TOKEN"}},
    "web": {"url": "https://mcp.example.com/x", "headers": {"K": "$TOKEN"}},
    "gone": {"command": ["no-such-program"]},
    "off": {"command": ["sh"], "enabled": False},
    "other": {"command": ["sh"]},
}


def test_the_servers_that_its_entry_names_are_given_to_it_with_what_they_need(monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    settings = layers_of(SERVERS, {"servers": ["py", "web", "gone", "off"]})
    declared = load_agent("mine", settings.agents)
    wider = with_servers(declared, settings)
    assert wider.hosts == ("mcp.example.com",)
    assert wider.paths == ("/opt/it", sys.executable)
    servers = {name: _server(settings, name) for name in declared.servers}
    all_of_them = sent(servers, AgentCapabilities(mcp_capabilities=McpCapabilities(http=True)))
    by_name = {each.name: each for each in all_of_them.servers}
    assert by_name.keys() == {"py", "web"}
    assert by_name["py"].command == sys.executable
    assert [(pair.name, pair.value) for pair in by_name["py"].env] == [("A", "s3cret")]
    assert [(pair.name, pair.value) for pair in by_name["web"].headers] == [("K", "s3cret")]
    assert len(all_of_them.problems) == 2
    without_http = sent(servers, AgentCapabilities())
    assert [each.name for each in without_http.servers] == ["py"]


def _server(settings, name):
    from sanderling.mcp.servers import load_server

    return load_server(name, settings.mcp_servers[name])


def test_a_server_that_is_none_of_the_persons_is_not_given():
    settings = layers_of(SERVERS, {"servers": ["othr"]})
    with pytest.raises(ConfigError, match=r"no \[mcp.servers.othr\].*'other'"):
        with_servers(load_agent("mine", settings.agents), settings)


async def test_an_agent_is_told_of_its_servers_and_of_no_others(guests):
    script = {"prompts": {"go": [{"say_new": "mcpServers"}]}}
    servers = {"one": {"command": ["sh", "-c", "cat"]}, "two": {"command": ["sh"]}}
    async with guests.talk(script, mcp=servers, servers=["one"]) as talk:
        await talk.ask("go")
        assert [each["name"] for each in json.loads(talk.text)] == ["one"]
        assert talk.notices == []


async def test_options_of_a_type_that_is_not_known_are_not_offered(guests):
    guests.is_checked = False  # no schema of today's knows them
    options = [
        {"id": "dial", "name": "Dial", "type": "range", "currentValue": 0.5},
        {"id": "words", "name": "Words", "type": "text", "currentValue": "x"},
        {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": False},
    ]
    async with guests.talk({"prompts": {}, "session": {"configOptions": options}}) as talk:
        assert await talk.ask("go") == "end_turn"
        assert [each.id for each in talk.of(GuestOptionsChanged)[-1].options] == ["fast"]


async def test_a_notice_is_told_with_all_that_it_says(guests):
    steps = [
        update("notice", severity="info", title="The demo answers.", description="Log in first."),
        update("notice", severity="error", title="It has failed"),
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        await talk.ask("go")
        assert talk.notices == ["Mine: The demo answers.\nLog in first.", "Mine: It has failed"]


async def test_a_compaction_of_its_own_is_told(guests):
    def compaction(status, **more):
        return update("compaction_update", compactionId="c", status=status, **more)

    chunk = {"compactionId": "c", "content": {"type": "text", "text": "All"}}
    steps = [
        compaction("in_progress"),
        update("compaction_summary_chunk", **chunk),
        compaction("completed", summary=[{"type": "text", "text": "All."}]),
        compaction("failed", error="too long"),
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        await talk.ask("go")
        assert len(talk.of(CompactionStarted)) == 1
        assert talk.notices == [
            "Mine summarized the conversation.",
            "Mine did not summarize the conversation: too long",
        ]
