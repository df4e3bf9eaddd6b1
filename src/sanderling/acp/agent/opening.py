"""Opens a session for a client: a new one, or one that was created here, in Neovim or by another client."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anyio import to_thread

from sanderling.acp.agent.clients import Audience
from sanderling.acp.agent.live import AgentSession
from sanderling.acp.agent.servers import checked_directory, clients_directory, with_clients
from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.agent.terminals import ClientTerminals
from sanderling.acp.wire.errors import INTERNAL_ERROR, RpcError, invalid, not_found
from sanderling.acp.wire.sessions import NewSessionRequest, OldSessionRequest
from sanderling.config.layers import Layers
from sanderling.protocol.agent import OpenedAgent
from sanderling.protocol.events import Event
from sanderling.session.log import SessionInUseError, header_of, log_path, whole_lines
from sanderling.session.log import opened as opened_log
from sanderling.session.records import is_session_id, new_session_id
from sanderling.tools.editor import Editor

if TYPE_CHECKING:
    from sanderling.providers.http.model_proxy import ModelProxy
    from sanderling.tools.client_tools import ClientTools
    from sanderling.tools.commands.shell import Elsewhere


class SessionOpener(Protocol):
    """Opens a session. The conversation provides it (`open_for_client`), and `serve` passes it in: this package does not know the conversation."""

    async def __call__(
        self,
        session_id: str,
        project: str,
        layers: Layers,
        emit: Callable[[Event], None],
        *,
        editor: Editor | None,
        elsewhere: "Elsewhere | None",
        model_proxy: "ModelProxy | None",
        tools: "ClientTools | None",
        has_calls: bool,
    ) -> OpenedAgent: ...


class OpeningRequest(NamedTuple):
    """A session to open, its project and its settings."""

    session_id: str
    project: str
    layers: Layers


def wanted_new(
    request: NewSessionRequest, layers: Layers, *, is_here: bool = True
) -> OpeningRequest:
    """
    Return the new session that the client requests. Unless `is_here`, its files are on the client's machine.

    Raises:
        RpcError: the request is invalid.
    """
    project = checked_directory(request.cwd, "cwd") if is_here else clients_directory(request.cwd)
    if is_here:
        layers = with_clients(layers, request.mcp_servers, request.additional_directories)
    return OpeningRequest(new_session_id(), project, layers)


async def wanted_again(
    request: OldSessionRequest, layers: Layers, *, is_here: bool = True
) -> OpeningRequest:
    """
    Return the stored session that the client requests.

    Raises:
        RpcError: unknown session, a `cwd` other than its project, or an invalid request.
        SessionError: its log cannot be read.
    """
    project = checked_directory(request.cwd, "cwd") if is_here else clients_directory(request.cwd)
    directory = layers.settings().session_dir
    if (
        not is_session_id(request.session_id)
        or not log_path(directory, request.session_id).is_file()
    ):
        raise not_found(f"there is no session {request.session_id!r}")
    begun_in = await to_thread.run_sync(_project_of, log_path(directory, request.session_id))
    if begun_in != project:
        raise invalid(
            f"the session {request.session_id!r} belongs to {begun_in}, not to {project}: pass that as `cwd`"
        )
    if is_here:
        layers = with_clients(layers, request.mcp_servers, request.additional_directories)
    return OpeningRequest(request.session_id, project, layers)


def _project_of(log: Path) -> str:
    with opened_log(log) as file:
        return header_of(log, next(whole_lines(file), b"")).project


async def open_live(
    open_session: SessionOpener,
    wanted: OpeningRequest,
    audience: Audience,
    tasks: TaskStarter,
    *,
    editor: Editor | None = None,
    terminals: Callable[[Callable[[str, str], None]], ClientTerminals] | None = None,
    model_proxy: "ModelProxy | None" = None,
    tools: "ClientTools | None" = None,
) -> AgentSession:
    """
    Open a session.

    `terminals` makes the client's terminals, given a function that shows which command runs in which one. `model_proxy` sends model requests
    through the client. With `tools`, the client runs all tools.

    Raises:
        RpcError: the session is open elsewhere.
        SanderlingError: it cannot be opened.
    """
    live = AgentSession(wanted.session_id, wanted.project, audience, tasks)
    try:
        opened = await open_session(
            *wanted,
            live.emit,
            editor=editor,
            elsewhere=terminals(live.show_terminal).spawn if terminals else None,
            model_proxy=model_proxy,
            tools=tools,
            has_calls=audience.client.reads_calls,
        )
    except SessionInUseError as error:
        raise RpcError(INTERNAL_ERROR, f"the session is open elsewhere: {error}") from error
    except OSError as error:  # too many open files, a full disk
        raise RpcError(INTERNAL_ERROR, f"the session cannot be opened: {error}") from error
    live.begin(opened)
    await live.list_models()
    return live
