"""Tools of servers in a conversation: what the model and the person are told, what is asked, and what a result becomes."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sanderling.mcp import tools
from sanderling.mcp.servers import load_servers
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.protocol.actions import UndoTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    FilesRestored,
    Notice,
    ToolEnded,
    ToolOutput,
    TurnEnded,
)
from sanderling.protocol.messages import ImageBlock, TextBlock
from sanderling.tools.commands.output import MAX_TOLD_BYTES
from tests.conftest import prove
from tests.mcp.conftest import hostile
from tests.unit.test_tool_uses import Talk, uses

ALLOWED = (rule_from_text("allow mcp__bad__*"),)
AWAITED = (rule_from_text("allow mcp__bad__nothing"),)


def talk_with(base: Path, *replies: Any, rules: tuple[Rule, ...] = (), **options: Any) -> Talk:
    """A conversation with the hostile server, for which the first request waits as in print mode."""
    declared = options.pop("declared", {})
    servers = load_servers({"bad": hostile(*declared.pop("how", ()), **declared)})
    rules = (*rules, *AWAITED)
    return Talk(base, *replies, servers=servers, patience_s=10.0, rules=rules, **options)


def call(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return f"mcp__bad__{tool}", arguments


async def test_tool_of_a_server_asks_shows_what_it_is_given_and_what_is_said_of_it(tmp_path):
    talk = talk_with(tmp_path, uses(call("read", words="app.py")))
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert (question.tool, question.title) == ("mcp__bad__read", "words: app.py")
        assert json.loads(question.subject) == {"words": "app.py"}
        assert question.filetype == "json"
        assert (
            "bad says of it: only reads, destroys nothing. This is not verified." in question.reason
        )
        assert question.rule == "allow mcp__bad__read"
        talk.answer(question, "session")
    assert "return 1" in talk.told()


async def test_all_tools_of_a_server_can_be_allowed_at_once_and_no_other_servers(tmp_path):
    calls = [uses(call(name, words="x")) for name in ("echo", "structured", "fail")]
    talk = talk_with(tmp_path, *calls)
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert question.wider == "allow mcp__bad__*"
        talk.answer(question, "session", rule=question.wider)
    assert len(talk.results) == 3
    assert len(talk.of(ApprovalRequested)) == 1


@prove
async def test_what_was_always_allowed_to_a_server_another_of_its_name_does_not_inherit(tmp_path):
    def again(**declared: Any) -> Talk:
        return talk_with(tmp_path, uses(call("echo", words="x")), declared=declared)

    async with (first := again()).asked():
        question = await first.until(ApprovalRequested)
        first.answer(question, "always", rule=question.wider)
    assert (await again(timeout_s=5).run()).of(ApprovalRequested) == []
    async with (other := again(env={"X": "1"})).asked():
        other.answer(await other.until(ApprovalRequested), "deny")
    assert "denied" in other.told(-1)


@prove
@pytest.mark.parametrize(
    "rule, asks", [("allow mcp__bad__*", 0), ("allow mcp__b__*", 1), ("deny mcp__*", 0)]
)
async def test_rules_with_globs_hold_for_servers(tmp_path, rule, asks):
    talk = talk_with(tmp_path, uses(call("echo", words="x")), rules=(rule_from_text(rule),))
    async with talk.asked():
        if asks:
            talk.answer(await talk.until(ApprovalRequested), "once")
    assert len(talk.of(ApprovalRequested)) == asks
    assert ("forbids" in talk.told()) == rule.startswith("deny")


async def test_plan_mode_asks_whatever_a_rule_allows_and_nothing_is_written(tmp_path):
    replies = uses(call("write", words="planned")), uses(call("echo", words="x"))
    talk = talk_with(tmp_path, *replies, rules=ALLOWED, mode="plan")
    async with talk.asked():
        for number in (1, 2):
            question = await talk.until(ApprovalRequested, number)
            assert "Plan mode" in question.reason
            talk.answer(question, "once")
    assert "Read-only" in talk.told() or "Permission denied" in talk.told()
    assert talk.results[0].is_error
    assert talk.told(1) == "x"
    assert not (talk.project / "planned").exists()


async def test_calls_wait_for_edits_before_them_and_edits_for_calls(tmp_path):
    edit = ("edit", {"path": "app.py", "edits": [{"old": "return 1", "new": "return 2"}]})
    talk = talk_with(tmp_path, uses(edit, call("read", words="app.py")), rules=ALLOWED, mode="auto")
    await talk.run()
    assert "return 2" in talk.told(1)


@prove
async def test_failures_are_told_and_the_turn_goes_on(tmp_path):
    names = ("fail", "refuse", "die", "echo")
    talk = await talk_with(
        tmp_path, *(uses(call(name, words="x")) for name in names), rules=ALLOWED
    ).run()
    assert [result.is_error for result in talk.results] == [True, True, True, False]
    assert talk.told(0) == "it did not work"
    assert talk.told(1) == "MCP server bad: ValueError: this cannot be asked for."
    assert "ended meanwhile (it was ended by SIGKILL)" in talk.told(2)
    assert [event.text for event in talk.of(Notice)] == [
        "MCP server bad: it was ended by SIGKILL, restarting."
    ]


@prove
async def test_progress_is_shown_while_it_runs(tmp_path, monkeypatch):
    # Steps that a busy machine brings at once are all shown.
    monkeypatch.setattr(tools, "PROGRESS_S", 0)
    talk = await talk_with(tmp_path, uses(call("count")), rules=ALLOWED).run()
    assert "".join(event.text for event in talk.of(ToolOutput)) == (
        "step 1 (1/3)\nstep 2 (2/3)\nstep 3 (3/3)\n"
    )


@prove
async def test_long_result_is_told_in_bounds_and_all_of_it_is_in_a_file_for_the_model(tmp_path):
    replies = uses(call("big")), uses(call("echo"))
    talk = talk_with(tmp_path, *replies, rules=(rule_from_text("allow mcp__bad__big"),))
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        [ended] = talk.of(ToolEnded)
        told = talk.told()
        assert len(told.encode()) < MAX_TOLD_BYTES + 300
        assert told.startswith("line 0000000\n")
        assert "bytes are left out here" in told
        assert len(ended.detail) < MAX_TOLD_BYTES + 300
        path = told.rpartition(": ")[2].rstrip("]\n")
        ours, theirs = await talk.conversation.services.sandbox.environment.scratch()
        assert path.startswith(f"{theirs}/")
        assert (Path(ours) / Path(path).name).stat().st_size > 10_000_000
        talk.answer(question, "deny")


@prove
async def test_images_links_and_resources_come_as_what_they_are(tmp_path):
    talk = await talk_with(tmp_path, uses(call("picture")), rules=ALLOWED).run()
    text, image = talk.results[0].content
    assert isinstance(text, TextBlock)
    assert isinstance(image, ImageBlock)
    assert base64.b64decode(image.source.data).startswith(b"\x89PNG")
    assert "[image of type image/tiff, 70 bytes, which cannot be shown]" in text.text
    assert "[resource file:///a: a]" in text.text
    assert "[resource note:///1]\na note" in text.text


@prove
async def test_structured_content_is_told_beside_other_text(tmp_path):
    talk = await talk_with(tmp_path, uses(call("structured")), rules=ALLOWED).run()
    text, _, structured = talk.told().partition("\n")
    assert text == "see the data"
    assert json.loads(structured) == {"rows": [1, 2]}


@pytest.mark.parametrize(
    "texts, structured",
    [
        (["a\nb"], {"result": "a\nb"}),  # as FastMCP wraps a text
        (["a\nb\n"], {"content": "a\nb"}),  # as server-filesystem does
        (["a", "b"], {"result": ["a", "b"]}),
        (['{"a": 1}', '{"b": 2}'], {"result": [{"a": 1}, {"b": 2}]}),
        (["42"], {"result": 42}),
        (["true"], {"result": True}),
        ([], {"result": None}),
        (['{\n  "a": [1]\n}'], {"a": [1]}),
        (['{"a": [1]}'], {"result": {"a": [1]}}),
        (["x" * 3_000_000], {"result": "x" * 3_000_000}),
    ],
)
def test_structured_content_that_repeats_the_text_is_not_sent(texts, structured):
    blocks = [SimpleNamespace(type="text", text=text) for text in texts]
    result = SimpleNamespace(content=blocks, structured_content=structured, is_error=False)
    assert tools._parts(result) == (texts, [])


@pytest.mark.parametrize(
    "structured",
    [{"result": "other"}, {"result": ["a"]}, {"result": "a", "more": 1}, {"result": [1]}],
)
def test_structured_content_with_more_than_the_text_is_sent(structured):
    blocks = [SimpleNamespace(type="text", text=text) for text in ("a", "b")]
    result = SimpleNamespace(content=blocks, structured_content=structured, is_error=False)
    texts, _ = tools._parts(result)
    assert json.loads(texts[-1]) == structured


async def test_first_request_has_the_tools_of_a_server_that_it_waited_for(tmp_path):
    talk = await talk_with(tmp_path).run()
    tools = await talk.conversation.services.calls.catalog.so_far()
    echo = tools.by_name["mcp__bad__echo"]
    assert echo.description == "Say it again."
    assert echo.schema["properties"] == {"words": {"type": "string"}}
    assert tools.specs[-1].name == "mcp_search", "it has too many to tell them all"


@pytest.mark.parametrize("rule", ["allow bash", "allow mcp__other__*", "ask mcp__bad__*"])
async def test_first_request_waits_for_no_server_whose_tools_would_all_ask(tmp_path, rule):
    servers = load_servers({"bad": hostile("mute")})
    rules = (rule_from_text(rule),)
    talk = await Talk(tmp_path, servers=servers, patience_s=10.0, rules=rules).run()
    [server] = talk.conversation.services.servers.source.servers.values()
    assert server.status.state in ("waiting", "starting")


@prove
async def test_what_a_server_changes_when_it_is_called_is_undone_with_the_turn(tmp_path):
    app = tmp_path / "home" / "project" / "app.py"
    talk = talk_with(tmp_path, uses(call("write", words=str(app))), rules=ALLOWED)
    async with talk.asked():
        await talk.until(ToolEnded)
        await talk.until(TurnEnded)
        assert app.read_text() == "written"
        talk.conversation.act(UndoTurn())
        (file,) = (await talk.until(FilesRestored)).files
        assert (file.path, file.how) == ("app.py", "restored")
    assert app.read_text() == "def f():\n    return 1\n"


async def test_property_whose_name_no_api_takes_is_renamed_for_the_model_and_back_in_the_call(
    tmp_path,
):
    properties = {"$words": {"type": "string"}, "ok": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["$words"]}
    tools = [{"name": "values", "inputSchema": schema}]
    line = '{"jsonrpc":"2.0","id":ID,"result":{"tools":' + json.dumps(tools) + "}}"
    use = uses(call("values", _words="x", ok="y"))
    talk = talk_with(tmp_path, use, rules=ALLOWED, declared={"how": [f"list:{line}"]})
    await talk.run()
    told = (
        (await talk.conversation.services.calls.catalog.so_far()).by_name["mcp__bad__values"].schema
    )
    assert told["properties"].keys() == {"_words", "ok"}
    assert told["required"] == ["_words"]
    assert json.loads(talk.told()) == {"$words": "x", "ok": "y"}
