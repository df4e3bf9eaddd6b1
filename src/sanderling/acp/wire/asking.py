"""Requests of an agent to its client: permissions, files, terminals and questions to the user."""

from typing import Any, ClassVar

from sanderling.acp.wire.base import Wire
from sanderling.acp.wire.sessions import Pair
from sanderling.acp.wire.updates import ToolCallFields


class PermissionOption(Wire, frozen=True):
    """`kind` is allow_once, allow_always, reject_once or reject_always."""

    option_id: str
    name: str
    kind: str


class PermissionRequest(Wire, frozen=True):
    exact: ClassVar = ("options",)
    session_id: str
    tool_call: ToolCallFields
    options: list[PermissionOption]


class PermissionOutcome(Wire, frozen=True):
    """`outcome` is cancelled, or selected with an `option_id`."""

    exact: ClassVar = ("option_id",)
    outcome: str
    option_id: str | None = None


class PermissionResponse(Wire, frozen=True):
    outcome: PermissionOutcome


# --- files -------------------------------------------------------------------------------------------------------------


class ReadTextFileRequest(Wire, frozen=True):
    """`line` counts from 1."""

    exact: ClassVar = ("line", "limit")
    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class ReadTextFileResponse(Wire, frozen=True):
    content: str


class WriteTextFileRequest(Wire, frozen=True):
    session_id: str
    path: str
    content: str


# --- terminals ---------------------------------------------------------------------------------------------------------


class CreateTerminalRequest(Wire, frozen=True):
    exact: ClassVar = ("args", "env", "cwd", "output_byte_limit")
    session_id: str
    command: str
    args: list[str] | None = None
    env: list[Pair] | None = None
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreateTerminalResponse(Wire, frozen=True):
    terminal_id: str


class TerminalRequest(Wire, frozen=True):
    """Parameters of terminal/output, terminal/wait_for_exit, terminal/kill and terminal/release."""

    session_id: str
    terminal_id: str


class ExitStatus(Wire, frozen=True):
    """The end of a command: its `exit_code` or the name of a `signal`. Also the result of terminal/wait_for_exit."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutputResponse(Wire, frozen=True):
    output: str
    truncated: bool
    exit_status: ExitStatus | None = None


# --- elicitation -------------------------------------------------------------------------------------------------------


class ElicitationRequest(Wire, frozen=True):
    """`mode` is form, with a `requested_schema`, or url, with a `url` and an `elicitation_id`."""

    exact: ClassVar = ("session_id", "request_id", "requested_schema", "url", "elicitation_id")
    message: str
    mode: str
    session_id: str | None = None
    tool_call_id: str | None = None
    request_id: int | str | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None


class ElicitationResponse(Wire, frozen=True):
    """`action` is accept, decline or cancel; `content` has the values of a form."""

    exact: ClassVar = ("content",)
    action: str
    content: dict[str, Any] | None = None
