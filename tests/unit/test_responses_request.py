"""A request to the Responses API: what was sent stays as it was, thoughts go back as they came, and the cache is found again."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api_rules import responses
from tests.cached_responses import PromptCache
from tests.conftest import prove, prove_rest
from tests.sent import Sent

from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.endpoint import Quirks
from sanderling.providers.responses.request import (
    IMAGE_FOLLOWS,
    IMAGE_UNSEEN,
    MIN_OUTPUT_TOKENS,
    ResponsesEncoder,
)

OPEN_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CLOSED_SCHEMA = OPEN_SCHEMA | {"required": ["path"], "additionalProperties": False}
TOOLS = (ToolSpec("read", "Reads a file.", OPEN_SCHEMA),)
PLAIN = Quirks(replay_reasoning="always", images="tool")
MARKED = msgspec.structs.replace(PLAIN, cache="openai_explicit", system_role="developer")
HELLO = Message("user", (TextBlock("Good morning."),))
IMAGE = ImageBlock(ImageSource("image/png", "aGk="))
SEEN = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}


def encode(
    history: list[Message],
    quirks: Quirks = PLAIN,
    encoder: ResponsesEncoder | None = None,
    **fields: Any,
) -> bytes:
    told = {"system": "Be brief.", "tools": TOOLS, "session_id": "s1"} | fields
    thinking = told.pop("thinking", True)
    max_tokens = told.pop("max_tokens", 100)
    request = ModelRequest(history=history, **told)
    return (encoder or ResponsesEncoder("gpt-test", quirks)).encode(
        request, max_tokens=max_tokens, thinking=thinking
    )


def body_of(history: list[Message], quirks: Quirks = PLAIN, **fields: Any) -> dict[str, Any]:
    body = encode(history, quirks, **fields)
    assert responses.request_refusals(body) == []
    return json.loads(body)


def items_of(history: list[Message], quirks: Quirks = PLAIN) -> list[dict[str, Any]]:
    """The items behind the system prompt."""
    return body_of(history, quirks)["input"][1:]


def thought(number: int, words: str = "I look.", **extra: Any) -> ThinkingBlock:
    return ThinkingBlock(words, f"seal {number}", {"id": f"rs_{number}"} | extra)


def uses(number: int, count: int) -> list[Message]:
    """One message of the model's that uses `count` tools, and their results."""
    ids = [f"t{number}-{n}" for n in range(count)]
    calls = (ToolUse(each, "read", {"path": each}, {"id": f"fc_{each}"}) for each in ids)
    results = (ToolResult(each, "ok") for each in ids)
    return [Message("assistant", (thought(number), *calls)), Message("user", tuple(results))]


@pytest.mark.parametrize("quirks", [PLAIN, MARKED], ids=["plain", "marked"])
def test_each_request_begins_with_the_one_before_it(quirks):
    encoder, history = ResponsesEncoder("gpt-test", quirks), [HELLO]
    before = Sent(encode(history, quirks, encoder))
    for number in range(30):
        history += uses(number, 1 + number % 12)
        after = Sent(encode(history, quirks, encoder))
        assert after.difference(before) == ""
        before = after


def test_encoder_that_remembers_says_what_a_new_one_says():
    encoder, history = ResponsesEncoder("gpt-test", MARKED), [HELLO]
    for number in range(10):
        history += uses(number, 1 + 3 * number)
        assert encode(history, MARKED, encoder) == encode(history, MARKED)


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
    encoder, history = ResponsesEncoder("gpt-test", PLAIN), [HELLO, *uses(1, 1), *uses(2, 1)]
    encode(history, encoder=encoder)
    assert encode(change(history), encoder=encoder) == encode(change(history))


def test_nothing_is_kept_by_the_api():
    body = body_of([HELLO])
    assert (body["store"], body["stream"]) == (False, True)
    assert not {"previous_response_id", "conversation"} & set(body)
    assert list(body)[-2:] == ["tools", "input"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_prompt_is_a_message_of_its_own(role):
    [system, _] = body_of([HELLO], Quirks(system_role=role))["input"]
    assert system["role"] == role
    assert system["content"] == [{"type": "input_text", "text": "Be brief."}]


def test_system_prompt_that_is_empty_is_not_sent():
    [hello] = body_of([HELLO], system="")["input"]
    assert hello["content"] == [{"type": "input_text", "text": "Good morning."}]


def test_thoughts_texts_and_calls_go_back_as_they_came():
    said = Message(
        "assistant",
        (
            thought(1),
            TextBlock("First I look.", {"id": "msg_1", "phase": "commentary"}),
            ToolUse("call_1", "read", {"path": "ü"}, {"id": "fc_1"}),
        ),
    )
    assert items_of([HELLO, said, Message("user", (ToolResult("call_1", "ok"),))])[1:] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "I look."}],
            "encrypted_content": "seal 1",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "First I look.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "read",
            "arguments": '{"path":"ü"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


def said_after(block: ThinkingBlock, quirks: Quirks = PLAIN) -> list[dict[str, Any]]:
    answer = Message("assistant", (block, TextBlock("Well.", {"id": "msg_1"})))
    encoded = json.loads(encode([HELLO, answer, HELLO], quirks))["input"]
    return encoded[2:-1]


def test_thought_in_parts_goes_back_in_parts():
    [item, _] = said_after(thought(1, "One.\n\nTwo.", parts=["One.", "Two."]))
    assert [part["text"] for part in item["summary"]] == ["One.", "Two."]


def test_thought_without_a_summary_goes_back():
    [item, _] = said_after(thought(1, ""))
    assert (item["summary"], item["encrypted_content"]) == ([], "seal 1")


def test_thought_in_the_open_goes_back_as_such():
    [item, _] = said_after(ThinkingBlock("I look.", "", {"id": "rs_1"}))
    assert item["content"] == [{"type": "reasoning_text", "text": "I look."}]
    assert item["summary"] == []
    assert "encrypted_content" not in item


@pytest.mark.parametrize(
    "block",
    [
        ThinkingBlock("I look.", "c2lnbmVk"),
        ThinkingBlock("I look.", "", {"reasoning_content": "I look."}),
    ],
    ids=["Claude's", "of Chat Completions"],
)
def test_thought_of_another_api_does_not_go_back(block):
    assert said_after(block) == [{"role": "assistant", "content": "Well."}]


@pytest.mark.parametrize(
    "replay, goes_back", [("never", [False] * 3), ("with_tools", [True, True, False])]
)
def test_thoughts_go_back_where_the_endpoint_wants_them(replay, goes_back):
    history = [HELLO, *uses(1, 1)]
    history += [Message("assistant", (thought(2), TextBlock("Done.", {"id": "msg_2"}))), HELLO]
    history += [Message("assistant", (thought(3), TextBlock("Hi.", {"id": "msg_3"}))), HELLO]
    quirks = msgspec.structs.replace(PLAIN, replay_reasoning=replay)
    items = items_of(history, quirks)
    ids = {item.get("id") for item in items}
    assert [f"rs_{n}" in ids for n in (1, 2, 3)] == goes_back
    assert ["fc_t1-0" in ids, "msg_2" in ids, "msg_3" in ids] == goes_back, "all or none"


def test_answer_that_was_cut_off_is_quoted():
    said = Message("assistant", (thought(1), TextBlock("Good mor", {"phase": "commentary"})))
    assert items_of([HELLO, said, HELLO])[1:-1] == [
        {"role": "assistant", "content": "Good mor", "phase": "commentary"}
    ]


def test_ids_that_come_again_are_not_sent_again():
    """The API refuses an id that is there twice, and some servers have but one."""
    answer = Message("assistant", (thought(1), TextBlock("Well.", {"id": "msg_1"})))
    ids = [item.get("id") for item in items_of([HELLO, answer, HELLO, answer, HELLO])]
    assert ids == [None, "rs_1", "msg_1", None, None, None]
    twice = Message("assistant", (TextBlock("a", {"id": "msg"}), TextBlock("b", {"id": "msg"})))
    assert not [item for item in items_of([HELLO, twice, HELLO]) if "id" in item]


def test_limit_of_tokens_is_no_less_than_the_api_takes():
    assert body_of([HELLO])["max_output_tokens"] == 100
    assert body_of([HELLO], max_tokens=1)["max_output_tokens"] == MIN_OUTPUT_TOKENS
    assert "max_output_tokens" not in body_of([HELLO], max_tokens=0), "as many as the server gives"
    assert "max_output_tokens" not in body_of([HELLO], Quirks(max_tokens_name=""))


def outputs_of(result: ToolResult, **quirks: Any) -> list[dict[str, Any]]:
    use = Message("assistant", (ToolUse("t1", "read", {}),))
    return items_of([HELLO, use, Message("user", (result,))], Quirks(**quirks))[2:]


def test_result_is_a_string_unless_it_may_carry_a_mark():
    result = ToolResult("t1", "ok")
    [plain] = outputs_of(result)
    [marked] = outputs_of(result, cache="openai_explicit")
    assert plain["output"] == "ok"
    assert marked["output"] == [{"type": "input_text", "text": "ok"}]


def test_texts_of_a_result_are_one_string_where_there_is_no_image():
    [item] = outputs_of(ToolResult("t1", (TextBlock("a"), TextBlock("b"))))
    assert item["output"] == "a\n\nb"


def test_result_that_is_an_error_says_so():
    [item] = outputs_of(ToolResult("t1", "exit status 1", is_error=True))
    assert item["output"] == "Error:\n\nexit status 1"


def test_image_stands_where_the_endpoint_can_see_it():
    result = ToolResult("t1", (TextBlock("see"), IMAGE))
    [item] = outputs_of(result, images="tool")
    assert item["output"] == [{"type": "input_text", "text": "see"}, SEEN]
    [item, shown] = outputs_of(result, images="user")
    assert item["output"] == f"see\n\n{IMAGE_FOLLOWS}"
    assert (shown["role"], shown["content"]) == ("user", [SEEN])
    [item] = outputs_of(result, images="none")
    assert item["output"] == f"see\n\n{IMAGE_UNSEEN}"


def marks(body: dict[str, Any]) -> list[int]:
    """The items that carry a mark."""
    return [n for n, item in enumerate(body["input"]) if "prompt_cache_breakpoint" in str(item)]


def test_ends_of_the_system_prompt_and_of_the_request_before_are_marked():
    assert marks(body_of([HELLO], MARKED)) == [0]
    assert marks(body_of([HELLO, *uses(1, 2)], MARKED)) == [0, 1]
    assert marks(body_of([HELLO, *uses(1, 2), *uses(2, 1)], MARKED)) == [0, 6]
    assert marks(body_of([HELLO, *uses(1, 2), *uses(2, 1)])) == []


def test_mark_is_in_the_last_block():
    words = Message("user", (ToolResult("t1-0", (TextBlock("a"), IMAGE)), TextBlock("b")))
    history = [HELLO, uses(1, 1)[0], words, *uses(2, 1)]
    body = body_of(history, MARKED)
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    assert body["input"][5]["content"] == [{"type": "input_text", "text": "b"} | mark]
    history[2] = Message("user", (ToolResult("t1-0", (TextBlock("a"), IMAGE)),))
    assert body_of(history, MARKED)["input"][4]["output"][-1] == SEEN | mark


def test_key_of_the_cache_is_the_session():
    assert body_of([HELLO], Quirks(cache="key"))["prompt_cache_key"] == "s1"
    assert "prompt_cache_key" not in body_of([HELLO], Quirks(cache="key"), session_id="")


def test_sessions_that_begin_alike_share_a_key_of_the_marked_cache():
    keys = [body_of([HELLO], MARKED, session_id=name)["prompt_cache_key"] for name in ("s1", "s2")]
    assert keys[0] == keys[1]
    assert keys[0] != body_of([HELLO], MARKED, system="Be long.")["prompt_cache_key"]


@pytest.mark.parametrize("looks_back", [True, False], ids=["looks back", "looks at marks only"])
@pytest.mark.parametrize("count", prove_rest([1, 30], keep=(-1,)))
def test_whatever_was_sent_before_is_read_from_the_cache(count, looks_back):
    cache, encoder, history = (
        PromptCache(looks_back=looks_back),
        ResponsesEncoder("gpt-test", MARKED),
        [HELLO],
    )
    sent = 0
    for number in range(30):
        body = json.loads(encode(history, MARKED, encoder, system="Be brief. " * 1000))
        counts = cache.counts(body)
        assert counts["cached"] == sent
        assert counts["written"] == counts["input_tokens"] - sent
        sent = counts["input_tokens"]
        history += uses(number, count)


def test_other_session_reads_tools_and_system_prompt():
    cache = PromptCache()
    for number, words in enumerate(("Good morning.", "Good evening.")):
        history = [Message("user", (TextBlock(words),))]
        body = json.loads(encode(history, MARKED, system="Be brief. " * 1000, session_id=words))
        assert (cache.counts(body)["cached"] > 2000) is bool(number)


def test_tool_is_strict_where_endpoint_and_schema_allow_it():
    tools = (TOOLS[0], ToolSpec("write", "Writes.", CLOSED_SCHEMA))
    for allows in (True, False):
        sent = body_of([HELLO], Quirks(strict_schemas=allows), tools=tools)["tools"]
        assert [tool["strict"] for tool in sent] == [False, allows]
        assert sent[0] == {
            "type": "function",
            "name": "read",
            "description": "Reads a file.",
            "parameters": OPEN_SCHEMA,
            "strict": False,
        }


def test_no_tools_are_not_sent():
    assert "tools" not in body_of([HELLO], tools=())


def test_fields_of_the_endpoint_are_sent_as_they_are():
    include = ["reasoning.encrypted_content"]
    quirks = Quirks(
        effort={"on": {"reasoning": {"summary": "auto"}}, "off": {"reasoning": {"effort": "low"}}},
        body={"include": include},
        parallel_tools=False,
    )
    for thinking, told in ((True, {"summary": "auto"}), (False, {"effort": "low"})):
        body = body_of([HELLO], quirks, thinking=thinking)
        assert (body["reasoning"], body["include"]) == (told, include)
        assert body["parallel_tool_calls"] is False
    assert not {"reasoning", "parallel_tool_calls"} & set(body_of([HELLO]))


@pytest.mark.parametrize(
    "blocks",
    [
        (TextBlock("half \ud83d of a pair"),),
        (ToolUse("t1", "read", {"\udcff": ["\udcff", 1.5, 10**30]}),),
    ],
    ids=["text", "input"],
)
def test_half_of_a_surrogate_pair_is_sent_as_a_replacement_character(blocks):
    sent = json.loads(encode([HELLO, Message("assistant", blocks)]))["input"][-1]
    assert "\ufffd" in json.dumps(sent, ensure_ascii=False)
    assert (
        json.loads(encode([HELLO], system="\udcff"))["input"][0]["content"][0]["text"] == "\ufffd"
    )


@prove
@given(st.text(), st.text(min_size=1))
def test_any_text_arrives_and_any_message_can_be_marked(said, result):
    history = [
        HELLO,
        Message("assistant", (ToolUse("t1", "read", {"path": said}),)),
        Message("user", (ToolResult("t1", result), TextBlock(said))),
        Message("assistant", (thought(1, said), TextBlock(said, {"id": "msg_1"}))),
        Message("user", (TextBlock(said),)),
    ]
    items = json.loads(encode(history, MARKED))["input"]
    assert json.loads(items[2]["arguments"]) == {"path": said}
    assert items[3]["output"] == [{"type": "input_text", "text": result}]
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    assert items[4]["content"] == [{"type": "input_text", "text": said} | mark]
    assert items[6]["content"][0]["text"] == said
    assert items[7]["content"] == [{"type": "input_text", "text": said}]


def test_image_in_a_prompt_is_shown_or_named():
    words = Message("user", (TextBlock("a.png:"), IMAGE, TextBlock("Look.")))
    for images, seen in (("tool", SEEN), ("none", {"type": "input_text", "text": IMAGE_UNSEEN})):
        [item] = items_of([words], Quirks(images=images))
        assert item["content"][1] == seen
