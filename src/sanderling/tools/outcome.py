"""Outcomes: how the use of a tool ended, or what it would change."""

import msgspec

from sanderling.errors import ToolError
from sanderling.protocol.events import ChangedLines
from sanderling.protocol.messages import ImageBlock, TextBlock
from sanderling.protocol.reviews import Proposal
from sanderling.sandbox.denials import Denial

Content = str | tuple[TextBlock | ImageBlock, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """
    The outcome of a tool use.

    `content` is what the model is told. On the screen `summary` follows the tool's own line (`+3 −1`, `12 matches`), and
    `detail` is what its fold holds, in the syntax `filetype`. `denials` are what the sandbox refused to it; if it
    `is_denied`, it was not let run at all. `job` goes on in the background. Of a command, `output_chars` is how much of `content`,
    from its beginning, is what it has put out; that stands above `detail`. `changed` are the files that were changed.
    """

    content: Content
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    denials: tuple[Denial, ...] = ()
    job: str = ""
    output_chars: int | None = None
    changed: tuple[ChangedLines, ...] = ()


class RefusedError(ToolError):
    """The sandbox refused what a tool use needs; the person can grant exactly that."""

    def __init__(self, message: str, denial: Denial) -> None:
        super().__init__(message)
        self.denial = denial


class Preview(msgspec.Struct, frozen=True):
    """
    The preview that the person is shown before a tool use runs: what it would do, in the syntax `filetype`, and a `note` on it.

    A `proposal` can be reviewed hunk by hunk.
    """

    subject: str
    filetype: str = ""
    note: str = ""
    proposal: Proposal | None = None


class OverlapError(ToolError):
    """
    The person has unsaved changes in the very text that a tool use would change; they can let it go over them.

    `text` is what the buffer holds, `preview` what would become of it.
    """

    def __init__(self, message: str, text: str, preview: Preview) -> None:
        super().__init__(message)
        self.text = text
        self.preview = preview
