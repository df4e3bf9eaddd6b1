"""Session updates: the agent's progress, and its replay of a session."""

from typing import Any, get_args

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.acp.wire.base import Wire
from sanderling.acp.wire.content import ContentBlock, Location, ToolContent
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.sessions import ConfigOption

KIND = "sessionUpdate"


class Update(Wire, frozen=True, tag_field=KIND):
    pass


class UserMessageChunk(Update, frozen=True, tag="user_message_chunk"):
    """`message_id` is the same for all chunks of a message."""

    content: ContentBlock
    message_id: str | None = None


class AgentMessageChunk(Update, frozen=True, tag="agent_message_chunk"):
    content: ContentBlock
    message_id: str | None = None


class AgentThoughtChunk(Update, frozen=True, tag="agent_thought_chunk"):
    content: ContentBlock
    message_id: str | None = None


class ToolCall(Update, frozen=True, tag="tool_call"):
    """
    The start of a tool call.

    `kind` is read, edit, delete, move, search, execute, think, fetch, switch_mode or other; `status` is pending, in_progress, completed
    or failed.
    """

    tool_call_id: str
    title: str
    kind: str | None = None
    status: str | None = None
    name: str | None = None
    content: list[ToolContent] | None = None
    locations: list[Location] | None = None
    raw_input: Any = None
    raw_output: Any = None


class ToolCallFields(Wire, frozen=True):
    """Changed fields of a tool call. Missing fields keep their value; `content` and `locations` replace the previous lists."""

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    name: str | None = None
    content: list[ToolContent] | None = None
    locations: list[Location] | None = None
    raw_input: Any = None
    raw_output: Any = None


class ToolCallUpdate(ToolCallFields, frozen=True, tag_field=KIND, tag="tool_call_update"):
    """Changed fields of a tool call, as an update."""


class PlanEntry(Wire, frozen=True):
    """`priority` is high, medium or low; `status` pending, in_progress or completed."""

    content: str
    priority: str
    status: str


class Plan(Update, frozen=True, tag="plan"):
    """The whole plan. It replaces the previous one."""

    entries: list[PlanEntry]


class CommandInput(Wire, frozen=True):
    hint: str


class AvailableCommand(Wire, frozen=True):
    """A slash command; its name has no slash."""

    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommandsUpdate(Update, frozen=True, tag="available_commands_update"):
    available_commands: list[AvailableCommand]


class CurrentModeUpdate(Update, frozen=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(Update, frozen=True, tag="config_option_update"):
    config_options: list[ConfigOption]


class SessionInfoUpdate(Update, frozen=True, tag="session_info_update"):
    """Changed fields of the session. Missing fields keep their value; null clears it."""

    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class Cost(Wire, frozen=True):
    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, tag="usage_update"):
    """Tokens `used` in a context window of `size`, and the session's cost."""

    used: int
    size: int
    cost: Cost | None = None


class Notice(Update, frozen=True, tag="notice"):
    """A message to the user; `severity` is info, warning or error."""

    severity: str
    title: str
    description: str | None = None


class CompactionUpdate(Update, frozen=True, tag="compaction_update"):
    """The state of a compaction; `status` is in_progress, completed, failed or cancelled."""

    compaction_id: str
    status: str
    summary: list[ContentBlock] | None = None
    error: str | None = None


class CompactionSummaryChunk(Update, frozen=True, tag="compaction_summary_chunk"):
    compaction_id: str
    content: ContentBlock


SessionUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
)


class SessionNotification(Wire, frozen=True):
    """An outgoing update."""

    session_id: str
    update: SessionUpdate


class IncomingUpdate(Wire, frozen=True):
    """A received update, not decoded yet."""

    session_id: str
    update: msgspec.Raw


class _UpdateKind(msgspec.Struct, rename={"kind": KIND}):
    kind: str = ""


_KINDS: dict[str, type[SessionUpdate]] = {
    str(each.__struct_config__.tag): each for each in get_args(SessionUpdate)
}


def update_of(raw: msgspec.Raw) -> SessionUpdate | str:
    """
    Return the decoded update, or the kind of an unknown one.

    Raises:
        RpcError: it is of a known kind, but malformed.
    """
    kind = decoded(raw, _UpdateKind).kind
    return decoded(raw, _KINDS[kind]) if kind in _KINDS else kind
