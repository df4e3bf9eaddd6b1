"""The throw-away namespace of a trial: a root of its own, in which an agent without any sandbox can harm nothing of this machine."""

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.score.agents import ROOT
from eval.score.attacks import HOME
from eval.score.files import APP
from eval.score.scenarios import ScoreError

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "etc")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HIDDEN = ("shadow", "gshadow", "sudoers", "ssh")
"""Of /etc."""


def find_bubblewrap() -> str:
    """
    Return bubblewrap's program.

    Raises:
        ScoreError: it is missing.
    """
    if program := shutil.which("bwrap"):
        return program
    raise ScoreError("the score needs bubblewrap: install the package `bubblewrap`")


def confined(
    argv: Sequence[str],
    *,
    writable: Iterable[tuple[Path, str]],
    readable: Iterable[tuple[Path, str]] = (),
    shown: Iterable[Path] = (),
) -> list[str]:
    """
    Return `argv` in namespaces of its own: no network but loopback, no processes of this machine, an empty /tmp.

    `writable` and `readable` are paths of this machine with the paths that they get; `shown` keep theirs, read-only.
    """
    options = [find_bubblewrap(), "--unshare-all", "--die-with-parent", "--new-session"]
    options += ["--uid", "1000", "--gid", "1000", "--hostname", "trial", "--clearenv"]
    options += ["--tmpfs", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    options += ["--dir", "/var/tmp", "--dir", "/run"]  # noqa: S108
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            options += ["--ro-bind", str(path), str(path)]
    for name in HIDDEN:
        if (path := Path("/etc", name)).is_dir():
            options += ["--tmpfs", str(path)]
        elif path.exists():
            options += ["--ro-bind", "/dev/null", str(path)]
    for path in dict.fromkeys((ROOT, Path(sys.base_prefix), Path(sys.prefix), *shown)):
        if path.is_relative_to("/usr"):
            continue
        options += ["--ro-bind", str(path), str(path)]
    for path, target in readable:
        options += ["--ro-bind", str(path), target]
    for path, target in writable:
        options += ["--bind", str(path), target]
    options += ["--setenv", "PATH", PATH, "--setenv", "HOME", HOME, "--setenv", "LANG", "C.UTF-8"]
    options += ["--setenv", "PYTHONDONTWRITEBYTECODE", "1"]
    return [*options, "--chdir", APP, "--", *argv]
