"""The root of the project that a command line is about."""

import os
from contextlib import suppress
from pathlib import Path

from sanderling.errors import UsageError
from sanderling.text import printable


def project_root(directory: str) -> str:
    """
    Return the nearest directory upwards that holds a `.git` of the user's own, as the editor does, else the current one.

    Raises:
        UsageError: there is no such directory, or it is none to work in.
    """
    try:
        root = str(_root_named(directory) if directory else _root_around(Path.cwd()))
    except FileNotFoundError as error:
        raise UsageError("the current directory does not exist any more") from error
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be looked at: {error.strerror}") from error
    if printable(root) != root:  # in no log, and in no request to a model
        raise UsageError(f"the name of '{root}' is no UTF-8: give the directory another one")
    return root


def _root_named(directory: str) -> Path:
    if not Path(directory).is_dir():
        raise UsageError(f"there is no directory '{directory}'")
    return Path(directory).resolve()


def _root_around(here: Path) -> Path:
    return next(filter(_holds_own_repository, (here, *here.parents)), here)


def _holds_own_repository(directory: Path) -> bool:
    """
    Say whether `directory` holds a `.git`, and both belong to this user or to root.

    In a directory that many may write, such as /tmp, anybody can make a `.git`. Whoever works below would open all of it as
    their project, other users' `AGENTS.md` and this user's other files included. Git refuses such a repository as well
    ("dubious ownership", safe.directory in git-config(1)), and trusts the user behind `sudo`, too.
    """
    if not (dot_git := directory / ".git").exists():
        return False
    trusted = {os.geteuid(), 0}
    if os.geteuid() == 0:
        with suppress(KeyError, ValueError):
            trusted.add(int(os.environ["SUDO_UID"]))
    looks = dot_git.stat(), dot_git.lstat(), directory.stat()
    return {look.st_uid for look in looks} <= trusted
