"""
Git, for copies and patches: with no configuration of the user's, no hooks, and no questions.

A project may come from anybody, with the configuration of its repository. Git runs the programs that it names for filters, outside of any
sandbox, when it compares or changes a file of the project. So those commands get `is_foreign`, which turns filters off.
"""

import os
import subprocess
from pathlib import Path

from sanderling.errors import SanderlingError
from sanderling.paths import path_outside
from sanderling.providers.redaction import is_secret

PROTOCOLS = "file:git:http:https:ssh"  # not `ext`, which runs a command
FILTER_OFF = {"smudge": "", "clean": "", "process": "", "required": "false"}
PROGRAM = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
# Git would look into a submodule with the configuration that is there. Copies and patches have none.
NO_SUBMODULES = ("-c", "diff.ignoreSubmodules=all", "-c", "submodule.recurse=false")


class GitError(SanderlingError):
    """Git failed; `str(error)` is what it said."""


def git(
    *arguments: str | Path,
    cwd: str | Path,
    env: dict[str, str] | None = None,
    is_own: bool = True,
    is_foreign: bool = False,
) -> bytes:
    """
    Return the output of a git command. Unless it `is_own`, git reads the user's configuration, as for an address with credentials.

    With `is_foreign`, no program runs that the configuration of the repository names.

    Raises:
        GitError: it failed, or there is no git.
    """
    variables = _inherited(is_own=is_own) | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        "PATH": path_outside(str(cwd)),
    }
    if is_own:
        variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    if is_foreign:
        arguments = (*NO_SUBMODULES, *arguments)
        variables |= _without_filters(cwd)
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            [*PROGRAM, *arguments],
            cwd=cwd,
            env=variables | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise GitError(f"git cannot be started: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        words = arguments[len(NO_SUBMODULES) :] if is_foreign else arguments
        command = next((str(each) for each in words if str(each)[:1] != "-"), "")
        raise GitError(f"git {command} failed: {said}")
    return done.stdout


def _inherited(*, is_own: bool) -> dict[str, str]:
    """Return this process's environment for git. Only a helper for credentials may need a secret that is in it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") and not (is_own and is_secret(name, value))
    }


def _without_filters(cwd: str | Path) -> dict[str, str]:
    """Return variables that turn off all filters of the repository around `cwd`. They override its files."""
    keys = names_in(git("config", "--list", "--includes", "--name-only", "-z", cwd=cwd))
    found = (key.removeprefix("filter.") for key in keys if key.startswith("filter."))
    names = sorted({name.rpartition(".")[0] for name in found} - {""})
    settings = [(f"filter.{name}.{key}", FILTER_OFF[key]) for name in names for key in FILTER_OFF]
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def names_in(output: bytes) -> list[str]:
    """Return the names that `-z` separates."""
    return [os.fsdecode(name) for name in output.split(b"\0") if name]
