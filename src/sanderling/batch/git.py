"""Git, for copies and patches: with no configuration of the user's, no hooks, and no questions."""

import os
import subprocess
from pathlib import Path

from sanderling.errors import SanderlingError
from sanderling.paths import path_outside

PROTOCOLS = "file:git:http:https:ssh"  # not `ext`, which runs a command
PROGRAM = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")


class GitError(SanderlingError):
    """Git failed; `str(error)` is what it said."""


def git(
    *arguments: str | Path, cwd: str | Path, env: dict[str, str] | None = None, is_own: bool = True
) -> bytes:
    """
    Return the output of a git command. Unless it `is_own`, git reads the user's configuration, as for an address with credentials.

    Raises:
        GitError: it failed, or there is no git.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables = inherited | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        "PATH": path_outside(str(cwd)),
    }
    if is_own:
        variables |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
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
        command = next((str(each) for each in arguments if str(each)[:1] != "-"), "")
        raise GitError(f"git {command} failed: {said}")
    return done.stdout


def names_in(output: bytes) -> list[str]:
    """Return the names that `-z` separates."""
    return [os.fsdecode(name) for name in output.split(b"\0") if name]
