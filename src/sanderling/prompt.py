"""What the model is told before and with a person's words."""

import re
from importlib.resources import files

from sanderling.events import Prompt, Selection
from sanderling.messages import Message, TextBlock


def system_prompt(project: str) -> str:
    """The same bytes for every request of a session, or the API's cache of the prefix would be lost."""
    template = files("sanderling").joinpath("system_prompt.md").read_text(encoding="utf-8")
    return template.replace("{project}", project)


def prompt_message(prompt: Prompt) -> Message:
    """What the model is shown of `prompt`; without words, its lines alone, for the API refuses blank text."""
    words = [prompt.text] if prompt.text.strip() else []
    return Message(
        "user", tuple(map(TextBlock, [*map(_selection_text, prompt.selections), *words]))
    )


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
