import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import stat
from pathlib import Path

import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.kernel import landlock, seccomp
from sanderling.sandbox.kernel.landlock import Ruleset, abi
from sanderling.sandbox.kernel.syscalls import number, syscall
from tests.sandbox.child import USERS, errno_of, in_child, open_directory

pytestmark = pytest.mark.skipif(not abi(), reason="this kernel has no Landlock")
users = pytest.mark.parametrize("uid", USERS)

EACCES, EPERM = errno.EACCES, errno.EPERM
EVERYTHING = {"read": ["/"], "write": ["/"], "devices": ["/"]}
TCGETS = 0x5401


def needs(version: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(abi() < version, reason=f"needs Landlock {version}")


@pytest.fixture
def tree():
    """A few files beneath `tree`, and one `outside`, open to every user."""
    with open_directory() as root:
        for name in ("tree", "tree/a", "tree/a/empty", "tree/b"):
            (root / name).mkdir()
            (root / name).chmod(0o777)
        for name in ("outside", *(f"tree/a/{name}" for name in ("file", "moved", "removed"))):
            (root / name).write_text("old")
            (root / name).chmod(0o666)
        yield root


def under(function, uid, *, deny_tcp=False, **paths):
    """What `function` returns in a child that is held to the rules."""

    def restricted():
        Ruleset(deny_tcp=deny_tcp, **paths).restrict_self()
        return function()

    return in_child(restricted, uid)


def changes(tree: Path) -> dict[str, int]:
    """Try every way to change what is beneath `tree`."""
    a, b = tree / "a", tree / "b"
    with socket.socket(socket.AF_UNIX) as listener:
        return {
            "write": errno_of((a / "file").write_text, "new"),
            "append": errno_of(os.open, a / "file", os.O_WRONLY | os.O_APPEND),
            "truncate": errno_of(os.truncate, a / "file", 1),
            "create": errno_of((a / "new").touch),
            "make a directory": errno_of((a / "directory").mkdir),
            "make a symlink": errno_of((a / "symlink").symlink_to, "/"),
            "make a pipe": errno_of(os.mkfifo, a / "pipe"),
            "make a socket": errno_of(listener.bind, str(a / "socket")),
            "link": errno_of(os.link, a / "file", a / "link"),
            "link to another directory": errno_of(os.link, a / "file", b / "link"),
            "rename": errno_of((a / "moved").rename, a / "renamed"),
            "move to another directory": errno_of((a / "file").rename, b / "file"),
            "remove": errno_of((a / "removed").unlink),
            "remove a directory": errno_of((a / "empty").rmdir),
        }


@users
@needs(3)
def test_what_may_only_be_read_can_be_read_but_not_changed(tree, uid):
    def try_all():
        return (tree / "tree/a/file").read_text(), changes(tree / "tree")

    content, errors = under(try_all, uid, read=[str(tree)])
    assert content == "old"
    assert set(errors.values()) == {EACCES}, errors


@users
@needs(2)
def test_what_may_be_written_can_be_changed_in_every_way(tree, uid):
    errors = under(lambda: changes(tree / "tree"), uid, write=[str(tree / "tree")])
    assert set(errors.values()) == {0}, errors


@users
def test_beyond_the_rules_nothing_can_be_read_written_or_run(tree, uid):
    def try_all():
        link = tree / "tree/link"
        link.symlink_to(tree / "outside")
        return [
            errno_of((tree / "outside").read_text),
            errno_of((tree / "outside").write_text, "new"),
            errno_of(link.read_text),
            errno_of(link.write_text, "new"),
            errno_of(os.scandir, tree),
            errno_of(os.posix_spawn, "/bin/true", ["true"], {}),
        ]

    assert under(try_all, uid, write=[str(tree / "tree")]) == [EACCES] * 6
    assert (tree / "outside").read_text() == "old"


def test_not_even_root_makes_a_device_node_where_it_may_write(tree):
    if os.getuid():
        pytest.skip("only root makes device nodes")
    null = stat.S_IFCHR | 0o666, os.makedev(1, 3)

    def make():
        return errno_of(os.mknod, tree / "tree/null", *null)

    assert under(make, 0, write=[str(tree)]) == EACCES
    assert in_child(make) == 0


@users
@pytest.mark.parametrize("devices", ["/dev/null", "/dev"])
def test_devices_can_be_read_written_and_controlled(uid, devices):
    def use():
        with Path("/dev/null").open("r+b", buffering=0) as null:
            null.write(b"gone")
            return null.read(), errno_of(fcntl.ioctl, null, TCGETS)

    assert under(use, uid, devices=[devices]) == (b"", errno.ENOTTY)


@users
@needs(5)
def test_where_files_may_be_written_devices_are_not_controlled(uid):
    def control():
        with Path("/dev/null").open("r+b", buffering=0) as null:
            return errno_of(fcntl.ioctl, null, TCGETS)

    assert under(control, uid, write=["/dev"]) == EACCES


@users
@needs(4)
@pytest.mark.parametrize("deny_tcp", [True, False])
def test_tcp_is_denied_only_where_it_is_asked_for(uid, deny_tcp):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def use():
            with socket.socket() as client, socket.socket() as listener:
                return [
                    errno_of(client.connect, server.getsockname()),
                    errno_of(listener.bind, ("127.0.0.1", 0)),
                ]

        assert under(use, uid, deny_tcp=deny_tcp) == [EACCES if deny_tcp else 0] * 2


@users
@needs(6)
def test_abstract_sockets_are_connected_among_ourselves_only(uid):
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(f"\0sanderling-outside-{os.getpid()}")
        outside.listen()

        def connect():
            with socket.socket(socket.AF_UNIX) as ours:
                ours.bind(f"\0sanderling-inside-{os.getpid()}")
                ours.listen()
                return [
                    errno_of(socket.socket(socket.AF_UNIX).connect, server.getsockname())
                    for server in (outside, ours)
                ]

        assert under(connect, uid) == [EPERM, 0]
        assert in_child(connect, uid) == [0, 0]


@users
@needs(6)
def test_signals_reach_our_own_children_only(uid):
    def as_user_sends_signals():
        outsider = os.fork()
        if outsider == 0:
            signal.pause()

        def send():
            child = os.fork()
            if child == 0:
                signal.pause()
            return errno_of(os.kill, outsider, 0), errno_of(os.kill, child, signal.SIGKILL)

        try:
            return in_child(send), under(send, None)
        finally:
            os.kill(outsider, signal.SIGKILL)

    assert in_child(as_user_sends_signals, uid) == ((0, 0), (EPERM, 0))


@users
def test_one_ruleset_serves_many_children_and_leaves_their_parent_free(tree, uid):
    def as_zygote():
        ruleset = Ruleset(read=["/"], deny_tcp=True)

        def command():
            ruleset.restrict_self()
            return errno_of((tree / "outside").write_text, "new")

        return in_child(command), in_child(command), errno_of((tree / "outside").write_text, "new")

    assert in_child(as_zygote, uid) == (EACCES, EACCES, 0)


@users
def test_rules_hold_for_a_file_whatever_is_granted_beneath_a_directory(tree, uid):
    def use():
        return [
            errno_of((tree / "tree/a/file").write_text, "new"),
            errno_of((tree / "outside").write_text, "new"),
            errno_of((tree / "outside").read_text),
        ]

    paths = {"write": [str(tree / "tree/a/file")], "read": [str(tree / "outside")]}
    assert under(use, uid, **paths) == [0, EACCES, 0]


@users
def test_a_path_that_does_not_exist_or_leads_through_a_link_grants_nothing(tree, uid):
    (tree / "link").symlink_to("tree")
    (tree / "tree/file").symlink_to("../outside")
    paths = [tree / "absent", tree / "outside/below", tree / "link", tree / "link/a"]
    paths += [tree / "tree/file"]

    def use():
        return [
            errno_of((tree / "tree/a/file").write_text, "new"),
            errno_of((tree / "outside").write_text, "new"),
        ]

    assert under(use, uid, write=[str(path) for path in paths]) == [EACCES] * 2


def test_an_errno_left_by_an_earlier_call_is_no_error():
    def restrict():
        ctypes.set_errno(errno.ENOENT)
        ruleset = Ruleset(**EVERYTHING, deny_tcp=True)
        ctypes.set_errno(errno.ENOENT)
        ruleset.restrict_self()

    in_child(restrict)


def test_close_leaves_no_descriptor():
    def descriptors():
        return {path.name for path in Path("/proc/self/fd").iterdir()}

    before = descriptors()
    ruleset = Ruleset(
        read=["/usr", "/absent"], write=["/tmp"], devices=["/dev/null"], deny_tcp=True
    )
    assert descriptors() > before
    ruleset.close()
    assert descriptors() == before


@pytest.mark.parametrize("release", [platform.release(), "6.6.0+"])
def test_a_refusal_of_the_kernel_is_one_sentence(monkeypatch, release):
    # The package looks at the kernel's name while it explains an error.
    monkeypatch.setattr(platform, "release", lambda: release)
    ruleset = Ruleset(deny_tcp=True)
    ruleset.close()
    with pytest.raises(SandboxError, match="Bad file descriptor"):
        ruleset.restrict_self()


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_kernel_without_landlock_is_version_0_and_takes_no_rules(answer):
    def without_landlock():
        create = number("landlock_create_ruleset")
        assert create
        code = seccomp._switch(seccomp.NUMBER, [([create], seccomp._refuse(answer))], seccomp.ALLOW)
        seccomp.install(seccomp._assemble(code))
        with pytest.raises(SandboxError, match="no Landlock"):
            Ruleset(deny_tcp=True)
        return abi()

    assert in_child(without_landlock) == 0


def test_the_version_is_the_one_that_the_kernel_reports():
    assert abi() == syscall("landlock_create_ruleset", None, 0, 1)


@needs(6)
def test_a_version_with_a_right_that_the_kernel_rejects_is_not_counted(monkeypatch):
    reported = abi()
    monkeypatch.setitem(landlock.NEW_RIGHTS, reported, (1 << 40, 0, 0))
    assert abi() == reported - 1
    Ruleset(**EVERYTHING, deny_tcp=True).close()


def test_the_rights_of_unix_sockets_are_granted_where_the_kernel_knows_them(tree):
    Ruleset(sockets=[str(tree)], deny_tcp=False).close()
