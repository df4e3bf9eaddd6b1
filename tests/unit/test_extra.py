"""What a provider says besides goes back to the model that said it, unread, and to no other; the log keeps it."""

from pathlib import Path

import pytest

from sanderling.conversation.reply import Reply
from sanderling.protocol.messages import (
    ContentBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.session.history import UnansweredCalls, continued, fit, for_another_model
from sanderling.session.session import Session

SIGNED = {"call": {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}}
ASKED = Message("user", (TextBlock("Hi"),))
SAID = Message(
    "assistant",
    (
        ThinkingBlock("Hm.", "", {"field": "reasoning_content"}),
        TextBlock("I look.", {"message": {"reasoning_details": [{"data": "c2VjcmV0", "at": 1.5}]}}),
        ToolUse("call_1", "ls", {"path": "."}, SIGNED),
    ),
)
BARE = Message("assistant", (TextBlock("I look."), ToolUse("call_1", "ls", {"path": "."})))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session.open(tmp_path / "sessions", "s1", "/")


@pytest.mark.parametrize(
    "thought, is_kept",
    [
        (ThinkingBlock("Hm.", ""), False),
        (ThinkingBlock("Hm.", "c2lnbmVk"), True),
        (ThinkingBlock("Hm.", "", {"field": "reasoning"}), True),
        (ThinkingBlock("", "", {"sealed": "x"}), True),
    ],
)
def test_thought_is_kept_if_somebody_takes_it_back(thought, is_kept):
    (kept,) = continued(
        [ASKED], Message("assistant", (thought, TextBlock("So."))), UnansweredCalls()
    )
    assert kept.content == ((thought,) if is_kept else ()) + (TextBlock("So."),)


def test_another_model_gets_neither_thoughts_nor_what_is_extra():
    history = [ASKED, SAID, Message("user", (ToolResult("call_1", "a.txt"),))]
    assert for_another_model(history) == [ASKED, BARE, history[2]]
    again = for_another_model(for_another_model(history))
    assert again[0] is history[0]
    assert again[2] is history[2]


def test_log_gives_it_back_to_a_session_that_is_resumed(session):
    session.append_message(ASKED)
    session.append_reply(SAID)
    session.close()
    again = Session.open(session.path.parent, "s1", "/")
    assert again.history[:2] == [ASKED, SAID]
    again.switch_model("other")
    again.close()
    assert Session.open(session.path.parent, "s1", "/").history[1] == BARE


def spoken(session: Session, *blocks: ContentBlock, by: str, for_model: str) -> Message:
    session.append_message(ASKED)
    reply = Reply(session)
    reply.model = by
    for block in blocks:
        reply.finish_block(block)
    reply.keep(for_model)
    return session.history[-1]


def test_reply_is_kept_with_it_for_the_model_that_spoke(session):
    assert spoken(session, *SAID.content, by="a:m", for_model="a:m") == SAID


def test_reply_is_kept_without_it_if_another_model_was_chosen_meanwhile(session):
    assert spoken(session, *SAID.content, by="a:m", for_model="b:m") == BARE


def test_use_whose_id_or_name_does_not_fit_keeps_it(session):
    unfit = ToolUse("a b", "ls\0", {}, SIGNED)
    (use,) = spoken(session, unfit, by="m", for_model="m").content
    assert isinstance(use, ToolUse)
    assert (use.id, use.extra) == ("a_b", SIGNED)
    (again,) = fit(Message("assistant", (unfit,))).content
    assert isinstance(again, ToolUse)
    assert again.extra == SIGNED
