"""Facts about the machine and the project for the model: date, platform, branch, test runner."""

import platform
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sanderling.project.programs import TestRunners
from sanderling.project.trust.reading import TrustReader, visible_name
from sanderling.text import counted

_COMMIT = r"[0-9a-f]{40}|[0-9a-f]{64}"

_BRANCH = r"ref: refs/heads/([\w./@+#=,-]{1,200})"


NO_REPOSITORY = "no repository"

_UNUSUAL = {
    "off": "off: commands run with all rights of the user",
    "outer": "the container around this session: commands can write wherever it lets them, and the network is its own",
    "landlock": "on, without a private /tmp: use $TMPDIR",
    "seatbelt": "on, without a private /tmp and without loopback: use $TMPDIR, and unix sockets there",
}
"""Levels at which the sandbox is not what the system prompt says."""


class SessionFacts:
    """The facts around a session, and which of them were sent: all of them once, then only changes."""

    def __init__(self, project: str, today: Callable[[], str] | None = None) -> None:
        self._project = project
        self._project_name = visible_name(project)
        self._today = today or _today
        self._files = TrustReader()
        self._tests = TestRunners(project)
        self._sent: dict[str, str] = {}
        self._git_state = ""
        self.needs_git = git_head(project, self._files) != NO_REPOSITORY

    def learn_changed(self, count: int | None) -> None:
        """Take the number of files that differ from the last commit, as it was when the session began; None if git does not say."""
        self.needs_git = False
        head = git_head(self._project, self._files)
        if count is not None:
            changed = f"{counted(count, 'file')} changed" if count else "clean"
            self._git_state = f"{head}, {changed}"

    def _git(self) -> str:
        """Return the branch, and as long as it is the same, the state in which the session found it."""
        head = git_head(self._project, self._files)
        for known in (self._git_state, self._sent.get("git", "")):
            if known.startswith(f"{head}, "):
                return known
        return head

    def news(self, *, sandbox: str, network: str) -> str:
        """
        Return the facts that were not sent yet, or have changed since; "" for nothing. They count as sent from now on.

        An empty fact is not known yet.
        """
        facts = {
            "project root": self._project_name,
            "git": self._git(),
            "tests": self._tests.found(),
            "platform": _platform(),
            "date": self._today(),
            "sandbox": self._sandbox_words(sandbox),
            "network": network,
        }
        news = {name: fact for name, fact in facts.items() if fact and self._sent.get(name) != fact}
        if not news:
            return ""
        heading = "Now" if self._sent else "Where this session is"
        self._sent |= news
        lines = "\n".join(f"{name}: {fact}" for name, fact in news.items())
        return f"[{heading}:\n{lines}]"

    def _sandbox_words(self, level: str) -> str:
        """Return what the model must know of the sandbox: nothing as long as it is what the system prompt says."""
        words = _UNUSUAL.get(level, "")
        return words or ("on" if level and "sandbox" in self._sent else "")

    def state(self) -> dict[str, str]:
        return dict(self._sent)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Invalid data counts as nothing sent."""
        try:
            self._sent = msgspec.convert(state, dict[str, str])
        except msgspec.ValidationError:
            self._sent = {}

    def forget(self) -> None:
        """Send everything again, because the model no longer sees what it was sent."""
        self._sent = {}


def git_head(project: str, files: TrustReader) -> str:
    """Return the branch or commit that is checked out, in words. Runs no git, because that would run what the repository configures."""
    head = _head(Path(project), files)
    if branch := re.fullmatch(_BRANCH, head):
        return f"branch {branch[1]}"
    if re.fullmatch(_COMMIT, head):
        return f"commit {head[:12]}, no branch"
    return "a head of another kind" if head else NO_REPOSITORY


def _head(project: Path, files: TrustReader) -> str:
    for directory in map(str, (project, *project.parents)):
        link = _line(f"{directory}/.git", files)  # a worktree's or a submodule's is a file
        is_link = link.startswith("gitdir: ")
        git = Path(directory, link.removeprefix("gitdir: ")) if is_link else f"{directory}/.git"
        if head := _line(f"{git}/HEAD", files):
            return head
    return ""


def _line(path: str, files: TrustReader) -> str:
    content = files.read(path)
    return content.text.strip() if content else ""


@cache
def _platform() -> str:
    system = f"{platform.system()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} ({system})"
    except (OSError, KeyError):
        return system


def _today() -> str:
    return time.strftime(
        "%Y-%m-%d"
    )  # datetime refuses offsets of a day or more, which POSIX allows in TZ
