"""The rules of a remote session are shown and changed there."""

import pytest

from sanderling.config import state_dir
from sanderling.permissions.rules import rule_from_text
from sanderling.permissions.store import RuleStore
from sanderling.protocol.actions import ChangeRule
from sanderling.protocol.events import Notice
from sanderling.protocol.requests import ListRules
from tests.remote.served import Server

pytestmark = pytest.mark.anyio

SETTINGS = '[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "rm"\n'


@pytest.fixture
def store(elsewhere):
    """The rules that "always" has stored there."""
    directory = state_dir({"XDG_STATE_HOME": str(elsewhere.there / "state")})
    return RuleStore(str(directory), str(elsewhere.project))


async def listed(talk):
    page = await talk.agent.answer(ListRules("s1"))
    return [(each.rule, each.origin) for each in page.rules]


async def test_rules_of_there_are_listed_edited_and_deleted_there(elsewhere, store):
    elsewhere.configure(SETTINGS)
    for text in ("allow bash make", "allow bash pytest"):
        store.add(rule_from_text(text))
    async with elsewhere.talk() as talk:
        [denied, *allowed] = await listed(talk)
        assert denied[0] == "deny bash rm"
        assert denied[1].endswith("config.toml:1 on " + talk.agent.external.name)
        assert allowed == [("allow bash make", "always"), ("allow bash pytest", "always")]
        talk.act(ChangeRule("allow bash make", "allow bash make test"))
        talk.act(ChangeRule("allow bash pytest"))
        assert (await listed(talk))[1:] == [("allow bash make test", "always")]
        assert list(map(str, store.load().rules)) == ["allow bash make test"]
        talk.act(ChangeRule("allow bash make test", "permit"))
        await talk.wait_for(
            lambda: any("'permit' is not a rule" in each.text for each in talk.of(Notice))
        )
        assert list(map(str, store.load().rules)) == ["allow bash make test"]


async def test_rules_of_a_server_are_listed(elsewhere, store):
    store.add(rule_from_text("allow bash make"))
    server = Server(elsewhere).start()
    try:
        async with elsewhere.talk(address=server.address()) as talk:
            assert await listed(talk) == [("allow bash make", "always")]
    finally:
        server.stop()
