"""
Golden streams of the Responses API: what is made of each quirk of those who speak it stands beside it.

From the API's own types, and the source and the issues of servers and relays: `NAME.sse` as it is sent, its first lines say what is odd
about it; `NAME.txt` as it is understood.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import anyio
import msgspec
import pytest
from tests.conftest import DEADLINE_S, ROOT, prove_rest
from tests.loopback import Reply
from tests.wires.servers import ResponsesServer

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest, StreamItem
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.responses.provider import ResponsesProvider

STREAMS = ROOT / "tests" / "golden" / "streams" / "responses"
NAMES = sorted(path.stem for path in STREAMS.glob("*.sse"))
REQUEST = ModelRequest("Be brief.", [Message("user", (TextBlock("Good morning."),))])


@pytest.fixture
def server() -> Iterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


@pytest.fixture
async def provider(server, tmp_path) -> AsyncIterator[ResponsesProvider]:
    table = {"wire": "responses", "base_url": f"{server.url}/v1"}
    endpoint = load_endpoint("mine", {"mine": table})
    provider = ResponsesProvider(Settings(str(tmp_path)), endpoint, "m")
    yield provider
    await provider.aclose()


def told(item: StreamItem) -> str:
    return f"{type(item).__name__} {msgspec.json.encode(item).decode()}"


async def understood(provider: ResponsesProvider) -> str:
    lines: list[str] = []
    with anyio.fail_after(DEADLINE_S):
        try:
            async with aclosing(provider.stream(REQUEST)) as stream:
                async for item in stream:
                    lines.append(told(item))  # noqa: PERF401  they are needed when it raises
        except ProviderError as error:
            lines.append(f"{error.kind}: {error.message}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("chunk_bytes", [0, 7])
@pytest.mark.parametrize("name", prove_rest(NAMES, is_one=True))
async def test_a_stream_is_understood_as_it_was(server, provider, name, chunk_bytes):
    server.answer(Reply((STREAMS / f"{name}.sse").read_bytes(), chunk_bytes=chunk_bytes))
    assert await understood(provider) == (STREAMS / f"{name}.txt").read_text()


def test_there_is_a_stream_for_each_quirk():
    assert {path.stem for path in STREAMS.glob("*.txt")} == set(NAMES)
    assert len(NAMES) >= 25
