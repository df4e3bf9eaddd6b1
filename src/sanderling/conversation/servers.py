"""The tool servers of a session. One that has none, as most, loads nothing of `mcp`."""

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
    from sanderling.mcp.tool_servers import Surroundings, ToolServers


class NoServers:
    """Stands in for `mcp.tool_servers.ToolServers`; `has_begun` is for those that are declared later."""

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
        raise SanderlingError(f"There is no tool server '{name}' that could be started.")

    def begins_with_prompt(self, _: str) -> bool:
        return False

    def are_in(self, _: str) -> bool:
        return False

    async def put_in(self, prompt: Prompt) -> Prompt:
        return prompt


class ServerLoader:
    """
    Loads what tool servers need with the first that is declared; until then something stands in for the `servers`.

    `surround` says what is theirs of the session.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        surround: "Callable[[], Surroundings]",
        *,
        patience_s: float,
    ) -> None:
        self.servers: NoServers | ToolServers = NoServers()
        self._settings = settings
        self._catalog = catalog
        self._surround = surround
        self._patience_s = patience_s

    def load(self, own: "Mapping[str, McpServer]") -> "ToolServers":
        """Have the person's `own` servers, and the tools of all in the catalog."""
        from sanderling.mcp.tool_servers import ToolServers

        surroundings = self._surround()
        servers = ToolServers(own, surroundings, patience_s=self._patience_s)
        self._catalog.add(servers.source)
        surroundings.start(servers.source.run)
        if isinstance(self.servers, NoServers) and self.servers.has_begun:
            servers.begin()
        self.servers = servers
        return servers

    def declare(self, trust: Trust, emit: Callable[[Event], None]) -> None:
        """Have the servers that the project declares, as far as its files are trusted as they are now."""
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
