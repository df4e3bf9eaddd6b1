"""Updates of a session: what the agent tells while it works, and what it told before."""

from typing import Any, get_args

import msgspec
from msgspec import UNSET, UnsetType

from sanderling.acp.base import Wire
from sanderling.acp.config_options import ConfigOption
from sanderling.acp.content import ContentBlock, Location, ToolContent
from sanderling.acp.envelope import decoded

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
    A tool call that begins.

    `kind` is read, edit, delete, move, search, execute, think, fetch, switch_mode or other; `status` pending, in_progress, completed
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
    """The news of a tool call, as a question has it; what is not said stays, and `content` and `locations` replace what was said."""

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
    """The news of a tool call, as an update."""


class PlanEntry(Wire, frozen=True):
    """`priority` is high, medium or low; `status` pending, in_progress or completed."""

    content: str
    priority: str
    status: str


class Plan(Update, frozen=True, tag="plan"):
    """The whole plan, in the place of the one before."""

    entries: list[PlanEntry]


class CommandInput(Wire, frozen=True):
    hint: str


class AvailableCommand(Wire, frozen=True):
    """A slash command, its name without the slash."""

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
    """News of the session itself: what is not said stays; null takes it away."""

    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET


class Cost(Wire, frozen=True):
    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, tag="usage_update"):
    """Tokens in the context, of `size`, and what the session has cost."""

    used: int
    size: int
    cost: Cost | None = None


class Notice(Update, frozen=True, tag="notice"):
    """A sentence for the person; `severity` is info, warning or error."""

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
    """An update on its way out."""

    session_id: str
    update: SessionUpdate


class IncomingUpdate(Wire, frozen=True):
    """An update that has come, of whatever kind."""

    session_id: str
    update: msgspec.Raw


class _Kind(msgspec.Struct, rename={"kind": KIND}):
    kind: str = ""


_KINDS: dict[str, type[SessionUpdate]] = {
    str(each.__struct_config__.tag): each for each in get_args(SessionUpdate)
}


def update_of(raw: msgspec.Raw) -> SessionUpdate | str:
    """
    The update that has come; of one that is not known here, its kind.

    Raises:
        RpcError: it is of a known kind, and malformed.
    """
    kind = decoded(raw, _Kind).kind
    return decoded(raw, _KINDS[kind]) if kind in _KINDS else kind
