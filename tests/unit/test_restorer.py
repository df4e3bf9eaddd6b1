"""What the agent has done is taken back: on the disk, in the sandbox, and in the buffers of an editor."""

import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conftest import prove_rest
from tests.unit.test_file_tools import Desk, MemoryEditor, Place
from tests.unit.test_file_tools import place as place  # noqa: PLC0414 - a fixture
from tests.unit.test_file_tools import project as project  # noqa: PLC0414

from sanderling.changes.journal import Journal
from sanderling.changes.records import Restored
from sanderling.changes.restoring import CHANGED_NEW_FILE, SAME_LINES, RestorePlan
from sanderling.changes.states import FileChange, State
from sanderling.changes.timeline import Timeline
from sanderling.tools.edit import edit
from sanderling.tools.read import read
from sanderling.tools.restoring import INTERRUPTED, JUST_CHANGED, PROTECTED, FileRestorer, _present
from sanderling.tools.write import write

pytestmark = pytest.mark.guard


class Agent:
    """What a session does with the tools of a desk, its commands, and what is undone of it."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.journal = desk, desk.workspace.journal
        self.undoings = 0
        self.begin("p1")

    def begin(self, turn: str) -> None:
        self.journal.begin_turn(turn)

    async def edit(self, path: str, old: str, new: str) -> None:
        await self.desk.use(read, path=path)
        await self.desk.use(edit, path=path, edits=[{"old": old, "new": new}])

    async def write(self, path: str, content: str) -> None:
        await self.desk.use(write, path=path, content=content)

    async def run(self, command: str) -> None:
        workspace = self.desk.workspace
        async with workspace.changes.during(workspace.environment, "c"):
            process = await workspace.environment.spawn(["/bin/sh", "-c", f"{command}\n echo end"])
            assert process.stdout
            said = b""
            while not said.endswith(b"end\n"):
                said += await process.stdout.receive()
            await process.wait()
            process.close()

    async def command(self, act, *paths: Path) -> None:
        """A command that has changed `paths`, as a scan finds it."""
        files = await self.desk.workspace.files()
        before = [await self.state(files, path) for path in paths]
        act()
        after = [await self.state(files, path) for path in paths]
        changes = zip(paths, before, after, strict=True)
        await self.journal.note(
            *(FileChange(str(path), one, two, "c") for path, one, two in changes)
        )

    async def state(self, files, path: Path) -> State:
        present = _present(await files.look(str(path), 1 << 20))
        if present.data is not None:
            await self.journal.keep(str(path), present.data, present.state.mode)
        return present.state

    async def timeline(self) -> Timeline:
        return Timeline(await self.journal.records())

    async def undo(self, *turns: str) -> RestorePlan:
        timeline = await self.timeline()
        turns = turns or tuple(not_undone(timeline)[-1:])
        return await self.restore(turns, timeline.changes_of(turns))

    async def redo(self) -> RestorePlan:
        last = (await self.timeline()).last_undoing
        assert last
        return await self.restore(last.turns, last.changes, last.id)

    async def finish(self, base: Path) -> RestorePlan:
        """Do what the next process does when the one before it was killed while it undid something."""
        self.journal.close()
        workspace = self.desk.workspace
        self.journal = Journal(base / "state" / "changes", "s", workspace.project)
        workspace.journal = self.journal
        unfinished = (await self.timeline()).latest
        assert unfinished
        return await FileRestorer(workspace).finish(unfinished)

    async def restore(
        self, turns: tuple[str, ...], changes: Sequence[FileChange], undoes: str = ""
    ) -> RestorePlan:
        self.undoings += 1
        restorer = FileRestorer(self.desk.workspace)
        return await restorer.restore(f"u{self.undoings}", turns, changes, undoes)


def not_undone(timeline: Timeline) -> list[str]:
    return [turn for turn in timeline.turns if turn not in timeline.undone_turns]


@asynccontextmanager
async def agent_at(
    place: Place, editor: MemoryEditor | None = None, *, is_on: bool = False
) -> AsyncIterator[Agent]:
    async with place.desk(editor, is_on=is_on) as desk:
        yield Agent(desk)


async def undone_after(place: Place, command: str, *, is_on: bool = False) -> RestorePlan:
    """Run a command and undo it."""
    async with agent_at(place, is_on=is_on) as agent:
        await agent.run(command)
        return await agent.undo()


async def taken_back(
    place: Place, command: str, is_on: bool = False
) -> tuple[RestorePlan, RestorePlan]:
    """Run a command, undo and redo it, and undo it again; return what came of the first two."""

    def found() -> dict[str, object]:  # without what the sandbox puts into a bare repository
        return {name: what for name, what in tree(place.project).items() if name != "commondir"}

    before = found()
    async with agent_at(place, is_on=is_on) as agent:
        await agent.run(command)
        after = found()
        assert after != before
        undone = await agent.undo()
        assert (undone.left, found()) == ((), before)
        redone = await agent.redo()
        assert (redone.left, found()) == ((), after)
        assert (await agent.undo()).left == ()
        assert found() == before
    return undone, redone


def left_in(project: Path, plan: RestorePlan) -> dict[str, str]:
    """What stays as it is of `plan`, and why."""
    return {str(Path(path).relative_to(project)): why for path, why in plan.left}


def tree(root: Path) -> dict[str, tuple[int, bytes | str, str]]:
    """All that stands below `root`, with modes, bytes, and the first of the names that a file has."""
    names: dict[int, str] = {}
    found: dict[str, tuple[int, bytes | str, str]] = {}
    for path in sorted(root.rglob("*")):
        if ".git" in path.parts:
            continue
        name, status = os.fsdecode(path.relative_to(root)), path.lstat()
        twin = "" if stat.S_ISDIR(status.st_mode) else names.setdefault(status.st_ino, name)
        data = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[name] = (status.st_mode, data if isinstance(data, bytes) else str(data), twin)
    return found


ODD_NAMES = ["with space", "new\nline", "-rf", os.fsdecode(b"caf\xe9"), "ä" * 100, "a'\"`$b"]


@pytest.mark.parametrize("is_on", [False, True])
async def test_undo_takes_back_edits_new_files_deletions_modes_and_links(place, project, is_on):
    (project / "edited").write_bytes(b"one\r\ncaf\xe9\r\nthree")
    (project / "removed").write_text("gone\n")
    (project / "program").write_text("#!/bin/sh\n")
    (project / "link").symlink_to("edited")
    (project / "untouched").write_text("as it is\n")
    (project / "hard").write_text("one\n")
    (project / "kept").mkdir()
    os.link(project / "hard", project / "other name")
    for name in ODD_NAMES:
        (project / name).write_text("before\n")
    times = (project / "untouched").stat()
    before = tree(project)

    def act() -> None:
        (project / "removed").unlink()
        (project / "program").chmod(0o755)
        (project / "link").unlink()
        (project / "link").symlink_to("/etc/passwd")
        (project / "hard").write_text("two\n")
        (project / "made").mkdir()
        (project / "made" / "by a command").write_bytes(b"\0\1")
        (project / "made" / "link").symlink_to("../edited")
        for name in ODD_NAMES:
            (project / name).write_text("after\n")

    async with agent_at(place, is_on=is_on) as agent:
        await agent.edit("edited", "three", "3")
        await agent.write("new/deep/file.py", "print()\n")
        await agent.write("kept/file.py", "print()\n")
        names = ["removed", "program", "link", "hard", "made", "made/by a command", "made/link"]
        await agent.command(act, *(project / name for name in [*names, *ODD_NAMES]))
        after = tree(project)
        undone = await agent.undo()
        assert undone.left == ()
        assert tree(project) == before
        assert (project / "other name").read_text() == "one\n"
        assert (project / "hard").samefile(project / "other name")
        assert (project / "untouched").stat().st_mtime_ns == times.st_mtime_ns
        await agent.redo()
        assert tree(project) == after
        await agent.undo()
        assert tree(project) == before


async def test_turns_are_undone_one_after_the_other_and_redone_backwards(place, project):
    (project / "a").write_text("0\n")
    async with agent_at(place) as agent:
        for turn in "123":
            agent.begin(turn)
            await agent.edit("a", str(int(turn) - 1), turn)
        seen = []
        for act in (agent.undo, agent.undo, agent.redo, agent.undo, agent.undo):
            await act()
            seen.append((project / "a").read_text().strip())
        assert seen == ["2", "1", "2", "1", "0"]
        assert not_undone(await agent.timeline()) == []
        for _ in range(3):
            await agent.redo()
        assert (project / "a").read_text() == "3\n"
        await agent.undo("2", "3")
        assert (project / "a").read_text() == "1\n"


async def test_what_the_person_wrote_before_meanwhile_and_since_stays(place, project):
    path = project / "a"
    path.write_text("".join(f"{n}\n" for n in range(10)))
    async with agent_at(place) as agent:
        await agent.edit("a", "1\n", "one\n")
        path.write_text(path.read_text().replace("5\n", "5\nmeanwhile\n"))
        await agent.edit("a", "8\n", "eight\n")
        path.write_text("since\n" + path.read_text())
        undone = await agent.undo()
        assert [step.is_merged for step in undone.steps] == [True]
        assert path.read_text() == "since\n0\n1\n2\n3\n4\n5\nmeanwhile\n6\n7\n8\n9\n"
        await agent.redo()
        assert path.read_text() == "since\n0\none\n2\n3\n4\n5\nmeanwhile\n6\n7\neight\n9\n"


async def test_who_removed_the_end_of_what_the_agent_wrote_has_it_by_redoing(place, project):
    """It looks like a file whose writing was killed."""
    (project / "a").write_text("one\n")
    (project / "b").write_text("one\nend\n")
    async with agent_at(place) as agent:
        await agent.edit("a", "one\n", "ONE\n1\n2\n3\n")
        await agent.edit("b", "one\nend\n", "ONE\nEND\n")
        (project / "a").write_text("ONE\n1\n2\n")
        (project / "b").write_text("ONE\nend\n")
        before = tree(project)
        assert (await agent.undo()).steps
        left = (await agent.redo()).left
        assert (left, tree(project)) == ((), before)


async def test_what_the_user_changed_in_the_same_place_is_left_the_rest_undone(place, project):
    for name in ("a", "b"):
        (project / name).write_text("before\n")
    async with agent_at(place) as agent:
        for name in ("a", "b"):
            await agent.edit(name, "before", "after")
        await agent.write("new", "the agent's\n")
        (project / "a").write_text("mine\n")
        (project / "new").write_text("the agent's\nmine\n")
        undone = await agent.undo()
    assert dict(undone.left) == {
        str(project / "a"): SAME_LINES,
        str(project / "new"): CHANGED_NEW_FILE,
    }
    assert (project / "a").read_text() == "mine\n"
    assert (project / "b").read_text() == "before\n"
    assert (project / "new").read_text() == "the agent's\nmine\n"


async def test_a_directory_that_is_a_link_by_now_is_not_gone_through(place, project):
    (project / "sub").mkdir()
    (project / "sub" / "a").write_text("before\n")
    async with agent_at(place, is_on=True) as agent:
        await agent.edit("sub/a", "before", "after")
        await agent.command((project / "sub" / "gone").touch, project / "sub" / "gone")
        (project / "sub").rename(project / "elsewhere")
        (project / "sub").symlink_to("elsewhere")
        undone = await agent.undo()
    assert undone.steps == ()
    assert (project / "elsewhere" / "a").read_text() == "after\n"


async def test_what_the_guard_protects_stays(place, project):
    async with agent_at(place, is_on=True) as agent:
        (project / ".git" / "hooks").mkdir(parents=True)
        hook = project / ".git" / "hooks" / "pre-commit"
        await agent.desk.workspace.files()
        state = await agent.journal.keep(str(hook), b"#!/bin/sh\n", 0o755)
        await agent.journal.note(FileChange(str(hook), state, State(), "c"))
        undone = await agent.undo()
    assert [left.why for left in undone.left] in ([PROTECTED], ["it is read-only in the sandbox"])
    assert not hook.exists()


# --- buffers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, options",
    prove_rest(
        [
            (b"one\r\ntwo\r\nthree", {"line_ending": "dos"}),
            (b"caf\xe9\ntwo\nthree\n", {"encoding": "latin1"}),
            ("\ufeffone\ntwo\nthree\n".encode(), {"has_bom": True}),
        ]
    ),
)
@pytest.mark.parametrize("is_modified", [False, True])
async def test_a_buffer_is_changed_with_its_file_and_unsaved_text_stays(
    place, project, data, options, is_modified
):
    path, editor = project / "a", MemoryEditor()
    path.write_bytes(data)
    editor.open(path, **options)
    editor.format = lambda text: text.upper()  # an undo brings back what was there
    async with agent_at(place, editor) as agent:
        editor.format = lambda text: text
        await agent.edit("a", "two", "2")
        changed = path.read_bytes()
        editor.format = lambda text: text.upper()
        if is_modified:
            editor.type(path, "mine\n" + editor.text(path))
        undone = await agent.undo()
        assert undone.left == ()
        text = editor.text(path)
        assert editor.is_modified(path) == is_modified
        if is_modified:
            assert text.startswith("mine\n")
            assert "two" in text
            assert path.read_bytes() == changed
            editor.save(path)
            body = data.removeprefix(b"\xef\xbb\xbf")
            assert path.read_bytes().endswith(body)
        else:
            assert path.read_bytes() == data
        await agent.redo()
        assert "2" in editor.text(path)
        assert "two" not in editor.text(path)


async def test_a_change_that_stands_in_a_buffer_alone_is_taken_back_there(place, project):
    path, editor = project / "a", MemoryEditor()
    path.write_text("one\ntwo\n")
    editor.open(path)
    async with agent_at(place, editor) as agent:
        editor.type(path, "mine\none\ntwo\n")
        await agent.edit("a", "two", "2")
        assert editor.text(path) == "mine\none\n2\n"
        await agent.undo()
        assert editor.text(path) == "mine\none\ntwo\n"
    assert path.read_text() == "one\ntwo\n"


async def test_unsaved_text_in_the_same_place_wins(place, project):
    path, editor = project / "a", MemoryEditor()
    path.write_text("one\n")
    editor.open(path)
    async with agent_at(place, editor) as agent:
        await agent.edit("a", "one", "1")
        editor.type(path, "mine\n")
        undone = await agent.undo()
    assert [left.why for left in undone.left] == [SAME_LINES]
    assert editor.text(path) == "mine\n"


async def test_who_types_meanwhile_keeps_what_they_type(place, project):
    path, editor = project / "a", MemoryEditor()
    path.write_text("one\n")
    editor.open(path)
    async with agent_at(place, editor) as agent:
        await agent.edit("a", "one", "1")
        editor.before_change = lambda: editor.type(path, "mine\n")
        undone = await agent.undo()
    assert [left.why for left in undone.left] == [JUST_CHANGED]
    assert editor.text(path) == "mine\n"


# --- what goes wrong in the middle -------------------------------------------------------------------------------------


async def test_a_project_that_is_read_only_in_part_is_undone_in_part(place, project):
    (project / "ro").mkdir()
    for name in ("ro/a", "b"):
        (project / name).write_text("before\n")
    async with agent_at(place, is_on=True) as agent:
        for name in ("ro/a", "b"):
            await agent.edit(name, "before", "after")
        (project / "ro" / "a").chmod(0o444)
        (project / "ro").chmod(0o555)
        undone = await agent.undo()
        assert [left.why for left in undone.left] == ["its mode or the sandbox forbids it"]
        assert (project / "b").read_text() == "before\n"
        await agent.redo()
    assert (project / "b").read_text() == "after\n"
    assert (project / "ro/a").read_text() == "after\n"


class KilledError(BaseException):
    """The process is gone: nothing after this happens."""


@pytest.mark.parametrize("killed_at", prove_rest(range(6), keep=(0, 2, -1)))
async def test_what_a_killed_undoing_has_left_is_finished(place, project, killed_at):
    names = [f"f{n}" for n in range(5)]
    for name in names:
        (project / name).write_text("before\n")
    async with agent_at(place) as agent:
        for name in names:
            await agent.edit(name, "before", "after")
        await die_at(agent, killed_at)
        (project / "f4").write_text("mine\n")
        finished = await agent.finish(place.base)
        assert [(Path(left.path).name, left.why) for left in finished.left] == [("f4", INTERRUPTED)]
        assert {(project / name).read_text() for name in names[:4]} == {"before\n"}
        assert (project / "f4").read_text() == "mine\n"
        assert (await agent.timeline()).latest.is_finished
        await agent.redo()
        assert {(project / name).read_text() for name in names[:4]} == {"after\n"}


async def die_at(agent: Agent, count: int) -> None:
    """Undo, and be killed before step number `count`."""
    done = 0
    original = FileRestorer._step
    append = agent.journal.append

    async def step(self, *arguments) -> None:
        nonlocal done
        if done == count:
            raise KilledError
        done += 1
        await original(self, *arguments)

    async def no_end(*records) -> None:
        if any(isinstance(each, Restored) for each in records):
            raise KilledError
        await append(*records)

    FileRestorer._step, agent.journal.append = step, no_end
    try:
        with pytest.raises(KilledError):
            await agent.undo()
    finally:
        FileRestorer._step = original
        del agent.journal.append


async def test_a_directory_that_is_swapped_for_a_link_leads_no_buffer_outside(place, project):
    outside, editor = place.base / "outside", MemoryEditor()
    for directory in (outside, project / "d"):
        directory.mkdir()
    (outside / "a").write_text("after\n")
    path = project / "d" / "a"
    path.write_text("before\n")
    editor.open(path)
    async with agent_at(place, editor) as agent:
        await agent.edit("d/a", "before", "after")

        def swap() -> None:
            if not (project / "d").is_symlink():
                (project / "d").rename(project / "moved")
                (project / "d").symlink_to(outside)

        editor.before_change = swap
        undone = await agent.undo()
    assert [Path(left.path).name for left in undone.left] == ["a"]
    assert (outside / "a").read_text() == "after\n"
