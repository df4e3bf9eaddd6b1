"""
Events: facts that the agent tells its faces. Actions, which it takes, stand in `actions.py`.

Both are tagged unions: on the wire each is a map whose `type` is the struct's tag. `None` never travels (in Lua it would be
`vim.NIL`, which is true): a field that has nothing to say is left out.
"""

from typing import Literal

import msgspec

from sanderling.errors import ErrorKind
from sanderling.protocol.connections import ConnectionChanged
from sanderling.protocol.forms import FormField
from sanderling.protocol.guests import AnswerOption, GuestOptionsChanged
from sanderling.protocol.messages import Prompt, StopReason, Usage
from sanderling.protocol.modes import Mode, NetworkMode, SandboxLevel
from sanderling.protocol.restoring import ConversationRewound, FilesRestored
from sanderling.protocol.reviews import Proposal, UnreviewedFile


class SessionOpened(msgspec.Struct, tag="session_opened", frozen=True, omit_defaults=True):
    """
    The session can be talked to. One that is resumed shows the newest of what was said next, as `HistoryShown`.

    `agent` is the name of the guest that answers in it, if one does.
    """

    model: str
    title: str = ""
    is_resumed: bool = False
    agent: str = ""


class SessionInUse(msgspec.Struct, tag="session_in_use", frozen=True):
    """Another process has the session open, so that it cannot be opened here; a fork of it can."""

    session_id: str


class TitleChanged(msgspec.Struct, tag="title_changed", frozen=True):
    title: str


class ModelChanged(msgspec.Struct, tag="model_changed", frozen=True):
    model: str


class TurnStarted(msgspec.Struct, tag="turn_started", frozen=True, omit_defaults=True):
    """`is_continued`: it went on elsewhere when the session was left, and its prompt was shown."""

    prompt: Prompt
    is_continued: bool = False


class PromptSteered(msgspec.Struct, tag="prompt_steered", frozen=True):
    """The model is told something in the middle of its turn."""

    prompt: Prompt


class WaitingChanged(msgspec.Struct, tag="waiting_changed", frozen=True, omit_defaults=True):
    """
    The prompts that wait: `steering` go in at the next tool boundary, `queued` after the turn.

    `is_held`: none of them goes before the person says so, because what came before has failed, or the session was resumed.
    """

    steering: tuple[Prompt, ...] = ()
    queued: tuple[Prompt, ...] = ()
    is_held: bool = False


class PromptsReturned(msgspec.Struct, tag="prompts_returned", frozen=True):
    """The turn was stopped, or the session did not open, and these were not sent: theirs to send again, or not."""

    prompts: tuple[Prompt, ...]


class RetryScheduled(msgspec.Struct, tag="retry_scheduled", frozen=True):
    """The request has failed for `reason`, a sentence, and is made again after `delay_s`; `attempt` counts from 1 up to `attempts`."""

    attempt: int
    attempts: int
    delay_s: float
    reason: str


class RetryStarted(msgspec.Struct, tag="retry_started", frozen=True):
    """The wait that `RetryScheduled` announced is over."""


class AnswerRestarted(msgspec.Struct, tag="answer_restarted", frozen=True):
    """The blocks from `block_id` on were cut off, and what follows replaces them."""

    block_id: int


class ProviderStarting(msgspec.Struct, tag="provider_starting", frozen=True):
    """The client that asks the model is still loading; the request goes out as soon as it is there."""


class ThinkingDelta(msgspec.Struct, tag="thinking_delta", frozen=True):
    block_id: int
    text: str


class TextDelta(msgspec.Struct, tag="text_delta", frozen=True):
    block_id: int
    text: str


class BlockEnded(msgspec.Struct, tag="block_ended", frozen=True):
    block_id: int


class UsageUpdated(msgspec.Struct, tag="usage_updated", frozen=True, omit_defaults=True):
    """
    `last_request` fills the model's context window, `turn` and `total` add up the turn's and the session's requests.

    A window of 0 is unknown. `cost_usd` is what `total` costs, if `is_priced`: the price of each model in it is known.
    """

    last_request: Usage
    total: Usage
    context_window_tokens: int = 0
    turn: Usage = Usage()
    turn_cost_usd: float = 0.0
    cost_usd: float = 0.0
    is_priced: bool = False


class CompactionStarted(msgspec.Struct, tag="compaction_started", frozen=True):
    """The model is asked for a summary of the conversation."""


class Compacted(msgspec.Struct, tag="compacted", frozen=True, omit_defaults=True):
    """
    From here on the model is shown less: old tool results were `cleared`, or all was replaced by a `summary`.

    The transcript keeps everything. The tokens are estimates.
    """

    kind: Literal["cleared", "summary"]
    before_tokens: int
    after_tokens: int
    summary: str = ""


class CompactionUndone(msgspec.Struct, tag="compaction_undone", frozen=True):
    """The model is shown again what the last compaction took away."""


class TrustNeeded(msgspec.Struct, tag="trust_needed", frozen=True):
    """The files that are ignored, for the person has not trusted them, or not as they are now."""

    paths: tuple[str, ...]


class SlashCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that a Markdown file makes: `name` without the slash, and a line of help."""

    name: str
    description: str = ""
    arguments: str = ""  # what it takes, as a hint: "[focus]"
    source: Literal["project", "user", "sanderling", "mcp", "agent"] = "user"


class SlashCommandsChanged(msgspec.Struct, tag="slash_commands_changed", frozen=True):
    commands: tuple[SlashCommand, ...]


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
    """The sandbox that confines commands from now on. `missing` says in sentences what the level leaves open; `problem` why nothing runs."""

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
    """
    Something that would have run code outside of the sandbox was undone; `kept_at` is where it is now.

    `noticed`: it is new or changed and may run later, or instruct an agent, but stays.
    """

    kind: Literal["quarantined", "restored", "replaced", "noticed", "failed"]
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


class ChangedLines(msgspec.Struct, frozen=True):
    """The numbers of lines that came into a file and went; `path` is how it is shown."""

    path: str
    added: int
    removed: int


class ToolEnded(msgspec.Struct, tag="tool_ended", frozen=True, omit_defaults=True):
    """
    `summary` follows the tool's own line (`+3 −1`, `✓ 2.1 s`).

    `detail`, in the syntax `filetype`, is what its fold holds, below what it has put out so far. `is_denied`: a rule, the mode or
    the person did not let it run. `job` is what goes on of it in the background. `changed` are the files that it has changed.
    """

    id: str
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    job: str = ""
    changed: tuple[ChangedLines, ...] = ()


Limit = Literal["again", "calls", "budget", "tokens", "retry"]
"""The limits that a turn reaches: the same use made again and again, calls, money, the answer's length, attempts to ask."""


class ApprovalRequested(msgspec.Struct, tag="approval_requested", frozen=True, omit_defaults=True):
    """
    A person is to say whether something may be done; whatever waits for it waits without a limit.

    `subject` is what would be done, whole, in the syntax `filetype`: the command, the diff, the address. `reason` says why
    that is asked, `cwd` where it would be done. `rule` is what the answer "always" would keep, as text that can be edited;
    "always" and "session" are offered as `choices` says, `wider` is a rule that can be taken instead: for all tools of a server.
    `path` is the file that it is about. `is_of_several`: to deny it denies other tool uses of the same message. A guest asks in its
    own words: `options` are the answers that it knows.

    The `kind` says what it is about: the use of `tool` ("use"), a change of a file, whose `proposal` is reviewed in the editor's
    buffer ("write"), a grant for what the sandbox refused to it ("grant"), unsaved changes that it would go over ("overlap"), or a
    `Limit` that the turn has reached, of which `tool` is the name then ("limit"). Of a tool server, which `tool` names then, it is
    whether it may start ("server"), what it wants to know ("form", with its `fields`), or a page that it wants the person to visit
    ("link"): `subject` is the address.
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
    wider: str = ""
    path: str = ""
    is_of_several: bool = False
    kind: Literal["use", "write", "grant", "overlap", "limit", "server", "form", "link"] = "use"
    fields: tuple[FormField, ...] = ()
    proposal: Proposal | None = None
    options: tuple[AnswerOption, ...] = ()


class ApprovalSettled(msgspec.Struct, tag="approval_settled", frozen=True):
    """A question was answered, or nobody waits for it any more."""

    id: str


class ModeChanged(msgspec.Struct, tag="mode_changed", frozen=True):
    mode: Mode


class TodoItem(msgspec.Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoChanged(msgspec.Struct, tag="todo_changed", frozen=True):
    items: tuple[TodoItem, ...]


class ShownJob(msgspec.Struct, frozen=True):
    """A command of the model's that goes on in the background. `outcome` is how it ended, empty while it runs."""

    id: str
    command: str
    outcome: str


class JobsChanged(msgspec.Struct, tag="jobs_changed", frozen=True):
    jobs: tuple[ShownJob, ...]


class JobOutput(msgspec.Struct, tag="job_output", frozen=True):
    """The newest output of a job that is watched, escape sequences included: text for a terminal."""

    id: str
    text: str


ToolServerState = Literal["waiting", "starting", "ready", "restarting", "failed", "stopped"]
"""`waiting`: it is started in a moment, when nothing else is to be done. `stopped`: by the person, or by the settings."""


class ToolServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A tool server, and what it offers. `place` is its command, or its URL without what may be secret.

    `why` says what is wrong, if something is; `needs_login`: that is what it wants. `is_projects`: the project has declared it.
    """

    name: str
    state: ToolServerState
    place: str
    why: str = ""
    era: str = ""
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    needs_login: bool = False
    is_projects: bool = False


class ToolServersChanged(msgspec.Struct, tag="tool_servers_changed", frozen=True):
    servers: tuple[ToolServer, ...]


class LinkOffered(msgspec.Struct, tag="link_offered", frozen=True):
    """The person has asked for what a browser shows at `url`; `text` says in a sentence what that is."""

    url: str
    text: str


class TurnEnded(msgspec.Struct, tag="turn_ended", frozen=True):
    stop_reason: StopReason


class ChangesUnreviewed(msgspec.Struct, tag="changes_unreviewed", frozen=True, omit_defaults=True):
    """
    The session was resumed, or something was taken back in it or made again: the files with changes that nobody has reviewed.

    Of those that are `settled`, by their paths, there was something to be reviewed before, and is nothing any more.
    """

    files: tuple[UnreviewedFile, ...]
    settled: tuple[str, ...] = ()


HistoryEvent = (
    TurnStarted
    | PromptSteered
    | ThinkingDelta
    | TextDelta
    | BlockEnded
    | Notice
    | ErrorOccurred
    | CommandStarted
    | CommandOutput
    | CommandEnded
    | ToolStarted
    | ToolEnded
    | Compacted
    | CompactionUndone
    | FilesRestored
    | ConversationRewound
    | TurnEnded
)


class HistoryShown(msgspec.Struct, tag="history_shown", frozen=True):
    """
    Events of the session from before all that is shown so far; they go above that.

    It begins with a turn or in the middle of one. `has_earlier`: there is more, for `ShowEarlier`, before `start`.
    """

    events: tuple[HistoryEvent, ...]
    has_earlier: bool
    start: int = 0  # in the log, in bytes


Event = (
    SessionOpened
    | SessionInUse
    | TitleChanged
    | ModelChanged
    | TurnStarted
    | PromptSteered
    | WaitingChanged
    | PromptsReturned
    | RetryScheduled
    | RetryStarted
    | AnswerRestarted
    | ProviderStarting
    | ThinkingDelta
    | TextDelta
    | BlockEnded
    | UsageUpdated
    | CompactionStarted
    | Compacted
    | CompactionUndone
    | FilesRestored
    | ChangesUnreviewed
    | ConversationRewound
    | TrustNeeded
    | SlashCommandsChanged
    | HistoryShown
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
    | ApprovalRequested
    | ApprovalSettled
    | ModeChanged
    | TodoChanged
    | JobsChanged
    | JobOutput
    | ToolServersChanged
    | LinkOffered
    | GuestOptionsChanged
    | ConnectionChanged
    | TurnEnded
)
