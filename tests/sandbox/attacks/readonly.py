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
def ro_create(world: World) -> str:
    _file(world).with_name("new").touch()
    return "created"


@attack("ro-unlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_unlink(world: World) -> str:
    _file(world).unlink()
    return "removed"


@attack("ro-rename", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_rename(world: World) -> str:
    _file(world).rename(_file(world).with_name("renamed"))
    return "renamed"


@attack("ro-truncate", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_truncate(world: World) -> str:
    os.truncate(_file(world), 0)
    return "truncated"


@attack("ro-mkdir", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_mkdir(world: World) -> str:
    _file(world).with_name("new").mkdir()
    return "made"


@attack("ro-symlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_symlink(world: World) -> str:
    _file(world).with_name("new").symlink_to("file")
    return "linked"


@attack("ro-hardlink", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_hardlink(world: World) -> str:
    """A second name where writing is allowed."""
    link = Path(os.environ.get("TMPDIR", "/tmp"), f"link-{world.id}")
    os.link(_file(world), link)
    with link.open("a") as file:
        file.write("x")
    link.unlink()
    return "written through a link"


@attack("ro-move-out", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_move_out(world: World) -> str:
    _file(world).rename(Path(os.environ["HOME"], f"moved-{world.id}"))
    return "moved"


@attack("ro-chmod", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro")
def ro_chmod(world: World) -> str:
    _file(world).chmod(0o777)
    return "changed"


@attack("ro-utime", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro")
def ro_utime(world: World) -> str:
    os.utime(_file(world), (1, 1))
    return "changed"


@attack(
    "ro-setxattr", kind="read-only", severity="low", evidence="changed", target=_PLACE, scene="ro"
)
def ro_setxattr(world: World) -> str:
    os.setxattr(_file(world), "user.attack", b"1")
    return "changed"


@attack("ro-bind-socket", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_bind_socket(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(_file(world).with_name("sock")))
    return "bound"


@attack("ro-through-proc", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_through_proc(world: World) -> str:
    """Reopening what is open for reading."""
    fd = os.open(_file(world), os.O_RDONLY)
    with Path(f"/proc/self/fd/{fd}").open("a") as file:
        file.write("x")
    return "appended"


@attack("ro-remount", kind="read-only", evidence="changed", target=_PLACE, scene="ro")
def ro_remount(world: World) -> str:
    become_namespace_root()
    syscall("mount", world.project, world.project, None, 0x5000, None)
    syscall("mount", None, world.project, None, 0x1020, None)
    return ro_append(world)


@attack(
    "ro-git-commit", kind="read-only", evidence="changed", target="{project}/.git/refs", scene="ro"
)
def ro_git_commit(world: World) -> str:
    command = [
        *("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm"),
        "x",
    ]
    subprocess.run(command, cwd=world.project, check=True, capture_output=True)
    return "committed"


@attack(
    "ro-git-hook", kind="read-only", evidence="changed", target="{project}/.git/hooks", scene="ro"
)
def ro_git_hook(world: World) -> str:
    hook = Path(world.project, ".git/hooks/pre-push")
    hook.write_text("#!/bin/sh\n")
    return "planted"
