"""The journal of what the agent has changed: what it keeps, and what it says of it after anything that can happen."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import ROOT, prove_rest

from sanderling.changes.forking import Origin
from sanderling.changes.journal import Journal
from sanderling.changes.records import Changing, Restored, Restoring, encoded, read_journal
from sanderling.changes.states import ABSENT, FileChange, State
from sanderling.changes.store import MAX_FILE_BYTES, Store, packed

pytestmark = [pytest.mark.anyio, pytest.mark.guard]


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []

    def journal(self, session_id: str = "s") -> Journal:
        return Journal(self.root / "changes", session_id, "/project", self.problems.append)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def journal(place: Place) -> Journal:
    return place.journal()


async def test_an_edit_is_known_with_what_stood_there_before(place, journal):
    journal.begin_turn("p1")
    async with journal.editing("/project/a", b"old", 0o100640, b"new", "t1"):
        pass
    for each in (journal, place.journal()):
        latest = await each.latest()
        assert latest.turn == "p1"
        (change,) = latest.changes
        assert (change.path, change.tool_use_id) == ("/project/a", "t1")
        assert (change.before.mode, change.before.size) == (0o640, 3)
        assert await each.content(change.before) == b"old"
        assert await each.content(change.after) == b"new"


async def test_an_edit_that_was_not_made_is_none(journal):
    with pytest.raises(OSError, match="full"):
        async with journal.editing("/project/a", None, 0o644, b"new", "t1"):
            raise OSError("full")
    assert await journal.turns() == ()


async def test_an_edit_whose_end_nobody_saw_counts_as_made(place, journal):
    await journal.append(Changing(FileChange("/a", ABSENT, State("file", 0o644), "t1")))
    assert [turn.changes[0].path for turn in await place.journal().turns()] == ["/a"]


async def test_a_turn_has_one_change_for_each_path(journal):
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
    assert latest.changes[0].before.lost


async def test_the_oldest_packs_of_a_session_go_when_it_has_too_much(place, monkeypatch):
    monkeypatch.setattr("sanderling.changes.store.MAX_PACK_BYTES", 1000)
    monkeypatch.setattr("sanderling.changes.store.MAX_SESSION_BYTES", 5000)
    journal = place.journal()
    states = [await journal.keep("/a", os.urandom(800), 0o644) for _ in range(20)]
    kept = [await journal.content(state) is not None for state in states]
    assert kept == sorted(kept)  # the newest
    assert 3 <= sum(kept) <= 6
    size = sum(path.stat().st_size for path in place.root.rglob("*.pack"))
    assert size <= 5000


async def test_two_sessions_share_what_all_may_have(place, monkeypatch):
    monkeypatch.setattr("sanderling.changes.store.MAX_PACK_BYTES", 1000)
    monkeypatch.setattr("sanderling.changes.store.MAX_BYTES", 5000)
    first, second = place.journal("first"), place.journal("second")
    early = await first.keep("/a", os.urandom(800), 0o644)
    for _ in range(10):
        late = await second.keep("/a", os.urandom(800), 0o644)
    assert await first.content(early) is None
    assert await second.content(late) is not None
    again = await first.keep("/a", b"goes on", 0o644)
    assert await first.content(again) == b"goes on"


async def test_a_full_disk_is_told_and_leaves_what_was_kept(place, monkeypatch, journal):
    kept = await journal.keep("/a", b"kept", 0o644)
    write, room = os.write, 20

    def short(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr("os.write", short)
    lost = await journal.keep("/b", os.urandom(100), 0o644)
    monkeypatch.setattr("os.write", write)
    assert (lost.lost, len(place.problems)) == ("no room", 1)
    assert "No space left" in place.problems[0]
    later = await journal.keep("/c", b"later", 0o644)
    again = place.journal()
    assert [await again.content(state) for state in (kept, later)] == [b"kept", b"later"]


KILLED = """
import sys, anyio
from pathlib import Path
from sanderling.changes.journal import Journal
from sanderling.changes.states import ABSENT, FileChange

async def main():
    journal = Journal(Path(sys.argv[1]), "s", "/project")
    for number in range(10_000):
        journal.begin_turn(f"p{number}")
        state = await journal.keep("/a", b"%d" % number * 1000, 0o644)
        await journal.note(FileChange(f"/{number}", ABSENT, state, "t"))
        print(number, flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize("count", prove_rest([1, 7, 40]))
async def test_a_killed_process_loses_nothing_that_it_has_noted(place, count):
    root = place.root / "changes"
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", KILLED, root], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        for _ in range(count):
            process.stdout.readline()
        process.kill()
        noted = count + len(process.stdout.read().split())
    journal = place.journal()
    turns = await journal.turns()
    assert len(turns) in (noted, noted + 1)
    for number, turn in enumerate(turns):
        assert await journal.content(turn.changes[0].after) == b"%d" % number * 1000
    state = await journal.keep("/z", b"goes on", 0o644)
    assert await place.journal().content(state) == b"goes on"


async def test_a_pack_may_be_torn_anywhere(place, journal):
    states = [await journal.keep("/a", bytes([number]) * 50, 0o644) for number in range(3)]
    (pack,) = place.root.rglob("*.pack")
    whole = pack.read_bytes()
    for cut in range(0, len(whole), 7):
        pack.write_bytes(whole[:cut])
        again = place.journal()
        found = [await again.content(state) for state in states]
        assert found == sorted(filter(None, found)) + [None] * found.count(None)


async def test_the_lines_of_a_journal_stay_readable():
    path = ROOT / "tests" / "golden" / "journal_v1.jsonl"
    records = read_journal(path).records
    lines = path.read_bytes().splitlines(keepends=True)
    assert [encoded(record) for record in records] == lines[1:]


async def test_threads_that_keep_something_at_the_same_time_lose_nothing(place):
    """A command's changes are kept by one thread while another one keeps those of an edit."""
    store = Store(place.root / "changes" / "s", place.root / "changes")
    texts = [os.urandom(2000) for _ in range(400)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            names = list(threads.map(lambda text: store.put(packed(text)), texts))
    finally:
        sys.setswitchinterval(interval)
    again = Store(place.root / "changes" / "s", place.root / "changes")
    for each in (store, again):
        assert [each.get(name) for name in names] == texts
    store.close()


async def test_what_is_closed_is_not_written_by_a_thread_that_comes_late(place, journal):
    kept = await journal.keep("/a", b"kept", 0o644)
    await journal.note(FileChange("/a", ABSENT, kept, "t1"))
    journal.close()
    other = os.open(place.root / "of somebody else", os.O_RDWR | os.O_CREAT)  # has their numbers
    others = [os.dup(other) for _ in range(20)]
    assert (await journal.keep("/b", os.urandom(100), 0o644)).lost == "no room"
    await journal.note(FileChange("/b", ABSENT, kept, "t1"))
    assert os.fstat(other).st_size == 0
    assert len(place.problems) == 1
    for descriptor in (other, *others):
        os.close(descriptor)


async def test_what_could_not_be_written_is_written_with_what_comes_next(
    place, monkeypatch, journal
):
    journal.begin_turn("p1")
    await journal.note(FileChange("/a", ABSENT, State("link", target="1"), "t1"))
    journal.begin_turn("p2")

    def full(fd: int, data: bytes) -> None:
        os.write(fd, data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sanderling.changes.records.write_all", full)
    await journal.note(FileChange("/b", ABSENT, State("link", target="2"), "t2"))
    monkeypatch.undo()
    assert [turn.turn for turn in await place.journal().turns()] == ["p1"]
    await journal.note(FileChange("/c", ABSENT, State("link", target="3"), "t3"))
    for each in (journal, place.journal()):
        turns = await each.turns()
        assert [(turn.turn, len(turn.changes)) for turn in turns] == [("p1", 1), ("p2", 2)]


async def test_a_fork_has_what_was_changed_in_its_turns_and_nothing_of_the_others(place, journal):
    for number in "123":
        journal.begin_turn(f"p{number}")
        state = await journal.keep("/a", number.encode(), 0o644)
        await journal.note(FileChange(f"/{number}", ABSENT, state, "t"))
    await journal.append(Restoring("u1", ("p1",), ()), Restored("u1", ()))
    await journal.append(Restoring("u2", ("p2", "p3"), ()), Restored("u2", ()))
    await journal.append(Restoring("u3", ("p1",), ()))  # which is still going on
    root = place.root / "changes"
    origin = Origin(root / "s", "/project", frozenset({"p1", "p2"}))
    fork = Journal(root, "fork", "/project", place.problems.append, origin)
    turns = await fork.turns()
    assert [turn.turn for turn in turns] == ["p1", "p2"]
    assert await fork.content(turns[1].changes[0].after) == b"2"
    ids = [each.id for each in await fork.records() if isinstance(each, Restoring)]
    assert ids == ["u1"]
    # Each goes on by itself, whatever becomes of the other one.
    mine = await fork.keep("/b", b"of the fork", 0o644)
    for pack in (root / "s").glob("*.pack"):
        pack.unlink()
    theirs = await journal.keep("/b", b"of the other one", 0o644)
    assert await fork.content(turns[1].changes[0].after) == b"2"
    assert [await each.content(state) for each, state in ((fork, mine), (journal, theirs))] == [
        b"of the fork",
        b"of the other one",
    ]
    assert await place.journal().content(theirs) == b"of the other one"
    assert place.problems == []


async def test_a_journal_has_an_end(place, monkeypatch):
    monkeypatch.setattr("sanderling.changes.records.MAX_BYTES", 1000)
    journal = place.journal()
    for number in range(50):
        await journal.note(FileChange(f"/{number}", ABSENT, State("link", target="1"), "t1"))
    (file,) = place.root.rglob("journal.jsonl")
    assert file.stat().st_size <= 1000
    assert len(place.problems) == 1
    assert "File too large" in place.problems[0]
    with pytest.raises(OSError, match="too large"):
        await journal.announce(Restoring("u1", ("p" * 1000,), ()))
    latest = await journal.latest()
    assert len(latest.changes) == 50


def test_the_disk_has_all_packs_after_a_sync_also_full_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("sanderling.changes.store.MAX_PACK_BYTES", 1000)
    synced = set()
    sync = os.fsync

    def fsync(fd):
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    store = Store(tmp_path / "s", tmp_path)
    for number in range(3):
        store.put(packed(os.urandom(600) + bytes([number])))
    store.sync()
    store.close()
    packs = list((tmp_path / "s").glob("*.pack"))
    assert len(packs) == 3
    assert {pack.stat().st_ino for pack in packs} == synced


def journal_file(place) -> Path:
    (path,) = place.root.rglob("journal.jsonl")
    return path


async def noted(journal: Journal, *turns: str) -> None:
    for turn in turns:
        journal.begin_turn(turn)
        await journal.note(FileChange(f"/{turn}", ABSENT, State("link", target="1"), "t"))


@pytest.mark.parametrize("damage", [b'"/p2', b"[" * 100_000])
async def test_a_damaged_line_is_reported_and_the_others_are_read(place, damage):
    await noted(place.journal(), "p1", "p2", "p3")
    path = journal_file(place)
    path.write_bytes(path.read_bytes().replace(b'"/p2"', damage))
    again = place.journal()
    assert [turn.turn for turn in await again.turns()] == ["p1", "p3"]
    assert place.problems == [*again.problems]
    assert "1 line of this session's change record" in again.problems[0]


@pytest.mark.parametrize(
    "header, words",
    [
        (b'{"type":"changes","version":2,"project":"/project"}', "another version"),
        (b'{"type":"chan\xff\xff', "damaged"),
    ],
)
async def test_a_journal_that_is_not_ours_stays_and_another_one_is_written(place, header, words):
    await noted(place.journal(), "p1")
    path = journal_file(place)
    theirs = header + path.read_bytes()[path.read_bytes().index(b"\n") :]
    path.write_bytes(theirs)
    for turn, known in (("p2", ["p2"]), ("p3", ["p2", "p3"])):
        journal = place.journal()
        await noted(journal, turn)
        assert [each.turn for each in await journal.turns()] == known
        assert len(journal.problems) == 1
        assert words in journal.problems[0]
    assert path.read_bytes() == theirs


async def test_a_journal_without_a_complete_header_begins_again(place):
    await noted(place.journal(), "p1")
    journal_file(place).write_bytes(b'{"type":"cha')
    await noted(place.journal(), "p2")
    again = place.journal()
    assert [turn.turn for turn in await again.turns()] == ["p2"]
    assert place.problems == []
