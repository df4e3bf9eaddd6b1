"""The tools of all servers of a session, as a source of its catalog."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from sanderling.mcp.log import ServerLog
from sanderling.mcp.names import fitted_server, tool_name
from sanderling.mcp.remote import RemoteTool
from sanderling.mcp.server import OpenTransport, Server
from sanderling.mcp.servers import McpServer, filled_in
from sanderling.mcp.stdio import over_pipes
from sanderling.mcp.tools import tool_of
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.policy import Grant
from sanderling.tools.base import Tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.client._transport import TransportStreams

GRACE_S = 0.0  # where a person looks on: what comes later is told later


class McpSource:
    """
    The servers of a session, and their tools.

    A server gets ready beside everything else: the first request waits no longer than `patience_s` for any, and the tools of the
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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers = {
            name: Server(
                name,
                each,
                self._transport(name, each, sandbox, project),
                on_change,
                options=options,
                terms=lambda: sandbox.terms,
            )
            for name, each in declared.items()
        }
        self._patience_s = patience_s
        self._begun = anyio.Event()
        self._has_waited = False
        self._names: dict[str, dict[str, list[RemoteTool]]] = {name: {} for name in self.servers}
        self._tools: dict[str, Tool] = {}

    def _transport(
        self, name: str, declared: McpServer, sandbox: SessionSandbox, project: str
    ) -> OpenTransport:
        # What the paths lead to is settled now, before anything has run that could put something else there.
        paths, write_paths = (
            tuple(os.path.join(project, os.path.expanduser(path)) for path in each)  # noqa: PTH111, PTH118
            for each in (declared.paths, declared.write_paths)
        )
        grant = Grant(paths, write_paths, declared.hosts).identified()
        return partial(open_stdio, name, declared, sandbox, grant)

    async def run(self) -> None:
        """Keep the servers connected from when `begin` was called, until this is cancelled."""
        await self._begun.wait()
        async with anyio.create_task_group() as tasks:
            for server in self.servers.values():
                tasks.start_soon(server.run)

    def begin(self) -> None:
        """Start the servers: now nothing else is waited for."""
        self._begun.set()

    async def tools(self) -> Sequence[Tool]:
        """The tools that were ready, in the order in which they came to be; none is ever taken away, or told anew."""
        if not self._has_waited:
            self._has_waited = True
            await self._wait()
        for server in self.servers.values():
            for remote in server.tools:
                self._add(server, remote)
        return tuple(self._tools.values())

    async def _wait(self) -> None:
        if self._patience_s > GRACE_S:
            self.begin()
            with anyio.move_on_after(self._patience_s):
                for server in self.servers.values():
                    await server.begun()

    def _add(self, server: Server, remote: RemoteTool) -> None:
        told = self._names[server.name].setdefault(remote.name, [])
        if remote in told:
            return
        number = 1
        while (name := tool_name(server.name, remote.name, number=number)) in self._tools:
            number += 1
        told.append(remote)
        self._tools[name] = tool_of(server, remote, name)


@asynccontextmanager
async def open_stdio(
    name: str, declared: McpServer, sandbox: SessionSandbox, grant: Grant, log: ServerLog
) -> "AsyncGenerator[TransportStreams]":
    """Start the program of the server `name`, and speak with it over its pipes."""
    variables, secrets = filled_in(name, declared.env)
    log.hide(secrets)

    def note(denial: Denial) -> None:
        log.add(f"[refused: {denial.operation} {denial.target}: {denial.reason}]\n".encode())

    process = await sandbox.spawn_server(
        fitted_server(name), declared.command, env=variables, grant=grant, on_denied=note
    )
    async with over_pipes(process, log) as streams:
        yield streams
