"""The git of the system, run where nothing of the project can tell it what to run."""

import os
from collections.abc import Iterable

from sanderling.paths import is_within

GIT_TIMEOUT_S = 2
"""For one call, and for all calls about `.env` files together: a repository may include a FIFO, which git waits for."""


class UnclearError(ValueError):
    """A pointer that two readers may read differently. `str(error)` continues "it …"."""


def real_path(path: str) -> str:
    """
    `path` without links; what does not exist stays as it is written.

    Raises:
        UnclearError: there are more links than the kernel would follow, or a loop of them.
    """
    try:
        real = os.path.realpath(path)
    except (OSError, RecursionError) as error:
        raise UnclearError("follows too many links") from error
    if os.path.islink(real):
        raise UnclearError("is a loop of links")
    return real


def leads_to(directory: str, path: str) -> str:
    """Where `path`, as it is written in `directory`, leads; empty if that is unclear."""
    try:
        return real_path(os.path.join(directory, path))
    except UnclearError:
        return ""


_distrusted: set[str] = set()


def distrust(*roots: str) -> None:
    """Run no git from below `roots` from now on; what is surveyed is distrusted at once."""
    _distrusted.update(roots)


def git_program(roots: Iterable[str]) -> str:
    """The first `git` on PATH that is in none of `roots`, where a command could put one; empty if there is none."""
    for directory in _search_path(tuple(roots)):
        if os.access(f"{directory}/git", os.X_OK):
            return f"{directory}/git"
    return ""


def _search_path(roots: tuple[str, ...]) -> list[str]:
    forbidden = {*roots, *(leads_to("/", root) for root in roots)} - {""}

    def is_outside(directory: str) -> bool:
        places = (os.path.normpath(directory), leads_to("/", directory), leads_to(directory, "git"))
        return all(places) and not any(
            is_within(place, root) for place in places for root in forbidden
        )

    return [item for item in os.get_exec_path() if item.startswith("/") and is_outside(item)]


def run_git(
    project: str,
    *arguments: str,
    cwd: str,
    stdin: bytes = b"",
    is_bare: bool = False,
) -> bytes | None:
    """
    What git prints; None if it fails or is not there. `is_bare`: without the user's own configuration.

    It may stand in a repository that a command has made, so it fetches nothing: the config says by which program to fetch.
    """
    import subprocess

    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    roots = (project, *_distrusted)
    environment |= {"PATH": os.pathsep.join(_search_path(roots)), "LC_ALL": "C"}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}
    if is_bare:
        environment |= {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(  # noqa: S603
            [git_program(roots), *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout
