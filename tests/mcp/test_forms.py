"""Forms: a server's schema as fields, what a person has written as its values; and who may ask how often."""

from typing import Any

import anyio
import pytest

from sanderling.mcp.connection import Patience
from sanderling.mcp.elicitation import MAX_OPEN, Elicitation, ElicitationAnswer
from sanderling.mcp.forms import Form, FormError
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, FormChoice
from tests.conftest import DEADLINE_S, passes

PROPERTIES = {
    "name": {"type": "string", "title": "Name", "description": "As in your passport."},
    "email": {"type": "string", "format": "email"},
    "site": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date", "description": "Of birth"},
    "time": {"type": "string", "format": "date-time"},
    "short": {"type": "string", "minLength": 2, "maxLength": 4},
    "age": {"type": "integer", "minimum": 1, "maximum": 1000000, "default": 42},
    "share": {"type": "number", "minimum": 0},
    "agrees": {"type": "boolean"},
    "pet": {"type": "string", "enum": ["p1", "p2"], "enumNames": ["Cats", "Dogs"], "default": "p1"},
    "hero": {"type": "string", "oneOf": [{"const": "h1", "title": "Superman"}]},
    "fish": {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": {"anyOf": [{"const": "f1", "title": "Tuna"}, {"const": "f2", "title": "Trout"}]},
        "default": ["f1"],
    },
    "play": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["name"]}


def test_fields_have_what_the_schema_says_in_words():
    fields = {field.name: field for field in Form(SCHEMA).fields({})}
    assert fields["name"].is_required
    assert (fields["name"].label, fields["name"].help) == ("Name", "As in your passport.")
    assert fields["email"].help == "an email address"
    assert fields["day"].help == "Of birth (a date such as 2026-11-23)"
    assert fields["short"].help == "text, 2 to 4 characters"
    assert (fields["age"].help, fields["age"].value) == ("a whole number, 1 to 1,000,000", "42")
    assert fields["share"].help == "a number, at least 0"
    assert (fields["agrees"].kind, fields["agrees"].value) == ("boolean", "false")
    assert fields["pet"].choices == (FormChoice("p1", "Cats"), FormChoice("p2", "Dogs"))
    assert fields["hero"].choices == (FormChoice("h1", "Superman"),)
    assert (fields["fish"].kind, fields["fish"].value) == ("choices", "f1")
    assert fields["fish"].help == "1 to 2 of them"
    assert [choice.value for choice in fields["play"].choices] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("name", "  Ada ", "  Ada "),
        ("email", "a@b", "a@b"),
        ("site", "https://a.b/c", "https://a.b/c"),
        ("day", "2026-11-23", "2026-11-23"),
        ("time", "2026-11-23T14:30:00", "2026-11-23T14:30:00"),
        ("age", "7", 7),
        ("share", "0.5", 0.5),
        ("agrees", "true", True),
        ("pet", "p2", "p2"),
        ("fish", "f2\nf1", ["f2", "f1"]),
        ("play", "c", ["c"]),
    ],
)
def test_what_fits_is_a_value_of_the_schemas_type(name, text, value):
    values = Form(SCHEMA).values({"name": "x", name: text})
    assert values[name] == value
    assert type(values[name]) is type(value)


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("email", "nobody", "email must be an email address."),
        ("site", "nowhere", "site must be a URI."),
        ("day", "today", "day must be a date such as 2026-11-23."),
        ("short", "x", "short must be text, 2 to 4 characters."),
        ("age", "7.5", "age must be a whole number, 1 to 1,000,000."),
        ("age", "0", "age must be a whole number, 1 to 1,000,000."),
        ("share", "nan", "share must be a number, at least 0."),
        ("agrees", "maybe", "agrees must be yes or no."),
        ("pet", "Cats", "pet must be one of its choices."),
        ("fish", "f1\nf2\nf3", "fish must be 1 to 2 of them."),
        ("play", "a\na", "play must be some of its choices."),
        ("name", "", "Name is needed."),
    ],
)
def test_what_does_not_fit_is_told_by_the_fields_label(name, text, told):
    with pytest.raises(FormError) as raised:
        Form(SCHEMA).values({"name": "x", name: text})
    assert str(raised.value) == told


def test_a_field_that_is_empty_and_not_needed_has_no_value():
    assert Form(SCHEMA).values({"name": "x", "email": "", "age": ""}) == {"name": "x"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "object"}}},
        {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"a": "string"}},
        {"properties": {f"a{n}": {"type": "string"} for n in range(41)}},
        {"properties": {"a": {"type": "string", "enum": [str(n) for n in range(201)]}}},
    ],
)
def test_what_no_form_has_is_refused(schema):
    with pytest.raises(FormError):
        Form(schema)


def asking(*answers: AnswerApproval) -> tuple[Elicitation, list[ApprovalRequested]]:
    asked: list[ApprovalRequested] = []

    async def ask(question: ApprovalRequested) -> AnswerApproval:
        asked.append(question)
        return answers[len(asked) - 1]

    return Elicitation("/project", ask), asked


async def test_a_form_is_asked_again_until_it_fits_with_what_was_filled_in():
    elicitation, asked = asking(
        AnswerApproval("", "once", values={"name": "Ada", "age": "old"}),
        AnswerApproval("", "once", values={"name": "Ada", "age": "36"}),
    )
    answer = await elicitation.form("it", "Who are you?", SCHEMA)
    assert answer == ElicitationAnswer("accept", {"name": "Ada", "age": 36})
    assert asked[0].reason == "Who are you?"
    assert asked[1].reason == "age must be a whole number, 1 to 1,000,000."
    assert asked[0].id == asked[1].id
    assert {field.name: field.value for field in asked[1].fields}["age"] == "old"
    assert asked[0].subject.startswith("Name (needed), email, ")
    assert max(map(len, asked[0].subject.splitlines())) <= 74


@pytest.mark.parametrize("answer, action", [("deny", "decline"), ("cancel", "cancel")])
async def test_a_no_is_told_as_the_person_has_said_it(answer, action):
    elicitation, _ = asking(*[AnswerApproval("", answer)] * 2)
    assert await elicitation.form("it", "", SCHEMA) == ElicitationAnswer(action)
    assert await elicitation.link("it", "", "https://a.b/c") == ElicitationAnswer(action)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "javascript:alert(1)", "https://a b", "x", "https://a.b/\x1b[2J"),
        "https://[x",
    ],
)
async def test_a_page_that_no_browser_opens_is_not_shown(url):
    elicitation, asked = asking()
    with pytest.raises(FormError):
        await elicitation.link("it", "", url)
    assert asked == []


async def test_a_server_has_a_few_questions_open_and_no_more():
    shown = anyio.Event()

    async def ask(_: ApprovalRequested) -> AnswerApproval:
        await shown.wait()
        return AnswerApproval("", "deny")

    elicitation, answers = Elicitation("/project", ask), list[Any]()

    async def form() -> None:
        answers.append(await elicitation.form("it", "", SCHEMA))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(MAX_OPEN + 2):
                tasks.start_soon(form)
            await anyio.wait_all_tasks_blocked()
            assert answers == [ElicitationAnswer("cancel")] * 2
            shown.set()
    assert answers == [ElicitationAnswer("cancel")] * 2 + [ElicitationAnswer("decline")] * MAX_OPEN


async def test_a_request_has_all_its_time_again_when_the_person_has_answered():
    patience = Patience(60)
    with patience.limited():
        await passes(40)
        with patience.asking() as is_in_request:
            assert is_in_request
            await passes(100)
        await passes(40)
    with pytest.raises(TimeoutError), patience.limited():
        await passes(61)


async def test_what_a_server_asks_goes_with_the_last_request():
    patience, has_gone = Patience(60), list[bool]()

    async def ask() -> None:
        with anyio.CancelScope(), patience.asking():
            try:
                await anyio.sleep_forever()
            finally:
                has_gone.append(True)

    async with anyio.create_task_group() as tasks:
        with patience.limited():
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert not has_gone
    assert has_gone
    with patience.asking() as is_in_request:
        assert not is_in_request
