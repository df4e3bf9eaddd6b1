"""Compactions, told in their own way to clients that know them, and in words to the others."""

from tests.acp.talk import FULL
from tests.conftest import wait_until

LONG = {"text": "word " * 400}
NO = {"error": {"kind": "invalid_request", "message": "No.", "remedy": "Go."}}


def compacted(start, home, *steps, **capabilities):
    """An agent that was asked to compact, and what came of that."""
    agent = start("--model", home.script([LONG], [LONG], list(steps)))
    agent.initialize(**capabilities)
    session = agent.new()
    for words in ("one", "two"):
        agent.prompt(session, words)
    return agent, agent.prompt(session, "/compact the words")


def test_a_compaction_is_told_with_its_summary(start, home):
    agent, stop_reason = compacted(start, home, {"text": "All words."}, **FULL)
    assert stop_reason == "end_turn"
    begun, done = agent.of("compaction_update")
    assert begun["compactionId"] == done["compactionId"]
    assert (begun["status"], done["status"]) == ("in_progress", "completed")
    assert done["summary"] == [{"type": "text", "text": "All words."}]


def test_a_compaction_that_fails_is_told_as_one(start, home):
    agent, stop_reason = compacted(start, home, {"text": "Al"}, NO, **FULL)
    assert stop_reason == "end_turn"
    assert [each["status"] for each in agent.of("compaction_update")] == ["in_progress", "failed"]
    assert "No." in agent.of("notice")[-1]["title"]


def test_a_compaction_that_is_stopped_is_told_as_cancelled(start, home):
    agent = start("--model", home.script([LONG], [LONG], [{"text": "Al", "delay_ms": 60_000}]))
    agent.initialize(**FULL)
    session = agent.new()
    for words in ("one", "two"):
        agent.prompt(session, words)
    prompt = agent.begin_prompt(session, "/compact")
    wait_until(lambda: agent.of("compaction_update"))
    agent.notify("session/cancel", sessionId=session)
    assert agent.end(prompt) == {"stopReason": "cancelled"}
    assert agent.of("compaction_update")[-1]["status"] == "cancelled"


def test_a_client_that_knows_no_compactions_is_told_in_words(start, home):
    agent, _ = compacted(start, home, {"text": "All words."})
    assert agent.of("compaction_update") == []
    told = agent.text("agent_thought_chunk")
    assert "Summarizing the conversation.\n" in told
    assert "The conversation was summarized: about " in told
