"""A conversation with a server that nobody here wrote, aimock (https://github.com/CopilotKit/aimock), which judges our requests by its own reading."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.conftest import DEADLINE_S, prove, wait_until
from tests.fuzz.talk import settings_in
from tests.fuzz.wires import ANTHROPIC, WIRES, Wire
from tests.talk import BaseTalk

from sanderling.errors import ProviderError
from sanderling.protocol.events import (
    ErrorOccurred,
    TextDelta,
    ThinkingDelta,
    TodoChanged,
    TurnEnded,
    UsageUpdated,
)
from sanderling.protocol.messages import Message, Prompt, ToolResult, Usage
from sanderling.providers import ModelRequest
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.sandbox.sandbox import Sandbox
from sanderling.session.history import for_another_model
from sanderling.session.session import Session

PEERS = Path(os.environ.get("SANDERLING_PEERS", Path(__file__).parent.parent / "peers"))
CLI = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

OLLAMA = WIRES["ollama"]
PATHS = [wire.path for wire in WIRES.values()]
THOUGHT = "A greeting. I greet back."

FIXTURES = [
    {
        "match": {"userMessage": "Good morning."},
        "response": {"content": "Good morning to you, too! 🦀", "reasoning": THOUGHT},
    },
    {
        "match": {"userMessage": "And now?"},
        "response": {
            "content": "Now it is later.\n\n```\n12:01\n```\n",
            "usage": {"input_tokens": 30, "output_tokens": 7}
            | {"prompt_tokens": 30, "completion_tokens": 7},
        },
    },
    {
        "match": {"userMessage": "Use a tool.", "hasToolResult": False},
        "response": {
            "toolCalls": [
                {"id": "toolu_1", "name": "teleport", "arguments": {"to": "mars", "at": [1, 2]}}
            ],
            "reasoning": "Mars, then.",
        },
    },
    {
        "match": {"userMessage": "Use a tool.", "hasToolResult": True},
        "response": {"content": "I cannot."},
    },
    {
        "match": {"userMessage": "Fail."},
        "response": {
            "error": {"message": "Too many requests", "type": "rate_limit_error"},
            "status": 429,
        },
    },
]
TURNS = 10
REASONING = "First the list; then I try the other thing. ⚙"


def _tool_session() -> Iterator[dict[str, Any]]:
    """Two rounds of tools and an answer for each turn, and a thought before each of them."""
    for turn in range(TURNS):
        items = [{"content": f"Turn {turn}", "status": "in_progress"}]
        plan = {"id": f"plan_{turn}", "name": "todo", "arguments": {"items": items}}
        look = {"id": f"look_{turn}", "name": "teleport", "arguments": {"to": f"mars {turn}"}}
        asked = {"userMessage": f"Turn {turn}.", "hasToolResult": False}
        yield _fixture(asked, toolCalls=[plan])
        yield _fixture({"toolCallId": f"plan_{turn}"}, toolCalls=[look])
        yield _fixture({"toolCallId": f"look_{turn}"}, content=f"Answer {turn}.")


def _fixture(match: dict[str, Any], **response: Any) -> dict[str, Any]:
    return {"match": match, "response": response | {"reasoning": REASONING}}


class Aimock:
    def __init__(self, url: str) -> None:
        self.url = url

    def forget(self) -> None:
        """Begin a new journal."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/__aimock/reset/journal", method="POST")
        ).close()

    def journal(self) -> list[dict[str, Any]]:
        """The answered requests, as aimock saw them."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal") as response:
            entries = json.load(response)
        return [entry for entry in entries if entry["path"] in PATHS]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    node = shutil.which("node")
    if node is None or not CLI.exists():
        reason = f"needs node and {CLI}: npm install in tests/peers"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    directory = tmp_path_factory.mktemp("aimock")
    (directory / "fixtures.json").write_text(
        json.dumps({"fixtures": [*FIXTURES, *_tool_session()]})
    )
    files = ("-f", str(directory / "fixtures.json"))
    argv = [node, str(CLI), "-p", "0", *files, "--strict", "-c", "5", "-l", "1"]
    with (
        (directory / "log").open("w+") as log,
        subprocess.Popen(argv, stdout=log, stderr=log) as process,
    ):
        try:
            url = wait_until(lambda: find_url((directory / "log").read_text()), "aimock listens")
            yield Aimock(url)
        finally:
            process.terminate()


def find_url(log: str) -> str:
    return next((word for word in log.split() if word.startswith("http://127.0.0.1:")), "")


class EnabledThinking(httpx2.AsyncHTTPTransport):
    """aimock holds requests against the rules for thoughts where thinking is `enabled`, not yet where it is `adaptive`."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = (await request.aread()).replace(
            b'"type":"adaptive"', b'"type":"enabled","budget_tokens":9999'
        )
        headers = [pair for pair in request.headers.raw if pair[0].lower() != b"content-length"]
        return await super().handle_async_request(
            httpx2.Request(request.method, request.url, headers=headers, content=body)
        )


class Claude(AnthropicProvider):
    """The real one, whose requests pass by `EnabledThinking`."""

    def _make_client(self) -> Any:
        client = super()._make_client()
        client._transport = EnabledThinking()
        return client


class Talk(BaseTalk):
    def __init__(self, wire: Wire, url: str, directory: Path) -> None:
        settings = settings_in(directory, wire, url)
        settings = msgspec.structs.replace(settings, idle_timeout_s=DEADLINE_S)
        make = Claude if wire is ANTHROPIC else make_provider
        project = directory / "project"
        project.mkdir()
        session = Session.open(settings.session_dir, "s1", str(project))
        backoff = Backoff(attempts=2, first_s=0)
        super().__init__(session, make(settings), settings=settings, backoff=backoff)

    async def say(self, *prompts: str) -> list[Message]:
        # What is known first is no news among tool results, which aimock would match.
        await Sandbox.probe()
        async with self.served():
            await self.run_turns(*(Prompt(f"p{n}", words) for n, words in enumerate(prompts, 1)))
            self.conversation.close()
        await self.provider.aclose()
        return self.history


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
def talk(wire: Wire, aimock: Aimock, tmp_path: Path, alone: None) -> Talk:  # noqa: ARG001
    aimock.forget()
    return Talk(wire, aimock.url, tmp_path)


@prove
async def test_two_turns_with_thinking_become_a_history_that_it_takes_back(aimock, wire, talk):
    history = await talk.say("Good morning.", "And now?")
    assert talk.of(ErrorOccurred) == []
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")] * 2
    assert [message.role for message in history] == ["user", "assistant", "user", "assistant"]
    assert "".join(event.text for event in talk.of(ThinkingDelta)) == THOUGHT * (wire is not OLLAMA)
    *thoughts, said = history[1].content
    assert [thought.thinking for thought in thoughts] == [THOUGHT] * (wire is not OLLAMA)
    assert all(thought.signature or thought.extra for thought in thoughts)
    assert said.text == "Good morning to you, too! 🦀"
    assert history[3].content[-1].text == "Now it is later.\n\n```\n12:01\n```\n"
    assert len(talk.of(TextDelta)) > 5, "it streams"
    assert talk.of(UsageUpdated)[-1].last_request == Usage(30, 7) or wire is OLLAMA
    assert [entry["response"]["status"] for entry in aimock.journal()] == [200, 200]


async def test_tool_use_is_decoded_and_answered(talk):
    history = await talk.say("Use a tool.")
    assert talk.of(ErrorOccurred) == []
    use = history[1].content[-1]
    assert (use.name, use.input) == ("teleport", {"to": "mars", "at": [1, 2]})
    assert history[-1].content[-1].text == "I cannot."


@prove
async def test_error_is_told_and_the_next_turn_works(talk):
    history = await talk.say("Fail.", "And now?")
    assert [error.kind for error in talk.of(ErrorOccurred)] == ["rate_limited"]
    assert talk.of(TurnEnded) == [TurnEnded("error"), TurnEnded("end_turn")]
    assert [message.role for message in history] == ["user", "user", "assistant"]


# It does not read to which of Ollama's calls a result belongs.
@prove
@pytest.mark.parametrize("wire", [each for each in WIRES.values() if each is not OLLAMA])
async def test_ten_turns_with_tools_and_thoughts_are_accepted_as_they_go_back(aimock, talk):
    history = await talk.say(*(f"Turn {turn}." for turn in range(TURNS)))
    assert talk.of(ErrorOccurred) == []
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")] * TURNS
    assert len(talk.of(TodoChanged)) == TURNS
    said = [history[6 * turn + 5].content[-1].text for turn in range(TURNS)]
    assert said == [f"Answer {turn}." for turn in range(TURNS)]
    entries = aimock.journal()
    assert [entry["response"]["status"] for entry in entries] == [200] * 3 * TURNS


@prove
@pytest.mark.parametrize("wire", [ANTHROPIC])
async def test_a_dropped_thought_would_have_been_refused(talk):
    """So that the test before means something."""
    await talk.say("Turn 0.")
    talk.history[1] = for_another_model([talk.history[1]])[0]
    again = Message("user", (ToolResult("plan_0", "done"),))
    request = ModelRequest("", [*talk.history[:2], again])
    with pytest.raises(ProviderError, match="thinking"):
        [item async for item in talk.provider.stream(request)]
    await talk.provider.aclose()
