"""`prewarm`: a request without an answer fills the API's cache while the user writes the first prompt."""

import json
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.cached_api import CachedApi, text
from tests.conftest import happens, policy_of
from tests.loopback import LoopbackServer, Reply, Status

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.events import TurnEnded
from sanderling.protocol.messages import Message, Prompt, TextBlock, Usage
from sanderling.providers import ModelRequest
from sanderling.providers.choice import make_provider
from sanderling.session.session import Session


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("K", "sk-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "*")


class WarmApi(CachedApi):
    """Takes requests for no tokens, as the API does: without streaming and thinking."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(lambda _body: [text("Done.")])
        self.warmed: list[dict] = []
        self.status = status

    def answer_to(self, request):
        if request.path != "/v1/messages" or request.json()["max_tokens"]:
            return super().answer_to(request)
        body = request.json()
        self.warmed.append(body)
        if {"stream", "thinking", "output_config"} & set(body) or self.status != 200:
            return Status(400, message="max_tokens: must be greater than 0")
        usage = self.cache.usage(body)
        answer = {"id": "msg_0", "type": "message", "content": [], "usage": usage}
        return Reply(json.dumps(answer).encode(), content_type="application/json")


class Chat:
    def __init__(self, tmp_path, **more) -> None:
        self.events = []
        self.settings = Settings(state_dir=str(tmp_path / "state"), **more)
        self.session = Session.open(self.settings.session_dir, "s1", str(tmp_path))
        self.provider = make_provider(self.settings)
        services = SessionServices(
            self.session, self.provider, self.events.append, policy_of(self.session), self.settings
        )
        self.conversation = Conversation(services)

    @asynccontextmanager
    async def served(self):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.conversation.serve)
            yield self
            self.conversation.close()
        await self.provider.aclose()
        self.session.close()

    async def say(self) -> None:
        count = sum(isinstance(event, TurnEnded) for event in self.events)
        self.conversation.submit(Prompt(f"p{count}", "Hello."))
        await happens(lambda: sum(isinstance(e, TurnEnded) for e in self.events) > count)


async def test_the_first_request_reads_what_was_cached_before_it(tmp_path):
    with WarmApi() as api:
        async with Chat(tmp_path, prewarm=True, **api.options).served() as chat:
            await happens(lambda: chat.session.ledger.total.cache_creation_input_tokens)
            written = chat.session.ledger.total.cache_creation_input_tokens
            await chat.say()
    [body], [asked] = api.warmed, api.asked
    assert body["max_tokens"] == 0
    assert (body["tools"], body["system"]) == (asked.request["tools"], asked.request["system"])
    assert asked.usage["cache_read_input_tokens"] == written > 2_000
    assert api.changes == []


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_nothing_is_sent_unless_wanted_or_in_a_session_with_prompts(tmp_path, is_resumed):
    with WarmApi() as api:
        if is_resumed:
            async with Chat(tmp_path, **api.options).served() as chat:
                await chat.say()
        async with Chat(tmp_path, prewarm=is_resumed, **api.options).served() as chat:
            await happens(lambda: chat.provider.is_ready)
            await chat.say()
    assert api.warmed == []


async def test_a_server_that_does_not_take_it_is_not_reported(tmp_path):
    with WarmApi(status=400) as api:
        async with Chat(tmp_path, prewarm=True, **api.options).served() as chat:
            await happens(lambda: api.warmed)
            await chat.say()
    assert len(api.asked) == 1
    assert [type(e).__name__ for e in chat.events if "Error" in type(e).__name__] == []
    assert [e for e in chat.events if type(e).__name__ == "Notice"] == []


class ResponsesApi(LoopbackServer):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict] = []

    def answer_to(self, request):
        self.asked.append(request.json())
        details = {"cached_tokens": 0, "cache_write_tokens": 2_900}
        usage = {"input_tokens": 2_903, "output_tokens": 0, "input_tokens_details": details}
        return Reply(json.dumps({"usage": usage}).encode(), content_type="application/json")


@pytest.mark.parametrize("wire, cache", [("responses", "openai_explicit"), ("responses", "key")])
async def test_openai_is_asked_to_prewarm_where_it_has_breakpoints(tmp_path, wire, cache):
    with ResponsesApi() as api:
        own = {"wire": wire, "base_url": api.url, "api_key": "$K", "quirks": {"cache": cache}}
        provider = make_provider(Settings(str(tmp_path), model="mine:m", providers={"mine": own}))
        await provider.prepare()
        history = [Message("user", (TextBlock("Hello."),))]
        usage = await provider.prewarm(ModelRequest("Help.", history))
        await provider.aclose()
    if cache == "key":
        assert (usage, api.asked) == (Usage(), [])
        return
    [body] = api.asked
    assert usage == Usage(3, 0, 2_900, 0)
    assert body["prompt_cache_options"] == {"mode": "explicit", "prewarm": True}
    assert (body["stream"], "Hello." in json.dumps(body)) == (False, False)
    assert body["input"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
