"""Servers whose chat templates reject a history that OpenAI's API accepts: the request is repaired, and sent once more."""

import json
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Answer, LoopbackServer, Reply, Request, Status
from tests.wires import chat
from tests.wires.asking import ask, fail, said
from tests.wires.servers import ChatServer

from sanderling.config import Settings
from sanderling.protocol.messages import Message, NoteBlock, TextBlock, ToolResult, ToolUse
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.chat.provider import ChatProvider
from sanderling.providers.endpoint import Quirks, load_endpoint
from sanderling.providers.turns import Turns
from sanderling.session.codec import Codec
from sanderling.session.records import LoggedMessage

ALTERNATE = (
    "\n------------\nWhile executing CallExpression at line 78, column 32 in source:\n"
    "...{{- raise_exception('conversation roles must alternate') }}\n   ^\n"
    "Error: Jinja Exception: conversation roles must alternate user and assistant roles."
)
ONE_CALL = "This model only supports single tool-calls at once!"
SPECS = (ToolSpec("read", "Read.", {"type": "object", "properties": {}}),)
CALLS = Message("assistant", (ToolUse("a", "read", {}), ToolUse("b", "read", {})))
RESULTS = ToolResult("a", "one"), ToolResult("b", "two")
FIRST = Message("user", (TextBlock("Look."),))
STEERED = [FIRST, CALLS, Message("user", (*RESULTS, NoteBlock("[Now: x]"), TextBlock("Faster.")))]


class Strict(ChatServer):
    """A server whose template rejects, with `status`, roles that do not alternate, or two calls in a message."""

    status, alternates, one_call = 500, True, False

    def answer_to(self, request: Request) -> Answer:
        if request.path == self.prompt_path:
            messages = request.json()["messages"]
            roles = [m["role"] for m in messages if m["role"] != "system"]
            if self.alternates and any(
                pair in (("user", "user"), ("tool", "user"), ("assistant", "assistant"))
                for pair in pairwise(roles)
            ):
                return self.refusal(ALTERNATE, self.status)
            if self.one_call and any(len(m.get("tool_calls", ())) > 1 for m in messages):
                return self.refusal(ONE_CALL, 400)
        return super().answer_to(request)


@pytest.fixture
def server() -> Iterator[Strict]:
    with Strict() as server:
        yield server


@pytest.fixture
async def provider(server: LoopbackServer, tmp_path: Path) -> AsyncIterator[ChatProvider]:
    table = {"wire": "chat", "base_url": f"{server.url}/v1"}
    made = ChatProvider(Settings(str(tmp_path)), load_endpoint("here", {"here": table}), "m")
    yield made
    await made.aclose()


def sent(server: LoopbackServer, number: int = -1) -> list[dict[str, Any]]:
    return server.prompts[number].json()["messages"]


def request(history: list[Message]) -> ModelRequest:
    return ModelRequest("", history, SPECS)


async def answered(provider: ChatProvider, history: list[Message]) -> str:
    return said([item async for item in provider.stream(request(history))])


async def test_user_messages_in_a_row_are_sent_as_one(server, provider):
    assert said(await ask(provider, [FIRST, Message("user", (TextBlock("Again."),))]))
    assert [m["content"] for m in sent(server)[1:]] == ["Look.\n\nAgain."]
    assert len(server.prompts) == 1


async def test_a_note_is_part_of_the_last_result(server, provider):
    history = [FIRST, CALLS, Message("user", (*RESULTS, NoteBlock("[Now: x]")))]
    assert await answered(provider, history)
    assert [m["content"] for m in sent(server)[2:]] == ["one", "two\n\n[Now: x]"]
    assert len(server.prompts) == 1


@pytest.mark.parametrize("status", [400, 500])
async def test_roles_that_must_alternate_are_repaired_once_and_remembered(server, provider, status):
    server.status = status
    assert await answered(provider, STEERED)
    assert [m["role"] for m in sent(server)] == [
        *("user", "assistant", "tool", "tool", "assistant", "user")
    ]
    assert len(server.prompts) == 2
    assert await answered(provider, STEERED)
    assert len(server.prompts) == 3
    assert provider.learned == ("takes_turns = true",)


async def test_parallel_calls_are_replayed_one_by_one(server, provider):
    server.alternates, server.one_call = False, True
    assert await answered(provider, STEERED)
    messages = sent(server)
    assert [m["role"] for m in messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "user")
    ]
    ids = [m["tool_calls"][0]["id"] for m in messages if "tool_calls" in m]
    assert ids == ["a", "b"]
    assert provider.learned == ("one_call = true",)


async def test_a_template_that_reads_missing_parts_of_schemas_gets_them(server, provider):
    server.alternates = False
    undefined = "Jinja Exception: 'dict object' has no attribute 'description'"
    server.answer(server.refusal(undefined, 400), Reply(chat.hello()))
    fields = {"a": {"enum": [1, 2]}, "b": {"type": "object", "description": "It."}, "c": {}}
    spec = ToolSpec("x", "X.", {"type": "object", "properties": fields})
    items = [item async for item in provider.stream(ModelRequest("", [FIRST], (spec,)))]
    assert said(items)
    before, after = (
        request.json()["tools"][0]["function"]["parameters"] for request in server.prompts
    )
    assert before == spec.input_schema
    assert after["properties"] == {
        "a": {"type": "integer", "description": "", "enum": [1, 2]},
        "b": {"type": "object", "description": "It.", "additionalProperties": {}},
        "c": {"type": "string", "description": ""},
    }
    assert provider.learned == ("full_schemas = true",)


async def test_a_template_that_needs_both_repairs_gets_both(server, provider):
    server.one_call = True
    assert await answered(provider, STEERED)
    assert len(server.prompts) == 3


@pytest.mark.parametrize("status", [400, 500])
async def test_a_template_that_no_repair_suits_is_not_retried_and_is_named_without_its_source(
    server, provider, status
):
    server.answer(server.refusal(ALTERNATE, status))
    error = await fail(provider, request([FIRST]))
    assert not error.is_temporary
    assert "roles must alternate" in error.message
    assert "^" not in error.message
    assert "{{" not in error.message
    assert len(server.prompts) == 2
    assert provider.learned == ()


async def test_a_client_error_that_calls_itself_the_servers_is_not_retried(server, provider):
    body = json.dumps({"error": {"type": "server_error", "message": "no"}}).encode()
    server.answer(Status(400, body=body))
    assert not (await fail(provider, request([FIRST]))).is_temporary


def test_notes_are_notes_again_after_a_resume():
    note = LoggedMessage(Message("user", (*RESULTS, NoteBlock("[Now: x]"))))
    assert Codec().decoded(Codec().encoded(note)) == note


def test_messages_that_were_rewritten_stay_the_same_objects_so_that_they_are_encoded_once():
    turns = Turns(Quirks(), is_joining=True)
    history = [Message("user", (TextBlock("a"),)), Message("user", (TextBlock("b"),))]
    before = list(turns.of(history))
    history += [Message("assistant", (TextBlock("c"),)), Message("user", (TextBlock("d"),))]
    after = turns.of(history)
    assert len(before) == 1
    assert after[0] is before[0]
    assert [block.text for block in after[0].content] == ["a", "b"]
