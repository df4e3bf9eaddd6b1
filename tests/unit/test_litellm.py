"""Conversations through a proxy that nobody here wrote: LiteLLM (https://github.com/BerriAI/litellm, `make litellm`), in front of servers of this machine."""

import json
import os
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cached_api import events_of, text, thought, use
from tests.conftest import prove, reserved_port, wait_until
from tests.fuzz.wires import WIRES
from tests.loopback import LoopbackServer, Reply, Request, Status
from tests.wires import chat, responses
from tests.wires.servers import ChatServer, ResponsesServer
from tests.wires.talk import Talk

from sanderling.protocol.events import ErrorOccurred, RetryScheduled, TextDelta, TurnEnded

pytestmark = prove

PEERS = Path(os.environ.get("SANDERLING_PEERS", Path(__file__).parent.parent / "peers"))
LITELLM = PEERS / "litellm" / "bin" / "litellm"
KEY = "sk-litellm-0123456789"
START_S = 180.0
TODO = {"items": [{"content": "Look.", "status": "pending"}]}
SEALED = {"signature": "c2lnbmVk"}
PLAN = [{**thought("Hm."), **SEALED}, text("I plan."), use("call_1", "todo", **TODO)]
DONE = [text("Done, with 🦀.")]


class Unjudged:
    """A server behind the proxy: what reaches it is the proxy's work."""

    def refusals(self, request: Request) -> list[str]:
        del request
        return []


class ClaudeBehind(Unjudged, LoopbackServer): ...


class ChatBehind(Unjudged, ChatServer): ...


class ResponsesBehind(Unjudged, ResponsesServer): ...


def of_chat(content: list[dict[str, Any]]) -> bytes:
    return chat.events_of(chat.message_of(content, "deepseek"), "deepseek")


# How we speak, as whose model of the proxy, and what stands behind that.
ROUTES = {
    "chat to chat": ("chat", "any:chat-behind", ChatBehind, of_chat),
    "anthropic to anthropic": ("anthropic", "claude-behind", ClaudeBehind, events_of),
    "anthropic to chat": ("anthropic", "chat-behind", ChatBehind, of_chat),
    "chat to anthropic": ("chat", "any:claude-behind", ClaudeBehind, events_of),
    "responses to responses": (
        *("responses", "openai:responses-behind", ResponsesBehind),
        lambda content: responses.events_of(responses.items_of(content, "")),
    ),
}
BACKENDS = {
    ChatBehind: ("chat-behind", "openai/m", "/v1"),
    ClaudeBehind: ("claude-behind", "anthropic/claude-sonnet-4-5", ""),
    ResponsesBehind: ("responses-behind", "openai/gpt-5", "/v1"),
}


class Proxy:
    def __init__(self, url: str, behind: dict[type, LoopbackServer]) -> None:
        self.url = url
        self.behind = behind


def config(behind: dict[type, LoopbackServer]) -> dict[str, Any]:
    models = []
    for kind, server in behind.items():
        name, model, path = BACKENDS[kind]
        params = {"model": model, "api_base": server.url + path, "api_key": "sk-behind"}
        models.append({"model_name": name, "litellm_params": params | {"max_retries": 0}})
    return {
        "model_list": models,
        "general_settings": {"master_key": KEY},
        "litellm_settings": {
            "telemetry": False,
            "num_retries": 0,
            "drop_params": True,  # what it does not know of a model
            "use_chat_completions_url_for_anthropic_messages": True,
        },
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    if not LITELLM.exists():
        pytest.skip(f"needs {LITELLM}: make litellm")
    directory = tmp_path_factory.mktemp("litellm")
    with (
        reserved_port() as port,
        ClaudeBehind() as claude,
        ChatBehind() as talkative,
        ResponsesBehind() as newer,
    ):
        behind = {type(server): server for server in (claude, talkative, newer)}
        (directory / "config.yaml").write_text(json.dumps(config(behind)))  # which is YAML, too
        where = ["--host", "127.0.0.1", "--port", str(port)]
        argv = [str(LITELLM), "--config", str(directory / "config.yaml"), *where]
        own = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = own | {"HOME": str(directory), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        with (
            (directory / "log").open("w+") as log,
            subprocess.Popen(argv, stdout=log, stderr=log, env=environment) as process,
        ):
            try:
                url = f"http://127.0.0.1:{port}"
                wait_until(lambda: is_up(url, process), "LiteLLM listens", START_S)
                yield Proxy(url, behind)
            finally:
                process.terminate()


def is_up(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "LiteLLM has ended"
    try:
        with urllib.request.urlopen(f"{url}/health/liveliness", timeout=2):
            return True
    except OSError:
        return False


@pytest.fixture(params=ROUTES)
async def talk(request, proxy, tmp_path, monkeypatch) -> AsyncIterator[Talk]:
    for name in ("ANTHROPIC", "OPENAI", "ANY"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    name, model, behind, events = ROUTES[request.param]
    talk = Talk(WIRES[name], proxy.url, tmp_path, model=model, idle_timeout_s=15.0)
    talk.behind, talk.events_of, talk.route = proxy.behind[behind], events, request.param
    talk.behind.requests.clear()
    yield talk
    await talk.aclose()


async def test_tools_run_and_thoughts_and_results_go_there_and_back(talk):
    talk.behind.answer(Reply(talk.events_of(PLAN)), Reply(talk.events_of(DONE)))
    await talk.say("Plan.")
    assert talk.of(ErrorOccurred) == []
    assert talk.events[-1] == TurnEnded("end_turn")
    _, planned, answered, said = talk.session.history
    assert planned.content[-1].name == "todo"
    assert planned.content[-1].input == TODO
    # Where it translates, the seal of a thought gets lost, and so nobody gets the thought back.
    one, _, other = talk.route.split()
    assert (b"Hm." in talk.behind.prompts[1].body) is (one == other)
    assert said.content[-1].text == "Done, with 🦀."
    assert len(talk.behind.prompts) == 2
    assert answered.content[0].content[:20] in talk.behind.prompts[1].body.decode()


async def test_the_words_stream(talk):
    talk.behind.answer(Reply(talk.events_of([text("word " * 100)])))
    await talk.say("Tell me all.")
    assert talk.of(ErrorOccurred) == []
    assert len(talk.of(TextDelta)) > 5
    assert talk.session.history[-1].content[-1].text.split() == ["word"] * 100


async def test_a_refusal_of_who_stands_behind_is_told_and_the_next_prompt_works(talk):
    talk.behind.answer(Status(429), Reply(talk.events_of(DONE)))
    await talk.say("Plan.")
    assert [event.reason for event in talk.of(RetryScheduled)]
    assert talk.events[-1] == TurnEnded("end_turn")


async def test_a_key_that_it_does_not_know_is_not_repeated(talk, monkeypatch):
    for name in ("ANTHROPIC", "OPENAI", "ANY"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-wrong-0123456789")
    await talk.say("Plan.")
    [error] = talk.of(ErrorOccurred)
    assert talk.events[-1] == TurnEnded("error")
    assert "sk-wrong" not in error.message + error.remedy
