"""
Git on the host, for repositories in which a model has worked.

Git runs programs that its configuration names: hooks, filters, the file system monitor. Here all are turned off, the user's own
as well. A filter that is off leaves a file as git stores it: a worktree then contains the pointers of Git LFS.

Git also looks into repositories below a worktree, with *their* configuration, when it compares a submodule (`git status`, `git add`).
So only plumbing commands that ignore them are used.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from functools import cached_property

from sanderling.errors import WorktreeError
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.text import printable

TIMEOUT_S = 600.0
IDENTITY = {
    "GIT_AUTHOR_NAME": "Sanderling",
    "GIT_AUTHOR_EMAIL": "sanderling@localhost",
    "GIT_COMMITTER_NAME": "Sanderling",
    "GIT_COMMITTER_EMAIL": "sanderling@localhost",
}
OFF = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "all",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
FILTER_OFF = {"smudge": "", "clean": "", "process": "", "required": "false"}
MAX_REASON_CHARS = 300
ANOTHER_IS_MADE_S = 5.0
POLL_S = 0.05


class Git:
    """Runs git in `directory`, of a project or a worktree. Programs below the `distrusted` directories do not count as git."""

    def __init__(self, directory: str, *distrusted: str) -> None:
        self.directory = directory
        self._trusted = TrustedGit(directory, *distrusted)

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> bytes:
        """
        Return git's output.

        Raises:
            WorktreeError: it failed, with its reason.
        """
        done = self._done(arguments, stdin, env)
        if done.returncode:
            raise WorktreeError(f"git {arguments[0]} failed: {_reason(done.stderr)}")
        return done.stdout

    def line(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """
        Return git's output as one line, without its end.

        Raises:
            WorktreeError: git failed.
        """
        return os.fsdecode(self.run(*arguments, env=env)).removesuffix("\n")

    def maybe(self, *arguments: str, env: Mapping[str, str] | None = None) -> str | None:
        """Return git's output as one line, or None if it fails, as it does to say no."""
        done = self._done(arguments, b"", env)
        return None if done.returncode else os.fsdecode(done.stdout).removesuffix("\n")

    def paths(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        """
        Return the paths that git lists with -z.

        Raises:
            WorktreeError: git failed.
        """
        return [path for path in os.fsdecode(self.run(*arguments, env=env)).split("\0") if path]

    def _done(
        self, arguments: tuple[str, ...], stdin: bytes, env: Mapping[str, str] | None
    ) -> "subprocess.CompletedProcess[bytes]":
        variables = {**_as_variables(self._settings), **(env or {})}
        done = self._raw(arguments, stdin, variables)
        # Git writes the files of a worktree one by one, so `git worktree add` and `list` fail while another process adds or removes
        # one, before they change anything: of eight at once, one in ten failed. A file that stays empty is reported at the end.
        ends_at = time.monotonic() + ANOTHER_IS_MADE_S
        while _meets_another(done) and time.monotonic() < ends_at:
            time.sleep(POLL_S)
            done = self._raw(arguments, stdin, variables)
        return done

    @cached_property
    def filters(self) -> tuple[str, ...]:
        """The names of the filters that any configuration defines."""
        keys = os.fsdecode(self._raw(("config", "--list", "--name-only", "-z"), b"", {}).stdout)
        found = (
            key.removeprefix("filter.") for key in keys.split("\0") if key.startswith("filter.")
        )
        return tuple(sorted({name.rpartition(".")[0] for name in found} - {""}))

    @cached_property
    def _settings(self) -> dict[str, str]:
        return OFF | {
            f"filter.{name}.{key}": value
            for name in self.filters
            for key, value in FILTER_OFF.items()
        }

    def _raw(
        self, arguments: tuple[str, ...], stdin: bytes, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        program = self._trusted.program
        if not program:
            raise WorktreeError("git is not installed: a worktree needs it")
        own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        own |= {
            "LC_ALL": "C",
            "PATH": f"{os.path.dirname(program)}:/usr/bin:/bin",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }
        try:
            return subprocess.run(  # noqa: S603
                [program, *arguments],
                input=stdin,
                capture_output=True,
                cwd=self.directory,
                env={**own, **IDENTITY, **env},
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorktreeError(f"git took longer than {TIMEOUT_S:g} s") from error
        except (OSError, ValueError) as error:
            raise WorktreeError(
                f"git cannot run in {printable(self.directory)}: {error}"
            ) from error


def _meets_another(done: "subprocess.CompletedProcess[bytes]") -> bool:
    reason = done.stderr.strip()
    return (
        done.returncode != 0
        and reason.startswith(b"fatal: failed to read ")
        and b"/commondir: " in reason
    )


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return git's variables for `settings`. Unlike -c, they can express a name with an equals sign."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _reason(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = next((line for line in lines if line.startswith(("fatal:", "error:"))), "")
    text = last or (lines[-1] if lines else "it gave no reason")
    return printable(text.removeprefix("fatal: ").removeprefix("error: "))[:MAX_REASON_CHARS]
