"""What another agent says to pass for something else, or to fill the screen and the log: shown as what it is, and in bounds."""

import json

import anyio
import msgspec
import pytest

from sanderling.protocol.actions import CancelTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    GuestOptionsChanged,
    SlashCommandsChanged,
    TodoChanged,
    ToolEnded,
    ToolStarted,
    UsageUpdated,
)
from tests.acp_client.test_turns import call, content, news, update
from tests.conftest import DEADLINE_S, happens, prove, prove_rest, running, wait_until

pytestmark = pytest.mark.anyio
ESCAPE, TURNED = "\x1b[2J\x1b[31m", "\u202e"


def asked(options, **fields):
    return {"ask": {"toolCall": {"toolCallId": "1", "title": "t", **fields}, "options": options}}


async def denied(talk):
    """The only question of a turn, which is denied."""
    talk.answer = {"answer": "deny"}
    await talk.ask("go")
    [question] = talk.of(ApprovalRequested)
    return question


def option(option_id, name, kind):
    return {"optionId": option_id, "name": name, "kind": kind}


@pytest.mark.parametrize("cut", prove_rest([r"cut \ud83d.", "cut \udcff.", r"\ude00 cut \ufffd."]))
async def test_half_an_emoji_in_what_it_says_costs_no_more_than_that(guests, cut):
    line = (
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$SESSION","update":'
        '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"CUT"}}}}'
    ).replace("CUT", cut)
    async with guests.talk({"prompts": {"go": [{"raw": line}, {"say": " on"}]}}) as talk:
        await talk.ask("go")
        assert "\ufffd. on" in talk.text


async def test_no_to_a_question_whose_answers_have_one_id_is_no_yes(guests):
    path = guests.project / "a"
    diff = {"type": "diff", "path": str(path), "newText": "new\n"}
    twice = [option("x", "Yes", "allow_once"), option("x", "No", "reject_once")]
    write = {"method": "fs/write_text_file", "params": {"path": str(path), "content": "new\n"}}
    script = {"prompts": {"go": [asked(twice, kind="edit", content=[diff]), {"call": write}]}}
    async with guests.talk(script) as talk:
        talk.answer = {"answer": "deny", "option": "x"}
        await talk.ask("go")
        assert not path.exists()
        assert "selected" not in talk.text
        assert len(talk.of(ApprovalRequested)) == 2


async def test_an_answer_is_called_what_it_does(guests):
    options = [
        option("1", "No, leave it", "allow_once"),
        option("2", "Yes", "allow_always"),
        option("3", "Allow", "reject_once"),
        option("4", f"{ESCAPE}{TURNED}Yes\nreally", "allow_once"),
        option("5", "", "reject_always"),
        option("6", "Yes", "of_tomorrow"),
        option("7", "Yes, always", "allow_always"),
        option("8", "No", "reject_once"),
        option("", "Yes", "allow_once"),
    ]
    async with guests.talk({"prompts": {"go": [asked(options)]}}) as talk:
        guests.is_checked = False
        question = await denied(talk)
        assert [(each.title, each.choice) for each in question.options] == [
            ("allow: No, leave it", "once"),
            ("allow always: Yes", "always"),
            ("no: Allow", "deny"),
            ("allow: <U+001B>[2J<U+001B>[31m<U+202E>Yes really", "once"),
            ("no", "deny"),
            ("no: Yes", "deny"),
            ("Yes, always", "always"),
            ("No", "deny"),
        ]


@pytest.mark.parametrize(
    "written_over", prove_rest(["rm -rf\rls", "rm -rf\b\b\b\b\b\bls", "\x1b]0;rm -rf\x07ls"])
)
@pytest.mark.parametrize("kind", ["execute", "other"])
async def test_a_question_shows_what_a_terminal_would_write_over(guests, written_over, kind):
    fields = {"rawInput": {"command": written_over}} if kind == "execute" else {}
    told = {"kind": kind, "title": written_over, "content": content(written_over), **fields}
    script = {"prompts": {"go": [asked([option("1", "Yes", "allow_once")], **told)]}}
    async with guests.talk(script) as talk:
        guests.is_checked = False
        question = await denied(talk)
        assert "rm -rf" in question.title
        assert "rm -rf" in question.subject
        assert all("rm -rf" in started.title for started in talk.of(ToolStarted))


@pytest.mark.parametrize("name", ["edit", "read"])
async def test_a_question_names_the_file_that_the_yes_is_about(guests, name):
    diff = {"type": "diff", "path": str(guests.project / "Makefile"), "newText": "new\n"}
    named = {"kind": "edit", "name": name, "title": f"{name} README.md", "content": [diff]}
    options = [option("y", "Yes", "allow_once"), option("n", "No", "reject_once")]
    async with guests.talk({"prompts": {"go": [asked(options, **named)]}}) as talk:
        question = await denied(talk)
        assert (question.tool, question.title) == ("edit", "Makefile")


async def test_a_question_shows_what_would_turn_it_around(guests):
    named = {"kind": "execute", "rawInput": {"command": f"ls {TURNED}{ESCAPE}"}}
    options = [option("y", "Yes", "allow_once"), option("n", "No", "reject_once")]
    async with guests.talk({"prompts": {"go": [asked(options, **named)]}}) as talk:
        question = await denied(talk)
        for words in (question.title, question.subject, question.reason):
            assert TURNED not in words
            assert "\x1b" not in words


async def test_numbers_that_nobody_counts_are_kept_in_bounds(guests):
    much = 10**30
    steps = [
        update("usage_update", used=much, size=much, cost={"amount": 1e300, "currency": "USD"}),
        update("usage_update", used=5, size=0, cost={"amount": -3, "currency": "USD"}),
        call("1", title="t", kind="execute", rawInput={"command": "x", "n": much}),
        news("1", status="completed", _meta={"terminal_exit": {"exit_code": much}}),
    ]
    answer = {"usage": {"inputTokens": much, "outputTokens": -much}}
    async with guests.talk({"prompts": {"go": steps}, "answer": answer}) as talk:
        guests.is_checked = False
        assert await talk.ask("go") == "end_turn"
        assert all(msgspec.msgpack.encode(event) for event in talk.events)
        assert talk.of(UsageUpdated)[-1].cost_usd >= 0


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@prove
@pytest.mark.parametrize(
    "given", [*({"a": nested(depth)} for depth in (100, 500, 850, 900)), {"a": "x" * 20_000_000}]
)
async def test_what_a_tool_is_said_to_be_given_is_kept_in_bounds(guests, given):
    raw = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "t", "rawInput": given}
    params = {"sessionId": "$SESSION", "update": raw}
    line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params})
    steps = [{"raw": line}, news("1", status="completed", rawOutput="y" * 5_000_000)]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        guests.is_checked = False
        assert await talk.ask("go") == "end_turn"
        assert await talk.ask("again") == "end_turn"
    [log] = (guests.state_dir / "sessions").glob("*.jsonl")
    assert log.stat().st_size < 1_500_000


async def test_plans_commands_and_options_are_kept_in_bounds_and_legible(guests):
    words = f"a{ESCAPE}\n{TURNED}" + "b" * 1000
    names = ["fine", "two words", "new\nline", ESCAPE, "", "/slash", "a" * 500]
    choice = {"value": "v", "name": words}
    boolean = {"type": "boolean", "currentValue": True}
    select = {"type": "select", "currentValue": "v", "options": [choice]}
    steps = [
        update("plan", entries=[{"content": words, "priority": "low", "status": "pending"}] * 900),
        update(
            "available_commands_update",
            availableCommands=[{"name": name, "description": words} for name in names],
        ),
        update(
            "config_option_update",
            configOptions=[{"id": f"o{n}", "name": words, **boolean, **select} for n in range(500)],
        ),
        update("session_info_update", title=words),
        update("notice", severity="error", title=words),
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        await talk.ask("go")
        items = talk.of(TodoChanged)[-1].items
        assert len(items) <= 200
        offered = [each.name for each in talk.of(SlashCommandsChanged)[-1].commands]
        assert [name for name in offered if name in ("fine", "slash")] == ["fine", "slash"]
        assert not {"two words", "new\nline", ESCAPE, ""} & set(offered)
        options = talk.of(GuestOptionsChanged)[-1].options
        assert len(options) == 100
        shown = [items[0].content, options[0].title, options[0].choices[0].title, *talk.notices]
        for text in shown:
            assert "\x1b" not in text
            assert TURNED not in text
            assert len(text) < 2100


async def test_a_call_that_has_ended_is_not_begun_again(guests):
    steps = [
        call("1", title="ls", kind="execute", status="completed", content=content("a")),
        call("1", title="rm -rf /", kind="execute", status="completed", content=content("b")),
        call("../../1", title="x", kind="read", status="completed"),
        call("1", title="again", status="failed"),
    ]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        await talk.ask("go")
        await talk.ask("go")
        started = talk.of(ToolStarted)
        assert [each.title for each in started] == ["ls", "x"] * 2
        assert len({each.id for each in started}) == 4
        assert all(each.id.replace("_", "").isalnum() for each in started)
        assert len(talk.of(ToolEnded)) == 4


# --- files and terminals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["it ends", pytest.param("the session", marks=prove)])
async def test_a_terminal_ends_with_the_agent_that_it_is_for(guests, marker, how):
    line = f"(setsid {marker} &) ; {marker}"
    made = {"call": {"method": "terminal/create", "params": {"command": line}}}
    script = {"prompts": {"go": [made, {"say": "made"}], "die": [{"exit": 1}]}}
    async with guests.talk(script) as talk:
        talk.answer = {"answer": "once"}
        await talk.ask("go")
        await happens(lambda: len(running(marker)) >= 2)
        if how == "it ends":
            await talk.ask("die")
            await happens(lambda: not running(marker))
    wait_until(lambda: not running(marker))


@prove
async def test_a_link_that_changes_while_it_is_written_or_read_leads_nowhere(guests, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret\n")
    swap = (
        f"cd {guests.project}; mkdir -p real; echo mine > real/f; while sleep 0.001; do "
        f"ln -sfn {outside} d; ln -sfn real d; ln -sfn {outside}/f g; ln -sfn real/f g; done"
    )
    write = {"method": "fs/write_text_file"}
    read = {"method": "fs/read_text_file"}
    steps = [{"spawn": ["sh", "-c", swap]}, {"sleep": 0.3}]
    for number in range(8):
        for name in ("d/f", "g", "d/new"):
            path = f"$CWD/{name}"
            steps += [{"call": {**read, "params": {"path": path}}}]
            steps += [{"call": {**write, "params": {"path": path, "content": f"{number}\n"}}}]
    async with guests.talk({"prompts": {"go": steps}}) as talk:
        talk.answer = {"answer": "once"}
        with anyio.fail_after(DEADLINE_S):
            await talk.ask("go")
        assert "secret" not in talk.text
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"f": "secret\n"}


@prove
async def test_a_stopped_turn_takes_all_its_questions_back(guests):
    form = {"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    lines = [
        {"jsonrpc": "2.0", "id": 700 + number, "method": method, "params": params}
        for number in range(100)
        for method, params in (
            ("elicitation/create", {"sessionId": "$SESSION", **form}),
            (
                "fs/write_text_file",
                {"sessionId": "$SESSION", "path": f"$CWD/{number}", "content": "x"},
            ),
        )
    ]
    steps = [*({"raw": json.dumps(line | {"id": n})} for n, line in enumerate(lines, 900_000))]
    script = {"prompts": {"go": [*steps, {"say": "all"}, {"wait_cancel": 20}]}}
    async with guests.talk(script) as talk:
        guests.is_checked = False
        talk.submit("go")
        await talk.wait_for(lambda: talk.text)
        await anyio.sleep(0.5)
        assert len(talk.of(ApprovalRequested)) <= 4 + 32
        talk.act(CancelTurn())
        assert await talk.wait_for_turns() == "cancelled"
        assert list(guests.project.iterdir()) == []
        assert await talk.ask("more") == "end_turn"
