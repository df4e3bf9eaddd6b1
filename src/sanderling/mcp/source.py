"""The tools of all servers of a session, as a source of its catalog."""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from sanderling.config.server_names import fitted_server
from sanderling.errors import ConfigError
from sanderling.mcp import GRACE_S
from sanderling.mcp.logins import ServerLogin
from sanderling.mcp.offers import MAX_TOOLS, RemoteTool
from sanderling.mcp.problems import PermanentError
from sanderling.mcp.search import ToolIndex
from sanderling.mcp.server import OpenTransport, Server, ServerAccess
from sanderling.mcp.servers import (
    MAX_NUMBER,
    McpServer,
    ServerAddress,
    filled_in,
    tool_name,
)
from sanderling.mcp.stdio import over_pipes
from sanderling.mcp.tools import tool_of
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.environment import harmless
from sanderling.sandbox.policy import Grant
from sanderling.tools.base import OutsideTool, Tool
from sanderling.tools.commands.server_log import ServerLog
from sanderling.tools.commands.start_advice import StartedProgram

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import TaskGroup
    from mcp.client._transport import TransportStreams

MAX_MADE = 2 * MAX_TOOLS
"""Tools of one server in a session; a changed tool counts again."""
AskFor = Callable[[str, Any], Awaitable[Any]]
"""Shows a question of the server with that name to the user."""


class Granted(NamedTuple):
    """The access of a server's program, which starts in `project`."""

    project: str
    grant: Grant

    def directory(self, cwd: str) -> str:
        """Return the directory that `cwd` of a declaration names; "" for the project's root."""
        return os.path.join(self.project, os.path.expanduser(cwd)) if cwd else ""  # noqa: PTH111, PTH118


class McpSource:
    """
    The servers of a session, and their tools.

    Servers start alongside everything else. The first request waits at most `patience_s` for awaited servers; the tools of the
    others come with a later one.
    """

    def __init__(
        self,
        declared: Mapping[str, McpServer],
        sandbox: SessionSandbox,
        project: str,
        on_change: Callable[[Server], None] = lambda _: None,
        *,
        patience_s: float = GRACE_S,
        state_dir: str = "",
        ask: AskFor | None = None,
        window_tokens: Callable[[], int] = lambda: 0,
        get_started: Callable[[], Awaitable[None]] | None = None,
        is_awaited: Callable[[Server], bool] = lambda _: True,
        projects: Collection[str] = (),
    ) -> None:
        self.servers: dict[str, Server] = {}
        self._sandbox = sandbox
        self._project = project
        self._on_change = on_change
        self._state_dir = state_dir
        self._ask = ask
        self._patience_s = patience_s
        self._is_awaited = is_awaited
        self._get_started = get_started or self._begin
        self._begun = anyio.Event()
        self._has_waited = False
        self._tasks: TaskGroup | None = None
        self._names: dict[str, dict[str, list[RemoteTool]]] = {}
        self._made_names: set[str] = set()
        self._shelf = ToolIndex(window_tokens)
        for name, each in declared.items():
            self.declare(name, each, is_projects=name in projects)

    def declare(self, name: str, declared: McpServer, *, is_projects: bool = False) -> Server:
        """Add a server, or change the declaration of an existing one from its next start on."""
        access = ServerAccess(
            self._transport(name, declared, is_projects=is_projects),
            self._on_change,
            partial(self._ask, name) if self._ask else None,
            (lambda: None) if declared.url else (lambda: self._sandbox.terms),
        )
        if server := self.servers.get(name):
            server.change(declared, access)
            return server
        server = self.servers[name] = Server(name, declared, access)
        self._names[name] = {}
        if self._tasks:
            self._tasks.start_soon(server.run)
        return server

    def _transport(self, name: str, declared: McpServer, *, is_projects: bool) -> OpenTransport:
        if declared.url:
            login = ServerLogin(self._state_dir, name, declared.url)
            return partial(open_http, declared, self._sandbox, login)
        sandbox, project = self._sandbox, self._project
        # The paths are resolved now, before anything has run that could replace them.
        paths, write_paths = (
            tuple(os.path.join(project, os.path.expanduser(path)) for path in each)  # noqa: PTH111, PTH118
            for each in (declared.paths, declared.write_paths)
        )
        grant = Grant(paths, write_paths, declared.hosts).identified()
        granted = Granted(project, grant)
        return partial(open_stdio, name, declared, sandbox, granted, is_projects=is_projects)

    async def run(self) -> None:
        """Keep the servers connected, once `begin` was called, until cancelled."""
        await self._begun.wait()
        async with anyio.create_task_group() as self._tasks:
            for server in self.servers.values():
                self._tasks.start_soon(server.run)
            await anyio.sleep_forever()

    def begin(self) -> None:
        """Start the servers; call it once nothing more urgent is waiting."""
        self._begun.set()

    async def _begin(self) -> None:
        self.begin()

    async def tools(self) -> Sequence[Tool]:
        """Return the tools that were ready, in the order in which they appeared. No tool is ever removed or described again."""
        if not self._has_waited:
            self._has_waited = True
            await self._wait()
        new = (
            self._made(server, remote)
            for server in self.servers.values()
            for remote in server.tools
        )
        self._shelf.put(filter(None, new))
        return self._shelf.tools()

    async def _wait(self) -> None:
        if self._patience_s > GRACE_S:
            with anyio.move_on_after(self._patience_s):
                await self._get_started()
                for server in tuple(self.servers.values()):
                    if self._is_awaited(server):
                        await server.begun()

    def _made(self, server: Server, remote: RemoteTool) -> OutsideTool | None:
        """Return the tool for the model; None if it exists already, or the server keeps making new ones."""
        names = self._names[server.name]
        known = names.get(remote.name, [])
        if remote in known or sum(map(len, names.values())) >= MAX_MADE:
            return None
        number = 1
        while (name := tool_name(server.name, remote.name, number=number)) in self._made_names:
            number += 1
        if number > MAX_NUMBER:
            return None
        names[remote.name] = [*known, remote]
        self._made_names.add(name)
        return tool_of(server, remote, name)


@asynccontextmanager
async def open_http(
    declared: McpServer, sandbox: SessionSandbox, login: ServerLogin, log: ServerLog
) -> "AsyncGenerator[TransportStreams]":
    """Connect to a server over HTTP. If its headers authorize the user, no login is needed."""
    from sanderling.mcp.http import over_http
    from sanderling.mcp.oauth import ServerAuth

    headers, secrets = filled_in(declared.headers)
    log.hide(secrets)
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):  # else the error would quote it
            raise ConfigError(f"the header {name} contains an invalid character")
    is_signed = any(each.lower() == "authorization" for each in headers)
    auth = None if is_signed else ServerAuth(login)
    place = ServerAddress(declared.url, declared.hosts, has_secrets=bool(headers))

    def leads_to(host: str) -> bool:
        return sandbox.environment.leads_to(host)

    async with over_http(place, headers, leads_to, auth) as streams:
        yield streams


@asynccontextmanager
async def open_stdio(
    name: str,
    declared: McpServer,
    sandbox: SessionSandbox,
    granted: Granted,
    log: ServerLog,
    *,
    is_projects: bool,
) -> "AsyncGenerator[TransportStreams]":
    """Start the program of the server `name`, and communicate over its pipes."""
    variables, secrets = filled_in(declared.env)
    log.hide(secrets)
    project, grant = granted
    if not (declared.pass_env or sandbox.confines(is_confined=True)):
        places = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        variables = harmless(os.environ) | places | variables

    program = StartedProgram(
        declared.command,
        ("mcp", "servers", name),
        sandbox,
        project,
        grant,
        variables,
        is_projects=is_projects,
    )
    if not program.path():
        raise PermanentError(f"there is no program '{declared.command[0]}'")

    def note(denial: Denial) -> None:
        log.add(f"[refused: {denial.operation} {denial.target}: {denial.reason}]\n".encode())

    process = await sandbox.spawn_server(
        fitted_server(name),
        declared.command,
        env=variables,
        cwd=granted.directory(declared.cwd),
        grant=grant,
        on_denied=note,
        is_third_party=not declared.pass_env,
    )
    async with over_pipes(process, log, program.advice) as streams:
        yield streams
