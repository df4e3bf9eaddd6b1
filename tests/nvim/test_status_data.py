"""What scripts are told as data: a session's status, tools that have ended, questions that are settled."""

from tests.nvim.conftest import count_keys_after
from tests.nvim.test_approval import asked, settled


def status(screen):
    return screen.lua("return require('sanderling').status()")


def test_the_status_is_data_beside_the_string(start_screen):
    screen = start_screen()
    assert status(screen) is None
    assert screen.lua("return package.loaded['sanderling.status'] == nil")
    screen.command("AgentChat")
    screen.send({"type": "session_opened", "model": "a-model", "title": "A title"})
    screen.in_a_turn()
    screen.send(
        {"type": "mode_changed", "mode": "plan"},
        {"type": "tool_started", "id": "t", "tool": "bash", "title": "make"},
        {"type": "sandbox_changed", "level": "full", "network": "proxy"},
        {
            "type": "usage_updated",
            "total": {"input_tokens": 900},
            "turn": {},
            "last_request": {"input_tokens": 900},
            "context_window_tokens": 1000,
            "is_priced": True,
            "cost_usd": 0.5,
        },
        asked(),
    )
    told = status(screen)
    assert told.pop("session_id")
    assert told == {
        "name": "A title",
        "model": "a-model",
        "mode": "plan",
        "activity": "streaming",
        "is_busy": True,
        "tools": ["bash"],
        "approvals": 1,
        "waiting": 0,
        "jobs": 0,
        "children": 0,
        "children_waiting": 0,
        "unreviewed": 0,
        "connection": "",
        "sandbox": "full",
        "network": "proxy",
        "cost_usd": 0.5,
        "context_percent": 90,
    }


def test_another_status_is_told_once_and_text_that_streams_is_none(screen):
    screen.in_a_turn()
    count = len(screen.events("AgentStatusChanged"))
    assert screen.events("AgentStatusChanged")[-1] == status(screen)
    for _ in range(3):
        screen.send({"type": "text_delta", "block_id": 1, "text": "more "})
    assert len(screen.events("AgentStatusChanged")) == count
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    assert len(screen.events("AgentStatusChanged")) == count + 1
    assert screen.events("AgentStatusChanged")[-1]["activity"] == "idle"


def test_the_end_of_a_tool_is_told(screen):
    screen.in_a_turn()
    screen.send({"type": "tool_started", "id": "t", "tool": "bash", "title": "make"})
    screen.send(
        {
            "type": "tool_ended",
            "id": "t",
            "summary": "✗ denied",
            "is_error": True,
            "is_denied": True,
        }
    )
    (event,) = screen.events("AgentToolEnded")
    assert event == {
        "session_id": status(screen)["session_id"],
        "id": "t",
        "tool": "bash",
        "summary": "✗ denied",
        "is_error": True,
        "is_denied": True,
    }


def test_a_question_is_settled_once_by_an_answer_or_without_one(screen):
    screen.in_a_turn()
    screen.send(asked("q"))
    screen.wait_for_screen("Allow bash")
    count_keys_after(screen, 0)
    screen.command("AgentAllow")
    screen.send(settled("q"))
    screen.send(asked("r"), settled("r"))
    screen.send(asked("s"), {"type": "local_failed", "message": "gone"})
    screen.send(asked("t"))
    screen.command("Agent close")
    told = [(each["id"], each.get("answer")) for each in screen.events("AgentApprovalSettled")]
    assert told == [("q", "once"), ("r", None), ("s", None), ("t", None)]
