"""Messages with which an agent has its client run tools. Files, commands, sandbox, rules and permission questions are the client's."""

from typing import Any

import msgspec

from sanderling.acp.wire.base import Wire

RUN, OUTPUT = "_sanderling/tool", "_sanderling/tool_output"


class ToolRequest(Wire, frozen=True):
    """
    A tool call for the client to judge and run. It runs once, however often it is sent with the same `id`.

    `tool_use_id` is the model's ID, which session/update also uses. `together` is the same for all calls of a message with several:
    denying one denies those that have not started.
    """

    session_id: str
    id: str
    name: str
    tool_use_id: str = ""
    together: str = ""
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class ToolAnswer(Wire, frozen=True):
    """
    The result. `content` goes to the model, as text or as content blocks of its API; `notes` are further messages to the model.

    `summary`, `detail` and `filetype` are for the screen. `output_chars` is the length of the beginning of `content` that was already
    sent as output.
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
    A piece of the output of the running call `id`. `start` is the number of characters before it.

    A client that was disconnected sends all output again, from 0, when it gets the call again.
    """

    session_id: str
    id: str
    text: str
    start: int | None = None
