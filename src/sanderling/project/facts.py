"""Facts that the model is told of the machine and the project: date, platform, branch."""

import platform
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sanderling.project.trust.reading import Reader, visible_name

_COMMIT = r"[0-9a-f]{40}|[0-9a-f]{64}"

_BRANCH = r"ref: refs/heads/([\w./@+#=,-]{1,200})"


class Facts:
    """The facts around a session, and what of it the model has been told: all of it once, then what is new."""

    def __init__(self, project: str, today: Callable[[], str] | None = None) -> None:
        self._project = project
        self._project_name = visible_name(project)
        self._today = today or _today
        self._files = Reader()
        self._told: dict[str, str] = {}

    def news(self, *, sandbox: str, network: str) -> str:
        """
        The news that the model has not been told, "" if there is nothing. It counts as told from here on.

        A fact that is empty is not known yet.
        """
        facts = {
            "project root": self._project_name,
            "git": git_head(self._project, self._files),
            "platform": _platform(),
            "date": self._today(),
            "sandbox": sandbox,
            "network": network,
        }
        news = {name: fact for name, fact in facts.items() if fact and self._told.get(name) != fact}
        if not news:
            return ""
        heading = "Now" if self._told else "Where this session is"
        self._told |= news
        lines = "\n".join(f"{name}: {fact}" for name, fact in news.items())
        return f"[{heading}:\n{lines}]"

    def state(self) -> dict[str, str]:
        """All that the model has been told, as plain data for `restore`."""
        return dict(self._told)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. What is no state counts as nothing told."""
        try:
            self._told = msgspec.convert(state, dict[str, str])
        except msgspec.ValidationError:
            self._told = {}

    def forget(self) -> None:
        """The model is not shown any more what it was told: tell it all again."""
        self._told = {}


def git_head(project: str, files: Reader) -> str:
    """The branch or commit that is checked out, in words. It runs no git: that would run what the repository's configuration says."""
    head = _head(Path(project), files)
    if branch := re.fullmatch(_BRANCH, head):
        return f"branch {branch[1]}"
    if re.fullmatch(_COMMIT, head):
        return f"commit {head[:12]}, no branch"
    return "a head of another kind" if head else "no repository"


def _head(project: Path, files: Reader) -> str:
    for directory in map(str, (project, *project.parents)):
        link = _line(f"{directory}/.git", files)  # a worktree's or a submodule's is a file
        is_link = link.startswith("gitdir: ")
        git = Path(directory, link.removeprefix("gitdir: ")) if is_link else f"{directory}/.git"
        if head := _line(f"{git}/HEAD", files):
            return head
    return ""


def _line(path: str, files: Reader) -> str:
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
