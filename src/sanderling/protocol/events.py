"""
Events: facts that the agent reports to its frontends. The frontends' actions are in `actions.py`.

Both are tagged unions: on the wire each is a map whose `type` is the struct's tag. Optional fields are left out instead of sent as
`None`, because Lua would get `vim.NIL`, which is true.
"""

from typing import Any, Literal

import msgspec

from sanderling.errors import ErrorKind
from sanderling.protocol.messages import Prompt, StopReason, Usage
from sanderling.protocol.modes import Effort, Mode, NetworkMode, SandboxLevel
from sanderling.protocol.reviews import Proposal, UnreviewedFile


class _Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of events and their parts."""


class SessionOpened(_Event, tag="session_opened", frozen=True):
    """
    The session is ready. A resumed session then shows its latest history as `HistoryShown`.

    `agent` is the name of the external agent that answers in the session, if any. `parent` is the session that started this one for a part
    of its task. `worktree` is the name of the worktree that it works in, if it does. `proposes` is True if the screen should request
    `ProposeAtEnd` before it closes the session.
    """

    model: str
    title: str = ""
    is_resumed: bool = False
    agent: str = ""
    parent: str = ""
    worktree: str = ""
    proposes: bool = False


class SessionInUse(_Event, tag="session_in_use", frozen=True):
    """The session is open in another process and cannot be opened here; it can be forked."""

    session_id: str


class TitleChanged(_Event, tag="title_changed", frozen=True):
    title: str


class ModelChanged(_Event, tag="model_changed", frozen=True):
    model: str


class EffortChanged(_Event, tag="effort_changed", frozen=True):
    """How much the model thinks and writes; `next` is chosen for the next turn only."""

    effort: Effort
    next: Effort | None = None


class TurnStarted(_Event, tag="turn_started", frozen=True):
    """`is_continued`: the turn kept running remotely while no client was attached, and its prompt was already shown."""

    prompt: Prompt
    is_continued: bool = False


class PromptSteered(_Event, tag="prompt_steered", frozen=True):
    """The model received a message from the user during its turn."""

    prompt: Prompt


class WaitingChanged(_Event, tag="waiting_changed", frozen=True):
    """
    The pending prompts: `steering` are sent at the next tool boundary, `queued` after the turn.

    `is_held`: they are not sent until the user releases them, because the last turn failed or the session was resumed.
    """

    steering: tuple[Prompt, ...] = ()
    queued: tuple[Prompt, ...] = ()
    is_held: bool = False


class PromptsReturned(_Event, tag="prompts_returned", frozen=True):
    """Prompts that were not sent because the turn was stopped or the session did not open. The user may send them again."""

    prompts: tuple[Prompt, ...]


class RetryScheduled(_Event, tag="retry_scheduled", frozen=True):
    """The request failed for `reason`, a sentence, and is repeated after `delay_s`; `attempt` counts from 1 up to `attempts`."""

    attempt: int
    attempts: int
    delay_s: float
    reason: str


class RetryStarted(_Event, tag="retry_started", frozen=True):
    """The wait that `RetryScheduled` announced is over."""


class AnswerRestarted(_Event, tag="answer_restarted", frozen=True):
    """The blocks from `block_id` on were cut off. The blocks that follow replace them."""

    block_id: int


class ProviderStarting(_Event, tag="provider_starting", frozen=True):
    """The provider's client is still loading; the request is sent when it is ready."""


class ThinkingDelta(_Event, tag="thinking_delta", frozen=True):
    block_id: int
    text: str


class TextDelta(_Event, tag="text_delta", frozen=True):
    block_id: int
    text: str


class BlockEnded(_Event, tag="block_ended", frozen=True):
    block_id: int


class UsageUpdated(_Event, tag="usage_updated", frozen=True):
    """
    `last_request` fills the model's context window; `turn` and `total` are the sums for the turn and the session.

    A window of 0 is unknown. `cost_usd` is the cost of `total`; `is_priced` means that the price of each model in it is known.
    """

    last_request: Usage
    total: Usage
    context_window_tokens: int = 0
    turn: Usage = Usage()
    turn_cost_usd: float = 0.0
    cost_usd: float = 0.0
    is_priced: bool = False


class CompactionStarted(_Event, tag="compaction_started", frozen=True):
    """The model starts to summarize the conversation."""


class Compacted(_Event, tag="compacted", frozen=True):
    """
    The conversation as sent to the model got shorter: old tool results were `cleared`, or a `summary` replaced everything.

    The transcript keeps everything. Token counts are estimates.
    """

    kind: Literal["cleared", "summary"]
    before_tokens: int
    after_tokens: int
    summary: str = ""


class CompactionUndone(_Event, tag="compaction_undone", frozen=True):
    """The last compaction was undone: the model sees the earlier conversation again."""


class RememberingStarted(_Event, tag="remembering_started", frozen=True):
    """The model starts to propose lines for `AGENTS.md`, between turns."""


class TrustNeeded(_Event, tag="trust_needed", frozen=True):
    """Project files that are ignored because the user has not trusted their current content."""

    paths: tuple[str, ...]


CommandSource = Literal["project", "user", "plugin", "sanderling", "mcp", "agent"]


class SlashCommand(_Event, frozen=True):
    """A slash command: `name` without the slash, and one line of help. `source` says who defines it."""

    name: str
    description: str = ""
    arguments: str = ""  # a hint, such as "[focus]"
    source: CommandSource = "user"


class SlashCommandsChanged(_Event, tag="slash_commands_changed", frozen=True):
    commands: tuple[SlashCommand, ...]


class Notice(_Event, tag="notice", frozen=True):
    """A sentence for the user. The model does not see it."""

    level: Literal["info", "warning"]
    text: str


class ErrorOccurred(_Event, tag="error_occurred", frozen=True):
    """The turn failed; its `TurnEnded` follows. `remedy` says what the user can do; it may be empty."""

    kind: ErrorKind
    message: str
    remedy: str


class SandboxChanged(_Event, tag="sandbox_changed", frozen=True):
    """The state of the sandbox. `missing` lists in sentences what this level does not enforce; `problem` says why commands cannot run."""

    level: SandboxLevel
    network: NetworkMode
    missing: tuple[str, ...] = ()
    problem: str = ""


class AccessDenied(_Event, tag="access_denied", frozen=True):
    """The sandbox blocked `operation` on a path, an address or a host name, because of `rule`."""

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: str


class GuardActed(_Event, tag="guard_acted", frozen=True):
    """
    The guard undid something that would have run code outside the sandbox; `kept_at` is where it moved the file.

    `noticed`: a new or changed file may run later, or instruct an agent. It was left in place.
    """

    kind: Literal["quarantined", "restored", "replaced", "noticed", "failed"]
    path: str
    reason: str
    kept_at: str = ""


class CommandStarted(_Event, tag="command_started", frozen=True):
    """The user runs a command in the sandbox."""

    id: str
    command: str


class CommandOutput(_Event, tag="command_output", frozen=True):
    """Output for the screen: without escape sequences, each line in its final state."""

    id: str
    text: str


class CommandEnded(_Event, tag="command_ended", frozen=True):
    """`outcome` describes the end in words; `notes` are remarks for the user, such as where the full output is."""

    id: str
    outcome: str
    is_success: bool = False
    notes: tuple[str, ...] = ()


class CommandsRunning(_Event, tag="commands_running", frozen=True):
    count: int


class ToolStarted(_Event, tag="tool_started", frozen=True):
    """
    A tool call starts. `title` is the call in one line, without the tool's name: `src/app.py`, `pytest -q`.

    The calls of one message run in parallel, but their events come one call after the other: everything between this event and its
    `ToolEnded` belongs to this call. `input` is sent only to frontends that ask for it.
    """

    id: str
    tool: str
    title: str
    input: dict[str, Any] | None = None


class ToolOutput(_Event, tag="tool_output", frozen=True):
    """Output for the screen while the tool runs."""

    id: str
    text: str


class ChangedLines(_Event, frozen=True):
    """How many lines were added to and removed from a file; `path` is in the form to show."""

    path: str
    added: int
    removed: int


class ToolEnded(_Event, tag="tool_ended", frozen=True):
    """
    `summary` is appended to the call's line (`+3 −1`, `✓ 2.1 s`).

    `detail`, in the syntax `filetype`, goes into the call's fold, below its output so far. `is_denied`: a rule, the mode or the user did
    not allow the call. `job` is the id of the background job that it started. `changed` lists the files that it changed. `result` is the
    text that the model gets; it is sent only to frontends that ask for it.
    """

    id: str
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    job: str = ""
    changed: tuple[ChangedLines, ...] = ()
    result: str = ""


Limit = Literal["again", "calls", "budget", "children", "tokens", "retry"]
"""The limits that a turn can reach: identical calls, number of calls, budget, tokens of child sessions, output tokens, retries."""


class FormChoice(_Event, frozen=True):
    value: str
    title: str = ""
    help: str = ""


class FormField(_Event, frozen=True):
    """
    A field of a form. `value` is its initial text: `true` or `false` for "boolean", one line per selected item for "choices".

    `help` explains the field and its valid values.
    """

    name: str
    kind: Literal["string", "integer", "number", "boolean", "choice", "choices"]
    label: str = ""
    help: str = ""
    value: str = ""
    is_required: bool = False
    choices: tuple[FormChoice, ...] = ()


class AnswerOption(_Event, frozen=True):
    """An answer that an external agent offers to its question. `choice` is its key; the first answer with that `choice` gets it."""

    id: str
    title: str
    choice: Literal["once", "always", "deny"]


class ApprovalRequested(_Event, tag="approval_requested", frozen=True):
    """
    A question for the user: may this be done? It waits without a time limit.

    `subject` is the whole of what would be done, in the syntax `filetype`: the command, the diff, the address. `reason` says why the user
    is asked, and begins with the sentences of `warnings`, on anything unusual. `cwd` is where it would be done. `rule` is the text, which the user can edit, that the answer "always" stores. `choices` says
    whether "session" and "always" are offered. `wider` is an alternative rule, for all tools of a server. `path` is the file concerned.
    `is_of_several`: denying it also denies other tool calls of the same message. `options` are the answers that an external agent offers.

    The `kind` is one of: a call of `tool` ("use"); a change of a file, whose `proposal` is reviewed in the editor's buffer ("write");
    access that the sandbox blocked ("grant"); unsaved changes that would be overwritten ("overlap"); a `Limit`, named by `tool`, that the
    turn reached ("limit"). For three others, `tool` names a tool server: whether it may start ("server"), its questions to the user,
    in `fields` ("form"), or a page that it asks the user to open, whose address is `subject` ("link"). In the last two the model asks:
    one question in each of `fields` ("question"), or whether the user accepts the plan named by `subject` ("plan"), which switches the
    mode to the value of the field. The answer's `values` have the chosen values of a field by its name, one in each line, and the user's
    own words by that name and `_text`.

    `child` is the name of the child session that asks, if this session only shows its question; `id` then begins with that session's id
    and a slash. `worktree` is the name of the worktree that the child works in, if it does.
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
    kind: Literal[
        "use",
        "write",
        "grant",
        "overlap",
        "limit",
        "server",
        "form",
        "link",
        "question",
        "plan",
    ] = "use"
    fields: tuple[FormField, ...] = ()
    proposal: Proposal | None = None
    options: tuple[AnswerOption, ...] = ()
    warnings: tuple[str, ...] = ()
    child: str = ""
    worktree: str = ""


class ApprovalSettled(_Event, tag="approval_settled", frozen=True):
    """A question was answered or withdrawn."""

    id: str


class ModeChanged(_Event, tag="mode_changed", frozen=True):
    mode: Mode


class RoleChanged(_Event, tag="role_changed", frozen=True):
    """The session's role has changed. Without a `name` it has none."""

    name: str = ""
    description: str = ""


class TodoItem(_Event, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoChanged(_Event, tag="todo_changed", frozen=True):
    items: tuple[TodoItem, ...]


ChildState = Literal[
    "queued", "running", "waiting", "done", "partial", "budget", "timeout", "denied", "error"
]


class ShownJob(_Event, frozen=True):
    """A background job of the model. `outcome` says how it ended; it is empty while the job runs. With a terminal, the user can type in it."""

    id: str
    command: str
    outcome: str
    has_terminal: bool = False


class JobsChanged(_Event, tag="jobs_changed", frozen=True):
    jobs: tuple[ShownJob, ...]


class JobOutput(_Event, tag="job_output", frozen=True):
    """New output of a watched job, escape sequences included: text for a terminal."""

    id: str
    text: str


ToolServerState = Literal["waiting", "starting", "ready", "restarting", "failed", "stopped"]
"""`waiting`: starts soon, when nothing more urgent is left to do. `stopped`: by the user or the settings."""


class ChildChanged(_Event, tag="child_changed", frozen=True):
    """
    A child session, which works on a part of this session's task, has changed. The event has the whole of its state.

    `id` is the child's session, `tool_id` the tool call that started it, and `task` the first line of its task. `activity` is what it does
    now, in one line. `tokens` and `cost_usd` are what it has used so far of its budget, `budget_tokens`. The states "queued", "running" and
    "waiting" (for an answer of the user's) are followed by one of the others, which says how it ended.
    """

    id: str
    tool_id: str
    name: str
    task: str
    state: ChildState
    activity: str = ""
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    budget_tokens: int = 0


class ToolServer(_Event, frozen=True):
    """
    A tool server and what it offers. `place` is its command, or its URL without parts that may be secret.

    `why` is what is wrong, if anything; `needs_login`: it requires a login. `is_projects`: the project declares it.
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


class ToolServersChanged(_Event, tag="tool_servers_changed", frozen=True):
    servers: tuple[ToolServer, ...]


class LinkOffered(_Event, tag="link_offered", frozen=True):
    """A page at `url` that the user asked to open in a browser; `text` describes it in a sentence."""

    url: str
    text: str


class ConnectionChanged(_Event, tag="connection_changed", frozen=True):
    """
    The connection to `name` has a new state.

    waiting: it ended because of `why`, and `attempt` number `attempt` starts in `delay_s`. refused: no further attempts until the user
    acts. closed: no longer needed.
    """

    state: Literal["connecting", "connected", "waiting", "refused", "closed"]
    name: str
    why: str = ""
    delay_s: float = 0
    attempt: int = 0


class GuestChoice(_Event, frozen=True):
    """A value that an option can have."""

    value: str
    title: str
    description: str = ""


class GuestOption(_Event, frozen=True):
    """
    An option of an external agent, such as its mode, model or thinking effort; `value` is the current one.

    An option without `choices` is on or off: `true` or `false`.
    """

    id: str
    title: str
    value: str
    choices: tuple[GuestChoice, ...] = ()
    category: str = ""
    description: str = ""


class GuestOptionsChanged(_Event, tag="guest_options_changed", frozen=True):
    """All current options of the session's external agent."""

    options: tuple[GuestOption, ...]


class TurnEnded(_Event, tag="turn_ended", frozen=True):
    stop_reason: StopReason


class RestoredFile(_Event, frozen=True):
    """
    A file that was restored, `merged` with the user's changes, or `left` as it is, and `why`.

    `path` is relative to the project for files inside it.
    """

    path: str
    how: Literal["restored", "merged", "left"] = "restored"
    why: str = ""
    added: int = 0
    removed: int = 0


Restoration = Literal["undo", "redo", "rewind", "finish", "worktree"]
""""finish" completes the undo of a process that was killed."""


class FilesRestored(_Event, tag="files_restored", frozen=True):
    """
    The agent's changes in these turns were undone or redone; `turns` are the ids of their prompts. Or the work of `worktree` was applied.

    `rest_of` is the number of a turn for which another try may restore the files that were left, or 0.
    """

    kind: Restoration
    turns: tuple[str, ...]
    files: tuple[RestoredFile, ...] = ()
    rest_of: int = 0
    worktree: str = ""


class ConversationRewound(_Event, tag="conversation_rewound", frozen=True):
    """The model now sees only what came before the prompt `prompt_id`, which begins with `text`. The transcript keeps everything."""

    text: str
    prompt_id: str = ""


class ChangesUnreviewed(_Event, tag="changes_unreviewed", frozen=True):
    """
    The files with unreviewed changes, after the session was resumed or changes were undone or redone.

    `settled` are the paths that had unreviewed changes before and have none now.
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
    | ChildChanged
    | Compacted
    | CompactionUndone
    | FilesRestored
    | ConversationRewound
    | TurnEnded
)


class TurnTimes(_Event, frozen=True):
    """When a prompt was `sent` and its turn `ended`, in seconds since 1970. A prompt within a turn has no end."""

    sent: float
    ended: float = 0


class HistoryShown(_Event, tag="history_shown", frozen=True, omit_defaults=False):
    """
    Earlier events of the session, to be inserted above everything shown so far.

    It may begin in the middle of a turn. `has_earlier`: `ShowEarlier` with `start` returns more. `times` are by the id of the prompt.
    """

    events: tuple[HistoryEvent, ...]
    has_earlier: bool
    start: int = 0  # byte offset in the log
    times: dict[str, TurnTimes] = {}


Event = (
    SessionOpened
    | SessionInUse
    | TitleChanged
    | ModelChanged
    | EffortChanged
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
    | RememberingStarted
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
    | RoleChanged
    | TodoChanged
    | JobsChanged
    | JobOutput
    | ChildChanged
    | ToolServersChanged
    | LinkOffered
    | GuestOptionsChanged
    | ConnectionChanged
    | TurnEnded
)
