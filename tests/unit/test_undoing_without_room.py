"""A full disk, and directories of ours that cannot be written, while the agent edits and while that is undone, redone and rewound."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import happens, prove, prove_rest, small_disk
from tests.unit.test_conversation import Talk
from tests.unit.test_restorer import tree
from tests.unit.test_undoing import ONE, TWO, write

from sanderling.protocol.actions import Action, RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import ConversationRewound, FilesRestored, Notice

pytestmark = pytest.mark.guard

LONG = "a line\n" * 1000
READ = {"tool_use": {"name": "read", "input": {"path": "old"}}}
REPLIES = (
    [READ],
    [write("new", LONG), write("old", LONG + "more\n"), *(write(f"new{n}", "") for n in range(40))],
    [{"text": "Done."}],
)


@contextmanager
def small(path: Path) -> Iterator[Path]:
    path.mkdir()
    with small_disk(path, "1m"):
        yield path


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with small(tmp_path / "state") as path:
        yield path


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    with small(tmp_path / "project") as path:
        yield path


def fill(path: Path) -> Path:
    """Leave no room."""
    hog = path / "hog"
    with hog.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return hog


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(path)], check=True)


@contextmanager
def filled(path: Path) -> Iterator[None]:
    hog = fill(path)
    yield
    hog.unlink()


@contextmanager
def limited(path: Path) -> Iterator[None]:
    """No file may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (journal,) = path.rglob("journal.jsonl")
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def talk_in(base: Path, *replies: object) -> Talk:
    talk = Talk(base, *replies, answer="once")  # type: ignore[arg-type]
    (talk.project / "old").write_text("old\n" * 100)
    return talk


async def refused(talk: Talk, action: Action) -> None:
    """Have it refused because it cannot be recorded."""

    def count() -> int:
        return sum("Nothing was changed" in notice.text for notice in talk.of(Notice))

    before = count()
    talk.conversation.act(action)
    await happens(lambda: count() > before)


@prove
async def test_what_cannot_be_recorded_is_not_undone(tmp_path, state):
    """The state has no room: nothing is undone, redone or rewound, and all of it can be when there is some."""
    talk = talk_in(tmp_path, *REPLIES)
    before = tree(talk.project)
    async with talk.after(ONE):
        after = tree(talk.project)
        stories = (
            ((UndoTurn(), Rewind("p1", "files"), Rewind("p1", "both")), before),
            ((RedoTurn(),), after),
        )
        for count, (actions, there) in enumerate(stories, 1):
            found = tree(talk.project)
            with filled(state):
                for action in actions:
                    await refused(talk, action)
                assert tree(talk.project) == found
            talk.conversation.act(actions[0])
            await talk.until(FilesRestored, count)
            assert tree(talk.project) == there
        assert [prompt.id for prompt in talk.session.prompt_history.prompts] == ["p1"]
    async with Talk(tmp_path).served() as again:
        await again.act(Rewind("p1", "both"), ConversationRewound)
    assert tree(talk.project) == before


@pytest.mark.parametrize("what", prove_rest(["undo", "redo", "rewind"], keep=(0,)))
async def test_a_project_on_a_full_disk_loses_nothing(tmp_path, project, what):
    talk = talk_in(tmp_path, *REPLIES)
    before = tree(talk.project)
    async with talk.after(ONE):
        after = tree(talk.project)
        actions = {"undo": UndoTurn("p1"), "redo": RedoTurn(), "rewind": Rewind("p1", "files")}
        if what == "redo":
            await talk.act(UndoTurn(), FilesRestored)
        start, end = (before, after) if what == "redo" else (after, before)
        count = len(talk.of(FilesRestored))
        hog = fill(project)
        talk.conversation.act(actions[what])
        restored = await talk.until(FilesRestored, count + 1)
        found = tree(talk.project)
        for name in ("new", "old"):
            assert found.get(name) in (start.get(name), end.get(name))
        hog.unlink()
        if any(file.how == "left" for file in restored.files):
            assert all("full" in file.why for file in restored.files if file.how == "left")
            again = UndoTurn("p1") if what != "redo" else RedoTurn()
            talk.conversation.act(again)
            await talk.until(FilesRestored, count + 2)
        assert {name: each for name, each in tree(talk.project).items() if name != "hog"} == end


@prove
async def test_a_limit_of_the_size_of_files_is_like_a_full_disk(tmp_path):
    talk = talk_in(tmp_path, *REPLIES)
    before = tree(talk.project)
    async with talk.after(ONE):
        after = tree(talk.project)
        with limited(tmp_path / "state"):
            await refused(talk, UndoTurn())
        assert tree(talk.project) == after
        await talk.act(UndoTurn(), FilesRestored)
        assert tree(talk.project) == before


@prove
async def test_a_journal_that_is_read_only_stops_undoing_and_nothing_else(tmp_path):
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    with small(tmp_path / "state" / "sessions" / "changes") as changes:
        first = await talk_in(tmp_path, *REPLIES).run(ONE)
        first.conversation.services.workspace.journal.close()
        after = tree(first.project)
        again = Talk(tmp_path, [write("other", "x\n")], [{"text": "Done."}], answer="once")
        async with again.served():
            with read_only(changes):
                await refused(again, UndoTurn())
                assert tree(again.project) == after
                await again.run_turns(TWO)
                assert (again.project / "other").read_text() == "x\n"
                told = [notice.text for notice in again.of(Notice)]
                assert any("cannot be recorded (Read-only file system)" in text for text in told)
            await again.act(UndoTurn("p1"), FilesRestored)
            assert not (again.project / "new").exists()
            again.conversation.act(UndoTurn("p2"))
            (file,) = (await again.until(FilesRestored, 2)).files
            assert (file.path, file.how) == ("other", "left")
            assert (again.project / "other").read_text() == "x\n"
        again.conversation.services.workspace.journal.close()
