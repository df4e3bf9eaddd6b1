"""Processes that mean to stay: the victim looks for them after the command's end."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .registry import PATIENCE_S, World, attack, fact


def _stay(world: World) -> None:
    """Become a program whose command line says which attack it is, and beat in the project."""
    beat = Path(world.project, f"beat-{world.id}")
    code = (
        "import signal, sys, time\n"
        "for number in (1, 2, 13, 15, 18): signal.signal(number, signal.SIG_IGN)\n"
        "for beat in range(600):\n"
        "    open(sys.argv[1], 'a').write('.'); time.sleep(0.05)\n"
    )
    os.execv(sys.executable, [sys.executable, "-c", code, str(beat), world.marker + world.id])


def _started(world: World) -> str:
    """Give it the time to start: the attack is that it stays."""
    beat = Path(world.project, f"beat-{world.id}")
    deadline = time.monotonic() + PATIENCE_S
    while not beat.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return beat.exists() and "left a process"


def _silence() -> None:
    """Let go of the pipes: the command ends for whoever waits for the end of its output."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 256)


@attack("daemon", kind="leftovers", evidence="alive", scene="leftover")
def daemon(world: World) -> str:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _silence()
            _stay(world)
        os._exit(0)
    os.wait()
    return _started(world)


@attack("daemon-holds-output", kind="leftovers", evidence="alive", scene="leftover")
def daemon_holds_output(world: World) -> str:
    """The same, with our standard output kept open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _stay(world)
        os._exit(0)
    os.wait()
    return _started(world)


@attack("background-child", kind="leftovers", evidence="alive", scene="leftover")
def background_child(world: World) -> str:
    if os.fork() == 0:
        _silence()
        _stay(world)
    return _started(world)


@attack("nohup", kind="leftovers", evidence="alive", scene="leftover")
def nohup(world: World) -> str:
    command = f"while :; do echo . >> '{world.project}/beat-{world.id}'; sleep .05; done"
    subprocess.Popen(
        ["nohup", "setsid", "sh", "-c", command, world.marker + world.id],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return _started(world)


@attack("stopped-child", kind="leftovers", evidence="alive", scene="leftover")
def stopped_child(world: World) -> str:
    """A stopped process ignores what it is told until it continues."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _silence()
        _stay(world)
    answer = _started(world)
    os.kill(pid, signal.SIGSTOP)
    return answer


@attack("respawner", kind="leftovers", evidence="alive", scene="leftover")
def respawner(world: World) -> str:
    """Two processes that start each other again: whoever kills them one by one is too slow."""
    if os.fork() == 0:
        os.setsid()
        _silence()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if os.fork():
                time.sleep(0.002)
                os._exit(0)
            if (
                not Path(world.project, f"beat-{world.id}").exists()
                or int(time.monotonic() * 50) % 3 == 0
            ):
                Path(world.project, f"beat-{world.id}").touch()
            # The name to be recognised by: PR_SET_NAME.
            ctypes.CDLL(None).prctl(15, world.short_marker.encode(), 0, 0, 0)
        os._exit(0)
    return _started(world)


@attack("subreaper", kind="leftovers", evidence="alive", scene="leftover")
def subreaper(world: World) -> str:
    """A process that collects the orphans itself, so that none returns to the one who counts them."""
    if os.fork() == 0:
        os.setsid()
        _silence()
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        if os.fork() == 0:
            if os.fork() == 0:
                _stay(world)
            os._exit(0)
        time.sleep(10)
        os._exit(0)
    return _started(world)


@attack("no-parent-death-signal", kind="leftovers", evidence="alive", scene="leftover")
def no_parent_death_signal(world: World) -> str:
    """PR_SET_PDEATHSIG can be taken back."""
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        os.setsid()
        _silence()
        _stay(world)
    return _started(world)


@attack("daemon-without-init", kind="leftovers", evidence="alive", scene="late")
def daemon_without_init(world: World) -> str:
    """Who is to end the daemon when the command ends is ended first: the parent of the program that runs the attacks."""
    answer = daemon(world)
    if "SANDERLING_SANDBOX" in os.environ:
        parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), signal.SIGKILL)
    return answer


@attack("crontab", kind="leftovers", needs=(fact("has_crontab"),))
def crontab(_world: World) -> str:
    subprocess.run(["crontab", "-"], input=b"# planted\n", check=True, capture_output=True)
    subprocess.run(["crontab", "-r"], check=True, capture_output=True)
    return "a job for later"


@attack("at-job", kind="leftovers", needs=(fact("has_at"),))
def at_job(_world: World) -> str:
    subprocess.run(["at", "now + 1 year"], input=b"true\n", check=True, capture_output=True)
    return "a job for later"
