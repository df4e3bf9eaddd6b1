"""The tool servers of a session, with all that has to do with them, from when the first is declared: most sessions have none."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import anyio

from sanderling.protocol.events import SlashCommand, ToolServer
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import Report
from sanderling.tools.base import Tool

if TYPE_CHECKING:
    from sanderling.mcp.tool_servers import ToolServers


class LateServers:
    """The servers, which `load` makes, modules and all; a source of the session's catalog."""

    def __init__(self, load: "Callable[[], ToolServers]", *, is_needed: bool) -> None:
        self._load = load
        self._servers: ToolServers | None = None
        self._are_there = anyio.Event()
        self._has_begun = False
        if is_needed:
            self.loaded()

    def loaded(self) -> "ToolServers":
        """The servers, loaded now if they were not."""
        if self._servers is None:
            self._servers = self._load()
            self._are_there.set()
            if self._has_begun:
                self._servers.begin()
        return self._servers

    async def run(self) -> None:
        await self._are_there.wait()
        await self.loaded().run()

    def begin(self) -> None:
        self._has_begun = True
        if self._servers:
            self._servers.begin()

    def giving_way(self) -> AbstractContextManager[None]:
        """Load nothing more of the SDK in this context than what is being loaded already."""
        if self._servers is None:
            return nullcontext()
        from sanderling.mcp.sdk import giving_way

        return giving_way()

    def declare(
        self,
        tables: Mapping[str, Mapping[str, Any]],
        file: str,
        providers: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """
        Have the servers that the project's settings and its file declare now, below the person's own; none gets a key of `providers`.

        Raises:
            ConfigError: the file is none; those of the settings are there.
        """
        if not (tables or file or self._servers):
            return
        from sanderling.mcp.project_file import proposals, servers_in

        declared = proposals(tables)
        try:
            declared = servers_in(file or "{}", providers=providers) | declared
        finally:
            self.loaded().declare(declared)

    def control(self, name: str, what: Literal["start", "stop", "login"]) -> None:
        if self._servers:
            self._servers.control(name, what)

    def network_changed(self) -> None:
        if self._servers:
            self._servers.network_changed()

    async def tools(self) -> Sequence[Tool]:
        return await self._servers.source.tools() if self._servers else ()

    # --- what is shown, and what a prompt has of them ------------------------------------------------------------------

    def shown(self) -> tuple[ToolServer, ...]:
        return self._servers.shown() if self._servers else ()

    def details(self, name: str) -> Report:
        return self.loaded().details(name)

    def commands(self) -> tuple[SlashCommand, ...]:
        return self._servers.commands() if self._servers else ()

    def begin_prompt(self, text: str) -> bool:
        """Say whether `text` begins with a prompt of theirs."""
        if self._servers is None:
            return False
        from sanderling.mcp.mentions import begins_with_prompt

        return begins_with_prompt(text, self._servers.source.servers)

    def are_in(self, text: str) -> bool:
        """Say whether `text` has something of theirs in it."""
        if self._servers is None:
            return False
        from sanderling.mcp.mentions import has_any

        return has_any(text, self._servers.source.servers)

    async def put_in(self, prompt: Prompt) -> Prompt:
        """
        The prompt with what it has of theirs.

        Raises:
            ConfigError: that cannot be had.
        """
        if self._servers is None:
            return prompt
        from sanderling.mcp.mentions import put_in

        return await put_in(prompt, self._servers.source.servers)
