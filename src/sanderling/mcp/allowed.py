"""The project's servers that the user has allowed to start, each exactly as it was shown."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

from sanderling.mcp.project_file import ProposedServer
from sanderling.project.trust.store import TrustStore
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.text import visible

REASON = (
    "The project proposes it. It runs in the sandbox, like commands, and each use of its tools needs your permission."
    " Always: also the next time, if the proposal has not changed."
)
REASON_HTTP = (
    "The project proposes it. It receives the arguments of its tools, and each use of them needs your permission."
    " Always: also the next time, if the proposal has not changed."
)

Ask = Callable[[ApprovalRequested], Awaitable[AnswerApproval]]


class AllowedServers:
    """The servers that may start in one project. `ask` shows a question to the user."""

    def __init__(self, state_dir: str, project: str, ask: Ask) -> None:
        self._project = project
        self._ask = ask
        self._store = TrustStore(str(Path(state_dir) / "mcp"), project)
        self._for_now: set[str] = set()  # digests

    def is_allowed(self, name: str, server: ProposedServer) -> bool:
        return server.digest in self._for_now or self._store.hashes().get(name) == server.digest

    async def ask(self, name: str, server: ProposedServer) -> bool:
        """
        Ask whether a server may start; return True if it may.

        Raises:
            ConfigError: the answer "always" cannot be stored.
        """
        if self.is_allowed(name, server):
            return True
        question = ApprovalRequested(
            f"server:{uuid4().hex}",
            name,
            "wants to start",
            visible(server.shown),
            REASON_HTTP if server.server and server.server.url else REASON,
            self._project,
            ("once", "always"),
            "sh" if server.server and server.server.command else "",
            kind="server",
        )
        answer = await self._ask(question)
        if answer.answer == "deny":
            return False
        self._for_now.add(server.digest)
        if answer.answer == "always":
            self._store.add(name, server.digest)
        return True
