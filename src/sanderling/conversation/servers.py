"""The tool servers of a session. Most sessions have none, and then nothing of `mcp` is imported."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

from sanderling.config import Settings
from sanderling.errors import SanderlingError
from sanderling.project.trust.trust import MCP_FILE, Trust
from sanderling.protocol.events import Event, Notice
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import Report
from sanderling.tools.catalog import Catalog

if TYPE_CHECKING:
    from sanderling.mcp.servers import McpServer
    from sanderling.mcp.tool_servers import ServerContext, ToolServers


class NoServers:
    """Stands in for `mcp.tool_servers.ToolServers` without servers; `has_begun` is for servers that are declared later."""

    has_begun = False

    def begin(self) -> None:
        self.has_begun = True

    def giving_way(self) -> AbstractContextManager[None]:
        return nullcontext()

    def control(self, name: str, what: Literal["start", "stop", "login"]) -> None: ...

    def network_changed(self) -> None: ...

    def shown(self) -> tuple[()]:
        return ()

    def commands(self) -> tuple[()]:
        return ()

    def details(self, name: str) -> Report:
        raise SanderlingError(f"There is no tool server '{name}'.")

    def begins_with_prompt(self, _: str) -> bool:
        return False

    def are_in(self, _: str) -> bool:
        return False

    async def put_in(self, prompt: Prompt) -> Prompt:
        return prompt


class ServerLoader:
    """
    Imports `mcp` when the first server is declared; until then `servers` is a stand-in.

    `make_context` returns what the servers need of the session.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        make_context: "Callable[[], ServerContext]",
        *,
        patience_s: float,
    ) -> None:
        self.servers: NoServers | ToolServers = NoServers()
        self._settings = settings
        self._catalog = catalog
        self._surround = make_context
        self._patience_s = patience_s

    def load(self, own: "Mapping[str, McpServer]") -> "ToolServers":
        """Load the user's `own` servers, and add the tools of all servers to the catalog."""
        from sanderling.mcp.tool_servers import ToolServers

        context = self._surround()
        servers = ToolServers(own, context, patience_s=self._patience_s)
        self._catalog.add(servers.source)
        context.start(servers.source.run)
        if isinstance(self.servers, NoServers) and self.servers.has_begun:
            servers.begin()
        self.servers = servers
        return servers

    def declare(self, trust: Trust, emit: Callable[[Event], None]) -> None:
        """Declare the project's servers, if its files are trusted in their current state."""
        servers = self.servers
        if isinstance(servers, NoServers):
            if not (trust.read(MCP_FILE) or self._settings.project_mcp_servers):
                return
            servers = self.load({})
        from sanderling.mcp.project_file import proposals

        declared, problem = proposals(trust, self._settings)
        if problem:
            emit(Notice("warning", f"{problem}."))
        servers.declare(declared)
