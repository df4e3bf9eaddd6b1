"""Endpoints are data: presets, and tables of the person's that change one, begin from one or stand alone."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import ROOT

from sanderling.errors import ConfigError
from sanderling.providers.endpoint import (
    ANTHROPIC,
    ProviderTable,
    Quirks,
    endpoint_names,
    is_local,
    load_endpoint,
    presets,
)

ALONE = {"wire": "chat", "base_url": "http://127.0.0.1:8080/v1"}


@pytest.mark.parametrize("name", presets())
def test_each_preset_can_be_used_as_it_stands(name):
    endpoint = load_endpoint(name, {})
    assert endpoint.name == name
    assert endpoint.base_url.startswith("http") or endpoint == ANTHROPIC
    assert endpoint.is_keyed is not is_local(endpoint.base_url)
    assert endpoint.model or not endpoint.is_keyed or name == "anthropic"


def test_help_knows_each_preset_and_each_key_and_quirk_of_a_table():
    text = (ROOT / "doc/sanderling.txt").read_text()
    told = text[text.index("*sanderling-providers*") : text.index("*sanderling-provider-test*")]
    names = set(re.findall(r"^  ([\w-]+)(?:\s|$)", told, re.MULTILINE))
    assert {
        *presets(),
        *ProviderTable.__struct_fields__,
        *Quirks.__struct_fields__,
    } - names == set()


def test_each_preset_has_a_key_of_its_own_in_the_keychain():
    accounts = [load_endpoint(name, {}).account for name in presets()]
    assert len({account.marker for account in accounts}) == len(accounts)
    assert accounts[0].marker == "keychain"  # as before there were others


def test_table_of_a_presets_name_changes_the_preset_key_by_key():
    table = {"model": "m", "quirks": {"images": "user"}}
    changed, preset = load_endpoint("deepseek", {"deepseek": table}), load_endpoint("deepseek", {})
    assert (changed.model, changed.quirks.images) == ("m", "user")
    assert changed.quirks.replay_reasoning == preset.quirks.replay_reasoning == "always"
    assert (changed.base_url, changed.account) == (preset.base_url, preset.account)


def test_table_may_begin_from_a_preset():
    endpoint = load_endpoint("mine", {"mine": {"preset": "deepseek", "api_key": "${MINE}"}})
    assert (endpoint.name, endpoint.account.variables) == ("mine", ("MINE",))
    assert endpoint.quirks == load_endpoint("deepseek", {}).quirks


def test_table_may_stand_alone_and_names_a_variable_without_naming_one():
    endpoint = load_endpoint("my-own", {"my-own": ALONE})
    assert endpoint.account.variables == ("MY_OWN_API_KEY",)
    assert not endpoint.is_keyed


@pytest.mark.parametrize(
    "base_url, is_keyed", [("https://api.test/v1", True), ("http://[::1]/v1", False)]
)
def test_key_is_needed_where_one_is_named_and_not_on_this_machine(base_url, is_keyed):
    table = {"wire": "chat", "base_url": base_url, "api_key": "$MINE"}
    assert load_endpoint("mine", {"mine": table}).is_keyed is is_keyed
    del table["api_key"]
    assert not load_endpoint("mine", {"mine": table}).is_keyed


def test_quirks_may_differ_by_model():
    endpoint = load_endpoint("openrouter", {})
    assert endpoint.quirks_of("anthropic/claude-x").cache == "anthropic"
    assert endpoint.quirks_of("anthropic/claude-x").echo == endpoint.quirks.echo
    assert endpoint.quirks_of("other/m").cache == "automatic"


@pytest.mark.parametrize(
    "table, words",
    [
        ({"wire": "chat"}, ["base_url", "preset"]),
        ({"base_url": "http://x"}, ["wire", "preset"]),
        ({"preset": "deepsek"}, ["unknown preset", "'deepseek'"]),
        ({**ALONE, "modle": "m"}, ["'modle'", "'model'"]),
        ({**ALONE, "quirks": {"imges": "user"}}, ["'imges'", "'images'"]),
        ({**ALONE, "models": {"x*": {"imges": "user"}}}, ["models.x*", "'images'"]),
        ({**ALONE, "wire": "chot"}, ["chot", "wire"]),
        ({**ALONE, "quirks": {"images": "all"}}, ["all", "images"]),
        ({**ALONE, "base_url": 1}, ["int", "base_url"]),
        ({**ALONE, "base_url": "127.0.0.1:8080/v1"}, ["base_url", "http://"]),
        ({**ALONE, "quirks": 1}, ["int", "quirks"]),
        ({**ALONE, "preset": ["x"]}, ["unknown preset"]),
    ],
)
def test_wrong_table_is_told_by_its_name_and_key(table, words):
    with pytest.raises(ConfigError) as caught:
        load_endpoint("mine", {"mine": table})
    assert [word for word in ["[providers.mine]", *words] if word not in str(caught.value)] == []


@pytest.mark.parametrize("key", ["sk-123456789", ["$GOOD", "sk-123456789"], ""])
def test_key_itself_is_refused_and_not_repeated(key: Any):
    with pytest.raises(ConfigError) as caught:
        load_endpoint("mine", {"mine": {**ALONE, "api_key": key}})
    assert "sk-123456789" not in str(caught.value)
    assert "sanderling login mine" in str(caught.value)


@pytest.mark.parametrize("name", ["a:b", "a/b", "", "-x"])
def test_name_with_which_no_model_could_be_named_is_refused(name):
    with pytest.raises(ConfigError, match="not a valid name"):
        load_endpoint(name, {name: ALONE})


@pytest.mark.parametrize("name", ["auto", "demo", "scripted", "script"])
def test_table_that_would_never_be_asked_is_refused(name):
    with pytest.raises(ConfigError, match=f"'{name}' is reserved"):
        load_endpoint(name, {name: ALONE})


def test_unknown_name_is_told_with_the_nearest_and_all_others():
    with pytest.raises(ConfigError, match=r"did you mean 'mistral'.*vllm"):
        load_endpoint("mistrall", {})
    with pytest.raises(ConfigError, match="no provider 'nope'; there are"):
        load_endpoint("nope", {})
    assert endpoint_names({"mine": ALONE})[:2] == ("anthropic", "mine")


def test_who_asks_claude_reads_no_presets():
    code = (
        "import sys; from sanderling.config import Settings; from sanderling.providers import endpoint\n"
        "from sanderling.providers.choice import make_provider\n"
        "print(make_provider(Settings(sys.argv[1], provider='anthropic')).model)\n"
        "print(make_provider(Settings(sys.argv[1]), fallback='anthropic').model)\n"
        "print(endpoint.presets.cache_info().currsize)\n"
    )
    environment = os.environ | {"ANTHROPIC_API_KEY": "k"}
    run = subprocess.run(
        [sys.executable, "-c", code, "."],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.stdout.split()[-1] == "0"


def test_how_hard_to_think_is_changed_alone():
    harder = {"reasoning": {"effort": "high"}}
    quirks = load_endpoint("openai", {"openai": {"quirks": {"effort": {"on": harder}}}}).quirks
    assert quirks.effort["on"] == harder
    assert quirks.effort["off"] == load_endpoint("openai", {}).quirks.effort["off"]
    with pytest.raises(ConfigError, match="is wrong"):
        load_endpoint("openai", {"openai": {"quirks": {"effort": 3}}})
