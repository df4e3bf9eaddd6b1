"""Opens a conversation for a frontend: brings settings, project, provider, policy, rules and session together."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from anyio import to_thread

from sanderling.config import Settings, Table
from sanderling.config.layers import Layers, place_of
from sanderling.conversation.budget import Budget
from sanderling.conversation.children.running import RunningChild, find_running
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.errors import ConfigError
from sanderling.mcp import GRACE_S
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import load_rules
from sanderling.project.project import Project, with_project
from sanderling.project.roles import load_roles
from sanderling.protocol.agent import OpenedAgent
from sanderling.protocol.events import Event, Notice
from sanderling.protocol.messages import Prompt, ToolResult
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.protocol.remedies import remedies
from sanderling.providers import Provider
from sanderling.providers.choice import DEFAULT, choose, find_model, make_provider
from sanderling.providers.models.known import split
from sanderling.sandbox.confinement import policy_for
from sanderling.sandbox.policy import TOO_WIDE, SandboxPolicy
from sanderling.session.log import log_path
from sanderling.session.records import LoggedChild
from sanderling.session.session import Session, kept_agent
from sanderling.tools.catalog import check_disabled
from sanderling.tools.commands.shell import ShellState
from sanderling.tools.editor import Editor

if TYPE_CHECKING:
    from sanderling.agents.declared import DeclaredAgent
    from sanderling.conversation.children.child import ChildStart
    from sanderling.conversation.children.children import Children
    from sanderling.conversation.children.conversation import ChildConversation
    from sanderling.conversation.titling import Titler
    from sanderling.conversation.worktree import SessionWorktree
    from sanderling.hooks.callbacks import Callbacks
    from sanderling.mcp.servers import McpServer
    from sanderling.providers.http.model_proxy import ModelProxy
    from sanderling.tools.catalog import ToolSource
    from sanderling.tools.client_tools import ClientTools
    from sanderling.tools.code.servers import LanguageServers
    from sanderling.tools.commands.shell import Elsewhere

NO_KEY_NOTICE = "No API key: this is the demo model, which replays a script.\nSend `tour` to watch it work.\n{remedy}"


def _alone(provider: Provider, _project: str) -> Provider:
    return provider


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A frontend's options for a conversation."""

    mode: Mode | None = None
    """Overrides the mode that the session remembers, and that of the settings."""
    role: str = ""
    """The role of a new session, if not that of the settings."""
    network: NetworkMode | None = None
    """The network at the beginning, if not that of the settings."""
    rules: tuple[Rule, ...] = ()
    """Temporary rules, applied after the settings' rules."""
    editor: Editor | None = None
    code: "LanguageServers | None" = None
    is_eager: bool = True
    """Prepare early what is needed soon."""
    has_user: bool = True
    """A user answers questions about permissions; otherwise a script runs the session."""
    is_shown: bool = False
    """Emit the session's initial state while it opens, and give the demo model a project of its own."""
    waiting: Literal["held", "aside", "dropped"] = "held"
    """What happens to the pending prompts of a resumed session: shown and held, kept in the log without being sent, or deleted."""
    has_history: bool = False
    """Emit the latest history as well."""
    has_calls: bool = False
    """Emit the inputs and results of tool calls as well."""
    wrap: Callable[[Provider, str], Provider] = _alone
    """Wraps the provider for a project."""
    log_dir: Path | None = None
    """Directory of the log, if it differs from that of the other sessions."""
    face: str = ""
    """The frontend's name, recorded in a new session."""
    max_cost_usd: float = 0
    """Dollars after which no more requests are made, without a question; 0: no limit."""
    max_tokens: int = 0
    """Tokens, of children as well, after which no more requests are made; 0: no limit."""
    fallback_model: str = ""
    """The model to continue with if the session's is unavailable."""
    answer_note: str = ""
    """A note to the model about the form of its answers."""
    patience_s: float = GRACE_S
    """How long the first request waits, at most, for tool servers that have an allow rule."""
    agent: str = ""
    """The external agent for a new session; a resumed session remembers its own."""
    elsewhere: "Elsewhere | None" = None
    """Where commands run, if not in the sandbox."""
    variables: Mapping[str, str] = MappingProxyType({})
    """Variables that commands begin with, in addition to the sandbox's. This process does not get them."""
    has_credentials: bool = True
    """Commands can use the secrets of `sandbox.credentials`."""
    model_proxy: "ModelProxy | None" = None
    """The proxy to models, if the keys are on another machine."""
    can_ask: bool = False
    """The frontend can show the user the model's questions, so the model is offered `ask_user`."""
    tools: "ClientTools | None" = None
    """The client's tools, which replace Sanderling's; then nothing runs here."""
    callbacks: "Callbacks | None" = None
    """Callbacks of the user's editor, which run before prompts, tool calls and summaries."""
    worktree: str | None = None
    """The branch or commit from which a new session gets a worktree of its own, "" for HEAD; None: it works in the project."""
    more_tools: "tuple[ToolSource, ...]" = ()
    """Tools that the frontend provides, in addition to Sanderling's. They act on this machine."""


async def open_conversation(
    session_id: str,
    project: str,
    layers: Layers,
    emit: Callable[[Event], None],
    options: SessionOptions,
) -> OpenedAgent:
    """
    Open the session `session_id` of `project`, new or from its log.

    Raises:
        ConfigError: the settings, of the user or the project, are invalid.
        SessionInUseError: another process has the session open.
        SessionError: the log cannot be read.
    """
    own = layers.settings()
    log_dir = options.log_dir or own.session_dir
    if child := find_running(log_path(log_dir, session_id)):
        reopen = partial(open_conversation, session_id, project, layers, emit)
        return await _attached(child, emit, options, reopen)
    resources = AsyncExitStack()
    try:
        # Reading a long log takes a while.
        open_session = partial(
            Session.open,
            *(log_dir, session_id, project, options.face),
            recover=partial(_recovered, log_dir, own),
        )
        session = await to_thread.run_sync(open_session)
        resources.callback(session.close)
        worktree = await _worktree(session, own, options, resources)
        conversation = _AgentBuilder(session, own, emit, options, resources, worktree).begin(layers)
        conversation.services.worktree = worktree
        conversation.services.shows_calls = options.has_calls
        aside = () if options.waiting == "held" else conversation.services.waiting.set_aside()
        if options.waiting == "dropped":
            conversation.services.waiting.drop_aside()
        if options.is_shown:
            await conversation.views.show_opened(has_history=options.has_history)
            await _tell_of_demo(conversation)
        else:
            conversation.views.show_damage()
    except BaseException:
        await resources.aclose()
        raise
    return _opened(conversation, aside)


async def _attached(
    child: RunningChild,
    emit: Callable[[Event], None],
    options: SessionOptions,
    reopen: Callable[[SessionOptions], Awaitable[OpenedAgent]],
) -> OpenedAgent:
    """Open a child that runs here, by attaching to it; after its end, open its session."""
    # Only for children that run.
    from sanderling.conversation.children.attached import AttachedChild

    later = msgspec.structs.replace(options, has_history=False)
    attached = AttachedChild(child, emit, lambda: reopen(later))
    return await attached.attach(has_history=options.has_history)


async def open_for_client(
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
) -> OpenedAgent:
    """Open a session for a client of the Agent Client Protocol; see `SessionOptions` and `acp.agent.opening.SessionOpener`."""
    options = SessionOptions(
        editor=editor,
        elsewhere=elsewhere,
        is_shown=True,
        model_proxy=model_proxy,
        can_ask=True,
        tools=tools,
        has_calls=has_calls,
    )
    return await open_conversation(session_id, project, layers, emit, options)


def check_settings(settings: Settings, project: str) -> None:
    """
    Check settings before a session is opened.

    Raises:
        ConfigError: names every mistake, with its file and line.
    """
    from sanderling.config.file import refusal
    from sanderling.conversation.checks.configuration import mistakes_in

    if mistakes := mistakes_in(settings, project):
        raise refusal(mistakes)


async def _worktree(
    session: Session, own: Settings, options: SessionOptions, resources: AsyncExitStack
) -> "SessionWorktree | None":
    """
    Return the worktree in which the session works, if it has one or a new session asks for one.

    Raises:
        WorktreeError: there can be none.
    """
    is_asked_for = options.worktree is not None and not session.is_resumed
    if not (session.worktree or is_asked_for):
        return None
    from sanderling.conversation.worktree import SessionWorktree  # runs git

    worktree = await to_thread.run_sync(SessionWorktree.open, session, own, options.worktree)
    if worktree:
        resources.callback(lambda: worktree.close(is_unused=session.log.size == 0))
    return worktree


def _opened(conversation: Conversation, aside: tuple[Prompt, ...]) -> OpenedAgent:
    services, session = conversation.services, conversation.services.session
    waiting = services.waiting.shown()
    ids = frozenset(each.id for each in (*waiting.steering, *waiting.queued))
    return OpenedAgent(
        conversation,
        services.provider.model,
        session.is_resumed,
        session.prompt_history.ends,
        ids,
        aside,
        session.worktree,
    )


class _AgentBuilder(NamedTuple):
    """Makes the conversation for a session; `own` are the settings without the project's."""

    session: Session
    own: Settings
    emit: Callable[[Event], None]
    options: SessionOptions
    resources: AsyncExitStack
    worktree: "SessionWorktree | None" = None

    def begin(self, layers: Layers) -> Conversation:
        if (self.worktree or self.options.worktree is not None) and (
            self._address() or self.options.tools
        ):
            raise ConfigError(
                "a session whose files are on another machine can have no worktree here"
            )
        if address := self._address():
            return self._remote(address)
        if self.options.tools:  # a directory of that name may exist here, but is not the client's
            return self._for_client(self.options.tools)
        project = Project(self.own, self.session.work_dir, self.session.project)
        settings = project.settings(layers)
        try:
            if agent := self._agent(settings):
                return self._external(project, settings, agent)
            return self._here(project, settings, layers)
        except ConfigError as error:
            # Only needed after an error.
            from sanderling.conversation.checks.configuration import explained

            raise explained(error, settings, self.session.work_dir) from error

    def _here(self, project: Project, settings: Settings, layers: Layers) -> Conversation:
        """Start a session in the project, with the project's settings."""

        def read_providers() -> dict[str, Table]:
            return with_project(layers.read_again(), project.trust).settings().providers

        options = self.options
        check_disabled(settings.tools_disabled)
        load_roles(settings.roles)
        policy = self._policy_here(settings)
        skills = (path for path in project.places.skills_outside() if path not in TOO_WIDE)
        policy = policy._replace(read_paths=(*policy.read_paths, *skills))
        provider, policy = self._provider(settings, policy, read_providers)
        services = self._services(
            provider,
            policy,
            settings,
            project,
            code=options.code,
            servers=_servers(settings),
            more_tools=options.more_tools,
        )
        services.workspace.children = self._children(services, read_providers)
        services.full_name_of = partial(find_model, settings, read_providers)
        if options.elsewhere:
            services.sandbox.switch(is_on=False)
        if settings.small_model and options.is_eager and not options.model_proxy:
            services.titler = self._titler(services, settings)
        return Conversation(
            services,
            self.resources,
            mode=options.mode,
            role=self._first_role(settings, project),
            is_eager=options.is_eager,
        )

    def _provider(
        self,
        settings: Settings,
        policy: SandboxPolicy,
        read_providers: Callable[[], dict[str, Table]],
    ) -> tuple[Provider, SandboxPolicy]:
        """Return the provider, and the policy with what it needs."""
        options, sample = self.options, ""
        # Without a screen, the user could take the demo model's reply for a real one.
        fallback = "demo" if options.is_shown else DEFAULT
        if choose(settings, fallback=fallback) == "demo":
            from sanderling.providers.scripted import copy_sample

            sample = copy_sample(self.resources)
            policy = policy._replace(write_paths=(*policy.write_paths, sample))
        provider = options.wrap(
            make_provider(
                settings,
                sample,
                fallback=fallback,
                model_proxy=options.model_proxy,
                read_providers=read_providers,
            ),
            self.session.work_dir,
        )
        self.resources.push_async_callback(provider.aclose)
        return provider, policy

    def _children(
        self, services: SessionServices, read_providers: Callable[[], dict[str, Table]]
    ) -> "Callable[[], Children]":
        """Return the source of the child sessions that the session may start."""

        async def open_child(
            start: "ChildStart", budget: Budget, emit: Callable[[Event], None]
        ) -> "ChildConversation":
            resources = AsyncExitStack()
            try:
                log_dir = services.session.path.parent
                if start.fork_at:
                    await to_thread.run_sync(_fork, services.session, services.settings, start)
                open_session = partial(
                    Session.open,
                    *(log_dir, start.id, services.session.project, self.options.face),
                    parent=services.session.id,
                    is_read_only=start.is_read_only,
                )
                session = await to_thread.run_sync(open_session)
                resources.callback(session.close)
                own, worktree = services.session, None
                if start.in_worktree:
                    chosen = msgspec.structs.replace(self.options, worktree="")
                    worktree = await _worktree(session, services.settings, chosen, resources)
                elif own.worktree:
                    session.work_in(own.worktree, own.work_dir)
                builder = _AgentBuilder(session, self.own, emit, self.options, resources, worktree)
                conversation = builder.child(services, start, budget, read_providers)
                conversation.services.worktree = worktree
                return conversation  # noqa: TRY300 - no else: all of it may fail
            except BaseException:
                await resources.aclose()
                raise

        @cache
        def make() -> "Children":
            from sanderling.conversation.children.children import Children  # 4 ms

            return Children(services, open_child)

        return make

    def child(
        self,
        parent: SessionServices,
        start: "ChildStart",
        budget: Budget,
        read_providers: Callable[[], dict[str, Table]],
    ) -> "ChildConversation":
        """
        Start a child of the session `parent`, whose settings, project and network it has.

        Raises:
            ConfigError: there is no such model.
        """
        from sanderling.conversation.children.conversation import NOTE, ChildConversation

        settings = parent.settings
        project = Project(self.own, self.session.work_dir, self.session.project)
        theirs = parent.sandbox.effective_policy
        policy = self._policy(settings) if self.worktree else theirs.declared
        policy = policy._replace(
            network=theirs.policy.network,
            credentials=theirs.declared.credentials,
            remotes=theirs.declared.remotes,
        )
        if self.session.is_read_only:
            policy = policy._replace(mode="ro")
        provider, policy = self._provider(settings, policy, read_providers)
        services = self._services(
            provider,
            policy,
            settings,
            project,
            code=self.options.code,
            parent=parent,
            budget=budget,
        )
        services.gate.follow_sandbox()
        services.answer_note = NOTE
        conversation = ChildConversation(
            services, self.resources, mode=None, is_eager=self.options.is_eager
        )
        model = services.calls.models.meant(start.model, split(parent.provider.model)[0])
        _use_model(services, model or parent.provider.model)
        services.calls.effort.restore(parent.calls.effort.state())
        services.session.keep_state("title", start.title)
        services.role.take(start.role)
        services.memory.keep()
        return conversation

    def _titler(self, services: SessionServices, settings: Settings) -> "Titler":
        from sanderling.conversation.titling import MAX_TOKENS, Titler  # only with a small model

        small = msgspec.structs.replace(
            settings, model=settings.small_model, max_tokens=MAX_TOKENS, thinking=False
        )

        def make() -> Provider:
            return self.options.wrap(make_provider(small, fallback=DEFAULT), self.session.work_dir)

        return Titler(self.session, services.calls, self.emit, make)

    def _for_client(self, tools: "ClientTools") -> Conversation:
        """Start a session whose files and commands are the client's: nothing is read, run or changed here."""
        from sanderling.conversation.remote.clients_tools import ClientConversation

        settings = self.own
        check_disabled(settings.tools_disabled)
        provider = make_provider(settings, fallback="demo")
        self.resources.push_async_callback(provider.aclose)
        policy = policy_for(settings, self.session.work_dir)
        services = SessionServices(
            self.session,
            provider,
            self.emit,
            policy,
            settings,
            project=self._elsewhere(),
            client=tools,
        )
        self.resources.callback(services.workspace.journal.close)
        role = self._first_role(settings, services.project)
        mode = None if self.session.is_resumed else "ask"  # the client decides about its tools
        is_eager = self.options.is_eager
        return ClientConversation(services, self.resources, mode=mode, role=role, is_eager=is_eager)

    def _external(
        self, project: Project, settings: Settings, agent: "DeclaredAgent"
    ) -> Conversation:
        """Start a session in which an external agent answers."""
        from sanderling.acp.client.provider import ExternalProvider
        from sanderling.conversation.external.conversation import ExternalConversation
        from sanderling.conversation.external.servers import with_servers

        if agent.servers:
            agent = with_servers(agent, settings)
        provider = ExternalProvider(agent.name)
        policy = self._policy_here(settings)
        services = self._services(provider, policy, settings, project)
        is_eager, mode = self.options.is_eager, self.options.mode
        return ExternalConversation(
            services, agent, provider, self.resources, is_eager=is_eager, mode=mode
        )

    def _remote(self, address: str) -> Conversation:
        """Start a remote session: nothing of the project is read, run or changed here."""
        from sanderling.acp.client.provider import ExternalProvider
        from sanderling.acp.remote.address import parse_address
        from sanderling.conversation.remote.conversation import RemoteConversation

        there = parse_address(address)
        provider = ExternalProvider(there.title)
        services = self._services(
            provider, self._policy(self.own), self.own, self._elsewhere(), code=self.options.code
        )
        is_eager = self.options.is_eager
        return RemoteConversation(services, there, provider, self.resources, is_eager=is_eager)

    # --- their parts ---------------------------------------------------------------------------------------------------

    def _policy(self, settings: Settings) -> SandboxPolicy:
        network = self.options.network or settings.network
        policy = policy_for(settings, self.session.work_dir)._replace(network=network)
        if not self.options.has_credentials:
            policy = policy._replace(credentials=())
        if self.session.is_read_only:  # a container would not keep it from writing
            policy = policy._replace(mode="ro", is_outer=False)
        if self.worktree:
            linked = tuple(
                path for path in self.worktree.readable() if path not in policy.read_paths
            )
            read_paths = (*policy.read_paths, *linked)
            policy = policy._replace(is_worktree=True, read_paths=read_paths, linked=linked)
        if not policy.is_outer:
            return policy
        if self.options.network not in (None, "on"):
            raise ConfigError(
                "the container is the sandbox, and its network is not Sanderling's: leave out --net"
            )
        from sanderling.providers.endpoint import keys_of_providers  # reads a table
        from sanderling.sandbox.credentials import secret_variables  # rarely needed

        secrets = secret_variables(settings.sandbox_credentials)
        return policy._replace(keys=keys_of_providers(settings.providers) | secrets)

    def _policy_here(self, settings: Settings) -> SandboxPolicy:
        """Return the policy of a session whose project is on this machine, with the project's remotes."""
        policy = self._policy(settings)
        if not policy.credentials:
            return policy
        from sanderling.sandbox.remotes import with_remotes  # runs git

        return with_remotes(policy)

    def _first_role(self, settings: Settings, project: Project) -> str:
        """
        Return the role of a new session.

        Raises:
            ConfigError: the settings name one that does not exist. Without it the session could lack the role's limits.
        """
        if self.session.is_resumed or self.options.role:
            return self.options.role
        try:
            return project.roles.find(settings.role).name if settings.role else ""
        except ConfigError as error:
            place = place_of(("role",), settings.layers)
            raise ConfigError(f"{place}: {error}", error.path) from error

    def _elsewhere(self) -> Project:
        """Return a stand-in for the project of a session whose files are not on this machine."""
        return Project(self.own, f"{self.own.state_dir}/elsewhere")

    def _services(
        self,
        provider: Provider,
        policy: SandboxPolicy,
        settings: Settings,
        project: Project,
        *,
        code: "LanguageServers | None" = None,
        servers: "Mapping[str, McpServer] | None" = None,
        more_tools: "tuple[ToolSource, ...]" = (),
        parent: SessionServices | None = None,
        budget: Budget | None = None,
    ) -> SessionServices:
        session, options = self.session, self.options
        services = SessionServices(
            session,
            provider,
            self.emit,
            policy,
            settings,
            project=project,
            rules=(*load_rules(settings.permissions, session.work_dir), *options.rules),
            editor=options.editor,
            code=code,
            servers=servers,
            patience_s=options.patience_s,
            elsewhere=options.elsewhere,
            callbacks=options.callbacks,
            more_tools=more_tools,
            can_ask=options.can_ask,
            has_user=options.has_user,
            parent=parent,
            budget=budget,
        )
        self.resources.callback(services.close_changes)
        services.answer_note = options.answer_note
        if options.variables:
            services.workspace.shell.restore(ShellState(session.work_dir, {**options.variables}))
        services.calls.budget.limit_run(options.max_cost_usd, options.max_tokens)
        services.calls.fallback = options.fallback_model
        return services

    def _address(self) -> str:
        """Return the address of the session's machine; empty for a local session."""
        name = self._agent_name()
        if ":" not in name:
            return ""
        from sanderling.acp.remote.address import is_address  # only needed for remote sessions

        return name if is_address(name) else ""

    def _agent_name(self) -> str:
        wished = "" if self.session.is_resumed else self.options.agent
        return kept_agent(self.session).name or wished

    def _agent(self, settings: Settings) -> "DeclaredAgent | None":
        """
        Return the external agent that answers in the session, if there is one.

        Raises:
            ConfigError: no agent has that name, or its declaration is invalid.
        """
        if not (name := self._agent_name()):
            return None
        from sanderling.agents.declared import load_agent  # only needed for external agents

        return load_agent(name, settings.agents)


def _recovered(log_dir: Path, settings: Settings, child: LoggedChild) -> ToolResult:
    """Return the result of an interrupted tool call: what the child that it started had done."""
    # Only after a crash.
    from sanderling.conversation.children.recovery import recovered

    outcome = recovered(child, log_dir, settings).outcome()
    is_error = outcome.is_error or not child.state
    return ToolResult(child.tool_use_id, outcome.content, is_error)


def _fork(parent: Session, settings: Settings, start: "ChildStart") -> None:
    from sanderling.session.store import fork  # rarely needed

    def copy(worktree: str = "") -> None:
        fork(
            *(parent.path.parent, parent.id, start.id),
            before_use=start.fork_at,
            parent=parent.id,
            is_read_only=start.is_read_only,
            worktree=worktree,
        )

    if not start.in_worktree:
        copy()
        return
    from sanderling.conversation.worktree import created  # runs git

    # Made before the copy, whose log must name it: opened without it, the child would work where its parent does.
    with created(parent.project, settings, start.id) as record:
        copy(record.name)


def _use_model(services: SessionServices, model: str) -> None:
    if model != services.provider.model:
        services.provider.set_model(model)
    if services.session.history and services.session.model != services.provider.model:
        services.session.switch_model(services.provider.model)


def _servers(settings: Settings) -> "dict[str, McpServer]":
    if not settings.mcp_servers:  # avoids loading `mcp`
        return {}
    from sanderling.mcp.servers import load_servers

    return load_servers(settings.mcp_servers)


async def _tell_of_demo(conversation: Conversation) -> None:
    settings = conversation.services.settings
    if conversation.views.external:
        return
    is_chosen = settings.provider != "auto" or settings.model == "demo"
    is_without_key = not is_chosen and choose(settings) == "demo"
    if is_without_key and not conversation.services.session.is_resumed:
        from sanderling.providers.local_servers import offer_of_local  # only needed without a key

        offer = await offer_of_local(settings.providers)
        remedy = "\n".join(filter(None, (offer, remedies().key)))
        conversation.services.emit(Notice("info", NO_KEY_NOTICE.format(remedy=remedy)))
