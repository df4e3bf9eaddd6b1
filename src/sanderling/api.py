"""
What a Python package that extends Sanderling imports: `:help sanderling-packages`.

Nothing here changes its meaning within one `API_VERSION`.
"""

from sanderling.errors import ConfigError, ProviderError, ToolError
from sanderling.packages import API_VERSION
from sanderling.protocol.messages import (
    Message,
    NoteBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    PlainProvider,
    Provider,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolSpec,
    UsageReport,
)
from sanderling.providers.endpoint import Endpoint
from sanderling.tools.base import Context, Tool, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview

__all__ = [
    "API_VERSION",
    "BlockDone",
    "ConfigError",
    "Context",
    "Effect",
    "Endpoint",
    "Message",
    "ModelLimits",
    "ModelRequest",
    "NoteBlock",
    "Outcome",
    "PlainProvider",
    "Preview",
    "Provider",
    "ProviderError",
    "ReplyDone",
    "StreamItem",
    "TextBlock",
    "TextPiece",
    "ThinkingBlock",
    "ThinkingPiece",
    "Tool",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "ToolUse",
    "Usage",
    "UsageReport",
    "tool",
]
