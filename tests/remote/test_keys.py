"""Keys stay here: what runs elsewhere has models asked from here, and nothing else."""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from sanderling import __version__
from sanderling.acp.client.model_proxy import offered
from sanderling.config import Settings
from sanderling.protocol.actions import RetryNow
from sanderling.protocol.events import ApprovalRequested, UsageUpdated
from sanderling.providers.http.model_proxy import ProxyRequest
from tests.conftest import happens, prove
from tests.loopback import Act, LoopbackServer, Reply, Status, done, message_start, text
from tests.remote.conftest import program

pytestmark = pytest.mark.anyio

KEY = "sk-ant-of-this-machine-alone"
WORDS = "It was asked from here. " * 40


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LoopbackServer() as server:
        server.answer(
            Reply(
                message_start(), text(*(WORDS[i : i + 7] for i in range(0, len(WORDS), 7))), done()
            )
        )
        yield server


def options(api):
    return {"provider": "anthropic", "base_url": api.url}


async def test_models_are_asked_from_here_with_the_key_of_here(elsewhere, api):
    elsewhere.install(" ")
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("hello") == "end_turn", talk.errors
        assert talk.text == WORDS
        assert len(api.prompts) == 1
        assert KEY in str(api.prompts[0].headers)
        # the prompt's project, as the model is told, is that of there
        assert str(elsewhere.project) in api.prompts[0].body.decode()
    written = [path for path in elsewhere.there.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


@prove
async def test_a_refusal_of_the_api_is_told_as_it_is(elsewhere, api):
    elsewhere.install(" ")
    api.answer(Status(401))
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("hello") == "error"
        assert KEY not in str(talk.events)
        assert "key" in talk.errors[0].lower()


@prove
async def test_with_keys_of_there_nothing_is_asked_from_here(elsewhere, api):
    elsewhere.install(" ")
    elsewhere.configure(f'model = "script:{elsewhere.script_path}"\n')
    address = f"{elsewhere.address()}?keys=remote"
    async with elsewhere.talk(address=address, options=options(api)) as talk:
        assert await talk.ask("hello") == "end_turn"
        assert talk.text == "pong"
        assert api.requests == []


@pytest.mark.parametrize(
    "asked",
    [
        ProxyRequest("anthropic", "//evil.example/v1"),
        ProxyRequest("anthropic", "http://evil.example/"),
        ProxyRequest("anthropic", "/v1/../../x"),
        ProxyRequest("anthropic", "/v1/%2e%2e/x"),
        ProxyRequest("anthropic", "/v1/models?x=y"),
        ProxyRequest("anthropic", "v1/models"),
        ProxyRequest("anthropic", "/@evil.example\n"),
        ProxyRequest("anthropic", "/v1/models", {"path": "http://evil.example"}),
        ProxyRequest("anthropic", "/v1/models", body="{}"),
        ProxyRequest("anthropic"),
        ProxyRequest("anthropic", "/v1/models/.."),
        ProxyRequest("anthropic", "/v1/files"),
        ProxyRequest("anthropic", "/v1/messages/batches/b1/results"),
        ProxyRequest("openai", "/files/f1/content"),
        ProxyRequest("ollama", "/api/pull", {"model": "m"}),
        ProxyRequest("ollama", "/api/create", {"model": "m"}),
    ],
)
def test_nothing_is_asked_but_models_and_about_them(asked):
    assert not asked.is_allowed


@pytest.mark.parametrize("path", ["/models", "/v1/models/claude-x", "/api/tags", "/api/show"])
def test_models_are_asked_about(path):
    assert ProxyRequest("it", path).is_allowed


HELLO = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
BODY = {"model": "claude-opus-5", "max_tokens": 9, "messages": [HELLO], "stream": True}
ASKED = {"provider": "anthropic", "body": json.dumps(BODY)}


class Borrower:
    """An agent elsewhere that uses keys before and within a turn as it is told to."""

    def __init__(self, elsewhere, tmp_path):
        self._elsewhere = elsewhere
        self._plan, self._answers = tmp_path / "plan", tmp_path / "answers"

    def plan(self, before=(), within=(), *, ends_early=False):
        plan = {"version": __version__, "before": list(before), "within": list(within)}
        plan["ends_early"] = ends_early
        self._plan.write_text(json.dumps(plan))
        script = Path(__file__).with_name("key_user.py")
        words = shlex.join([sys.executable, str(script), str(self._plan), str(self._answers)])
        program(self._elsewhere.bin / "sanderling", f"exec {words}")

    @property
    def refusals(self):
        found = json.loads(self._answers.read_text()) if self._answers.exists() else []
        return [str(each["error"]) for each in found if "error" in each]


@pytest.fixture
def borrower(elsewhere, tmp_path):
    return Borrower(elsewhere, tmp_path)


async def test_no_key_is_lent_before_a_prompt(elsewhere, borrower, api):
    lookup = {"provider": "anthropic", "path": "/v1/models"}
    borrower.plan(before=[ASKED, lookup] * 3)
    async with elsewhere.talk(options=options(api)) as talk:
        talk.agent.act(RetryNow())  # connects, as a chat does that is opened
        await happens(lambda: len(borrower.refusals) == 6)
        assert all("only during a turn" in each for each in borrower.refusals)
        assert api.requests == []


async def test_a_provider_that_the_settings_do_not_name_is_refused(
    elsewhere, borrower, api, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-also-here")
    others = [{"provider": name, "body": '{"model": "m"}'} for name in ("ollama", "openai", "evil")]
    borrower.plan(within=others)
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("hello") == "end_turn", talk.errors
        assert len(borrower.refusals) == 3
        assert all("name no provider" in each for each in borrower.refusals)


async def test_lent_calls_count_against_max_calls(elsewhere, borrower, api):
    borrower.plan(within=[ASKED] * 4)
    async with elsewhere.talk(options={**options(api), "max_calls": 2}) as talk:
        talk.answer = {"answer": "deny"}
        assert await talk.ask("hello") == "end_turn", talk.errors
        assert len(api.requests) == 2
        assert len(borrower.refusals) == 2
        assert all("limit" in each for each in borrower.refusals)
        assert len(talk.of(ApprovalRequested)) == 1


async def test_lent_calls_are_shown_and_count_against_the_budget(elsewhere, borrower, api):
    tokens = {"input_tokens": 400_000, "output_tokens": 20_000}
    api.answer(Reply(message_start(**tokens), text("A long answer."), done()))
    borrower.plan(within=[ASKED] * 2)
    async with elsewhere.talk(options={**options(api), "budget_usd": 0.01}) as talk:
        talk.answer = {"answer": "deny"}
        assert await talk.ask("one") == "end_turn", talk.errors
        spent = talk.of(UsageUpdated)[-1]
        assert spent.is_priced
        assert spent.cost_usd > 0.01
        assert any("uses your key for claude-opus-5" in each for each in talk.notices)
        assert await talk.ask("again") == "end_turn"
        assert "budget" in str(talk.of(ApprovalRequested)[-1])


async def test_an_answer_that_reports_no_usage_counts_by_its_length(elsewhere, borrower, api):
    api.answer(Reply(text("word " * 4_000)))
    borrower.plan(within=[ASKED])
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("one") == "end_turn", talk.errors
        assert talk.of(UsageUpdated)[-1].total.output_tokens > 4_000


async def test_an_answer_that_is_not_read_to_its_end_counts(elsewhere, borrower, api):
    words = text(*("word " for _ in range(4_000)))
    api.answer(Reply(message_start(input_tokens=70_000), words, Act.STALL))
    borrower.plan(within=[ASKED], ends_early=True)
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("one") == "end_turn", talk.errors
        total = talk.of(UsageUpdated)[-1].total
        assert total.input_tokens == 70_000
        assert total.output_tokens > 1_000


async def test_answers_are_asked_for_one_by_one_within_a_budget(elsewhere, borrower, api):
    tokens = {"input_tokens": 400_000, "output_tokens": 20_000}
    api.answer(Reply(message_start(**tokens), text("A long answer."), done()))
    borrower.plan(within=[ASKED] * 5)
    async with elsewhere.talk(options={**options(api), "budget_usd": 0.01}) as talk:
        talk.answer = {"answer": "deny"}
        assert await talk.ask("one") == "end_turn", talk.errors
        assert len(api.requests) == 1
        assert len(borrower.refusals) == 4


async def test_a_model_without_a_price_is_not_lent_within_a_budget(elsewhere, borrower, api):
    others = [json.dumps(BODY | {"model": name}) for name in ("one-of-theirs", "one-of-ours")]
    borrower.plan(within=[{**ASKED, "body": body} for body in others])
    ours = {"model": "one-of-ours", "budget_usd": 1}
    async with elsewhere.talk(options={**options(api), **ours}) as talk:
        assert await talk.ask("hello") == "end_turn", talk.errors
        assert len(api.requests) == 1
        assert "one-of-ours" in api.requests[0].body.decode()
        assert len(borrower.refusals) == 1
        assert "price" in borrower.refusals[0]


@pytest.mark.parametrize("change", [{"stream": False}, {"background": True}])
async def test_an_answer_that_does_not_report_what_it_costs_is_refused(
    elsewhere, borrower, api, change
):
    borrower.plan(within=[{**ASKED, "body": json.dumps(BODY | change)}])
    async with elsewhere.talk(options=options(api)) as talk:
        assert await talk.ask("hello") == "end_turn", talk.errors
        assert api.requests == []
        assert len(borrower.refusals) == 1


def test_no_address_no_key_and_no_header_is_told_with_what_is_offered(tmp_path, monkeypatch):
    table = {
        "wire": "chat",
        "base_url": "http://10.1.2.3/v1",
        "api_key": "$MY_KEY",
        "headers": {"x-secret": "$MY_HEADER"},
        "model": "m",
    }
    monkeypatch.setenv("MY_KEY", KEY)
    settings = Settings(str(tmp_path), provider="mine", providers={"mine": table})
    told = msgspec.json.encode(offered(settings)).decode()
    assert '"mine"' in told
    for secret in ("10.1.2.3", "MY_KEY", "x-secret", "MY_HEADER", KEY):
        assert secret not in told
