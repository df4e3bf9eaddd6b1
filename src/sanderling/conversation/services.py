"""The parts of a conversation, assembled: everything that its turns and views use."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.changes.commands import CommandChanges
from sanderling.changes.forking import Origin
from sanderling.changes.journal import Journal
from sanderling.config import Settings
from sanderling.conversation.budget import Budget
from sanderling.conversation.compaction import PAGE_TOKENS
from sanderling.conversation.compactor import Compactor
from sanderling.conversation.hooked import SessionHooks
from sanderling.conversation.memory import Memory, Remembered
from sanderling.conversation.model_calls import ModelCalls
from sanderling.conversation.notes import Notes
from sanderling.conversation.prompt import prompt_message, system_prompt
from sanderling.conversation.role import SessionRole
from sanderling.conversation.servers import NoServers, ServerLoader
from sanderling.conversation.tasks import BackgroundTasks
from sanderling.conversation.waiting import Waiting
from sanderling.errors import ConfigError
from sanderling.hooks.callbacks import Callbacks, NoCallbacks
from sanderling.hooks.declared import own_hooks
from sanderling.hooks.hooks import Hooks
from sanderling.hooks.messages import Surroundings
from sanderling.images import MAX_PDF_PAGES
from sanderling.mcp import GRACE_S
from sanderling.permissions.approvals import Approvals
from sanderling.permissions.gate import Gate
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import RuleStore
from sanderling.project.programs import own_programs
from sanderling.project.project import Project
from sanderling.protocol import events
from sanderling.protocol.messages import SEARCH_TOOL, Prompt
from sanderling.protocol.modes import Mode
from sanderling.providers import Provider
from sanderling.sandbox.confinement import SessionEvent, SessionSandbox
from sanderling.sandbox.credentials import CredentialUse
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.policy import Grant, SandboxPolicy
from sanderling.sandbox.report import GuardEvent, ProjectReplaced
from sanderling.session.log import changes_dir
from sanderling.session.records import StateKey, is_session_id
from sanderling.session.session import Session
from sanderling.text import printable, shortened, visible_line
from sanderling.tools.ask_user import ask_user
from sanderling.tools.catalog import Catalog, OwnTools, ToolSource
from sanderling.tools.client_tools import ClientTools
from sanderling.tools.commands.jobs import Jobs
from sanderling.tools.commands.shell import Elsewhere, Shell, ShellState
from sanderling.tools.commands.user_commands import UserCommand, UserCommands
from sanderling.tools.editor import Editor
from sanderling.tools.effects import Effect
from sanderling.tools.packaged import PackagedTools
from sanderling.tools.read_cache import ReadCache
from sanderling.tools.searching import search_sources
from sanderling.tools.todo_list import TodoList
from sanderling.tools.workspace import Workspace

if TYPE_CHECKING:
    from sanderling.conversation.titling import Titler
    from sanderling.conversation.worktree import SessionWorktree
    from sanderling.mcp.servers import McpServer
    from sanderling.mcp.tool_servers import ServerContext, ToolServers
    from sanderling.tools.code.servers import LanguageServers

PROJECT_REPLACED = (
    "{project} was replaced by another directory. Processes in the old one were stopped;"
    " the new one is used from now on."
)
DISK_FULL = "Commands were stopped: the disk of {path} is nearly full ({left} left)."
MAX_COMMAND_CHARS, MAX_PROMPT_CHARS, MAX_PATH_CHARS = 100, 100, 200


class SessionServices:
    """
    The parts of one session. `emit` receives the events of all of them; it must not block.

    Args:
        elsewhere: where unconfined commands run, if not on this machine.
        client: runs the session's tools, if they are not those of this machine.
        sources: replace the built-in tools.
        callbacks, more_tools: see `SessionOptions`.
        has_user, can_ask: see `SessionOptions`.
        parent: the parts of the session that this one is a child of. Both have the same tools, tool servers and journal: the changes of a
            child belong to the turn that started it.
        budget: what was reserved for the session, if it is a child.
    """

    def __init__(
        self,
        session: Session,
        provider: Provider,
        emit: Callable[[events.Event], None],
        policy: SandboxPolicy,
        settings: Settings,
        *,
        project: Project | None = None,
        rules: tuple[Rule, ...] = (),
        editor: Editor | None = None,
        code: "LanguageServers | None" = None,
        sources: Sequence[ToolSource] = (),
        servers: "Mapping[str, McpServer] | None" = None,
        patience_s: float = GRACE_S,
        elsewhere: Elsewhere | None = None,
        client: ClientTools | None = None,
        callbacks: Callbacks | None = None,
        more_tools: tuple[ToolSource, ...] = (),
        can_ask: bool = False,
        has_user: bool = True,
        parent: "SessionServices | None" = None,
        budget: Budget | None = None,
    ) -> None:
        self.session = session
        self.parent = parent
        self.provider = provider
        self.emit = emit
        self.settings = settings
        self.project = project or Project(settings, session.work_dir, session.project)
        self.agent_commands: tuple[events.SlashCommand, ...] = ()  # of an external agent
        self._told_commands: tuple[events.SlashCommand, ...] | None = None
        self.origin = ""  # of a change of instructions that no prompt asked for
        self.answer_note = ""  # to the model, with each prompt
        self.titler: Titler | None = None  # if a small model titles sessions
        self.full_name_of: Callable[[str], str] = str  # of a model; raises ConfigError
        self.worktree: SessionWorktree | None = None  # in which the session works, if it has one
        self.shows_calls = False  # events have the inputs and results of tool calls
        self.tasks = BackgroundTasks()
        self.memory = Memory(session, emit)
        self.waiting = Waiting(self.memory.keep)
        self.workspace = self._make_workspace(policy, editor, code, elsewhere)
        self.commands = UserCommands(
            session,
            self.sandbox,
            emit,
            self.tasks.start,
            on_end=self._files_may_have_changed,
            offer=self._offer_programs,
            running=self.workspace.changes.of_person,
        )
        self.gate = self._make_gate(rules)
        self.hooks = self._make_hooks(client, callbacks or NoCallbacks())
        self.gate.hooks_before_question = self.hooks.before_question
        has_editor = code is not None or client is not None
        own = sources or (OwnTools(has_editor=has_editor),)
        added = PackagedTools(emit)
        own = (client,) if client else (*own, *search_sources(settings), added)
        disabled = settings.tools_disabled if can_ask else (*settings.tools_disabled, ask_user.name)
        own = (*own, *more_tools)
        catalog = (
            parent.calls.catalog.copy()
            if parent
            else Catalog(*own, disabled=disabled, has_user=has_user)
        )
        if catalog.offers(ask_user.name):
            self.workspace.user = self.gate
        make = partial(ServerLoader, settings, catalog, self._server_context, patience_s=patience_s)
        self.server_loader = parent.server_loader if parent else make()
        if servers:
            self.server_loader.load(servers)
        system = system_prompt(has_editor=has_editor, has_user=has_user)
        self.calls = ModelCalls(
            session,
            provider,
            settings,
            self.approvals,
            emit,
            catalog=catalog,
            system=system,
            small_system=system_prompt(has_editor=has_editor, has_user=has_user, is_small=True),
            may_search=self._may_search,
            own_budget=budget,
        )
        self.role = SessionRole(
            session,
            provider,
            self.calls.models,
            self.calls.effort,
            gate=self.gate,
            project=self.project,
            emit=emit,
        )
        self.gate.forbids = self.role.forbids
        self.gate.instructions_note = self._instructions_note
        self.workspace.on_accepted = self._keep_trust
        self.notes = Notes(
            session, self.workspace, self.gate, self.project, role=self.role, client=client
        )
        self.compactor = Compactor(
            session,
            provider,
            self.calls,
            self.notes,
            emit,
            memory=self.memory,
            hooks=self.hooks,
            is_automatic=settings.auto_compact,
        )

    @property
    def approvals(self) -> Approvals:
        return self.gate.approvals

    @property
    def sandbox(self) -> SessionSandbox:
        return self.workspace.sandbox

    @property
    def servers(self) -> "NoServers | ToolServers":
        return self.server_loader.servers

    def warn(self, text: str) -> None:
        self.emit(events.Notice("warning", text))

    def restore(self, mode: Mode | None, role: str = "") -> None:
        """
        Restore the session's state; `mode` overrides the remembered one. A new session begins in `role`.

        Raises:
            ConfigError: there is no such role.
        """
        session, provider = self.session, self.provider
        is_own = isinstance(model := session.state("model"), str) and self._can_ask(model)
        if not is_own and session.history and session.model != provider.model:
            session.switch_model(provider.model)
        first: dict[StateKey, Any] = {"mode": mode}
        if not session.is_resumed:
            first["mode"] = mode or self.settings.mode
        if self.parent:
            first["mode"] = "auto"  # so that its mode is its parent's
        self.memory.restore(self._remembered(), first)
        if role and not session.is_resumed:
            self.role.begin(role, keeps_mode=mode is not None)
            self.memory.keep()

    def _can_ask(self, model: str) -> bool:
        """Continue with the session's own model, if its provider is still available."""
        try:
            self.provider.set_model(model)
        except ConfigError as error:
            self.warn(
                f"This session's model {model} is unavailable ({error}). Continuing with {self.provider.model}."
            )
            return False
        return True

    def tell_untrusted(self) -> None:
        if paths := self.project.news_of_untrusted():
            self.emit(events.TrustNeeded(paths))
        for text in self.project.news_of_settings():
            self.warn(text)

    def _remembered(self) -> Sequence[Remembered]:
        waiting, shell, todo = self.waiting, self.workspace.shell, self.workspace.todo

        def restore_waiting(state: object) -> None:
            waiting.restore(state, {prompt.id for prompt in self.session.prompts})

        def restore_shell(state: object) -> None:
            shell.restore(msgspec.convert(state, ShellState))

        return (
            Remembered("waiting", waiting.state, restore_waiting, waiting.news),
            Remembered("todo", todo.state, todo.restore, lambda: events.TodoChanged(todo.items)),
            Remembered(
                "shell",
                lambda: msgspec.to_builtins(shell.state()),
                restore_shell,
            ),
            Remembered("told", self.notes.state, self.notes.restore),
            Remembered("mode", lambda: self.gate.mode, self.gate.restore_mode),
            Remembered("role", self.role.state, self.role.restore, self.role.shown),
            Remembered("effort", self.calls.effort.state, self.calls.effort.restore),
            Remembered("grants", self.gate.state, self.gate.restore),
        )

    def _make_workspace(
        self,
        policy: SandboxPolicy,
        editor: Editor | None,
        code: "LanguageServers | None",
        elsewhere: Elsewhere | None,
    ) -> Workspace:
        sandbox = SessionSandbox(policy, self._note_sandbox_event, self._emit_sandbox)
        sandbox.own_programs = self._own_programs
        shell = Shell(policy.project, sandbox, _only_reads_with, elsewhere)
        jobs = Jobs(
            shell,
            sandbox,
            self.tasks.start,
            self._emit_jobs,
            self._emit_denial,
            is_unfinished=_is_unfinished,
        )
        todo = TodoList(self.memory.keep)
        read_cache = ReadCache(disk=sandbox.environment.disk)
        if self.parent and self._shares_changes:
            journal, changes = self.parent.workspace.journal, self.parent.workspace.changes
            self.parent.all_jobs.append(jobs)
        else:
            journal = self._make_journal()
            changes = CommandChanges(journal, self._are_jobs_running, self.warn)
        self.all_jobs = [jobs]
        return Workspace(
            self.session.work_dir,
            sandbox,
            shell,
            jobs,
            journal,
            changes,
            editor,
            read_cache,
            todo,
            document_pages=self._document_pages,
            code=code,
        )

    def begin_changes(self, prompt: Prompt) -> None:
        """Count what is changed from now on as changes of this prompt's turn; of a child, they belong to its parent's turn."""
        if not self._shares_changes:
            self.workspace.journal.begin_turn(prompt.id)

    def close_changes(self) -> None:
        if self.parent and self._shares_changes:
            self.parent.all_jobs.remove(self.workspace.jobs)
        else:
            self.workspace.journal.close()

    @property
    def _shares_changes(self) -> bool:
        """True for a child that works in the same directory as its parent."""
        return self.parent is not None and self.parent.session.work_dir == self.session.work_dir

    def _are_jobs_running(self) -> bool:
        return any(jobs.are_running for jobs in self.all_jobs)

    def _document_pages(self) -> int:
        """Return how many pages of a PDF the API takes: at most half of the window, because a result too large for it cannot be cleared."""
        if not self.provider.takes_documents:
            return 0
        limits = self.provider.limits
        window = limits.context_window_tokens if limits else 0
        return min(MAX_PDF_PAGES, window // 2 // PAGE_TOKENS) if window else MAX_PDF_PAGES

    def _instructions_note(self, effect: Effect) -> str:
        """Return where a change of instructions comes from, and what it would mean, for the question about it."""
        return f"{self.origin or self._prompt_as_origin()} {self.project.note_on_change(effect.path)}".lstrip()

    def _prompt_as_origin(self) -> str:
        prompts = self.session.prompts
        words = shortened(" ".join(prompts[-1].text.split()), MAX_PROMPT_CHARS) if prompts else ""
        return f"Proposed in answer to \u201c{visible_line(words)}\u201d." if words else ""

    def _keep_trust(self, path: str, before: bytes | None, after: bytes) -> None:
        try:
            self.project.trust.follow(path, before, after)
        except ConfigError as error:
            self.warn(f"{printable(self.workspace.shown(path))} must be trusted again: {error}")

    def _may_search(self) -> bool:
        """
        Return whether the API may search the web. Its searches cannot be asked about one by one.

        So a rule that would deny or ask about one turns them off, and so does a sandbox without network: a query can carry what the model
        has read.
        """
        is_chosen = self.settings.web_search_provider == "api"
        is_offered = self.calls.catalog.offers(SEARCH_TOOL) and not self.role.forbids(SEARCH_TOOL)
        if not (is_chosen and is_offered):
            return False
        return self.sandbox.environment.network != "off" and not self.gate.restricts(
            Effect(SEARCH_TOOL, "fetch")
        )

    def _own_programs(self) -> tuple[str, ...]:
        return own_programs(self.project.trust)

    def _make_journal(self) -> Journal:
        """Return the journal of the agent's changes. A log outside the session directory has it in its own directory."""
        log = self.session.log.path
        is_kept = log.parent == self.settings.session_dir
        directory = changes_dir(log) if is_kept else log.parent / "changes" / log.stem
        origin = self._origin(directory.parent)
        return Journal(directory.parent, log.stem, self.session.work_dir, self.warn, origin)

    def _origin(self, root: Path) -> Origin | None:
        """Return the journal of the session that this one was forked from."""
        source = self.session.log.header.forked_from
        if not isinstance(source, str) or not is_session_id(source):
            return None
        return Origin(
            root / source, self.session.work_dir, frozenset(self.session.prompt_history.turn_ids)
        )

    def _make_gate(self, rules: tuple[Rule, ...]) -> Gate:
        return Gate(
            self.workspace,
            Approvals(self.session.work_dir, self.emit, self._append_said),
            RuleStore(self.settings.state_dir, self.session.project),
            rules,
            self.emit,
            on_allowed=self.memory.keep,
            above=self.parent.gate if self.parent else None,
        )

    def _make_hooks(self, client: ClientTools | None, callbacks: Callbacks) -> SessionHooks:
        """Return the session's hooks; none if its files and commands are a client's."""
        surroundings = Surroundings(
            self.session.log.path.stem,
            str(self.session.log.path),
            self.session.work_dir,
            lambda: self.gate.mode,
        )
        hooks = Hooks(
            () if client else own_hooks(self.settings),
            None if client else self.project.trust,
            self.sandbox.boundary,
            surroundings,
            self.emit,
            problem_of=_problem_of_condition,
            start=self.tasks.start,
        )
        return SessionHooks(hooks, callbacks, self.workspace)

    def _server_context(self) -> "ServerContext":
        from sanderling.mcp.tool_servers import ServerContext

        return ServerContext(
            self.settings.state_dir,
            self.session.project,
            self.session.work_dir,
            self.sandbox,
            self.approvals.ask,
            self.emit,
            self.tasks.start,
            self.tell_commands,
            self._window_tokens,
            self.gate.may_allow,
        )

    def _window_tokens(self) -> int:
        limits = self.provider.limits
        return limits.context_window_tokens if limits else 0

    def declare_servers(self) -> None:
        """Declare the tool servers that the project currently declares. A child has its parent's."""
        if not self.parent:
            self.server_loader.declare(self.project.trust, self.emit)

    def show_agent_commands(self, commands: tuple[events.SlashCommand, ...]) -> None:
        """Show these slash commands of an external agent from now on."""
        self.agent_commands = commands
        self.tell_commands()

    def tell_commands(self) -> None:
        """Send the screen the slash commands of the project, tool servers and external agent."""
        self._told_commands = self._commands()
        self.emit(events.SlashCommandsChanged(self._told_commands))

    def tell_new_commands(self) -> None:
        """Send the slash commands again if their files have changed since the screen got them."""
        if self._told_commands is not None and self._told_commands != self._commands():
            self.tell_commands()

    def _commands(self) -> tuple[events.SlashCommand, ...]:
        all_commands = (
            *self.servers.commands(),
            *self.agent_commands,
            *self.project.commands(),
        )
        return tuple({each.name: each for each in all_commands}.values())

    def _files_may_have_changed(self) -> None:
        if editor := self.workspace.editor:
            self.tasks.start(editor.files_changed, ())

    async def _offer_programs(self, command: UserCommand, denials: Sequence[Denial]) -> Grant:
        return (await self.gate.grant_prompts.offer(command.text, command.id, "run", denials)).grant

    def _append_said(self, prompt: Prompt) -> None:
        """Append what the user says while the turn is stopped; the model gets it with the next prompt."""
        self.session.append_message(prompt_message(prompt), (prompt,))
        self.emit(events.PromptSteered(prompt))

    def _emit_jobs(self) -> None:
        self._files_may_have_changed()
        jobs = self.workspace.jobs.all()
        self.emit(
            events.JobsChanged(
                tuple(
                    events.ShownJob(job.id, job.command, job.outcome, job.terminal is not None)
                    for job in jobs
                )
            )
        )

    def _emit_sandbox(self) -> None:
        self.emit(shown_sandbox(self.sandbox))
        if not self.parent:
            self.servers.network_changed()

    def _emit_denial(self, denial: Denial) -> None:
        self.emit(_shown_event(denial))

    def _note_sandbox_event(self, event: SessionEvent) -> None:
        if isinstance(event, CredentialUse):
            command = self.workspace.jobs.command_with(event.by)
            self.emit(_shown_use(event, command or self.commands.command_with(event.by)))
            return
        will_be_reported = isinstance(event, Denial) and self.workspace.jobs.denied(
            event, is_of_others=self.commands.are_running
        )
        if self.commands.are_running or not will_be_reported:
            self.emit(_shown_event(event))


def _problem_of_condition(condition: str) -> str:
    from sanderling.permissions.conditions import problem_of  # it loads the shell's grammar

    return problem_of(condition)


def _is_unfinished(line: str) -> bool:
    from sanderling.permissions.shell.grammar import parse  # loads the grammar

    return bool(parse(line).problem)


def _only_reads_with(name: str, command: str, *, cwd: str, project: str, is_confined: bool) -> bool:
    from sanderling.permissions.decide import only_reads_with  # imports tables of programs

    return only_reads_with(name, command, cwd=cwd, project=project, is_confined=is_confined)


def shown_sandbox(sandbox: SessionSandbox) -> events.SandboxChanged:
    return events.SandboxChanged(*sandbox.facts)


def _shown_use(use: CredentialUse, command: str) -> events.Event:
    first_line = command.strip().partition("\n")[0][:MAX_COMMAND_CHARS]
    by = f", by `{printable(first_line)}`" if command else ""
    request = f"{use.method} {use.host}{use.path[:MAX_PATH_CHARS]}"
    return events.Notice("info", f"Used the credential {use.name}: {printable(request)}{by}")


def _shown_event(event: "Denial | GuardEvent | ProjectReplaced | DiskFull") -> events.Event:
    match event:
        case Denial():
            return events.AccessDenied(event.operation, event.target, event.reason)
        case GuardEvent(kind, path, reason, kept_at):
            shown = "noticed" if kind == "warned" else kind
            return events.GuardActed(shown, printable(path), printable(reason), printable(kept_at))
        case ProjectReplaced(project):
            return events.Notice("warning", PROJECT_REPLACED.format(project=printable(project)))
        case DiskFull(path, free, unit):
            left = f"{free / 1e6:,.0f} MB" if unit == "bytes" else f"{free:,} files"
            return events.Notice("warning", DISK_FULL.format(path=path, left=left))
