"""A request for a chat completion has what each server wants, and begins with what the one before it was."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.api_rules.chat import ENDPOINTS, changed_extras, request_refusals
from tests.sent import Sent

from sanderling.protocol.messages import (
    ContentBlock,
    ImageBlock,
    ImageSource,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.chat.request import ChatEncoder
from sanderling.providers.endpoint import Quirks, load_endpoint
from sanderling.tools.catalog import TOOLS, specs_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = ImageBlock(ImageSource("image/png", PIXEL))
SPECS = specs_of(TOOLS.values())
SPOKEN = sorted(ENDPOINTS.keys() - {"any"})


def user(*blocks: ContentBlock | str) -> Message:
    return Message("user", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def model(*blocks: ContentBlock | str) -> Message:
    return Message("assistant", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def thought(words: str, field: str = "reasoning_content") -> ThinkingBlock:
    return ThinkingBlock(words, "", {"field": field})


def use(use_id: str, **extra: Any) -> ToolUse:
    return ToolUse(use_id, "read", {"path": use_id}, extra)


# All that a history can hold, from models of any kind.
LONG = [
    user("Look.", "<note>So it is.</note>"),
    model("I look.", use("call_1"), use("toolu_2")),
    user(ToolResult("call_1", "one"), ToolResult("toolu_2", (TextBlock("two"), IMAGE))),
    model("An image."),
    model("And more."),
    user("Go on."),
    model(use("call_3")),
    user(ToolResult("call_3", "no such file", is_error=True), "Be quick."),
    model(use("call_4")),
    user(ToolResult("call_4", "(no output)")),
    user("Are you there?"),
    model(use("call_5"), use("call_6")),
    user(ToolResult("call_5", "five"), ToolResult("call_6", "six")),
]


def encoder(name: str, **quirks: Any) -> ChatEncoder:
    name = "openai-chat" if name == "openai" else name
    return ChatEncoder(msgspec.structs.replace(load_endpoint(name, {}).quirks, **quirks))


def request(history: Sequence[Message], session_id: str = "20261123-1") -> ModelRequest:
    return ModelRequest("Be brief.", list(history), SPECS, session_id)


def sent(chat: ChatEncoder, history: Sequence[Message], **options: Any) -> Any:
    return json.loads(chat.encode(request(history), model="m", **options))


@pytest.mark.parametrize("name", SPOKEN)
@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("max_tokens", [0, 100])
def test_what_other_models_said_is_taken_by_each_server(name, thinking, max_tokens):
    chat = encoder(name)
    for end in [n for n, message in enumerate(LONG, 1) if message.role == "user"]:
        body = chat.encode(request(LONG[:end]), model="m", thinking=thinking, max_tokens=max_tokens)
        assert request_refusals(body, name) == []


@pytest.mark.parametrize("name", SPOKEN)
def test_request_begins_with_what_the_one_before_it_was(name):
    chat, before = encoder(name), None
    for end in [n for n, message in enumerate(LONG, 1) if message.role == "user"]:
        now = Sent(chat.encode(request(LONG[:end]), model="m"))
        assert before is None or now.difference(before) == ""
        assert now.difference(Sent(encoder(name).encode(request(LONG[:end]), model="m"))) == ""
        before = now


def test_history_is_told_in_the_formats_own_messages():
    assert sent(encoder("llamacpp"), LONG[:3])["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look.\n\n<note>So it is.</note>"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": each,
                    "type": "function",
                    "function": {"name": "read", "arguments": f'{{"path":"{each}"}}'},
                }
                for each in ("call_1", "toolu_2")
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "two\n\n(An image, shown below.)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the tool result toolu_2:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
    ]


@pytest.mark.parametrize("images", ["none", "user", "tool"])
def test_image_goes_where_the_server_takes_one(images):
    body = json.dumps(sent(encoder("llamacpp", images=images), LONG[:3])["messages"])
    assert (PIXEL in body) is (images != "none")
    assert ("cannot be shown" in body) is (images == "none")
    assert ("From the tool result" in body) is (images == "user")


def test_result_that_is_an_error_says_so():
    messages = sent(encoder("llamacpp"), LONG[6:8])["messages"]
    assert messages[2]["content"] == "Error:\n\nno such file"


@pytest.mark.parametrize(
    "replay, texts, with_tools",
    [("never", False, False), ("with_tools", False, True), ("always", True, True)],
)
def test_thoughts_go_back_as_the_server_wants(replay, texts, with_tools):
    history = [
        user("Hi"),
        model(thought("Hm."), "Hello."),
        user("Look."),
        model(thought("First look."), use("call_1")),
        user(ToolResult("call_1", "one")),
        model(thought("So."), "Done."),
        user("Thanks."),
    ]
    told = sent(encoder("llamacpp", replay_reasoning=replay), history)["messages"]
    thoughts = [message.get("reasoning_content") for message in told]
    assert thoughts == [
        None,
        None,
        "Hm." if texts else None,
        None,
        "First look." if with_tools else None,
        None,
        "So." if with_tools else None,
        None,
    ]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thought_goes_back_in_the_field_in_which_it_came(field):
    history = [user("Hi"), model(thought("Hm.", field), use("call_1"))]
    message = sent(encoder("vllm"), history)["messages"][-1]
    assert message[field] == "Hm."


def test_thought_that_was_a_part_of_the_content_is_one_again():
    history = [user("Hi"), model(thought("Hm.", "content"), "Hello.", use("call_1"))]
    message = sent(encoder("mistral"), history)["messages"][-1]
    assert message["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Hello."},
    ]


def test_server_that_wants_thoughts_gets_a_blank_where_there_are_none():
    history = [user("Hi"), model(use("call_1")), user(ToolResult("call_1", "one")), model("Done.")]
    told = sent(encoder("deepseek"), history)["messages"]
    assert [
        message.get("reasoning_content") for message in told if message["role"] == "assistant"
    ] == [" ", " "]


SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
STAND_IN = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def test_what_came_besides_goes_back_where_it_came():
    details = [{"type": "reasoning.text", "text": "Hm.", "index": 0}]
    history = [
        user("Hi"),
        model(
            "Hello.",
            use("call_1", call={"extra_content": SIGNED}),
            use("call_2", message={"reasoning_details": details}),
        ),
    ]
    message = sent(encoder("gemini"), history)["messages"][-1]
    assert message["reasoning_details"] == details
    assert [call.get("extra_content") for call in message["tool_calls"]] == [SIGNED, None]
    said = [{"tool_calls": [message["tool_calls"][0]]}]
    assert changed_extras([message], said, "gemini") == []


def test_first_call_of_another_model_has_what_stands_for_a_signature():
    message = sent(encoder("gemini"), LONG[:2])["messages"][-1]
    assert [call.get("extra_content") for call in message["tool_calls"]] == [STAND_IN, None]


def test_ids_are_the_same_for_a_use_and_its_result_and_others_for_each():
    uses = [use(f"call_{n}") for n in range(2000)] + [use("abcDEF123")]
    history = [user("Hi"), model(*uses), user(*(ToolResult(each.id, "ok") for each in uses))]
    told = sent(encoder("mistral"), history)["messages"]
    ids = [call["id"] for call in told[2]["tool_calls"]]
    assert [message["tool_call_id"] for message in told[3:]] == ids
    assert len(set(ids)) == len(uses)
    assert ids[-1] == "abcDEF123"


@pytest.mark.parametrize(
    "cache, mark", [("anthropic", "cache_control"), ("openai_explicit", "prompt_cache_breakpoint")]
)
def test_marks_stand_at_the_systems_end_where_the_last_request_ended_and_at_the_end(cache, mark):
    chat = encoder("openrouter", cache=cache)
    told = sent(chat, LONG)["messages"]
    marked = [n for n, message in enumerate(told) if mark in json.dumps(message)]
    ends = [n for n, message in enumerate(told) if message["role"] in ("user", "tool")]
    assert marked == [0, max(n for n in ends if n < ends[-2]), ends[-1]]
    assert all(list(told[n]["content"][-1])[-1] == mark for n in marked)
    only = sent(chat, [user("Hi")])["messages"]
    assert [mark in json.dumps(message) for message in only] == [True, True]


def test_session_is_the_key_of_a_cache_that_has_one():
    assert sent(encoder("mistral"), LONG[:1])["prompt_cache_key"] == "20261123-1"
    long = ModelRequest("", LONG[:1], (), "x" * 100)
    key = json.loads(encoder("xai").encode(long, model="m"))["prompt_cache_key"]
    assert key == "x" * 64
    assert "prompt_cache_key" not in sent(encoder("deepseek"), LONG[:1])
    nameless = ModelRequest("", LONG[:1])
    assert "prompt_cache_key" not in json.loads(encoder("xai").encode(nameless, model="m"))


def test_fields_of_the_body_are_those_of_the_quirks():
    chat = encoder(
        "deepseek",
        system_role="developer",
        max_tokens_name="max_completion_tokens",
        stream_usage=False,
        parallel_tools=False,
        body={"seed": 7},
    )
    body = sent(chat, LONG[:1], max_tokens=50)
    assert (body["max_completion_tokens"], body["seed"]) == (50, 7)
    assert body["parallel_tool_calls"] is False
    assert "stream_options" not in body
    assert body["messages"][0]["role"] == "developer"
    assert body["thinking"] == {"type": "enabled"}
    assert sent(chat, LONG[:1], thinking=False)["thinking"] == {"type": "disabled"}
    plain = sent(encoder("llamacpp"), LONG[:1])
    assert plain["stream_options"] == {"include_usage": True}
    assert {"max_tokens", "parallel_tool_calls", "seed"} & set(plain) == set()


def test_only_a_schema_that_can_be_enforced_is_declared_strict():
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    opened = {**closed, "required": []}
    tools = tuple(ToolSpec(f"t{n}", "x", each) for n, each in enumerate((closed, opened)))
    asked = ModelRequest("", LONG[:1], tools)
    told = json.loads(encoder("vllm", strict_schemas=True).encode(asked, model="m"))["tools"]
    assert [tool["function"].get("strict") for tool in told] == [True, None]


def test_half_a_surrogate_pair_is_replaced_wherever_it_stands():
    history = [
        user("Hi \ud83d"),
        model(ToolUse("call_1", "read", {"path": "\ud83d"})),
        user(ToolResult("call_1", "\ud83d")),
    ]
    asked = ModelRequest("\ud83d", history, SPECS)
    assert request_refusals(encoder("llamacpp").encode(asked, model="m"), "llamacpp") == []


def test_message_is_encoded_once():
    chat = ChatEncoder(Quirks())
    first = chat._history.of(LONG[:4])
    again = chat._history.of(LONG)
    assert all(one is other for one, other in zip(first, again, strict=False))


@pytest.mark.parametrize("images", ["none", "user", "tool"])
def test_an_image_in_a_prompt_is_shown_or_named(images):
    body = encoder("openai", images=images).encode(
        request([user("a.png:", IMAGE, "Look.")]), model="m"
    )
    told = json.loads(body)["messages"][-1]["content"]
    kinds = ["text", "text" if images == "none" else "image_url", "text"]
    assert [part["type"] for part in told] == kinds
