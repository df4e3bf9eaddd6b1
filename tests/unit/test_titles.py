"""Titles of sessions, by rule."""

import pytest
from tests.conftest import little_work

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
