"""Why a request missed the API's cache: what `:Agent usage` says of it, from what changed and from the API's diagnosis."""

import json
from datetime import timedelta

import msgspec
import pytest
from tests.cached_api import TTL_S, CachedApi, text
from tests.conftest import policy_of
from tests.loopback import LoopbackServer, Reply, done, message_start
from tests.loopback import text as text_events

from sanderling.config import Settings
from sanderling.conversation.cache_misses import CacheWatch
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.reports import answer
from sanderling.conversation.services import SessionServices
from sanderling.protocol.messages import Message, Prompt, TextBlock, Usage
from sanderling.protocol.requests import ShowUsage
from sanderling.providers import CacheMissed, ModelRequest, ToolSpec
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.choice import make_provider
from sanderling.session.ledger import Last
from sanderling.session.records import now
from sanderling.session.session import Session


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_PROXY", "*")


# --- two requests, compared ----------------------------------------------------------------------------------------------

WRITTEN, READ, LOST = Usage(2, 5, 9_000, 0), Usage(2, 5, 300, 9_000), Usage(2, 5, 9_300, 0)
TOOLS = (ToolSpec("read", "Reads.", {}),)


def request(**changed) -> ModelRequest:
    return ModelRequest(**{"system": "Help.", "history": [], "tools": TOOLS} | changed)


class Watched:
    """Two requests; the history of the first has one message."""

    def __init__(self, last: Last | None = None) -> None:
        self.watch = CacheWatch(last)
        self.messages = [Message("user", (TextBlock("Hello."),))]

    def first(self, **changed) -> None:
        self.watch.sends(request(**changed), "m", self.messages)
        assert self.watch.miss(WRITTEN) is None

    def second(self, usage=LOST, told="", model="m", **changed):
        self.messages.append(Message("assistant", (TextBlock("Hi."),)))
        self.watch.sends(request(**changed), model, self.messages)
        return self.watch.miss(usage, told)


def test_a_request_that_was_read_from_the_cache_missed_nothing():
    watched = Watched()
    watched.first()
    assert watched.second(READ, tools=()) is None


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"model": "n"}, "the model was m"),
        ({"tools": (*TOOLS, ToolSpec("late", "", {}))}, "tools were added: late"),
        ({"tools": ()}, "the tools changed"),
        ({"system": "Do."}, "the system prompt changed"),
        ({"effort": "high"}, "the effort was default"),
        ({}, "nothing that Sanderling sends changed"),
        ({"told": "tools_changed"}, "the API says: the tools changed"),
        ({"told": "brand_new"}, "the API says: brand_new"),
        (
            {"effort": "low", "told": "unavailable"},
            "the effort was default; the API says: no diagnosis, or thinking or effort changed",
        ),
    ],
)
def test_a_miss_says_what_changed_and_what_the_api_says(changed, why):
    watched = Watched()
    watched.first()
    assert watched.second(**changed) == (9_002, why)


def test_a_conversation_that_was_shortened_is_the_reason_once():
    watched = Watched()
    watched.first()
    watched.messages = [*watched.messages]
    assert watched.second().why == "the conversation was taken back"
    watched.messages = [*watched.messages]
    watched.watch.explain("old tool results were cleared")
    assert watched.second().why == "old tool results were cleared"
    assert watched.second().why == "nothing that Sanderling sends changed"


def test_a_pause_is_the_reason_also_in_a_session_that_is_resumed():
    ended = now() - timedelta(minutes=20)
    assert Watched(Last("m", WRITTEN, ended)).second().why == "the request before was 20 min ago"
    assert Watched(Last("m", WRITTEN, now())).second().why == "the session was reopened"


def test_a_resumed_session_misses_what_its_last_process_had_cached():
    assert Watched(Last("m", READ, now())).second(Usage(9_000, 5)).tokens == 9_000


def test_an_api_that_reports_no_cache_misses_nothing():
    watched = Watched()
    watched.watch.sends(request(), "m", watched.messages)
    assert watched.watch.miss(Usage(9_000, 5)) is None
    assert watched.second(Usage(9_300, 5), system="Do.") is None


def test_a_failed_request_is_not_compared():
    watched = Watched()
    watched.first()
    watched.watch.explain("the conversation was summarized")
    assert watched.second(Usage()) is None
    assert watched.second().why == "the conversation was summarized"


# --- a session -----------------------------------------------------------------------------------------------------------


class Talk:
    def __init__(self, tmp_path, **more) -> None:
        self.settings = Settings(state_dir=str(tmp_path / "state"), **more)
        self.session = Session.open(self.settings.session_dir, "s1", str(tmp_path))
        self.provider = make_provider(self.settings)
        self.services = SessionServices(
            self.session, self.provider, lambda _: None, policy_of(self.session), self.settings
        )
        self.conversation = Conversation(self.services)

    async def say(self, *prompts: str) -> str:
        for number, words in enumerate(prompts, len(self.session.prompts)):
            await self.conversation.run_turn(Prompt(f"p{number}", words))
        return (await answer(self.services, ShowUsage("s1"))).text

    async def end(self) -> None:
        await self.provider.aclose()
        self.session.close()


async def test_usage_shows_the_misses_also_after_a_restart(tmp_path):
    with CachedApi(lambda _body: [text("Done.")]) as api:
        talk = Talk(tmp_path, **api.options)
        assert "did not have it" not in await talk.say("One.", "Two.")
        talk.conversation.controls.set_model("claude-opus-5-5")
        api.cache.now += TTL_S  # so that its cache, which does not tell models apart, is empty
        shown = await talk.say("Three.")
        assert "Sent again because the API's cache did not have it:" in shown
        assert "| the model was claude-sonnet-5-5 |    3 | " in shown
        await talk.end()
        again = Talk(tmp_path, **api.options)
        assert "the model was claude-sonnet-5-5" in await again.say()
        await again.end()


class DiagnosingApi(LoopbackServer):
    """Says what an API with diagnosis would: that the tools of each second request have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.diagnostics: list[object] = []

    def answer_to(self, request):
        if request.path != "/v1/messages":
            return super().answer_to(request)
        self.diagnostics.append(request.json().get("diagnostics"))
        number = len(self.diagnostics)
        start = json.loads(message_start(cache_creation_input_tokens=9_000).split(b"data: ")[1])
        reason = {"type": "tools_changed", "cache_missed_input_tokens": 8_000}
        start["message"] |= {"id": f"msg_{number}", "diagnostics": {"cache_miss_reason": reason}}
        event = b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n"
        return Reply(event + text_events("Done.") + done())


@pytest.mark.parametrize("is_asked", [True, False])
async def test_the_api_is_asked_with_the_id_of_its_last_answer_where_it_knows_the_field(
    tmp_path, is_asked
):
    with DiagnosingApi() as api:
        own = {"wire": "anthropic", "base_url": api.url, "api_key": "$K"}
        own |= {"quirks": {"cache": "anthropic", "cache_diagnosis": is_asked}}
        talk = Talk(tmp_path, model="mine:m", providers={"mine": own})
        shown = await talk.say("One.", "Two.")
        await talk.end()
    asked = [{"previous_message_id": None}, {"previous_message_id": "msg_1"}]
    assert api.diagnostics == (asked if is_asked else [None, None])
    assert ("the API says: the tools changed" in shown) is True


def test_a_diagnosis_is_not_part_of_what_the_cache_compares():
    bodies = [
        msgspec.json.decode(
            RequestEncoder().encode(
                request(), model="m", max_tokens=1, thinking=True, diagnosed=diagnosed
            )
        )
        for diagnosed in (None, "", "msg_1")
    ]
    told = [body.pop("diagnostics", None) for body in bodies]
    assert told == [None, {"previous_message_id": None}, {"previous_message_id": "msg_1"}]
    assert bodies[0] == bodies[1] == bodies[2]


def test_an_unknown_reason_of_the_api_is_shown_short_and_clean():
    from sanderling.providers.anthropic.reply import ReplyDecoder

    message = {"diagnostics": {"cache_miss_reason": {"type": "x\x1b[31m" + "y" * 900}}}
    event = json.dumps({"type": "message_start", "message": message})
    (missed,) = [each for each in ReplyDecoder().feed(event) if isinstance(each, CacheMissed)]
    assert len(missed.reason) <= 61
    assert "\x1b" not in missed.reason
