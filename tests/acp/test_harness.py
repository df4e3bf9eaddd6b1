"""What benchmarks need of the agent: their names of models, the tokens of a turn, and the variable with the key."""

import contextlib
from typing import Any

import pytest

from sanderling.acp.agent.model_names import is_same, meant, with_slash
from tests.acp.talk import FULL, AgentError

NAMES = [
    *("claude-opus-5", "openai:gpt-5.5", "openai:ft:gpt:x", "openrouter:anthropic/claude-opus-5"),
    *("openrouter:google/gemma", "ollama:qwen3:8b", "script:/a/b.json", "demo"),
]


@pytest.mark.parametrize(
    "name, value",
    [
        ("openai:gpt-5.5", "openai/gpt-5.5"),
        ("openai:ft:gpt:x", "openai/ft:gpt:x"),
        ("openrouter:google/gemma", "openrouter/google/gemma"),
        ("ollama:qwen3:8b", "ollama/qwen3:8b"),
        ("claude-opus-5", "claude-opus-5"),
        ("script:/a/b.json", "script:/a/b.json"),
        ("demo", "demo"),
    ],
)
def test_a_model_is_shown_with_a_slash_and_its_value_means_it(name, value):
    assert with_slash(name) == value
    assert meant(value, NAMES) == name
    assert meant(name, NAMES) == name


@pytest.mark.parametrize(
    "value, name",
    [
        ("anthropic/claude-opus-5", "claude-opus-5"),
        ("anthropic/claude-opus-5-20260101", "anthropic:claude-opus-5-20260101"),
        ("openai/gpt-new", "openai:gpt-new"),
        ("gemini/gemini-3", "gemini:gemini-3"),  # without a key: the error names the provider
        ("google/gemma", "google/gemma"),  # of the current provider, if anybody's
        ("meta/llama", "meta/llama"),
        ("gpt-5.5", "gpt-5.5"),
        ("openai/", "openai/"),
        ("/gpt", "/gpt"),
        ("script:/c/d.json", "script:/c/d.json"),
    ],
)
def test_a_value_that_is_no_choice_means_a_model_of_the_provider_that_it_names(value, name):
    assert meant(value, NAMES) == name


def test_a_model_with_a_slash_is_not_taken_for_a_provider_that_cannot_be_called():
    names = ["openrouter:anthropic/claude-opus-5"]
    assert meant("anthropic/claude-opus-5", names) == "anthropic/claude-opus-5"


def test_a_value_is_the_model_that_it_means_or_a_part_of():
    assert is_same("anthropic:claude-opus-5", "claude-opus-5")
    assert is_same("opus", "claude-opus-5")
    assert not is_same("openai:gpt-5.5", "claude-opus-5")


def option_of(options: list[dict[str, Any]], name: str = "model") -> dict[str, Any]:
    return next(each for each in options if each["id"] == name)


KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}


def test_models_of_other_providers_are_chosen_as_provider_and_model(start):
    agent = start(environment=KEYS)
    agent.initialize()
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    values = [each["value"] for each in option_of(said["configOptions"])["options"]]
    openai = next(each for each in values if each.startswith("openai/"))
    assert not [each for each in values if each.startswith(("openai:", "anthropic"))]
    claude = next(each for each in values if each.startswith("claude"))
    for value, now in (
        (openai, openai),
        (f"anthropic/{claude}", claude),
        (openai.replace("/", ":"), openai),
        (claude, claude),
    ):
        options = agent.request(
            "session/set_config_option",
            sessionId=said["sessionId"],
            configId="model",
            value=value,
        )["configOptions"]
        assert option_of(options)["currentValue"] == now


def test_a_model_of_a_provider_without_a_key_fails_with_its_variable(start):
    agent = start(environment={"ANTHROPIC_API_KEY": "k"})
    agent.initialize()
    session = agent.new()
    agent.request(
        "session/set_config_option", sessionId=session, configId="model", value="mistral/x"
    )
    with pytest.raises(AgentError) as refused:
        agent.prompt(session, "Go.")
    assert refused.value.code == -32000
    assert "MISTRAL_API_KEY" in str(refused.value)


def test_a_prompt_is_answered_with_the_tokens_of_its_turn(start, home):
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 70,
    }
    todo = {"tool_use": {"name": "todo", "input": {"items": []}}}
    model = home.script_of(
        {"usage": usage, "step": [todo]},
        {"usage": usage, "step": [{"text": "One."}]},
        {"usage": {"input_tokens": 1}, "step": [{"text": "Two."}]},
    )
    agent = start("--model", model)
    agent.initialize()
    session = agent.new()
    first = agent.end(agent.begin_prompt(session, "Go."))
    assert first == {
        "stopReason": "end_turn",
        "usage": {
            "totalTokens": 210,
            "inputTokens": 200,
            "outputTokens": 10,
            "cachedReadTokens": 140,
            "cachedWriteTokens": 40,
        },
    }
    second = agent.end(agent.begin_prompt(session, "On."))
    assert second["usage"]["totalTokens"] == 1


def test_a_command_of_ours_has_no_tokens(start):
    agent = start("--model", "demo")
    agent.initialize()
    session = agent.new()
    assert agent.end(agent.begin_prompt(session, "/usage")) == {"stopReason": "end_turn"}


@pytest.mark.parametrize(
    "environment, settings, variable",
    [
        ({}, "", "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, "", "ANTHROPIC_AUTH_TOKEN"),
        ({"OPENAI_API_KEY": "k"}, 'model = "openai:gpt-5.5"', "OPENAI_API_KEY"),
        ({}, 'model = "mistral:x"', "MISTRAL_API_KEY"),
        (
            {},
            'model = "own:x"\n[providers.own]\nwire = "chat"\nbase_url = "https://example.com"\napi_key = "$OWN"',
            "OWN",
        ),
        ({}, "model = 1", "ANTHROPIC_API_KEY"),  # session/new reports the mistake
    ],
)
def test_a_client_without_terminals_learns_the_variable_with_the_key(
    start, home, environment, settings, variable
):
    home.config.parent.mkdir(parents=True, exist_ok=True)
    home.config.write_text(settings)
    agent = start(environment=environment)
    way = agent.initialize()["authMethods"][0]
    assert (way["id"], way["type"]) == ("environment", "env_var")
    assert way["vars"] == [{"name": variable}]


def test_a_client_with_terminals_stores_no_key_in_its_settings(begin):
    agent = begin("demo", **FULL)
    ways = agent.initialize(**FULL)["authMethods"]
    assert [each.get("type") for each in ways] == [None, None, "terminal"]


def test_a_failed_authentication_says_what_is_missing(start, home):
    home.config.parent.mkdir(parents=True, exist_ok=True)
    home.config.write_text('model = "openai:gpt-5.5"')
    agent = start(environment={"OPENAI_API_KEY": ""})
    agent.initialize()
    for method, code, words in (
        ("environment", -32000, "set OPENAI_API_KEY where this agent is started"),
        ("keychain", -32000, "run `sanderling login`"),
        ("oauth", -32602, "the methods are 'environment' and 'keychain'"),
    ):
        with pytest.raises(AgentError) as refused:
            agent.request("authenticate", methodId=method)
        assert refused.value.code == code
        assert words in str(refused.value)


def test_an_authentication_can_be_cancelled_and_done_again(start):
    agent = start(environment={"ANTHROPIC_API_KEY": "k"})
    agent.initialize()
    asked = agent.begin("authenticate", methodId="environment")
    agent.notify("$/cancel_request", requestId=asked)
    with contextlib.suppress(AgentError):  # it may be answered already
        agent.end(asked)
    assert agent.request("authenticate", methodId="environment") == {}
    assert agent.new()
