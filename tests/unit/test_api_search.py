"""`web_search` by the API itself: what is declared, what is shown, and what goes back, byte for byte."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec
import pytest
from tests import loopback
from tests.api_rules import Block
from tests.api_rules.anthropic import request_refusals
from tests.conftest import policy_of, prove_rest, settings_of
from tests.loopback import LoopbackServer, Reply, Request
from tests.talk import BaseTalk
from tests.wires import responses
from tests.wires.servers import ResponsesServer

from sanderling.permissions.rules import rule_from_text
from sanderling.protocol.events import BlockEnded, TextDelta, ToolEnded, ToolStarted, UsageUpdated
from sanderling.protocol.messages import Prompt, ServerBlock, Usage
from sanderling.providers.choice import make_provider
from sanderling.providers.models.known import Price
from sanderling.session.history_pager import HistoryPager
from sanderling.session.session import Session

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
USE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "neovim rpc"},
    "caller": {"type": "direct"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "caller": {"type": "direct"},
    "content": [
        {
            "type": "web_search_result",
            "title": "API\u202e",
            "url": "https://neovim.io/doc/api",
            "encrypted_content": "EqgfCioIARgB",
            "page_age": None,
        }
    ],
}
FAILED = FOUND | {
    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
}
CITATION = {
    "type": "web_search_result_location",
    "cited_text": "nvim_exec_lua",
    "encrypted_index": "Eo8BCioIAhgB",
    "title": "API",
    "url": "https://neovim.io/doc/api",
}


def begun_use(index: int, use: Block = USE) -> bytes:
    begun = loopback.block_start(index, **(use | {"input": {}}))
    data = json.dumps(use["input"])
    pieces = [
        loopback.delta(index, "input_json_delta", partial_json=each)
        for each in (data[:9], data[9:])
    ]
    return begun + b"".join(pieces) + loopback.block_stop(index)


def whole(index: int, block: Block) -> bytes:
    return loopback.block_start(index, **block) + loopback.block_stop(index)


def cited(index: int, words: str) -> bytes:
    return (
        loopback.block_start(index, type="text", text="", citations=[])
        + loopback.delta(index, "citations_delta", citation=CITATION)
        + loopback.delta(index, text=words)
        + loopback.block_stop(index)
    )


def ended(reason: str = "end_turn", searches: int = 1) -> bytes:
    usage = {"output_tokens": 7, "server_tool_use": {"web_search_requests": searches}}
    return loopback.done(reason, **usage)  # type: ignore[arg-type]


ANSWER = (
    loopback.message_start()
    + loopback.text("I look.", index=0)
    + begun_use(1)
    + whole(2, FOUND)
    + loopback.text("Lua runs ", index=3)
    + cited(4, "with nvim_exec_lua")
    + loopback.text(".", index=5)
    + ended()
)
SAID = [
    {"type": "text", "text": "I look."},
    USE,
    FOUND,
    {"type": "text", "text": "Lua runs "},
    {"type": "text", "text": "with nvim_exec_lua", "citations": [CITATION]},
    {"type": "text", "text": "."},
]


class StrictServer(LoopbackServer):
    """Checks whole requests, and that they end with an answer only where it has paused one."""

    is_paused = False

    def refusals(self, request: Request) -> list[str]:
        found = request_refusals(request.body)
        if self.is_paused:
            found = [each for each in found if "prefill" not in each]
        return found


class ClosedTalk(BaseTalk):
    """A conversation that closes its provider at the end."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Self]:
        try:
            async with super().served():
                yield self
        finally:
            await self.provider.aclose()


def talk_with(
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    *,
    model: str = "anthropic:claude-opus-5-5",
    network: Any = "on",
    **changes: Any,
) -> BaseTalk:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-test")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-test")
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    session = Session.open(tmp_path / "state/sessions", "s1", str(project))
    rules = changes.pop("rules", ())
    providers = {"openai": {"base_url": f"{url}/v1"}}
    changes = {"web_search_provider": "api", "base_url": url, "providers": providers} | changes
    settings = msgspec.structs.replace(settings_of(session), model=model, **changes)
    policy = policy_of(session)._replace(network=network)
    return ClosedTalk(
        session, make_provider(settings), settings=settings, policy=policy, rules=rules
    )


def tools_of(request: Request) -> list[Any]:
    return [tool for tool in request.json().get("tools", []) if tool.get("type")]


async def test_a_search_goes_back_as_it_came_and_is_shown_as_a_tool(tmp_path, monkeypatch):
    with StrictServer() as server:
        server.answer(Reply(ANSWER), loopback.hello())
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."), Prompt("p2", "And?"))
    first, second = server.prompts
    assert first.json()["tools"][-1] == SEARCH
    assert second.json()["messages"][1] == {"role": "assistant", "content": SAID}
    assert second.body.startswith(first.body[: first.body.rindex(b"]}")])
    [started], [end] = talk.of(ToolStarted), talk.of(ToolEnded)
    assert (started.tool, started.title) == ("web_search", "neovim rpc")
    assert (end.id, end.summary) == (started.id, "1 result")
    assert end.detail == "API<U+202E>\n  https://neovim.io/doc/api"


async def test_a_text_that_the_api_cuts_for_its_citations_is_one_text_on_the_screen(
    tmp_path, monkeypatch
):
    with StrictServer() as server:
        server.answer(Reply(ANSWER))
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
        talk.session.close()
    live = {event.block_id for event in talk.of(TextDelta)}
    assert len(live) == len(talk.of(BlockEnded)) == 2
    again = Session.open(tmp_path / "state/sessions", "s1", str(tmp_path / "project"))
    shown = HistoryPager(again).take().events
    again.close()
    texts = [event.text for event in shown if isinstance(event, TextDelta)]
    assert texts == ["I look.", "Lua runs with nvim_exec_lua."]
    assert [event.tool for event in shown if isinstance(event, ToolStarted)] == ["web_search"]
    [message] = [each for each in again.history if each.role == "assistant"]
    assert ServerBlock(FOUND) in [
        msgspec.structs.replace(block, shown=None)
        for block in message.content
        if isinstance(block, ServerBlock)
    ]


async def test_a_paused_search_is_sent_back_and_continues_in_the_same_answer(tmp_path, monkeypatch):
    paused = loopback.message_start() + begun_use(0) + ended("pause_turn", 0)
    rest = loopback.message_start() + whole(0, FOUND) + loopback.text("Found.", index=1) + ended()
    with StrictServer() as server:
        server.is_paused = True
        server.answer(Reply(paused), Reply(rest), loopback.hello())
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."), Prompt("p2", "And?"))
    _, continued, last = (request.json()["messages"] for request in server.prompts)
    assert continued[-1] == {"role": "assistant", "content": [USE]}
    assert [each["role"] for each in last] == ["user", "assistant", "user"]
    assert last[1]["content"] == [USE, FOUND, {"type": "text", "text": "Found."}]
    assert talk.of(ToolStarted)[0].title == "neovim rpc"


async def test_an_api_that_pauses_for_ever_is_left_after_some_requests(tmp_path, monkeypatch):
    paused = loopback.message_start() + loopback.text("Wait.") + ended("pause_turn", 0)
    with StrictServer() as server:
        server.is_paused = True
        server.answer(Reply(paused))
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
    assert len(server.prompts) == 11


async def test_a_search_without_its_result_does_not_go_back(tmp_path, monkeypatch):
    cut = loopback.message_start() + loopback.text("I look.") + begun_use(1) + ended(searches=0)
    with StrictServer() as server:
        server.answer(Reply(cut), loopback.hello())
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."), Prompt("p2", "And?"))
    assert server.prompts[-1].json()["messages"][1]["content"] == [SAID[0]]


async def test_a_failed_search_says_why_and_goes_back_as_well(tmp_path, monkeypatch):
    failed = loopback.message_start() + begun_use(0) + whole(1, FAILED) + ended()
    with StrictServer() as server:
        server.answer(Reply(failed), loopback.hello())
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."), Prompt("p2", "And?"))
    assert server.prompts[-1].json()["messages"][1]["content"] == [USE, FAILED]
    [end] = talk.of(ToolEnded)
    assert (end.summary, end.is_error) == ("max uses exceeded", True)


async def test_a_search_costs_a_cent(tmp_path, monkeypatch):
    with StrictServer() as server:
        server.answer(Reply(ANSWER))
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
    usage = talk.of(UsageUpdated)[-1].total
    assert usage.web_searches == 1
    plain = msgspec.structs.replace(usage, web_searches=0)
    assert usage.context_tokens == plain.context_tokens
    price = Price(input=3, output=15)
    assert round(price.cost_usd(usage, 0) - price.cost_usd(plain, 0), 9) == 0.01
    assert Usage(web_searches=2) + Usage(web_searches=1) == Usage(web_searches=3)


async def test_another_model_does_not_get_the_sealed_results(tmp_path, monkeypatch):
    with StrictServer() as server:
        server.answer(Reply(ANSWER), loopback.hello())
        talk = talk_with(tmp_path, monkeypatch, server.url)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
            talk.session.switch_model("anthropic:claude-haiku-5-5")
            await talk.run_turns(Prompt("p2", "And?"))
    texts = [{"type": "text", "text": block["text"]} for block in SAID if block["type"] == "text"]
    assert server.prompts[-1].json()["messages"][1]["content"] == texts


@pytest.mark.parametrize(
    "changes",
    prove_rest(
        [
            {"network": "off"},
            {"web_search_provider": "off"},
            {"tools_disabled": ("web_*",)},
            {"rules": (rule_from_text("deny web_search"),)},
            {"rules": (rule_from_text("ask web_search example.com"),)},
            {"rules": (rule_from_text("deny web_fetch"),)},
            {"rules": (rule_from_text("ask *"),)},
        ]
    ),
    ids=str,
)
async def test_the_api_is_not_offered_a_search_that_rules_settings_or_the_network_forbid(
    tmp_path, monkeypatch, changes
):
    with StrictServer() as server:
        talk = talk_with(tmp_path, monkeypatch, server.url, **changes)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
    assert tools_of(server.prompts[0]) == []


async def test_rules_for_other_hosts_and_tools_leave_the_search(tmp_path, monkeypatch):
    rules = tuple(
        map(rule_from_text, ("deny web_fetch example.com", "deny bash", "allow web_search"))
    )
    with StrictServer() as server:
        talk = talk_with(tmp_path, monkeypatch, server.url, network="proxy", rules=rules)
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
    assert tools_of(server.prompts[0]) == [SEARCH]


# --- OpenAI ------------------------------------------------------------------------------------------------------------

CALL = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "neovim rpc", "queries": ["neovim rpc", "msgpack"]},
}
PAGE = CALL | {"id": "ws_2", "action": {"type": "open_page", "url": "https://neovim.io"}}
ANNOTATION = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 4,
    "title": "API",
    "url": "https://neovim.io",
}


def cited_message() -> Block:
    message = responses.said("It does.")
    message["content"][0]["annotations"] = [ANNOTATION]
    return message


async def test_a_search_of_the_responses_api_goes_back_as_it_came(tmp_path, monkeypatch):
    items = (responses.thought("", "sealed"), CALL, PAGE, cited_message())
    answer = responses.begin()
    for n, each in enumerate(items):
        answer += (
            responses.event(
                "response.output_item.added", output_index=n, item=each | {"status": "in_progress"}
            )
            + responses.event("response.output_item.done", output_index=n, item=each)
            if each["type"] == "web_search_call"
            else responses.item(n, each)
        )
    with ResponsesServer() as server:
        server.answer(Reply(answer + responses.done(*items)), Reply(responses.hello()))
        talk = talk_with(tmp_path, monkeypatch, server.url, model="openai:gpt-6.1-sol")
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."), Prompt("p2", "And?"))
    first, second = (request.json() for request in server.prompts)
    assert first["tools"][-1] == {"type": "web_search"}
    sent = [each for each in second["input"] if each.get("type") == "web_search_call"]
    assert sent == [CALL, PAGE]
    [said] = [each for each in second["input"] if each.get("id") == "msg_1"]
    assert said["content"][0]["annotations"] == [ANNOTATION]
    assert [each.title for each in talk.of(ToolStarted)] == [
        "neovim rpc, msgpack",
        "https://neovim.io",
    ]
    assert len(talk.of(ToolEnded)) == 2
    assert talk.of(UsageUpdated)[-1].total.web_searches == 1


async def test_an_api_without_a_search_of_its_own_is_offered_none(tmp_path, monkeypatch):
    with ResponsesServer() as server:
        table = {"openai": {"base_url": f"{server.url}/v1", "quirks": {"web_search": {}}}}
        talk = talk_with(
            tmp_path, monkeypatch, server.url, model="openai:gpt-6.1-sol", providers=table
        )
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Search."))
    assert {each["type"] for each in server.prompts[0].json()["tools"]} == {"function"}
