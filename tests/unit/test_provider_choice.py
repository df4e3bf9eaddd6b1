"""One table says which providers there are, how each is made and where its key is looked up."""

import re

import pytest
from tests.conftest import ROOT

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.providers import Provider
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.choice import (
    DEFAULT,
    PROVIDERS,
    KnownProvider,
    choose,
    credentials,
    make_provider,
)
from sanderling.providers.credentials import Account
from sanderling.providers.scripted import Script, ScriptedProvider

NOWHERE = Account("nowhere", ("NOWHERE_KEY",), "keychain-nowhere")


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(state_dir=str(tmp_path))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further provider, which is an entry of the table and nothing else."""

    def make(settings: Settings, _: str) -> Provider:
        return ScriptedProvider(Script(1, ()), f"nowhere's {settings.model}")

    monkeypatch.setitem(PROVIDERS, "nowhere", KnownProvider(make, NOWHERE))


def test_unknown_provider_is_told_with_those_that_there_are(tmp_path):
    with pytest.raises(ConfigError) as caught:
        make_provider(Settings(str(tmp_path), provider="openai"))
    words = ("'openai'", "auto", "anthropic", "demo", "scripted")
    assert [word for word in words if word not in str(caught.value)] == []


def test_without_a_key_the_demo_model_answers_unless_nobody_looks(settings):
    assert choose(settings) == "demo"
    assert choose(settings, fallback=DEFAULT) == "anthropic"
    assert isinstance(make_provider(settings, fallback=DEFAULT), AnthropicProvider)


@pytest.mark.usefixtures("nowhere")
def test_auto_is_the_provider_that_has_a_key(settings, monkeypatch):
    monkeypatch.setenv("NOWHERE_KEY", "k")
    assert make_provider(settings).model == f"nowhere's {settings.model}"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert choose(settings) == "anthropic"


@pytest.mark.usefixtures("nowhere")
def test_each_provider_has_a_kept_key_of_its_own(tmp_path):
    theirs = credentials(Settings(str(tmp_path), provider="nowhere"))
    ours = credentials(Settings(str(tmp_path)))
    assert (theirs.account.name, ours.account.name) == ("nowhere", "anthropic")
    (tmp_path / NOWHERE.marker).touch()
    assert (theirs.is_known(), ours.is_known()) == (True, False)
    assert choose(Settings(str(tmp_path))) == "nowhere"


def test_neovim_offers_the_providers_of_the_table():
    schema = (ROOT / "lua/sanderling/config/schema.lua").read_text()
    (names,) = re.findall(r"name = 'provider',.*?choices = \{ (.*?) \}", schema, re.DOTALL)
    assert names.replace("'", "").split(", ") == ["auto", *PROVIDERS]
