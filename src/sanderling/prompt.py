"""What the model is told before and with a person's words."""

import platform
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from sanderling.events import Prompt, Selection
from sanderling.messages import CommandRecord, Message, TextBlock
from sanderling.trust.reading import read_file, visible_name

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = re.compile(r"ref: refs/heads/([\w./@+#=,-]{1,200})")


def system_prompt() -> str:
    """The same bytes for every request of every session, or the API's cache of the prefix would be lost."""
    return files("sanderling").joinpath("system_prompt.md").read_text(encoding="utf-8")


def prompt_message(
    prompt: Prompt, commands: Sequence[CommandRecord] = (), notes: Sequence[str] = ()
) -> Message:
    """
    What the model is shown of `prompt`, of the commands that the person ran before it, and `notes` of ours.

    Without words, its lines alone, for the API refuses blank text.
    """
    before = (*notes, *map(_command_text, commands))
    return Message("user", (*_text_blocks(before), *prompt_blocks(prompt)))


def prompt_blocks(prompt: Prompt) -> tuple[TextBlock, ...]:
    """The lines that go with `prompt`, then its words."""
    return _text_blocks((*map(_selection_text, prompt.selections), prompt.sent or prompt.text))


def _text_blocks(texts: Sequence[str]) -> tuple[TextBlock, ...]:
    return tuple(TextBlock(text) for text in texts if text.strip())


def _command_text(record: CommandRecord) -> str:
    shown = f"$ {record.command}\n{record.output}"
    fence = fence_around(shown)
    return f"The person ran this command in the project; it {record.outcome}:\n{fence}\n{shown}\n{fence}"


def _selection_text(selection: Selection) -> str:
    fence = fence_around(selection.text)
    source = "piped into the prompt" if selection.is_piped else "as it stands in the editor"
    return (
        f"{visible_name(selection.path)}:{selection.first_line}-{selection.last_line}, {source}:\n"
        f"{fence}{selection.filetype}\n{selection.text}\n{fence}"
    )


def fence_around(text: str) -> str:
    """A Markdown fence that nothing inside `text` can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return "`" * (longest + 1)


# --- Facts ---------------------------------------------------------------------------------------------------------------------


class Facts:
    """What is so around a session, and what of it the model has been told: all of it once, then what is new."""

    def __init__(self, project: str, today: Callable[[], str] | None = None) -> None:
        self._project = project
        self._project_name = visible_name(project)
        self._today = today or _today
        self._told: dict[str, str] = {}

    def news(self, *, sandbox: str, network: str) -> str:
        """
        What the model has not been told, "" if there is nothing. It counts as told from here on.

        A fact that is empty is not known yet.
        """
        facts = {
            "project root": self._project_name,
            "git": git_head(self._project),
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
        """What the model has been told, as plain data for `restore`."""
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


def git_head(project: str) -> str:
    """What is checked out, in words. It runs no git: that would run what the repository's configuration says."""
    head = _head(Path(project))
    if branch := _BRANCH.fullmatch(head):
        return f"branch {branch[1]}"
    if _COMMIT.fullmatch(head):
        return f"commit {head[:12]}, no branch"
    return "a head of another kind" if head else "no repository"


def _head(project: Path) -> str:
    for directory in (project, *project.parents):
        link = _line(directory / ".git")  # a worktree's or a submodule's is a file
        is_link = link.startswith("gitdir: ")
        git = directory / (link.removeprefix("gitdir: ") if is_link else ".git")
        if head := _line(git / "HEAD"):
            return head
    return ""


def _line(path: Path) -> str:
    return read_file(str(path)).text.strip()


def _platform() -> str:
    system = f"{platform.system()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} ({system})"
    except (OSError, KeyError):
        return system


def _today() -> str:
    return datetime.now().astimezone().date().isoformat()
