"""Turns with another agent: shown, stopped, asked about, logged and undone as ours are."""

import shlex
import sys

import anyio
import pytest

from sanderling.protocol.actions import (
    AnswerApproval,
    CancelTurn,
    Compact,
    Rewind,
    SetGuestOption,
    SetMode,
    SteerTurn,
    UndoTurn,
)
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    BlockEnded,
    FilesRestored,
    GuestOptionsChanged,
    HistoryShown,
    ModelChanged,
    SessionOpened,
    SlashCommandsChanged,
    TextDelta,
    ThinkingDelta,
    TodoChanged,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import ListChanges, ListModels
from sanderling.session.history_pager import HistoryPager
from sanderling.session.session import Session
from tests.conftest import prove, prove_rest

pytestmark = pytest.mark.anyio

OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "ever", "name": "Yes, and do not ask again", "kind": "allow_always"},
    {"optionId": "no", "name": "No, tell it otherwise", "kind": "reject_once"},
]
MODEL = {"id": "m", "name": "Model", "type": "select", "category": "model", "currentValue": "big"}
BIG, SMALL = {"value": "big", "name": "Big"}, {"value": "small", "name": "Small"}


def update(session_update, **fields):
    return {"update": {"sessionUpdate": session_update, **fields}}


def call(call_id, **fields):
    return update("tool_call", toolCallId=call_id, **fields)


def news(call_id, **fields):
    return update("tool_call_update", toolCallId=call_id, **fields)


def content(text):
    return [{"type": "content", "content": {"type": "text", "text": text}}]


async def test_an_answer_streams_and_is_in_the_log_when_the_session_is_opened_again(guests):
    script = {"prompts": {"go": [{"think": "hm"}, {"say": "Hello "}, {"say": "there."}]}}
    async with guests.talk(script) as talk:
        assert await talk.ask("go") == "end_turn"
        assert talk.of(SessionOpened)[0].agent == "mine"
        said = [type(event) for event in talk.of(ThinkingDelta, TextDelta, BlockEnded)]
        assert said == [ThinkingDelta, BlockEnded, TextDelta, TextDelta, BlockEnded]
    script["settings"] = {"capabilities": {"loadSession": True}}
    async with guests.talk(script, agent="") as talk:
        [shown] = talk.of(HistoryShown)
        assert [event.text for event in shown.events if isinstance(event, TextDelta)] == [
            "Hello there."
        ]
        assert talk.of(SessionOpened)[0].agent == "mine"
        assert await talk.ask("more") == "end_turn"
        assert talk.text == "heard: more"  # what session/load has told again is shown already
        assert talk.notices == []


@prove
async def test_an_agent_that_cannot_resume_begins_anew_and_that_is_said(guests):
    async with guests.talk({"prompts": {}}) as talk:
        await talk.ask("one")
    async with guests.talk({"prompts": {}}, agent="") as talk:
        await talk.ask("two")
        assert "does not remember this conversation" in talk.notices[0]


async def test_calls_are_blocks_with_our_names_and_their_diffs(guests):
    diff = {"type": "diff", "path": "$CWD/a.py", "oldText": "one\ntwo\n", "newText": "one\n2\n3\n"}
    script = {
        "prompts": {
            "go": [
                call("1", title="Read a.py", kind="read", locations=[{"path": "$CWD/a.py"}]),
                news("1", status="completed", content=content("```py\none\n```")),
                call("2", title="Edit", kind="edit", status="in_progress", content=[diff]),
                news("2", status="completed"),
                call("3", title="`ls`", kind="execute", rawInput={"command": "ls -l"}),
                news("3", status="in_progress", content=content("a\n")),
                news("3", status="in_progress", content=content("a\nb\n")),
                news("3", status="failed", content=content("a\nb\nno\n")),
                {"say": "done"},
            ]
        }
    }
    async with guests.talk(script) as talk:
        await talk.ask("go")
        names = [(tool, title) for tool, title, _ in talk.tools()]
        assert names == [("read", "a.py"), ("edit", "a.py"), ("bash", "ls -l")]
        read, edited, ran = talk.of(ToolEnded)
        assert (read.detail, read.summary[0]) == ("one", "✓")
        assert (edited.summary, edited.filetype) == ("+2 −1", "diff")
        assert "-two\n+2\n+3" in edited.detail
        assert [event.text for event in talk.of(ToolOutput)] == ["a", "\nb"]
        assert (ran.summary, ran.detail, ran.is_error) == ("failed", "no", True)


@prove
async def test_calls_side_by_side_stand_one_after_the_other(guests):
    script = {
        "prompts": {
            "go": [
                call("1", title="first", kind="search", status="in_progress"),
                call("2", title="second", kind="search", status="in_progress"),
                news("2", status="completed", content=content("2")),
                news("1", status="completed", content=content("1")),
                call("3", title="third", kind="search", status="in_progress"),
                {"say": "words do not wait"},
                news("3", status="completed", content=content("3")),
                news("9", title="of which nothing was told", status="completed"),
            ]
        }
    }
    async with guests.talk(script) as talk:
        await talk.ask("go")
        order = [(type(event).__name__[4:], event.id) for event in talk.of(ToolStarted, ToolEnded)]
        assert order == [
            *(("Started", "1"), ("Ended", "1"), ("Started", "2"), ("Ended", "2")),
            *(("Started", "3"), ("Ended", "3"), ("Started", "9"), ("Ended", "9")),
        ]
        assert [event.detail for event in talk.of(ToolEnded)] == ["1", "2", "", ""]


@pytest.mark.parametrize(
    "answer, told",
    prove_rest(
        [
            ({"answer": "once"}, "yes"),
            ({"answer": "always"}, "ever"),
            ({"answer": "deny"}, "no"),
            ({"answer": "always", "option": "ever"}, "ever"),
            ({"answer": "once", "option": "ever"}, "yes"),  # it is no answer of that kind
        ]
    ),
)
async def test_its_questions_are_answered_with_its_own_options(guests, answer, told):
    asked = {"toolCall": {"toolCallId": "1", "title": "x", "kind": "other"}, "options": OPTIONS}
    async with guests.talk({"prompts": {"go": [{"ask": asked}]}}) as talk:
        talk.answer = answer
        await talk.ask("go")
        [question] = talk.of(ApprovalRequested)
        assert question.choices == ("once", "always")
        assert [option.title for option in question.options][2] == "No, tell it otherwise"
        assert f'"optionId": "{told}"' in talk.text
        is_denied = talk.of(ToolEnded)[0].is_denied
        assert is_denied == (told == "no")


async def test_in_auto_mode_what_the_sandbox_confines_is_not_asked_about(guests):
    raw = {"toolCallId": "1", "title": "x", "kind": "execute", "rawInput": {"command": "make"}}
    script = {"prompts": {"go": [{"ask": {"toolCall": raw, "options": OPTIONS}}]}}
    async with guests.talk(script) as talk:
        talk.act(SetMode("auto"))
        await talk.ask("go")
        assert talk.of(ApprovalRequested) == []
        assert '"optionId": "yes"' in talk.text


@prove
async def test_the_reason_of_a_no_is_the_next_prompt(guests):
    asked = {"toolCall": {"toolCallId": "1", "title": "x", "kind": "other"}, "options": OPTIONS}
    async with guests.talk({"prompts": {"go": [{"ask": asked}]}}) as talk:
        talk.answer = {"answer": "deny", "reason": "use make"}
        talk.submit("go")
        await talk.wait_for_turns(2)
        assert talk.text.endswith("heard: use make")


async def test_a_stopped_turn_ends_as_cancelled_and_takes_its_question_back(guests):
    asked = {"toolCall": {"toolCallId": "1", "title": "x", "kind": "other"}, "options": OPTIONS}
    script = {"prompts": {"go": [{"ask": asked}], "wait": [{"wait_cancel": 10}]}}
    async with guests.talk(script) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: talk.of(ApprovalRequested))
        talk.act(CancelTurn())
        assert await talk.wait_for_turns() == "cancelled"
        assert '"outcome": "cancelled"' in talk.text
        assert len(talk.of(ApprovalSettled)) == 1
        talk.submit("wait")
        await talk.wait_for(lambda: len(talk.of(TurnStarted)) == 2)
        talk.act(CancelTurn())
        assert await talk.wait_for_turns(2) == "cancelled"
        assert await talk.ask("again") == "end_turn"  # the same process
        assert talk.errors == talk.notices == []


@prove
async def test_a_prompt_that_steers_goes_when_the_turn_has_ended(guests):
    script = {"prompts": {"go": [{"sleep": 0.3}, {"say": "first. "}]}}
    async with guests.talk(script) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: talk.of(TurnStarted))
        talk.act(SteerTurn(Prompt("s", "left")))
        await talk.wait_for_turns(2)
        assert talk.text == "first. heard: left"


async def test_plan_commands_usage_and_title_are_shown(guests):
    plan = [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "do", "priority": "low", "status": "in_progress"},
        {"content": "this, too", "priority": "low", "status": "in_progress"},
    ]
    commands = [{"name": "init", "description": "begin", "input": {"hint": "[what]"}}]
    script = {
        "begin": [{"sessionUpdate": "available_commands_update", "availableCommands": commands}],
        "prompts": {
            "/init all": [{"say": "begun"}],
            "go": [
                update("plan", entries=plan),
                update(
                    "usage_update", used=500, size=1000, cost={"amount": 0.5, "currency": "USD"}
                ),
            ],
        },
        "answer": {"usage": {"totalTokens": 30, "inputTokens": 10, "outputTokens": 20}},
    }
    async with guests.talk(script) as talk:
        await talk.ask("go")
        assert [item.status for item in talk.of(TodoChanged)[-1].items] == [
            *("completed", "in_progress", "in_progress")
        ]
        usage = talk.of(UsageUpdated)[-1]
        assert (usage.last_request.context_tokens, usage.context_window_tokens) == (500, 1000)
        assert (usage.cost_usd, usage.is_priced, usage.total.output_tokens) == (0.5, True, 20)
        await talk.wait_for(
            lambda: any(
                each.source == "agent" and each.name == "init"
                for each in talk.of(SlashCommandsChanged)[-1].commands
            )
        )
        await talk.ask("/init all")
        assert talk.text == "begun"


async def test_what_is_told_of_an_option_before_it_is_set_does_not_take_it_back(guests):
    option = MODEL | {"options": [BIG, SMALL]}
    script = {"prompts": {}, "session": {"configOptions": [option]}, "tells_options_before": True}
    async with guests.talk(script) as talk:
        await talk.ask("go")
        before = len(talk.of(ModelChanged))
        talk.act(SetGuestOption("m", "small"))
        await talk.wait_for(lambda: len(talk.of(ModelChanged)) > before)
        await talk.ask("go on")
        assert [each.model for each in talk.of(ModelChanged)[before:]] == ["mine: Small"]


@prove
async def test_modes_models_and_options_can_be_chosen_and_only_those(guests):
    groups = [
        {"group": "f", "name": "F", "options": [BIG]},
        {"group": "g", "name": "G", "options": [SMALL]},
    ]
    option = MODEL | {"options": groups}
    switch = {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": False}
    modes = {
        "currentModeId": "code",
        "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}],
    }
    script = {"prompts": {}, "session": {"modes": modes, "configOptions": [option, switch]}}
    async with guests.talk(script) as talk:
        await talk.ask("go")
        [shown] = talk.of(GuestOptionsChanged)[-1:]
        assert [each.id for each in shown.options] == ["mode", "m", "fast"]
        models = await talk.agent.answer(ListModels("s1"))
        assert models.models == ("big", "small")
        for name, value, now in (("mode", "Plan", "plan"), ("m", "small", "small")):
            talk.act(SetGuestOption(name, value))
            await talk.wait_for(
                lambda now=now: (
                    now in [each.value for each in talk.of(GuestOptionsChanged)[-1].options]
                )
            )
        assert talk.of(ModelChanged)[-1].model == "mine: Small"
        talk.act(SetGuestOption("fast", "on"))
        await talk.wait_for(lambda: talk.of(GuestOptionsChanged)[-1].options[2].value == "true")
        talk.act(SetGuestOption("slow", "on"))
        await talk.wait_for(lambda: talk.notices)
        assert "there is no option 'slow'" in talk.notices[-1]
    script["session"] = {}
    async with guests.talk(script, session_id="s2") as talk:
        await talk.ask("go")
        assert talk.of(GuestOptionsChanged)[-1].options == ()
        talk.act(Compact())
        await talk.wait_for(lambda: talk.notices)
        assert "does not support compaction" in talk.notices[-1]


async def test_what_it_has_changed_by_itself_is_undone(guests):
    script = {
        "prompts": {
            "go": [
                {"write": {"path": "a.txt", "text": "new\n"}},
                call("1", title="Write", kind="edit", status="completed"),
                {"write": {"path": "b.txt", "text": "b\n"}},
            ]
        }
    }
    (guests.project / "a.txt").write_text("old\n")
    async with guests.talk(script) as talk:
        await talk.ask("go")
        changes = await talk.agent.answer(ListChanges("s1"))
        assert {file.path for file in changes.turns[0].files} == {"a.txt", "b.txt"}
        talk.act(UndoTurn())
        await talk.wait_for(lambda: talk.of(FilesRestored))
        assert (guests.project / "a.txt").read_text() == "old\n"
        assert not (guests.project / "b.txt").exists()
        await talk.ask("tell")
        assert "undid your file changes" in talk.text
        talk.act(Rewind("p1", "conversation"))
        await talk.wait_for(lambda: talk.notices)
        assert "cannot rewind the conversation" in talk.notices[-1]


async def test_it_reads_and_writes_files_and_runs_commands_through_us(guests):
    script = {
        "prompts": {
            "go": [
                {"call": {"method": "fs/read_text_file", "params": {"path": "$CWD/a.txt"}}},
                {
                    "call": {
                        "method": "fs/write_text_file",
                        "params": {"path": "$CWD/new.txt", "content": "made\n"},
                    }
                },
                {"call": {"method": "fs/read_text_file", "params": {"path": "$CWD/none"}}},
                {"call": {"method": "terminal/create", "params": {"command": "echo hi"}}},
                call(
                    "1",
                    title="t",
                    kind="execute",
                    status="in_progress",
                    content=[{"type": "terminal", "terminalId": "terminal-1"}],
                ),
                {
                    "call": {
                        "method": "terminal/wait_for_exit",
                        "params": {"terminalId": "terminal-1"},
                    }
                },
                news("1", status="completed"),
                {"call": {"method": "_mine/nothing", "params": {}}},
            ]
        }
    }
    (guests.project / "a.txt").write_text("here\n")
    async with guests.talk(script) as talk:
        talk.act(SetMode("auto"))
        await talk.ask("go")
        assert 'got: {"content": "here\\n"}' in talk.text
        assert '"code": -32002' in talk.text
        assert '"exitCode": 0' in talk.text
        assert '"code": -32601' in talk.text
        assert (guests.project / "new.txt").read_text() == "made\n"
        assert (put_out(talk), talk.of(ToolEnded)[-1].detail) == ("hi\n", "")


def put_out(talk):
    return "".join(event.text for event in talk.of(ToolOutput))


@pytest.mark.parametrize("words", prove_rest([[], [{"say": "It has run."}]], (-1,)))
@pytest.mark.parametrize("is_told_first", [True, False])
async def test_what_a_terminal_writes_is_shown_once(guests, is_told_first, words):
    terminal = {"terminalId": "terminal-1"}
    content = [{"type": "terminal", **terminal}]
    told = call("1", title="t", kind="execute", status="in_progress", content=content)
    wait = {"request": {"method": "terminal/wait_for_exit", "params": terminal}}
    create = {"method": "terminal/create", "params": {"command": "sleep 0.1; echo hi"}}
    script = {
        "prompts": {
            "go": [
                {"request": create},
                *((told, wait) if is_told_first else (wait, told)),
                *words,
                news("1", status="completed"),
            ]
        }
    }
    async with guests.talk(script) as talk:
        talk.act(SetMode("auto"))
        await talk.ask("go")
        assert (put_out(talk), talk.of(ToolEnded)[-1].detail) == ("hi\n", "")


@prove
async def test_a_terminal_that_is_named_again_and_again_is_shown_once(guests):
    terminal = {"terminalId": "terminal-1"}
    content = [{"type": "terminal", **terminal}] * 1_000
    calls = [
        call(n, title="t", kind="execute", status="in_progress", content=content) for n in "12"
    ]
    create = {"request": {"method": "terminal/create", "params": {"command": "sleep 0.2; echo hi"}}}
    wait = {"request": {"method": "terminal/wait_for_exit", "params": terminal}}
    ended = [news(n, status="completed") for n in "12"]
    async with guests.talk({"prompts": {"go": [create, *calls, wait, *ended]}}) as talk:
        talk.act(SetMode("auto"))
        await talk.ask("go")
        assert put_out(talk) == "hi\n"
        assert [each.detail for each in talk.of(ToolEnded)] == ["", "hi"]


@prove
async def test_what_a_call_has_put_out_is_shown_again_above_what_came_at_its_end(guests):
    def text(words):
        return [{"type": "content", "content": {"type": "text", "text": words}}]

    begun = call("1", title="t", kind="other", status="in_progress", content=text("one\n"))
    ended = news("1", status="completed", content=text("one\ntwo\n"))
    async with guests.talk({"prompts": {"go": [begun, {"sleep": 0.3}, ended]}}) as talk:
        await talk.ask("go")
        assert (put_out(talk), talk.of(ToolEnded)[-1].detail) == ("one", "two")
    session = Session.open(guests.state_dir / "sessions", "s1", str(guests.project))
    [again] = [each for each in HistoryPager(session).take().events if isinstance(each, ToolEnded)]
    session.close()
    assert again.detail == "one\ntwo"


@prove
async def test_it_does_not_see_the_rest_of_home_and_reaches_no_host(guests, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    script = {"prompts": {"go": [{"write": {"path": str(secret), "text": "stolen"}}]}}
    async with guests.talk(script) as talk:
        talk.submit("go")
        with anyio.move_on_after(3):
            await talk.wait_for_turns()
        talk.act(CancelTurn())
        talk.act(CancelTurn())
        await talk.wait_for_turns()
        assert secret.read_text() == "s"


@prove
async def test_plan_mode_starts_it_anew_where_nothing_can_be_written(guests):
    script = {
        "settings": {"capabilities": {"loadSession": True}},
        "prompts": {"go": [{"write": {"path": "a.txt", "text": "new\n"}}]},
    }
    async with guests.talk(script) as talk:
        await talk.ask("hello")
        talk.act(SetMode("plan"))
        talk.submit("go")
        with anyio.move_on_after(3):
            await talk.wait_for_turns(2)
        talk.act(CancelTurn())
        talk.act(CancelTurn())
        await talk.wait_for_turns(2)
        assert not (guests.project / "a.txt").exists()


@prove
async def test_a_login_is_asked_for_with_the_ways_that_the_agent_offers(guests):
    methods = [{"id": "key", "name": "A key", "description": "type it"}]
    script = {"settings": {"needs_login": True, "auth_methods": methods}, "prompts": {}}
    async with guests.talk(script) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn"
        [question] = talk.of(ApprovalRequested)
        assert [option.title for option in question.options] == ["A key", "do not"]
    async with guests.talk(script, session_id="s2") as talk:
        talk.answer = {"answer": "deny"}
        await talk.wait_for(lambda: talk.errors)
        assert "wants you to log in" in talk.errors[0]
        assert isinstance(talk.events[-1], TurnEnded)
    terminal = {"id": "t", "type": "terminal", "name": "In a terminal", "args": ["--log in"]}
    script["settings"]["auth_methods"] = [terminal]
    async with guests.talk(script, session_id="s3") as talk:
        await talk.wait_for(lambda: talk.errors)
        assert f"In a terminal: {shlex.quote(sys.executable)} " in talk.errors[0]
        assert "'--log in'" in talk.errors[0]


@prove
async def test_a_question_that_is_answered_late_is_nobodys(guests):
    async with guests.talk({"prompts": {}}) as talk:
        await talk.ask("go")
        talk.act(AnswerApproval("gone", "once"))
        assert await talk.ask("go") == "end_turn"


@prove
async def test_a_fork_begins_anew_with_the_agent_and_that_is_said(guests):
    from sanderling.session.store import fork

    script = {"settings": {"capabilities": {"loadSession": True}}, "prompts": {}}
    async with guests.talk(script) as talk:
        await talk.ask("one")
    fork(guests.state_dir / "sessions", "s1", "s2", "", is_before=False)
    async with guests.talk(script, session_id="s2", agent="") as talk:
        assert await talk.ask("two") == "end_turn"
        assert talk.notices == [
            "Mine started a new session and does not remember this conversation."
        ]
