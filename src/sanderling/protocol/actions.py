"""Actions: imperatives that the agent takes from its faces; how they travel stands in `events.py`."""

from typing import Literal

import msgspec

from sanderling.protocol.guests import SetGuestOption
from sanderling.protocol.messages import Prompt, Usage
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.protocol.reviews import Review, ReviewLeft


class OpenSession(msgspec.Struct, tag="open_session", frozen=True, forbid_unknown_fields=True):
    """
    Open the session, or resume it when its log exists. `project` is the absolute path of the project's root.

    `wants_history`: what was said is to be shown, as `HistoryShown`. `agent` is the name of the guest that is to answer in a new one.
    """

    project: str
    wants_history: bool = False
    agent: str = ""


class SubmitPrompt(msgspec.Struct, tag="submit_prompt", frozen=True, forbid_unknown_fields=True):
    """
    Ask the model; a prompt that arrives during a turn is queued for its end.

    Prompts that were held go first, and are held no longer.
    """

    prompt: Prompt


class SteerTurn(msgspec.Struct, tag="steer_turn", frozen=True, forbid_unknown_fields=True):
    """Tell the model at its next tool boundary, or as soon as its turn has ended."""

    prompt: Prompt


class EditWaiting(msgspec.Struct, tag="edit_waiting", frozen=True, forbid_unknown_fields=True):
    """Change the words of a prompt that waits; empty ones take it out."""

    id: str
    text: str


class ReleaseWaiting(
    msgspec.Struct, tag="release_waiting", frozen=True, forbid_unknown_fields=True
):
    """Let the prompts go that are held."""


class RetryNow(msgspec.Struct, tag="retry_now", frozen=True, forbid_unknown_fields=True):
    """Make the request again at once that waits for its retry."""


class Rest(msgspec.Struct, tag="rest", frozen=True, forbid_unknown_fields=True):
    """Close the sandbox as soon as nothing in it would be lost. The next use opens it again."""


class SetModel(msgspec.Struct, tag="set_model", frozen=True, forbid_unknown_fields=True):
    """Have `model` answer from the next request on."""

    model: str


class Compact(msgspec.Struct, tag="compact", frozen=True, forbid_unknown_fields=True):
    """Replace the conversation, as the model sees it, by a summary; `focus` says in words what matters."""

    focus: str = ""


class UndoCompaction(
    msgspec.Struct, tag="undo_compaction", frozen=True, forbid_unknown_fields=True
):
    """Show the model again what the last compaction took away."""


class UndoTurn(msgspec.Struct, tag="undo_turn", frozen=True, forbid_unknown_fields=True):
    """Take back what the agent has changed in the turn of the prompt `turn`; without one, in the last that is not undone."""

    turn: str = ""


class RedoTurn(msgspec.Struct, tag="redo_turn", frozen=True, forbid_unknown_fields=True):
    """Take back the last undoing, or rewinding of files; with a `turn` the last one of that."""

    turn: str = ""


class Rewind(msgspec.Struct, tag="rewind", frozen=True, forbid_unknown_fields=True):
    """
    Go back to before a prompt: with the conversation, the files that the agent has changed since, or both.

    The words of the prompt come back as `PromptsReturned`.
    """

    prompt_id: str
    what: Literal["conversation", "files", "both"] = "both"


class SetTitle(msgspec.Struct, tag="set_title", frozen=True, forbid_unknown_fields=True):
    title: str


FROM_END = -1


class ShowEarlier(msgspec.Struct, tag="show_earlier", frozen=True, forbid_unknown_fields=True):
    """
    Ask for the `HistoryShown` that comes before what is shown, which begins at `before`: another process may have shown that.

    `FROM_END`: the last one, for somebody who is shown nothing yet.
    """

    before: int = 0


class TrustFiles(msgspec.Struct, tag="trust_files", frozen=True, forbid_unknown_fields=True):
    """Trust the project's files exactly as they were shown: `hashes` has the SHA-256 of each path; the others are not trusted."""

    hashes: dict[str, str]


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
    """Decide how far the agent may go unasked from now on. Only a person may ask for it."""

    mode: Mode


class AnswerApproval(
    msgspec.Struct, tag="answer_approval", frozen=True, forbid_unknown_fields=True
):
    """
    `reason` is for the model, with "deny"; `rule` is what "always" keeps, as it was shown or as the person has changed it.

    With "session", it is what holds until that ends, if not what was proposed. `is_alone`: "deny" is about this one only, not about
    other tool uses of the same message. `values` are what a form was filled in with, as `FormField` has them; "cancel" neither
    answers it nor says no to it. `review` is what the person takes of a proposal, where that is not all of it as it is. "again":
    the text is not the one that the proposal is for; look at it, and ask again. `option` is the answer of a guest's that was chosen.
    """

    id: str
    answer: Literal["once", "session", "always", "deny", "cancel", "again"]
    reason: str = ""
    rule: str = ""
    is_alone: bool = False
    values: dict[str, str] = {}
    review: Review | None = None
    option: str = ""


class RejectedHunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lines `rejected` of a file, of which the first was `first_line`, counted from 1, are the lines `restored` again."""

    first_line: int
    rejected: tuple[str, ...]
    restored: tuple[str, ...]


class RejectChanges(msgspec.Struct, tag="reject_changes", frozen=True, forbid_unknown_fields=True):
    """
    The person has taken back what the agent changed in the file `path`, for a `reason`, where they give one.

    The model is told with what it is told next.
    """

    path: str
    hunks: tuple[RejectedHunk, ...]
    reason: str = ""


class NoteReviewed(msgspec.Struct, tag="note_reviewed", frozen=True, forbid_unknown_fields=True):
    """The person has reviewed the changes of the file `path`, its links followed: all of them, or all but what is `left`."""

    path: str
    left: ReviewLeft | None = None


class NoteSaved(msgspec.Struct, tag="note_saved", frozen=True, forbid_unknown_fields=True):
    """The person has just written the file `path`, its links followed: that is no work of a command which runs meanwhile."""

    path: str


class NoteUsage(msgspec.Struct, tag="note_usage", frozen=True, forbid_unknown_fields=True):
    """A request beside the session, an edit's, has used tokens: they count among its own."""

    model: str
    usage: Usage


class WatchJob(msgspec.Struct, tag="watch_job", frozen=True, forbid_unknown_fields=True):
    """Tell what the job writes: its output so far, then what comes; or no longer."""

    id: str
    is_on: bool = True


class StopJob(msgspec.Struct, tag="stop_job", frozen=True, forbid_unknown_fields=True):
    id: str


class ControlToolServer(
    msgspec.Struct, tag="control_tool_server", frozen=True, forbid_unknown_fields=True
):
    """Start a tool server, again if it runs, or stop it until then; or log in at it, in a browser."""

    name: str
    what: Literal["start", "stop", "login"]


class CancelTurn(msgspec.Struct, tag="cancel_turn", frozen=True, forbid_unknown_fields=True):
    """
    Stop the turn; the prompts that wait come back as `PromptsReturned`. Without either, stop the command that was started last.

    What came is kept.
    """


class CloseSession(msgspec.Struct, tag="close_session", frozen=True, forbid_unknown_fields=True):
    """Stop the turn and forget the session; its log stays."""


Action = (
    OpenSession
    | SubmitPrompt
    | SteerTurn
    | EditWaiting
    | ReleaseWaiting
    | RetryNow
    | Rest
    | SetModel
    | Compact
    | UndoCompaction
    | UndoTurn
    | RedoTurn
    | Rewind
    | SetTitle
    | ShowEarlier
    | TrustFiles
    | RunCommand
    | SetNetwork
    | SetSandbox
    | SetMode
    | AnswerApproval
    | RejectChanges
    | NoteReviewed
    | NoteSaved
    | NoteUsage
    | WatchJob
    | StopJob
    | ControlToolServer
    | SetGuestOption
    | CancelTurn
    | CloseSession
)
