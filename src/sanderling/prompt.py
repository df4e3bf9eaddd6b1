"""What the model is told before and with a person's words."""

import re
from collections.abc import Sequence
from importlib.resources import files

from sanderling.events import Prompt, Selection
from sanderling.messages import CommandRecord, Message, TextBlock


def system_prompt(project: str) -> str:
    """The same bytes for every request of a session, or the API's cache of the prefix would be lost."""
    template = files("sanderling").joinpath("system_prompt.md").read_text(encoding="utf-8")
    return template.replace("{project}", project)


def prompt_message(
    prompt: Prompt, commands: Sequence[CommandRecord] = (), notes: Sequence[str] = ()
) -> Message:
    """
    What the model is shown of `prompt`, of the commands that the person ran before it, and `notes` of ours.

    Without words, its lines alone, for the API refuses blank text.
    """
    before = (*map(_command_text, commands), *map(_selection_text, prompt.selections))
    texts = (*notes, *before, prompt.text)
    return Message("user", tuple(TextBlock(text) for text in texts if text.strip()))


def _command_text(record: CommandRecord) -> str:
    shown = f"$ {record.command}\n{record.output}"
    fence = _fence_around(shown)
    return f"The person ran this command in the project; it {record.outcome}:\n{fence}\n{shown}\n{fence}"


def _selection_text(selection: Selection) -> str:
    fence = _fence_around(selection.text)
    return (
        f"{selection.path}:{selection.first_line}-{selection.last_line}, as it stands in the editor:\n"
        f"{fence}{selection.filetype}\n{selection.text}\n{fence}"
    )


def _fence_around(text: str) -> str:
    """A Markdown fence that nothing inside `text` can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return "`" * (longest + 1)
