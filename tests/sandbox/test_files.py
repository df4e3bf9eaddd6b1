"""The file worker: what it reads of files of any size, what a write keeps, and what is left when a write goes wrong."""

import errno
import itertools
import os
import signal
import stat
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.errors import SandboxError
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.files import ABSENT, FileChangedError, Files, UnconfinedFiles
from sanderling.sandbox.inside import reading, worker, writing
from tests.conftest import examples, happens, prove, prove_rest, small_disk
from tests.sandbox.child import STRANGER, in_child, open_directory
from tests.sandbox.test_sandbox import (
    PYTHON,
    SWAPPER,
    Place,
    children,
    fails_with,
    files_of,
    names_in,
    skip_without,
    supervisors,
)
from tests.sandboxes import kept, sandbox_of

pytestmark = pytest.mark.guard

IS_ROOT = os.geteuid() == 0
NOBODY = 0xFFFFFFFF
USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 1, 2, 4, 16, 32
ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, who)
    for tag, permissions, who in (
        (USER_OBJ, 6, NOBODY),
        (USER, 4, os.getuid()),
        (GROUP_OBJ, 4, NOBODY),
        (MASK, 4, NOBODY),
        (OTHER, 0, NOBODY),
    )
)


@pytest.fixture(params=prove_rest(["full", "landlock", "off"]))
def where(request) -> str:
    return request.param


@asynccontextmanager
async def open_files(place: Place, where: str) -> AsyncIterator[Files]:
    if where == "off":
        yield UnconfinedFiles()
        return
    async with place.open_files(where) as files:
        yield files


def leftovers(directory: Path) -> list[str]:
    return [name for name in names_in(directory) if name.startswith(writing.TEMPORARY)]


# --- reading -----------------------------------------------------------------------------------------------------------


@prove
async def test_load_gives_all_of_a_file_or_the_beginning_of_a_long_one(place, where):
    path = place.project / "data"
    path.write_bytes(bytes(range(256)) * 400)
    async with open_files(place, where) as files:
        whole = await files.load(str(path), 102_400)
        assert (whole.data, whole.is_whole) == (path.read_bytes(), True)
        part = await files.load(str(path), 102_399, 10)
        assert (part.data, part.is_whole) == (bytes(range(10)), False)
        assert part.stamp == whole.stamp
        assert part.stamp.size == 102_400


async def test_stamp_is_that_of_the_file_outside(place, where):
    async with open_files(place, where) as files:
        stamp = (await files.load(f"{place.project}/file", 100)).stamp
    status = (place.project / "file").stat()
    assert (stamp.device, stamp.inode) == (status.st_dev, status.st_ino)
    assert (stamp.mode, stamp.nlink) == (status.st_mode, 1)


@prove
async def test_forty_megabytes_come_and_go_whole(place, where):
    data = os.urandom(40 << 20)
    async with open_files(place, where) as files:
        await files.write(f"{place.project}/big", data)
        assert (await files.load(f"{place.project}/big", 50 << 20)).data == data


def lines_by_hand(data: bytes, first: int, count: int) -> tuple[list[tuple[bytes, int]], int]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [(line[:8], len(line)) for line in lines[first - 1 :][:count]], len(lines)


@prove
@settings(max_examples=examples(300), deadline=None)
@given(
    data=st.lists(st.sampled_from([b"", b"a", b"\r", b"0123456789"]), max_size=30).map(b"\n".join),
    first=st.integers(1, 40),
    count=st.integers(1, 10),
)
@pytest.mark.parametrize("chunk_bytes", [1, 3, 1 << 20])
def test_page_is_what_splitting_at_newlines_gives(
    tmp_path_factory, data, first, count, chunk_bytes
):
    path = tmp_path_factory.getbasetemp() / "paged"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
        kind, (lines, total, is_all) = worker.answer("lines", str(path), first, count, 8, 1 << 20)
    assert (kind, (lines, total), is_all) == ("ok", lines_by_hand(data, first, count), True)


async def test_page_ends_where_its_bytes_are_used_up(place, where):
    (place.project / "wide").write_bytes(b"x" * 99 + b"\n" + b"y" * 99 + b"\n" + b"z\n")
    async with open_files(place, where) as files:
        page = await files.page(f"{place.project}/wide", 1, 10, line_bytes=99, page_bytes=150)
    assert [data[:1] for data, _ in page.lines] == [b"x", b"y"]
    assert (page.line_count, page.is_counted) == (3, True)


@prove
async def test_first_page_of_five_gigabytes_comes_without_the_rest(place, where):
    path = place.project / "huge"
    with path.open("wb") as file:
        file.write(b"a line\n" * 100_000)
        file.truncate(5 << 30)
    async with open_files(place, where) as files:
        head = await files.load(str(path), 8 << 20)
        page = await files.page(str(path), 1, 2000, line_bytes=8000, page_bytes=50_000)
    assert (head.is_whole, head.stamp.size) == (False, 5 << 30)
    assert page.lines == [(b"a line", 6)] * 2000
    assert not page.is_counted


@prove
async def test_line_of_two_gigabytes_is_not_kept(place, where):
    path = place.project / "line"
    with path.open("wb") as file:
        file.truncate(2 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    async with open_files(place, where) as files:
        page = await files.page(str(path), 1, 5, line_bytes=10, page_bytes=1000)
    assert page.lines[0][0] == bytes(10)
    assert not page.is_counted or page.lines[1:] == [(b"last", 4)]


async def test_line_that_is_not_there_is_an_empty_page_with_the_count(place, where):
    async with open_files(place, where) as files:
        page = await files.page(f"{place.project}/file", 7, 5, line_bytes=10, page_bytes=1000)
    assert page == ([], 1, True)


# --- what a write keeps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", prove_rest([0o600, 0o644, 0o755, 0o664, 0o2755]))
async def test_write_keeps_the_mode(place, where, mode):
    path = place.project / "file"
    path.chmod(mode)
    async with open_files(place, where) as files:
        await files.write(str(path), b"new")
    # What a program with such a bit holds is not for a model to say: whoever runs it lends it a right.
    kept = mode if where == "off" else mode & 0o777
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", kept)


async def test_mode_that_the_sandbox_refuses_is_set_without_its_bits(place, where):
    path = place.project / "file"
    async with open_files(place, where) as files:
        expected = (await files.look(str(path), 100)).stamp
        await files.write(str(path), b"new", expected=expected, mode=0o4750)
    kept = 0o4750 if where == "off" else 0o750
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", kept)


async def test_new_file_has_the_mode_that_the_umask_leaves(place, where):
    before = os.umask(0o027)
    try:
        async with open_files(place, where) as files:
            await files.write(f"{place.project}/new", b"new", expected=ABSENT)
            await files.write(f"{place.project}/new2", b"new")
    finally:
        os.umask(before)
    for name in ("new", "new2"):
        assert stat.S_IMODE((place.project / name).stat().st_mode) == 0o640
        assert (place.project / name).stat().st_nlink == 1


async def test_write_keeps_attributes_and_access_lists(place, where):
    path = place.project / "file"
    try:
        os.setxattr(path, "user.note", b"kept")
        os.setxattr(path, "system.posix_acl_access", ACCESS_LIST)
    except OSError:
        pytest.skip("a file system without attributes")
    async with open_files(place, where) as files:
        await files.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.getxattr(path, "user.note") == b"kept"
    assert os.getxattr(path, "system.posix_acl_access") == ACCESS_LIST


@prove
async def test_default_access_list_of_the_directory_does_not_come_over_a_file_without_one(
    place, where
):
    path = place.project / "file"
    try:
        os.setxattr(place.project, "system.posix_acl_default", ACCESS_LIST)
    except OSError:
        pytest.skip("a file system without access lists")
    async with open_files(place, where) as files:
        await files.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listxattr(path) == []


@prove
async def test_file_of_another_owner_keeps_its_owner(place, where):
    path = place.project / "file"
    if not IS_ROOT:
        pytest.skip("only root can give a file away")
    path.chmod(0o666)
    os.chown(path, STRANGER, STRANGER)
    async with open_files(place, where) as files:
        await files.write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert (path.stat().st_uid, path.stat().st_gid) == (STRANGER, STRANGER)


async def test_hard_links_go_on_naming_one_file(place, where):
    path, other = place.project / "file", place.project / "other"
    other.hardlink_to(path)
    async with open_files(place, where) as files:
        for data in (b"much longer than before", b"short", b""):
            stamp = await files.write(str(path), data)
            assert other.read_bytes() == path.read_bytes() == data
            assert (stamp.inode, stamp.nlink) == (other.stat().st_ino, 2)


async def test_link_chain_stays_and_its_end_is_written(place, where):
    (place.project / "sub").mkdir()
    (place.project / "sub/second").symlink_to("../file")
    (place.project / "first").symlink_to("sub/second")
    async with open_files(place, where) as files:
        await files.write(f"{place.project}/first", b"new")
    assert (place.project / "first").is_symlink()
    assert (place.project / "sub/second").is_symlink()
    assert (place.project / "file").read_bytes() == b"new"


async def test_link_that_leads_nowhere_gets_its_file(place, where):
    (place.project / "link").symlink_to("missing")
    async with open_files(place, where) as files:
        await files.write(f"{place.project}/link", b"new", expected=ABSENT)
    assert (place.project / "link").is_symlink()
    assert (place.project / "missing").read_bytes() == b"new"


@prove
async def test_missing_directories_are_made_when_asked_for(place, where):
    path = place.project / "a/b/c/file"
    async with open_files(place, where) as files:
        with pytest.raises(FileNotFoundError):
            await files.write(str(path), b"new")
        await files.write(str(path), b"new", expected=ABSENT, makes_parents=True)
    assert path.read_bytes() == b"new"


@prove
async def test_name_of_255_bytes_can_be_written(place, where):
    path = place.project / ("n" * 255)
    async with open_files(place, where) as files:
        for data in (b"new", b"newer"):
            await files.write(str(path), data)
            assert path.read_bytes() == data


async def test_file_is_replaced_by_another_and_never_seen_half(place, where):
    path = place.project / "file"
    inode = path.stat().st_ino
    async with open_files(place, where) as files:
        with path.open("rb") as before:
            await files.write(str(path), b"new")
            assert before.read() == b"public\n"
    assert path.stat().st_ino != inode
    assert leftovers(place.project) == []


async def test_stamp_of_a_write_is_that_of_the_next_load(place, where):
    path = f"{place.project}/file"
    async with open_files(place, where) as files:
        for data in (b"1", b"2", b"3"):
            stamp = await files.write(path, data)
            assert (await files.load(path, 100)).stamp == stamp
            await files.write(path, data + b"!", expected=stamp)


# --- what is not written -----------------------------------------------------------------------------------------------


def rewritten(path: Path) -> None:
    path.write_bytes(b"theirs\n")


def rewritten_with_its_old_time(path: Path) -> None:
    times = path.stat()
    path.write_bytes(b"theirs\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path: Path) -> None:
    (path.parent / "other").write_bytes(b"theirs\n")
    (path.parent / "other").rename(path)


@pytest.mark.parametrize(
    "change", prove_rest([rewritten, rewritten_with_its_old_time, replaced, Path.unlink])
)
async def test_file_that_was_changed_meanwhile_is_not_written(place, where, change):
    path = place.project / "file"
    async with open_files(place, where) as files:
        stamp = (await files.load(str(path), 100)).stamp
        change(path)
        with pytest.raises(FileChangedError):
            await files.write(str(path), b"ours\n", expected=stamp)
    assert not path.exists() or path.read_bytes() == b"theirs\n"
    assert leftovers(place.project) == []


async def test_file_that_has_come_meanwhile_is_not_written(place, where):
    async with open_files(place, where) as files:
        with pytest.raises(FileChangedError):
            await files.write(f"{place.project}/file", b"ours\n", expected=ABSENT)
    assert (place.project / "file").read_bytes() == b"public\n"


@prove
async def test_change_right_after_a_look_is_noticed_each_time(place):
    path = place.project / "file"
    files = UnconfinedFiles()
    for number in range(100):
        path.write_bytes(b"%03d" % number)
        loaded = await files.load(str(path), 100)
        with path.open("r+b") as file:  # same size, same inode
            file.write(b"xyz")
        with pytest.raises(FileChangedError):
            await files.write(str(path), b"ours", expected=loaded.stamp)
        assert path.read_bytes() == b"xyz"


@prove
async def test_file_that_has_just_changed_is_loaded_when_its_stamp_says_enough(place, where):
    path = place.project / "file"
    async with open_files(place, where) as files:
        for _ in range(20):
            path.write_bytes(b"new")  # a kernel may give the next change the same times
            stamp = (await files.load(str(path), 100)).stamp
            assert time.time_ns() - stamp.ctime_ns >= reading.TICK_NS


@prove
async def test_file_that_never_stands_still_is_loaded_all_the_same(place, where):
    path = place.project / "log"
    path.touch()
    writer = subprocess.Popen(  # noqa: ASYNC220
        ["sh", "-c", 'while :; do echo line >> "$0"; done', str(path)], stdin=subprocess.DEVNULL
    )
    try:
        async with open_files(place, where) as files:
            for _ in range(3):
                assert (await files.load(str(path), 8 << 20)).is_whole
    finally:
        writer.kill()
        writer.wait()


async def test_read_only_file_is_not_written(place, where):
    path = place.project / "file"
    path.chmod(0o444)
    if where == "off" and IS_ROOT:
        pytest.skip("root may write what it likes")
    async with open_files(place, where) as files:
        for call in (files.check(str(path)), files.write(str(path), b"new")):
            with pytest.raises(PermissionError):
                await call
    assert path.read_bytes() == b"public\n"


async def test_what_is_no_file_is_neither_read_nor_written_nor_waited_for(place, where):
    os.mkfifo(place.project / "fifo")
    (place.project / "link").symlink_to("/dev/zero")
    async with open_files(place, where) as files:
        for name in ("fifo", "link"):
            path = f"{place.project}/{name}"
            for call in (
                files.load(path, 10),
                files.page(path, 1, 1, line_bytes=1, page_bytes=1),
                files.write(path, b"x"),
                files.check(path),
            ):
                with fails_with(errno.EINVAL, errno.EACCES, errno.EROFS):
                    await call
        path = f"{place.project}/.git/refs"
        for call in (files.load(path, 10), files.write(path, b"x"), files.check(path)):
            with pytest.raises(IsADirectoryError):
                await call
    assert names_in(place.project) == [".git", "fifo", "file", "link"]


@pytest.mark.parametrize("level", ["full", "landlock"])
async def test_read_only_view_writes_nothing_and_can_say_so_before(place, level):
    (place.project / "other").hardlink_to(place.project / "file")
    async with place.open_files(level, mode="ro") as files:
        for name in ("file", "new", "sub/new"):
            path = f"{place.project}/{name}"
            for call in (files.check(path), files.write(path, b"x", makes_parents=True)):
                with fails_with(errno.EROFS, errno.EACCES):
                    await call
    assert names_in(place.project) == [".git", "file", "other"]
    assert (place.project / "file").read_bytes() == b"public\n"


@pytest.mark.parametrize("name", prove_rest(["config", "hooks/pre-commit", "hooks/new"]))
async def test_protected_path_is_not_written_and_can_be_known_before(place, name):
    (place.project / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    before = {
        path: path.read_bytes() for path in (place.project / ".git").rglob("*") if path.is_file()
    }
    async with place.open_files("full") as files:
        path = f"{place.project}/.git/{name}"
        for call in (files.check(path), files.write(path, b"evil")):
            with fails_with(errno.EROFS):
                await call
    for path, data in before.items():
        assert path.read_bytes() == data


@prove
async def test_check_changes_nothing_and_says_yes_where_a_write_succeeds(place, where):
    async with open_files(place, where) as files:
        status = (place.project / "file").stat()
        for name in ("file", "new", "a/b/new"):
            await files.check(f"{place.project}/{name}")
        assert names_in(place.project) == [".git", "file"]
        assert (place.project / "file").stat().st_ctime_ns == status.st_ctime_ns


@pytest.mark.parametrize("level", ["full", "landlock"])
async def test_single_file_that_is_granted_is_written_where_it_stands(place, level):
    path = place.base / "granted/file"
    path.write_text("old")
    inode = path.stat().st_ino
    async with place.open_files(level, write_paths=(str(path),)) as files:
        await files.write(str(path), b"new")
        with suppress(OSError):  # or it lands in the session's own /tmp
            await files.write(f"{place.base}/granted/other", b"new")
    assert (path.read_bytes(), path.stat().st_ino) == (b"new", inode)
    assert names_in(place.base / "granted") == ["file"]


@prove
async def test_file_in_a_directory_that_may_not_be_written_is_written(place, where):
    (place.project / "sub").mkdir()
    path = place.project / "sub/file"
    path.write_text("old")
    path.parent.chmod(0o555)
    try:
        async with open_files(place, where) as files:
            await files.write(str(path), b"new")
        assert path.read_bytes() == b"new"
    finally:
        path.parent.chmod(0o755)


@prove
@pytest.mark.parametrize("level", ["full", "landlock"])
async def test_no_operation_follows_a_link_that_is_swapped_in_to_the_secret(place, level):
    (place.project / "d").mkdir()
    (place.project / "d/file").write_text("public\n")
    path = f"{place.project}/d/file"
    seen: set[bytes] = set()
    turns = failed = 0
    async with place.open(level) as sandbox, files_of(sandbox) as files:
        swapper = await sandbox.spawn([PYTHON, "-u", "-c", SWAPPER, str(place.secret)])
        await swapper.stdout.receive()
        while turns < 300 or (not failed and turns < 5000):
            turns += 1
            for call in (
                files.load(path, 100),
                files.page(path, 1, 1, line_bytes=99, page_bytes=99),
                files.check(path),
                files.write(path, b"public\n", makes_parents=True),
            ):
                try:
                    result = await call
                except OSError:
                    failed += 1
                    continue
                match result:
                    case (bytes() as data, _, _):
                        seen.add(data)
                    case ([(line, _)], _, _):
                        seen.add(line + b"\n")
        swapper.close()
    assert seen == {b"public\n"}
    assert failed, "the link was never hit: this proves nothing"
    assert (place.secret / "file").read_text() == "secret\n"
    assert names_in(place.secret) == ["file"]


# --- when it goes wrong ------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(place) -> Iterator[Path]:
    """A project of 4 MB."""
    with small_disk(place.project, "4m") as project:
        yield project


@pytest.mark.parametrize("is_linked", prove_rest([False, True], keep=(-1,)))
async def test_full_disk_leaves_the_old_bytes_and_nothing_else(place, where, full_disk, is_linked):
    path = full_disk / "file"
    path.write_bytes(b"old" * 1000)
    if is_linked:
        (full_disk / "other").hardlink_to(path)
    async with open_files(place, where) as files:
        before = names_in(full_disk)
        with fails_with(errno.ENOSPC):
            await files.write(str(path), os.urandom(8 << 20))
        assert path.read_bytes() == b"old" * 1000
        assert names_in(full_disk) == before
        await files.write(str(path), b"new")
        assert path.read_bytes() == b"new"


CALLS = [
    *("open", "stat", "fstat", "lseek", "write", "fsync", "ftruncate", "posix_fallocate"),
    *("fchmod", "fchown", "listxattr", "link", "rename", "unlink"),
]


class Fault:
    """Makes the `at`th call of the system fail, or the process die in its place."""

    def __init__(self, at: int, code: int | None) -> None:
        self.left, self.code = at, code

    def over(self, function: Callable) -> Callable:
        def call(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                if self.code is None:
                    os._exit(9)
                raise OSError(self.code, os.strerror(self.code))
            return function(*args, **kwargs)

        return call


def write_with_fault(path: Path, fault: Fault) -> tuple[str, bool]:
    """How the write ended, and whether it was over before the fault."""
    with pytest.MonkeyPatch.context() as patch:  # the child has more to do with them
        for name in CALLS:
            patch.setattr(os, name, fault.over(getattr(os, name)))
        kind, _ = worker.answer("write", str(path), b"new" * 100, None, False)
        return kind, fault.left > 0


@contextmanager
def directory_of(uid: int) -> Iterator[Path]:
    with open_directory() as directory:
        if IS_ROOT:
            os.chown(directory, uid, uid)
        yield directory


@prove
@pytest.mark.parametrize("uid", [os.getuid(), STRANGER] if IS_ROOT else [os.getuid()])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, None], ids=["full", "broken", "killed"])
@pytest.mark.parametrize("kind", ["new", "old", "linked"])
def test_at_whatever_call_a_write_fails_the_bytes_are_old_or_new(code, kind, uid):
    for at in itertools.count(1):
        with directory_of(uid) as directory:
            path = directory / "file"
            if kind != "new":
                path.write_bytes(b"old" * 50)
                if kind == "linked":
                    (directory / "other").hardlink_to(path)
                if IS_ROOT:
                    os.chown(path, uid, uid)
            fault = Fault(at, code)
            kind_of_end, is_over = "", False
            with suppress(EOFError):  # it was killed
                kind_of_end, is_over = in_child(
                    lambda path=path, fault=fault: write_with_fault(path, fault), uid
                )
            is_old = path.read_bytes() == b"old" * 50 if path.exists() else kind == "new"
            is_new = path.exists() and path.read_bytes() == b"new" * 100
            if kind == "linked" and code is None:
                is_old = True  # the one thing that a crash can do; the module says so
            assert is_old or is_new, at
            assert is_new or kind_of_end != "ok", at
            for name in leftovers(directory):
                age = time.time() - 2 * writing.LEFTOVER_S
                os.utime(directory / name, (age, age))
            assert worker.answer("write", str(path), b"last", None, False)[0] == "ok"
            assert leftovers(directory) == []
        if is_over:
            assert at > 10
            return


def noting(calls: list[str], name: str, function: Callable) -> Callable:
    def call(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("kind", ["new", "old", "linked"])
def test_bytes_are_on_the_disk_before_they_have_the_name_and_the_name_when_all_is_done(
    tmp_path, monkeypatch, kind
):
    path = tmp_path / "file"
    if kind != "new":
        path.write_bytes(b"old")
    if kind == "linked":
        (tmp_path / "other").hardlink_to(path)
    calls: list[str] = []
    for name in ("write", "fsync", "rename"):
        monkeypatch.setattr(os, name, noting(calls, name, getattr(os, name)))
    assert worker.answer("write", str(path), b"new", None, False)[0] == "ok"
    in_place = ["write", "fsync"]
    assert calls == (in_place if kind == "linked" else [*in_place, "rename", "fsync"])


def test_write_that_may_still_be_going_on_is_not_swept_away(tmp_path):
    young = tmp_path / f"{writing.TEMPORARY}0123456789abcdef"
    young.write_text("somebody else's")
    assert worker.answer("write", str(tmp_path / "file"), b"x", None, False)[0] == "ok"
    assert leftovers(tmp_path) == [young.name]


@prove
async def test_killed_worker_leaves_the_file_old_or_new(place):
    path = place.project / "file"
    data = os.urandom(64 << 20)
    async with place.open("full") as sandbox:
        for delay_s in (0.0, 0.01, 0.03, 0.06, 0.1):
            path.write_bytes(b"old")
            async with files_of(sandbox) as files, anyio.create_task_group() as tasks:

                async def write(files=files) -> None:
                    with suppress(SandboxError):
                        await files.write(str(path), data)

                tasks.start_soon(write)
                await anyio.sleep(delay_s)
                files._process.kill()
            assert path.read_bytes() in (b"old", data)


@settings(max_examples=examples(200), deadline=None)
@given(
    old=st.binary(max_size=200),
    new=st.binary(max_size=200),
    mode=st.sampled_from([0o600, 0o640, 0o644, 0o755, 0o700]),
    link=st.sampled_from(["none", "hard", "symbolic"]),
    note=st.one_of(st.none(), st.binary(max_size=20)),
)
def test_only_the_bytes_change(old, new, mode, link, note):
    with open_directory() as directory:
        path = directory / "file"
        path.write_bytes(old)
        path.chmod(mode)
        if note is not None:
            with suppress(OSError):
                os.setxattr(path, "user.note", note)
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        named = path
        if link != "none":
            named = directory / "link"
            named.hardlink_to(path) if link == "hard" else named.symlink_to(path)
        kind, stamp = worker.answer("write", str(named), new, None, False)
        assert kind == "ok"
        assert stamp[0:3] == (path.stat().st_dev, path.stat().st_ino, len(new))
        assert path.read_bytes() == named.read_bytes() == new
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == attributes
        assert named.is_symlink() == (link == "symbolic")
        assert path.stat().st_nlink == 1 + (link == "hard")
        assert leftovers(directory) == []


# --- a session's files -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def session_of(place: Place, **changes) -> AsyncIterator[SessionSandbox]:
    await skip_without(changes.get("level"))
    session = sandbox_of(place.policy(**changes), place.events.append)
    async with kept(session):
        yield session


@prove
async def test_session_has_one_worker_for_all(place):
    async with session_of(place) as session:
        files = await session.environment.files()
        assert (await files.load(f"{place.project}/file", 100)).data == b"public\n"
        assert await session.environment.files() is files
        assert files._channel.fileno() >= 0
    assert files._channel.fileno() < 0


async def test_many_who_ask_at_once_share_one_worker(place):
    found: set[int] = set()
    async with session_of(place) as session:

        async def ask() -> None:
            found.add(id(await session.environment.files()))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
    assert len(found) == 1


@prove
async def test_session_has_a_new_worker_when_the_old_one_was_killed(place):
    async with session_of(place) as session:
        files = await session.environment.files()
        files._process.kill()
        await happens(lambda: files.has_ended)
        again = await session.environment.files()
        assert (await again.load(f"{place.project}/file", 100)).data == b"public\n"
        assert again is not files


@prove
async def test_session_has_files_again_when_its_sandbox_has_died(place):
    async with session_of(place) as session:
        dead, sandbox = await session.environment.files(), session.manager.sandbox
        for pid in supervisors(os.getpid()):
            for child in children(pid):
                os.kill(child, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        await happens(lambda: session.manager.sandbox is not sandbox)
        files = await session.environment.files()
        assert (await files.load(f"{place.project}/file", 100)).data == b"public\n"
        with pytest.raises(SandboxError, match="has ended"):
            await dead.load(f"{place.project}/file", 100)


@prove
async def test_session_in_plan_mode_has_files_that_cannot_be_written(place):
    async with session_of(place) as session:
        files = await session.environment.files()
        await files.write(f"{place.project}/file", b"new")
        session.set_mode("ro")
        files = await session.environment.files()
        with pytest.raises(OSError, match="Errno"):
            await files.write(f"{place.project}/file", b"newer")
        session.set_mode("rw")
        await (await session.environment.files()).write(f"{place.project}/file", b"newest")
    assert (place.project / "file").read_bytes() == b"newest"


async def test_grant_opens_files_that_have_it(place):
    (place.base / "granted/file").write_text("granted\n")
    async with session_of(place) as session:
        path = f"{place.base}/granted/file"
        with pytest.raises(OSError, match="Errno"):
            await (await session.environment.files()).load(path, 100)
        sandbox = await session.manager.opened()
        sandbox.policy = sandbox.policy._replace(read_paths=(f"{place.base}/granted",))
        assert (await (await session.environment.files()).load(path, 100)).data == b"granted\n"


@prove
async def test_what_was_asked_before_a_change_of_mode_is_answered(place):
    async with session_of(place) as session:
        answers: list[bytes] = []

        async def load(files: Files) -> None:
            answers.append((await files.load(f"{place.project}/file", 100)).data)

        files = await session.environment.files()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(load, files)
            await anyio.lowlevel.checkpoint()
            session.set_mode("ro")
            tasks.start_soon(load, await session.environment.files())
    assert answers == [b"public\n"] * 6


async def test_without_a_sandbox_the_person_has_their_own_files(place):
    async with session_of(place) as session:
        session.switch(is_on=False)
        files = await session.environment.files()
        assert (await files.load(f"{place.secret}/file", 100)).data == b"secret\n"
        await files.write(f"{place.secret}/file", b"new")
        assert await files.list(str(place.secret)) == [("file", "file")]
        assert (await files.read(f"{place.secret}/file"))[0] == b"new"
        session.switch(is_on=True)
        with pytest.raises(OSError, match="Errno"):
            await (await session.environment.files()).load(f"{place.secret}/file", 100)


@prove
async def test_answer_to_a_cancelled_question_is_not_taken_for_the_next_ones(place):
    (place.project / "big").write_bytes(bytes(8 << 20))
    async with place.open_files("full") as files:
        for _ in range(20):
            with anyio.move_on_after(0.001):
                await files.load(f"{place.project}/big", 9 << 20)
            assert (await files.load(f"{place.project}/file", 100)).data == b"public\n"


@prove
async def test_cancelled_write_is_done_all_the_same(place, where):
    data = os.urandom(32 << 20)
    async with open_files(place, where) as files:
        with anyio.move_on_after(0.005) as scope:
            await files.write(f"{place.project}/file", data)
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert (place.project / "file").read_bytes() == data
