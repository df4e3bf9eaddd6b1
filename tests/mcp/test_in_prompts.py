"""What servers offer a person: prompts behind a slash, resources after an @, and questions in the middle of a call."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanderling.errors import ConfigError
from sanderling.mcp.offers import RemoteArgument, RemotePrompt, remote_resources
from sanderling.protocol.actions import CancelTurn, SteerTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    ErrorOccurred,
    PromptsReturned,
    SlashCommandsChanged,
    TurnEnded,
)
from sanderling.protocol.messages import Prompt
from tests.conftest import ROOT, passes, prove
from tests.mcp.talk import says, talking, uses
from tests.mcp.test_real import of_node

ALLOWED = ({"action": "allow", "tool": "mcp__it__*"},)
ENVIRONMENT = Path(sys.prefix)
NOTES_SERVER = {
    "command": [sys.executable, "-m", "tests.mcp.notes_server", "stdio"],
    "paths": [str(ROOT), str(ENVIRONMENT)],
    "env": {"PYTHONPATH": str(ROOT)},
}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


@pytest.fixture
def notes(tmp_path):
    def opened(*script, **settings):
        servers = {"it": NOTES_SERVER} | settings.pop("mcp_servers", {})
        return talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED, **settings)

    return opened


async def test_prompts_are_slash_commands_that_take_arguments(notes):
    async with notes() as talk:
        await talk.until(talk.services.servers.commands)
        (greet,) = [c for c in talk.of(SlashCommandsChanged)[-1].commands if c.source == "mcp"]
        assert (greet.name, greet.arguments) == ("it:greet", "<name> [tone]")
        assert greet.description == "Have somebody greeted."
        await talk.say("/it:greet 'Ada Lovelace' tone=warm")
        assert "Greet Ada Lovelace in a warm tone." in talk.told()
        await talk.say("/it:greet")
        assert talk.of(ErrorOccurred)[-1].message == "/it:greet needs name"
        await talk.say("/it:gret Ada")
        assert "did you mean" in talk.of(ErrorOccurred)[-1].message or "no command" in (
            talk.of(ErrorOccurred)[-1].message
        )


@prove
async def test_resources_stand_below_the_prompt_that_mentions_them(notes):
    async with notes() as talk:
        await talk.state("it", "ready")
        await talk.say(
            "What is to be bought (@it:note://today)? Not @nobody:x, nor me@it:note://today."
        )
        told = talk.told()
        assert "@it:note://today, from the MCP server it:\n```\nBuy bread.\n```" in told
        assert told.count("Buy bread.") == 1
        await talk.say("And @it:note://day/99, please.")
        assert "[… cut: 65,536 of 100,0" in talk.told()
        await talk.say("And @it:note://nowhere.")
        error = talk.of(ErrorOccurred)[-1].message
        assert error.startswith("@it:note://nowhere cannot be read: ")


async def test_a_server_without_templates_has_its_resources():
    class Client:
        async def list_resources(self, **_):
            uris = ("note://a", "note://b c", "note://\n", "note://" + "x" * 5000)
            return SimpleNamespace(
                resources=[SimpleNamespace(uri=u) for u in uris], next_cursor=None
            )

        async def list_resource_templates(self):
            raise RuntimeError("Method not found")

    assert await remote_resources(Client()) == ("note://a",)


@prove
async def test_what_a_server_puts_in_steers_with_the_words(notes):
    async with notes(uses("bash", command="sleep 0.3"), says("Done.")) as talk:
        await talk.state("it", "ready")
        talk.services.gate.set_mode("auto")
        talk.submit("go")
        talk.agent.act(SteerTurn(Prompt("s1", "Look at @it:note://today.")))
        await talk.until(lambda: talk.of(TurnEnded))
        await talk.until(lambda: "Buy bread." in talk.told())


@prove
async def test_a_prompt_that_waits_for_a_server_can_be_stopped(notes):
    async with notes() as talk:
        await talk.state("it", "ready")
        server = talk.services.servers.source.servers["it"]
        server.connection.client.session.read_resource = hang
        talk.submit("See @it:note://today")
        await talk.until(lambda: server.connection._patience._requests)
        talk.agent.act(CancelTurn())
        (returned,) = await talk.until(lambda: talk.of(PromptsReturned))
        assert returned.prompts[0].text == "See @it:note://today"
        assert talk.of(TurnEnded)[-1] == TurnEnded("cancelled")


async def hang(*_, **__):
    import anyio

    await anyio.sleep_forever()


PROMPT = RemotePrompt("p", "s:p", "", (RemoteArgument("a", True), RemoteArgument("b", False)))


@pytest.mark.parametrize(
    "typed, values",
    [
        ("x", {"a": "x"}),
        ("x y", {"a": "x", "b": "y"}),
        ("b=y x", {"b": "y", "a": "x"}),
        ("'x y' b='1 2'", {"a": "x y", "b": "1 2"}),
        ("c=1", {"a": "c=1"}),
    ],
)
def test_arguments_are_taken_in_their_order_or_by_name(typed, values):
    assert PROMPT.values(typed) == values


@pytest.mark.parametrize(
    "typed, problem",
    [
        ("", "/s:p needs a"),
        ("b=1", "/s:p needs a"),
        ("1 2 3", "/s:p takes 2 arguments, not 3; quote what belongs together"),
        ("'", "the arguments of /s:p cannot be split into words"),
    ],
)
def test_arguments_that_do_not_fit_are_told(typed, problem):
    with pytest.raises(ConfigError, match=problem):
        PROMPT.values(typed)


def test_a_single_argument_is_all_that_was_typed():
    alone = RemotePrompt("p", "s:p", "", (RemoteArgument("a", True),))
    assert alone.values('it\'s all "mine"') == {"a": 'it\'s all "mine"'}
    assert alone.values("a=b c") == {"a": "b c"}


@prove
async def test_a_form_of_the_newer_era_is_filled_in(notes):
    async with notes(uses("mcp__it__introduce"), says("Done.")) as talk:
        assert (await talk.state("it", "ready")).era == "2026-07-28"
        talk.submit("go")
        question = await talk.question("form")
        assert (question.tool, question.reason) == ("it", "Who are you?")
        assert [field.name for field in question.fields] == ["name", "age", "agrees"]
        talk.answer(question, "once", values={"name": "Ada", "age": "0", "agrees": "true"})
        question = await talk.question("form", 2)
        assert question.reason == "Age must be a whole number, 1 to 100."
        talk.answer(question, "once", values={"name": "Ada", "age": "36", "agrees": "true"})
        await talk.until(lambda: talk.of(TurnEnded))
        assert talk.results()[0].startswith("Ada is 36, agrees")


@prove
@pytest.mark.parametrize("answer", ["deny", "cancel"])
async def test_a_form_that_is_not_filled_in_ends_the_call(notes, answer):
    async with notes(uses("mcp__it__introduce"), says("Done.")) as talk:
        await talk.state("it", "ready")
        talk.submit("go")
        talk.answer(await talk.question("form"), answer)
        await talk.until(lambda: talk.of(TurnEnded))
        assert "Ada" not in talk.results()[0]


@prove
async def test_a_form_goes_with_the_turn_that_is_stopped(notes):
    async with notes(uses("mcp__it__introduce"), says("Done.")) as talk:
        await talk.state("it", "ready")
        talk.submit("go")
        question = await talk.question("form")
        talk.agent.act(CancelTurn())
        await talk.until(lambda: ApprovalSettled(question.id) in talk.of(ApprovalSettled))
        await talk.until(lambda: talk.of(TurnEnded))


@prove
async def test_forms_and_pages_of_the_older_era(tmp_path):
    servers = {"it": of_node("everything")}
    script = (
        uses("mcp__it__trigger-elicitation-request"),
        uses(
            "mcp__it__trigger-url-elicitation", url="https://example.org/pay", message="Pay there."
        ),
        says("Done."),
    )
    async with talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED) as talk:
        assert (await talk.state("it", "ready")).era == "2025-11-25"
        talk.submit("go")
        question = await talk.question("form")
        kinds = {field.name: field.kind for field in question.fields}
        assert len(kinds) == 13
        assert kinds["titledMultipleSelectEnum"] == "choices"
        filled = {field.name: field.value for field in question.fields} | {"name": "Ada"}
        talk.answer(question, "once", values=filled)
        link = await talk.question("link")
        assert (link.subject, link.reason) == ("https://example.org/pay", "Pay there.")
        talk.answer(link, "once")
        await talk.until(lambda: talk.of(TurnEnded))
        assert '"name": "Ada"' in talk.results()[0]
        assert '"integer": 42' in talk.results()[0]
        assert '"titledMultipleSelectEnum": [\n' in talk.results()[0]
        assert "accept" in talk.results()[1]


@prove
async def test_the_time_of_a_call_stands_still_while_the_person_is_asked(notes):
    quick = NOTES_SERVER | {"timeout_s": 15}
    async with notes(uses("mcp__it__introduce"), says("Done."), mcp_servers={"it": quick}) as talk:
        await talk.state("it", "ready")
        talk.submit("go")
        question = await talk.question("form")
        await passes(16)
        talk.answer(question, "once", values={"name": "Ada", "age": "36"})
        await talk.until(lambda: talk.of(TurnEnded))
        assert talk.results()[0].startswith("Ada is 36, does not agree")
        assert len(talk.of(ApprovalRequested)) == 1
