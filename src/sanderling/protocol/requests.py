"""Requests: questions of a frontend, each with one answer. A failed request is answered by a map with `error`, a sentence."""

from typing import Literal

import msgspec

from sanderling.protocol.events import ToolServer
from sanderling.protocol.guests import ListAgents
from sanderling.protocol.restoring import RestoredFile
from sanderling.protocol.rewriting import Rewrite


class ListSessions(msgspec.Struct, tag="list_sessions", frozen=True, forbid_unknown_fields=True):
    """
    List sessions, newest first, of `project` or, if that is empty, of all projects. The answer's `sessions` is a list of `SessionInfo`.

    A `text` selects the sessions that contain it, each with an excerpt. Sessions of print mode are included if `has_printed`.
    """

    project: str = ""
    text: str = ""
    has_printed: bool = False


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """`changed_at` is in seconds since 1970; `size_bytes` is the size of the log; `excerpt` is from around the text that was found."""

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
    """Delete a session's log and outputs. An open session is not deleted."""

    session_id: str


class MeasureSession(
    msgspec.Struct, tag="measure_session", frozen=True, forbid_unknown_fields=True
):
    """Return, as `size_bytes`, how much text `@session:ID` adds to a prompt."""

    session_id: str


class ForkSession(msgspec.Struct, tag="fork_session", frozen=True, forbid_unknown_fields=True):
    """
    Copy a session into the new session `new_id`, up to the turn of `prompt_id` (all of it without one).

    That turn is included unless `is_before`; then the answer's `prompt` is the text of its prompt.
    """

    session_id: str
    new_id: str
    prompt_id: str = ""
    is_before: bool = False


class ExportSession(msgspec.Struct, tag="export_session", frozen=True, forbid_unknown_fields=True):
    """Write the conversation as Markdown into a new file at `path`. The answer's `path` is the file that was written."""

    session_id: str
    path: str


class Login(msgspec.Struct, tag="login", frozen=True, forbid_unknown_fields=True):
    """
    Store an API key in the system's keychain. Without a `key`, return whether that is possible: as `backend`, or else as `error`.

    Without a `provider` the key is for the provider in the settings, or for Claude.
    """

    key: str = ""
    provider: str = ""


class Logout(msgspec.Struct, tag="logout", frozen=True, forbid_unknown_fields=True):
    """Delete the API key from the keychain."""

    provider: str = ""


class ListModels(msgspec.Struct, tag="list_models", frozen=True, forbid_unknown_fields=True):
    """
    List the models that can be chosen. The answer is `Models`.

    "known" lists the models that are known without a request; "own" adds the list of the session's provider, "all" the lists of
    all usable providers.
    """

    session_id: str
    scope: Literal["known", "own", "all"] = "own"


class Models(msgspec.Struct, frozen=True, omit_defaults=True):
    """Model names, as they are chosen, and notes about them; `problems` are sentences about providers that did not answer."""

    models: tuple[str, ...]
    notes: dict[str, str] = {}
    problems: tuple[str, ...] = ()


class TestProvider(msgspec.Struct, tag="test_provider", frozen=True, forbid_unknown_fields=True):
    """Test what a provider can do, `PROVIDER` or `PROVIDER:MODEL`, by default the session's. The answer is a `Report`. Costs tokens."""

    session_id: str
    provider: str = ""


class ShowUsage(msgspec.Struct, tag="show_usage", frozen=True, forbid_unknown_fields=True):
    """Return a `Report` of tokens and cost."""

    session_id: str


class ShowSettings(msgspec.Struct, tag="show_settings", frozen=True, forbid_unknown_fields=True):
    """Return a `Report` of the settings in effect."""

    session_id: str


class Report(msgspec.Struct, frozen=True):
    title: str
    text: str  # Markdown


class ShowTrust(msgspec.Struct, tag="show_trust", frozen=True, forbid_unknown_fields=True):
    """Return the project files that could be trusted, as a `TrustPage`."""

    session_id: str


class TrustFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A project file that contains instructions for the model or settings for Sanderling. `path` is relative to the project.

    `allowed` describes what the file would allow the model to do without asking.
    """

    path: str
    state: Literal["new", "changed", "trusted"]
    sha256: str
    text: str = ""
    allowed: tuple[str, ...] = ()


class TrustPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """All files that could be trusted, with their contents; `refusal` says why no file of this project can be trusted."""

    project: str
    files: tuple[TrustFile, ...] = ()
    refusal: str = ""


class ListToolServers(
    msgspec.Struct, tag="list_tool_servers", frozen=True, forbid_unknown_fields=True
):
    """List the session's tool servers. The answer is `ToolServers`."""

    session_id: str


class ToolServers(msgspec.Struct, frozen=True):
    servers: tuple[ToolServer, ...]


class ShowToolServer(
    msgspec.Struct, tag="show_tool_server", frozen=True, forbid_unknown_fields=True
):
    """Return a `Report` of a tool server's offers and of its output outside the protocol."""

    session_id: str
    name: str


class CheckMentions(msgspec.Struct, tag="check_mentions", frozen=True, forbid_unknown_fields=True):
    """Return, as `KeptFiles`, the files among `paths` that a rule hides from the model."""

    session_id: str
    paths: tuple[str, ...]


class KeptFiles(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]


class InspectToolUse(
    msgspec.Struct, tag="inspect_tool_use", frozen=True, forbid_unknown_fields=True
):
    """Return a tool call in full, as a `WholeToolUse`."""

    session_id: str
    id: str


class WholeToolUse(msgspec.Struct, frozen=True):
    tool: str
    input: str  # JSON
    result: str


class ListChanges(msgspec.Struct, tag="list_changes", frozen=True, forbid_unknown_fields=True):
    """List the turns of a session, or only `turn`, with the agent's changes in each. The answer is `Changes`."""

    session_id: str
    turn: str = ""


class ChangedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """`why` says what prevents undoing the change: its content is not stored, or it may not be the agent's."""

    path: str
    what: Literal["created", "changed", "removed"]
    added: int = 0
    removed: int = 0
    why: str = ""


class TurnShown(msgspec.Struct, frozen=True, omit_defaults=True):
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


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turns of a session; `problems` are sentences about damage to the record of changes."""

    turns: tuple[TurnShown, ...]
    problems: tuple[str, ...] = ()


class ShowDifference(
    msgspec.Struct, tag="show_difference", frozen=True, forbid_unknown_fields=True
):
    """
    Return, as `FilesBefore`, what the agent changed in the last turn or in the session, including by commands, or only in `path`.

    "unreviewed" means the changes by file tools that the user has not reviewed.
    """

    session_id: str
    what: Literal["turn", "session", "unreviewed"] = "turn"
    path: str = ""


class FileBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The `text` of a file without the agent's changes, but with the user's.

    If only "some" changes are reviewed, `baseline` is the text without the others.
    """

    path: str
    what: Literal["created", "changed", "removed"]
    text: str = ""
    reviewed: Literal["none", "some", "all"] = "none"
    baseline: str = ""


class FilesBefore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that the agent changed; for the files in `left`, the content without its changes is unknown."""

    files: tuple[FileBefore, ...]
    left: tuple[RestoredFile, ...] = ()


class PreviewRewind(msgspec.Struct, tag="preview_rewind", frozen=True, forbid_unknown_fields=True):
    """Return what rewinding to before a prompt would do to the current files, as a `RewindPreview`."""

    session_id: str
    prompt_id: str


class RewindPreview(msgspec.Struct, frozen=True, omit_defaults=True):
    """`turns` is the number of turns to be taken back; `refusal` says why the conversation cannot be rewound, if so."""

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
