"""The tool servers of a session that has none, as most have: it loads nothing of `mcp`."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from sanderling.errors import SanderlingError
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import Report


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
