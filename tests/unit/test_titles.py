"""Titles of sessions, by rule, and by a small model."""

import anyio
import pytest
from tests.conftest import happens, little_work
from tests.talk import scripted
from tests.unit.test_tool_uses import Talk

from sanderling.conversation.titling import Titler
from sanderling.errors import ConfigError
from sanderling.protocol.actions import SetTitle
from sanderling.protocol.events import ErrorOccurred, TitleChanged
from sanderling.protocol.messages import Prompt
from sanderling.session.session import Session
from sanderling.session.titles import first_title, title_of, title_of_answer


@pytest.mark.parametrize(
    "text, title",
    [
        ("Why is this slow?", "Why is this slow?"),
        ("Fix the parser. It fails on empty input.", "Fix the parser."),
        ("Hi, can you fix the parser?", "can you fix the parser?"),
        ("Hello there!\nAdd tests for v1.2 of the API.", "Add tests for v1.2 of the API."),
        ("Thank you. Now add tests", "Now add tests"),
        ("@src/app.py:10-20 explain this", "app.py explain this"),
        ("compare @a.py#L1-20 and @lib/b.py", "compare a.py and b.py"),
        ("/home/me/p/x.py is broken", "x.py is broken"),
        ("fix src/app.py:12, and/or its tests", "fix app.py, and/or its tests"),
        ("see https://example.com/a/b.html", "see https://example.com/a/b.html"),
        ("```\nTraceback\n```\nwhat is this?", "what is this?"),
        ("/review src", "/review src"),
        ("修复解析器。然后测试", "修复解析器。"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_a_title_is_the_first_sentence_that_says_something(text, title):
    assert title_of(text) == title


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "03:10", "1234", "?", "hi", "Hello!", "hey there", "Good morning.", "ok"),
        *("thanks!", "@src/app.py", "@a.py @b.py", "hi @src/app.py", "src/app.py:12", "/a/b/c"),
        *("```\nprint(1)\n```", "- [ ]"),
    ],
)
def test_mentions_greetings_and_fragments_are_no_title(text):
    assert not title_of(text)


@pytest.mark.parametrize(
    "text, title",
    [
        ("Hello! How can I help you today?", ""),
        ("Let me look at the file. The parser fails.", "The parser fails."),
        ("Sure! This module draws tables.", "This module draws tables."),
        ("## **Cause**\n\nIt divides by zero.", "Cause"),
    ],
)
def test_an_answer_gives_a_title_unless_it_only_announces_something(text, title):
    assert title_of_answer(text) == title


def test_a_session_is_called_by_the_first_of_its_prompts_that_gives_a_title():
    assert first_title(["hi", "@a.py", "fix it all", "more words"]) == "fix it all"
    assert not first_title(["hi", "@a.py", "ok", "fix it all"])


def test_a_long_text_of_blanks_slashes_and_mentions_takes_no_time():
    for piece in ("/a", "@ ", "a/", "hi ", "`" * 3, "```\n", ". ", "~", "(", "é"):
        with little_work():
            title_of(piece * 50_000)


# --- by a small model -----------------------------------------------------------------------------------------------------


class TitledTalk(Talk):
    """A session whose small model gives these answers, or cannot be made."""

    def __init__(self, base, *small):
        super().__init__(base, [{"text": "It sleeps for nine seconds."}])
        self.made = 0

        def make():
            self.made += 1
            if not small:
                raise ConfigError("no such model")
            return scripted(*small, model="small")

        services = self.services
        services.titler = Titler(self.session, services.calls, self.emit, make)

    @property
    def titles(self):
        return [event.title for event in self.of(TitleChanged)]

    @property
    def is_counted(self):
        return "small" in self.session.ledger.by_model


ERROR = {"kind": "overloaded", "message": "busy"}
WHY, THEN = Prompt("p1", "Why is this slow?"), Prompt("p2", "And now?")


@pytest.mark.parametrize("answer", ["Slow sleep\n", '"Slow sleep"', "**Slow sleep**\nThat is it."])
async def test_a_small_model_titles_the_session_after_its_first_turn_only(tmp_path, answer):
    talk = TitledTalk(tmp_path, [{"text": answer}])
    async with talk.served():
        await talk.run_turns(WHY)
        await happens(lambda: len(talk.titles) > 1)
        await talk.run_turns(THEN)
    assert talk.titles == ["Why is this slow?", "Slow sleep"]
    assert talk.made == 1
    assert Session.open(talk.session.path.parent, "s1", "/").title == "Slow sleep"


async def test_its_usage_counts_as_the_sessions(tmp_path):
    talk = TitledTalk(tmp_path, [{"text": "Slow sleep"}])
    async with talk.served():
        await talk.run_turns(WHY)
        await happens(lambda: talk.is_counted)


async def test_a_title_that_the_user_sets_meanwhile_stays(tmp_path):
    talk = TitledTalk(tmp_path, [{"text": "Slow sleep", "delay_ms": 300}])
    async with talk.served():
        await talk.run_turns(WHY)
        talk.conversation.act(SetTitle("Mine"))
        await happens(lambda: talk.is_counted)
        await anyio.wait_all_tasks_blocked()
    assert talk.session.title == "Mine"


@pytest.mark.parametrize("small", [(), ([{"text": "  \n"}],), ([{"error": ERROR}],)])
async def test_without_a_title_from_it_the_rules_title_stays(tmp_path, small):
    talk = TitledTalk(tmp_path, *small)
    async with talk.served():
        await talk.run_turns(WHY)
        await happens(lambda: talk.made == 1)
        await talk.run_turns(THEN)
    assert talk.session.title == "Why is this slow?"
    assert talk.of(ErrorOccurred) == []
