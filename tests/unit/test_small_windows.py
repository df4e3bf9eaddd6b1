"""A model with a small context window gets fewer tools; one in which not even these fit is refused before the first request."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.fuzz.wires import WIRES
from tests.loopback import Reply
from tests.wires import chat
from tests.wires.servers import ChatServer, told
from tests.wires.talk import Talk

from sanderling.config import Settings
from sanderling.config.file import fields_of, parse
from sanderling.conversation.prompt import system_prompt
from sanderling.protocol.events import Compacted, ErrorOccurred
from sanderling.tools.catalog import SMALL, TOOLS, Catalog, OwnTools

Talks = Callable[..., Talk]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer("any") as server:
        yield server


@pytest.fixture
async def talks(server, tmp_path) -> AsyncIterator[Talks]:
    async with AsyncExitStack() as stack:

        def make(window: int, **options: Any) -> Talk:
            listed = [{"id": name, "meta": {"n_ctx": window}} for name in ("m", "gpt-test")]
            listed += [{"id": WIRES["chat"].models[0].partition(":")[2], "meta": {"n_ctx": window}}]
            server.models = told({"data": listed})
            talk = Talk(WIRES["chat"], server.url, tmp_path, **options)
            stack.push_async_callback(talk.aclose)
            return talk

        yield make


def offered(server: ChatServer, number: int = -1) -> set[str]:
    return {tool["function"]["name"] for tool in server.prompts[number].json()["tools"]}


@pytest.mark.parametrize(
    "window, tools, is_small",
    [
        (8_192, "auto", True),
        (16_383, "auto", True),
        (16_384, "auto", False),
        (8_192, "all", False),
        (100_000, "small", True),
    ],
)
async def test_the_window_decides_which_tools_are_offered(server, talks, window, tools, is_small):
    talk = talks(window, tools_set=tools)
    await talk.say("Hello.")
    assert (offered(server) == {*SMALL}) is is_small
    words = server.prompts[0].json()["messages"][0]["content"]
    assert words == system_prompt(has_editor=False, is_small=is_small)


async def test_tools_and_instructions_stay_the_same_in_a_session(server, talks):
    talk = talks(8_192)
    for words in ("One.", "Two."):
        await talk.say(words)
    first, second = (request.json() for request in server.prompts)
    assert first["tools"] == second["tools"]
    assert first["messages"] == second["messages"][: len(first["messages"])]


@pytest.mark.parametrize("tools, remedy", [("all", 'tools = "small"'), ("auto", "-c 16384")])
async def test_a_window_without_room_is_refused_with_a_remedy_before_a_request(
    server, talks, tools, remedy
):
    talk = talks(1_024 if tools == "auto" else 2_700, tools_set=tools)
    await talk.say("Hello.")
    (error,) = talk.of(ErrorOccurred)
    assert "is smaller than instructions, tools" in error.message
    assert remedy in error.remedy
    assert not server.prompts
    assert not talk.of(Compacted)


async def test_the_second_prompt_in_a_small_window_is_not_preceded_by_a_summary(server, talks):
    talk = talks(8_192)
    usage = chat.usage(prompt=4_750, cached=0)  # what research saw compacted: 58 % of the window
    server.answer(
        Reply(chat.begin(), chat.text("Hi."), chat.finish() + usage + chat.DONE),
        Reply(chat.hello()),
    )
    for words in ("One.", "Two."):
        await talk.say(words)
    assert len(server.prompts) == 2
    assert not talk.of(Compacted)


def test_small_tools_name_no_tool_that_is_not_offered():
    prompt = system_prompt(is_small=True)
    others = {*TOOLS} - {*SMALL}
    assert not [name for name in others if f"`{name}`" in prompt]


async def test_small_tools_are_much_shorter():
    catalog = Catalog(OwnTools())
    assert len((await catalog.so_far()).specs) > len(SMALL)
    assert catalog.make_small()
    specs = (await catalog.so_far()).specs
    assert [spec.name for spec in specs] == list(SMALL)
    small = json.dumps([(spec.description, spec.input_schema) for spec in specs])
    full = json.dumps([(TOOLS[name].description, TOOLS[name].schema) for name in SMALL])
    assert len(small) <= 3_000  # 855 tokens, as SmolLM2 counts them
    assert len(small) < 0.6 * len(full)


@pytest.mark.parametrize("text", ['tools = "small"', '[tools]\nset = "small"'])
def test_a_file_can_name_the_set_in_two_ways(text):
    layer, mistakes = parse("config.toml", text)
    assert not mistakes
    assert Settings("", **fields_of(layer.options)).tools_set == "small"
