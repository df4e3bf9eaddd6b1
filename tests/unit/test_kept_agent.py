"""The agent of a session is in the log as ever, and read back as far as it can be."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.session.kept_agent import KeptAgent, KeptPosition, keep_agent, kept_agent
from sanderling.session.session import Session


@pytest.fixture
def session(tmp_path):
    session = Session.open(tmp_path, "s1", "/p")
    session.append_prompt(Message("user", (TextBlock("Hi"),)), Prompt("p1", "Hi"))
    yield session
    session.close()


def last_value(path: Path) -> str:
    """The value of the last record, as the bytes are."""
    return path.read_text().splitlines()[-1].partition('"value":')[2].partition(',"at"')[0]


@pytest.mark.parametrize(
    "kept, line",
    [
        (KeptAgent("claude", "g1", "s1"), '{"name":"claude","session":"g1","of":"s1"}'),
        (
            KeptAgent("ssh://there", "g1", "s1", "", UNSET, KeptPosition("")),
            '{"name":"ssh://there","session":"g1","of":"s1","turn":"","seen":{"life":""}}',
        ),
        (
            KeptAgent("ssh://there", "g1", "s1", "p1", True, KeptPosition("l1", 7)),
            '{"name":"ssh://there","session":"g1","of":"s1","turn":"p1","whole":true,"seen":{"life":"l1","seq":7}}',
        ),
        (
            KeptAgent("a", "g1", "s1", "p1", UNSET, KeptPosition("l1", 7, True, "p1")),
            '{"name":"a","session":"g1","of":"s1","turn":"p1","seen":{"life":"l1","seq":7,"is_continued":true,"running":"p1"}}',
        ),
    ],
)
def test_the_log_has_of_it_what_is_set(session, kept, line):
    keep_agent(session, kept)
    assert last_value(session.log.path) == line
    assert kept_agent(session) == kept


@pytest.mark.parametrize(
    "value, kept",
    [
        (None, KeptAgent()),
        ("claude", KeptAgent()),
        ({"name": 1}, KeptAgent()),
        ({"name": "claude", "session": "g1"}, KeptAgent("claude")),
        ({"name": "claude", "session": "g0", "of": "s0", "turn": "p0"}, KeptAgent("claude")),
        ({"of": "s1", "new": 1, "seen": {}}, KeptAgent(of="s1", seen=KeptPosition())),
    ],
)
def test_an_old_or_a_damaged_one_is_read_as_far_as_it_holds(session, value: Any, kept):
    session.keep_state("agent", json.loads(json.dumps(value)))
    assert kept_agent(session) == kept
