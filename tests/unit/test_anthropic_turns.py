"""Turns of the real provider, over a real connection: what fails on the way reaches the person, and ends no session."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import loopback
from tests.conftest import policy_of, prove_rest, settings_of
from tests.loopback import HANG_UP, RESET, STALL, LoopbackServer, Reply, Status, Step, Wait

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.parts import Parts
from sanderling.protocol.events import (
    AnswerRestarted,
    ErrorOccurred,
    Event,
    ProviderStarting,
    RetryScheduled,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session

DEADLINE_S = 20.0
ATTEMPTS = 3
BEGINNING = loopback.message_start() + loopback.block_start() + loopback.delta(text="Good mor")
CUTS: dict[str, tuple[Step, ...]] = {
    "end": (BEGINNING,),
    "RST": (BEGINNING, Wait(0.05), RESET),
    "FIN": (BEGINNING, Wait(0.05), HANG_UP),
    "silence": (BEGINNING, STALL),
    "overloaded": (BEGINNING, loopback.error("overloaded_error")),
}


class Talk:
    """A session whose model is behind the server, and all it emitted."""

    def __init__(self, server: LoopbackServer, state_dir: Path) -> None:
        self.events: list[Event] = []
        self.session = Session.open(state_dir, "s1", "/project")
        settings = Settings(str(state_dir), base_url=server.url, idle_timeout_s=0.5)
        self.provider = AnthropicProvider(settings)
        self.conversation = Conversation(
            Parts(
                self.session,
                self.provider,
                self.events.append,
                policy_of(self.session),
                settings_of(self.session),
            )
        )
        self.conversation.parts.calls.backoff = Backoff(ATTEMPTS, first_s=0)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def say(self, words: str) -> None:
        with anyio.fail_after(DEADLINE_S):
            await self.conversation.run_turn(Prompt(words, words))


@pytest.fixture
async def talk(server, tmp_path, monkeypatch) -> AsyncIterator[Talk]:
    for name in ("AUTH_TOKEN", "BASE_URL", "PROFILE", "CUSTOM_HEADERS"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    conversation = Talk(server, tmp_path)
    yield conversation
    conversation.session.close()
    await conversation.provider.aclose()


def roles(server: LoopbackServer, request: int) -> list[str]:
    return [message["role"] for message in server.prompts[request].json()["messages"]]


@pytest.mark.parametrize("steps", CUTS.values(), ids=CUTS.keys())
async def test_answer_that_is_cut_is_asked_for_again_and_replaced(server, talk, steps):
    server.answer(Reply(*steps), loopback.hello())
    await talk.say("Good morning.")
    assert talk.of(ErrorOccurred) == []
    assert len(talk.of(AnswerRestarted)) == 1
    assert talk.session.history[-1] == Message("assistant", (TextBlock("Hello there."),))
    assert server.prompts[0].body == server.prompts[1].body


@pytest.mark.parametrize("name", prove_rest(CUTS))
async def test_answer_that_is_always_cut_is_kept_and_the_next_prompt_works(server, talk, name):
    server.answer(*[Reply(*CUTS[name])] * ATTEMPTS, loopback.hello())
    await talk.say("Good morning.")
    [error] = talk.of(ErrorOccurred)
    assert error.kind in {"cut", "stalled", "overloaded"}
    assert talk.events[-1] == TurnEnded("error")
    assert talk.session.history[-1] == Message("assistant", (TextBlock("Good mor"),))
    await talk.say("Go on.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert roles(server, -1) == ["user", "assistant", "user"]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_request_that_fails_for_a_while_is_made_again(server, talk, status):
    server.answer(Status(status), Status(status), loopback.hello())
    await talk.say("Good morning.")
    assert talk.events[-1] == TurnEnded("end_turn")
    assert [event.attempt for event in talk.of(RetryScheduled)] == [2, 3]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_request_that_fails_for_good_is_made_once(server, talk, status):
    server.answer(Status(status))
    await talk.say("Good morning.")
    assert (len(talk.of(ErrorOccurred)), talk.events[-1]) == (1, TurnEnded("error"))
    assert len(server.prompts) == 1


async def test_turn_without_a_key_ends_with_the_error_and_the_session_lives(talk, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    await talk.say("Good morning.")
    assert [event.kind for event in talk.of(ErrorOccurred)] == ["no_key"]
    assert talk.events[-1] == TurnEnded("error")


async def test_first_turn_says_that_the_sdk_is_loading(talk):
    await talk.say("Good morning.")
    await talk.say("Good evening.")
    kinds = [type(event) for event in talk.events]
    assert kinds.count(ProviderStarting) == 1
    assert kinds.index(TurnStarted) < kinds.index(ProviderStarting) < kinds.index(TextDelta)


async def test_first_words_of_an_answer_that_comes_at_once_are_not_kept_from_the_screen(
    server, talk
):
    """Whoever draws gets its turn on the loop right after them, with all of the answer there to be read."""
    pieces = 2000
    server.answer(
        Reply(loopback.message_start(), loopback.text(*["word "] * pieces), loopback.done())
    )
    said_when_drawn: list[int] = []

    def emit(event: Event) -> None:
        talk.events.append(event)
        if isinstance(event, TextDelta) and len(talk.of(TextDelta)) == 1:
            asyncio.get_running_loop().call_soon(
                lambda: said_when_drawn.append(len(talk.of(TextDelta)))
            )

    talk.conversation.parts.calls._emit = emit
    await talk.say("Tell me all.")
    assert said_when_drawn == [1]
    assert len(talk.of(TextDelta)) == pieces


async def test_request_for_the_limits_does_not_go_before_the_prompt(server, talk):
    server.answer(loopback.hello())
    await talk.say("Good morning.")
    with anyio.fail_after(DEADLINE_S):
        while len(server.requests) == 1 and talk.provider.limits is None:
            await talk.say("And?")
    assert server.requests[0].method == "POST"
