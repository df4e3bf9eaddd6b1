"""The state of a session: a function of its events, which no Neovim has to draw."""

import pytest
from tests.conftest import prove_rest

REDUCE = """
  local states = require('sanderling.session.state')
  local state = states.new('s1')
  for i, event in ipairs(...) do
    local before, copy = state, vim.deepcopy(state)
    state = states.reduce(state, event, i * 1e9)
    assert(vim.deep_equal(before, copy), 'it changes what it was given: ' .. event.type)
  end
  local counts = states.count_prompts(state)
  return { state = state, counts = counts, is_busy = states.is_busy(state) }
"""

PROMPT = {"id": "p1", "text": "fix it"}
LATER = {"id": "p2", "text": "and test it"}
SENT = {"type": "local_prompt_sent", "prompt": PROMPT}
STARTED = {"type": "turn_started", "prompt": PROMPT}
ASKED = {"type": "approval_requested", "id": "q1", "tool": "bash", "title": "make"}
FAILED = {"type": "local_failed", "message": "It has ended."}


def tool(id_, what="started"):
    return {"type": f"tool_{what}", "id": id_, "tool": f"tool{id_}", "title": "x"}


def text(delta, kind="text"):
    return {"type": f"{kind}_delta", "block_id": 1, "text": delta}


def ended(reason="end_turn"):
    return {"type": "turn_ended", "stop_reason": reason}


@pytest.fixture
def after(child):
    """The state after the events, and what follows from it."""
    return lambda *events: child.lua(REDUCE, list(events))


def test_what_changes_nothing_is_the_same_state(child):
    assert child.lua("""
      local states = require('sanderling.session.state')
      local state = states.new('s1')
      return states.reduce(state, { type = 'command_output', id = '1', text = 'x' }, 0) == state
    """)


@pytest.mark.parametrize(
    "events, activity",
    prove_rest(
        [
            ([], "idle"),
            ([SENT], "starting"),
            ([SENT, STARTED], "thinking"),
            ([STARTED, text("Hm", "thinking")], "thinking"),
            ([STARTED, text("Yes")], "streaming"),
            ([STARTED, text("Yes"), tool("1"), tool("1", "ended")], "thinking"),
            ([STARTED, {"type": "local_stop_sent"}, text("Yes")], "stopping"),
            ([{"type": "local_stop_sent"}], "idle"),
            ([{"type": "compaction_started"}], "summarizing"),
            ([{"type": "compaction_started"}, {"type": "compacted"}], "idle"),
            ([STARTED, {"type": "compaction_started"}, {"type": "notice"}], "thinking"),
            ([{"type": "compaction_started"}, {"type": "local_stop_sent"}], "stopping"),
            ([{"type": "remembering_started"}, {"type": "notice"}], "remembering"),
            ([{"type": "remembering_started"}, {"type": "local_stop_sent"}], "stopping"),
            ([{"type": "remembering_started"}, ended("cancelled")], "idle"),
            ([STARTED, ended()], "idle"),
            ([STARTED, ended("error")], "failed"),
            ([STARTED, ended("context_full")], "waiting for you"),
            ([STARTED, FAILED], "failed"),
        ]
    ),
)
def test_the_activity_follows_the_turn(after, events, activity):
    assert after(*events)["state"]["activity"] == activity


def test_a_prompt_is_unconfirmed_until_an_event_names_it(after):
    assert after(SENT)["state"]["unconfirmed"] == [PROMPT]
    for named in (
        STARTED,
        {"type": "prompt_steered", "prompt": PROMPT},
        {"type": "waiting_changed", "queued": [PROMPT]},
        {"type": "prompts_returned", "prompts": [PROMPT]},
    ):
        assert after(SENT, named)["state"]["unconfirmed"] == []


def test_prompts_are_counted_by_where_they_go(after):
    waiting = {"type": "waiting_changed", "steering": [PROMPT], "queued": [LATER]}
    assert after(STARTED, waiting)["counts"] == {"queued": 1, "steering": 1, "held": 0}
    held = after(STARTED, ended(), waiting | {"is_held": True})
    assert held["counts"] == {"queued": 0, "steering": 0, "held": 2}
    assert not held["is_busy"]
    assert held["state"]["activity"] == "idle"


def test_a_session_is_busy_while_there_is_something_to_stop(after):
    sent = {"type": "local_command_sent", "id": "c1", "command": "make"}
    assert not after()["is_busy"]
    assert after(SENT)["is_busy"]
    assert after(STARTED)["is_busy"]
    assert after(sent)["is_busy"]
    assert after(sent, {"type": "command_started", "id": "c1", "command": "make"})["is_busy"]
    assert not after(sent, {"type": "command_ended", "id": "c1"})["is_busy"]


def test_tools_stand_in_the_order_in_which_they_began(after):
    names = [t["name"] for t in after(STARTED, tool("2"), tool("1"))["state"]["tools"]]
    assert names == ["tool2", "tool1"]
    left = after(STARTED, tool("2"), tool("1"), tool("2", "ended"))["state"]["tools"]
    assert [t["id"] for t in left] == ["1"]
    assert after(STARTED, tool("1"), ended())["state"]["tools"] == []


@pytest.mark.parametrize("answer", ["approval_settled", "local_answered"])
def test_a_question_waits_until_it_is_answered_on_either_side(after, answer):
    other = ASKED | {"id": "q2"}
    questions = after(ASKED, other)["state"]["questions"]
    assert [q["event"]["id"] for q in questions] == ["q1", "q2"]
    assert [q["session_id"] for q in questions] == ["s1", "s1"]
    assert questions[0]["asked_ns"] < questions[1]["asked_ns"]
    left = after(ASKED, other, {"type": answer, "id": "q1"})["state"]["questions"]
    assert [q["event"]["id"] for q in left] == ["q2"]


def test_a_mode_is_wanted_until_the_host_confirms_it(after):
    wanted = {"type": "local_mode_wanted", "mode": "plan"}
    assert after(wanted)["state"]["wanted_mode"] == "plan"
    other = after(wanted, {"type": "mode_changed", "mode": "auto"})["state"]
    assert (other["mode"], other["wanted_mode"]) == ("auto", "plan")
    assert "wanted_mode" not in after(wanted, {"type": "mode_changed", "mode": "plan"})["state"]


def test_a_stream_is_measured_from_its_first_word_on(after):
    state = after(STARTED, text("one"), text("two"))["state"]
    assert (state["stream_began_ns"], state["stream_bytes"]) == (2e9, 6)
    state = after(STARTED, text("one"), tool("1"), tool("1", "ended"))["state"]
    assert state["stream_bytes"] == 0
    assert "stream_began_ns" not in state


def test_a_retry_is_waited_for_until_the_model_speaks(after):
    retry = {"type": "retry_scheduled", "attempt": 1, "attempts": 3, "delay_s": 1, "reason": "x"}
    assert after(STARTED, retry)["state"]["retry"] == retry
    for over in ({"type": "retry_started"}, text("Yes"), ended(), FAILED):
        assert "retry" not in after(STARTED, retry, over)["state"]


def test_a_host_that_ends_takes_along_what_it_held_and_nothing_else(after):
    kept = [
        {"type": "session_opened", "model": "m1", "title": "A title"},
        {"type": "usage_updated", "cost_usd": 1},
        {"type": "todo_changed", "items": [{"content": "a", "status": "pending"}]},
        {"type": "slash_commands_changed", "commands": [{"name": "review"}]},
    ]
    held = [
        SENT,
        STARTED,
        tool("1"),
        ASKED,
        {"type": "waiting_changed", "queued": [LATER]},
        {"type": "local_command_sent", "id": "c1", "command": "make"},
        {"type": "commands_running", "count": 2},
        {"type": "mode_changed", "mode": "auto"},
        {"type": "local_mode_wanted", "mode": "plan"},
        {"type": "sandbox_changed", "level": "full", "network": "on"},
        {"type": "jobs_changed", "jobs": [{"id": "1", "command": "x", "outcome": ""}]},
    ]
    assert after(*kept, *held, FAILED)["state"] == after(*kept, FAILED)["state"]
    assert after(*kept, FAILED)["state"] == after(*kept)["state"] | {"activity": "failed"}


def test_a_tool_use_that_names_thousands_of_files_does_not_stall_the_editor(child, after):
    changed = [{"path": str(number), "added": 1, "removed": 0} for number in range(20_000)]
    with child.little_work(10):
        state = after(tool("1"), tool("1", "ended") | {"changed": changed})["state"]
    assert len(state["tally"]["changes"]) == 20_000
