"""Models of all providers that can be asked, side by side: one that fails costs its own, and is told in a line."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import policy_of
from tests.loopback import STALL, Answer, LoopbackServer, Request, Status, Verbatim
from tests.wires.servers import OllamaServer, told

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.requests import ListModels
from sanderling.providers import listing
from sanderling.providers.choice import at_hand, make_provider
from sanderling.providers.listing import known_models, listed_models
from sanderling.providers.models.known import KnownModels
from sanderling.session.session import Session


class Tags(OllamaServer):
    """One that lists `names`, or answers otherwise."""

    def __init__(self, *names: str, answer: Answer | None = None) -> None:
        super().__init__()
        self.tags = answer or told({"models": [{"name": name} for name in names]})

    def told_besides(self, request: Request) -> Answer | None:
        return self.tags if request.path == "/api/tags" else super().told_besides(request)


@pytest.fixture(autouse=True)
def _nobody_is_at_hand(monkeypatch, tmp_path) -> None:
    """Whoever runs the tests may have keys, and local servers that answer."""
    for name in (*listing.presets(), "anthropic"):
        for variable in listing.load_endpoint(name, {}).variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(listing, "presets", dict)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def claude() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


def opened(tmp_path, **options: Any) -> Conversation:
    """A conversation that is open, as far as its views need."""
    chosen = Settings(str(tmp_path), **options)
    session = Session.open(tmp_path / "sessions", "s", str(tmp_path))
    provider = make_provider(chosen)
    return Conversation(
        SessionServices(session, provider, lambda _: None, policy_of(session), chosen)
    )


def settings(tmp_path, **providers: Any) -> Settings:
    tables = {name: {"wire": "ollama"} | table for name, table in providers.items()}
    return Settings(str(tmp_path), providers=tables)


async def test_each_provider_lists_its_own_and_one_that_fails_is_told_in_a_line(
    tmp_path, unused_port
):
    mute = Verbatim(STALL)
    refused = Status(500, body=b'{"error":"no models today"}')
    with (
        Tags("a:1b", "b:2b") as one,
        Tags("c") as two,
        Tags(answer=mute) as three,
        Tags(answer=refused) as four,
    ):
        own = settings(
            tmp_path,
            one={"base_url": one.url},
            two={"base_url": two.url},
            mute={"base_url": three.url},
            broken={"base_url": four.url},
            gone={"base_url": f"http://127.0.0.1:{unused_port}"},
        )
        found = await listed_models(own, deadline_s=2)
    assert found.models == ["one:a:1b", "one:b:2b", "two:c"]
    assert [problem.partition(":")[0] for problem in found.problems] == ["mute", "broken", "gone"]
    assert "no list within 2 s" in found.problems[0]
    assert "no models today" in found.problems[1]
    assert all("\n" not in problem for problem in found.problems)


async def test_a_local_server_that_nobody_has_set_up_need_not_run(tmp_path, monkeypatch):
    with Tags("mine") as local:
        port, url = local.port, local.url
        table = {"wire": "ollama", "base_url": url}
        monkeypatch.setattr(listing, "presets", lambda: {"here": table})
        monkeypatch.setattr("sanderling.providers.endpoint.presets", lambda: {"here": table})
        assert (await listed_models(settings(tmp_path))).models == ["here:mine"]
    assert port
    found = await listed_models(settings(tmp_path))
    assert (found.models, found.problems) == ([], [])


async def test_claudes_models_have_no_provider_before_their_name(tmp_path, claude, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    found = await listed_models(Settings(str(tmp_path), base_url=claude.url))
    assert found.models == ["claude-test"]
    elsewhere = Settings(str(tmp_path), base_url=claude.url, provider="openai")
    assert (await listed_models(elsewhere)).models == ["anthropic:claude-test"]


def test_known_are_the_models_of_those_who_can_be_asked(tmp_path, monkeypatch):
    models = KnownModels()
    assert known_models(Settings(str(tmp_path)), models) == []
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    known = known_models(Settings(str(tmp_path)), models)
    assert known[0] == "deepseek:deepseek-v4-pro"  # the one that is asked if none is named
    assert "deepseek:deepseek-flash" in known
    assert all(name.startswith("deepseek") for name in known)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert known_models(Settings(str(tmp_path)), models)[0].startswith("claude-")


def test_at_hand_is_who_has_a_key_or_is_the_persons_own_and_needs_none(tmp_path, monkeypatch):
    own = settings(tmp_path, local={"base_url": "http://127.0.0.1:1"})
    far = settings(tmp_path, far={"base_url": "http://far.example", "api_key": "$FAR_KEY"})
    assert [endpoint.name for endpoint in at_hand(own)] == ["local"]
    assert known_models(own, KnownModels()) == ["local:"]  # what is typed on is a model
    assert list(at_hand(far)) == []
    monkeypatch.setenv("FAR_KEY", "k")
    assert [endpoint.name for endpoint in at_hand(far)] == ["far"]


async def test_what_a_provider_lists_stands_in_the_place_of_what_is_known_of_it(
    tmp_path, claude, monkeypatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    conversation = opened(tmp_path, base_url=claude.url)
    known = await conversation.answer(ListModels("s", "known"))
    own = await conversation.answer(ListModels("s"))
    await conversation.services.provider.aclose()
    assert "claude-opus-5-5" in known.models
    assert own.models[0] == "claude-test"
    assert "claude-opus-5-5" not in own.models
    assert "deepseek:deepseek-flash" in own.models
    assert own.notes["deepseek:deepseek-flash"] == "window 1,000,000, $0.3/$1.2 per M"
    assert own.problems == ()


async def test_a_provider_that_does_not_answer_costs_its_own_list_only(
    tmp_path, unused_port, monkeypatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    conversation = opened(tmp_path, base_url=f"http://127.0.0.1:{unused_port}")
    own = await conversation.answer(ListModels("s"))
    await conversation.services.provider.aclose()
    assert {"claude-opus-5-5", "deepseek:deepseek-flash"} < set(own.models)
    (problem,) = own.problems
    assert "Cannot reach 127.0.0.1" in problem
