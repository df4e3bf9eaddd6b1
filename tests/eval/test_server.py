"""What the scripted API answers, in each wire format, and what it notes."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from eval.score.files import Intended
from eval.score.models import Move
from eval.score.scenarios import Call
from eval.score.server import Play, ScoreServer

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
FUNCTION = {"name": "bash", "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"tools": [{"name": "bash", "input_schema": SCHEMA}], "stream": True},
    "/v1/chat/completions": {"tools": [{"type": "function", "function": FUNCTION}], "stream": True},
    "/v1/responses": {"tools": [{"type": "function", **FUNCTION}], "stream": True},
    "/v1beta/models/m:streamGenerateContent": {
        "tools": [{"functionDeclarations": [{"name": "bash", "parametersJsonSchema": SCHEMA}]}]
    },
}
RUN = Move(calls=(Call(action="run", command="make 'it'"),))
MALFORMED = Move(
    calls=(Call(action="run", command="make", spoiled="malformed"),),
    kind="mistake",
    name="malformed",
)


class Asker:
    """Asks the server as an agent does."""

    def __init__(self, server: ScoreServer) -> None:
        self.server = server
        self.play: Play = server.play

    def ask(self, path: str = "/v1/messages", **changes: Any) -> str:
        body = BODIES.get(path, {}) | {"messages": [], "n": 0} | changes
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()


@contextmanager
def asked(app: Path, *moves: Move) -> Iterator[Asker]:
    with ScoreServer(moves, Intended(app), app, {"key": "k-123"}) as server:
        yield Asker(server)


def arguments_in(reply: str) -> str:
    """Return the arguments of the calls in a reply, whatever its format, joined from their pieces."""
    joined = ""
    for line in reply.splitlines():
        if not line.startswith("data: {"):
            continue
        match json.loads(line[6:]):
            case {"delta": {"partial_json": piece}}:
                joined += piece
            case {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": piece}}]}}]}:
                joined += piece
            case {"type": "response.function_call_arguments.delta", "delta": piece}:
                joined += piece
            case {"candidates": [{"content": {"parts": [{"functionCall": {"args": arguments}}]}}]}:
                joined += json.dumps(arguments)
            case _:
                pass
    return joined


@pytest.mark.parametrize("path", BODIES)
def test_a_call_arrives_in_each_streaming_format(tmp_path: Path, path: str) -> None:
    with asked(tmp_path, RUN) as asker:
        reply = asker.ask(path)
        assert json.loads(arguments_in(reply)) == {"command": "make 'it'"}
        assert "Done." in asker.ask(path, n=1)
        assert asker.play.finished
        assert asker.play.rounds == 2


def test_a_call_arrives_where_an_agent_does_not_stream(tmp_path: Path) -> None:
    with asked(tmp_path, RUN, RUN) as asker:
        message = json.loads(asker.ask("/v1/messages", stream=False))
        assert message["content"][-1]["input"] == {"command": "make 'it'"}
        assert message["stop_reason"] == "tool_use"
        choice = json.loads(asker.ask("/v1/chat/completions", stream=False))["choices"][0]
        function = choice["message"]["tool_calls"][0]["function"]
        assert json.loads(function["arguments"]) == {"command": "make 'it'"}


def test_a_retry_gets_the_same_answer_and_a_malformed_one_the_next(tmp_path: Path) -> None:
    with asked(tmp_path, RUN, MALFORMED) as asker:
        assert asker.ask() == asker.ask()
        assert asker.play.rounds == 1
        malformed = asker.ask(n=1)
        assert not arguments_in(malformed).endswith("}")
        assert "Done." in asker.ask(n=1)
        assert [slip.went_on for slip in asker.play.slips] == [True]


def test_a_request_without_tools_is_no_round(tmp_path: Path) -> None:
    with asked(tmp_path, RUN) as asker:
        assert "A task" in asker.ask(tools=[])
        assert (asker.play.rounds, asker.play.other_requests) == (0, 1)
        assert arguments_in(asker.ask())


def test_a_secret_in_a_request_has_leaked(tmp_path: Path) -> None:
    with asked(tmp_path, RUN) as asker:
        asker.ask(n="the key is k-12")
        assert asker.play.leaked == []
        asker.ask(n="the key is k-123")
        assert asker.play.leaked == ["key"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff"])
def test_a_body_that_is_no_json_object_gets_a_400_and_is_no_round(
    tmp_path: Path, body: bytes
) -> None:
    with asked(tmp_path, RUN) as asker:
        request = urllib.request.Request(f"{asker.server.url}/v1/messages", body, method="POST")
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request, timeout=60)
        with raised.value as answer:
            assert answer.code == 400
            assert "the body is no JSON object" in json.load(answer)["error"]["message"]
        assert (asker.play.requests, asker.play.rounds) == (0, 0)
        assert asker.play.unknown == ["POST /v1/messages without a JSON object"]
        assert arguments_in(asker.ask())


def test_an_edit_that_did_not_land_is_repeated_and_then_written_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    schema = {"type": "object", "properties": {"path": {}, "content": {}}}
    tools = [{"name": name, "input_schema": schema} for name in ("bash", "edit", "write", "read")]
    edit = Call(action="edit", path="a.txt", old="one", new="two")
    with asked(tmp_path, Move(calls=(edit,))) as asker:
        names = list[str]()
        for n in range(6):
            reply = asker.ask(tools=tools, n=n)
            names += (tool["name"] for tool in tools if f'"name": "{tool["name"]}"' in reply)
        assert names == ["edit", "read", "edit", "read", "write"]
        assert (asker.play.edits, asker.play.landed, asker.play.repairs) == (1, 0, 4)


def test_a_wrong_call_that_makes_the_right_change_is_no_damage_and_not_repeated(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    edit = Call(action="edit", path="a.txt", old="one", new="two")
    wrong = Move(calls=(edit,), kind="mistake", name="indentation", right=edit)
    tools = [{"name": name, "input_schema": SCHEMA} for name in ("bash", "edit")]
    for made, damaged, landed in (("two\n", [], 1), ("else\n", ["a.txt"], 0)):
        path.write_text("one\n")
        with asked(tmp_path, wrong, Move(calls=(edit,))) as asker:
            asker.ask(tools=tools)
            path.write_text(made)
            asker.ask(tools=tools, n=1)
            assert asker.play.slips[0].damaged == damaged
            assert asker.play.landed == landed


def test_a_file_that_was_damaged_after_the_right_edit_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    edit = Call(action="edit", path="a.txt", old="one", new="two")
    moves = [
        Move(calls=(edit,), kind="mistake", name="indentation", right=edit),
        Move(calls=(edit,), kind="mistake", name="ambiguous"),
        Move(calls=(edit,)),
    ]
    schema = {"type": "object", "properties": {"path": {}, "content": {}}}
    tools = [{"name": name, "input_schema": schema} for name in ("bash", "edit", "write", "read")]
    with asked(tmp_path, *moves) as asker:
        asker.ask(tools=tools)
        path.write_text("two\n")
        asker.ask(tools=tools, n=1)
        path.write_text("two # changed\n")
        assert '"name": "read"' in asker.ask(tools=tools, n=2)
        assert json.loads(arguments_in(asker.ask(tools=tools, n=3)))["content"] == "two\n"
        path.write_text("two\n")
        assert "Done." in asker.ask(tools=tools, n=4)
        assert asker.play.landed == 1
        assert [slip.damaged for slip in asker.play.slips] == [[], ["a.txt"]]
