"""Opening of a session for a client: a new one, or one that was begun here, in Neovim or in another client."""

from pathlib import Path

from anyio import to_thread
from anyio.abc import TaskGroup

from sanderling.acp.connection import Connection
from sanderling.acp.errors import INTERNAL_ERROR, RpcError, invalid, not_found
from sanderling.acp.sessions import NewSessionRequest, OldSessionRequest
from sanderling.acp_agent.client import Client
from sanderling.acp_agent.editor import ClientEditor
from sanderling.acp_agent.live import LiveSession
from sanderling.acp_agent.servers import checked_directory, with_clients
from sanderling.acp_agent.terminals import ClientTerminals
from sanderling.config.layers import Layers
from sanderling.conversation.opening import Wishes, open_conversation
from sanderling.print_mode.inputs import new_session_id
from sanderling.session.log import SessionInUseError, header_of, log_path, whole_lines
from sanderling.session.log import opened as opened_log
from sanderling.session.records import is_session_id


class Opener:
    """Opens sessions by the settings in `layers`."""

    def __init__(
        self, layers: Layers, connection: Connection, client: Client, tasks: TaskGroup
    ) -> None:
        self._layers = layers
        self._connection = connection
        self._client = client
        self._tasks = tasks

    async def new(self, asked: NewSessionRequest) -> LiveSession:
        """
        Begin a session.

        Raises:
            RpcError: what the client asks for cannot be had.
            SanderlingError: the session cannot be opened.
        """
        project = checked_directory(asked.cwd, "cwd")
        layers = with_clients(self._layers, asked.mcp_servers, asked.additional_directories)
        return await self._open(new_session_id(), project, layers, has_history=False)

    async def check(self, asked: OldSessionRequest) -> None:
        """
        Look whether there is such a session, and whether it is of the directory that the client names.

        Raises:
            RpcError: there is none, or it is of another one.
            SessionError: its log cannot be read.
        """
        project = checked_directory(asked.cwd, "cwd")
        directory = self._layers.settings().session_dir
        is_there = (
            is_session_id(asked.session_id) and log_path(directory, asked.session_id).is_file()
        )
        if not is_there:
            raise not_found(f"there is no session {asked.session_id!r}")
        begun_in = await to_thread.run_sync(_project_of, log_path(directory, asked.session_id))
        if begun_in != project:
            raise invalid(
                f"the session {asked.session_id!r} was begun in {begun_in}, not in {project}: open it with that as `cwd`"
            )

    async def again(self, asked: OldSessionRequest, *, is_told: bool) -> LiveSession:
        """
        Open a session again, in the project in which it was begun; if it `is_told`, with what was said.

        Raises:
            RpcError: what the client asks for cannot be had.
            SanderlingError: the session cannot be opened.
        """
        project = checked_directory(asked.cwd, "cwd")
        layers = with_clients(self._layers, asked.mcp_servers, asked.additional_directories)
        return await self._open(asked.session_id, project, layers, has_history=is_told)

    async def _open(
        self, session_id: str, project: str, layers: Layers, *, has_history: bool
    ) -> LiveSession:
        live = LiveSession(session_id, project, self._connection, self._client, self._tasks)
        editor = ClientEditor(session_id, self._connection, self._client)
        has_terminals = self._client.has_terminals and layers.settings().acp_terminals == "editor"
        terminals = ClientTerminals(session_id, self._connection, self._tasks, live.show_terminal)
        wishes = Wishes(
            editor=editor if self._client.reads_files else None,
            elsewhere=terminals.spawn if has_terminals else None,
            is_shown=True,
            has_history=has_history,
        )
        try:
            opened = await open_conversation(session_id, project, layers, live.emit, wishes)
        except SessionInUseError as error:
            raise RpcError(INTERNAL_ERROR, f"the session is open elsewhere: {error}") from error
        live.begin(opened.agent, opened.model)
        await live.list_models()
        return live


def _project_of(log: Path) -> str:
    with opened_log(log) as file:
        return header_of(log, next(whole_lines(file), b"")).project
