"""The origins of lines from journals: killed processes, forks, deleted logs, and large files."""

from pathlib import Path

import pytest

from sanderling.blame.origins import Origins
from sanderling.changes.forking import Origin as ForkedFrom
from sanderling.changes.journal import Journal
from sanderling.changes.records import Changing
from sanderling.changes.states import FileChange
from sanderling.config import Settings
from sanderling.protocol.blame import Blame
from sanderling.providers.models.known import load_models
from sanderling.session.ledger import Prices

pytestmark = [pytest.mark.anyio, pytest.mark.guard]

MODE = 0o644


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir()
        (root / "sessions").mkdir()
        self.file = self.project / "a.py"

    def journal(self, session_id: str = "s1", origin: ForkedFrom | None = None) -> Journal:
        return Journal(self.root / "changes", session_id, str(self.project), lambda _: None, origin)

    async def edit(self, journal: Journal, old: str, new: str, use: str = "t1") -> None:
        path = str(self.file)
        async with journal.editing(path, old.encode(), MODE, new.encode(), use):
            self.file.write_text(new)

    def blame(self, text: str | None = None) -> Blame:
        return self.origins().blame(str(self.file), text)

    def origins(self) -> Origins:
        prices = Prices(load_models(Settings(str(self.root))))
        return Origins(self.root / "sessions", str(self.project), prices)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def spans(blame: Blame) -> list[tuple[int, int, str]]:
    """The lines with an author: the first, how many, the turn."""
    return [(each.first, each.count, blame.hunks[each.hunk].turn) for each in blame.lines]


@pytest.mark.parametrize("was_made", [True, False])
async def test_an_announced_change_of_a_killed_process_counts_if_the_file_has_it(place, was_made):
    journal = place.journal()
    journal.begin_turn("p1")
    before = await journal.keep(str(place.file), b"a\n", MODE)
    after = await journal.keep(str(place.file), b"a\nthe new line\n", MODE)
    await journal.append(Changing(FileChange(str(place.file), before, after, "t1")))
    place.file.write_text("a\nthe new line\n" if was_made else "a\n")
    assert spans(place.blame()) == ([(2, 1, "p1")] if was_made else [])


async def test_a_fork_has_the_changes_of_its_source_once(place):
    journal = place.journal()
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    journal.close()
    fork = place.journal(
        "s2", ForkedFrom(place.root / "changes/s1", str(place.project), frozenset({"p1"}))
    )
    await fork.records()
    fork.begin_turn("p2")
    await place.edit(fork, "a\nthe new line\n", "b\na\nthe new line\n", "t2")
    blame = place.blame()
    assert spans(blame) == [(1, 1, "p2"), (3, 1, "p1")]


async def test_a_journal_without_its_log_still_names_the_session(place):
    journal = place.journal()
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    [hunk] = place.blame().hunks
    assert (hunk.session_id, hunk.number, hunk.outcome) == ("s1", 0, "unreviewed")


async def test_the_text_of_an_editor_counts_and_not_the_file(place):
    journal = place.journal()
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    assert spans(place.blame("mine\nmine\na\nthe new line\n")) == [(4, 1, "p1")]


async def test_a_damaged_journal_keeps_no_other_from_being_read(place):
    journal = place.journal()
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    bad = place.root / "changes/s0"
    bad.mkdir()
    (bad / "journal.jsonl").write_bytes(b'{"type":"chan\n\xff\xfe{}\n')
    assert spans(place.blame()) == [(2, 1, "p1")]


async def test_a_large_file_with_many_changes_is_blamed_line_by_line(place):
    lines = [f"value_{n} = compute({n})" for n in range(20_000)]
    journal, old = place.journal(), "\n".join(lines) + "\n"
    states = [await journal.keep(str(place.file), old.encode(), MODE)]
    for n in range(50):
        lines[n * 397] = f"agent_{n} = other({n})"
        journal.begin_turn(f"p{n}")
        states.append(await journal.keep(str(place.file), ("\n".join(lines) + "\n").encode(), MODE))
        await journal.note(FileChange(str(place.file), states[-2], states[-1], f"t{n}"))
    place.file.write_text("\n".join(lines) + "\n")
    assert spans(place.blame()) == [(n * 397 + 1, 1, f"p{n}") for n in range(50)]


async def test_a_second_answer_needs_no_content_again_and_sees_later_changes(place):
    journal, origins, path = place.journal(), place.origins(), str(place.file)
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    first = origins.blame(path)
    for pack in (place.root / "changes/s1").glob("*.pack"):
        pack.unlink()
    assert origins.blame(path) == first
    assert spans(place.blame()) == []
    journal.begin_turn("p2")
    await place.edit(journal, "a\nthe new line\n", "b\na\nthe new line\n", "t2")
    assert spans(origins.blame(path)) == [(1, 1, "p2"), (3, 1, "p1")]
    other = place.journal("s2")
    other.begin_turn("p3")
    await place.edit(other, "b\na\nthe new line\n", "b\na\nthe new line\nc\n", "t3")
    assert (4, 1, "p3") in spans(origins.blame(path))


async def test_what_is_kept_between_answers_is_bounded(place, monkeypatch):
    monkeypatch.setattr("sanderling.blame.origins.MAX_KEPT_CHARS", 0)
    monkeypatch.setattr("sanderling.blame.origins.MAX_KEPT_CHANGES", 0)
    journal, origins = place.journal(), place.origins()
    journal.begin_turn("p1")
    await place.edit(journal, "a\n", "a\nthe new line\n")
    for _ in range(2):
        assert spans(origins.blame(str(place.file))) == [(2, 1, "p1")]
    for pack in (place.root / "changes/s1").glob("*.pack"):
        pack.unlink()
    assert spans(origins.blame(str(place.file))) == []
