"""Messages by which an agent has its client run tools: files and commands are the client's, and so are sandbox, rules and questions."""

from typing import Any

import msgspec

from sanderling.acp.base import Wire

RUN, OUTPUT = "_sanderling/tool", "_sanderling/tool_output"


class ToolRequest(Wire, frozen=True):
    """
    A tool use for the client to judge and to run. It runs once, however often it is asked for under the same `id`.

    `tool_use_id` is the model's own name of it, by which session/update tells of it. `together` is the same for all uses of one message,
    if it has several: who denies one denies those that have not begun.
    """

    session_id: str
    id: str
    name: str
    tool_use_id: str = ""
    together: str = ""
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class ToolAnswer(Wire, frozen=True):
    """
    The outcome. `content` is what the model is told, text or content blocks of its API, and `notes` what it is told beside that.

    `summary`, `detail` and `filetype` are for the screen; `output_chars` says how much of `content`, from its beginning, was put out
    meanwhile.
    """

    content: Any
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    notes: list[str] | None = None
    output_chars: int | None = None


class ToolOutput(Wire, frozen=True):
    """
    A piece of what the tool use `id` has put out while it runs. `start` is how many characters came before it.

    A client whose connection was cut sends everything again, from 0, when it is asked for the use once more.
    """

    session_id: str
    id: str
    text: str
    start: int | None = None
