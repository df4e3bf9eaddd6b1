"""The effort: what is requested on each wire, who chooses it, and what happens if a model does not take it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import settings_of
from tests.talk import BaseTalk, scripted

from sanderling.acp.agent.options import ConfigOptions
from sanderling.acp.wire.errors import RpcError
from sanderling.config import Settings
from sanderling.project.places import Places
from sanderling.project.skills import Skills
from sanderling.project.slash_commands import SlashCommands
from sanderling.project.trust.trust import OwnFiles
from sanderling.protocol.actions import SetEffort, SetModel
from sanderling.protocol.events import EffortChanged, Notice
from sanderling.protocol.messages import Message, Prompt, TextBlock, Usage
from sanderling.protocol.modes import Effort
from sanderling.providers import Delegate, ModelLimits, ModelRequest
from sanderling.providers.anthropic.reply import decode_limits
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.chat.request import ChatEncoder
from sanderling.providers.choice import make_provider
from sanderling.providers.endpoint import load_endpoint
from sanderling.providers.models.known import KnownModels
from sanderling.providers.ollama.request import Ask, OllamaEncoder
from sanderling.providers.responses.request import ResponsesEncoder
from sanderling.session.session import Session

ALL = ("low", "medium", "high", "xhigh", "max")


def request(effort: Any) -> ModelRequest:
    return ModelRequest("Help.", [Message("user", (TextBlock("Hello."),))], effort=effort)


def sent(name: str, model: str, effort: str, *, thinking: bool = True) -> dict[str, Any]:
    endpoint = load_endpoint(name, {})
    quirks, asked = endpoint.quirks_of(model), request(effort)
    match endpoint.wire:
        case "anthropic":
            body = RequestEncoder(quirks).encode(
                asked, model=model, max_tokens=100, thinking=thinking
            )
        case "chat":
            body = ChatEncoder(quirks).encode(asked, model=model, thinking=thinking)
        case "responses":
            body = ResponsesEncoder(model, quirks).encode(asked, thinking=thinking)
        case "ollama":
            body = OllamaEncoder(quirks).encode(asked, Ask(model, 32_768, think=thinking))
    return msgspec.json.decode(body)


@pytest.mark.parametrize(
    "name, model, fields",
    [
        (
            "anthropic",
            "claude-opus-5-5",
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
        ),
        ("openai", "gpt-6.1-sol", {"reasoning": {"summary": "auto", "effort": "high"}}),
        ("openai-chat", "gpt-6.1-sol", {"reasoning_effort": "high"}),
        ("openrouter", "x/y", {"reasoning": {"enabled": True, "effort": "high"}}),
        (
            "deepseek",
            "deepseek-v4-pro",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        ("groq", "openai/gpt-oss-120b", {"reasoning_effort": "high"}),
        ("ollama", "gpt-oss:20b", {"think": "high"}),
    ],
)
def test_each_wire_sends_the_effort_where_its_api_reads_it(name, model, fields):
    body, plain = sent(name, model, "high"), sent(name, model, "default")
    assert {field: body[field] for field in fields} == fields
    assert "high" not in str({field: plain.get(field) for field in fields})


def test_an_effort_overrides_the_least_that_a_model_without_thinking_is_asked_for():
    assert sent("openai", "gpt-6.1-sol", "max", thinking=False)["reasoning"] == {"effort": "max"}
    plain = sent("openai", "gpt-6.1-sol", "default", thinking=False)
    assert plain["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize(
    "name, model, efforts",
    [
        ("anthropic", "claude-sonnet-5-5", ALL),
        ("anthropic", "claude-opus-4-8", ALL),
        ("anthropic", "claude-sonnet-4-6", ("low", "medium", "high", "max")),
        ("anthropic", "claude-opus-4-5-20251101", ("low", "medium", "high")),
        ("anthropic", "claude-haiku-4-5", ()),
        ("openai", "gpt-5-mini", ("low", "medium", "high")),
        ("openai", "gpt-5.5", ("low", "medium", "high", "xhigh")),
        ("openai", "gpt-4.1", ()),
        ("mistral", "mistral-medium-latest", ()),
        ("ollama", "qwen3:8b", ()),
    ],
)
def test_models_have_the_levels_that_their_api_documents(name, model, efforts):
    assert load_endpoint(name, {}).quirks_of(model).efforts == efforts


def test_the_levels_that_the_api_reports_replace_the_known_ones(tmp_path):
    effort: dict[str, Any] = {"supported": True, "low": {"supported": True}}
    effort |= {"high": {"supported": True}, "max": {"supported": False}, "xhigh": None}
    body = {"id": "m", "capabilities": {"effort": effort}}
    limits = decode_limits(msgspec.json.encode(body))
    assert limits.efforts == ("low", "high")
    nothing = {"effort": {"supported": False, "low": {"supported": False}}}
    assert decode_limits(msgspec.json.encode({"capabilities": nothing})).efforts == ()
    assert decode_limits(b'{"id":"m"}').efforts is None

    provider = make_provider(Settings(str(tmp_path), provider="anthropic"))
    assert provider.efforts == ALL
    provider._provider.limits = limits
    assert provider.efforts == ("low", "high")


# --- who chooses it ----------------------------------------------------------------------------------------------------


class Listener(Delegate):
    """A scripted model that takes some efforts, and keeps what was requested."""

    def __init__(self, *efforts: Effort) -> None:
        self._provider = scripted([{"text": "Yes."}], is_repeating=True, model="listener")
        self.taken, self.asked = efforts, list[str]()

    @property
    def efforts(self) -> tuple[Effort, ...]:
        return () if self.model == "plain" else self.taken

    async def stream(self, request: ModelRequest):
        self.asked.append(request.effort)
        async for item in self._provider.stream(request):
            yield item


def talk_of(folder: Path, listener: Listener, **settings: Any) -> BaseTalk:
    (folder / "project").mkdir(exist_ok=True)
    session = Session.open(folder / "state/sessions", "s1", str(folder / "project"))
    chosen = msgspec.structs.replace(settings_of(session), **settings)
    return BaseTalk(session, listener, settings=chosen)


def prompt(number: int, **more: Any) -> Prompt:
    return Prompt(f"p{number}", f"Question {number}.", **more)


async def test_the_settings_choose_the_session_and_its_prompts_override_it(tmp_path):
    listener = Listener("low", "high", "max")
    talk = talk_of(tmp_path, listener, effort="low")
    async with talk.served():
        await talk.run_turns(prompt(1), prompt(2, effort="max"), prompt(3))
        talk.conversation.act(SetEffort("high"))
        await talk.run_turns(prompt(4))
        talk.conversation.act(SetEffort("max", is_once=True))
        await talk.run_turns(prompt(5), prompt(6))
    assert listener.asked == ["low", "max", "low", "high", "max", "high"]
    assert talk.of(EffortChanged) == [
        EffortChanged("high"),
        EffortChanged("high", "max"),
        EffortChanged("high"),
    ]
    again = talk_of(tmp_path, second := Listener("low", "high"), effort="low")
    async with again.served():
        await again.run_turns(prompt(7))
    assert second.asked == ["high"]


async def test_a_choice_for_the_session_replaces_one_for_the_next_turn(tmp_path):
    talk = talk_of(tmp_path, listener := Listener("low", "high", "max"))
    async with talk.served():
        talk.conversation.act(SetEffort("max", is_once=True))
        talk.conversation.act(SetEffort("low"))
        await talk.run_turns(prompt(1))
    assert listener.asked == ["low"]
    assert talk.of(EffortChanged)[-1] == EffortChanged("low")


async def test_a_level_that_the_model_does_not_take_is_refused_and_the_old_one_stays(tmp_path):
    talk = talk_of(tmp_path, listener := Listener("low", "high"), effort="low")
    async with talk.served():
        talk.conversation.act(SetEffort("xhigh"))
        await talk.run_turns(prompt(1))
    assert listener.asked == ["low"]
    words = "listener does not take the effort 'xhigh', only low, high."
    assert talk.of(Notice) == [Notice("warning", words)]


async def test_a_model_without_levels_is_asked_without_one_and_the_user_learns_it_once(tmp_path):
    talk = talk_of(tmp_path, listener := Listener("low"), effort="low")
    async with talk.served():
        talk.conversation.act(SetModel("plain"))
        await talk.run_turns(prompt(1), prompt(2))
        talk.conversation.act(SetModel("listener"))
        await talk.run_turns(prompt(3))
    assert listener.asked == ["default", "default", "low"]
    words = "plain has no levels of effort, so 'low' does not apply. None is requested."
    assert talk.of(Notice) == [Notice("warning", words)]


async def test_a_command_file_sets_the_effort_of_its_turn(tmp_path):
    talk = talk_of(tmp_path, listener := Listener("low", "max"))
    commands = Path(tmp_path, "own", "commands")
    expand = talk.services.project.expand
    file = "---\ndescription: Think.\neffort: max\n---\nThink about $ARGUMENTS.\n"
    commands.mkdir(parents=True)  # noqa: ASYNC240
    (commands / "think.md").write_text(file)
    trust = talk.services.project.trust
    own = OwnFiles(str(commands.parent), trust)
    places = Places(trust, (own,))
    talk.services.project._slash_commands = SlashCommands(places, Skills(places, ""))
    assert expand(Prompt("p", "/think it over")).effort == "max"
    async with talk.served():
        await talk.run_turns(Prompt("p1", "/think it over"), prompt(2))
    assert listener.asked == ["max", "default"]
    (commands / "think.md").write_text(file.replace("max", "enormous"))
    [shown] = [each for each in talk.services.project.commands() if each.name == "think"]
    assert "enormous" in shown.description


def test_a_client_sees_the_effort_if_the_model_has_levels_and_can_set_it():
    options = ConfigOptions("m")
    assert "effort" not in [each.id for each in options.shown()]
    options.efforts = ("default", "low", "max")
    [shown] = [each for each in options.shown() if each.id == "effort"]
    assert shown.options
    assert [each.value for each in shown.options] == ["default", "low", "max"]
    assert (shown.category, shown.current_value) == ("thought_level", "default")
    assert options.action("effort", "max") == SetEffort("max")
    assert options.take(EffortChanged("max"))
    assert options.now("effort") == "max"
    with pytest.raises(RpcError):
        options.action("effort", "enormous")


def test_limits_without_capabilities_say_nothing_of_the_effort():
    assert ModelLimits().efforts is None


# --- fast tiers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, model, fields",
    [
        ("anthropic", "claude-opus-5-5", {"speed": "fast"}),
        ("openai", "gpt-6.1-sol", {"service_tier": "fast"}),
        ("openai", "gpt-5.6-luna", {"service_tier": "fast"}),
        ("openai-chat", "gpt-5.6-sol", {"service_tier": "fast"}),
    ],
)
def test_a_model_at_the_fast_tier_is_the_same_request_with_the_tier(name, model, fields):
    standard, fast = (sent(name, each, "high") for each in (model, f"{model}-fast"))
    assert fast == standard | fields
    assert fast["model"] == model


@pytest.mark.parametrize("name", ["anthropic:claude-opus-5-5", "openai:gpt-6.1-sol"])
def test_the_fast_tier_is_listed_with_its_price(name):
    known = KnownModels()
    standard, fast = known.of(name), known.of(f"{name}-fast")
    assert fast.price.input == 2 * standard.price.input
    assert fast.price.cost_usd(Usage(5, 6, 7, 8), 26) == pytest.approx(
        2 * standard.price.cost_usd(Usage(5, 6, 7, 8), 26)
    )
    assert fast.window_tokens == standard.window_tokens
    assert f"${fast.price.input:g}/${fast.price.output:g} per M" in fast.note
    provider, _, model = name.partition(":")
    assert f"{model}-fast" in known.names(provider)


def test_a_model_of_another_provider_whose_name_ends_so_keeps_it():
    assert sent("xai", "grok-5-fast", "default")["model"] == "grok-5-fast"
    assert sent("openai", "gpt-5-fast", "default")["model"] == "gpt-5-fast"
