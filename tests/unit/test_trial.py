"""A trial of a provider: a row for each wire, and what fails is told with what can be done about it."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from tests import loopback
from tests.conftest import prove, prove_rest
from tests.homes import Home
from tests.loopback import LoopbackServer, Reply, Status
from tests.wires import chat, ollama, responses
from tests.wires.servers import ChatServer, OllamaServer, ResponsesServer, told

from sanderling.config import Settings
from sanderling.conversation.checks.trial import (
    FILE,
    FLOAT_COLUMNS,
    HEAD,
    PING,
    USE,
    Trial,
    shown,
    try_all,
)
from sanderling.errors import ConfigError

Servers = Callable[[type[LoopbackServer]], LoopbackServer]

LINES = "application/x-ndjson"


def claude_answers() -> list[Reply]:
    start = loopback.message_start(input_tokens=100, cache_read_input_tokens=900)
    use = loopback.tool_use("use", "read", '{"path": "."}')
    return [
        Reply(loopback.message_start(), loopback.text("pong"), loopback.done()),
        Reply(loopback.message_start(), use, loopback.done("tool_use")),
        Reply(start, loopback.text(f"It is {FILE}."), loopback.done()),
    ]


def ollama_answers() -> list[Reply]:
    return [
        Reply(steps, content_type=LINES)
        for steps in (
            ollama.thinking("Hm.") + ollama.text("pong") + ollama.done(),
            ollama.thinking("ls, then.") + ollama.tool_use("read", {"path": "."}) + ollama.done(),
            ollama.text(f"It is {FILE}.") + ollama.done(),
        )
    ]


def chat_answers() -> list[Reply]:
    use = chat.tool_use("call_1", "read", '{"path": "."}')
    told = chat.finish() + chat.usage(prompt=1000, cached=900) + chat.DONE
    return [
        Reply(chat.begin(), chat.text("pong"), chat.done()),
        Reply(chat.begin(), use, chat.done("tool_calls")),
        Reply(chat.begin(), chat.text(f"It is {FILE}."), told),
    ]


def responses_answers() -> list[Reply]:
    items = (
        responses.said("pong"),
        responses.call("call_1", "read", '{"path": "."}'),
        responses.said(f"It is {FILE}."),
    )
    return [
        Reply(
            responses.begin(),
            responses.item(0, item),
            responses.done(item, input_tokens=1000, cached=900),
        )
        for item in items
    ]


WIRES = {
    "chat": (ChatServer, chat_answers, "m", "90%"),
    "responses": (ResponsesServer, responses_answers, "m", "90%"),
    "anthropic": (LoopbackServer, claude_answers, "claude-test", "90%"),
    "ollama": (OllamaServer, ollama_answers, "m", "none"),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def serve() -> Iterator[Servers]:
    with ExitStack() as servers:
        yield lambda kind: servers.enter_context(kind())


def settings(tmp_path, **tables: Any) -> Settings:
    return Settings(str(tmp_path), providers=tables)


async def try_one(tmp_path, server: LoopbackServer, wire: str, model: str = "") -> Trial:
    base_url = f"{server.url}/v1" if wire in ("chat", "responses") else server.url
    table = {"wire": wire, "base_url": base_url, "model": model}
    (trial,) = await try_all(["here"], "", settings(tmp_path, here=table))
    return trial


@pytest.mark.parametrize("wire", prove_rest(WIRES, is_one=True))
async def test_each_wire_has_its_row(tmp_path, serve, wire):
    kind, answers, model, cached = WIRES[wire]
    server = serve(kind)
    server.answer(*answers())
    trial = await try_one(tmp_path, server, wire, model)
    states = {name: column.state for name, column in trial.columns.items()}
    assert states == {
        "ping": "passed",
        "stream": "passed",
        "tools": "passed",
        "cache": "skipped" if cached == "none" else "passed",
        "turns": "passed",
    }
    assert trial.cache.text == cached
    assert trial.is_passed
    head, _, row = shown([trial], columns=200).splitlines()
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns == [
        "model",
        "window",
        "$ in",
        "$ out",
        "ping",
        "stream",
        "tools",
        "cache",
        "turns",
    ]
    assert row.startswith(f"| here:{model} |")
    assert row.split("|")[3].strip() == "?"


@pytest.mark.parametrize("wire", prove_rest(WIRES, is_one=True))
async def test_it_is_asked_as_in_a_conversation_with_all_tools(tmp_path, serve, wire):
    """The servers refuse what their API would."""
    kind, answers, model, _ = WIRES[wire]
    server = serve(kind)
    server.answer(*answers())
    assert (await try_one(tmp_path, server, wire, model)).is_passed
    first, second, third, _ = (request.json() for request in server.prompts)
    assert first["tools"] == second["tools"] == third["tools"]
    assert len(first["tools"]) >= 10
    words = json.dumps(third)
    assert PING in words
    assert USE in words
    assert FILE in words


@pytest.mark.parametrize("is_repairable", [True, False])
async def test_turns_say_what_the_models_template_requires(tmp_path, serve, is_repairable):
    server = serve(ChatServer)
    words = "single tool-calls at once" if is_repairable else "raise_exception: no"
    refusal = server.refusal(words, 400)
    ends = [Reply(chat.hello())] if is_repairable else []
    server.answer(*chat_answers(), refusal, *ends)
    trial = await try_one(tmp_path, server, "chat", "m")
    assert trial.is_passed is is_repairable
    if is_repairable:
        assert trial.turns.text == "one_call = true"
    else:
        assert "template rejects this conversation" in trial.turns.problem


async def test_calls_that_bear_one_id_fail_no_trial_as_they_fail_no_conversation(tmp_path, serve):
    server = serve(LoopbackServer)
    first, (_, use, done), last = (each.steps for each in claude_answers())
    again = loopback.tool_use("use", "read", '{"path": "."}', index=1)
    server.answer(Reply(*first), Reply(loopback.message_start(), use, again, done), Reply(*last))
    assert (await try_one(tmp_path, server, "anthropic", "claude-test")).is_passed


async def test_without_a_model_the_first_that_is_listed_is_tried(tmp_path, serve):
    server = serve(OllamaServer)
    server.answer(*ollama_answers())
    trial = await try_one(tmp_path, server, "ollama")
    assert (trial.model, trial.window_tokens, trial.price) == ("here:m", 32_768, None)


async def test_who_lists_no_model_is_told_to_be_given_one(tmp_path, serve):
    class Empty(OllamaServer):
        def told_besides(self, request):
            empty = request.path == "/api/tags"
            return told({"models": []}) if empty else super().told_besides(request)

    trial = await try_one(tmp_path, serve(Empty), "ollama")
    assert trial.ping.problem == "It lists no model."
    assert "Name one" in trial.ping.remedy


OK = ollama.text("pong") + ollama.done()
USES = ollama.tool_use("read", {"path": "."}) + ollama.done()


@pytest.mark.parametrize(
    "answers, failed, problem",
    prove_rest(
        [
            ([Status(401, body=b'{"error":"unauthorized"}')], "stream", "unauthorized"),
            ([ollama.thinking("Hm.") + ollama.done()], "stream", "has no text"),
            ([ollama.text("po")], "stream", "cut off"),
            ([OK, ollama.text("It shows it") + ollama.done()], "tools", "called none"),
            ([OK, ollama.tool_use("glob", {}) + ollama.done()], "tools", "called 'glob'"),
            ([OK, USES, OK], "tools", f"named the file {FILE}"),
            ([OK, ollama.tool_use("read", "?") + ollama.done()], "tools", "must be a JSON object"),
            ([OK, USES, Status(500, body=b'{"error":"out of order"}')], "tools", "out of order"),
        ]
    ),
)
async def test_what_fails_is_told_and_what_comes_after_it_is_not_tried(
    tmp_path, serve, answers, failed, problem
):
    server = serve(OllamaServer)
    server.answer(
        *(Reply(each, content_type=LINES) if isinstance(each, bytes) else each for each in answers)
    )
    trial = await try_one(tmp_path, server, "ollama", "m")
    names = list(trial.columns)
    place = names.index(failed)
    assert [trial.columns[name].state for name in names[:place]] == ["passed"] * place
    assert trial.columns[failed].state == "failed"
    assert {trial.columns[name].text for name in names[place + 1 :]} == {"-"}
    assert problem in trial.columns[failed].problem
    assert "invalid" not in trial.columns[failed].text
    line = shown([trial]).splitlines()[-1]
    assert line.startswith(f"* here:m, {failed}: ")
    assert problem in line


async def test_several_are_tried_side_by_side_and_each_has_its_row(tmp_path, serve, unused_port):
    server = serve(OllamaServer)
    server.answer(*ollama_answers())
    one = {"wire": "ollama", "base_url": server.url}
    gone = {"wire": "ollama", "base_url": f"http://127.0.0.1:{unused_port}"}
    trials = await try_all(["one:m", "gone:n"], "", settings(tmp_path, one=one, gone=gone))
    assert [trial.model for trial in trials] == ["one:m", "gone:n"]
    assert [trial.is_passed for trial in trials] == [True, False]


async def test_a_provider_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no provider 'olama'; did you mean 'ollama'"):
        await try_all(["olama"], "", settings(tmp_path))


@prove
def test_a_shell_gets_the_row_as_text_or_json_and_an_exit_status(tmp_path, serve):
    server = serve(OllamaServer)
    home = Home(tmp_path)
    home.config.write_text(f'[providers.here]\nwire = "ollama"\nbase_url = "{server.url}"\n')
    server.answer(*ollama_answers())
    done = home.run("check", "here")
    assert (done.returncode, done.stderr) == (0, "")
    assert "| here:m | 32,768 |    ? |     ? |" in done.stdout
    assert "| turns |" in done.stdout
    server.answer(Status(404, body=b'{"error":"model \'x\' not found"}'))
    done = home.run("check", "here:x", "--json")
    (row,) = json.loads(done.stdout)
    assert done.returncode == 1
    assert (row["model"], row["price"], row["ping"]["state"]) == ("here:x", None, "passed")
    assert row["stream"]["state"] == "failed"
    assert "`ollama pull x`" in row["stream"]["remedy"]
    done = home.run("check", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no provider 'nobody'" in done.stderr
    assert home.run("check", "here", "--api").returncode == 2


def test_row_that_is_too_long_for_a_screen_of_80_columns_is_parted():
    names = ("ollama:qwen3-coder:30b", "openai:gpt-6.1-sol")
    lines = shown([Trial(name, 1_050_000) for name in names]).splitlines()
    assert max(map(len, lines)) <= FLOAT_COLUMNS
    assert [line.split()[1] for line in lines if ":3" in line] == [names[0]] * 2
    words = {word.strip() for line in lines for word in line.split("|")}
    assert {*HEAD} <= words
    assert len(shown([Trial("m")]).splitlines()) == len(("head", "rule", "row"))


async def test_a_trial_warns_of_searches_that_the_api_cannot_do(tmp_path, serve):
    server = serve(ChatServer)
    server.answer(*chat_answers())
    table = {"wire": "chat", "base_url": f"{server.url}/v1"}
    asked = msgspec.structs.replace(settings(tmp_path, here=table), web_search_provider="api")
    (trial,) = await try_all(["here"], "m", asked)
    assert trial.is_passed
    assert shown([trial]).splitlines()[-1] == f"* here:m: {trial.warning}"
    assert 'provider = "api" has no effect with here:m' in trial.warning
