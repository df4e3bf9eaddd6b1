"""Requests to Ollama: valid by its judge, the same bytes at their beginning, the window always told."""

import json
from typing import Any

import pytest
from tests.api_rules.ollama import request_refusals

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
from sanderling.providers.endpoint import Quirks, load_endpoint
from sanderling.providers.ollama.reply import THOUGHT
from sanderling.providers.ollama.request import NO_IMAGE, Ask, OllamaEncoder

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
PNG = ImageBlock(ImageSource("image/png", "iVBORw0KGgo="))
ASK = Ask("m", 32_768, 100, think=True)


def user(*blocks: ContentBlock | str) -> Message:
    texts = (TextBlock(block) if isinstance(block, str) else block for block in blocks)
    return Message("user", tuple(texts))


def model(*blocks: ContentBlock | str) -> Message:
    return Message("assistant", user(*blocks).content)


def thought(text: str) -> ThinkingBlock:
    return ThinkingBlock(text, "", THOUGHT)


TALK = [
    user("What is in a.py?"),
    model(thought("I look."), "I look.", ToolUse("a", "read", {"path": "a.py"}), ToolUse("b", "ls", {})),
    user(ToolResult("a", "1: a"), ToolResult("b", (TextBlock("a picture"), PNG)), "A note.", "More."),
    model(thought("An a, then."), "An a."),
    user("Thank you."),
    model(thought("Polite."), "Not at all."),
    user("Bye."),
]  # fmt: skip


def encoder(**quirks: Any) -> OllamaEncoder:
    return OllamaEncoder(Quirks(**{"replay_reasoning": "with_tools", **quirks}))


def body(history=TALK, ask: Ask = ASK, **quirks: Any) -> dict[str, Any]:
    data = encoder(**quirks).encode(ModelRequest("You help.", history, (READ,)), ask)
    assert request_refusals(data) == []
    return json.loads(data)


def test_a_conversation_is_told_in_ollamas_own_format():
    told = body()
    assert told["messages"] == [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "What is in a.py?"},
        {
            "role": "assistant",
            "content": "I look.",
            "thinking": "I look.",
            "tool_calls": [
                {"id": "a", "function": {"name": "read", "arguments": {"path": "a.py"}}},
                {"id": "b", "function": {"name": "ls", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_name": "read", "tool_call_id": "a", "content": "1: a"},
        {
            "role": "tool",
            "tool_name": "ls",
            "tool_call_id": "b",
            "content": "a picture",
            "images": ["iVBORw0KGgo="],
        },
        {"role": "user", "content": "A note.\n\nMore."},
        {"role": "assistant", "content": "An a.", "thinking": "An a, then."},
        {"role": "user", "content": "Thank you."},
        {"role": "assistant", "content": "Not at all."},
        {"role": "user", "content": "Bye."},
    ]
    assert told["tools"][0]["function"]["parameters"] == READ.input_schema


def test_the_window_is_told_and_what_does_not_fit_is_an_error_and_not_dropped():
    told = body()
    assert told["options"] == {"num_ctx": 32_768, "num_predict": 100}
    assert (told["truncate"], told["shift"]) == (False, False)
    assert "num_predict" not in body(ask=Ask("m", 16_384))["options"]


@pytest.mark.parametrize("think, told", [(True, True), (False, False), (None, None)])
def test_only_a_model_that_can_think_is_told_whether_to(think, told):
    assert body(ask=Ask("m", 16_384, think=think)).get("think") == told


def test_the_persons_table_can_say_how_hard_it_thinks_and_other_options():
    quirks = {
        "effort": {"on": {"think": "high"}},
        "body": {"keep_alive": "30m", "options": {"temperature": 0.2, "num_ctx": 20_000}},
    }
    told = body(**quirks)
    assert told["think"] == "high"
    assert told["keep_alive"] == "30m"
    assert told["options"] == {"temperature": 0.2, "num_ctx": 32_768, "num_predict": 100}
    assert "think" not in body(ask=Ask("m", 16_384), **quirks)


@pytest.mark.parametrize(
    "replay, thoughts",
    [
        ("never", []),
        ("with_tools", ["I look.", "An a, then."]),
        ("always", ["I look.", "An a, then.", "Polite."]),
    ],
)
def test_thoughts_go_back_as_the_endpoint_wants_them(replay, thoughts):
    messages = body(replay_reasoning=replay)["messages"]
    assert [each["thinking"] for each in messages if "thinking" in each] == thoughts


def test_a_model_without_eyes_is_told_that_there_is_an_image():
    messages = body(ask=Ask("m", 16_384, has_images=False))["messages"]
    assert messages[4]["content"] == f"a picture\n\n{NO_IMAGE}"
    assert "images" not in messages[4]


def test_a_result_that_is_an_error_is_told_as_one():
    failed = user(ToolResult("a", "no such file", is_error=True))
    history = [user("Read."), model(ToolUse("a", "read", {})), failed]
    assert body(history)["messages"][-1]["content"] == "Error:\n\nno such file"


def test_a_request_begins_with_the_bytes_of_the_one_before():
    """What the server has computed for those is not computed again."""
    own = encoder()
    before = b""
    for end in range(1, len(TALK) + 1, 2):
        data = own.encode(ModelRequest("You help.", TALK[:end], (READ,)), ASK)
        assert data.startswith(before.removesuffix(b"]}"))
        assert data == encoder().encode(ModelRequest("You help.", TALK[:end], (READ,)), ASK)
        before = data


def test_a_history_that_was_changed_or_a_model_without_eyes_begins_anew():
    own = encoder()
    own.encode(ModelRequest("", TALK, ()), ASK)
    for history, ask in (
        ([user("Else."), *TALK[1:]], ASK),
        (TALK, Ask("m", 16_384, has_images=False)),
        (TALK[:3], ASK),
    ):
        request = ModelRequest("", history, ())
        assert own.encode(request, ask) == encoder().encode(request, ask)


def test_half_of_a_surrogate_pair_does_not_end_the_conversation():
    assert body([user("half: \ud83d")])["messages"][1]["content"] == "half: \ufffd"


def test_the_preset_keeps_thoughts_of_turns_with_tools_and_shows_images():
    quirks = load_endpoint("ollama", {}).quirks
    assert (quirks.replay_reasoning, quirks.images) == ("with_tools", "tool")


def test_an_image_in_a_prompt_is_shown_or_named():
    words = [user("a.png:", PNG, "Look.")]
    seen = {"role": "user", "content": "a.png:\n\nLook.", "images": [PNG.source.data]}
    assert body(words)["messages"][1:] == [seen]
    unseen = body(words, Ask("m", 16_384, has_images=False))["messages"][1]
    assert unseen == {"role": "user", "content": f"{NO_IMAGE}\n\na.png:\n\nLook."}
