"""What an agent was told yes to, and what it was not: only the first is done without another question."""

import pytest

from sanderling.protocol.actions import CancelTurn
from sanderling.protocol.events import ApprovalRequested

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


@pytest.mark.parametrize("answer", ["deny", "stopped"])
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
