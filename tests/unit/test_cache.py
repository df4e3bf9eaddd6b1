"""Requests and the API's cache: the prefix stays, so it is read and not paid for again."""

import json
from itertools import pairwise

import pytest
from tests.cached_api import CachedApi, text, thought, use
from tests.cached_chat import CachedChat, CachedOllama
from tests.cached_responses import CachedResponses
from tests.cached_session import TURNS, CachedSession, set_zone
from tests.conftest import policy_of, prove

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.events import (
    BlockEnded,
    ErrorOccurred,
    Event,
    PromptSteered,
    TextDelta,
    ToolStarted,
    TurnEnded,
    UsageUpdated,
)
from sanderling.protocol.messages import Prompt
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.session.session import Session


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "*")
    yield
    set_zone("")


@prove
@pytest.mark.parametrize("looks_back", [True, False], ids=["looks back", "looks at marks only"])
async def test_a_day_with_openai_reads_nearly_all_from_the_cache(tmp_path, monkeypatch, looks_back):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    day = CachedSession(tmp_path, CachedResponses)
    day.api.cache.looks_back = looks_back
    await day.run()
    assert day.api.refused == []
    assert [e for e in day.events if isinstance(e, ErrorOccurred)] == []
    assert day.events.count(TurnEnded("end_turn")) == TURNS
    assert day.api.changes == [], "the prefix is the same, byte for byte"
    for before, after in pairwise(day.api.asked):
        assert after.counts["cached"] == before.counts["input_tokens"]
    assert day.api.read_share() >= 0.95
    price = sum(each.price for each in day.api.asked)
    assert price < 0.2 * sum(each.counts["input_tokens"] for each in day.api.asked)


APIS = {
    "deepseek": lambda answer: CachedChat("deepseek", "m", answer),
    "mistral": lambda answer: CachedChat("mistral", "m", answer),
    "claude at openrouter": lambda answer: CachedChat("openrouter", "anthropic/m", answer),
    "ollama": CachedOllama,
}


@prove
@pytest.mark.parametrize("name", APIS)
async def test_a_day_with_another_reads_nearly_all_from_the_cache(tmp_path, monkeypatch, name):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-test")
    day = CachedSession(tmp_path, APIS[name])
    await day.run()
    seen = day.api.day
    assert seen.refused == []
    assert [e for e in day.events if isinstance(e, ErrorOccurred)] == []
    assert day.events.count(TurnEnded("end_turn")) == TURNS
    assert seen.changes == [], "the prefix is the same, byte for byte"
    assert seen.read_share() >= 0.95
    if name != "ollama":
        read = sum(read for read, _ in seen.counts)
        told = [event for event in day.events if isinstance(event, UsageUpdated)]
        assert told[-1].total.cache_read_input_tokens == read


@prove
async def test_a_day_of_forty_turns_reads_nearly_all_of_its_input_from_the_cache(tmp_path):
    day = CachedSession(tmp_path)
    await day.run()
    assert day.api.refused == []
    assert [e for e in day.events if isinstance(e, ErrorOccurred)] == []
    assert day.events.count(TurnEnded("end_turn")) == TURNS
    assert day.api.changes == [], "the prefix is the same, byte for byte"
    for before, after in pairwise(day.api.asked):
        assert after.usage["cache_read_input_tokens"] == before.input_tokens
    assert day.api.read_share() >= 0.95
    assert day.api.read_share(first=2) >= 0.98, "without the first turn"
    said = json.dumps(day.api.asked[-1].request["messages"])
    for news in ("- late: Came at noon.", "The hook of prompts.", "Seen by a hook."):
        assert news in said
    for news in ("Only review.", "all but write", "Do it well.", "The role ends here"):
        assert said.count(news) == 1
    for news in ("Plan mode", "network: proxy", "branch feature/rows", "whole sentences"):
        assert news in said
    for news in ("No loops here", "half sentences", "from the person", "Leave the tests alone"):
        assert news in said
    assert said.count("date: ") == 2
    assert any(isinstance(event, PromptSteered) for event in day.events)


TODO = use("toolu_1", "todo", items=[{"content": "Look.", "status": "pending"}])
SAID = [[thought("Hm."), text("I plan."), TODO], [thought("Well."), text("Done.")]]


@pytest.mark.parametrize(
    "moment", [TextDelta, BlockEnded, ToolStarted, TurnEnded], ids=lambda kind: kind.__name__
)
async def test_another_model_is_not_shown_the_thoughts_of_the_one_before(tmp_path, moment):
    answers = iter([*SAID, *SAID[1:] * 9])
    with CachedApi(lambda _body: next(answers)) as api:
        settings = Settings(
            state_dir=str(tmp_path / "state"), base_url=api.url, provider="anthropic"
        )
        session = Session.open(settings.session_dir, "s1", str(tmp_path))
        events: list[Event] = []

        def emit(event: Event) -> None:
            is_first = isinstance(event, moment) and not any(isinstance(e, moment) for e in events)
            events.append(event)
            if is_first:
                conversation.controls.set_model("claude-opus-5-5")

        provider = AnthropicProvider(settings)
        conversation = Conversation(
            SessionServices(session, provider, emit, policy_of(session), settings)
        )
        for number in range(2):
            await conversation.run_turn(Prompt(f"p{number}", "Go on."))
        await provider.aclose()
        session.close()
    assert api.refused == []
    assert [each.request["model"] for each in api.asked][-1] == "claude-opus-5-5"
    assert events.count(TurnEnded("end_turn")) == 2
    assert Session.open(settings.session_dir, "s1", "/").history == session.history
