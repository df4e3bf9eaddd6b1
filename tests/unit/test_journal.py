"""The journal of what the agent has changed: what it keeps, and what it says of it after anything that can happen."""

import os
from pathlib import Path

import pytest

from sanderling.changes.journal import Journal
from sanderling.changes.records import Changing
from sanderling.changes.states import ABSENT, FileChange, State
from sanderling.changes.store import MAX_FILE_BYTES

pytestmark = pytest.mark.anyio


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []

    def journal(self, session_id: str = "s") -> Journal:
        return Journal(self.root / "changes", session_id, "/project", self.problems.append)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_an_edit_is_known_with_what_stood_there_before(place):
    journal = place.journal()
    journal.begin_turn("p1")
    async with journal.editing("/project/a", b"old", 0o100640, b"new", "t1"):
        pass
    for each in (journal, place.journal()):
        latest = await each.latest()
        assert latest
        assert latest.turn == "p1"
        (change,) = latest.changes
        assert (change.path, change.tool_use_id) == ("/project/a", "t1")
        assert (change.before.mode, change.before.size) == (0o640, 3)
        assert await each.content(change.before) == b"old"
        assert await each.content(change.after) == b"new"


async def test_an_edit_that_was_not_made_is_none(place):
    journal = place.journal()
    with pytest.raises(OSError, match="full"):
        async with journal.editing("/project/a", None, 0o644, b"new", "t1"):
            raise OSError("full")
    assert await journal.turns() == ()


async def test_an_edit_whose_end_nobody_saw_counts_as_made(place):
    journal = place.journal()
    await journal.append(Changing(FileChange("/a", ABSENT, State("file", 0o644), "t1")))
    assert [turn.changes[0].path for turn in await place.journal().turns()] == ["/a"]


async def test_a_turn_has_one_change_for_each_path(place):
    journal = place.journal()
    states = [await journal.keep("/a", text, 0o644) for text in (b"1", b"2", b"3")]
    journal.begin_turn("p1")
    await journal.note(FileChange("/a", states[0], states[1], "t1"))
    await journal.note(FileChange("/b", ABSENT, states[1], "t2"))
    await journal.note(FileChange("/a", states[1], states[2], "t3"))
    await journal.note(FileChange("/b", states[1], ABSENT, "t4"))
    journal.begin_turn("p2")
    await journal.note(FileChange("/a", states[2], states[0], "t5"))
    first, second = await journal.turns()
    assert first.changes == (FileChange("/a", states[0], states[2], "t3"),)
    assert second.changes == (FileChange("/a", states[2], states[0], "t5"),)


async def test_names_that_are_no_text_come_back(place):
    path = "/project/" + os.fsdecode(b"new\nline \xff\xfe")
    await place.journal().note(FileChange(path, ABSENT, State("link", target=path), "t1"))
    latest = await place.journal().latest()
    assert latest
    assert (latest.changes[0].path, latest.changes[0].after.target) == (path, path)


async def test_a_torn_last_line_is_cut_off(place):
    await place.journal().note(FileChange("/a", ABSENT, State("file"), "t1"))
    file = next(place.root.rglob("journal.jsonl"))
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        await place.journal().note(FileChange("/b", ABSENT, State("file"), "t1"))
        paths = [change.path for turn in await place.journal().turns() for change in turn.changes]
        assert paths == ["/b"]


async def test_what_is_too_large_is_recorded_as_lost(place):
    state = await place.journal().keep("/a", bytes(MAX_FILE_BYTES + 1), 0o644)
    assert (state.lost, state.content) == ("too large", "")


async def test_a_journal_that_cannot_be_written_is_told_once_and_stops_nothing(place):
    (place.root / "changes").write_text("a file, where the directory should be")
    journal = place.journal()
    for _ in range(2):
        async with journal.editing("/project/a", b"old", 0o644, b"new", "t1"):
            pass
    assert len(place.problems) == 1
    latest = await journal.latest()
    assert latest
    assert latest.changes[0].before.lost
