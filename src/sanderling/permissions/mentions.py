"""Mentions in a prompt: the editor has put in what they stand for; here the rules say whether the model may have it."""

import os
import re
from collections.abc import Callable, Iterator

from sanderling.errors import ConfigError
from sanderling.protocol.messages import Prompt, Selection

# The files that a difference is about, and those of a list of places.
_IN_DIFFERENCE = (
    r'(?m)^(?:---|\+\+\+|rename from|rename to|copy from|diff --git) "?(?:[ab]/)?(.+?)"?$'
)
_IN_LIST = r"(?m)^(.+?):\d+"


def check_mentions(prompt: Prompt, project: str, may_read: Callable[[str], bool] | None) -> None:
    """
    Return if the model may have all that `prompt` mentions. Lines that a person has selected are theirs to send.

    Raises:
        ConfigError: a rule keeps some of it from the model.
    """
    for selection in prompt.selections if may_read else ():
        for path in _paths(selection):
            if may_read and not may_read(absolute(path, project)):
                held = f"{selection.path} holds {path}, which a rule keeps"
                told = f"A rule keeps {path}" if path == selection.path else held
                raise ConfigError(f"{told} from the model: nothing was sent.")


def absolute(path: str, project: str) -> str:
    return os.path.normpath(os.path.join(project, os.path.expanduser(path)))  # noqa: PTH111, PTH118 - a name as text


def _paths(selection: Selection) -> Iterator[str]:
    if not selection.origin:
        return
    if selection.path in ("@diff", "@staged"):
        for found in re.finditer(_IN_DIFFERENCE, selection.text):
            yield from found[1].split(" b/") if found[0].startswith("diff --git") else (found[1],)
    elif selection.path.startswith("@"):
        yield from (found[1] for found in re.finditer(_IN_LIST, selection.text))
    else:
        yield selection.path
