"""The rules of a session as the user sees, edits and deletes them."""

from datetime import date

import pytest
from tests.unit.test_gate import request_of
from tests.unit.test_tool_uses import Talk, bash

from sanderling.permissions.approvals import Permit, Question
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.protocol.actions import ChangeRule
from sanderling.protocol.events import Notice
from sanderling.protocol.requests import ListRules, RulesPage, ShownRule

MAKE = rule_from_text("allow bash make")


async def listed(talk: Talk) -> list[tuple[str, str]]:
    page = await talk.conversation.answer(ListRules("s1"))
    assert isinstance(page, RulesPage)
    return [(each.rule, each.origin) for each in page.rules]


def warnings(talk: Talk) -> list[str]:
    return [event.text for event in talk.of(Notice) if event.level == "warning"]


def stored(talk: Talk) -> tuple[Rule, ...]:
    return talk.services.gate._store.load().rules


async def test_the_page_lists_rules_of_the_settings_stored_ones_and_those_of_the_session(tmp_path):
    talk = Talk(tmp_path, bash("touch made"), rules=(rule_from_text("deny bash rm"),))
    talk.services.gate._store.add(MAKE)
    await talk.services.gate.permit(request_of(talk, "make"))
    await talk.run("session")
    page = await talk.conversation.answer(ListRules("s1"))
    assert isinstance(page, RulesPage)
    today = date.today().isoformat()  # noqa: DTZ011
    assert page.rules == (
        ShownRule("deny bash rm", "the command line"),
        ShownRule("allow bash make", "always", today, "always"),
        ShownRule("allow bash touch made $", "session", kind="session"),
    )


async def test_a_deleted_rule_of_the_session_asks_again_also_for_the_use_that_was_asked_about(
    tmp_path,
):
    talk = await Talk(tmp_path, bash("touch made")).run("session")
    gate, request = talk.services.gate, request_of(talk, "touch made")
    assert isinstance(gate.judge(request), Permit)
    talk.conversation.act(ChangeRule("allow bash touch made $"))
    assert isinstance(gate.judge(request), Question)
    assert await listed(talk) == []
    assert talk.session.state("grants")["rules"] == []  # a resumed session does not allow it either


@pytest.mark.parametrize("command", ["touch a && mkdir b", "touch $(echo a)"])
async def test_a_use_allowed_for_the_session_without_a_rule_is_listed_and_can_be_deleted(
    tmp_path, command
):
    talk = await Talk(tmp_path, bash(command)).run("session")
    text = f"allow bash {command}"
    assert await listed(talk) == [(text, "session, exactly this")]
    talk.conversation.act(ChangeRule(text, "allow bash touch"))
    assert "allows exactly one use" in warnings(talk)[-1]
    assert await listed(talk) == [(text, "session, exactly this")]
    talk.conversation.act(ChangeRule(text))
    assert await listed(talk) == []
    assert isinstance(talk.services.gate.judge(request_of(talk, command)), Question)


async def test_deleting_a_rule_forgets_a_line_of_which_it_covers_a_part(tmp_path):
    replies = bash("touch a && mkdir b"), bash("touch a")
    talk = await Talk(tmp_path, *replies).run("session", "session")
    whole = ("allow bash touch a && mkdir b", "session, exactly this")
    assert await listed(talk) == [("allow bash touch a $", "session"), whole]
    talk.conversation.act(ChangeRule("allow bash touch a $"))
    assert await listed(talk) == []
    assert isinstance(talk.services.gate.judge(request_of(talk, "touch a && mkdir b")), Question)


async def test_an_edited_rule_of_the_session_holds_as_edited(tmp_path):
    talk = await Talk(tmp_path, bash("touch made")).run("session")
    talk.conversation.act(ChangeRule("allow bash touch made $", "allow bash touch other"))
    gate = talk.services.gate
    assert isinstance(gate.judge(request_of(talk, "touch made")), Question)
    assert isinstance(gate.judge(request_of(talk, "touch other")), Permit)
    assert await listed(talk) == [("allow bash touch other", "session")]


async def test_what_was_allowed_in_another_mode_is_listed_with_it(tmp_path):
    talk = await Talk(tmp_path, bash("touch made")).run("session")
    talk.conversation.controls.set_mode("plan")
    origin = "session (in mode ask, sandbox on)"
    assert await listed(talk) == [("allow bash touch made $", origin)]


async def test_a_stored_rule_is_edited_and_deleted_and_becomes_no_second_one(tmp_path):
    talk = Talk(tmp_path)
    store = talk.services.gate._store
    store.add(MAKE)
    store.add(rule_from_text("allow bash pytest"))
    talk.conversation.act(ChangeRule("allow bash pytest", "  allow bash make "))
    assert stored(talk) == (MAKE,)
    talk.conversation.act(ChangeRule("allow bash make"))
    assert stored(talk) == ()
    assert warnings(talk) == []
    await talk.aclose()


@pytest.mark.parametrize(
    "rule, new, words",
    [
        ("allow bash make", "permit bash make", "'permit bash make' is not a rule"),
        ("allow bash make", "allow bash 'make", "is not a rule"),
        ("allow bash make", "allow shell make", "there is no tool 'shell'"),
        ("allow bash make", "allow mcp__git__log", "is for another server"),
        ("allow bash made", "", "there is no rule 'allow bash made' any more"),
        ("deny bash rm", "", "is from the settings: change it there"),
        ("deny bash rm", "allow bash rm", "is from the settings: change it there"),
        ("allow bash x\ny", "", "there is no rule 'allow bash x<U+000A>y' any more"),
    ],
)
async def test_what_cannot_be_changed_is_refused_in_words_and_nothing_changes(
    tmp_path, rule, new, words
):
    talk = Talk(tmp_path, rules=(rule_from_text("deny bash rm"),))
    talk.services.gate._store.add(MAKE)
    before = await listed(talk)
    talk.conversation.act(ChangeRule(rule, new))
    assert words in warnings(talk)[-1]
    assert warnings(talk)[-1].startswith("Nothing changed: ")
    assert await listed(talk) == before
    await talk.aclose()


async def test_an_edited_rule_of_a_server_stays_bound_to_it(tmp_path):
    talk = Talk(tmp_path)
    of_server = Rule(action="allow", tool="mcp__git__log", server="mark")
    talk.services.gate._store.add(of_server)
    talk.conversation.act(ChangeRule(str(of_server), "allow mcp__git__*"))
    assert stored(talk) == (Rule(action="allow", tool="mcp__git__*", server="mark"),)
    for wider in ("allow mcp__gitlab__*", "allow mcp__*", "allow mcp__git*__log"):
        talk.conversation.act(ChangeRule("allow mcp__git__*", wider))
        assert "is for another server" in warnings(talk)[-1]
    assert stored(talk) == (Rule(action="allow", tool="mcp__git__*", server="mark"),)
    await talk.aclose()


async def test_a_broken_rules_file_is_named_on_the_page_and_not_written(tmp_path):
    talk = Talk(tmp_path)
    store = talk.services.gate._store
    store.add(MAKE)
    store.path.write_text("{")
    page = await talk.conversation.answer(ListRules("s1"))
    assert isinstance(page, RulesPage)
    assert str(store.path) in page.problem
    assert [each.rule for each in page.rules] == ["ask *"]
    talk.conversation.act(ChangeRule("ask *"))
    assert "Repair or remove it first" in warnings(talk)[-1]
    assert store.path.read_text() == "{"
    await talk.aclose()
