"""`ro`, the plan mode: the project itself cannot be written."""

import os
import socket
import subprocess
from pathlib import Path

from .kernel import become_namespace_root, syscall
from .registry import World, attack

_PLACE = "{project}/keep/{id}"


def _file(world: World) -> Path:
    return Path(world.project, "keep", world.id, "file")


@attack("ro-append", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_append(world: World) -> str:
    with _file(world).open("a") as file:
        file.write("x")
    return "appended"


@attack("ro-create", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_create(world: World) -> None:
    _file(world).with_name("new").touch()


@attack("ro-unlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_unlink(world: World) -> None:
    _file(world).unlink()


@attack("ro-rename", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_rename(world: World) -> None:
    _file(world).rename(_file(world).with_name("renamed"))


@attack("ro-truncate", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_truncate(world: World) -> None:
    os.truncate(_file(world), 0)


@attack("ro-mkdir", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_mkdir(world: World) -> None:
    _file(world).with_name("new").mkdir()


@attack("ro-symlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_symlink(world: World) -> None:
    _file(world).with_name("new").symlink_to("file")


@attack("ro-hardlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_hardlink(world: World) -> None:
    """A second name where writing is allowed."""
    link = Path(os.environ.get("TMPDIR", "/tmp"), f"link-{world.id}")
    os.link(_file(world), link)
    with link.open("a") as file:
        file.write("x")
    link.unlink()


@attack("ro-move-out", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_move_out(world: World) -> None:
    _file(world).rename(Path(os.environ["HOME"], f"moved-{world.id}"))


@attack("ro-chmod", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro")
def ro_chmod(world: World) -> None:
    _file(world).chmod(0o777)


@attack("ro-utime", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro")
def ro_utime(world: World) -> None:
    os.utime(_file(world), (1, 1))


@attack(
    "ro-setxattr", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro"
)
def ro_setxattr(world: World) -> None:
    os.setxattr(_file(world), "user.attack", b"1")


@attack("ro-bind-socket", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_bind_socket(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(_file(world).with_name("sock")))


@attack("ro-through-proc", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_through_proc(world: World) -> None:
    """Reopening what is open for reading."""
    fd = os.open(_file(world), os.O_RDONLY)
    with Path(f"/proc/self/fd/{fd}").open("a") as file:
        file.write("x")


@attack("ro-remount", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_remount(world: World) -> str:
    become_namespace_root()
    syscall("mount", world.project, world.project, None, 0x5000, None)
    syscall("mount", None, world.project, None, 0x1020, None)
    return ro_append(world)


@attack(
    "ro-git-commit", kind="read-only", evidence="changed", target="{project}/.git/refs", scene="ro"
)
def ro_git_commit(world: World) -> None:
    command = [
        *("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm"),
        "x",
    ]
    subprocess.run(command, cwd=world.project, check=True, capture_output=True)


@attack(
    "ro-git-hook", kind="read-only", evidence="changed", target="{project}/.git/hooks", scene="ro"
)
def ro_git_hook(world: World) -> None:
    hook = Path(world.project, ".git/hooks/pre-push")
    hook.write_text("#!/bin/sh\n")
