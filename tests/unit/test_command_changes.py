"""What commands change: found by looking, kept with what was there before, and nobody else's changes with it."""

import os
import random
import socket
import struct
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.conftest import DEADLINE_S, happens, little_work, prove, prove_rest
from tests.sandboxes import in_own_task, kept, policy_below, sandbox_of

from sanderling.changes.commands import CommandChanges
from sanderling.changes.journal import Journal
from sanderling.changes.scan import Scan
from sanderling.changes.states import FileChange, State
from sanderling.changes.store import Store
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.inside.tree import Tree
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.unconfined import Unconfined

pytestmark = pytest.mark.guard

GIT = (
    *("git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c"),
    "init.defaultBranch=main",
)


class Bench:
    """A project with a journal, and commands that run in it."""

    def __init__(self, place: "Place", sandbox: SessionSandbox) -> None:
        self.project = place.project
        self.sandbox = sandbox
        self.told: list[str] = []
        self.has_job = False
        self.journal = Journal(place.root / "changes", "s", str(self.project), self.told.append)
        self.changes = CommandChanges(self.journal, lambda: self.has_job, self.told.append)
        self.count = 0

    async def run(self, command: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run a command as a tool does; `meanwhile` happens when it has ended, and nobody has looked yet."""
        self.count += 1
        async with self.changes.during(self.sandbox.environment, f"t{self.count}"):
            process = await self.sandbox.environment.spawn(
                ["/bin/sh", "-c", f"{command}; echo end"]
            )
            assert process.stdout
            with anyio.fail_after(DEADLINE_S):
                while b"end" not in await process.stdout.receive():
                    pass
                await process.wait()
            process.close()
            meanwhile()

    async def changed(self) -> dict[str, FileChange]:
        turn = await self.journal.latest()
        found = turn.changes if turn else ()
        return {self.shown(each): each for each in found}

    async def doubtful(self) -> list[str]:
        turn = await self.journal.latest()
        return [self.shown(each) for each in (turn.doubtful if turn else ())]

    def shown(self, change: FileChange) -> str:
        return change.path.removeprefix(f"{self.project}/")

    async def text(self, state: State) -> bytes | None:
        return await self.journal.content(state)


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "home" / "project"

    @asynccontextmanager
    async def bench(self, *, is_on: bool = False) -> AsyncIterator[Bench]:
        sandbox = sandbox_of(policy_below(self.root), is_on=is_on)
        async with kept(sandbox):
            bench = Bench(self, sandbox)
            yield bench
            bench.journal.close()

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [*GIT, *arguments], cwd=cwd or self.project, check=True, capture_output=True, text=True
        )
        return done.stdout

    def commit(self, cwd: Path | None = None) -> None:
        self.git("init", "-q", cwd=cwd)
        self.git("add", "-A", "--force", cwd=cwd)
        self.git("commit", "-qm", "x", cwd=cwd)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: object) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    place.project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return place


@pytest.fixture
def project(place: Place) -> Path:
    return place.project


@pytest.fixture
async def bench(place: Place) -> AsyncIterator[Bench]:
    async for bench in in_own_task(place.bench()):
        yield bench


@pytest.fixture
async def confined(place: Place) -> AsyncIterator[Bench]:
    async for bench in in_own_task(place.bench(is_on=True)):
        yield bench


def settle(project: Path) -> None:
    """Let git be sure of its files: their times must be older than its index."""
    for path in project.rglob("*"):
        if ".git" not in path.parts and path.is_file():
            os.utime(path, (1, 1))


@pytest.mark.parametrize("is_on", prove_rest([True, False], keep=(0,)))
@pytest.mark.parametrize("has_git", [True, False])
async def test_what_a_command_does_is_known_with_what_was_there(place, project, is_on, has_git):
    for name in ("changed", "deleted", "renamed", "moded", "kept", "linked"):
        (project / name).write_text(f"old {name}")
    (project / "link").symlink_to("kept")
    (project / "d").mkdir()
    (project / "d" / "in").write_text("in d")
    if has_git:
        settle(project)
        place.commit()
    async with place.bench(is_on=is_on) as bench:
        await bench.run(
            "printf new > changed; rm deleted; mv renamed new-name; chmod 755 moded; ln -sf changed link;"
            " ln -sf kept linked; mkdir -p e/f; printf x > e/f/g; rm -r d; touch kept"
        )
        changed = await bench.changed()
        befores = {
            name: (each.before.kind, await bench.text(each.before))
            for name, each in changed.items()
        }
        afters = {
            name: (each.after.kind, await bench.text(each.after)) for name, each in changed.items()
        }
        assert befores == {
            "changed": ("file", b"old changed"),
            "deleted": ("file", b"old deleted"),
            "renamed": ("file", b"old renamed"),
            "new-name": ("absent", None),
            "moded": ("file", b"old moded"),
            "link": ("link", None),
            "linked": ("file", b"old linked"),
            "e": ("absent", None),
            "e/f": ("absent", None),
            "e/f/g": ("absent", None),
            "d": ("directory", None),
            "d/in": ("file", b"in d"),
        }
        assert afters["changed"] == ("file", b"new")
        assert afters["new-name"] == ("file", b"old renamed")
        assert changed["moded"].after.mode == 0o755
        assert (changed["link"].before.target, changed["link"].after.target) == ("kept", "changed")
        assert (afters["linked"], afters["e"], afters["d"]) == (
            ("link", None),
            ("directory", None),
            ("absent", None),
        )
        assert bench.told == []


async def test_what_the_person_changes_between_commands_is_theirs(project, bench):
    (project / "a").write_text("1")
    await bench.run("true")
    (project / "a").write_text("2")
    (project / "b").write_text("of the person")
    await bench.run("true")
    assert await bench.changed() == {}
    await bench.run("printf 3 > a")
    change = (await bench.changed())["a"]
    assert await bench.text(change.before) == b"2"


async def test_a_change_shows_in_the_change_time_alone(project, bench):
    (project / "a").write_text("one")
    os.utime(project / "a", (1, 1))
    await bench.run("printf two > a; touch -d @1 a")
    assert await bench.text((await bench.changed())["a"].before) == b"one"


async def test_what_was_changed_a_moment_ago_can_be_told_from_what_is_changed_now(project, bench):
    await bench.run("true")
    for number in range(10):
        (project / "a").write_text(f"{number:03}")
        await bench.run(f"printf {number + 500} > a")
        change = (await bench.changed())["a"]
        assert await bench.text(change.after) == b"%d" % (number + 500)
    records = await bench.journal.turns()
    texts = [await bench.text(each.before) for each in records[0].changes]
    assert texts == [b"000"] or texts == [b"%03d" % number for number in range(10)]


async def test_look_ahead_that_comes_late_takes_no_change_from_the_command(monkeypatch, confined):
    """Its own would be nobody's: the project as it was before."""
    await confined.run("true")
    look, count, is_run = confined.journal.scan.look, 0, anyio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == 1:  # that of the command's begin, while which the other one comes
            tasks.start_soon(confined.changes.look_ahead, confined.sandbox.environment)
            await anyio.wait_all_tasks_blocked()
        elif count == 2:
            await is_run.wait()
        return await look(*arguments, **options)

    monkeypatch.setattr(confined.journal.scan, "look", slow)
    async with anyio.create_task_group() as tasks:
        await confined.run("echo made >file", is_run.set)
    assert list(await confined.changed()) == ["file"]


async def test_look_ahead_leaves_what_is_to_be_reviewed_to_the_guest_whose_turn_has_begun(
    place, confined
):
    environment = confined.sandbox.environment
    async with confined.changes.during(environment, "guest", are_edits=True):
        (place.project / "file").write_text("made\n")
        await confined.changes.look_ahead(environment)
        assert len(await confined.changes.look(environment)) == 1


@pytest.mark.parametrize("is_anew", prove_rest([True, False], keep=(0,)))
async def test_what_an_undoing_took_away_and_a_person_made_again_is_theirs(
    place, confined, is_anew
):
    """Also where the sandbox was opened anew in between: that has seen neither."""
    made = place.project / "X"
    made.write_text("the agent's\n")
    await confined.run("true")
    made.unlink()
    confined.journal.scan.removed(str(made))
    if is_anew:
        confined.sandbox.manager._leave()
    else:
        await confined.changes.look_ahead(confined.sandbox.environment)
    made.write_text("the person's\n")
    await confined.changes.look_ahead(confined.sandbox.environment)
    await confined.run("rm X")
    found = (await confined.changed())["X"]
    assert await confined.text(found.before) == b"the person's\n"


@prove
async def test_names_may_hold_anything(project, confined):
    names = [b"new\nline", b"\xff\xfe", b"-rf", b"a b", "é".encode(), b"*", b"'\""]
    for name in names:
        (project / os.fsdecode(name)).write_bytes(b"old")
    await confined.run('for each in *; do printf new > "./$each"; done')
    changed = await confined.changed()
    assert {os.fsencode(name) for name in changed} == set(names)
    assert {await confined.text(each.before) for each in changed.values()} == {b"old"}


async def test_pipes_and_sockets_are_neither_opened_nor_kept(place, project):
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(project / "socket"))
        async with place.bench() as bench:
            await bench.run("rm pipe socket; mkfifo other")
            kinds = {
                name: (each.before.kind, each.after.kind)
                for name, each in (await bench.changed()).items()
            }
            assert kinds == {
                "pipe": ("fifo", "absent"),
                "socket": ("socket", "absent"),
                "other": ("absent", "fifo"),
            }


async def test_a_large_file_is_told_at_once_as_not_restorable(project, confined):
    with (project / "large").open("wb") as file:
        file.truncate(1 << 30)
    await confined.run("echo more >> large")
    assert (await confined.changed())["large"].before.lost == "too large"
    assert confined.told == [f"{project}/large cannot be restored: too large."]


async def test_what_is_ignored_is_left_out_unless_it_is_tracked(place, project, confined):
    (project / ".gitignore").write_text("*.o\n/build/\n")
    (project / "build").mkdir()
    (project / "build" / "tracked").write_text("old")
    settle(project)
    place.commit()
    await confined.run("touch a.o build/new; printf new > build/tracked; touch a.c")
    changed = await confined.changed()
    assert set(changed) == {"build/tracked", "a.c"}
    assert await confined.text(changed["build/tracked"].before) == b"old"


async def test_what_is_ignored_no_more_is_not_taken_for_new(project, bench):
    (project / ".gitignore").write_text("*.o\nd/\n")
    (project / "d").mkdir()
    (project / "d" / "in").write_text("in")
    (project / "a.o").write_text("object")
    await bench.run("echo > .gitignore; touch new")
    changed = await bench.changed()
    assert changed["new"].before.kind == "absent"
    for name in ("a.o", "d/in"):
        assert changed[name].before.lost
    assert len(bench.told) == 1


@pytest.mark.parametrize("is_watched", [True, False])
async def test_hard_links_change_by_all_of_their_names(project, bench, is_watched, monkeypatch):
    if not is_watched:
        monkeypatch.setattr("sanderling.sandbox.inside.watches.MAX_WATCHES", 0)
    (project / "d").mkdir()
    (project / "a").write_text("old")
    os.link(project / "a", project / "d" / "b")
    await bench.run("printf new > d/b")
    changed = await bench.changed()
    assert {name: await bench.text(each.before) for name, each in changed.items()} == {
        "a": b"old",
        "d/b": b"old",
    }


@prove
async def test_line_ends_that_git_makes_are_those_of_the_file(place, project, confined):
    (project / ".gitattributes").write_text("*.bat text eol=crlf\n*.rot filter=rot\n")
    (project / "a.bat").write_bytes(b"one\r\ntwo\r\n")
    (project / "a.rot").write_bytes(b"abc")
    place.git("init", "-q")
    place.git("config", "filter.rot.clean", "tr a-z b-za")
    settle(project)
    place.git("add", "-A")
    await confined.run("printf new > a.bat; printf new > a.rot")
    changed = await confined.changed()
    assert await confined.text(changed["a.bat"].before) == b"one\r\ntwo\r\n"
    assert await confined.text(changed["a.rot"].before) == b"abc"


async def test_submodules_and_worktrees_have_their_own_objects(place, project, bench):
    library = project / "library"
    library.mkdir()
    (library / "a").write_text("of the library")
    settle(project)
    place.commit(library)
    main = place.root / "home" / "main"
    main.mkdir()
    (main / "b").write_text("of the tree")
    place.commit(main)
    place.git("worktree", "add", "-q", str(project / "tree"), cwd=main)
    (project / "c").write_text("loose")
    await bench.run("printf new > library/a; printf new > tree/b; printf new > c")
    texts = {name: await bench.text(each.before) for name, each in (await bench.changed()).items()}
    assert texts == {"library/a": b"of the library", "tree/b": b"of the tree", "c": b"loose"}


async def test_no_program_of_a_hostile_repository_runs_outside(place, project, bench):
    trap = place.root / "trapped"
    (project / "a").write_text("old")
    (project / ".gitattributes").write_text("* diff=x\n")
    settle(project)
    place.commit()
    for key in (
        *("core.fsmonitor", "diff.x.textconv", "core.pager", "core.sshCommand", "alias.cat-file"),
    ):
        place.git("config", key, f"!touch {trap}" if key.startswith("alias") else f"touch {trap}")
    place.git("config", "extensions.partialClone", "origin")
    place.git("config", "remote.origin.url", f"ext::touch {trap}")
    index = (project / ".git" / "index").stat().st_ctime_ns
    await bench.run("printf new > a")
    assert await bench.text((await bench.changed())["a"].before) == b"old"
    assert not trap.exists()
    assert (project / ".git" / "index").stat().st_ctime_ns == index


def forge(project: Path, named: str, data: bytes) -> str:
    """Have git's object of this name hold other bytes, as a command can."""
    path = project / ".git" / "objects" / named[:2] / named[2:]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(zlib.compress(b"blob %d\0" % len(data) + data))
    return named


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_on", [True, False])
async def test_an_object_that_was_forged_is_no_copy(place, project, is_on, is_known):
    """One that was known before it was forged is held as it was."""
    for name in ("a", "b"):
        (project / name).write_text(f"of the person {name}")
    settle(project)
    place.commit()
    async with place.bench(is_on=is_on) as bench:
        if is_known:
            await bench.run("true")
        forge(project, place.git("rev-parse", ":a").strip(), b"of the attacker")
        await bench.run("true")
        await bench.run("printf new > a; printf new > b")
        changed = await bench.changed()
        assert await bench.text(changed["a"].before) == (b"of the person a" if is_known else None)
        assert bool(changed["a"].before.lost) != is_known
        assert await bench.text(changed["b"].before) == b"of the person b"


@prove
async def test_no_more_of_an_object_is_read_than_its_file_can_have_held(place, project, bench):
    for name in ("a", "b"):
        (project / name).write_text(f"of the person {name}")
    settle(project)
    place.commit()
    forge(project, place.git("rev-parse", ":a").strip(), bytes(64 << 20))
    await bench.run("true")
    tracemalloc.start()
    await bench.run("printf new > a; printf new > b")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (await bench.changed())["a"].before.lost
    assert peak < 8 << 20


async def test_two_commands_at_once_change_what_they_change(project, bench):
    (project / "a").write_text("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.run, "printf 1 > a")
        tasks.start_soon(bench.run, "printf 2 > b; sleep 0.1; printf 3 > c")
    assert set(await bench.changed()) == {"a", "b", "c"}


async def test_what_changes_while_only_a_job_runs_is_doubtful(project, bench):
    bench.has_job = True
    await bench.run("touch certain")
    (project / "maybe").write_text("who knows")
    await bench.run("true")
    assert (set(await bench.changed()), await bench.doubtful()) == ({"certain"}, ["maybe"])
    bench.has_job = False
    await bench.run("true")
    (project / "mine").write_text("of the person")
    await bench.run("true")
    assert await bench.doubtful() == ["maybe"]


async def test_what_the_person_does_meanwhile_is_doubtful(project, bench):
    await bench.run("touch a", lambda: bench.changes.saved(str(project / "a")))
    with bench.changes.of_person():
        await bench.run("touch b")
    await bench.run("touch c")
    assert (set(await bench.changed()), await bench.doubtful()) == ({"c"}, ["a", "b"])


async def test_an_edit_is_recorded_once(project, bench):
    (project / "a").write_text("old")
    await bench.run("true")
    files = await bench.sandbox.environment.files()
    loaded = await files.load(str(project / "a"), 100)

    async def edit() -> None:
        path = str(project / "a")
        async with bench.journal.editing(
            path, loaded.data, loaded.stamp.mode, b"edited", "e1"
        ) as made:
            made.stamp = await files.write(path, b"edited")

    async with bench.changes.during(bench.sandbox.environment, "t9"):
        await edit()
    change = (await bench.changed())["a"]
    assert change.tool_use_id == "e1"
    await bench.run("printf more >> a")
    assert await bench.text((await bench.changed())["a"].before) == b"old"


async def test_home_and_what_is_too_large_are_refused_with_a_sentence(place, project, monkeypatch):
    (project / "a").write_text("1")
    monkeypatch.setattr("sanderling.sandbox.inside.tree.MAX_FILES", 0)
    async with place.bench() as bench:
        for _ in range(2):
            await bench.run("touch b")
        assert [text.partition(", because ")[2] for text in bench.told] == [
            "it has more than 200,000 files and directories. Changes by the edit tools can be."
        ]
    monkeypatch.setenv("HOME", str(project))
    async with place.bench() as bench:
        await bench.run("touch c")
        assert "it is the home directory" in bench.told[0]


async def test_a_state_directory_that_cannot_be_written_is_told_and_stops_nothing(
    place, project, bench
):
    (project / "a").write_text("old")
    (place.root / "changes").write_text("a file, where the directory should be")
    await bench.run("printf new > a")
    assert (await bench.changed())["a"].before.lost == "no room"
    assert bench.told


async def test_what_a_command_has_changed_is_told_as_unknown_where_nobody_could_look(confined):
    await confined.run("touch a", lambda: confined.sandbox.set_mode("ro"))
    assert await confined.changed() == {}
    assert confined.told == [
        "The last command's changes cannot be undone, because the sandbox was switched on or off meanwhile."
    ]


@pytest.mark.parametrize("seed", prove_rest(range(20)))
@pytest.mark.parametrize("is_watched", [True, False])
async def test_any_change_of_a_tree_is_found(project, bench, seed, is_watched, monkeypatch):
    """What is recorded leads from the tree before to the tree after, whatever a command does."""
    if not is_watched:
        monkeypatch.setattr("sanderling.sandbox.inside.watches.MAX_WATCHES", 0)
    some = random.Random(seed)
    names = ["a", "b", "c", "d"]

    def place_of() -> str:
        return "/".join(some.choice(names) for _ in range(some.randint(1, 3)))

    def step() -> str:
        one, other = place_of(), place_of()
        return some.choice(
            [
                *(f"mkdir -p {one}", f"rm -rf {one}", f"mv {one} {other}", f"cp -a {one} {other}"),
                *(f"echo {some.random()} > {one}", f"ln -sfn {other} {one}"),
                f"chmod {some.choice(['700', '750'])} {one}",
                f"mkdir -p {one} && echo x > {one}/{some.choice(names)}",
            ]
        )

    def tree() -> dict[str, object]:
        found: dict[str, object] = {}
        for path in project.rglob("*"):
            mode = path.lstat().st_mode & 0o777
            name = str(path.relative_to(project))
            found[name] = (
                str(path.readlink())
                if path.is_symlink()
                else (mode, None if path.is_dir() else path.read_bytes())
            )
        return found

    async def known(state: State) -> object:
        match state.kind:
            case "absent":
                return None
            case "link":
                return state.target
            case "directory":
                return (state.mode, None)
            case _:
                return (state.mode, await bench.text(state))

    def quiet(steps: int) -> str:
        return "; ".join(f"{{ {step()}; }} 2>/dev/null" for _ in range(steps))

    await bench.run(quiet(20))
    for number in range(8):
        before = tree()
        bench.journal.begin_turn(f"p{number}")
        await bench.run(quiet(5))
        after = tree()
        turn = await bench.journal.latest()
        changes = turn.changes if turn and turn.turn == f"p{number}" else ()
        for change in changes:
            name = bench.shown(change)
            assert await known(change.before) == before.get(name)
            assert await known(change.after) == after.get(name)
            before[name] = after.get(name)
        assert {name: what for name, what in before.items() if what is not None} == after


async def test_directories_count_as_well_as_files(project, monkeypatch, bench):
    monkeypatch.setattr("sanderling.sandbox.inside.tree.MAX_FILES", 50)
    for number in range(60):
        (project / f"d{number}").mkdir()
    await bench.run("true")
    assert "more than 200,000 files" in bench.told[0]


async def test_a_look_that_ends_after_its_session_leaves_nothing_open(project, monkeypatch, bench):
    (project / "a").write_text("1")
    begun, go_on = threading.Event(), threading.Event()
    look = Tree.look

    def slowly(tree: Tree) -> object:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return look(tree)

    monkeypatch.setattr(Tree, "look", slowly)
    closed: list[Tree] = []
    close = Tree.close
    monkeypatch.setattr(Tree, "close", lambda tree: (close(tree), closed.append(tree)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.run, "true")
        await anyio.to_thread.run_sync(begun.wait)
        bench.journal.close()
        go_on.set()
        await happens(lambda: closed)
        assert not closed[0].is_watched


def index_of(*names: str) -> bytes:
    """An index of git's, as anybody can write it."""
    entries = b""
    for name in names:
        entry = struct.pack(
            ">10I20sH", *[1] * 6, 0o100644, 0, 0, 1, bytes(20), min(len(name), 4095)
        )
        entry += name.encode()
        entries += entry + bytes(8 - len(entry) % 8)
    return struct.pack(">4sII", b"DIRC", 2, len(names)) + entries


@prove
async def test_an_index_that_names_a_large_file_of_attributes_again_and_again_costs_no_time(
    place, project
):
    """Each is understood on its own: thousands of times the same one would take days."""
    (project / ".gitattributes").write_text(
        "".join(f"[a-c]?*x{number} ident\n" for number in range(5000))
    )
    (project / ".git").mkdir()
    (project / "d").mkdir()
    names = ("d/../" * number + ".gitattributes" for number in range(1, 700))
    (project / ".git" / "index").write_bytes(index_of(*names))
    (project / "a").write_text("old")
    with little_work():
        async with place.bench() as bench:
            await bench.run("printf new > a")
            assert await bench.text((await bench.changed())["a"].before) == b"old"


def test_many_directories_that_name_the_same_index_take_no_more_room_than_one(project, monkeypatch):
    monkeypatch.setattr("sanderling.sandbox.inside.tree.MAX_ENTRIES", 250)
    (project / "repository").mkdir()
    (project / "repository" / "index").write_bytes(index_of(*(f"f{n}" for n in range(100))))
    for number in range(10):
        (project / f"d{number}").mkdir()
        (project / f"d{number}" / ".git").write_text(f"gitdir: {project}/repository\n")
    tree = Tree(str(project))
    tree.look()
    tree.unclean()
    assert sum(len(index.entries) for index in tree._indexes.values()) <= 250
    assert len(tree._indexes) == 10
    tree.close()


async def test_look_that_is_cut_off_while_it_copies_leaves_the_rest_to_the_next(tmp_path):
    path = tmp_path / "project/notes"
    path.parent.mkdir()
    path.write_text("first\n")
    scan = Scan(str(path.parent), Store(tmp_path / "store", tmp_path), tmp_path / "copies")
    policy = SandboxPolicy(project=str(path.parent), home=str(tmp_path), state_dir=str(tmp_path))
    environment = Unconfined(policy, lambda: None)
    await scan.look(environment, is_whole=False)
    path.write_text("the person's\n")
    copies = scan._scanner.copies
    with anyio.CancelScope() as turn:

        async def cut_off(*asked):
            turn.cancel()
            return await copies(*asked)

        scan._scanner.copies = cut_off
        await scan.look(environment, is_whole=False)
    assert turn.cancelled_caught
    scan._scanner.copies = copies
    await scan.look(environment, is_whole=False)
    path.write_text("the command's\n")
    [change] = await scan.look(environment)
    assert change.before.lost == ""
    assert change.before.size == len("the person's\n")
