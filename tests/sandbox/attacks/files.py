"""Writing where nothing may be written: the user's files, other people's temporary files, the system."""

# Attacks are system calls.
# ruff: noqa: PTH208

import ctypes
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .kernel import AT_FDCWD, AT_SYMLINK_FOLLOW, libc, syscall
from .registry import Stopped, World, attack, fact, root, unprivileged


def _append(path: Path | str) -> str:
    with open(path, "a") as file:  # noqa: PTH123
        file.write("# written by the attack\n")
    return f"appended to {path}"


def _create(path: Path | str) -> str:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    return f"created {path}"


def _in_project(world: World, name: str = "") -> Path:
    return Path(world.project, f"attack-{world.id}{name}")


_OUTSIDE: dict[str, Callable[[Path], object]] = {
    "create": lambda outside: _create(outside / "new"),
    "append": lambda outside: _append(outside / "file"),
    "truncate": lambda outside: os.truncate(outside / "file", 0),
    "open-truncate": lambda outside: os.open(outside / "file", os.O_RDONLY | os.O_TRUNC),
    "unlink": lambda outside: (outside / "file").unlink(),
    "rename": lambda outside: (outside / "file").rename(outside / "renamed"),
    "symlink-create": lambda outside: (outside / "planted").symlink_to("/etc/passwd"),
    "mkfifo": lambda outside: os.mkfifo(outside / "fifo"),
    "mkdir": lambda outside: (outside / "new").mkdir(),
    "rmdir": lambda outside: (outside / "dir").rmdir(),
    "mknod": lambda outside: os.mknod(outside / "node", stat.S_IFREG | 0o600),
}

for _name, _act in _OUTSIDE.items():

    @attack(f"file-{_name}", kind="files", evidence="changed")
    def change_outside(world: World, act: Callable[[Path], object] = _act) -> None:
        act(world.outside)


@attack("file-move-into-project", kind="files", evidence="changed")
def file_move_into_project(world: World) -> None:
    (world.outside / "file").rename(_in_project(world))


@attack("file-replace-from-project", kind="files", evidence="changed")
def file_replace_from_project(world: World) -> None:
    source = _in_project(world)
    source.write_text("planted")
    source.replace(world.outside / "file")


@attack("file-exchange", kind="files", evidence="changed")
def file_exchange(world: World) -> None:
    """RENAME_EXCHANGE: two names swap what they stand for."""
    ours = _in_project(world)
    ours.write_text("planted")
    syscall("renameat2", AT_FDCWD, str(ours), AT_FDCWD, str(world.outside / "file"), 2)


@attack("file-hardlink-out", kind="files", evidence="changed")
def file_hardlink_out(world: World) -> None:
    ours = _in_project(world)
    ours.write_text("planted")
    os.link(ours, world.outside / "planted")


@attack("file-hardlink-in", kind="files", evidence="changed")
def file_hardlink_in(world: World) -> str:
    ours = _in_project(world)
    os.link(world.outside / "file", ours)
    return _append(ours)


@attack("file-bind-socket", kind="files", evidence="changed")
def file_bind_socket(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(world.outside / "sock"))


@attack("file-tmpfile-linkat", kind="files", evidence="changed")
def file_tmpfile_linkat(world: World) -> None:
    """An unnamed file of the project gets its name outside."""
    fd = os.open(world.project, os.O_TMPFILE | os.O_RDWR, 0o600)
    source, target = f"/proc/self/fd/{fd}".encode(), str(world.outside / "named").encode()
    if libc.linkat(AT_FDCWD, source, AT_FDCWD, target, AT_SYMLINK_FOLLOW):
        raise OSError(ctypes.get_errno(), "linkat")


@attack("file-dotdot", kind="files", evidence="changed")
def file_dotdot(world: World) -> str:
    return _append(f"{world.project}/../../{world.outside.relative_to(world.home)}/file")


@attack("file-through-symlink", kind="files", evidence="changed")
def file_through_symlink(world: World) -> str:
    link = _in_project(world)
    link.symlink_to(world.outside / "file")
    return _append(link)


@attack("file-through-directory-symlink", kind="files", evidence="changed")
def file_through_directory_symlink(world: World) -> str:
    link = _in_project(world)
    link.symlink_to(world.outside)
    return _create(link / "new")


@attack("file-through-existing-symlink", kind="files", evidence="changed")
def file_through_existing_symlink(world: World) -> str:
    """A symlink that was in the project before."""
    return _append(f"{world.project}/way-out/{world.id}/file")


def _through_proc(prefix: str) -> Callable[[World], str]:
    def run(world: World) -> str:
        root_path = prefix.format(pid=world.server_pid)
        return _append(f"{root_path}{world.outside}/file")

    return run


def _can_enter_pid_1(_world: World) -> str:
    return "" if os.access("/proc/1/root/etc", os.X_OK) else "pid 1 has a root of its own"


for _id, _prefix in (
    ("proc-self-root", "/proc/self/root"),
    ("proc-1-root", "/proc/1/root"),
    ("proc-victim-root", "/proc/{pid}/root"),
    ("proc-victim-task-root", "/proc/{pid}/task/{pid}/root"),
):
    _needs = (root, _can_enter_pid_1) if _id == "proc-1-root" else ()
    attack(f"file-{_id}", kind="files", evidence="changed", needs=_needs)(_through_proc(_prefix))


@attack("file-proc-victim-cwd", kind="files", evidence="changed")
def file_proc_victim_cwd(world: World) -> str:
    """The victim's server runs in its HOME."""
    return _append(f"/proc/{world.server_pid}/cwd/outside/{world.id}/file")


@attack("file-proc-victim-fd", kind="files", evidence="changed")
def file_proc_victim_fd(world: World) -> str:
    return _append(f"/proc/{world.server_pid}/fd/{world.home_fd}/outside/{world.id}/file")


@attack("file-proc-ancestors", kind="files", evidence="changed")
def file_proc_ancestors(world: World) -> str:
    """The processes that started us may have kept what we lost: their root, their working directory, their files."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for way in ("root", "cwd/../../../../../../.."):
            try:
                return _append(f"/proc/{pid}/{way}{world.outside}/file")
            except OSError:
                continue
    raise Stopped("no process's root led out")


@attack("file-cwd-left-behind", kind="files", evidence="changed")
def file_cwd_left_behind(world: World) -> str:
    """A working directory that was moved from under us."""
    inner = _in_project(world)
    inner.mkdir()
    os.chdir(inner)
    inner.rename(world.outside / "moved")
    return _create("new")


@attack("file-rename-race", kind="files", evidence="changed", timeout_s=8)
def file_rename_race(world: World) -> None:
    """A path that is a directory when it is looked at and a symlink out when it is used."""
    base = _in_project(world)
    (base / "real").mkdir(parents=True)
    (base / "link").symlink_to(world.outside)
    (base / "swap").mkdir()
    is_done = False

    def swap() -> None:
        while not is_done:
            syscall("renameat2", AT_FDCWD, str(base / "swap"), AT_FDCWD, str(base / "link"), 2)

    threading.Thread(target=swap, daemon=True).start()
    deadline = time.monotonic() + 0.4
    while time.monotonic() < deadline:
        try:
            _append(base / "swap" / "file")
        except OSError:
            continue
    is_done = True


for _name, _path in (
    ("shell-rc", ".bashrc"),
    ("profile", ".profile"),
    ("nvim-config", ".config/nvim/init.lua"),
    ("gitconfig", ".gitconfig"),
    ("authorized-keys", ".ssh/authorized_keys"),
    ("sandbox-state", ".local/state/sanderling/trusted"),
    ("session-log", ".local/state/nvim/sanderling/sessions/old.jsonl"),
    ("own-config", ".config/sanderling/config.toml"),
    ("other-project", "work/other/main.py"),
):

    @attack(
        f"plant-{_name}", kind="files", evidence="changed", target=f"{{home}}/{_path}", needs=()
    )
    def plant(world: World, path: str = _path) -> str:
        return _append(Path(world.home, path))


for _name, _path in (
    ("autostart", ".config/autostart"),
    ("local-bin", ".local/bin"),
    ("systemd-user", ".config/systemd/user"),
    ("python-site", ".local/lib"),
):

    @attack(f"plant-{_name}", kind="files", evidence="changed", target=f"{{home}}/{_path}")
    def plant_in(world: World, path: str = _path) -> str:
        return _create(Path(world.home, path, "planted"))


@attack("visible-create", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_create(world: World) -> str:
    return _create(world.visible / "new")


@attack("visible-append", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_append(world: World) -> str:
    return _append(world.visible / "file")


@attack("visible-unlink", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_unlink(world: World) -> None:
    (world.visible / "file").unlink()


@attack("visible-truncate", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_truncate(world: World) -> None:
    if libc.truncate(str(world.visible / "file").encode(), 0):
        raise Stopped("truncate failed")


@attack("visible-move-into-project", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_move_into_project(world: World) -> None:
    (world.visible / "file").rename(_in_project(world))


@attack("visible-hardlink-in", kind="files", evidence="changed", target="{elsewhere}/{id}")
def visible_hardlink_in(world: World) -> str:
    ours = _in_project(world)
    os.link(world.visible / "file", ours)
    return _append(ours)


for _name, _dir in (("tmp", "/tmp"), ("var-tmp", "/var/tmp"), ("dev-shm", "/dev/shm")):

    @attack(f"{_name}-append", kind="files", evidence="changed", target=f"{_dir}/{{name}}/{{id}}")
    def shared_append(world: World, path: str = _dir) -> str:
        return _append(f"{path}/{world.name}/{world.id}/file")

    @attack(f"{_name}-plant", kind="files", evidence="changed", target=f"{_dir}/{{name}}-{{id}}")
    def shared_plant(world: World, path: str = _dir) -> str:
        """A file that a program of the user's would find."""
        return _create(f"{path}/{world.name}-{world.id}")


@attack(
    "run-append",
    kind="files",
    evidence="changed",
    target="/run/{name}/{id}",
    needs=(fact("has_run"),),
)
def run_append(world: World) -> str:
    return _append(f"/run/{world.name}/{world.id}/file")


@attack("etc-append", kind="files", evidence="changed", target="/etc/{name}", needs=(root,))
def etc_append(world: World) -> str:
    return _append(f"/etc/{world.name}/file")


@attack(
    "usr-create", kind="files", evidence="changed", target="/usr/local/lib/{name}", needs=(root,)
)
def usr_create(world: World) -> str:
    return _create(f"/usr/local/lib/{world.name}/new")


@attack("setuid-program", kind="files", needs=(fact("setuid_program"),))
def setuid_program(world: World) -> str:
    """`id -u` with the setuid bit and another user's."""
    ours = os.geteuid()
    with os.popen(f"{world.setuid_program} -u") as output:
        answer = output.read().strip()
    if not answer or int(answer) == ours:
        raise Stopped(f"still {ours}")
    return f"became {answer}"


@attack("become-other-user", kind="files", evidence="loot", needs=(root,))
def become_other_user(world: World) -> str:
    os.setgid(world.other_uid)
    os.setuid(world.other_uid)
    return Path(world.other_users_file).read_text()


@attack("override-permissions", kind="files", evidence="loot", needs=(root,))
def override_permissions(world: World) -> str:
    """CAP_DAC_OVERRIDE: root reads what another user closed."""
    return Path(world.other_users_file).read_text()


@attack("sudo", kind="files", needs=(unprivileged, fact("has_sudo")))
def sudo(_world: World) -> str:
    if os.system("sudo -n true 2>/dev/null"):
        raise Stopped("no")
    return "sudo"
