"""Who answers: by the settings, by a model's full name, by a key; and what happens when that changes in a session."""

from typing import Any

import pytest

from sanderling.config import DEFAULT_MODEL, Layer, Settings
from sanderling.config.layers import Layers
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.actions import SetModel
from sanderling.protocol.events import Event, ModelChanged, Notice
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import BlockDone, ModelRequest
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.choice import DEFAULT, choose, credentials, make_provider
from sanderling.providers.endpoint import ANTHROPIC, load_endpoint, presets

HERE = {"wire": "anthropic", "base_url": "http://127.0.0.1:1/"}
KEY_VARIABLES = [
    name for preset in presets() for name in load_endpoint(preset, {}).account.variables
]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(tmp_path):
    def make(**options: Any) -> Settings:
        return Settings(state_dir=str(tmp_path), **options)

    return make


def test_unknown_provider_is_told_with_those_that_there_are(settings):
    with pytest.raises(ConfigError) as caught:
        make_provider(settings(provider="none"))
    words = ("'none'", "auto", "anthropic", "demo", "scripted", "mistral", "mine")
    with pytest.raises(ConfigError) as caught:
        make_provider(settings(provider="none", providers={"mine": HERE}))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "options",
    [
        {"provider": "opnai"},
        {"model": "opnai:gpt"},
        {"provider": "anthropic", "model": "opnai:gpt"},
    ],
)
def test_mistyped_provider_is_told_with_the_nearest(settings, options):
    with pytest.raises(ConfigError, match="did you mean 'openai'"):
        make_provider(settings(**options))


def test_without_a_key_the_demo_model_answers_unless_nobody_looks(settings):
    assert choose(settings()) == "demo"
    assert make_provider(settings(model="claude-x")).model == "demo"
    assert choose(settings(), fallback=DEFAULT) == "anthropic"
    assert make_provider(settings(), fallback=DEFAULT).model == DEFAULT_MODEL


def test_auto_is_the_first_provider_that_has_a_key_and_its_own_default_model(settings, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    mine = {"mine": {**HERE, "api_key": "$DEEPSEEK_API_KEY", "model": "m"}}
    assert make_provider(settings(providers=mine)).model == "mine:m"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert make_provider(settings(providers=mine)).model == DEFAULT_MODEL


def test_own_provider_that_needs_no_key_counts_as_one_that_has_one(settings):
    local = {"here": {**HERE, "model": "m"}}
    assert make_provider(settings(providers=local)).model == "here:m"
    assert choose(settings(providers={"here": HERE})) == "demo"  # which model?
    assert make_provider(settings(providers={"here": HERE}, model="m")).model == "here:m"


def test_model_that_claude_is_called_is_anthropics_whoever_has_a_key(settings, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert make_provider(settings(model="claude-x")).model == "claude-x"


@pytest.mark.parametrize(
    "options, model",
    [
        ({"model": "here:m"}, "here:m"),
        ({"model": "here:m:30b"}, "here:m:30b"),
        ({"provider": "here", "model": "m:30b"}, "here:m:30b"),
        ({"provider": "here", "model": "anthropic:claude-x"}, "anthropic:claude-x"),
        ({"provider": "here"}, "here:own"),
        ({"model": "here:"}, "here:own"),
        ({"model": "anthropic:m:30b"}, "anthropic:m:30b"),
        ({"model": "router/m:30b"}, "here:router/m:30b"),
        ({"provider": "anthropic", "model": "router/m:30b"}, "anthropic:router/m:30b"),
        ({"model": "anthropic:claude-x"}, "claude-x"),
        ({"model": "demo"}, "demo"),
        ({"provider": "demo"}, "demo"),
    ],
)
def test_provider_and_model_are_named_together_or_alone(settings, options, model):
    own = {"here": {**HERE, "model": "own"}}
    provider = make_provider(settings(providers=own, **options), fallback=DEFAULT)
    assert provider.model == model
    provider.set_model("here:other")
    assert provider.model == "here:other"
    provider.set_model(model)  # what logs have names the same again
    assert provider.model == model


def test_model_of_another_provider_is_told_with_its_full_name(settings, monkeypatch):
    for typed in ("gpt-6.1-sol", "gpt-6.1-soll"):  # nobody has a key
        with pytest.raises(ConfigError, match=r"did you mean 'openai:gpt-6\.1-sol'"):
            make_provider(settings(model=typed), fallback=DEFAULT)
        assert choose(settings(model=typed)) == "demo"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with pytest.raises(ConfigError, match=r"'anthropic' has no model 'gpt-6\.1-sol'; did you mean"):
        make_provider(settings(model="gpt-6.1-sol"), fallback=DEFAULT)
    assert make_provider(settings(model="new-one"), fallback=DEFAULT).model == "new-one"
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert make_provider(settings(model="gpt-6.1-sol")).model == "openai:gpt-6.1-sol"
    own = settings(model="gpt-6.1-sol", providers={"here": HERE})
    assert make_provider(own).model == "here:gpt-6.1-sol"


def test_provider_without_a_model_of_its_own_asks_for_one(settings):
    with pytest.raises(ConfigError, match="needs a model: --model here:NAME"):
        make_provider(settings(provider="here", providers={"here": HERE}))


def test_name_of_a_provider_alone_is_its_usual_model(settings):
    here = {**HERE, "model": "usual"}
    assert make_provider(settings(model="here", providers={"here": here})).model == "here:usual"
    with pytest.raises(ConfigError, match="needs a model: --model here:NAME"):
        make_provider(settings(model="here", providers={"here": HERE}))


async def test_another_provider_answers_from_the_next_request_on(settings, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(
            f'{{"version": 1, "reply": [{{"repeat": true, "step": [{{"text": "{name}"}}]}}]}}'
        )
    provider = make_provider(settings(model=f"script:{tmp_path}/one"))

    async def said() -> list[str]:
        request = ModelRequest("", [Message("user", (TextBlock("Hi"),))])
        items = [item async for item in provider.stream(request)]
        return [
            item.block.text
            for item in items
            if isinstance(item, BlockDone) and isinstance(item.block, TextBlock)
        ]

    assert await said() == ["one"]
    provider.set_model(f"script:{tmp_path}/two")
    assert await said() == ["two"]
    provider.set_model(f"script:{tmp_path}/one")
    assert await said() == ["one"]
    await provider.aclose()


def test_provider_that_cannot_be_had_leaves_the_one_that_answers(settings):
    provider = make_provider(settings(model="claude-x"), fallback=DEFAULT)
    with pytest.raises(ConfigError):
        provider.set_model("mistrall:m")
    assert provider.model == "claude-x"


@pytest.mark.parametrize("model", ["claude-x", "new-one"])
async def test_a_model_that_is_chosen_without_a_key_is_not_the_demo_model(settings, model):
    provider = make_provider(settings())
    assert provider.model == "demo"
    provider.set_model(model)
    request = ModelRequest("", [Message("user", (TextBlock("Hi"),))])
    with pytest.raises(ProviderError, match="There is no API key"):
        [item async for item in provider.stream(request)]
    provider.set_model("demo")
    assert [item async for item in provider.stream(request)]
    await provider.aclose()


def test_each_provider_has_a_kept_key_of_its_own(settings, tmp_path):
    theirs = credentials(settings(provider="mistral"))
    ours = credentials(settings())
    assert (theirs.account.name, ours.account.name) == ("mistral", "anthropic")
    (tmp_path / theirs.account.marker).touch()
    assert (theirs.is_known(), ours.is_known()) == (True, False)
    assert choose(settings()) == "mistral"
    assert credentials(settings(), "mistral").is_known()
    with pytest.raises(ConfigError, match="did you mean 'mistral'"):
        credentials(settings(), "mistrall")


def test_other_endpoint_of_claudes_wire_gets_nothing_of_claudes(settings, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-claude")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:2")
    endpoint = load_endpoint("here", {"here": HERE})
    client = AnthropicProvider(settings(), endpoint, "m")._make_client()
    assert client.base_url.port == 1
    assert "sk-ant-claude" not in str(client.headers.raw)
    assert ANTHROPIC.account.is_set()


@pytest.fixture
async def converse(tmp_path):
    """Open the session with settings; what it says is in `events`."""
    (tmp_path / "project").mkdir()

    async def open_session(events: list[Event], **options: Any) -> Conversation:
        script = tmp_path / "script.json"
        script.write_text('{"version": 1, "reply": []}')
        chosen = {"provider": "scripted", "script": str(script)}
        found = await open_conversation(
            "s1",
            str(tmp_path / "project"),
            Layers(state_dir=str(tmp_path), setup=Layer("setup()", chosen | options)),
            events.append,
            SessionOptions(is_eager=False),
        )
        assert isinstance(found.agent, Conversation)
        return found.agent

    async def close(conversation: Conversation) -> None:
        conversation.close()
        await conversation.serve()

    return open_session, close


async def test_session_whose_provider_is_gone_opens_with_a_notice_and_the_default(converse):
    open_session, close = converse
    first = await open_session([], providers={"gone": HERE})
    first.act(SetModel("gone:m"))
    assert first.services.provider.model == first.services.session.state("model") == "gone:m"
    await close(first)
    events: list[Event] = []
    again = await open_session(events)
    assert again.services.provider.model == "scripted"
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "gone:m" in notice.text
    await close(again)
    once_more = await open_session([], providers={"gone": HERE})
    assert once_more.services.provider.model == "gone:m"
    await close(once_more)


async def test_model_that_nobody_can_be_asked_for_is_told_and_changes_nothing(converse):
    open_session, close = converse
    events: list[Event] = []
    conversation = await open_session(events)
    conversation.act(SetModel("script:/nowhere"))
    assert conversation.services.provider.model == "scripted"
    assert isinstance(events[-1], Notice)
    assert not [event for event in events if isinstance(event, ModelChanged)]
    await close(conversation)


async def test_a_provider_declared_during_the_session_can_be_chosen(
    converse, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    open_session, close = converse
    events: list[Event] = []
    conversation = await open_session(events)
    conversation.act(SetModel("late:m"))
    assert "there is no provider 'late'" in events[-1].text
    config = tmp_path / ".config/sanderling/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[providers.late]\nwire = "chat"\nbase_url = 5\n')
    conversation.act(SetModel("late:m"))
    assert "[providers.late] is wrong" in events[-1].text
    config.write_text('[providers.late]\nwire = "chat"\nbase_url = "http://127.0.0.1:1"\n')
    conversation.act(SetModel("late:m"))
    assert conversation.services.provider.model == "late:m"
    await close(conversation)
