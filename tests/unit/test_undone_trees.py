"""What a command has changed and an undoing brings back: whole trees, links, odd names and modes, repositories, what is no file."""

import os
import random
import socket
import stat
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.conftest import prove, prove_rest
from tests.fuzz import part
from tests.sandbox.child import USERS, in_child, open_directory
from tests.unit.test_file_tools import MemoryEditor, Place
from tests.unit.test_file_tools import place as place  # noqa: PLC0414 - a fixture
from tests.unit.test_file_tools import project as project  # noqa: PLC0414
from tests.unit.test_git_objects import git
from tests.unit.test_restorer import agent_at, die_at, left_in, taken_back, tree, undone_after

from sanderling.changes.restoring import SkippedPath
from sanderling.sandbox.inside.hidden import Hidden
from sanderling.sandbox.inside.rows import ChangedRow, row_of
from sanderling.tools.restoring import TOO_MUCH, UNSAVED, FileRestorer

pytestmark = pytest.mark.guard

ODD = [
    b"new\nline",
    b"\xff\xfe bytes",
    b"-rf",
    b" ",
    b"a'\"`$(id)",
    b"x" * 255,
    "ä".encode() * 127,
    b"\\",
    b"caf\xc3",
]


def as_user(
    uid: int, prepare: Callable[[Path], object], command: str, monkeypatch, act=taken_back
) -> None:
    """Have a user take back what a command does in a project of theirs."""

    def scenario() -> None:
        place = Place(base)
        place.project.mkdir(parents=True)
        prepare(place.project)
        anyio.run(act, place, command)

    with open_directory() as base:
        monkeypatch.setenv("HOME", str(base / "home"))
        in_child(scenario, uid)


def closed_directories(project: Path) -> None:
    for name in ("closed", "gone", "hidden", "opened", "shut"):
        (project / name / "deep").mkdir(parents=True)
        (project / name / "file").write_text("before\n")
        (project / name / "deep" / "file").write_text("before\n")
    (project / "closed").chmod(0o555)
    (project / "gone" / "deep").chmod(0o500)
    (project / "gone").chmod(0o555)
    (project / "shut" / "file").chmod(0o400)


@pytest.mark.parametrize("uid", prove_rest(USERS, keep=(-1,)))
def test_what_lies_in_directories_that_may_not_be_written_comes_back(uid, monkeypatch):
    as_user(
        uid,
        closed_directories,
        """
        chmod -R u+w gone; rm -r gone
        chmod 755 closed; echo after > closed/file; chmod 555 closed
        mkdir made; echo x > made/file; chmod 500 made
        echo after > opened/file; rm opened/deep/file; chmod 500 opened/deep; chmod 555 opened
        echo new > shut/new; chmod 500 shut
        echo after > hidden/file; chmod 311 hidden
        """,
        monkeypatch,
    )


async def test_a_directory_that_is_not_empty_keeps_the_mode_that_it_has(place, project):
    async with agent_at(place) as agent:
        await agent.run("mkdir made; echo x > made/file; chmod 555 made")
        (project / "made").chmod(0o755)
        (project / "made" / "mine").write_text("mine\n")
        (project / "made").chmod(0o555)
        assert (await agent.undo()).left == ()
        assert [path.name for path in (project / "made").iterdir()] == ["mine"]
        assert (project / "made").stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize("uid", prove_rest(USERS, keep=(0,)))
def test_links_and_odd_names_come_back(uid, monkeypatch):
    def prepare(project: Path) -> None:
        for name in ODD:
            (project / os.fsdecode(name)).write_bytes(b"before " + name)
        (project / "directory").mkdir()
        (project / "directory" / os.fsdecode(ODD[1])).write_text("before\n")
        (project / "to a directory").symlink_to("directory")
        (project / "to nothing").symlink_to(os.fsdecode(b"\xff/nothing"))
        (project / "out").symlink_to("/etc/hostname")
        (project / "hard").write_text("before\n")
        os.link(project / "hard", project / "directory" / "hard too")
        os.mkfifo(project / "pipe")

    command = r"""
        for each in ./* ./-rf; do [ -f "$each" ] && [ ! -L "$each" ] && echo after >> "$each"; done
        ln -sfn . "to a directory"; rm "to nothing"; ln -sfn /etc/passwd out; echo after > directory/hard\ too
        mv "new
line" moved; ln -s moved "another
link"; mkdir "new
directory"; echo x > "new
directory/in it"; chmod 600 ./-rf; rm -r ./x*
    """
    as_user(uid, prepare, command, monkeypatch)


@pytest.mark.parametrize("on_disk", ["one\ntwo\n", "zero\none\ntwo\n", "zero\none\n"])
async def test_a_commands_change_behind_unsaved_text_is_told_as_left(place, project, on_disk):
    path, editor = project / "a", MemoryEditor()
    path.write_text("one\n")
    editor.open(path)
    async with agent_at(place, editor) as agent:
        editor.type(path, "mine\none\n")
        await agent.run("echo two >>a")
        path.write_text(on_disk)
        undone = await agent.undo()
    is_there = "two" in on_disk
    assert undone.left == ((SkippedPath(str(path), UNSAVED),) if is_there else ())
    assert (editor.text(path), path.read_text()) == ("mine\none\n", on_disk)


@prove
async def test_thousands_of_files_come_back(place, project, monkeypatch):
    monkeypatch.setattr("tests.sandboxes.DEADLINE_S", 300)
    count = part(10_000)
    for number in range(count):
        path = project / f"d{number % 100}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    undone, _ = await taken_back(
        place, "for each in d*/*; do echo after >> $each; done; rm -r d7; chmod 700 d8"
    )
    assert len(undone.steps) == count + 2


@pytest.mark.parametrize("is_on", prove_rest([True, False], keep=(-1,)))
async def test_what_is_too_large_is_left_and_all_else_comes_back(place, project, is_on):
    for name in ("changed", "removed", "moved"):
        with (project / name).open("wb") as file:
            file.truncate(1 << 30)
    (project / "small").write_text("before\n")
    async with agent_at(place, is_on=is_on) as agent:
        await agent.run(
            "echo x >> changed; rm removed; mv moved to; truncate -s 1G made; echo after > small",
        )
        undone = await agent.undo()
    left = left_in(project, undone)
    assert set(left) == {"changed", "removed", "moved", "to", "made"}
    assert all("too large" in why for why in left.values())
    assert (project / "small").read_text() == "before\n"
    assert (project / "to").stat().st_size == 1 << 30


def filled(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number in range(5):
        (path / f"file{number}").write_text(f"before {path.name} {number}\n")
        os.utime(path / f"file{number}", (1, 1))
    return path


def repository(path: Path) -> None:
    filled(path)
    git(path, "init", "-q")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")


def submodules(project: Path) -> None:
    repository(project)
    repository(project.parent / "library")
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "sub")
    git(project, "commit", "-qm", "with a library")


def worktree(project: Path) -> None:
    main = project.parent / "main"
    repository(main)
    project.rmdir()
    git(main, "worktree", "add", "-q", str(project))
    filled(project / "nested")


def bare(project: Path) -> None:
    repository(project.parent / "source")
    git(project, "clone", "-q", "--bare", str(project.parent / "source"), ".")


COMMIT = "git -c user.name=A -c user.email=a@example.com commit -qam second"


@pytest.mark.parametrize(
    "prepare, command",
    prove_rest(
        [
            (filled, "echo after > file0; rm file1; mkdir d; mv file2 d"),
            (repository, f"echo after > file0; git rm -q file1; git mv file2 file9; {COMMIT}"),
            (submodules, f"cd sub; echo after > file0; rm file1; {COMMIT}; cd ..; {COMMIT}"),
            (
                worktree,
                f"echo after > file0; rm file1; rm -r nested; {COMMIT}; git checkout -q -b x",
            ),
            (
                bare,
                "git update-ref refs/heads/other HEAD; git gc -q; echo x | git hash-object -w --stdin",
            ),
        ],
        keep=(0, 2, -1),
    ),
)
@pytest.mark.parametrize("is_on", prove_rest([True, False], keep=(-1,)))
async def test_the_files_of_any_repository_come_back(place, project, prepare, command, is_on):
    prepare(project)
    await taken_back(place, command, is_on=is_on)


def staged(project: Path) -> None:
    repository(project)
    (project / "staged").write_text("staged\n")
    git(project, "add", "staged")
    os.utime(project / "staged", (1, 1))
    git(project, "update-index", "--refresh")


def packed(project: Path) -> None:
    repository(project)
    git(project, "gc", "-q")


GC = "git -c gc.reflogExpire=now -c gc.reflogExpireUnreachable=now gc -q --prune=now"


@pytest.mark.parametrize(
    "prepare, command",
    prove_rest(
        [
            (packed, "rm -rf .git; rm file0; echo after > file1"),
            (repository, "find . -mindepth 1 -delete"),
            (staged, f"git reset -q --hard; {GC}"),
            (packed, f"git checkout -q --orphan x; git rm -rqf .; git branch -D main; {GC}"),
            (submodules, "cd sub; rm -rf ../.git/modules; rm file0; echo after > file1"),
        ],
        keep=(0, 2),
    ),
)
@pytest.mark.parametrize("is_on", prove_rest([True, False], keep=(0,)))
async def test_files_come_back_without_gits_objects(place, project, prepare, command, is_on):
    prepare(project)
    before = tree(project)
    async with agent_at(place, is_on=is_on) as agent:
        await agent.run(f"({command}) 2>/dev/null")
        assert tree(project) != before
        await agent.undo()
    assert tree(project) == before


class Swapped(FileRestorer):
    """Restores after somebody has put something else in the place of what was looked at."""

    swap: Callable[[], object]

    async def _take(self, *arguments, **more):
        self.swap()
        return await super()._take(*arguments, **more)


@pytest.mark.parametrize("seed", prove_rest(range(12), keep=(0, 1)))
async def test_nothing_outside_is_touched_whatever_is_swapped_for_a_link(place, project, seed):
    """The sandbox is off: no kernel helps. What lies outside holds just what the agent had made of the project."""
    chance = random.Random(seed)
    outside = place.base / "outside"
    for base in (project, outside):
        for name in ("d/deep/a", "d/b", "e/c", "f"):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text("after\n" if base is outside else "before\n")
    async with agent_at(place) as agent:
        await agent.run(
            "for each in d/deep/a d/b e/c f; do echo after > $each; done; mkdir g; echo new > g/new; chmod 700 d e",
        )
        (outside / "g").mkdir()
        (outside / "g" / "new").write_text("new\n")
        before = tree(outside)

        def swap() -> None:
            for name in chance.sample(["d", "d/deep", "e", "f", "g"], 2):
                path = project / name
                if not path.is_symlink() and path.exists():
                    path.rename(path.with_name(path.name + " moved"))
                    path.symlink_to(outside / name)

        restorer = Swapped(agent.desk.workspace)
        restorer.swap = swap
        timeline = await agent.timeline()
        await restorer.restore("u1", ("p1",), timeline.changes_of(("p1",)))
        assert tree(outside) == before


@prove
async def test_what_would_not_fit_into_memory_is_undone_in_parts(place, project, monkeypatch):
    """A file of 5 MB that is all zeros takes 5 KB in the store: thousands of them would take all memory."""
    monkeypatch.setattr("sanderling.tools.restoring.MAX_HELD_BYTES", 25 << 20)
    monkeypatch.setattr("sanderling.tools.restoring.LOOKED_AT_ONCE", 2)
    names = [f"f{number:02}" for number in range(30)]
    for name in names:
        with (project / name).open("wb") as file:
            file.truncate(4 << 20)
    async with agent_at(place) as agent:
        await agent.run("for each in f*; do printf x > $each; done")
        sizes: list[int] = []
        while True:
            tracemalloc.start()
            undone = await agent.undo("p1")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 100 << 20
            sizes.append(len(undone.steps))
            assert {why for _, why in undone.left} <= {TOO_MUCH}
            if not undone.left:
                break
        assert sum(sizes) == len(names)
        assert len(sizes) > 3
        assert {(project / name).stat().st_size for name in names} == {4 << 20}


async def test_a_command_that_changes_too_many_files_is_beyond_undoing(place, monkeypatch):
    monkeypatch.setattr("sanderling.changes.commands.MAX_CHANGES", 10)
    told: list[str] = []
    async with agent_at(place) as agent:
        workspace = agent.desk.workspace
        workspace.changes._tell = told.append  # type: ignore[method-assign]
        await agent.run("for each in 1 2 3 4 5 6 7 8 9 10 11; do echo > $each; done")
        assert await workspace.journal.turns() == ()
        assert told == [
            "The last command's changes cannot be undone, because it has changed more than 10 files."
        ]
        await agent.run("rm 1")
        (turn,) = await workspace.journal.turns()
        assert [Path(change.path).name for change in turn.changes] == ["1"]


# --- what has several names, is no file, is closed or ignored ------------------------------------------------------------


def linked(project: Path) -> None:
    (project / "d").mkdir(parents=True)
    (project / "a").write_text("one\n")
    for name in ("b", "d/c"):
        os.link(project / "a", project / name)
    (project / "alone").write_text("alone\n")


def special(project: Path) -> None:
    (project / "d").mkdir(parents=True)
    for name in ("pipe", "d/pipe"):
        os.mkfifo(project / name, 0o600)
    (project / "file").write_text("one\n")


def closed(project: Path) -> None:
    project.mkdir(parents=True, exist_ok=True)
    for name in ("a", "b", "c"):
        (project / name).write_text(f"{name}\n")
        (project / name).chmod(0o640)


@pytest.mark.parametrize("is_on", prove_rest([False, True], keep=(0,)))
@pytest.mark.parametrize(
    "prepare, command",
    prove_rest(
        [
            (linked, "echo two >> a"),
            (linked, "rm b"),
            (linked, "rm a b d/c"),
            (linked, "rm -r d a"),
            (linked, "sed -i s/one/two/ b"),
            (linked, "cp b new; mv new b"),
            (linked, "ln -f a alone"),
            (linked, "ln -f alone a; echo more >> alone"),
            (linked, "ln -f alone a; rm b; chmod 600 alone; ln a z"),
            (linked, "rm b; cp alone b; ln -f b d/c"),
            (linked, "echo two >> b; rm d/c; chmod 600 a"),
            (linked, "ln alone other; echo more >> other"),
            (linked, "ln a d/e; rm a"),
            (linked, "mv a z; mv d e"),
            (special, "rm pipe d/pipe"),
            (special, "chmod 644 pipe; mkfifo new; rm -r d"),
            (special, "rm file; mkfifo file; rm pipe; echo x > pipe"),
            (special, "ln -sf file pipe; rm file; ln -s d/pipe file"),
        ]
    ),
)
def test_what_has_several_names_or_is_no_file_comes_back(place, prepare, command, is_on):
    prepare(place.project)
    anyio.run(taken_back, place, command, is_on)


@pytest.mark.parametrize("uid", prove_rest(USERS, keep=(-1,)))
def test_a_file_that_nobody_may_read_any_more_comes_back(uid, monkeypatch):
    async def undone(place: Place, command: str) -> None:
        before = tree(place.project)
        assert (await undone_after(place, command)).left == ()
        assert tree(place.project) == before

    command = "chmod 000 a; echo more >> b; chmod 000 b; echo x > new; chmod 000 new; chmod 444 c"
    as_user(uid, closed, command, monkeypatch, undone)


async def test_a_file_that_nobody_may_read_is_left_when_it_has_been_changed_since(place, project):
    closed(project)
    async with agent_at(place, is_on=True) as agent:
        await agent.run("chmod 000 a b")
        (project / "a").write_text("mine\n")
        undone = await agent.undo()
    if os.geteuid():  # for root nothing is unreadable outside of the sandbox
        assert list(left_in(project, undone)) == ["a"]
    assert (project / "a").read_text() == "mine\n"
    assert (project / "b").read_text() == "b\n"


async def test_a_socket_that_was_made_goes_and_one_that_was_removed_is_named(place, project):
    project.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(project / "old"))
        async with agent_at(place) as agent:
            make = "import socket; socket.socket(socket.AF_UNIX).bind('new')"
            await agent.run(f'rm old; cd {project} && python3 -c "{make}"')
            assert stat.S_ISSOCK((project / "new").stat().st_mode)
            undone = await agent.undo()
    assert not (project / "new").exists()
    left = left_in(project, undone)
    assert (list(left), "it was a socket" in left["old"]) == (["old"], True)


async def test_a_socket_that_somebody_has_made_since_stays(place, project):
    make = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    async with agent_at(place) as agent:
        await agent.run(f'cd {project} && python3 -c "{make}"')
        (project / "s").unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(project / "s"))
            undone = await agent.undo()
            assert (project / "s").exists()
    assert list(left_in(project, undone)) == ["s"]


def ignoring(project: Path) -> None:
    repository(project)
    (project / ".gitignore").write_text("*.log\nbuild/\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "ignoring")
    (project / "build").mkdir()
    for name in ("a.log", "build/out", "d/b.log", "d/file"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x\n")


@pytest.mark.parametrize("is_on", prove_rest([False, True], keep=(0,)))
@pytest.mark.parametrize(
    "command, names",
    prove_rest(
        [
            ("git clean -qxfd", {"a.log", "build", "d/b.log"}),
            ("rm a.log; rm -r build", {"a.log", "build"}),
            ("rm -r d", {"d/b.log"}),
            ("rm a.log; echo > file0; echo again > a.log", set()),
            ("echo >> a.log; rm build/out; rm file1", set()),
            ("rm -rf .git 2>/dev/null; rm file1", {".git/HEAD"}),
        ]
    ),
)
async def test_what_git_ignores_is_named_when_it_is_gone(place, project, command, names, is_on):
    ignoring(project)
    before = {name for name in tree(project) if not names.intersection((name, "build"))}
    undone = await undone_after(place, command, is_on=is_on)
    left = left_in(project, undone)
    assert {name for name in left if name != ".git"} == names
    assert all("git ignores it" in why or "version control" in why for why in left.values())
    assert {name for name in tree(project) if not names.intersection((name, "build"))} >= {
        name for name in before if not name.startswith("build")
    }


def shut(project: Path) -> None:
    project.mkdir(parents=True, exist_ok=True)
    (project / "file").write_text("one\n")
    for name, mode in (("shut", 0), ("blind", 0o300)):
        (project / name / "in").mkdir(parents=True)
        (project / name / "mine").write_text(f"mine in {name}\n")
        (project / name / "in/mine").write_text(f"mine in {name}/in\n")
        (project / name).chmod(mode)


def bytes_of(project: Path) -> list[bytes]:
    for path in project.iterdir():
        if path.is_dir():
            path.chmod(0o700)
    return sorted(path.read_bytes() for path in project.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "command, names",
    prove_rest(
        [
            ("chmod 755 shut blind; ln file other", ""),
            ("chmod 755 shut; echo > .gitignore", ""),
            ("chmod 755 shut; echo > shut/new", ""),
            ("mv shut moved", "moved shut"),
            ("chmod 755 shut; mv shut moved", "moved moved/in moved/in/mine moved/mine shut"),
            ("chmod 755 blind; echo more >> blind/mine; echo new > blind/new", "blind/mine"),
        ]
    ),
)
async def test_what_was_in_a_closed_directory_is_not_new(place, project, command, names):
    shut(project)
    undone = await undone_after(place, command, is_on=True)
    assert sorted(left_in(project, undone)) == names.split()
    for name, mode in (("shut", 0), ("blind", 0o300)):
        assert name in names.split() or stat.S_IMODE((project / name).stat().st_mode) == mode
    more = b"more\n" if "more" in command else b""
    assert bytes_of(project) == sorted(
        [
            b"one\n",
            b"mine in blind\n" + more,
            b"mine in blind/in\n",
            b"mine in shut\n",
            b"mine in shut/in\n",
        ]
    )


@pytest.mark.parametrize(
    "command, moved",
    prove_rest(
        [
            ("mv a.log kept", {"kept": "a.log"}),
            ("mv build kept; echo > kept/new", {"kept/out": "build/out"}),
            ("ln d/b.log kept; rm d/b.log", {"kept": "d/b.log"}),
            ("mv d e; mv e/b.log e/kept; rm -r build", {"e/kept": "d/b.log"}),
        ]
    ),
)
async def test_what_git_ignores_is_not_new_where_it_was_moved_to(place, project, command, moved):
    ignoring(project)
    for name in ("a.log", "build/out", "d/b.log"):
        (project / name).write_text(f"only copy of {name}\n")
    undone = await undone_after(place, command)
    left = left_in(project, undone)
    for name, was in moved.items():
        assert (project / name).read_text() == f"only copy of {was}\n"
        assert "ignored before" in left[name]
    assert not (project / "kept/new").exists()


async def test_what_gets_the_inode_of_something_ignored_is_new(place, project):
    ignoring(project)
    before = {name for name in tree(project) if not name.startswith(("build", "a.log"))}
    again = "rm -r build a.log; mkdir new; echo x > new/file; echo y > z"
    undone = await undone_after(place, again)
    assert set(left_in(project, undone)) == {"build", "a.log"}
    assert set(tree(project)) == before


async def test_what_was_changed_in_a_directory_that_was_then_closed_is_not_gone(place, project):
    (project / "d").mkdir()
    (project / "d/file").write_text("one\n")
    undone = await undone_after(place, "echo two >> d/file; chmod 0 d", is_on=True)
    assert stat.S_IMODE((project / "d").stat().st_mode) == 0o755
    assert left_in(project, undone) == {"d/file": "it may have been changed since: unreadable"}


async def test_what_was_in_a_closed_directory_that_is_gone_is_named(place, project):
    shut(project)
    undone = await undone_after(place, "chmod 755 shut; rm -r shut", is_on=True)
    left = left_in(project, undone)
    assert (list(left), "it could not be read" in left["shut"]) == (["shut"], True)


@pytest.mark.parametrize("made", ["mkfifo f", "mkdir f", "ln -s x f"])
async def test_what_a_killed_undoing_has_taken_away_is_made_again(place, project, made):
    (project / "f").write_text("before\n")
    async with agent_at(place) as agent:
        await agent.run(f"rm f; {made}")
        await die_at(agent, 0)
        path = project / "f"
        path.rmdir() if path.is_dir() else path.unlink()  # as it would have
        finished = await agent.finish(place.base)
        assert finished.left == ()
        assert path.read_text() == "before\n"


def test_a_time_in_whole_seconds_says_nothing_of_a_closed_directory(
    tmp_path,
):
    path = tmp_path / "file"
    path.write_text("one\n")
    hidden = Hidden()
    hidden.is_open(str(tmp_path))
    looked_at_ns = time.time_ns()
    at_the_second = looked_at_ns // 1_000_000_000 * 1_000_000_000
    row = row_of(path.lstat())._replace(ctime_ns=at_the_second)
    changes = {str(path): ChangedRow(str(path), None, row)}
    assert hidden.note(changes, looked_at_ns) == []
    assert changes[str(path)].was_closed
