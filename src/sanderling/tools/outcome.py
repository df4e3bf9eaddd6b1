"""Outcomes: how a tool call ended, and what it would change."""

import msgspec

from sanderling.errors import ToolError
from sanderling.protocol.events import ChangedLines
from sanderling.protocol.messages import ResultBlock
from sanderling.protocol.reviews import Proposal
from sanderling.sandbox.denials import Denial

Content = str | tuple[ResultBlock, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """
    The outcome of a tool call.

    The model gets `content`. On the screen, `summary` follows the call's title (`+3 −1`, `12 matches`), and the fold contains `detail` in
    the syntax `filetype`. `denials` are the accesses that the sandbox refused; if it `is_denied`, it did not run. `job` continues in the
    background. For a command, the first `output_chars` of `content` are its output, shown above `detail`. `changed` lists the changed
    files.
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


class AccessRefusedError(ToolError):
    """The sandbox refused an access that the call needs; the user can grant exactly that."""

    def __init__(self, message: str, denial: Denial) -> None:
        super().__init__(message)
        self.denial = denial


class Preview(msgspec.Struct, frozen=True):
    """
    The preview of a tool call for the user: its effect, in the syntax `filetype`, and a `note` on it.

    A `proposal` can be reviewed hunk by hunk.
    """

    subject: str
    filetype: str = ""
    note: str = ""
    proposal: Proposal | None = None


class UnsavedConflictError(ToolError):
    """
    The user has unsaved changes in the text that a tool would change; they can agree to overwrite them.

    `text` is the buffer's content, `preview` the change to it.
    """

    def __init__(self, message: str, text: str, preview: Preview) -> None:
        super().__init__(message)
        self.text = text
        self.preview = preview
