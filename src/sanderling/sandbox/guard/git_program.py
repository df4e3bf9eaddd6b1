"""Runs the system's git so that the project cannot decide which program runs."""

import os

from sanderling.paths import is_within

GIT_TIMEOUT_S = 2
"""The limit for one call, and for all calls about `.env` files together. A repository may include a FIFO, for which git waits."""


class AmbiguousPathError(ValueError):
    """A pointer that programs may read differently. `str(error)` is a predicate, after "it"."""


def follow_links(path: str) -> str:
    """
    Return `path` with all links resolved. Missing parts are kept as written.

    Raises:
        AmbiguousPathError: there are too many links, or a loop.
    """
    try:
        real = os.path.realpath(path)
    except (OSError, RecursionError) as error:
        raise AmbiguousPathError("follows too many links") from error
    if os.path.islink(real):
        raise AmbiguousPathError("is a loop of links")
    return real


def leads_to(directory: str, path: str) -> str:
    """Return the resolved target of `path` relative to `directory`, or "" if it is unclear."""
    try:
        return follow_links(os.path.join(directory, path))
    except AmbiguousPathError:
        return ""


class TrustedGit:
    """
    The first `git` on PATH that is outside all roots, because commands could place a program there.

    All users of a session share one instance, so that a new root applies to all of them at once.
    """

    def __init__(self, *roots: str) -> None:
        self._roots = set(roots)

    def distrust(self, *roots: str) -> None:
        self._roots.update(roots)

    @property
    def program(self) -> str:
        """The path of that git, or ""."""
        for directory in self._search_path():
            if os.access(f"{directory}/git", os.X_OK):
                return f"{directory}/git"
        return ""

    def _search_path(self) -> list[str]:
        forbidden = {*self._roots, *(leads_to("/", root) for root in self._roots)} - {""}

        def is_outside(directory: str) -> bool:
            places = (
                os.path.normpath(directory),
                leads_to("/", directory),
                leads_to(directory, "git"),
            )
            return all(places) and not any(
                is_within(place, root) for place in places for root in forbidden
            )

        return [item for item in os.get_exec_path() if item.startswith("/") and is_outside(item)]

    def run(
        self, *arguments: str, cwd: str, stdin: bytes = b"", is_bare: bool = False
    ) -> bytes | None:
        """
        Return git's output, or None if it fails or is missing. With `is_bare`, git does not read the user's configuration.

        It fetches nothing, because the repository may be a command's, and its config chooses the program that fetches.
        """
        import subprocess

        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("GIT_") or (key.startswith("GIT_CONFIG_") and not is_bare)
        }
        environment |= {"PATH": os.pathsep.join(self._search_path()), "LC_ALL": "C"}
        environment |= {
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_LAZY_FETCH": "1",
        }
        if is_bare:
            environment |= {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
            environment |= {"GIT_CONFIG_NOSYSTEM": "1"}
        try:
            done = subprocess.run(  # noqa: S603
                [self.program, *arguments],
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
