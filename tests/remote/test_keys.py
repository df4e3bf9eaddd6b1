"""Keys stay here: what runs elsewhere has models asked from here, and nothing else."""

import msgspec
import pytest

from sanderling.acp.borrowing import DATA, HttpRequest
from sanderling.acp.errors import RpcError
from sanderling.acp_client.lending import Lending, offered
from sanderling.config import Settings
from sanderling.providers.http.way import Asked
from tests.conftest import prove
from tests.loopback import LoopbackServer, Reply, Status, done, message_start, text

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
        Asked("anthropic", "//evil.example/v1"),
        Asked("anthropic", "http://evil.example/"),
        Asked("anthropic", "/v1/../../x"),
        Asked("anthropic", "/v1/%2e%2e/x"),
        Asked("anthropic", "/v1/models?x=y"),
        Asked("anthropic", "v1/models"),
        Asked("anthropic", "/@evil.example\n"),
        Asked("anthropic", "/v1/models", {"path": "http://evil.example"}),
        Asked("anthropic", "/v1/models", body="{}"),
        Asked("anthropic"),
        Asked("anthropic", "/v1/models/.."),
        Asked("anthropic", "/v1/files"),
        Asked("anthropic", "/v1/messages/batches/b1/results"),
        Asked("openai", "/files/f1/content"),
        Asked("ollama", "/api/pull", {"model": "m"}),
        Asked("ollama", "/api/create", {"model": "m"}),
    ],
)
def test_nothing_is_asked_but_models_and_about_them(asked):
    assert not asked.is_allowed


@pytest.mark.parametrize("path", ["/models", "/v1/models/claude-x", "/api/tags", "/api/show"])
def test_models_are_asked_about(path):
    assert Asked("it", path).is_allowed


async def test_a_provider_that_is_not_of_the_settings_is_refused(tmp_path):
    told = []
    lending = Lending(Settings(str(tmp_path)), lambda *each: told.append(each), lambda *_: None)
    request = HttpRequest(id="1", provider="evil", path="/v1/models")
    with pytest.raises(RpcError, match="there is no provider 'evil'"):
        await lending.methods()["_sanderling/http"].handle(
            msgspec.Raw(msgspec.json.encode(request))
        )
    assert not [method for method, _ in told if method == DATA]


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
