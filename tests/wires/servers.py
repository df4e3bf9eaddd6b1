"""Servers on this machine for the formats beside Anthropic's, in the style of `loopback.py`; each refuses what its judge refuses."""

import json
import ssl
from collections.abc import Callable
from typing import Any

from tests.api_rules import chat as chat_rules
from tests.api_rules import ollama as ollama_rules
from tests.api_rules import responses as responses_rules
from tests.loopback import Answer, LoopbackServer, Reply, Request, Status
from tests.wires import chat, ollama, responses


def told(body: Any, status: int = 200) -> Status:
    return Status(status, body=json.dumps(body).encode())


class ChatServer(LoopbackServer):
    """One that has the habits of `endpoint`."""

    prompt_path = "/v1/chat/completions"

    def __init__(self, endpoint: str = "llamacpp", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.endpoint = endpoint
        self.models = told({"object": "list", "data": [{"id": "m", "object": "model"}]})
        self.answer(Reply(chat.hello()))

    def told_besides(self, request: Request) -> Answer | None:
        return self.models if (request.method, request.path) == ("GET", "/v1/models") else None

    def refusals(self, request: Request) -> list[str]:
        return chat_rules.request_refusals(request.body, self.endpoint)

    def refusal(self, words: str, status: int = 400, **options: Any) -> Status:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return Status(status, body=chat.error_body(words, kind), **options)


class ResponsesServer(ChatServer):
    prompt_path = "/v1/responses"

    def __init__(self) -> None:
        super().__init__()
        self.answer(Reply(responses.hello()))

    def refusals(self, request: Request) -> list[str]:
        return responses_rules.request_refusals(request.body)


class OllamaServer(LoopbackServer):
    prompt_path = "/api/chat"

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[str, Any] = {
            "model_info": {"general.architecture": "m", "m.context_length": 32768},
            "capabilities": ["completion", "tools", "thinking"],
            "parameters": "",
            "details": {"family": "m"},
        }
        self.answer(Reply(ollama.hello(), content_type="application/x-ndjson"))

    def told_besides(self, request: Request) -> Answer | None:
        match request.method, request.path:
            case "POST", "/api/show":
                return told(self.shown)
            case "GET", "/api/tags":
                return told({"models": [{"name": "m", "model": "m"}]})
            case "GET", "/api/ps":
                return told({"models": []})
            case "GET", "/api/version":
                return told({"version": "0.32.3"})
            case _:
                return None

    def refusals(self, request: Request) -> list[str]:
        return ollama_rules.request_refusals(request.body)

    def refusal(self, words: str, status: int = 400, **options: Any) -> Status:
        return Status(status, body=ollama.error_body(words), **options)


SERVERS: dict[str, Callable[[], LoopbackServer]] = {
    "anthropic": LoopbackServer,
    "chat": lambda: ChatServer("any"),
    "responses": ResponsesServer,
    "ollama": OllamaServer,
}
