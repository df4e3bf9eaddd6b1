"""Opens a session for a client: a new one, or one that was created here, in Neovim or by another client."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from sanderling.acp.errors import INTERNAL_ERROR, RpcError, invalid, not_found
from sanderling.acp.sessions import NewSessionRequest, OldSessionRequest
from sanderling.acp_agent.audience import Audience
from sanderling.acp_agent.live import LiveSession
from sanderling.acp_agent.servers import checked_directory, clients_directory, with_clients
from sanderling.acp_agent.tasks import Tasks
from sanderling.acp_agent.terminals import ClientTerminals
from sanderling.config.layers import Layers
from sanderling.conversation.opening import Wishes, open_conversation
from sanderling.session.log import SessionInUseError, header_of, log_path, whole_lines
from sanderling.session.log import opened as opened_log
from sanderling.session.records import is_session_id, new_session_id
from sanderling.tools.editor import Editor

if TYPE_CHECKING:
    from sanderling.conversation.opening import ClientsTools
    from sanderling.providers.http.way import Way


class Wanted(NamedTuple):
    """A session to open, its project and its settings."""

    session_id: str
    project: str
    layers: Layers


def wanted_new(asked: NewSessionRequest, layers: Layers, *, is_here: bool = True) -> Wanted:
    """
    Return the new session that the client requests. Unless `is_here`, its files are on the client's machine.

    Raises:
        RpcError: the request is invalid.
    """
    project = checked_directory(asked.cwd, "cwd") if is_here else clients_directory(asked.cwd)
    if is_here:
        layers = with_clients(layers, asked.mcp_servers, asked.additional_directories)
    return Wanted(new_session_id(), project, layers)


async def wanted_again(asked: OldSessionRequest, layers: Layers, *, is_here: bool = True) -> Wanted:
    """
    Return the stored session that the client requests.

    Raises:
        RpcError: unknown session, a `cwd` other than its project, or an invalid request.
        SessionError: its log cannot be read.
    """
    project = checked_directory(asked.cwd, "cwd") if is_here else clients_directory(asked.cwd)
    directory = layers.settings().session_dir
    if not is_session_id(asked.session_id) or not log_path(directory, asked.session_id).is_file():
        raise not_found(f"there is no session {asked.session_id!r}")
    begun_in = await to_thread.run_sync(_project_of, log_path(directory, asked.session_id))
    if begun_in != project:
        raise invalid(
            f"the session {asked.session_id!r} belongs to {begun_in}, not to {project}: pass that as `cwd`"
        )
    if is_here:
        layers = with_clients(layers, asked.mcp_servers, asked.additional_directories)
    return Wanted(asked.session_id, project, layers)


def _project_of(log: Path) -> str:
    with opened_log(log) as file:
        return header_of(log, next(whole_lines(file), b"")).project


async def open_live(
    wanted: Wanted,
    audience: Audience,
    tasks: Tasks,
    editor: Editor | None = None,
    terminals: Callable[[Callable[[str, str], None]], ClientTerminals] | None = None,
    *,
    way: "Way | None" = None,
    tools: "ClientsTools | None" = None,
) -> LiveSession:
    """
    Open a session.

    `terminals` makes the client's terminals, given a function that shows which command runs in which one. `way` sends model requests
    through the client. With `tools`, the client runs all tools.

    Raises:
        RpcError: the session is open elsewhere.
        SanderlingError: it cannot be opened.
    """
    live = LiveSession(wanted.session_id, wanted.project, audience, tasks)
    elsewhere = terminals(live.show_terminal).spawn if terminals else None
    wishes = Wishes(editor=editor, elsewhere=elsewhere, is_shown=True, way=way, tools=tools)
    try:
        opened = await open_conversation(
            wanted.session_id, wanted.project, wanted.layers, live.emit, wishes
        )
    except SessionInUseError as error:
        raise RpcError(INTERNAL_ERROR, f"the session is open elsewhere: {error}") from error
    except OSError as error:  # too many open files, a full disk
        raise RpcError(INTERNAL_ERROR, f"the session cannot be opened: {error}") from error
    live.begin(opened)
    await live.list_models()
    return live
