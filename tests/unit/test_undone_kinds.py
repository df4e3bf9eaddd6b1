"""Undoing what is more than bytes: hard links, FIFOs, sockets, modes that forbid to read, and what git ignores."""

import os
import socket
import stat
import time
from pathlib import Path

import anyio
import pytest
from tests.conftest import prove_rest
from tests.sandbox.child import USERS
from tests.unit.test_file_tools import Place
from tests.unit.test_file_tools import place as place  # noqa: PLC0414 - a fixture
from tests.unit.test_file_tools import project as project  # noqa: PLC0414
from tests.unit.test_restorer import agent_at, die_at, left_in, taken_back, tree, undone_after
from tests.unit.test_undone_trees import as_user, git, repository

from sanderling.sandbox.inside.hidden import Hidden
from sanderling.sandbox.inside.rows import ChangedRow, row_of

pytestmark = pytest.mark.guard


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
    ],
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
    [
        ("git clean -qxfd", {"a.log", "build", "d/b.log"}),
        ("rm a.log; rm -r build", {"a.log", "build"}),
        ("rm -r d", {"d/b.log"}),
        ("rm a.log; echo > file0; echo again > a.log", set()),
        ("echo >> a.log; rm build/out; rm file1", set()),
        ("rm -rf .git 2>/dev/null; rm file1", {".git/HEAD"}),
    ],
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
    [
        ("chmod 755 shut blind; ln file other", ""),
        ("chmod 755 shut; echo > .gitignore", ""),
        ("chmod 755 shut; echo > shut/new", ""),
        ("mv shut moved", "moved shut"),
        ("chmod 755 shut; mv shut moved", "moved moved/in moved/in/mine moved/mine shut"),
        ("chmod 755 blind; echo more >> blind/mine; echo new > blind/new", "blind/mine"),
    ],
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
    [
        ("mv a.log kept", {"kept": "a.log"}),
        ("mv build kept; echo > kept/new", {"kept/out": "build/out"}),
        ("ln d/b.log kept; rm d/b.log", {"kept": "d/b.log"}),
        ("mv d e; mv e/b.log e/kept; rm -r build", {"e/kept": "d/b.log"}),
    ],
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
