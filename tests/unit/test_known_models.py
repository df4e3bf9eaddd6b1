"""What is known of models: a snapshot with its source, over which the person's own file and prices go."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from tests.conftest import little_work

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.providers.http.models import MAX_MODELS, decode_models
from sanderling.providers.models import known as known_models
from sanderling.providers.models.known import (
    FREE,
    UNKNOWN,
    KnownModels,
    Price,
    load_models,
    load_own,
)
from sanderling.providers.ollama.reply import decode_tags

SNAPSHOT = sorted(Path(known_models.__file__).parent.glob("*.toml"))
MAX_SNAPSHOT_BYTES = 64 << 10


def test_the_snapshot_is_small_and_names_source_date_and_licence():
    assert SNAPSHOT
    assert sum(path.stat().st_size for path in SNAPSHOT) < MAX_SNAPSHOT_BYTES
    words = Path(known_models.__file__).with_name("__init__.py").read_text()
    assert re.search(r"\d{4}-\d{2}-\d{2}.*LiteLLM.*genai-prices.*models\.dev", words, re.DOTALL)
    assert "MIT" in words
    for path in SNAPSHOT:
        assert path.read_text().startswith("# "), f"{path.name} says where it is from"


@pytest.mark.parametrize("path", SNAPSHOT, ids=lambda path: path.stem)
def test_each_entry_of_the_snapshot_can_be_read_and_makes_sense(path):
    known = KnownModels()
    for name in tomllib.loads(path.read_text()):
        model = known.of(f"{path.stem}:{name}")
        assert model != UNKNOWN, name
        assert model.max_output_tokens < (model.window_tokens or 2**31), name
        if price := model.price:
            assert 0 < price.input <= price.output, name
            assert (price.cache_read or 0) <= price.input <= (price.cache_write or price.input), (
                name
            )
            assert bool(price.long_prompt_tokens) == (price.long_input_factor != 1), name


@pytest.mark.parametrize(
    "name", ["openai:gpt-9", "ollama:qwen3-coder:30b", "nobody:m", "../session:x", "local:", ":"]
)
def test_what_nobody_has_told_is_not_known(name):
    assert KnownModels().of(name) == UNKNOWN


def test_a_model_of_one_provider_is_not_that_of_another():
    """Prices and windows are the endpoint's."""
    known = KnownModels()
    assert known.of("openai:gpt-5.5").price
    assert known.of("openrouter:gpt-5.5") == UNKNOWN
    assert known.of("gpt-5.5") == UNKNOWN
    assert known.of("anthropic:claude-opus-5-5") == known.of("claude-opus-5-5") != UNKNOWN


def test_a_dated_name_is_known_as_the_model_without_its_date():
    known = KnownModels()
    assert known.of("openai:gpt-5.2-2025-12-11") == known.of("openai:gpt-5.2") != UNKNOWN
    assert known.of("groq:openai/gpt-oss-120b").price


@pytest.mark.parametrize("name", ["demo", "scripted", "script:~/a.toml"])
def test_what_is_replayed_costs_nothing(name):
    assert KnownModels().of(name) == FREE


def test_the_persons_file_goes_before_the_snapshot_key_by_key(tmp_path):
    (tmp_path / known_models.FILE).write_text(
        '[openai."gpt-5.5"]\nwindow_tokens = 400_000\nprice = { cache_read = 0.25 }\n'
        '[ollama."qwen3-coder:30b"]\nwindow_tokens = 131_072\n'
    )
    shipped, known = KnownModels(), KnownModels(load_own(str(tmp_path)))
    gpt, before = known.of("openai:gpt-5.5"), shipped.of("openai:gpt-5.5")
    assert gpt.window_tokens == 400_000
    assert gpt.max_output_tokens == before.max_output_tokens
    assert gpt.price
    assert before.price
    assert (gpt.price.cache_read, gpt.price.input) == (0.25, before.price.input)
    qwen = known.of("ollama:qwen3-coder:30b")
    assert (qwen.window_tokens, qwen.price) == (131_072, None)
    assert known.names("ollama") == ("qwen3-coder:30b",)
    assert known.names("openai")[0] == "gpt-5.5"
    assert known.names("openai").count("gpt-5.5") == 1


def test_without_a_file_of_their_own_a_person_has_the_snapshot(tmp_path):
    assert load_own(str(tmp_path / "nowhere")) == {}


@pytest.mark.parametrize(
    "text, told",
    [
        ("[openai\n", "models.toml:1: not valid TOML"),
        ("gpt = 3\n", "models.toml:1: 'gpt': must be a table"),
        (
            "[openai.gpt]\nwindow = 3\n",
            "models.toml:2: unknown key 'openai.gpt.window'; did you mean 'openai.gpt.window_tokens'?",
        ),
        ("[openai.gpt]\nprice = { input = 1 }\n", "wrong price of the model 'openai:gpt'"),
        ("[openai.gpt]\nwindow_tokens = -1\n", "models.toml:2: 'openai.gpt.window_tokens'"),
    ],
)
def test_what_is_wrong_in_the_persons_file_is_told_with_its_place(tmp_path, text, told):
    (tmp_path / known_models.FILE).write_text(text)
    with pytest.raises(ConfigError) as raised:
        KnownModels(load_own(str(tmp_path)))
    assert told in str(raised.value)


def test_a_price_may_be_of_one_name_or_of_all_that_match():
    free = {"input": 0, "output": 0}
    known = KnownModels(prices={"ollama:*": free, "ollama:big": {"input": 1, "output": 2}})
    assert known.of("ollama:qwen3:8b").price == FREE.price
    big = known.of("ollama:big").price
    assert big
    assert (big.input, big.output) == (1, 2)
    assert known.of("vllm:qwen3:8b").price is None


def test_an_endpoint_that_begins_from_a_preset_has_its_models_unless_it_is_elsewhere(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    providers = {
        "work": {"preset": "openai", "api_key": "$WORK_KEY"},
        "proxy": {"preset": "openai", "base_url": "http://127.0.0.1:4000"},
    }
    known = load_models(Settings(str(tmp_path), providers=providers))
    assert known.of("work:gpt-5.5") == known.of("openai:gpt-5.5") != UNKNOWN
    assert known.of("proxy:gpt-5.5") == UNKNOWN
    assert known.of("deepseek-anthropic:deepseek-flash").price


def test_what_a_provider_tells_of_its_price_goes_before_the_snapshot_and_not_before_the_person():
    told = Price(7, 8)
    known = KnownModels(
        prices={"openai:gpt-5.2": {"input": 1}, "mine:*": {"input": 0, "output": 0}}
    )
    for name, price in (
        ("openai:gpt-5.5", told),
        ("openrouter:z-ai/glm-5", told),
        ("openai:gpt-5.2", known.of("openai:gpt-5.2").price),
        ("mine:m", FREE.price),
    ):
        known.learn(name, told)
        assert known.of(name).price == price
    assert known.of("openai:gpt-5.5").window_tokens


# --- lists of servers that nobody knows ---------------------------------------------------------------------------------


WRONG = ["", "a\x1b]0;x\x07", "a\u202eb", "a\nb", "x" * 201, "\u200b"]


@pytest.mark.parametrize("wrong", WRONG)
def test_name_that_nobody_can_see_or_write_is_left_out(wrong):
    assert list(decode_models(json.dumps({"data": [{"id": wrong}, {"id": "b"}]}).encode())) == ["b"]
    assert decode_tags(json.dumps({"models": [{"name": wrong}, {"name": "b"}]}).encode()) == ("b",)


def test_list_without_an_end_is_cut():
    listed = json.dumps([{"id": f"m{number}", "created": number} for number in range(100_000)])
    with little_work():
        assert len(decode_models(listed.encode())) == MAX_MODELS
