"""git's objects that are held: whatever removes them from the disk, they can be read, and damage is never taken for an object."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import prove_rest
from tests.unit.test_command_changes import GIT

from sanderling.changes.git import digest_of
from sanderling.sandbox.inside.git_objects import Held

LIMIT = 5 << 20


def git(project: Path, *arguments: str) -> bytes:
    done = subprocess.run([*GIT, *arguments], cwd=project, check=True, capture_output=True)
    return done.stdout


def history(project: Path) -> dict[bytes, bytes]:
    """A repository with files that change a little from commit to commit, as git makes deltas of; the objects of the files."""
    project.mkdir()
    git(project, "init", "-q")
    lines = [f"line {number} of a text that is long enough\n" for number in range(3000)]
    for number in range(8):
        lines[number * 300 : number * 300 + 20] = [f"changed {number}\n"]
        (project / "text").write_text("".join(lines))
        (project / "bytes").write_bytes(random.Random(number).randbytes(100_000))
        (project / "empty").write_bytes(b"")
        git(project, "add", "-A")
        git(project, "commit", "-qm", str(number))
    objects = git(project, "rev-list", "--objects", "--all").split(b"\n")
    names = {line.split()[0].decode() for line in objects if line}
    return {
        bytes.fromhex(name): git(project, "cat-file", "blob", name)
        for name in names
        if git(project, "cat-file", "-t", name) == b"blob\n"
    }


@pytest.mark.parametrize(
    "pack",
    prove_rest(
        [
            (),
            ("repack", "-qadf", "--depth=50"),
            ("-c", "repack.usedeltabaseoffset=false", "repack", "-qadf"),
            ("-c", "pack.indexversion=1", "repack", "-qadf"),
        ],
        is_one=True,
    ),
    ids=["loose", "offsets", "names", "old index"],
)
def test_objects_that_are_gone_are_read(tmp_path, pack):
    blobs = history(tmp_path / "p")
    if pack:
        git(tmp_path / "p", *pack)
    held = Held(str(tmp_path / "p/.git/objects"))
    held.hold(blobs)
    shutil.rmtree(tmp_path / "p" / ".git")
    found = {name: held.read(name, LIMIT) for name in blobs}
    held.close()
    is_old = "pack.indexversion=1" in pack
    assert found == (
        dict.fromkeys(blobs) if is_old else blobs
    )  # git has written another one since 2008


def test_new_packs_are_held_with_what_is_needed_next(tmp_path):
    history(tmp_path / "p")
    held = Held(str(tmp_path / "p/.git/objects"))
    held.hold([])
    (tmp_path / "p" / "new").write_text("new\n")
    name = git(tmp_path / "p", "hash-object", "-w", "new").strip().decode()
    git(tmp_path / "p", "add", "new")
    git(tmp_path / "p", "commit", "-qm", "new")
    git(tmp_path / "p", "gc", "-q")
    held.hold([bytes.fromhex(name)])
    shutil.rmtree(tmp_path / "p" / ".git")
    assert held.read(bytes.fromhex(name), LIMIT) == b"new\n"
    assert held.read(bytes.fromhex(name), 3) is None  # too large
    held.close()


@pytest.mark.parametrize("seed", prove_rest(range(3), is_one=True))
def test_a_damaged_pack_gives_no_other_bytes_and_comes_to_an_end(tmp_path, seed):
    blobs = history(tmp_path / "p")
    git(tmp_path / "p", "repack", "-qadf")
    chance = random.Random(seed)
    files = [next((tmp_path / "p/.git/objects/pack").glob(f"*.{end}")) for end in ("pack", "idx")]
    for path in files:
        path.chmod(0o644)
    whole = [path.read_bytes() for path in files]
    for _ in range(40):
        for path, data in zip(files, whole, strict=True):
            damaged = bytearray(data)
            for _ in range(chance.choice([0, 1, 50])):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            path.write_bytes(damaged[: chance.choice([len(data), chance.randrange(len(data))])])
        held = Held(str(tmp_path / "p/.git/objects"))
        held.hold(blobs)
        for name in blobs:
            data = held.read(name, LIMIT)
            assert data is None or digest_of(data) != name.hex() or data == blobs[name]
        held.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_stays_open(tmp_path):
    blobs = history(tmp_path / "p")
    git(tmp_path / "p", "gc", "-q")
    before = descriptors()
    held = Held(str(tmp_path / "p/.git/objects"))
    held.hold(blobs)
    assert descriptors() == before + 2
    held.close()
    assert descriptors() == before
