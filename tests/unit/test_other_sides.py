"""Projects on file systems with another side or coarse times, of which the kernel tells nothing: what somebody else changes there is theirs."""

import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import happens, prove_rest
from tests.unit.test_command_changes import Bench, Place

SFTP = "/usr/lib/openssh/sftp-server"

pytestmark = pytest.mark.guard


class Sides(NamedTuple):
    """The place with a project on a mount, and the directory by which somebody else changes it."""

    place: Place
    other: Path


def need(*programs: str) -> None:
    missing = [each for each in programs if not shutil.which(each)]
    if missing or os.geteuid():
        pytest.skip(f"needs root and {' '.join(missing)}")


def run(*argv: str | Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot be mounted here: {done.stderr.strip()}")


@contextmanager
def mounted(kind: str, base: Path, project: Path) -> Iterator[Path]:
    """Mount `project`; yield the directory of its other side."""
    other = base / "other"
    other.mkdir()
    match kind:
        case "bindfs":
            need("bindfs")
            run("bindfs", other, project)
        case "cached":  # the kernel asks FUSE no more for what it has seen
            need("bindfs")
            run("bindfs", "-o", "attr_timeout=100,entry_timeout=100", other, project)
        case "sshfs":
            need("sshfs", SFTP)
            options = f"directport=0,dcache_timeout=1,ssh_command={base}/ssh"
            (base / "ssh").write_text(f"#!/bin/sh\nexec {SFTP}\n")
            (base / "ssh").chmod(0o755)
            options = options.removeprefix("directport=0,")
            run("sshfs", "-o", options, f"there:{other}", project)
        case "overlay":
            need("mount")
            upper, work = base / "upper", base / "work"
            for each in (upper, work):
                each.mkdir()
            options = f"lowerdir={other},upperdir={upper},workdir={work}"
            run("mount", "-t", "overlay", "-o", options, "overlay", project)
        case "seconds":  # inodes without room for nanoseconds
            need("mount", "mkfs.ext4")
            run("truncate", "-s", "20M", base / "image")
            run("mkfs.ext4", "-q", "-I", "128", base / "image")
            run("mount", "-o", "loop", base / "image", project)
            other.rmdir()
            other.symlink_to(project)
        case "tmpfs":
            need("mount")
            run("mount", "-t", "tmpfs", "tmpfs", project)
            other.rmdir()
            other.symlink_to(project)
    try:
        yield other
    finally:
        subprocess.run(["umount", "-l", project], check=False, capture_output=True)


@contextmanager
def sides(kind: str, base: Path) -> Iterator[Sides]:
    place = Place(base)
    place.project.mkdir(parents=True)
    with mounted(kind, base, place.project) as other:
        yield Sides(place, other)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: object) -> Path:  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


async def before_of(bench: Bench) -> dict[str, bytes | None]:
    return {name: await bench.text(each.before) for name, each in (await bench.changed()).items()}


@pytest.mark.parametrize("is_on", prove_rest([False, True], keep=(0,)))
@pytest.mark.parametrize("kind", ["bindfs", "cached", "sshfs", "overlay"])
async def test_what_changes_on_the_other_side_is_not_the_commands(base, kind, is_on):
    with sides(kind, base) as (place, other):
        for name in ("f", "u", "d/x", "gone"):
            (other / name).parent.mkdir(exist_ok=True)
            (other / name).write_text("one\n")
        async with place.bench(is_on=is_on) as bench:
            await bench.run("cat f u d/x gone; ls -lR")
            if kind == "sshfs":  # which itself believes for a while what it has read
                await happens(lambda: is_past_a_second(other))
            for name in ("f", "u", "d/x"):
                with (other / name).open("a") as file:
                    file.write("theirs\n")
            (other / "gone").unlink()
            (other / "new").write_text("theirs\n")
            await bench.run("echo agents >> f; rm d/x; echo agents > made")
            assert await before_of(bench) == {
                "f": b"one\ntheirs\n",
                "d/x": b"one\ntheirs\n",
                "made": None,
            }


_begun: dict[Path, float] = {}


def is_past_a_second(other: Path) -> bool:
    """Say whether the caches of a second's life are empty: a file that is touched again and again has another time."""
    (other / "clock").touch()
    now = (other / "clock").stat().st_mtime
    return now - _begun.setdefault(other, now) > 2.5


@pytest.mark.parametrize("has_git", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
async def test_what_changes_by_a_link_outside_is_not_the_commands(base, has_git, is_known):
    place = Place(base)
    place.project.mkdir(parents=True)
    (place.project / "f").write_text("one\n")
    if has_git:
        place.commit()
    if is_known:
        os.link(place.project / "f", base / "outside")
    async with place.bench() as bench:
        await bench.run("true")
        if not is_known:
            os.link(place.project / "f", base / "outside")
        with (base / "outside").open("a") as file:
            file.write("theirs\n")
        await bench.run("echo agents >> f")
        if is_known:
            assert await before_of(bench) == {"f": b"one\ntheirs\n"}
        else:  # nobody can tell who has changed what
            assert (await bench.changed(), await bench.doubtful()) == ({}, ["f"])


async def test_a_link_that_a_command_makes_inside_leaves_no_doubt(base):
    place = Place(base)
    place.project.mkdir(parents=True)
    (place.project / "f").write_text("one\n")
    async with place.bench() as bench:
        await bench.run("true")
        await bench.run("ln f g; echo agents >> f")
        assert await bench.doubtful() == []
        assert await before_of(bench) == {"f": b"one\n", "g": None}


@pytest.mark.parametrize("is_watched", [True, False])
async def test_two_changes_in_one_second_are_two(base, is_watched, monkeypatch):
    if not is_watched:
        monkeypatch.setattr("sanderling.sandbox.inside.watches.MAX_WATCHES", 0)
    with sides("seconds", base) as (place, _):
        for name in ("f", "g", "h"):
            (place.project / name).write_text("one\n")
        async with place.bench() as bench:
            await bench.run("true")
            for number in range(100, 110):
                text = f"{number}\n"
                for name in ("f", "g"):
                    (place.project / name).write_text(text)
                bench.journal.begin_turn(text)
                await bench.run(f"printf '{number + 500}\n' > f; printf '{number + 500}\n' > new")
                latest = await bench.journal.latest()
                assert latest.turn == text
                found = {
                    bench.shown(each): await bench.text(each.before) for each in latest.changes
                }
                assert found["f"] == text.encode()
                assert set(found) == {"f", "new"}
                (place.project / "new").unlink()


async def test_an_edit_and_a_change_in_the_same_second_are_two(base):
    with sides("seconds", base) as (place, _):
        path = place.project / "f"
        path.write_text("one\n")
        async with place.bench() as bench:
            await bench.run("true")
            for number in range(100, 110):
                bench.journal.begin_turn(f"p{number}")
                old, new = path.read_bytes(), b"%d\n" % number
                files = await bench.sandbox.environment.files()
                async with bench.journal.editing(str(path), old, 0o644, new, "e") as edit:
                    edit.stamp = await files.write(str(path), new)
                await bench.run(f"printf '{number + 500}\n' > f")
                latest = await bench.journal.latest()
                (change,) = latest.changes
                assert await bench.text(change.before) == old
                assert await bench.text(change.after) == b"%d\n" % (number + 500)
                bench.journal.begin_turn(f"q{number}")
                await bench.run("true")
                latest = await bench.journal.latest()
                assert latest.turn == f"p{number}"


async def test_what_was_written_into_a_map_is_found_when_that_ends(base):
    """No time of the file tells of it: the page has been written before, and the kernel does not look again."""
    with sides("tmpfs", base) as (place, _):
        path = place.project / "f"
        path.write_text("...\n")
        async with place.bench() as bench:
            with path.open("r+b") as file:
                view = mmap.mmap(file.fileno(), 0)
            view[:3] = b"one"
            await bench.run("true")
            status = path.stat()

            def act() -> None:
                view[:3] = b"two"
                view.close()
                assert path.stat().st_ctime_ns == status.st_ctime_ns

            await bench.run("true", act)
            assert await before_of(bench) == {"f": b"one\n"}


async def test_nothing_is_left_behind_where_gits_files_go(base):
    """A file that is open when it goes gets another name on such a file system."""
    with sides("bindfs", base) as (place, other):
        (place.project / "f").write_text("one\n")
        place.commit()
        place.git("gc", "-q")
        async with place.bench() as bench:
            await bench.run("true")
            await bench.run("rm -rf .git")
            assert [path.name for path in other.iterdir()] == ["f"]
