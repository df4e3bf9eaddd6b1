"""
The attempts of the self-test: `python trials.py NAME FACTS`. Only the standard library, because it is a copy in the scene's project.

An escape prints what it found. Whether it succeeded is judged from outside. A task succeeded if its exit status is 0.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

PATIENCE_S = 5.0
NOT_HERE = 77
"""Exit status if the program is not installed (automake's for a skipped test)."""
_DEVELOPER_DIRECTORIES = ("/Library/Developer/CommandLineTools", "/Applications/Xcode.app")

Evidence = Literal["said", "changed", "reached", "ended"]
"""How an escape is judged: it printed the token, the marked files changed, a server was reached, or the other process has ended."""


class Facts(NamedTuple):
    """The paths and numbers of a scene. Its token is not among them."""

    project: str
    outside: str
    port: int
    pid: int
    label: str


class Escape(NamedTuple):
    words: str
    evidence: Evidence
    attempt: Callable[[Facts], object]


class Task(NamedTuple):
    words: str
    attempt: Callable[[Facts], object]


def read_secret(facts: Facts) -> None:
    _say(Path(facts.outside, "secret").read_text())


def list_directory(facts: Facts) -> None:
    _say(*(path.name for path in Path(facts.outside, "private").iterdir()))


def write_outside(facts: Facts) -> None:
    Path(facts.outside, "kept").write_text("changed")


def write_launch_agent(facts: Facts) -> None:
    agents = Path(facts.outside, "Library/LaunchAgents")
    (agents / "planted.plist").write_text("<plist/>")


def write_hook(facts: Facts) -> None:
    Path(facts.project, ".git/hooks/pre-commit").write_text("#!/bin/sh\n")


def plant_name(facts: Facts) -> None:
    Path(facts.project, ".envrc").write_text("echo planted\n")


def write_through_link(facts: Facts) -> None:
    """Give a protected file another name, and write through that."""
    other = Path(facts.project, "other")
    os.link(f"{facts.project}/.git/config", other)
    with other.open("a") as file:
        file.write("[core]\n\tfsmonitor = echo\n")


def move_repository(facts: Facts) -> None:
    git = Path(facts.project, ".git")
    git.rename(Path(facts.project, "moved"))
    (git / "hooks").mkdir(parents=True)
    (git / "hooks/pre-commit").write_text("#!/bin/sh\n")


def connect(facts: Facts) -> None:
    socket.create_connection(("127.0.0.1", facts.port), PATIENCE_S).close()


def connect_by_path(facts: Facts) -> None:
    os.chdir(facts.outside)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as there:
        there.connect("service")


def read_environment(facts: Facts) -> None:
    if sys.platform == "darwin":
        sys.stdout.buffer.write(_arguments_of(facts.pid))
    else:
        _say(Path(f"/proc/{facts.pid}/environ").read_text())


def _arguments_of(pid: int) -> bytes:
    """Return the arguments and the environment of a process on macOS (sysctl kern.procargs2)."""
    import ctypes

    kern, procargs2, size = 1, 49, ctypes.c_size_t(1 << 20)
    buffer = ctypes.create_string_buffer(size.value)
    names = (ctypes.c_int * 3)(kern, procargs2, pid)
    library = ctypes.CDLL(None, use_errno=True)
    if library.sysctl(names, 3, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[: size.value]


def end_process(facts: Facts) -> None:
    os.kill(facts.pid, signal.SIGTERM)


def start_outside(facts: Facts) -> None:
    """Have another program start one: launchd or LaunchServices on macOS, elsewhere a server on a unix socket."""
    mark = f"{facts.outside}/started"
    if sys.platform != "darwin":
        os.chdir(facts.outside)
        with socket.socket(socket.AF_UNIX) as there:
            there.connect("desktop")
            there.sendall(b"start\n")
    else:
        touch = ["/usr/bin/touch", mark]
        _run("/bin/launchctl", "submit", "-l", facts.label, "--", *touch)
        app = f"{facts.outside}/Planted.app"
        if _appears(mark) or not _run("/usr/bin/open", "-g", "-j", "-a", app):
            return
    _appears(mark)


def _appears(path: str) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.05)
    return os.path.exists(path)


ESCAPES = {
    "read-secret": Escape("read a secret in HOME", "said", read_secret),
    "list-directory": Escape("list a directory in HOME", "said", list_directory),
    "write-outside": Escape("write a file in HOME", "changed", write_outside),
    "launch-agent": Escape("write a launch agent", "changed", write_launch_agent),
    "write-hook": Escape("write a git hook of the project", "changed", write_hook),
    "plant-name": Escape("create a file that a shell runs", "changed", plant_name),
    "hard-link": Escape("write git's configuration by another name", "changed", write_through_link),
    "loopback": Escape("connect to a server on this machine", "reached", connect),
    "unix-socket": Escape("connect to a unix socket in HOME", "reached", connect_by_path),
    "environment": Escape("read another process's environment", "said", read_environment),
    "start-outside": Escape("have a program started outside", "changed", start_outside),
    "signal": Escape("end another process", "ended", end_process),
    "move-repository": Escape("replace the project's .git", "changed", move_repository),
}
"""In this order. The last ones change the scene for those after them."""


def use_files(facts: Facts) -> None:
    path = Path(facts.project, "directory/file")
    path.parent.mkdir()
    path.write_text("text")
    other = path.rename(path.with_name("other"))
    assert other.read_text() == "text"
    shutil.rmtree(path.parent)


def use_temporary_file(_: Facts) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").write_text("text")


def use_home(_: Facts) -> None:
    path = Path("~/.cache/selftest").expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text")
    path.unlink()


def run_shell(_: Facts) -> None:
    found = subprocess.run(
        ["/bin/sh", "-c", "printf 'a\\nb\\n' | sort -r | head -n 1"],
        check=True,
        capture_output=True,
    )
    assert found.stdout == b"b\n"


def end_child(_: Facts) -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    child.terminate()
    assert child.wait() == -signal.SIGTERM


def use_locks(_: Facts) -> None:
    import multiprocessing

    with multiprocessing.Lock():
        pass


def use_own_socket(_: Facts) -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("s")
            server.listen()
            client.connect("s")
            server.accept()[0].close()


def find_user(_: Facts) -> None:
    import pwd

    assert pwd.getpwuid(os.getuid()).pw_name


def run_python(facts: Facts) -> None:
    Path(facts.project, "module.py").write_text("import json, hashlib\nprint(json.dumps(1))\n")
    _succeed(sys.executable, "-I", "module.py")


def run_git(facts: Facts) -> None:
    git = _program("git")
    identity = ("-c", "user.name=Self Test", "-c", "user.email=selftest@localhost")
    Path(facts.project, "committed").write_text("text")
    _succeed(git, "add", "committed")
    _succeed(git, *identity, "commit", "-q", "-m", "self-test")
    _succeed(git, "status", "--short")


def run_make(facts: Facts) -> None:
    make = _program("make")
    Path(facts.project, "Makefile").write_text("built:\n\techo built > built\n")
    _succeed(make, "built")
    assert Path(facts.project, "built").read_text() == "built\n"


def run_node(facts: Facts) -> None:
    node = _program("node")
    Path(facts.project, "main.js").write_text("require('fs').writeFileSync('by-node', 'text')\n")
    _succeed(node, "main.js")


TASKS = {
    "python": Task("python runs a script", run_python),
    "shell": Task("a shell runs a pipeline", run_shell),
    "files": Task("files of the project are written, renamed and removed", use_files),
    "temporary": Task("temporary files are written", use_temporary_file),
    "home": Task("a cache is written in HOME", use_home),
    "children": Task("a child process is ended", end_child),
    "locks": Task("processes share a lock", use_locks),
    "sockets": Task("a unix socket of its own works", use_own_socket),
    "user": Task("the user's name is found", find_user),
    "git": Task("git commits", run_git),
    "make": Task("make builds", run_make),
    "node": Task("node runs a script", run_node),
}


def _program(name: str) -> str:
    found = shutil.which(name)
    # Without Xcode or its tools, macOS has only stand-ins in /usr/bin, which open a window that offers to install them.
    is_stand_in = sys.platform == "darwin" and (found or "").startswith("/usr/bin/")
    if not found or (is_stand_in and not any(map(os.path.exists, _DEVELOPER_DIRECTORIES))):
        _say(f"{name} is not installed")
        sys.exit(NOT_HERE)
    return found


def _succeed(*argv: str) -> None:
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)  # noqa: S603
    if ended.returncode:
        sys.exit(f"{Path(argv[0]).name}: {(ended.stderr or ended.stdout).strip()}")


def _run(*argv: str) -> bool:
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0  # noqa: S603


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join((*lines, "")))


def main(name: str, facts: str) -> None:
    known = Facts(*json.loads(facts))
    os.chdir(known.project)
    (ESCAPES.get(name) or TASKS[name]).attempt(known)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, AssertionError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
