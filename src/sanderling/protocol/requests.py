"""Requests: questions of a frontend, each with one answer. A failed request is answered by a map with `error`, a sentence."""

from typing import Literal

import msgspec

from sanderling.protocol.events import CommandSource, RestoredFile, ToolServer
from sanderling.protocol.messages import Prompt, Selection, StopReason, Usage
from sanderling.protocol.modes import Effort


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of requests: a misspelt field is an error."""


class _OfSession(_Request, frozen=True):
    """The base of requests about one session."""

    session_id: str


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of answers and their parts."""


class ListSessions(_Request, tag="list_sessions", frozen=True):
    """
    List sessions, newest first, of `project` or, if that is empty, of all projects. The answer's `sessions` is a list of `SessionInfo`.

    A `text` selects the sessions that contain it, each with an excerpt. Sessions of print mode are included if `has_printed`.
    """

    project: str = ""
    text: str = ""
    has_printed: bool = False


class SessionInfo(_Answer, frozen=True):
    """
    `changed_at` is in seconds since 1970; `size_bytes` is the size of the log; `excerpt` is from around the text that was found.

    `parent` is the session that started this one for a part of its task.
    """

    id: str
    project: str
    title: str
    changed_at: float
    size_bytes: int
    is_open: bool = False
    excerpt: str = ""
    parent: str = ""


class RenameSession(_OfSession, tag="rename_session", frozen=True):
    title: str


class DeleteSession(_OfSession, tag="delete_session", frozen=True):
    """Delete a session's log and outputs. An open session is not deleted."""


class PreviewSession(_OfSession, tag="preview_session", frozen=True):
    """Return, as `text`, a session's last prompt and the answer to it in Markdown, shortened."""


class MeasureSession(_OfSession, tag="measure_session", frozen=True):
    """Return, as `size_bytes`, how much text `@session:ID` adds to a prompt."""


class CountCorrections(_OfSession, tag="count_corrections", frozen=True):
    """Return, as `count`, how many of the user's corrections in a closed session no proposal of instructions is based on."""


class ForkSession(_OfSession, tag="fork_session", frozen=True):
    """
    Copy a session into the new session `new_id`, up to the turn of `prompt_id` (all of it without one).

    That turn is included unless `is_before`; then the answer's `prompt` is the text of its prompt.
    """

    new_id: str
    prompt_id: str = ""
    is_before: bool = False


class ExportSession(_OfSession, tag="export_session", frozen=True):
    """Write the conversation as Markdown into a new file at `path`. The answer's `path` is the file that was written."""

    path: str


class ListAgents(_Request, tag="list_agents", frozen=True):
    """List the agents that can answer in a session instead of Sanderling. The answer's `agents` are their names."""


class ListPlugins(_Request, tag="list_plugins", frozen=True):
    """List the user's plugins as a session in `project` finds them. The answer's `plugins` are `ShownPlugin`s."""

    project: str


class ChangePlugin(_Request, tag="change_plugin", frozen=True):
    """Enable, disable or remove the plugin `name`, for later sessions."""

    name: str
    what: Literal["enable", "disable", "remove"]


class ListWorktrees(_Request, tag="list_worktrees", frozen=True):
    """List the worktrees of `project`. The answer's `worktrees` are `ShownWorktree`s, newest first."""

    project: str


class ShownWorktree(_Answer, frozen=True):
    """
    A worktree; without a `directory` only the ref `kept_ref` is left of it.

    `loss` says in words what removing it would lose, "" if nothing. `ref` is the branch or commit that it was made from, `base` its commit.
    `created_at` is in seconds since 1970. `notes` are sentences about what it lacks. If its session repeats a turn, these are the
    `repeated_session`, the `repeated_turn` and its `source`, the directory with the first result.
    """

    name: str
    created_at: float
    session_id: str
    directory: str = ""
    ref: str = ""
    base: str = ""
    size_bytes: int = 0
    loss: str = ""
    kept_ref: str = ""
    notes: tuple[str, ...] = ()
    repeated_session: str = ""
    repeated_turn: str = ""
    source: str = ""


class DiffWorktree(_Request, tag="diff_worktree", frozen=True):
    """Return what the worktree `name` of `project` changed, as the diff `text`."""

    project: str
    name: str


class RemoveWorktree(_Request, tag="remove_worktree", frozen=True):
    """
    Remove the worktree `name` of `project`, or what was kept of it.

    `loses` must be the `loss` that the user was shown and accepted; if that has changed, nothing is removed. The answer's `kept_ref` is the
    ref that keeps its files. If its files were applied (`is_applied`), it is removed with its ref, unless it
    has more than these.
    """

    project: str
    name: str
    loses: str = ""
    is_applied: bool = False


class BlameFile(_Request, tag="blame_file", frozen=True):
    """Return, as `Blame`, who wrote each line of `text`, the file `path` as an editor has it."""

    project: str
    path: str
    text: str


class TraceStaged(_Request, tag="trace_staged", frozen=True):
    """
    Return, as `trace`, the Agent Trace record of the staged changes as one line; "" if the agent wrote no line of them.

    `index` is the file that git uses as its index for this commit, "" for the usual one.
    """

    project: str
    index: str = ""


class Login(_Request, tag="login", frozen=True):
    """
    Store an API key in the system's keychain. Without a `key`, return whether that is possible: as `backend`, or else as `error`.

    Without a `provider` the key is for the provider in the settings, or for Claude.
    """

    key: str = ""
    provider: str = ""


class Logout(_Request, tag="logout", frozen=True):
    """Delete the API key from the keychain."""

    provider: str = ""


class Draft(_Request, frozen=True):
    """An earlier instruction, and the text that the model wrote for it."""

    instruction: str
    text: str


class Rewrite(_Request, tag="rewrite", frozen=True):
    """
    Have the model rewrite `text`. Streams `RewritePiece`s and ends with `Rewritten`.

    `path` is the file's absolute path, or empty; `shown_as` is the name that the model sees. Lines count from 1. `before` and `after`
    surround `text`; `lines` are the full lines if `text` is a block of columns; `outline` names what else the file contains. `shared`
    replaces these three in requests about several parts of one file: it is the same in all of them, so that it is cached. `drafts` are
    earlier attempts that the user did not accept. `selections` are attached. An `instruction` `/name …` is expanded from that command's
    file. Without a `model` the settings choose. The usage counts in the session `session_id`, if that is open.
    """

    project: str
    path: str
    shown_as: str
    filetype: str
    first_line: int
    text: str
    instruction: str
    kind: Literal["lines", "characters", "block"] = "lines"
    before: str = ""
    after: str = ""
    lines: str = ""
    outline: str = ""
    shared: str = ""
    drafts: tuple[Draft, ...] = ()
    selections: tuple[Selection, ...] = ()
    model: str = ""
    session_id: str = ""


class RewritePiece(_Answer, frozen=True):
    """The text so far: its first `kept` bytes, then `text`. `notice` says in a sentence what the request is waiting for."""

    kept: int = 0
    text: str = ""
    notice: str = ""


class Rewritten(_Answer, frozen=True):
    """
    The complete replacement, and the cost of this request; `total_usd` is the cost of all since the process began.

    Unless `stop_reason` is "end_turn", the text is incomplete.
    """

    text: str
    model: str
    stop_reason: StopReason
    usage: Usage
    usd: float
    is_priced: bool
    total_usd: float


class PriceRewrites(_Request, tag="price_rewrites", frozen=True):
    """
    Ask what `Rewrite`s with these tokens in all would cost. Sends nothing to the model. The answer is `RewritesPriced`.

    Without a `model` the settings choose.
    """

    project: str
    model: str
    sent_tokens: int
    received_tokens: int


class RewritesPriced(_Answer, frozen=True):
    """`usd` is None if the model's price is unknown; `left_usd` is what `budget_usd` still allows, None without a budget."""

    model: str
    usd: float | None = None
    left_usd: float | None = None


class ListModels(_OfSession, tag="list_models", frozen=True):
    """
    List the models that can be chosen. The answer is `Models`.

    "known" lists the models that are known without a request; "own" adds the list of the session's provider, "all" the lists of
    all usable providers.
    """

    scope: Literal["known", "own", "all"] = "own"


class Models(_Answer, frozen=True):
    """Model names, as they are chosen, and notes about them; `problems` are sentences about providers that did not answer."""

    models: tuple[str, ...]
    notes: dict[str, str] = {}
    problems: tuple[str, ...] = ()


class ListRoles(_OfSession, tag="list_roles", frozen=True):
    """List the roles that the user can choose, as `Roles`."""


class ShownRole(_Answer, frozen=True):
    """`tools` says in words which tools it has, if not all; `problems` are sentences for its author."""

    name: str
    description: str = ""
    source: CommandSource = "user"
    tools: str = ""
    problems: tuple[str, ...] = ()


class Roles(_Answer, frozen=True):
    """`problems` has a sentence for each file that cannot be used."""

    roles: tuple[ShownRole, ...] = ()
    problems: tuple[str, ...] = ()


class ProposeAtEnd(_OfSession, tag="propose_at_end", frozen=True):
    """
    Stop the turn, and propose instructions from the user's new corrections, if there are any.

    The answer, `Proposed`, comes when the user has answered the proposal.
    """


class Proposed(_Answer, frozen=True):
    """The proposal is answered, or there was none."""


class ListEfforts(_OfSession, tag="list_efforts", frozen=True):
    """List the efforts that can be chosen. The answer is `Efforts`."""


class Efforts(_Answer, frozen=True):
    """The efforts that the session's model takes, "default" first; only that if it takes none."""

    efforts: tuple[Effort, ...]


class TestProvider(_OfSession, tag="test_provider", frozen=True):
    """Test what a provider can do, `PROVIDER` or `PROVIDER:MODEL`, by default the session's. The answer is a `Report`. Costs tokens."""

    provider: str = ""


class ShowUsage(_OfSession, tag="show_usage", frozen=True):
    """Return a `Report` of tokens and cost."""


class ShowSettings(_OfSession, tag="show_settings", frozen=True):
    """Return a `Report` of the settings in effect."""


class Report(_Answer, frozen=True):
    title: str
    text: str  # Markdown


class ShowTrust(_OfSession, tag="show_trust", frozen=True):
    """Return the project files that could be trusted, as a `TrustPage`."""


class TrustFile(_Answer, frozen=True):
    """
    A project file that contains instructions for the model or settings for Sanderling. `path` is relative to the project.

    `allowed` describes what the file would allow the model to do without asking.
    """

    path: str
    state: Literal["new", "changed", "trusted"]
    sha256: str
    text: str = ""
    allowed: tuple[str, ...] = ()


class TrustPage(_Answer, frozen=True):
    """All files that could be trusted, with their contents; `refusal` says why no file of this project can be trusted."""

    project: str
    files: tuple[TrustFile, ...] = ()
    refusal: str = ""


class ListToolServers(_OfSession, tag="list_tool_servers", frozen=True):
    """List the session's tool servers. The answer is `ToolServers`."""


class ToolServers(_Answer, frozen=True):
    servers: tuple[ToolServer, ...]


class ShownPlugin(_Answer, frozen=True, omit_defaults=True):
    """
    A plugin in the directory `path`; without a `name` it is not used, and the problem says why.

    `skills` and `servers` are lines: the name and the description, the name and the command or URL. `problems` are sentences about parts
    that are not used. `is_ours`: Sanderling may remove it.
    """

    name: str
    path: str
    version: str = ""
    description: str = ""
    skills: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_disabled: bool = False
    is_ours: bool = False


class ShowToolServer(_OfSession, tag="show_tool_server", frozen=True):
    """Return a `Report` of a tool server's offers and of its output outside the protocol."""

    name: str


class ListRules(_OfSession, tag="list_rules", frozen=True):
    """List the permission rules in effect in the session. The answer is a `RulesPage`."""


RuleKind = Literal["settings", "always", "session"]


class ShownRule(_Answer, frozen=True):
    """
    A rule in effect: its text, where it is from in words, and the day of its last use in ISO format, if known.

    `kind` says which rules it belongs to; only rules of the settings cannot be changed here. `file` and `line` are its place in a settings
    file on this machine, if it is in one.
    """

    rule: str
    origin: str
    last_use: str = ""
    kind: RuleKind = "settings"
    file: str = ""
    line: int = 0


class RulesPage(_Answer, frozen=True):
    """The rules of the settings, of "always" and of the session; `problem` says why stored rules cannot be used."""

    rules: tuple[ShownRule, ...] = ()
    problem: str = ""


class ListSkills(_OfSession, tag="list_skills", frozen=True):
    """List the session's skills. The answer is a `SkillsPage`."""


class ShownSkill(_Answer, frozen=True):
    """
    A skill: its file, the beginning of its text, and what is wrong with it, in sentences.

    Without a `name` it is not used, and the last problem says why. `is_command`: the user can type `/name`.
    """

    path: str
    name: str = ""
    description: str = ""
    text: str = ""
    is_command: bool = False
    problems: tuple[str, ...] = ()


class SkillsPage(_Answer, frozen=True):
    """The skills, and the files of the project that are not trusted."""

    skills: tuple[ShownSkill, ...] = ()
    untrusted: tuple[str, ...] = ()


class CheckMentions(_OfSession, tag="check_mentions", frozen=True):
    """Return, as `KeptFiles`, the files among `paths` that a rule hides from the model."""

    paths: tuple[str, ...]


class KeptFiles(_Answer, frozen=True):
    paths: tuple[str, ...]


class InspectToolUse(_OfSession, tag="inspect_tool_use", frozen=True):
    """Return a tool call in full, as a `WholeToolUse`."""

    id: str


class WholeToolUse(_Answer, frozen=True):
    tool: str
    input: str  # JSON
    result: str


class ListChanges(_OfSession, tag="list_changes", frozen=True):
    """List the turns of a session, or only `turn`, with the agent's changes in each. The answer is `Changes`."""

    turn: str = ""


class ChangedFile(_Answer, frozen=True):
    """`why` says what prevents undoing the change: its content is not stored, or it may not be the agent's."""

    path: str
    what: Literal["created", "changed", "removed"]
    added: int = 0
    removed: int = 0
    why: str = ""


class TurnShown(_Answer, frozen=True):
    """
    A turn: the id and the first words of its prompt, and its `number` in the session, from 1.

    `is_interrupted`: a command of the turn ended when Sanderling did, so its changes are unknown.
    """

    turn: str
    number: int
    text: str
    files: tuple[ChangedFile, ...] = ()
    is_undone: bool = False
    is_interrupted: bool = False


class Changes(_Answer, frozen=True):
    """The turns of a session; `problems` are sentences about damage to the record of changes."""

    turns: tuple[TurnShown, ...]
    problems: tuple[str, ...] = ()


class ShowDifference(_OfSession, tag="show_difference", frozen=True):
    """
    Return, as `FilesBefore`, what the agent changed in the last turn or in the session, including by commands, or only in `path`.

    "unreviewed" means the changes by file tools that the user has not reviewed. With `has_reasons` the files have `reasons`.
    """

    what: Literal["turn", "session", "unreviewed"] = "turn"
    path: str = ""
    has_reasons: bool = False


class Reason(_Answer, frozen=True):
    """What the model said before a tool call that changed a file, and the lines that the call added and removed."""

    text: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class FileBefore(_Answer, frozen=True):
    """
    The `text` of a file without the agent's changes, but with the user's.

    If only "some" changes are reviewed, `baseline` is the text without the others. `reasons` are in the order of the calls.
    """

    path: str
    what: Literal["created", "changed", "removed"]
    text: str = ""
    reviewed: Literal["none", "some", "all"] = "none"
    baseline: str = ""
    reasons: tuple[Reason, ...] = ()


class FilesBefore(_Answer, frozen=True):
    """The files that the agent changed; for the files in `left`, the content without its changes is unknown."""

    files: tuple[FileBefore, ...]
    left: tuple[RestoredFile, ...] = ()


class ShowEdits(_OfSession, tag="show_edits", frozen=True):
    """Return, as `Edits`, what the agent changed in the files `paths` in a turn, as the journal has it: later changes do not matter."""

    turn: str
    paths: tuple[str, ...]


class Edit(_Answer, frozen=True):
    """The texts of a file before and after changes of the agent's that no other change came between."""

    path: str
    what: Literal["created", "changed", "removed"]
    before: str = ""
    after: str = ""


class Edits(_Answer, frozen=True):
    """The edits of each file are in their order."""

    edits: tuple[Edit, ...]


class PreviewRewind(_OfSession, tag="preview_rewind", frozen=True):
    """Return what rewinding to before a prompt would do to the current files, as a `RewindPreview`."""

    prompt_id: str


class RewindPreview(_Answer, frozen=True):
    """`turns` is the number of turns to be taken back; `refusal` says why the conversation cannot be rewound, if so."""

    prompt: str
    turns: int
    files: tuple[RestoredFile, ...] = ()
    refusal: str = ""


class RepeatPrompt(_OfSession, tag="repeat_prompt", frozen=True):
    """
    Prepare the session `new_id`, which will repeat the last prompt with `model`, by default with this session's.

    It begins like this one before that prompt, and works in a private copy of the files as they were then.
    """

    new_id: str
    model: str = ""


class RepeatedPrompt(_Answer, frozen=True):
    """The prompt to send in the new session. `cost` and `notes` are sentences: what is known of its cost, and how the copy differs."""

    prompt: Prompt
    model: str
    cost: str
    notes: tuple[str, ...] = ()


class ShowResult(_OfSession, tag="show_result", frozen=True):
    """Return the `TurnResult` of `turn`; without one, that of all turns since the session was forked."""

    turn: str = ""


class TurnResult(_Answer, frozen=True):
    """
    What turns cost, what they changed, and the last answer, as Markdown.

    Unless the cost `is_priced`, the prices of some models are unknown. Undone changes are left out.
    """

    model: str
    usd: float
    is_priced: bool
    answer: str
    files: tuple[ChangedFile, ...] = ()
    is_running: bool = False


SessionRequest = (
    ListModels
    | ListEfforts
    | ProposeAtEnd
    | ListRoles
    | TestProvider
    | ShowUsage
    | ShowSettings
    | ShowTrust
    | ListToolServers
    | ShowToolServer
    | ListRules
    | ListSkills
    | CheckMentions
    | InspectToolUse
    | ListChanges
    | ShowDifference
    | ShowEdits
    | PreviewRewind
    | RepeatPrompt
    | ShowResult
)
Answer = (
    Models
    | Efforts
    | Proposed
    | Roles
    | Report
    | TrustPage
    | ToolServers
    | RulesPage
    | SkillsPage
    | KeptFiles
    | WholeToolUse
    | Changes
    | FilesBefore
    | Edits
    | RewindPreview
    | RepeatedPrompt
    | TurnResult
)
WorktreeRequest = ListWorktrees | DiffWorktree | RemoveWorktree
Request = (
    ListSessions
    | RenameSession
    | DeleteSession
    | PreviewSession
    | MeasureSession
    | CountCorrections
    | ForkSession
    | ExportSession
    | BlameFile
    | TraceStaged
    | Login
    | Logout
    | ListAgents
    | ListPlugins
    | ChangePlugin
    | WorktreeRequest
    | Rewrite
    | PriceRewrites
    | SessionRequest
)
