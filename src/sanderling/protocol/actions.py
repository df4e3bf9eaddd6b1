"""Actions: the frontends' commands to the agent. `events.py` describes the encoding."""

from typing import Literal

import msgspec

from sanderling.protocol.guests import SetGuestOption
from sanderling.protocol.messages import Prompt, Usage
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.protocol.reviews import Review, ReviewLeft


class OpenSession(msgspec.Struct, tag="open_session", frozen=True, forbid_unknown_fields=True):
    """
    Open the session, or resume it if its log exists. `project` is the absolute path of the project's root.

    `wants_history`: show the earlier conversation, as `HistoryShown`. `agent` is the name of the external agent for a new session.
    """

    project: str
    wants_history: bool = False
    agent: str = ""


class SubmitPrompt(msgspec.Struct, tag="submit_prompt", frozen=True, forbid_unknown_fields=True):
    """
    Send a prompt to the model. During a turn it is queued for the turn's end.

    Held prompts are released and go first.
    """

    prompt: Prompt


class SteerTurn(msgspec.Struct, tag="steer_turn", frozen=True, forbid_unknown_fields=True):
    """Send a message to the model at its next tool boundary, or as soon as its turn has ended."""

    prompt: Prompt


class EditWaiting(msgspec.Struct, tag="edit_waiting", frozen=True, forbid_unknown_fields=True):
    """Change the text of a pending prompt; an empty text removes the prompt."""

    id: str
    text: str


class ReleaseWaiting(
    msgspec.Struct, tag="release_waiting", frozen=True, forbid_unknown_fields=True
):
    """Release the held prompts."""


class RetryNow(msgspec.Struct, tag="retry_now", frozen=True, forbid_unknown_fields=True):
    """Repeat now the request that waits for its retry."""


class Rest(msgspec.Struct, tag="rest", frozen=True, forbid_unknown_fields=True):
    """Close the sandbox as soon as nothing in it would be lost. The next use opens it again."""


class SetModel(msgspec.Struct, tag="set_model", frozen=True, forbid_unknown_fields=True):
    """Use `model` from the next request on."""

    model: str


class Compact(msgspec.Struct, tag="compact", frozen=True, forbid_unknown_fields=True):
    """Replace the conversation, as sent to the model, by a summary; `focus` says what matters."""

    focus: str = ""


class UndoCompaction(
    msgspec.Struct, tag="undo_compaction", frozen=True, forbid_unknown_fields=True
):
    """Undo the last compaction: send the model the earlier conversation again."""


class UndoTurn(msgspec.Struct, tag="undo_turn", frozen=True, forbid_unknown_fields=True):
    """Undo the agent's changes in the turn of the prompt `turn`; by default, in the last turn that is not undone."""

    turn: str = ""


class RedoTurn(msgspec.Struct, tag="redo_turn", frozen=True, forbid_unknown_fields=True):
    """Redo the last undo or rewind of files; with a `turn`, the last one of that turn."""

    turn: str = ""


class Rewind(msgspec.Struct, tag="rewind", frozen=True, forbid_unknown_fields=True):
    """
    Go back to before a prompt: the conversation, the files that the agent has changed since, or both.

    The prompt comes back in `PromptsReturned`.
    """

    prompt_id: str
    what: Literal["conversation", "files", "both"] = "both"


class SetTitle(msgspec.Struct, tag="set_title", frozen=True, forbid_unknown_fields=True):
    title: str


FROM_END = -1


class ShowEarlier(msgspec.Struct, tag="show_earlier", frozen=True, forbid_unknown_fields=True):
    """
    Return the `HistoryShown` that ends at `before`, where the shown history begins. Another process may have shown that history.

    `FROM_END`: return the last one, for a client that shows nothing yet.
    """

    before: int = 0


class TrustFiles(msgspec.Struct, tag="trust_files", frozen=True, forbid_unknown_fields=True):
    """Trust exactly the files in `hashes`, which has the SHA-256 of the shown content for each path. Other files are not trusted."""

    hashes: dict[str, str]


class RunCommand(msgspec.Struct, tag="run_command", frozen=True, forbid_unknown_fields=True):
    """Run a command of the user's in the sandbox. The next prompt includes it and its output."""

    id: str
    command: str


class SetNetwork(msgspec.Struct, tag="set_network", frozen=True, forbid_unknown_fields=True):
    """Change the network of commands that start from now on in this session."""

    mode: NetworkMode


class SetSandbox(msgspec.Struct, tag="set_sandbox", frozen=True, forbid_unknown_fields=True):
    """Switch the sandbox for commands off, or on again. Only a user may switch it off."""

    is_on: bool


class SetMode(msgspec.Struct, tag="set_mode", frozen=True, forbid_unknown_fields=True):
    """Set how far the agent may go without asking. Only a user may do this."""

    mode: Mode


class AnswerApproval(
    msgspec.Struct, tag="answer_approval", frozen=True, forbid_unknown_fields=True
):
    """
    `reason` is for the model, with "deny". `rule` is the rule that "always" stores, as it was shown or as the user edited it.

    With "session", `rule` applies until the session ends, if it is not the proposed one. `is_alone`: deny only this call, not other tool
    calls of the same message. `values` are the values of a form, as in `FormField`; "cancel" neither answers nor denies. `review` says
    which parts of a proposal the user accepts, unless all of it as it is. "again": the text is not the one that the proposal was made
    for; look at it and ask again. `option` is the chosen answer to an external agent's question.
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
    """The lines `rejected` of a file, beginning at `first_line` (1-based), were changed back to the lines `restored`."""

    first_line: int
    rejected: tuple[str, ...]
    restored: tuple[str, ...]


class RejectChanges(msgspec.Struct, tag="reject_changes", frozen=True, forbid_unknown_fields=True):
    """
    The user undid changes of the agent in the file `path`, perhaps for a `reason`.

    The model is informed with the next message to it.
    """

    path: str
    hunks: tuple[RejectedHunk, ...]
    reason: str = ""


class NoteReviewed(msgspec.Struct, tag="note_reviewed", frozen=True, forbid_unknown_fields=True):
    """The user reviewed the changes of the file `path` (symlinks resolved): all of them, or all but those in `left`."""

    path: str
    left: ReviewLeft | None = None


class NoteSaved(msgspec.Struct, tag="note_saved", frozen=True, forbid_unknown_fields=True):
    """The user just wrote the file `path` (symlinks resolved), so the change is not attributed to a command that is running."""

    path: str


class NoteUsage(msgspec.Struct, tag="note_usage", frozen=True, forbid_unknown_fields=True):
    """A request outside the session, such as an inline edit, used tokens. They count in the session's usage."""

    model: str
    usage: Usage


class WatchJob(msgspec.Struct, tag="watch_job", frozen=True, forbid_unknown_fields=True):
    """Send the job's output so far, then new output as it comes; or stop sending it."""

    id: str
    is_on: bool = True


class StopJob(msgspec.Struct, tag="stop_job", frozen=True, forbid_unknown_fields=True):
    id: str


class ControlToolServer(
    msgspec.Struct, tag="control_tool_server", frozen=True, forbid_unknown_fields=True
):
    """Start or restart a tool server, stop it, or log in to it in a browser."""

    name: str
    what: Literal["start", "stop", "login"]


class CancelTurn(msgspec.Struct, tag="cancel_turn", frozen=True, forbid_unknown_fields=True):
    """
    Stop the turn; pending prompts come back as `PromptsReturned`. If there are neither, stop the newest command.

    What was received so far is kept.
    """


class CloseSession(msgspec.Struct, tag="close_session", frozen=True, forbid_unknown_fields=True):
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
