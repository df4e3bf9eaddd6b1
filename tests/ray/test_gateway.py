"""The gateway as a server, called by the real SDK, in front of a loopback server as the API. It needs no cluster."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import anyio
import httpx2
import pytest
import uvicorn

from sanderling.batch.ray import gateway
from sanderling.batch.ray.gate import Gate, GateClosedError
from sanderling.batch.ray.gateway import App, Opening
from tests.conftest import wait_until
from tests.loopback import (
    HANG_UP,
    STALL,
    LoopbackServer,
    Reply,
    Status,
    hello,
    message_start,
    model_page,
    text,
)

KEY = "sk-ant-the-key-of-the-driver"
TOKEN = "sanderling-run-token"
MESSAGES: Any = [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]


class Served:
    """The gateway's application on a port of this machine."""

    def __init__(self, opening: Opening) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(App(opening), lifespan="on", log_config=None, ws="none")
        self._server = uvicorn.Server(config)
        run = self._server.serve(sockets=[listening])
        self._thread = threading.Thread(target=asyncio.run, args=(run,))
        self._thread.start()

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def api() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@pytest.fixture
def served(api: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    opening = Opening(
        token=TOKEN,
        environment={},
        names=("anthropic",),
        providers={},
        base_url=api.url,
        idle_timeout_s=120.0,
    )
    it = Served(opening)
    yield it
    it.end()


def sdk(served: Served, key: str = TOKEN, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=f"{served.url}/anthropic", api_key=key, max_retries=0, **options
    )


def ask(client: anthropic.Anthropic) -> str:
    with client, client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
        return stream.get_final_text()


def test_the_sdk_gets_an_answer_and_the_api_gets_the_key_but_not_the_token(
    served: Served, api: LoopbackServer
):
    assert ask(sdk(served)) == "Hello there."
    [request] = api.prompts
    assert request.headers["x-api-key"] == KEY
    assert TOKEN not in str(request)


def test_an_answer_streams_through(served: Served, api: LoopbackServer):
    api.answer(Reply(message_start(), text("Once"), STALL))
    with (
        sdk(served) as client,
        client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
    ):
        assert next(iter(stream.text_stream)) == "Once"
    # The agent has gone, so the request to the API ends, too.
    wait_until(lambda: api.prompts[0].closed_at is not None)


@pytest.mark.parametrize("key", ["", KEY, TOKEN[:-1], f"{TOKEN}x"])
def test_a_request_without_the_token_is_refused(served: Served, api: LoopbackServer, key: str):
    with pytest.raises(anthropic.AuthenticationError, match="not the token"):
        ask(sdk(served, key or "none"))
    assert api.requests == []


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/anthropic/v1/messages/batches"),
        ("POST", "/anthropic/v1/files"),
        ("GET", "/anthropic/v1/files"),
        ("DELETE", "/anthropic/v1/models/m"),
        ("GET", "/anthropic/v1/models/../files"),
        ("GET", "/anthropic/v1/models/%2e%2e"),
        ("GET", "/openai/models"),
        ("GET", "/"),
        ("GET", "/anthropic"),
    ],
)
def test_only_answers_and_facts_about_models_are_served(
    served: Served, api: LoopbackServer, method: str, path: str
):
    with httpx2.Client() as client:
        url = httpx2.URL(served.url).copy_with(raw_path=path.encode())
        response = client.request(method, url, headers={"x-api-key": TOKEN})
    assert response.status_code == 404
    assert api.requests == []


def test_the_list_of_models_is_served(served: Served, api: LoopbackServer):
    api.model_pages.clear()
    api.model_pages.append(model_page("one", "two"))
    with sdk(served) as client:
        assert [model.id for model in client.models.list(limit=7)] == ["one", "two"]
    assert "limit=7" in api.requests[0].path


def test_an_error_of_the_api_arrives(served: Served, api: LoopbackServer):
    api.answer(Status(400, message="prompt is wrong"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is wrong"):
        ask(sdk(served))


def test_an_error_that_quotes_the_key_arrives_without_it(served: Served, api: LoopbackServer):
    api.answer(Status(401, message=f"invalid key {KEY}"))
    with pytest.raises(anthropic.AuthenticationError) as caught:
        ask(sdk(served))
    assert KEY not in str(caught.value)


def test_a_cut_answer_is_not_a_whole_one(served: Served, api: LoopbackServer):
    api.answer(Reply(message_start(), text("Once"), HANG_UP))
    with pytest.raises((httpx2.RemoteProtocolError, anthropic.APIConnectionError)):
        ask(sdk(served))


@pytest.mark.parametrize("status", [429, 529])
def test_a_refusal_for_the_rate_closes_the_gate_for_all_and_the_request_is_sent_again(
    served: Served, api: LoopbackServer, status: int
):
    api.answer(Status(status, retry_after=1), hello())
    began = time.monotonic()
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(sdk(served)))) for _ in range(5)]
    threads[0].start()
    wait_until(lambda: len(api.prompts) == 1)
    time.sleep(0.2)  # the refusal has arrived
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["Hello there."] * 5
    first, *others = sorted(request.at for request in api.prompts)
    assert len(others) == 5
    assert min(others) - first >= 1.0
    assert began < first


def test_a_request_waits_no_longer_than_its_patience(
    served: Served, api: LoopbackServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway, "PATIENCE_S", 0.5)
    api.answer(Status(429, retry_after=30, message="slow down"))
    with pytest.raises(anthropic.RateLimitError, match="slow down") as first:
        ask(sdk(served))
    assert first.value.response.headers["retry-after"] == "30"
    with pytest.raises(anthropic.RateLimitError, match="rate limit is reached") as second:
        ask(sdk(served))
    assert 20 <= int(second.value.response.headers["retry-after"]) <= 30
    assert len(api.prompts) == 1


async def test_after_a_pause_half_as_many_requests_run_and_each_round_of_successes_adds_one():
    gate = Gate()
    most = running = 0

    async def request() -> None:
        nonlocal most, running
        async with gate.passed(60.0):
            running += 1
            most = max(most, running)
            await anyio.sleep(0.01)
            running -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(request)
        await anyio.sleep(0.005)
        gate.close_for(0.05)
        gate.close_for(0.01)  # another refusal of the same moment
    assert most == 8
    assert gate.limit == 4
    most = 0
    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(request)
    assert most == 4
    for _ in range(5):
        gate.note_success()
    assert 5 <= gate.limit < 6


async def test_a_request_that_is_cancelled_at_the_gate_leaves_its_place():
    gate = Gate()
    gate.close_for(60.0)
    for _ in range(3):
        with anyio.move_on_after(0.01):
            async with gate.passed(60.0):
                pass
    with pytest.raises(GateClosedError) as caught:
        async with gate.passed(0.01):
            pass
    assert 50 < caught.value.retry_after_s <= 60
    gate = Gate()
    gate.close_for(0.0)
    assert gate.limit == 1
    for _ in range(3):
        async with gate.passed(1.0):
            pass
