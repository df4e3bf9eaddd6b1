"""One contract for the implementations of Linux and macOS: these tests run on both."""

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanderling import paths
from sanderling.platforms import files, peers, processes
from sanderling.platforms.endings import ExitWatch
from sanderling.platforms.processes import ProcessRow, ProcessTree, descendants, parsed_stat
from tests.conftest import DEADLINE_S

MARKER = b"SANDERLING_TREE=test-tree-4711"
SLEEP = "import time; time.sleep(600)"


@contextmanager
def running(code: str, **options):
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def until(condition):
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.02)
    return found


# --- processes -----------------------------------------------------------------------------------------------------------


def test_running_process_has_its_parent_group_and_user():
    with running(SLEEP, start_new_session=True) as process:
        found = processes.row(process.pid)
        assert found
        assert (found.parent, found.group, found.uid) == (os.getpid(), process.pid, os.getuid())
        assert not found.is_zombie
        assert found in processes.rows()
        assert processes.is_running(process.pid)


def test_ended_process_is_a_zombie_until_it_is_waited_for():
    with running("pass") as process:
        until(lambda: processes.row(process.pid).is_zombie)
        process.wait()
        assert processes.row(process.pid) is None
        assert not processes.is_running(process.pid)


def test_a_number_that_no_process_can_have_is_not_running():
    assert not processes.is_running(2**40)


def test_environment_is_that_of_the_start():
    with running(SLEEP, env={**os.environ, "SANDERLING_TREE": "one"}) as process:
        until(lambda: processes.has_in_environment(process.pid, b"SANDERLING_TREE=one"))
        assert not processes.has_in_environment(process.pid, b"SANDERLING_TREE=on")
    assert not processes.has_in_environment(process.pid, b"SANDERLING_TREE=one")


def test_descendants_are_found_over_generations_without_zombies():
    def process(pid, parent, *, is_zombie=False):
        return ProcessRow(pid, parent, pid, 1000, is_zombie, 0)

    among = [process(2, 1), process(3, 2), process(4, 3, is_zombie=True), process(5, 4)]
    among += [process(6, 1), process(7, 6)]
    assert descendants([2], among) == {3, 5}
    assert descendants([2, 6], among) == {3, 5, 7}
    assert descendants([9], among) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_name_with_parentheses_does_not_confuse_the_parser():
    stat = b"42 (a) b (c) Z 7 8 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0"
    assert parsed_stat(42, 1000, stat) == ProcessRow(42, 7, 8, 1000, True, 12345)


GRANDCHILD = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], **{{options}})
print(child.pid, flush=True)
{{then}}
"""


@pytest.mark.parametrize(
    "options, environment",
    [
        ("{}", {}),  # in its parent's group
        ("dict(start_new_session=True)", {"SANDERLING_TREE": "test-tree-4711"}),  # a daemon
    ],
    ids=["in the group", "by the marker"],
)
def test_tree_finds_what_its_ended_leader_left(options, environment):
    code = (
        GRANDCHILD.format(options=options, then="").replace("**{}", "").replace("**dict", "**dict")
    )
    with running(code, start_new_session=True, env={**os.environ, **environment}) as leader:
        orphan = int(leader.stdout.readline())
        try:
            leader.wait()
            tree = ProcessTree(leader.pid, MARKER)
            until(lambda: tree.look() == {orphan})
            os.kill(orphan, signal.SIGKILL)
            until(lambda: tree.look() == set())
        finally:
            if processes.is_running(orphan):
                os.kill(orphan, signal.SIGKILL)


def test_tree_remembers_a_daemon_that_it_saw_below_its_parent():
    code = GRANDCHILD.format(options="dict(start_new_session=True, env={})", then="input()")
    with running(code, start_new_session=True, stdin=subprocess.PIPE) as leader:
        orphan = int(leader.stdout.readline())
        try:
            tree = ProcessTree(leader.pid, MARKER)
            assert tree.look() == {leader.pid, orphan}
            leader.stdin.close()
            leader.wait()
            assert tree.look() == {orphan}
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_tree_never_contains_the_process_that_looks():
    with running(SLEEP) as child:  # in the group of this process
        assert ProcessTree(child.pid, MARKER).look() == {child.pid}


class FakeProcesses:
    """The processes of a machine: with `limit`, each that runs starts another one whenever they are listed."""

    def __init__(self, monkeypatch, *rows, limit=0):
        self.rows = {
            pid: ProcessRow(pid, parent, group, os.getuid(), False, pid)
            for pid, parent, group in rows
        }
        self.limit = limit
        self.stopped = set()
        self.killed = set()
        monkeypatch.setattr(processes, "rows", self.list)
        monkeypatch.setattr(processes, "has_in_environment", lambda *_: False)
        monkeypatch.setattr(processes.os, "kill", self.signal)

    def list(self):
        found = list(self.rows.values())
        for row in found:
            if row.pid not in self.stopped and len(self.rows) < self.limit:
                pid = max(self.rows) + 1
                self.rows[pid] = row._replace(pid=pid, parent=row.pid, started=pid)
        return found

    def signal(self, pid, number):
        if pid not in self.rows:
            raise ProcessLookupError
        if number == signal.SIGSTOP:
            self.stopped.add(pid)
        else:
            del self.rows[pid]
            self.killed.add(pid)


def test_group_whose_number_is_used_again_is_not_killed(monkeypatch):
    machine = FakeProcesses(monkeypatch, (1000, 1, 1000), (1001, 1000, 1001))
    tree = ProcessTree(1000, MARKER)
    assert tree.look() == {1000, 1001}
    del machine.rows[1001]
    tree.look()
    tree.look()
    machine.rows[2000] = ProcessRow(2000, 1, 1001, os.getuid(), False, 2000)
    assert tree.look() == {1000}
    tree.kill()
    assert machine.killed == {1000}


def test_child_that_one_list_has_missed_is_found_by_its_group(monkeypatch):
    machine = FakeProcesses(monkeypatch, (1000, 1, 1000), (1001, 1000, 1001))
    tree = ProcessTree(1000, MARKER)
    tree.look()
    del machine.rows[1001]
    tree.look()
    machine.rows[2000] = ProcessRow(2000, 1, 1001, os.getuid(), False, 2000)
    assert tree.look() == {1000, 2000}


@pytest.mark.timeout(20)
def test_members_that_fork_faster_than_they_are_killed_end(monkeypatch):
    machine = FakeProcesses(monkeypatch, (1000, 1, 1000), limit=500)
    machine.rows[1] = ProcessRow(1, 0, 1, os.getuid(), False, 1)
    machine.stopped.add(1)
    assert ProcessTree(1000, MARKER).kill()
    assert {*machine.rows} == {1}


# --- the end of a process ------------------------------------------------------------------------------------------------


def test_watch_becomes_readable_when_the_process_ends():
    with running("input()", stdin=subprocess.PIPE) as process:
        watch = ExitWatch(process.pid)
        try:
            assert select.select([watch], [], [], 0)[0] == []
            process.stdin.close()
            assert select.select([watch], [], [], DEADLINE_S)[0] == [watch]
        finally:
            watch.close()


def test_watch_of_a_process_that_has_ended_is_readable_at_once():
    with running("pass") as process:
        until(lambda: processes.row(process.pid).is_zombie)
        watch = ExitWatch(process.pid)
        try:
            assert select.select([watch], [], [], DEADLINE_S)[0] == [watch]
        finally:
            watch.close()


# --- sockets, files ------------------------------------------------------------------------------------------------------


def test_peer_of_a_unix_socket_is_this_user():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peers.uid_of_peer(ours) == os.geteuid()


@pytest.mark.parametrize("data", [b"", b"text", os.urandom((1 << 20) + 17)])
def test_copy_has_the_content_and_is_a_file_of_its_own(tmp_path, data):
    (tmp_path / "one").write_bytes(data)
    directory = os.open(tmp_path, os.O_RDONLY)
    with (tmp_path / "one").open("rb") as original:
        os.close(files.copy_new(original.fileno(), "two", directory))
    assert (tmp_path / "two").read_bytes() == data
    (tmp_path / "two").write_bytes(b"changed")
    assert (tmp_path / "one").read_bytes() == data
    os.close(directory)


@pytest.mark.parametrize("platform", [sys.platform, "darwin"])
@pytest.mark.parametrize("mode", [0o444, 0o755])
def test_copy_can_be_written_whatever_mode_the_original_has(tmp_path, monkeypatch, platform, mode):
    (tmp_path / "one").write_text("text")
    (tmp_path / "one").chmod(mode)
    if platform != sys.platform:
        monkeypatch.setattr(files, "sys", SimpleNamespace(platform=platform))
        library = SimpleNamespace(fclonefileat=clone_file)
        ctypes = SimpleNamespace(CDLL=lambda *_, **__: library)
        monkeypatch.setattr(files, "ctypes", ctypes)
    with (tmp_path / "one").open("rb") as original:
        copy = files.copy_new(original.fileno(), str(tmp_path / "two"))
    assert os.pwrite(copy, b"TEXT", 0) == 4
    assert stat.S_IMODE(os.fstat(copy).st_mode) == 0o600
    os.close(copy)
    assert (tmp_path / "two").read_text() == "TEXT"


def clone_file(original, directory, name, flags):
    """What fclonefileat(2) does: the clone has the content and the mode."""
    assert (directory, flags) == (-2, 2)  # AT_FDCWD, CLONE_NOOWNERCOPY
    with Path(os.fsdecode(name)).open("xb") as made:
        made.write(os.pread(original, 1 << 20, 0))
        os.fchmod(made.fileno(), stat.S_IMODE(os.fstat(original).st_mode))
    return 0


def test_copy_replaces_nothing(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    with (tmp_path / "one").open("rb") as original, pytest.raises(FileExistsError):
        files.copy_new(original.fileno(), str(tmp_path / "two"))
    assert (tmp_path / "two").read_text() == "two"


def test_exchange_swaps_a_file_and_a_directory(tmp_path):
    (tmp_path / "one").write_text("file")
    (tmp_path / "two" / "inner").mkdir(parents=True)
    files.exchange(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "inner").is_dir()
    assert (tmp_path / "two").read_text() == "file"


def test_exchange_with_a_missing_name_changes_nothing(tmp_path):
    (tmp_path / "one").write_text("file")
    with pytest.raises(FileNotFoundError):
        files.exchange(tmp_path / "one", tmp_path / "two")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_open_directory_is_found_where_it_was_moved(tmp_path):
    (tmp_path / "one").mkdir()
    descriptor = os.open(tmp_path / "one", files.ONLY_PATH | os.O_DIRECTORY)
    try:
        (tmp_path / "one").rename(tmp_path / "two")
        assert files.path_of(descriptor) == os.path.realpath(tmp_path / "two")
        Path(files.reached_through(descriptor), "inner").touch()
        assert (tmp_path / "two" / "inner").exists()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("flags", [files.ONLY_PATH, os.O_RDONLY])
def test_mode_is_set_through_a_descriptor(tmp_path, flags):
    (tmp_path / "file").touch()
    descriptor = os.open(tmp_path / "file", flags)
    try:
        files.set_mode(descriptor, 0o640)
    finally:
        os.close(descriptor)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.timeout(20)
def test_opening_to_pass_through_does_not_wait_for_a_pipe(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.delattr(os, "O_PATH", raising=False)
    code = Path(files.__file__).read_text().partition("CHUNK_BYTES")[0]
    module = dict[str, object]()
    exec(code, module)  # as on a system without O_PATH
    os.close(os.open(tmp_path / "pipe", module["ONLY_PATH"] | os.O_NOFOLLOW))


class AccessLists:
    """The access lists of macOS's C library."""

    def __init__(self):
        self.calls = []

        def acl_init(_):
            return 4711

        self.acl_init = acl_init

    def acl_set_file(self, path, kind, access):
        self.calls.append((path, kind, access.value))

    def acl_free(self, access):
        self.calls.append(access.value)


def test_on_macos_flags_and_access_list_are_removed_by_inode(tmp_path, monkeypatch):
    library, changed = AccessLists(), []
    (tmp_path / "name").touch()
    found = (tmp_path / "name").stat()
    real = os.stat

    def stat_with_flags(*arguments, **options):
        return SimpleNamespace(st_dev=found.st_dev, st_ino=found.st_ino, st_flags=stat.UF_IMMUTABLE | stat.UF_HIDDEN) if arguments[0] == "name" else real(*arguments, **options)  # fmt: skip

    monkeypatch.setattr(files.sys, "platform", "darwin")
    monkeypatch.setattr(files.ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(files.os, "stat", stat_with_flags)
    monkeypatch.setattr(os, "chflags", lambda path, flags, *, follow_symlinks: changed.append((path, flags, follow_symlinks)), raising=False)  # fmt: skip
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        files.unlock(directory, "name")
    finally:
        monkeypatch.undo()
        os.close(directory)
    path = f"/.vol/{found.st_dev}/{found.st_ino}"
    assert changed == [(path, stat.UF_HIDDEN, False)]
    assert library.calls == [(path.encode(), 0x100, 4711), 4711]


def test_on_macos_a_mode_is_changed_without_opening_the_file(monkeypatch):
    changed = []
    monkeypatch.setattr(files.sys, "platform", "darwin")
    monkeypatch.setattr(files.os, "chmod", lambda *arguments, **options: changed.append((arguments, options)))  # fmt: skip
    files.change_mode(7, "name", 0o700)
    monkeypatch.undo()
    assert changed == [(("name", 0o700), {"dir_fd": 7, "follow_symlinks": False})]


def test_file_with_several_names_keeps_the_one_that_was_asked_for(tmp_path, monkeypatch):
    """The kernel of macOS may answer with another name of the same file, and a rule would protect that one only."""
    (tmp_path / "config").touch()
    os.link(tmp_path / "config", tmp_path / "other")
    monkeypatch.setattr(
        paths, "_path_of", lambda fd: files.path_of(fd).replace("/config", "/other")
    )
    base = os.path.realpath(tmp_path)
    assert paths.on_disk(f"{base}/config") == f"{base}/config"
    assert paths.on_disk(f"{base}/new/file") == f"{base}/new/file"
    (tmp_path / "other").unlink()
    assert paths.on_disk(f"{base}/config") == f"{base}/other"
