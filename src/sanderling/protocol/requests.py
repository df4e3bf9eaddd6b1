"""Requests: what a face asks once. Each has one answer: a map with `error`, a sentence, if it failed."""

from typing import Literal

import msgspec

from sanderling.protocol.events import ToolServer
from sanderling.protocol.guests import ListAgents
from sanderling.protocol.restoring import RestoredFile
from sanderling.protocol.rewriting import Rewrite


class ListSessions(msgspec.Struct, tag="list_sessions", frozen=True, forbid_unknown_fields=True):
    """
    The sessions of a project, or of all with an empty one, newest first, as `sessions`: a list of `SessionInfo`.

    With a `text` only those in which it was said, each with an excerpt; those that print mode has begun only if it `has_printed`.
    """

    project: str = ""
    text: str = ""
    has_printed: bool = False


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """`changed_at` is in seconds since 1970, `size_bytes` the log's; `excerpt` is where a text was found."""

    id: str
    project: str
    title: str
    changed_at: float
    size_bytes: int
    is_open: bool = False
    excerpt: str = ""


class RenameSession(msgspec.Struct, tag="rename_session", frozen=True, forbid_unknown_fields=True):
    session_id: str
    title: str


class DeleteSession(msgspec.Struct, tag="delete_session", frozen=True, forbid_unknown_fields=True):
    """Remove the log and the outputs; not of one that is open."""

    session_id: str


class MeasureSession(
    msgspec.Struct, tag="measure_session", frozen=True, forbid_unknown_fields=True
):
    """The bytes that `@session:ID` brings along, as `size_bytes`."""

    session_id: str


class ForkSession(msgspec.Struct, tag="fork_session", frozen=True, forbid_unknown_fields=True):
    """
    Make the session `new_id` of what another holds, up to the turn of the prompt `prompt_id` (all of it without one).

    The turn itself comes along unless `is_before`; then the answer's `prompt` has its words.
    """

    session_id: str
    new_id: str
    prompt_id: str = ""
    is_before: bool = False


class ExportSession(msgspec.Struct, tag="export_session", frozen=True, forbid_unknown_fields=True):
    """Write the conversation as Markdown into a new file at `path`; the answer's `path` is where it is."""

    session_id: str
    path: str


class Login(msgspec.Struct, tag="login", frozen=True, forbid_unknown_fields=True):
    """
    Keep an API key in the system's keychain. Without a `key`: whether that can be, as `backend`, else as `error`.

    Without a `provider` it is that of the settings, or Claude's.
    """

    key: str = ""
    provider: str = ""


class Logout(msgspec.Struct, tag="logout", frozen=True, forbid_unknown_fields=True):
    """Remove the API key from the keychain."""

    provider: str = ""


# --- about a session that is open --------------------------------------------------------------------------------------


class ListModels(msgspec.Struct, tag="list_models", frozen=True, forbid_unknown_fields=True):
    """
    The models that can be chosen: `Models`.

    They are those that are `known` without asking, and besides those that the session's `own` provider lists, or `all` that can be
    asked.
    """

    session_id: str
    scope: Literal["known", "own", "all"] = "own"


class Models(msgspec.Struct, frozen=True, omit_defaults=True):
    """Names by which models are chosen, with what is known of them; `problems` are sentences about providers that did not answer."""

    models: tuple[str, ...]
    notes: dict[str, str] = {}
    problems: tuple[str, ...] = ()


class TestProvider(msgspec.Struct, tag="test_provider", frozen=True, forbid_unknown_fields=True):
    """A `Report` of what a provider can do, `PROVIDER` or `PROVIDER:MODEL`; without one, that of the session. It costs tokens."""

    session_id: str
    provider: str = ""


class ShowUsage(msgspec.Struct, tag="show_usage", frozen=True, forbid_unknown_fields=True):
    """A `Report` of tokens and dollars."""

    session_id: str


class ShowSettings(msgspec.Struct, tag="show_settings", frozen=True, forbid_unknown_fields=True):
    """A `Report` of the settings in force."""

    session_id: str


class Report(msgspec.Struct, frozen=True):
    title: str
    text: str  # Markdown


class ShowTrust(msgspec.Struct, tag="show_trust", frozen=True, forbid_unknown_fields=True):
    """The project's files that could be trusted: `TrustPage`."""

    session_id: str


class TrustFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A file of the project's that would tell the model or Sanderling what to do. `path` is relative to the project.

    `allowed` says in words what it lets the model do without a question.
    """

    path: str
    state: Literal["new", "changed", "trusted"]
    sha256: str
    text: str = ""
    allowed: tuple[str, ...] = ()


class TrustPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """All files that could be trusted, with their texts; `refusal` says in a sentence why none of this project can."""

    project: str
    files: tuple[TrustFile, ...] = ()
    refusal: str = ""


class ListToolServers(
    msgspec.Struct, tag="list_tool_servers", frozen=True, forbid_unknown_fields=True
):
    """The session's tool servers as they are now: `ToolServers`."""

    session_id: str


class ToolServers(msgspec.Struct, frozen=True):
    servers: tuple[ToolServer, ...]


class ShowToolServer(
    msgspec.Struct, tag="show_tool_server", frozen=True, forbid_unknown_fields=True
):
    """A `Report` of what a tool server offers, and of what it has said beside the protocol."""

    session_id: str
    name: str


class CheckMentions(msgspec.Struct, tag="check_mentions", frozen=True, forbid_unknown_fields=True):
    """The files among `paths` that a rule keeps from the model: `KeptFiles`."""

    session_id: str
    paths: tuple[str, ...]


class KeptFiles(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]


class InspectToolUse(
    msgspec.Struct, tag="inspect_tool_use", frozen=True, forbid_unknown_fields=True
):
    """A tool use, whole: `WholeToolUse`."""

    session_id: str
    id: str


class WholeToolUse(msgspec.Struct, frozen=True):
    tool: str
    input: str  # JSON
    result: str


class ListChanges(msgspec.Struct, tag="list_changes", frozen=True, forbid_unknown_fields=True):
    """The turns of a session, with what the agent has changed in each: `Changes`. With a `turn` that one alone."""

    session_id: str
    turn: str = ""


class ChangedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """`why` says what stands against undoing it: it is not kept, or it may not be the agent's."""

    path: str
    what: Literal["created", "changed", "removed"]
    added: int = 0
    removed: int = 0
    why: str = ""


class TurnShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A turn: the id and the first words of its prompt, and its `number` in the session, from 1.

    If it `is_interrupted`, one of its commands ended with Sanderling: what that has changed is not known.
    """

    turn: str
    number: int
    text: str
    files: tuple[ChangedFile, ...] = ()
    is_undone: bool = False
    is_interrupted: bool = False


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turns of a session, and what is wrong with the record of its changes: sentences."""

    turns: tuple[TurnShown, ...]
    problems: tuple[str, ...] = ()


class ShowDifference(
    msgspec.Struct, tag="show_difference", frozen=True, forbid_unknown_fields=True
):
    """
    All that the agent has changed in the last turn, or in the session, by commands, too, or only in a `path`: `FilesBefore`.

    What is "unreviewed" is what nobody has reviewed, of the files that its file tools have changed.
    """

    session_id: str
    what: Literal["turn", "session", "unreviewed"] = "turn"
    path: str = ""


class FileBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The `text` of a file as it would be without what the agent has changed, and with what the person has.

    If "some" of it is reviewed, `baseline` is the text without the rest.
    """

    path: str
    what: Literal["created", "changed", "removed"]
    text: str = ""
    reviewed: Literal["none", "some", "all"] = "none"
    baseline: str = ""


class FilesBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that the agent has changed; of those that are `left` it cannot be told how they would be without it."""

    files: tuple[FileBefore, ...]
    left: tuple[RestoredFile, ...] = ()


class PreviewRewind(msgspec.Struct, tag="preview_rewind", frozen=True, forbid_unknown_fields=True):
    """The effect of rewinding to before a prompt, as files stand now: `RewindPreview`."""

    session_id: str
    prompt_id: str


class RewindPreview(msgspec.Struct, frozen=True, omit_defaults=True):
    """`turns` is how many would be taken back; `refusal` says in a sentence why the conversation cannot be, if so."""

    prompt: str
    turns: int
    files: tuple[RestoredFile, ...] = ()
    refusal: str = ""


SessionRequest = (
    ListModels
    | TestProvider
    | ShowUsage
    | ShowSettings
    | ShowTrust
    | ListToolServers
    | ShowToolServer
    | CheckMentions
    | InspectToolUse
    | ListChanges
    | ShowDifference
    | PreviewRewind
)
Answer = (
    Models
    | Report
    | TrustPage
    | ToolServers
    | KeptFiles
    | WholeToolUse
    | Changes
    | FilesBefore
    | RewindPreview
)
Request = (
    ListSessions
    | RenameSession
    | DeleteSession
    | MeasureSession
    | ForkSession
    | ExportSession
    | Login
    | Logout
    | ListAgents
    | Rewrite
    | SessionRequest
)
