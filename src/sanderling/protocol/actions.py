"""Actions: the frontends' commands to the agent. `events.py` describes the encoding."""

from typing import Literal

import msgspec

from sanderling.protocol.messages import Prompt, Usage
from sanderling.protocol.modes import Effort, Mode, NetworkMode
from sanderling.protocol.reviews import Review, ReviewLeft


class _Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of actions: a misspelt field is an error."""


class OpenSession(_Action, tag="open_session", frozen=True):
    """
    Open the session, or resume it if its log exists. `project` is the absolute path of the project's root.

    `wants_history`: show the earlier conversation, as `HistoryShown`. `agent` is the name of the external agent for a new session. With a
    `worktree`, a branch, a commit or "HEAD", a new session gets a worktree of its own.
    """

    project: str
    wants_history: bool = False
    agent: str = ""
    worktree: str = ""


class SubmitPrompt(_Action, tag="submit_prompt", frozen=True):
    """
    Send a prompt to the model. During a turn it is queued for the turn's end.

    Held prompts are released and go first.
    """

    prompt: Prompt


class SteerTurn(_Action, tag="steer_turn", frozen=True):
    """Send a message to the model at its next tool boundary, or as soon as its turn has ended."""

    prompt: Prompt


class EditWaiting(_Action, tag="edit_waiting", frozen=True):
    """Change the text of a pending prompt; an empty text removes the prompt."""

    id: str
    text: str


class ReleaseWaiting(_Action, tag="release_waiting", frozen=True):
    """Release the held prompts."""


class RetryNow(_Action, tag="retry_now", frozen=True):
    """Repeat now the request that waits for its retry."""


class Rest(_Action, tag="rest", frozen=True):
    """Close the sandbox as soon as nothing in it would be lost. The next use opens it again."""


class SetModel(_Action, tag="set_model", frozen=True):
    """Use `model` from the next request on."""

    model: str


class SetEffort(_Action, tag="set_effort", frozen=True):
    """Use this effort from the next request on; with `is_once`, in the next turn only."""

    effort: Effort
    is_once: bool = False


class Compact(_Action, tag="compact", frozen=True):
    """Replace the conversation, as sent to the model, by a summary; `focus` says what matters."""

    focus: str = ""


class Remember(_Action, tag="remember", frozen=True):
    """Propose lines for the instructions from the user's corrections in this session. They are a question, like each change of these."""


class UndoCompaction(_Action, tag="undo_compaction", frozen=True):
    """Undo the last compaction: send the model the earlier conversation again."""


class UndoTurn(_Action, tag="undo_turn", frozen=True):
    """Undo the agent's changes in the turn of the prompt `turn`; by default, in the last turn that is not undone."""

    turn: str = ""


class RedoTurn(_Action, tag="redo_turn", frozen=True):
    """Redo the last undo or rewind of files; with a `turn`, the last one of that turn."""

    turn: str = ""


class ApplyWorktree(_Action, tag="apply_worktree", frozen=True):
    """Make the changes of the worktree `name` in the project, merged with the user's own since then. The user reviews them."""

    name: str


class Rewind(_Action, tag="rewind", frozen=True):
    """
    Go back to before a prompt: the conversation, the files that the agent has changed since, or both.

    The prompt comes back in `PromptsReturned`.
    """

    prompt_id: str
    what: Literal["conversation", "files", "both"] = "both"


class SetTitle(_Action, tag="set_title", frozen=True):
    title: str


FROM_END = -1


class ShowEarlier(_Action, tag="show_earlier", frozen=True):
    """
    Return the `HistoryShown` that ends at `before`, where the shown history begins. Another process may have shown that history.

    `FROM_END`: return the last one, for a client that shows nothing yet.
    """

    before: int = 0


class TrustFiles(_Action, tag="trust_files", frozen=True):
    """Trust exactly the files in `hashes`, which has the SHA-256 of the shown content for each path. Other files are not trusted."""

    hashes: dict[str, str]


class RunCommand(_Action, tag="run_command", frozen=True):
    """Run a command of the user's in the sandbox. The next prompt includes it and its output."""

    id: str
    command: str


class SetNetwork(_Action, tag="set_network", frozen=True):
    """Change the network of commands that start from now on in this session."""

    mode: NetworkMode


class SetSandbox(_Action, tag="set_sandbox", frozen=True):
    """Switch the sandbox for commands off, or on again. Only a user may switch it off."""

    is_on: bool


class SetMode(_Action, tag="set_mode", frozen=True):
    """Set how far the agent may go without asking. Only a user may do this."""

    mode: Mode


class SetRole(_Action, tag="set_role", frozen=True):
    """Give the session the role `name`; "" ends the role. During a turn this waits for the turn's end. Only a user may do this."""

    name: str


class AnswerApproval(_Action, tag="answer_approval", frozen=True):
    """
    `reason` is for the model, with "deny". `rule` is the rule that "always" stores, as it was shown or as the user edited it.

    With "session", `rule` applies until the session ends, if it is not the proposed one. `is_alone`: deny only this call, not other tool
    calls of the same message. `values` are the values of a form, as in `FormField`; "cancel" neither answers nor denies. `review` says
    which parts of a proposal the user accepts, unless all of it as it is. "again": the text is not the one that the proposal was made
    for; look at it and ask again. `option` is the chosen answer to an external agent's question. `is_unattended`: no user has seen the
    question, and `reason` says why. `for_tree`: with "session", the rule applies to the session that began the work and to all of its
    children, not only to the child that asked.
    """

    id: str
    answer: Literal["once", "session", "always", "deny", "cancel", "again"]
    reason: str = ""
    rule: str = ""
    is_alone: bool = False
    values: dict[str, str] = {}
    review: Review | None = None
    option: str = ""
    is_unattended: bool = False
    for_tree: bool = False


class RejectedHunk(_Action, frozen=True):
    """The lines `rejected` of a file, beginning at `first_line` (1-based), were changed back to the lines `restored`."""

    first_line: int
    rejected: tuple[str, ...]
    restored: tuple[str, ...]


class RejectChanges(_Action, tag="reject_changes", frozen=True):
    """
    The user undid changes of the agent in the file `path`, perhaps for a `reason`.

    The model is informed with the next message to it.
    """

    path: str
    hunks: tuple[RejectedHunk, ...]
    reason: str = ""


class NoteReviewed(_Action, tag="note_reviewed", frozen=True):
    """The user reviewed the changes of the file `path` (symlinks resolved): all of them, or all but those in `left`."""

    path: str
    left: ReviewLeft | None = None


class NoteSaved(_Action, tag="note_saved", frozen=True):
    """The user just wrote the file `path` (symlinks resolved), so the change is not attributed to a command that is running."""

    path: str


class NoteUsage(_Action, tag="note_usage", frozen=True):
    """A request outside the session, such as an inline edit, used tokens. They count in the session's usage."""

    model: str
    usage: Usage


class WatchJob(_Action, tag="watch_job", frozen=True):
    """
    Send the job's output so far, then new output as it comes; or stop sending it.

    `id` may also be the id of a tool call whose command runs.
    """

    id: str
    is_on: bool = True


class UseTerminal(_Action, tag="use_terminal", frozen=True):
    """
    Take the terminal of a job, hand it back to the model, or show the model what is hidden on its screen. Only a user may do this.

    While the user has it, the model neither sees nor sends anything.
    """

    id: str
    what: Literal["take", "hand_back", "show"]


class TypeInTerminal(_Action, tag="type_in_terminal", frozen=True):
    """Send the user's keys to a job's terminal that the user has taken. `data` is encoded as base64."""

    id: str
    data: bytes

    def __repr__(self) -> str:
        return f"TypeInTerminal({self.id!r})"  # nothing may log what the user types


class ResizeTerminal(_Action, tag="resize_terminal", frozen=True):
    """Give a job's terminal the size of the user's window."""

    id: str
    rows: int
    columns: int


class StopJob(_Action, tag="stop_job", frozen=True):
    id: str


class StopChild(_Action, tag="stop_child", frozen=True):
    """Stop the turn of a child session; the session that started it gets what the child has done so far."""

    id: str


class ControlToolServer(_Action, tag="control_tool_server", frozen=True):
    """Start or restart a tool server, stop it, or log in to it in a browser."""

    name: str
    what: Literal["start", "stop", "login"]


class ChangeRule(_Action, tag="change_rule", frozen=True):
    """Delete the rule with the text `rule` from the session's and the stored rules, or replace it by the rule `new`."""

    rule: str
    new: str = ""


class SetGuestOption(_Action, tag="set_guest_option", frozen=True):
    """Set an option of the session's external agent to `value`; `id` is the option's id or title."""

    id: str
    value: str


class CancelTurn(_Action, tag="cancel_turn", frozen=True):
    """
    Stop the turn; pending prompts come back as `PromptsReturned`. If there are neither, stop the newest command.

    What was received so far is kept.
    """


class CloseSession(_Action, tag="close_session", frozen=True):
    """Stop the turn and close the session; its log stays."""


Action = (
    OpenSession
    | SubmitPrompt
    | SteerTurn
    | EditWaiting
    | ReleaseWaiting
    | RetryNow
    | Rest
    | SetModel
    | SetEffort
    | Compact
    | Remember
    | UndoCompaction
    | UndoTurn
    | RedoTurn
    | Rewind
    | ApplyWorktree
    | SetTitle
    | ShowEarlier
    | TrustFiles
    | RunCommand
    | SetNetwork
    | SetSandbox
    | SetMode
    | SetRole
    | AnswerApproval
    | RejectChanges
    | NoteReviewed
    | NoteSaved
    | NoteUsage
    | WatchJob
    | UseTerminal
    | TypeInTerminal
    | ResizeTerminal
    | StopJob
    | StopChild
    | ControlToolServer
    | ChangeRule
    | SetGuestOption
    | CancelTurn
    | CloseSession
)
