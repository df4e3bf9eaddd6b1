"""`ro`, the plan mode: the project itself cannot be written."""

import os
import socket
import subprocess
from collections.abc import Callable
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


_CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda file: file.with_name("new").touch(),
    "unlink": lambda file: file.unlink(),
    "rename": lambda file: file.rename(file.with_name("renamed")),
    "truncate": lambda file: os.truncate(file, 0),
    "mkdir": lambda file: file.with_name("new").mkdir(),
    "symlink": lambda file: file.with_name("new").symlink_to("file"),
    "chmod": lambda file: file.chmod(0o777),
    "utime": lambda file: os.utime(file, (1, 1)),
    "setxattr": lambda file: os.setxattr(file, "user.attack", b"1"),
}

for _name, _change in _CHANGES.items():

    @attack(
        f"ro-{_name}",
        kind="read-only",
        evidence="changed",
        target=_PLACE,
        scene="ro",
    )
    def change(world: World, change: Callable[[Path], object] = _change) -> None:
        change(_file(world))


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
