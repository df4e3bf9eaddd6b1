"""The root of the project for a command line."""

import os
from contextlib import suppress
from pathlib import Path

from sanderling.errors import UsageError
from sanderling.text import printable


def project_root(directory: str) -> str:
    """
    Return `directory`, or else the nearest one upwards with a `.git` of the user's own, as the editor does, or else the current one.

    Raises:
        UsageError: the directory does not exist, or cannot be a project.
    """
    try:
        root = str(_root_named(directory) if directory else _root_around(Path.cwd()))
    except FileNotFoundError as error:
        raise UsageError("the current directory no longer exists") from error
    except OSError as error:
        raise UsageError(f"cannot access {error.filename}: {error.strerror}") from error
    if printable(root) != root:  # logs and requests to models cannot contain it
        raise UsageError(f"the name of '{root}' is not UTF-8: rename the directory")
    return root


def _root_named(directory: str) -> Path:
    if not Path(directory).is_dir():
        raise UsageError(f"there is no directory '{directory}'")
    return Path(directory).resolve()


def _root_around(here: Path) -> Path:
    return next(filter(_holds_own_repository, (here, *here.parents)), here)


def _holds_own_repository(directory: Path) -> bool:
    """
    Return True if `directory` contains a `.git`, and both belong to this user or to root.

    In a directory that many may write, such as /tmp, anyone can make a `.git`. A user who works below would open all of it as their
    project, including other users' `AGENTS.md` and their own other files. Git refuses such a repository as well ("dubious ownership",
    safe.directory in git-config(1)), and trusts the user behind `sudo`, too.
    """
    if not (dot_git := directory / ".git").exists():
        return False
    trusted = {os.geteuid(), 0}
    if os.geteuid() == 0:
        with suppress(KeyError, ValueError):
            trusted.add(int(os.environ["SUDO_UID"]))
    looks = dot_git.stat(), dot_git.lstat(), directory.stat()
    return {look.st_uid for look in looks} <= trusted
