"""An external agent in a session: shows and logs its output, and answers its requests with the session's parts and the user."""

import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from sanderling.acp.client.calls import WRITING, ExternalCall
from sanderling.acp.client.link import Carrier, Link
from sanderling.acp.client.presenter import Presenter
from sanderling.acp.client.provider import ExternalProvider
from sanderling.acp.client.questions import CANCELLED, offered
from sanderling.acp.remote.address import RemoteRefusedError
from sanderling.acp.wire import updates
from sanderling.acp.wire.asking import PermissionRequest, PermissionResponse
from sanderling.acp.wire.base import EMPTY
from sanderling.acp.wire.connection import Method
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import RpcError
from sanderling.acp.wire.sessions import McpServer
from sanderling.acp.wire.setup import (
    AgentCapabilities,
    AuthMethod,
    BooleanOptions,
    ClientCapabilities,
    ClientSessionCapabilities,
    ElicitationCapabilities,
    FileCapabilities,
)
from sanderling.agents.calls import ToolCall
from sanderling.agents.declared import DeclaredAgent
from sanderling.agents.permits import Permits, Verdict
from sanderling.agents.process import AgentProcess, running
from sanderling.conversation.external.changes import look_after
from sanderling.conversation.external.questions import ExternalQuestions
from sanderling.conversation.external.servers import given_servers, sent
from sanderling.conversation.external.service import ExternalService, Questioner
from sanderling.conversation.external.usage import ExternalUsage
from sanderling.conversation.services import SessionServices
from sanderling.protocol import events
from sanderling.session.session import KeptAgent, keep_agent, kept_agent
from sanderling.text import visible_prose

SESSION_CAPABILITIES = ClientSessionCapabilities(
    config_options=BooleanOptions(boolean=EMPTY), notices=EMPTY, compaction=EMPTY
)
MAX_COMMANDS = 500
MAX_ITEMS, MAX_ITEM_CHARS = 200, 500
MAX_NOTICE_CHARS = 2000
_COMMAND = re.compile(r"[\w.:@+-]{1,100}")
MAX_SHOWN_ONCE = 20  # unknown kinds of updates

log = logging.getLogger(__name__)


class ExternalAgent:
    """The external agent `declared` in the session of `services`; its link knows it as an `AgentHost`."""

    capabilities = ClientCapabilities(
        fs=FileCapabilities(read_text_file=True, write_text_file=True),
        terminal=True,
        session=SESSION_CAPABILITIES,
        elicitation=ElicitationCapabilities(form=EMPTY, url=EMPTY),
        meta={"terminal_output": True},  # in the form that the adapters of Claude and Codex expect
    )

    def __init__(
        self, services: SessionServices, declared: DeclaredAgent, provider: ExternalProvider
    ) -> None:
        self.services = services
        self._provider = provider
        self.declared = declared
        self._permits = Permits(
            declared.name,
            services.workspace,
            services.gate,
            lambda: self._process is not None and self._process.is_confined,
        )

        self._asking = ExternalQuestions(
            services,
            declared,
            self.verdict,
            self._permits.allowed,
            partial(self.tell_once, level="warning"),
        )

        def put_out(terminal: str) -> None:
            self.presenter.put_out(terminal)

        self.service = ExternalService(
            services.workspace,
            self._permits,
            services.tasks.start,
            put_out,
            Questioner(
                declared.name,
                services.session.work_dir,
                services.approvals.ask,
                lambda: self.is_in_turn or not self.link.is_ready,
            ),
        )
        self.presenter = Presenter(
            services.session,
            services.emit,
            partial(_shown, self),
            partial(_look_after_call, services),
            self.service.output_of,
        )
        self.usage = ExternalUsage(services.session, services.emit, declared.name)
        self.link = self.make_link()
        self.is_in_turn = False
        self._process: AgentProcess | None = None
        self._shown_once: set[str] = set()
        self._sent_title = ""
        self.session_id = kept_agent(services.session).session

    def make_link(self) -> Link:
        return Link(self, self.services.tasks.start)

    # --- the link's view ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.declared.title

    @property
    def label(self) -> str:
        """The short name to show with the model's."""
        return self.declared.name

    @property
    def cwd(self) -> str:
        return self.services.session.work_dir

    def start(self) -> AbstractAsyncContextManager[Carrier]:
        return self._start()

    @asynccontextmanager
    async def _start(self) -> AsyncGenerator[AgentProcess]:
        """Run the agent's process. Its terminals are closed when it ends."""
        try:
            async with running(self.declared, self.services.sandbox, self.cwd) as process:
                self._process = process
                yield process
        finally:
            self.service.close()

    async def get_ready(self) -> None:
        """Start the agent before the first prompt, and scan the project."""
        await self.link.ready()
        if self.services.sandbox.can_write:
            await self.services.workspace.changes.look_ahead(self.services.sandbox.environment)

    async def renew(self) -> None:
        """End the agent if its login was renewed outside since it started, because it still has the old one."""
        if self.link.is_ready and self._process and self._process.has_old_login:
            await self.link.ended()

    def servers(self, capabilities: AgentCapabilities) -> list[McpServer]:
        offers = sent(given_servers(self.declared, self.services.settings), capabilities)
        for problem in offers.problems:
            self.tell_once(problem, "warning")
        return offers.servers

    def begun(self, carrier: Carrier) -> None:
        for text in (carrier.notice, *carrier.warnings):
            if text:
                self.tell_once(text, "warning")

    def take_meta(self, meta: Mapping[str, Any]) -> None:
        """Ignore `_meta`: the extensions of other agents are unknown."""

    def methods(self) -> Mapping[str, Method]:
        return {"session/request_permission": Method(self._ask), **self.service.methods()}

    def session_begun(self, session_id: str, *, is_new: bool, why: str = "") -> None:
        is_lost = is_new and any(each.role == "assistant" for each in self.services.session.history)
        if is_lost:
            because = f": {why.rstrip('.')}" if why else ""
            text = f"{self.name} started a new session and does not remember this conversation{because}."
            self.services.warn(text)
        self.session_id = session_id
        if self.services.session.prompts:
            self.keep()

    def keep(self) -> None:
        """Record the agent and its session id in the log, so that the session can continue with them."""
        session = self.services.session
        keep_agent(session, KeptAgent(self.declared.name, self.session_id, session.id))

    def options_changed(self) -> None:
        options = self.link.options.shown()
        self.services.emit(events.GuestOptionsChanged(options))
        model = self.link.options.of_category("model")
        titles = {each.value: each.title for each in model.choices} if model else {}
        label = titles.get(model.value, model.value) if model else ""
        shown = f"{self.label}: {label}" if label else self.label
        if shown != self._provider.model:
            self._provider.model = shown
            self.services.emit(events.ModelChanged(shown))

    # --- updates -----------------------------------------------------------------------------------------------------------

    async def take(self, update: msgspec.Raw) -> None:
        try:
            shown = updates.update_of(update)
        except RpcError as error:
            log.warning("%s: %s", self.name, error)
            self.tell_once(f"Ignored a malformed update from {self.name}.")
            return
        match shown:
            case updates.UserMessageChunk():
                pass
            case (
                updates.AgentMessageChunk()
                | updates.AgentThoughtChunk()
                | updates.ToolCall()
                | updates.ToolCallUpdate()
            ):
                if self.is_in_turn:  # else it was not asked for
                    await self.presenter.take(shown)
            case _:
                self._take_state(shown)

    def _take_state(self, update: updates.SessionUpdate | str) -> None:
        match update:
            case updates.Plan(entries=entries):
                self.services.workspace.todo.show([*map(_item, entries[:MAX_ITEMS])])
            case updates.AvailableCommandsUpdate(available_commands=commands):
                known = tuple(filter(None, map(_command, commands[:MAX_COMMANDS])))
                self.services.show_agent_commands(known)
            case updates.CurrentModeUpdate(current_mode_id=mode):
                self.link.options.take_mode(mode)
                self.options_changed()
            case updates.ConfigOptionUpdate(config_options=options):
                self.link.options.take(options)
                self.options_changed()
            case updates.SessionInfoUpdate(title=title):
                self._take_title(title)
            case updates.UsageUpdate():
                self.usage.take(update)
            case updates.Notice(title=title, description=description, severity=severity):
                words = visible_prose("\n".join(filter(None, (title, description))))
                level = "info" if severity == "info" else "warning"
                self.services.emit(events.Notice(level, f"{self.name}: {words[:MAX_NOTICE_CHARS]}"))
            case updates.CompactionUpdate():
                if event := _compaction_event(self.name, update):
                    self.services.emit(event)
            case str():
                self.tell_once(
                    f"{self.name} sent '{update[:40]}', which this version of Sanderling cannot show."
                )
            case _:
                pass

    def _take_title(self, title: object) -> None:
        session = self.services.session
        before, own = session.state("title"), self._sent_title
        if isinstance(title, str) and title.strip() and before in (None, "", own):
            self._sent_title = " ".join(visible_prose(title).split())[:60]
            if session.prompts:
                session.keep_state("title", self._sent_title)
            self.services.emit(events.TitleChanged(self._sent_title))

    def tell_once(self, text: str, level: Any = "info") -> None:
        if text not in self._shown_once and len(self._shown_once) < MAX_SHOWN_ONCE:
            self._shown_once.add(text)
            self.services.emit(events.Notice(level, visible_prose(text)))

    # --- requests ----------------------------------------------------------------------------------------------------------

    async def _ask(self, params: msgspec.Raw) -> PermissionResponse:
        request = decoded(params, PermissionRequest)
        await self.link.all_shown()
        call = self.presenter.call_of(request.tool_call) if self.is_in_turn else None
        if call is None:
            return CANCELLED
        self.presenter.start(call)
        return await self._asking.permission(call, offered(request.options), self.cwd)

    def verdict(self, wanted: ToolCall) -> Verdict:
        return self._permits.judge(wanted)

    def stop_asking(self) -> None:
        """Cancel the open questions because the turn is stopped."""
        self.service.stop_asking()
        self._asking.stop()

    async def log_in(self, methods: Sequence[AuthMethod]) -> str:
        return await self._asking.login(methods, self.cwd)


def _shown(external: ExternalAgent, path: str) -> str:
    """Return `path` relative to the agent's project, if that is known."""
    try:
        return path.removeprefix(f"{external.cwd}/")
    except RemoteRefusedError:
        return path


def _look_after_call(services: SessionServices, call: ExternalCall) -> None:
    if call.kind in WRITING:
        look = partial(look_after, is_command=call.kind == "execute")
        services.tasks.start(look, services.workspace, call.id)


def _compaction_event(name: str, update: updates.CompactionUpdate) -> events.Event | None:
    match update.status:
        case "in_progress":
            return events.CompactionStarted()
        case "completed":
            return events.Notice("info", f"{name} summarized the conversation.")
        case "failed" | "cancelled":
            why = f": {update.error}" if update.error else "."
            return events.Notice("warning", f"{name} did not summarize the conversation{why}")
        case _:
            return None


def _status(status: str) -> Any:
    return status if status in ("pending", "in_progress", "completed") else "pending"


def _item(entry: updates.PlanEntry) -> events.TodoItem:
    words = " ".join(visible_prose(entry.content[:MAX_ITEM_CHARS]).split())
    return events.TodoItem(words, _status(entry.status))


def _command(command: updates.AvailableCommand) -> events.SlashCommand | None:
    """Return the command, or None if a user cannot type its name."""
    name, hint = command.name.removeprefix("/"), command.input.hint if command.input else ""
    if not _COMMAND.fullmatch(name):
        return None
    description = visible_prose(command.description.partition("\n")[0][:200])
    return events.SlashCommand(name, description, visible_prose(hint[:100]), "agent")
