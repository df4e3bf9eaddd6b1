"""The tool servers of a session, as the user sees them: their own, and the project's, which they have to allow."""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
from anyio import to_thread

from sanderling.config.server_names import fitted_server
from sanderling.errors import SanderlingError
from sanderling.mcp import GRACE_S, mentions
from sanderling.mcp.allowed import AllowedServers
from sanderling.mcp.elicitation import Elicitation, answer_in_sdk
from sanderling.mcp.project_file import ProposedServer
from sanderling.mcp.sdk import giving_way, load_sdk
from sanderling.mcp.server import Server
from sanderling.mcp.servers import McpServer, names_begin
from sanderling.mcp.source import McpSource
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import (
    ApprovalRequested,
    Event,
    LinkOffered,
    Notice,
    SlashCommand,
    ToolServer,
    ToolServersChanged,
)
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import Report
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.text import fence_around, visible

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams

NOT_ALLOWED = "you have not allowed it to start; starting it asks again"
NOT_DECLARED = "the project no longer declares it"
LIKE_ANOTHER = "its name is too similar to another server's"
LOGGING_IN = "waiting for your login in the browser"
MAX_SHOWN_RESOURCES = 200


class ServerContext(NamedTuple):
    """
    What the session provides: the directory for logins and answers, its sandbox, ways to reach the user, and tasks that live as long.

    The user's answers are stored for the `project`; servers start in `work_dir`, the project or a worktree of it.
    """

    state_dir: str
    project: str
    work_dir: str
    sandbox: SessionSandbox
    ask: Callable[[ApprovalRequested], Awaitable[AnswerApproval]]
    emit: Callable[[Event], None]
    start: Callable[..., None]
    on_commands: Callable[[], None]
    window_tokens: Callable[[], int]
    may_allow: Callable[[str, str], bool]


class ToolServers:
    """The servers of one session; `source` has their tools."""

    giving_way = staticmethod(giving_way)

    def __init__(
        self,
        own: Mapping[str, McpServer],
        context: ServerContext,
        *,
        patience_s: float = GRACE_S,
    ) -> None:
        self._context = context
        self._own = frozenset(own)
        self._projects: dict[str, ProposedServer] = {}
        self._allowed = AllowedServers(context.state_dir, context.project, context.ask)
        self._elicitation = Elicitation(context.project, context.ask)
        self._asking: dict[str, anyio.CancelScope] = {}
        self._logins: dict[str, anyio.CancelScope] = {}
        self._shown_last: tuple[ToolServer, ...] = ()
        self._commands: tuple[SlashCommand, ...] = ()
        self._news: dict[str, str] = {}
        self._has_begun = False
        self.source = McpSource(
            own,
            context.sandbox,
            context.work_dir,
            self._note_change,
            patience_s=patience_s,
            state_dir=context.state_dir,
            ask=self._answer,
            window_tokens=context.window_tokens,
            get_started=self._begin,
            is_awaited=self._may_run_unasked,
        )

    def begin(self) -> None:
        """Start the servers, and ask about the project's, now that nothing more urgent is waiting."""
        self._context.start(self._begin)

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.source.begin()
            async with anyio.create_task_group() as tasks:
                for name, each in self._projects.items():
                    if each.server and each.server.enabled:
                        tasks.start_soon(self._let_start, name)

    def declare(self, projects: Mapping[str, ProposedServer]) -> None:
        """Replace the servers that the project declares; the user's own take precedence."""
        before, self._projects = self._projects, {}
        names = {fitted_server(name): name for name in self._own}
        for name, each in projects.items():
            if name in self._own:
                continue
            is_free = fitted_server(name) and names.setdefault(fitted_server(name), name) == name
            declared = each if is_free else each.without_server(LIKE_ANOTHER)
            self._projects[name] = declared
            if declared.server and declared != before.get(name):
                server = self.source.declare(name, declared.server, is_projects=True)
                server.stop(NOT_ALLOWED)
                if self._has_begun and declared.server.enabled:
                    self._context.start(self._let_start, name)
            elif declared.problem and declared != before.get(name):
                words = f"The project's tool server '{name}' is left out: {declared.problem}."
                self._context.emit(Notice("warning", words))
        gone = (n for n in before if n not in self._projects or not self._projects[n].server)
        for name in gone:
            if scope := self._asking.get(name):
                scope.cancel()
            if undeclared := self.source.servers.get(name):
                undeclared.stop(NOT_DECLARED)
        self._emit()

    async def _let_start(self, name: str) -> None:
        """Start a server of the project if the user allows it. An earlier question about it is withdrawn."""
        declared, server = self._projects.get(name), self.source.servers.get(name)
        if scope := self._asking.get(name):
            scope.cancel()
        if not (declared and server and declared.server):
            return
        with anyio.CancelScope() as self._asking[name]:
            try:
                is_allowed = await self._allowed.ask(name, declared)
            except SanderlingError as error:
                self._context.emit(Notice("warning", str(error)))
            else:
                if is_allowed and self._projects.get(name) == declared:
                    server.restart()

    def _may_run_unasked(self, server: Server) -> bool:
        return self._context.may_allow(names_begin(server.name), server.declared.mark)

    def control(self, name: str, what: Literal["start", "stop", "login"]) -> None:
        server = self.source.servers.get(name)
        if server is None:
            return
        for scope in (self._logins.get(name), self._asking.get(name)):
            if scope:
                scope.cancel()
        if what == "stop":
            server.stop()
        elif what == "login":
            self._context.start(self._log_in, server)
        elif name in self._projects:
            self._context.start(self._let_start, name)
        else:
            server.restart()

    def network_changed(self) -> None:
        for server in self.source.servers.values():
            status = server.status
            if server.declared.url and status.is_permanent and not status.needs_login:
                server.restart()

    async def _log_in(self, server: Server) -> None:
        name, declared, emit = server.name, server.declared, self._context.emit
        if not declared.url:
            emit(Notice("info", f"'{name}' is a program on this machine: it has no login."))
            return

        async def show(url: str) -> None:
            emit(LinkOffered(url, f"Log in at {name}, in your browser:"))

        server.stop(LOGGING_IN)
        with anyio.CancelScope() as scope:
            self._logins[name] = scope
            try:
                await log_in_at(name, declared, self._context.state_dir, show)
            except SanderlingError as error:
                emit(Notice("warning", f"The login at '{name}' failed: {error}."))
            else:
                emit(Notice("info", f"You are logged in at '{name}'."))
            server.restart()  # after a failed login, too: it works as before, or says what it needs
        if self._logins.get(name) is scope:
            del self._logins[name]

    def shown(self) -> tuple[ToolServer, ...]:
        """Return the current state of the servers."""
        broken = (
            ToolServer(name, "failed", _first_line(each.shown), each.problem, is_projects=True)
            for name, each in self._projects.items()
            if each.server is None
        )
        known = self._own | {name for name, each in self._projects.items() if each.server}
        servers = (each for each in self.source.servers.values() if each.name in known)
        return (*map(self._shown, servers), *broken)

    def _shown(self, server: Server) -> ToolServer:
        declared, status, connection = server.declared, server.status, server.connection
        projects = self._projects.get(server.name)
        return ToolServer(
            server.name,
            status.state,
            _first_line(projects.shown) if projects else place_of(declared),
            status.why,
            connection.era if connection else "",
            tuple(tool.name for tool in server.tools) if connection else (),
            tuple(prompt.command for prompt in server.offers.prompts) if connection else (),
            server.offers.resources[:MAX_SHOWN_RESOURCES] if connection else (),
            needs_login=status.needs_login,
            is_projects=projects is not None,
        )

    def details(self, name: str) -> Report:
        """
        Return all that a server offers, and its log.

        Raises:
            SanderlingError: there is no server of that name.
        """
        server = self.source.servers.get(name)
        if server is None:
            raise SanderlingError(f"There is no tool server '{name}' that could be started.")
        tools = [f"* `{each.name}`: {_first_line(each.description)}" for each in server.tools]
        prompts = [
            f"* `/{each.command}`: {each.description}".rstrip(": ")
            for each in server.offers.prompts
        ]
        resources = [f"* `@{name}:{uri}`" for uri in server.offers.resources]
        problems = [f"* {each}" for each in server.offers.problems]
        log = server.log.text().strip() or "It has no output."
        fence = fence_around(log)
        parts = (
            *(("## Left out", *problems, "") if problems else ()),
            *(("## Tools", *tools, "") if tools else ()),
            *(("## Prompts", *prompts, "") if prompts else ()),
            *(("## Resources", *resources, "") if resources else ()),
            "## Log",
            fence,
            log,
            fence,
        )
        return Report(name, visible("\n".join(parts)))

    def commands(self) -> tuple[SlashCommand, ...]:
        """Return the prompts of ready servers as slash commands."""
        return tuple(
            prompt.shown
            for server in self.source.servers.values()
            for prompt in (server.offers.prompts if server.connection else ())
        )

    def begins_with_prompt(self, text: str) -> bool:
        return mentions.begins_with_prompt(text, self.source.servers)

    def are_in(self, text: str) -> bool:
        return mentions.has_any(text, self.source.servers)

    async def put_in(self, prompt: Prompt) -> Prompt:
        """
        Return the prompt with the resources and prompts of servers that it mentions.

        Raises:
            ConfigError: one is not available.
        """
        return await mentions.put_in(prompt, self.source.servers)

    def _note_change(self, server: Server) -> None:
        self._emit()
        news = server.news()
        if news and news != self._news.get(server.name):
            self._context.emit(Notice("warning", news))
        self._news[server.name] = news
        if (commands := self.commands()) != self._commands:
            self._commands = commands
            self._context.on_commands()

    def _emit(self) -> None:
        if (shown := self.shown()) != self._shown_last:
            self._shown_last = shown
            self._context.emit(ToolServersChanged(shown))

    async def _answer(self, name: str, params: "ElicitRequestParams") -> Any:
        return await answer_in_sdk(self._elicitation, name, params)


async def log_in_at(
    name: str, declared: McpServer, state_dir: str, show: Callable[[str], Awaitable[None]]
) -> None:
    """
    Log in at the HTTP server `name`; `show` receives the page for the browser.

    Raises:
        SanderlingError: the login failed.
    """
    log_in = await to_thread.run_sync(_load_login)
    await log_in(name, declared, state_dir, show)


def _load_login() -> Any:
    load_sdk()  # silences its log, which would quote an authorization server's answers
    from sanderling.mcp.login import log_in

    return log_in


def place_of(declared: McpServer) -> str:
    """Return the command of a server, or its URL without the query, which may be secret."""
    return declared.url.partition("?")[0] or shlex.join(declared.command)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
