"""No image makes a session unusable: what an API does not take is replaced by a text in what is sent, and the log keeps it."""

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.conftest import prove_rest
from tests.fuzz.wires import WIRES
from tests.loopback import LoopbackServer, Reply
from tests.pictures import in_base64, jpeg, png
from tests.unit.test_ends_of_answers import HELLO
from tests.wires.servers import SERVERS
from tests.wires.talk import Talk

from sanderling.protocol.events import ErrorOccurred
from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    TextBlock,
    ToolResult,
    ToolUse,
)

pytestmark = pytest.mark.usefixtures("alone")

IMAGE = re.compile(rb"base64,|\"base64\"|\"images\":")


def image(data: bytes, media_type: str = "image/png") -> ImageBlock:
    return ImageBlock(ImageSource(media_type, in_base64(data)))


def unique(number: int, width: int = 1, height: int = 1) -> bytes:
    return png(width, height, pixels=b"x%d" % number)


@pytest.fixture(params=HELLO)
def wire(request) -> str:
    return request.param


@pytest.fixture
def server(wire) -> Iterator[LoopbackServer]:
    with SERVERS[wire]() as server:
        if hasattr(server, "shown"):
            server.shown["capabilities"].append("vision")
        yield server


@pytest.fixture
async def talk(wire, server, tmp_path) -> AsyncIterator[Talk]:
    talk = Talk(WIRES[wire], server.url, tmp_path, idle_timeout_s=20)
    server.answer(Reply(HELLO[wire], content_type=talk.wire.content_type))
    yield talk
    await talk.aclose()


async def asked(talk: Talk, *images: ImageBlock) -> None:
    """Ask with these in the history before, a message for each two of them, as a log of an earlier version may have."""
    remember(talk, *images)
    await talk.say("And now?")
    assert talk.of(ErrorOccurred) == []


def remember(talk: Talk, *images: ImageBlock) -> None:
    for n in range(0, len(images), 2):
        talk.session.append_message(Message("user", (TextBlock(f"Look {n}."), *images[n : n + 2])))
        talk.session.append_message(Message("assistant", (TextBlock("I see."),)))


def sent_images(server: LoopbackServer, *images: ImageBlock) -> list[int]:
    """The numbers of those that the last request has."""
    body = server.prompts[-1].body
    return [n for n, each in enumerate(images) if each.source.data.encode() in body]


async def test_an_image_that_is_too_large_is_not_sent_and_the_session_goes_on(talk, server):
    images = image(png(100, 9000)), image(png(5, 5)), image(jpeg(9000, 9000), "image/jpeg")
    await asked(talk, *images)
    assert sent_images(server, *images) == [1]
    assert b"It is not sent: 9000 pixels high; at most 8000" in server.prompts[-1].body
    assert len(server.prompts) == 1
    assert images[0] in talk.history[0].content
    await asked(talk)
    assert server.prompts[-1].body.startswith(server.prompts[-2].body[:500])


async def test_one_in_the_result_of_a_tool_is_left_out_too(talk, server):
    large = image(png(100, 9000))
    talk.session.append_message(Message("user", (TextBlock("Look."),)))
    talk.session.append_message(Message("assistant", (ToolUse("t1", "read", {"path": "a.png"}),)))
    talk.session.append_message(Message("user", (ToolResult("t1", (TextBlock("a.png"), large)),)))
    talk.session.append_message(Message("assistant", (TextBlock("I see."),)))
    await asked(talk)
    assert sent_images(server, large) == []


@pytest.mark.parametrize("count", prove_rest([20, 21, 30]))
async def test_many_images_are_small(talk, server, wire, count):
    images = [image(unique(n, 2162 if n % 5 == 0 else 10)) for n in range(count)]
    await asked(talk, *images)
    large = [n for n in range(count) if n % 5 == 0]
    is_many = count > 20 and wire != "responses"
    assert sent_images(server, *images) == [n for n in range(count) if not (is_many and n in large)]


@pytest.mark.parametrize("wire", ["anthropic", "chat", "ollama"])
async def test_of_many_large_images_the_newest_are_sent(talk, server):
    images = [image(unique(n, 2162)) for n in range(21)]
    await asked(talk, *images)
    assert sent_images(server, *images) == list(range(5, 21))


async def test_of_too_many_images_the_newest_are_sent(talk, server, wire):
    images = [image(unique(n)) for n in range(101)]
    await asked(talk, *images)
    first = 0 if wire == "responses" else 25
    assert sent_images(server, *images) == list(range(first, 101))


async def test_a_request_stays_within_its_bytes(talk, server, wire):
    images = [image(unique(n) + bytes(3_800_000)) for n in range(10)]
    await asked(talk, *images)
    assert len(server.prompts[-1].body) < (50 if wire == "responses" else 32) * 1_000_000
    assert sent_images(server, *images)[-1] == 9
    assert sent_images(server, *images)[0] > 0


WORDS = {
    "anthropic": "messages.2.content.1.image.source.base64: Could not process image",
    "chat": "Invalid image at messages[3].content[1].image_url",
    "responses": "Invalid 'input[3].content[1].image_url': not a valid image",
    "ollama": "messages[3]: failed to process image",
}


def refusing(server: LoopbackServer, bad: list[ImageBlock], words: str, status: int = 400):
    """Have the server refuse what has one of these, or each prompt if there are none."""
    answer = server.answer_to

    def judge(request):
        is_bad = not bad or any(each.source.data.encode() in request.body for each in bad)
        if request.path == server.prompt_path and is_bad:
            return server.refusal(words, status)
        return answer(request)

    server.answer_to = judge


@pytest.mark.parametrize("status", prove_rest([400, 413]))
async def test_an_image_that_the_api_names_is_left_out_when_it_is_asked_again(
    talk, server, wire, status
):
    images = [image(unique(n)) for n in range(4)]
    remember(talk, *images)
    refusing(server, [images[2]], WORDS[wire], status)
    await asked(talk)
    assert len(server.prompts) == 2
    assert sent_images(server, *images) == ([0, 1, 3] if wire != "ollama" else [0, 1])
    await asked(talk)
    assert len(server.prompts) == 3
    assert images[2] in talk.history[2].content


async def test_an_image_that_the_api_refuses_without_a_name_is_found(talk, server):
    images = [image(unique(n)) for n in range(4)]
    remember(talk, *images)
    refusing(server, [images[3]], "Could not process image")
    await asked(talk)
    assert sent_images(server, *images) == [0, 1]


async def test_a_refusal_that_goes_on_without_the_last_ones_costs_all_images(talk, server):
    images = [image(unique(n)) for n in range(4)]
    remember(talk, *images)
    refusing(server, [images[0]], "Could not process image")
    await asked(talk)
    assert sent_images(server, *images) == []
    assert len(server.prompts) == 3


async def test_a_refusal_that_no_image_is_to_blame_for_costs_none(talk, server):
    images = [image(unique(n)) for n in range(2)]
    remember(talk, *images)
    answer = server.answer_to
    refusing(server, [], "this model does not see images on Mondays")
    await talk.say("And now?")
    assert [error.kind for error in talk.of(ErrorOccurred)] == ["invalid_request"]
    assert len(server.prompts) <= 3
    server.answer_to = answer
    await talk.say("And now?")
    assert sent_images(server, *images) == [0, 1]


async def test_a_refusal_of_something_else_is_told_at_once(talk, server):
    remember(talk, image(unique(1)))
    refusing(server, [], "max_tokens is wrong")
    await talk.say("And now?")
    assert len(server.prompts) == 1
    assert len(talk.of(ErrorOccurred)) == 1
