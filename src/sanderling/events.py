"""
What travels between the core and its faces: events are facts (out), actions are imperatives (in).

Both are tagged unions: on the wire each is a map whose `type` is the struct's tag. `None` never travels (in Lua it would be
`vim.NIL`, which is true): a field that has nothing to say is left out.
"""

from typing import Literal

import msgspec

from sanderling.errors import ErrorKind
from sanderling.messages import Usage

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "context_full",
    "cancelled",
    "interrupted",
    "error",
]


SandboxLevel = Literal["", "full", "full-bwrap", "namespaces", "landlock", "none", "off"]
"""How much the kernel enforces; empty while that is not known yet, "off" when the person has switched the sandbox off."""
NetworkMode = Literal["off", "proxy", "on"]
Mode = Literal["ask", "auto", "plan"]
"""Whether changes and commands ask first, run when the sandbox confines them, or are not possible at all."""


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lines of a buffer as the user sees them, unsaved text included; line numbers count from 1."""

    path: str
    first_line: int
    last_line: int
    text: str
    filetype: str = ""


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person sent: an id of the face's choosing, the words, and the lines that go with them."""

    id: str
    text: str
    selections: tuple[Selection, ...] = ()


# --- events ------------------------------------------------------------------------------------------------------------


class SessionOpened(msgspec.Struct, tag="session_opened", frozen=True):
    """The session can be talked to."""

    model: str


class TurnStarted(msgspec.Struct, tag="turn_started", frozen=True):
    prompt: Prompt


class ProviderStarting(msgspec.Struct, tag="provider_starting", frozen=True):
    """The model's SDK is still loading; the request goes out as soon as it is there."""


class ThinkingDelta(msgspec.Struct, tag="thinking_delta", frozen=True):
    block_id: int
    text: str


class TextDelta(msgspec.Struct, tag="text_delta", frozen=True):
    block_id: int
    text: str


class BlockEnded(msgspec.Struct, tag="block_ended", frozen=True):
    block_id: int


class UsageUpdated(msgspec.Struct, tag="usage_updated", frozen=True, omit_defaults=True):
    """`last_request` fills the model's context window, `total` is the session's; a window of 0 is unknown."""

    last_request: Usage
    total: Usage
    context_window_tokens: int = 0


class Notice(msgspec.Struct, tag="notice", frozen=True):
    """A sentence for the person, which the model does not see."""

    level: Literal["info", "warning"]
    text: str


class ErrorOccurred(msgspec.Struct, tag="error_occurred", frozen=True):
    """The turn fails; its `TurnEnded` follows. `remedy` is what a person can do, empty when there is nothing."""

    kind: ErrorKind
    message: str
    remedy: str


class SandboxChanged(msgspec.Struct, tag="sandbox_changed", frozen=True, omit_defaults=True):
    """What confines commands from now on. `missing` says in sentences what the level leaves open; `problem` why nothing runs."""

    level: SandboxLevel
    network: NetworkMode
    missing: tuple[str, ...] = ()
    problem: str = ""


class AccessDenied(msgspec.Struct, tag="access_denied", frozen=True):
    """The sandbox refused something: the `operation` on a path, an address or a name, and the rule that stood against it."""

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: str


class GuardActed(msgspec.Struct, tag="guard_acted", frozen=True, omit_defaults=True):
    """Something that would have run code outside of the sandbox was undone; `kept_at` is where it is now."""

    kind: Literal["quarantined", "restored", "replaced", "failed"]
    path: str
    reason: str
    kept_at: str = ""


class CommandStarted(msgspec.Struct, tag="command_started", frozen=True):
    """The person runs a command in the sandbox."""

    id: str
    command: str


class CommandOutput(msgspec.Struct, tag="command_output", frozen=True):
    """Text for the screen: without escape sequences, each line in its last state."""

    id: str
    text: str


class CommandEnded(msgspec.Struct, tag="command_ended", frozen=True, omit_defaults=True):
    """`outcome` says how, in words; `notes` what a person should know besides: where the rest of the output is, for instance."""

    id: str
    outcome: str
    is_success: bool = False
    notes: tuple[str, ...] = ()


class CommandsRunning(msgspec.Struct, tag="commands_running", frozen=True):
    count: int


class ToolStarted(msgspec.Struct, tag="tool_started", frozen=True):
    """
    The model uses a tool. `title` is its line without the tool's name: `src/app.py`, `pytest -q`.

    The uses of one message run side by side and are drawn one after the other: what is between this and its `ToolEnded`
    belongs to it.
    """

    id: str
    tool: str
    title: str


class ToolOutput(msgspec.Struct, tag="tool_output", frozen=True):
    """Text for the screen, while the tool runs."""

    id: str
    text: str


class ToolEnded(msgspec.Struct, tag="tool_ended", frozen=True, omit_defaults=True):
    """
    `summary` follows the tool's own line (`+3 −1`, `✓ 2.1 s`).

    `detail`, in the syntax `filetype`, is what its fold holds, below what it has put out so far.
    """

    id: str
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False


class ToolUseShown(msgspec.Struct, tag="tool_use_shown", frozen=True):
    """The whole input, as JSON, and the whole result of a tool use, as it was asked for."""

    id: str
    tool: str
    input: str
    result: str


class ApprovalRequested(msgspec.Struct, tag="approval_requested", frozen=True, omit_defaults=True):
    """
    A person is to say whether something may be done; whatever waits for it waits without a limit.

    `subject` is what would be done, whole, in the syntax `filetype`: the command, the diff, the address. `reason` says why
    that is asked, `cwd` where it would be done. `rule` is what the answer "always" would keep, as text that can be edited;
    "always" and "session" are offered as `choices` says. `path` is the file that it is about.
    """

    id: str
    tool: str
    title: str
    subject: str
    reason: str
    cwd: str
    choices: tuple[Literal["once", "session", "always"], ...]
    filetype: str = ""
    rule: str = ""
    path: str = ""


class ApprovalSettled(msgspec.Struct, tag="approval_settled", frozen=True):
    """It was answered, or nobody waits for it any more."""

    id: str


class ModeChanged(msgspec.Struct, tag="mode_changed", frozen=True):
    mode: Mode


class TodoItem(msgspec.Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoChanged(msgspec.Struct, tag="todo_changed", frozen=True):
    items: tuple[TodoItem, ...]


class Job(msgspec.Struct, frozen=True):
    """A command of the model's that goes on in the background. `outcome` is how it ended, empty while it runs."""

    id: str
    command: str
    outcome: str


class JobsChanged(msgspec.Struct, tag="jobs_changed", frozen=True):
    jobs: tuple[Job, ...]


class JobOutput(msgspec.Struct, tag="job_output", frozen=True):
    """What a job that is watched has written, escape sequences included: text for a terminal."""

    id: str
    text: str


class TurnEnded(msgspec.Struct, tag="turn_ended", frozen=True):
    stop_reason: StopReason


Event = (
    SessionOpened
    | TurnStarted
    | ProviderStarting
    | ThinkingDelta
    | TextDelta
    | BlockEnded
    | UsageUpdated
    | Notice
    | ErrorOccurred
    | SandboxChanged
    | AccessDenied
    | GuardActed
    | CommandStarted
    | CommandOutput
    | CommandEnded
    | CommandsRunning
    | ToolStarted
    | ToolOutput
    | ToolEnded
    | ToolUseShown
    | ApprovalRequested
    | ApprovalSettled
    | ModeChanged
    | TodoChanged
    | JobsChanged
    | JobOutput
    | TurnEnded
)


# --- actions -----------------------------------------------------------------------------------------------------------


class OpenSession(msgspec.Struct, tag="open_session", frozen=True, forbid_unknown_fields=True):
    """Open the session, or resume it when its log exists. `project` is the absolute path of the project's root."""

    project: str


class SubmitPrompt(msgspec.Struct, tag="submit_prompt", frozen=True, forbid_unknown_fields=True):
    """Ask the model; a prompt that arrives during a turn waits for its end."""

    prompt: Prompt


class RunCommand(msgspec.Struct, tag="run_command", frozen=True, forbid_unknown_fields=True):
    """Run a command of the person's in the sandbox; the model sees it, and what came of it, with the next prompt."""

    id: str
    command: str


class SetNetwork(msgspec.Struct, tag="set_network", frozen=True, forbid_unknown_fields=True):
    """Change the network of what is started from now on in this session."""

    mode: NetworkMode


class SetSandbox(msgspec.Struct, tag="set_sandbox", frozen=True, forbid_unknown_fields=True):
    """Run commands without a sandbox, or with it again. Only a person may ask for the first."""

    is_on: bool


class SetMode(msgspec.Struct, tag="set_mode", frozen=True, forbid_unknown_fields=True):
    """What asks from now on, and what does not. Only a person may ask for it."""

    mode: Mode


class AnswerApproval(
    msgspec.Struct, tag="answer_approval", frozen=True, forbid_unknown_fields=True
):
    """`reason` is for the model, with "deny"; `rule` is what "always" keeps, as it was shown or as the person has changed it."""

    id: str
    answer: Literal["once", "session", "always", "deny"]
    reason: str = ""
    rule: str = ""


class InspectToolUse(
    msgspec.Struct, tag="inspect_tool_use", frozen=True, forbid_unknown_fields=True
):
    """Show the whole input and result of a tool use."""

    id: str


class WatchJob(msgspec.Struct, tag="watch_job", frozen=True, forbid_unknown_fields=True):
    """Tell what the job writes: its output so far, then what comes; or no longer."""

    id: str
    is_on: bool = True


class StopJob(msgspec.Struct, tag="stop_job", frozen=True, forbid_unknown_fields=True):
    id: str


class CancelTurn(msgspec.Struct, tag="cancel_turn", frozen=True, forbid_unknown_fields=True):
    """Stop the turn and drop the prompts that wait; without a turn, stop the command that was started last. What came is kept."""


class CloseSession(msgspec.Struct, tag="close_session", frozen=True, forbid_unknown_fields=True):
    """Stop the turn and forget the session; its log stays."""


Action = (
    OpenSession
    | SubmitPrompt
    | RunCommand
    | SetNetwork
    | SetSandbox
    | SetMode
    | AnswerApproval
    | InspectToolUse
    | WatchJob
    | StopJob
    | CancelTurn
    | CloseSession
)
