"""Messages about sessions: creating, listing, resuming, closing, prompting, cancelling, and their options."""

from typing import ClassVar

from sanderling.acp.wire.base import Wire
from sanderling.acp.wire.content import ContentBlock


class ConfigChoice(Wire, frozen=True):
    """A value of an option, or a group of values, which has `group` and `options`."""

    exact: ClassVar = ("value", "name", "group")
    value: str | None = None
    name: str = ""
    description: str | None = None
    group: str | None = None
    options: "list[ConfigChoice] | None" = None


class ConfigOption(Wire, frozen=True):
    """
    An option; its `type` is select, with `options`, or boolean.

    `category` is mode, model, model_config, thought_level, or unknown.
    """

    exact: ClassVar = ("options",)
    id: str
    name: str
    type: str
    current_value: str | bool
    description: str | None = None
    category: str | None = None
    options: list[ConfigChoice] | None = None


class SessionMode(Wire, frozen=True):
    id: str
    name: str
    description: str | None = None


class SessionModes(Wire, frozen=True):
    current_mode_id: str
    available_modes: list[SessionMode]


class Pair(Wire, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class McpServer(Wire, frozen=True):
    """An MCP server: a `command` if there is no `type`, else http or sse with a `url`."""

    exact: ClassVar = ("type", "command", "args", "env", "url", "headers")
    name: str
    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: list[Pair] | None = None
    url: str | None = None
    headers: list[Pair] | None = None


class NewSessionRequest(Wire, frozen=True):
    """All paths are absolute."""

    exact: ClassVar = ("mcp_servers", "additional_directories")
    cwd: str
    mcp_servers: list[McpServer] | None = None
    additional_directories: list[str] | None = None


class OldSessionRequest(Wire, frozen=True):
    """Parameters of session/load, which replays the history, and of session/resume, which does not."""

    exact: ClassVar = ("mcp_servers", "additional_directories")
    session_id: str
    cwd: str
    mcp_servers: list[McpServer] | None = None
    additional_directories: list[str] | None = None


class OldSessionResponse(Wire, frozen=True):
    modes: SessionModes | None = None
    config_options: list[ConfigOption] | None = None


class NewSessionResponse(Wire, frozen=True):
    session_id: str
    modes: SessionModes | None = None
    config_options: list[ConfigOption] | None = None


class ListSessionsRequest(Wire, frozen=True):
    exact: ClassVar = ("cwd", "cursor")
    cwd: str | None = None
    cursor: str | None = None


class SessionInfo(Wire, frozen=True):
    """`updated_at` is an ISO 8601 time."""

    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None
    additional_directories: list[str] | None = None


class ListSessionsResponse(Wire, frozen=True):
    sessions: list[SessionInfo]
    next_cursor: str | None = None


class SessionRequest(Wire, frozen=True):
    """Parameters of session/close, session/delete and session/cancel."""

    session_id: str


class PromptRequest(Wire, frozen=True):
    exact: ClassVar = ("prompt",)
    session_id: str
    prompt: list[ContentBlock]


class TokenUsage(Wire, frozen=True):
    """
    The tokens of a turn. `input_tokens` include those read from the cache or written to it: `total_tokens` is input plus output.

    The protocol has the field, but leaves open what the numbers contain. Harbor counts the input with the cache.
    """

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int
    cached_write_tokens: int


class PromptResponse(Wire, frozen=True):
    """`stop_reason` is end_turn, max_tokens, max_turn_requests, refusal or cancelled; `usage` is missing if it is unknown."""

    stop_reason: str
    usage: TokenUsage | None = None


class SetModeRequest(Wire, frozen=True):
    session_id: str
    mode_id: str


class SetConfigOptionRequest(Wire, frozen=True):
    """`type` is boolean if the value is."""

    session_id: str
    config_id: str
    value: str | bool
    type: str | None = None


class SetConfigOptionResponse(Wire, frozen=True):
    config_options: list[ConfigOption]
