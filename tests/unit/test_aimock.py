"""
A conversation with a server that nobody here wrote: aimock (https://github.com/CopilotKit/aimock).

What it thinks of our requests, and what its answers become, does not share our reading of the API's documentation.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conftest import policy_of, wait_until

from sanderling.config import Settings
from sanderling.events import (
    ErrorOccurred,
    Event,
    Prompt,
    TextDelta,
    ThinkingDelta,
    TurnEnded,
    UsageUpdated,
)
from sanderling.messages import Message, TextBlock, ThinkingBlock, ToolUse, Usage
from sanderling.orchestrator import Orchestrator
from sanderling.providers.anthropic import AnthropicProvider
from sanderling.session import Session

PEERS = Path(os.environ.get("SANDERLING_PEERS", Path(__file__).parent.parent / "peers"))
CLI = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

DEADLINE_S = 20.0

FIXTURES = [
    {
        "match": {"userMessage": "Good morning."},
        "response": {
            "content": "Good morning to you, too! 🦀",
            "reasoning": "A greeting. I greet back.",
        },
    },
    {
        "match": {"userMessage": "And now?"},
        "response": {
            "content": "Now it is later.\n\n```\n12:01\n```\n",
            "usage": {"input_tokens": 30, "output_tokens": 7},
        },
    },
    {
        "match": {"userMessage": "Use a tool.", "hasToolResult": False},
        "response": {
            "toolCalls": [
                {"id": "toolu_1", "name": "teleport", "arguments": {"to": "mars", "at": [1, 2]}}
            ]
        },
    },
    {"match": {"toolCallId": "toolu_1"}, "response": {"content": "I cannot."}},
    {
        "match": {"userMessage": "Fail."},
        "response": {
            "error": {"message": "Too many requests", "type": "rate_limit_error"},
            "status": 429,
        },
    },
]


class Aimock:
    def __init__(self, url: str) -> None:
        self.url = url

    def forget(self) -> None:
        """Begin a new journal."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/__aimock/reset/journal", method="POST")
        ).close()

    def journal(self) -> list[dict[str, Any]]:
        """The answered requests for messages, as aimock saw them."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal") as response:
            entries = json.load(response)
        return [entry for entry in entries if entry["path"] == "/v1/messages"]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    node = shutil.which("node")
    if node is None or not CLI.exists():
        reason = f"needs node and {CLI}: npm install in tests/peers"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    directory = tmp_path_factory.mktemp("aimock")
    (directory / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    argv = [
        node,
        str(CLI),
        "-p",
        "0",
        "-f",
        str(directory / "fixtures.json"),
        "--strict",
        "-c",
        "5",
        "-l",
        "1",
    ]
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


class Talk:
    def __init__(self, url: str, directory: Path) -> None:
        settings = Settings(state_dir=str(directory), base_url=url, provider="anthropic")
        self.events: list[Event] = []
        self.provider = AnthropicProvider(settings)
        self.session = Session.open(settings.session_dir, "s1", "/project")

    async def say(self, *prompts: str) -> list[Message]:
        orchestrator = Orchestrator(
            self.session, self.provider, self.events.append, policy_of(self.session)
        )
        with anyio.fail_after(DEADLINE_S):
            for n, prompt in enumerate(prompts):
                await orchestrator.run_turn(Prompt(f"p{n}", prompt))
        self.session.close()
        assert self.provider._client
        await self.provider._client.close()
        return self.session.history

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def talk(aimock: Aimock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    aimock.forget()
    return Talk(aimock.url, tmp_path)


async def test_two_turns_with_thinking_become_a_history_that_it_takes_back(aimock, talk):
    history = await talk.say("Good morning.", "And now?")
    assert talk.of(ErrorOccurred) == []
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")] * 2
    assert [message.role for message in history] == ["user", "assistant", "user", "assistant"]
    thinking, text = history[1].content
    assert isinstance(thinking, ThinkingBlock)
    assert thinking.thinking == "A greeting. I greet back."
    assert thinking.signature
    assert text == TextBlock("Good morning to you, too! 🦀")
    assert history[3].content[-1] == TextBlock("Now it is later.\n\n```\n12:01\n```\n")
    assert "".join(event.text for event in talk.of(ThinkingDelta)) == thinking.thinking
    assert len(talk.of(TextDelta)) > 5, "it streams"
    assert talk.of(UsageUpdated)[-1].last_request == Usage(30, 7)
    assert [entry["response"]["status"] for entry in aimock.journal()] == [200, 200]


async def test_tool_use_is_decoded_and_answered(talk):
    history = await talk.say("Use a tool.")
    assert talk.of(ErrorOccurred) == []
    assert history[1].content[-1] == ToolUse("toolu_1", "teleport", {"to": "mars", "at": [1, 2]})
    assert history[-1].content[-1] == TextBlock("I cannot.")


async def test_error_is_told_and_the_next_turn_works(talk):
    history = await talk.say("Fail.", "And now?")
    assert [error.kind for error in talk.of(ErrorOccurred)] == ["rate_limited"]
    assert talk.of(TurnEnded) == [TurnEnded("error"), TurnEnded("end_turn")]
    assert [message.role for message in history] == ["user", "user", "assistant"]
