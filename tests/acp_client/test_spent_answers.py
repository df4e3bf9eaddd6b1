"""What an agent was told yes to, and what it was not: only the first is done without another question."""

import pytest

from sanderling.protocol.actions import CancelTurn
from sanderling.protocol.events import ApprovalRequested
from tests.conftest import prove_rest

pytestmark = pytest.mark.anyio
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def script_of(path) -> dict:
    diff = {"type": "diff", "path": str(path), "newText": "new\n"}
    edit = {"toolCallId": "1", "title": "x", "kind": "edit", "content": [diff]}
    write = {"method": "fs/write_text_file", "params": {"path": str(path), "content": "new\n"}}
    return {
        "prompts": {
            "ask": [{"ask": {"toolCall": edit, "options": OPTIONS}}],
            "write": [{"call": write}],
        }
    }


async def test_a_yes_is_spent_once(guests):
    path = guests.project / "a"
    async with guests.talk(script_of(path)) as talk:
        talk.answer = {"answer": "once"}
        await talk.ask("ask")
        await talk.ask("write")
        assert path.read_text() == "new\n"
        assert len(talk.of(ApprovalRequested)) == 1
        path.write_text("old\n")
        await talk.ask("write")
        assert len(talk.of(ApprovalRequested)) == 2


@pytest.mark.parametrize("answer", prove_rest(["deny", "stopped"], (0,)))
async def test_what_nobody_said_yes_to_is_asked_about(guests, answer):
    path = guests.project / "a"
    async with guests.talk(script_of(path)) as talk:
        if answer == "stopped":
            talk.submit("ask")
            await talk.wait_for(lambda: talk.of(ApprovalRequested))
            talk.act(CancelTurn())
            await talk.wait_for_turns()
        else:
            talk.answer = {"answer": answer}
            await talk.ask("ask")
        talk.answer = {"answer": "deny"}
        await talk.ask("write")
        assert len(talk.of(ApprovalRequested)) == 2
        assert not path.exists()


@pytest.mark.parametrize(
    "said",
    prove_rest(
        [
            {"kind": "read", "rawInput": {"path": "README"}},
            {"kind": "execute", "rawInput": {"command": "ls"}},
            {"kind": "execute", "rawInput": {"command": "make all"}},
        ],
        (-1,),
    ),
)
async def test_a_change_that_comes_with_something_else_was_not_allowed_with_it(guests, said):
    path = guests.project / "sub/a"
    diff = {"type": "diff", "path": str(path), "newText": "new\n"}
    ask = {"toolCall": {"toolCallId": "1", "title": "x", **said, "content": [diff]}}
    write = {"method": "fs/write_text_file", "params": {"path": str(path), "content": "new\n"}}
    script = {"prompts": {"go": [{"ask": {**ask, "options": OPTIONS}}], "write": [{"call": write}]}}
    async with guests.talk(script) as talk:
        talk.answer = {"answer": "once"}
        await talk.ask("go")
        talk.answer = {"answer": "deny"}
        await talk.ask("write")
        assert "+new" in talk.of(ApprovalRequested)[-1].subject
        assert not path.exists()


@pytest.mark.parametrize(
    "given, line",
    prove_rest(
        [
            ({"command": "sh", "args": ["-c", "touch made"]}, "sh -c 'touch made'"),
            ({"cmd": "touch made"}, "touch made"),
            ({"command": ["sh", "-c", "touch made"]}, "touch made"),
            ({"command": "touch made"}, "touch made"),
        ]
    ),
)
async def test_a_command_that_is_allowed_was_shown_whole_with_its_directory(guests, given, line):
    sub = guests.project / "sub"
    sub.mkdir()
    text = {"type": "content", "content": {"type": "text", "text": "It lists the files."}}
    diff = {"type": "diff", "path": str(guests.project / "b"), "newText": "other\n"}
    call = {"kind": "execute", "rawInput": {**given, "cwd": "sub"}, "content": [text, diff]}
    ask = {"toolCall": {"toolCallId": "1", "title": "ls", **call}, "options": OPTIONS}
    run = {"method": "terminal/create", "params": {"command": line, "cwd": str(sub)}}
    async with guests.talk({"prompts": {"go": [{"ask": ask}], "run": [{"call": run}]}}) as talk:
        talk.answer = {"answer": "once"}
        await talk.ask("go")
        await talk.ask("run")
        [question] = talk.of(ApprovalRequested)
        assert question.title == question.subject == line
        assert question.cwd == str(sub)


async def test_a_change_is_shown_with_its_path_whatever_it_is_called(guests):
    diff = {"type": "diff", "path": str(guests.project / "evil.py"), "newText": "new\n"}
    call = {"toolCallId": "1", "title": "README", "kind": "move", "content": [diff]}
    script = {"prompts": {"go": [{"ask": {"toolCall": call, "options": OPTIONS}}]}}
    async with guests.talk(script) as talk:
        talk.answer = {"answer": "deny"}
        await talk.ask("go")
        [question] = talk.of(ApprovalRequested)
        assert "--- evil.py" in question.subject
