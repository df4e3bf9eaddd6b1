"""A request's bytes: what the API's cache has seen before stays as it was, and is marked where it can be found."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cached_api import PromptCache
from tests.conftest import prove_rest

from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import BlockDone, ModelRequest, StreamItem, ToolSpec
from sanderling.providers.anthropic.reply import ReplyDecoder
from sanderling.providers.anthropic.request import LOOK_BACK_BLOCKS, RequestEncoder
from sanderling.providers.endpoint import ANTHROPIC, Quirks, load_endpoint

MARK = b',"cache_control":{"type":"ephemeral"}'
TOOLS = (ToolSpec("bash", "Runs a command.", {"type": "object", "properties": {}}),)
HELLO = Message("user", (TextBlock("Good morning."),))


def encode(encoder: RequestEncoder, history: list[Message], system: str = "Be brief.") -> bytes:
    request = ModelRequest(system, history, TOOLS)
    return encoder.encode(request, model="claude-test", max_tokens=100, thinking=True)


def uses(number: int, count: int) -> list[Message]:
    """One message of the model's that uses `count` tools, and their results."""
    ids = [f"t{number}-{n}" for n in range(count)]
    return [
        Message("assistant", tuple(ToolUse(use_id, "bash", {"n": number}) for use_id in ids)),
        Message("user", tuple(ToolResult(use_id, "ok") for use_id in ids)),
    ]


def marked_messages(body: bytes) -> list[int]:
    messages: list[Any] = json.loads(body)["messages"]
    return [
        index
        for index, message in enumerate(messages)
        if any("cache_control" in block for block in message["content"])
    ]


def prefix(body: bytes) -> bytes:
    """Tools, system and messages, without marks and without what closes the list."""
    body = body.replace(MARK, b"")
    return body[body.index(b'"tools"') :].removesuffix(b"]}")


def test_each_request_begins_with_the_one_before_it():
    encoder = RequestEncoder()
    history = [HELLO]
    before = prefix(encode(encoder, history))
    for number in range(30):
        history += uses(number, 1 + number % 12)
        after = prefix(encode(encoder, history))
        assert after.startswith(before)
        before = after


def test_encoder_that_remembers_says_what_a_new_one_says():
    encoder = RequestEncoder()
    history = [HELLO]
    for number in range(10):
        history += uses(number, 1 + 3 * number)
        assert encode(encoder, history) == encode(RequestEncoder(), history)


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history[:3],
        lambda history: [HELLO, *history[3:]],
        lambda history: [*history[:4], Message("user", (TextBlock("Stop."),))],
        lambda _: [HELLO],
        list,
        lambda history: [*history, *uses(9, 2)],
    ],
    ids=["shorter", "compacted", "other end", "new", "the same", "longer"],
)
def test_history_that_is_not_what_it_was_is_sent_as_it_is(change):
    encoder = RequestEncoder()
    history = [HELLO, *uses(1, 1), *uses(2, 1)]
    encode(encoder, history)
    assert encode(encoder, change(history)) == encode(RequestEncoder(), change(history))


def test_tools_and_system_are_cached_by_the_mark_at_the_systems_end():
    body = json.loads(encode(RequestEncoder(), [HELLO]))
    assert body["system"] == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    assert body["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(body["tools"])
    assert list(body)[-3:] == ["tools", "system", "messages"]


def test_system_prompt_that_is_empty_is_not_sent():
    assert "system" not in json.loads(encode(RequestEncoder(), [HELLO], system=""))


@pytest.mark.parametrize(
    "count, marked", [(1, []), (LOOK_BACK_BLOCKS // 2, []), (LOOK_BACK_BLOCKS // 2 + 1, [0])]
)
def test_end_of_the_previous_request_is_marked_when_it_is_too_far_back(count, marked):
    body = encode(RequestEncoder(), [HELLO, *uses(1, count)])
    assert marked_messages(body) == marked


def test_end_of_the_previous_request_is_in_the_middle_of_a_long_conversation():
    history = [HELLO, *uses(1, 3), *uses(2, 30)]
    body = encode(RequestEncoder(), history)
    assert marked_messages(body) == [2]
    assert "cache_control" in json.loads(body)["messages"][2]["content"][-1]


def test_prompts_in_a_row_are_no_end_of_a_request():
    words = tuple(TextBlock(f"{n}") for n in range(30))
    history = [HELLO, Message("user", words), *uses(1, 1), Message("user", words)]
    assert marked_messages(encode(RequestEncoder(), history)) == [1]


def test_images_in_results_count_as_blocks():
    image = ImageBlock(ImageSource("image/png", "aGk="))
    result = ToolResult("t1", (image,) * LOOK_BACK_BLOCKS)
    use = Message("assistant", (ToolUse("t1", "read", {}),))
    body = encode(RequestEncoder(), [HELLO, use, Message("user", (result,))])
    assert marked_messages(body) == [0]


def test_marks_are_never_more_than_four():
    encoder = RequestEncoder()
    history = [HELLO]
    for number in range(5):
        history += uses(number, 40)
        assert encode(encoder, history).count(b'"cache_control"') <= 4


@pytest.mark.parametrize("count", prove_rest([1, 8, 9, 10, 30, 100]))
def test_whatever_was_sent_before_is_read_from_the_cache(count):
    cache, encoder, history, kept = PromptCache(), RequestEncoder(), [HELLO], 0
    for number in range(10):
        usage = cache.usage(json.loads(encode(encoder, history, system="Be brief. " * 1000)))
        assert usage["cache_read_input_tokens"] == kept
        assert usage["input_tokens"] == 0
        kept += usage["cache_creation_input_tokens"]
        history += uses(number, count)


@pytest.mark.parametrize(
    "message",
    [
        Message("user", (TextBlock("half \ud83d of a pair"),)),
        Message("user", (TextBlock("\udcff.txt"),)),
        Message("assistant", (ToolUse("t1", "bash", {"\udcff": ["\udcff", 1.5, 10**30]}),)),
    ],
)
def test_half_of_a_surrogate_pair_is_sent_as_a_replacement_character(message):
    [sent] = json.loads(encode(RequestEncoder(), [message]))["messages"]
    assert "\ufffd" in json.dumps(sent, ensure_ascii=False)
    assert json.loads(encode(RequestEncoder(), [HELLO], system="\udcff"))["system"]


def test_both_halves_of_a_surrogate_pair_are_a_character():
    message = Message("user", (TextBlock("\ud83e\udd80 \udcff"),))
    [sent] = json.loads(encode(RequestEncoder(), [message]))["messages"]
    assert sent["content"] == [{"type": "text", "text": "🦀 \ufffd"}]


def test_number_that_is_none_is_null():
    message = Message("assistant", (ToolUse("t1", "bash", {"n": float("nan"), "\udcff": 1}),))
    [sent] = json.loads(encode(RequestEncoder(), [message]))["messages"]
    assert sent["content"][0]["input"] == {"n": None, "\ufffd": 1}


@given(st.text(), st.text(min_size=1), st.booleans())
def test_any_text_arrives_and_any_message_can_be_marked(said, result, is_error):
    history = [
        Message("user", (TextBlock(said), ToolResult("t1", result, is_error))),
        Message("assistant", (ThinkingBlock(said, "c2ln"), TextBlock(said)) * 10),
        Message("user", (TextBlock(said),)),
    ]
    messages = json.loads(encode(RequestEncoder(), history))["messages"]
    assert messages[0]["content"] == [
        {"type": "text", "text": said},
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": result,
            "is_error": is_error,
            "cache_control": {"type": "ephemeral"},
        },
    ]
    assert messages[2] == {"role": "user", "content": [{"type": "text", "text": said}]}


DEEPSEEK = load_endpoint("deepseek-anthropic", {}).quirks
IMAGE = ImageBlock(ImageSource("image/png", "aGk="))
SPOKEN = [
    Message("user", (TextBlock("Look."),)),
    Message("assistant", (ToolUse("call_1", "read", {}),)),
    Message("user", (ToolResult("call_1", (TextBlock("one"), IMAGE)),)),
    Message("assistant", (ThinkingBlock("Hm.", "", {"unsigned": True}), TextBlock("So."))),
    Message("user", (TextBlock("Thanks."),)),
]


def told(quirks: Quirks, *, thinking: bool = True) -> Any:
    request = ModelRequest("Be brief.", SPOKEN)
    body = RequestEncoder(quirks).encode(request, model="m", max_tokens=10, thinking=thinking)
    return json.loads(body)


def test_other_servers_get_no_marks_and_think_by_their_own_fields():
    assert "cache_control" not in json.dumps(told(DEEPSEEK))
    assert told(DEEPSEEK)["thinking"] == {"type": "enabled"}
    assert told(DEEPSEEK, thinking=False)["thinking"] == {"type": "disabled"}
    assert "thinking" not in told(Quirks())
    assert told(ANTHROPIC.quirks)["thinking"]["type"] == "adaptive"


def test_thoughts_that_nobody_signed_go_back_and_a_blank_where_there_are_none():
    thoughts = [message["content"][0] for message in told(DEEPSEEK)["messages"][1::2]]
    assert thoughts == [
        {"type": "thinking", "thinking": " ", "signature": ""},
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
    ]


def test_image_is_left_out_where_no_model_sees_one():
    assert "aGk=" not in json.dumps(told(DEEPSEEK))
    assert "cannot be shown" in json.dumps(told(DEEPSEEK))
    assert "aGk=" in json.dumps(told(ANTHROPIC.quirks))


@pytest.mark.parametrize("keeps, extra", [(True, {"unsigned": True}), (False, {})])
def test_thought_without_a_signature_is_marked_for_a_server_that_takes_it_back(keeps, extra):
    decoder = ReplyDecoder(keeps_unsigned=keeps)
    items: list[StreamItem] = []
    begin = {
        "type": "content_block_start",
        "content_block": {"type": "thinking", "thinking": "Hm."},
    }
    for event in (begin, {"type": "content_block_stop"}):
        items += decoder.feed(json.dumps(event), str(event["type"]))
    assert items[-1] == BlockDone(ThinkingBlock("Hm.", "", extra))


def test_an_image_in_a_prompt_is_shown_or_named():
    history = [Message("user", (TextBlock("a.png, an image:"), IMAGE, TextBlock("Look.")))]

    def content(quirks: Quirks) -> Any:
        body = RequestEncoder(quirks).encode(
            ModelRequest("", history), model="m", max_tokens=10, thinking=False
        )
        return json.loads(body)["messages"][0]["content"]

    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert content(ANTHROPIC.quirks)[1] == {"type": "image", "source": source}
    assert content(DEEPSEEK)[1]["type"] == "text"
