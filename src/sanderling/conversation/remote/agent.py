"""
A Sanderling on another machine, as the agent of a local session.

Files, commands, rules and sandbox are the remote ones, unless the remote side leaves them to this one.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, get_args

import anyio
import msgspec

from sanderling import __version__
from sanderling.acp.client.link import Carrier
from sanderling.acp.client.local_turn import LocalTurn
from sanderling.acp.client.model_proxy import ModelProxyServer, UsageLimits, offered
from sanderling.acp.client.provider import ExternalProvider
from sanderling.acp.client.reconnecting import ReconnectingLink
from sanderling.acp.remote.address import Address, RemoteRefusedError
from sanderling.acp.remote.carrying import carried
from sanderling.acp.remote.pipe import INSTALL
from sanderling.acp.wire import updates
from sanderling.acp.wire.base import EMPTY
from sanderling.acp.wire.connection import Method
from sanderling.acp.wire.errors import METHOD_NOT_FOUND, RpcError
from sanderling.acp.wire.ours import (
    CHANGE_RULE,
    LIST_RULES,
    OURS,
    OfAgent,
    OfClient,
    Position,
    RuleChange,
    RuleLine,
    RulesAnswer,
    meta_of,
    ours_in,
)
from sanderling.acp.wire.sessions import SessionRequest
from sanderling.acp.wire.setup import (
    ClientCapabilities,
    ElicitationCapabilities,
    InitializeResponse,
)
from sanderling.agents.calls import ToolCall
from sanderling.agents.declared import DeclaredAgent
from sanderling.agents.permits import Verdict
from sanderling.conversation.external.agent import SESSION_CAPABILITIES, ExternalAgent
from sanderling.conversation.remote.tools_here import HERE, NO_SERVERS, LocalTools
from sanderling.conversation.services import SessionServices
from sanderling.errors import SessionError
from sanderling.protocol.events import (
    ConnectionChanged,
    ModeChanged,
    Notice,
    SandboxChanged,
    ToolStarted,
)
from sanderling.protocol.messages import Usage
from sanderling.protocol.modes import Mode, NetworkMode, SandboxLevel
from sanderling.protocol.requests import RulesPage, ShownRule
from sanderling.providers.endpoint import is_local
from sanderling.session.session import KeptAgent, KeptPosition, keep_agent, kept_agent
from sanderling.text import visible

ELICITATION = "elicitation/create"
TOO_OLD = "{name} runs Sanderling {version}, which is too old: install {ours} there. {install}."
NOT_SANDERLING = "{what} answers on {name}, not Sanderling: install {ours} there. {install}."
OTHER = "{name} runs Sanderling {version}, and this is {ours}: features that only one of them has are not available."
NOT_LENT = "{name} runs its tools on the client. If you trust it with the files and commands of this machine, add ?tools=client to its address."
DONE_HERE = "{name} runs this on your machine without showing it: {what}"
USES_KEY = "{name} uses your key for {model}. It counts against your limits."
LIMIT_REACHED = "a limit of the client's settings is reached"
NO_PLACE = "{name} does not say in which directory it works: name one in the address."
NO_RULES = "{name} runs an older Sanderling: run `sanderling rules list` there."


class _Sandbox(msgspec.Struct, frozen=True):
    """The sandbox there, as the other side tells it."""

    level: SandboxLevel
    network: NetworkMode
    missing: tuple[str, ...] = ()


class RemoteAgent(ExternalAgent):
    """The agent at `address`. `on_begun` is called when its session is open again."""

    reconnecting: ReconnectingLink

    def __init__(
        self,
        services: SessionServices,
        address: Address,
        declared: DeclaredAgent,
        provider: ExternalProvider,
        on_begun: Callable[[], None],
    ) -> None:
        self.address = address
        self._on_begun = on_begun
        self.may_show = anyio.Event()
        """Set while what comes may be shown: not before the turn that it belongs to has begun."""
        self.may_show.set()
        self._there = OfAgent("")
        self._cwd = ""
        self._mode: str = "ask"
        self.turn = LocalTurn()
        self._lends = offered(services.settings) if _may_lend(address) else None
        self._model_proxy = ModelProxyServer(
            services.settings, self._notify, services.tasks.start, self.turn, _ProxyLimits(self)
        )
        self.tools = LocalTools(services, self._notify, partial(_tell_use, self), self.turn)
        self.is_told_whole = False
        """Whether that turn is sent from its start, because the previous process stored no later position."""
        self.left_turn = ""
        """The prompt of the turn that continued remotely while disconnected."""
        super().__init__(services, declared, provider)
        self.capabilities = ClientCapabilities(
            session=SESSION_CAPABILITIES,
            elicitation=ElicitationCapabilities(form=EMPTY, url=EMPTY),
            meta=meta_of(
                OfClient(
                    resume=True,
                    models=self._lends,
                    tools=self.tools.name if _may_use_tools(address) else "",
                )
            ),
        )

    def make_link(self) -> ReconnectingLink:
        kept = kept_agent(self.services.session)
        seen = kept.seen or KeptPosition()
        self.left_turn, self.is_told_whole = kept.turn or "", bool(kept.whole)
        position = Position(seen.life, seen.seq or 0)
        self.reconnecting = ReconnectingLink(self, self.services.tasks.start, position)
        return self.reconnecting

    @property
    def is_ours(self) -> bool:
        """Whether it is Sanderling, which acknowledges prompts."""
        return self._there.version != ""

    @property
    def lends(self) -> bool:
        return self._lends is not None

    @property
    def goes_on_alone(self) -> bool:
        """Whether a turn continues remotely while disconnected."""
        return self._there.resume > 0

    # --- its rules -----------------------------------------------------------------------------------------------------------

    async def rules(self) -> RulesPage:
        """
        Return the rules in effect there.

        Raises:
            SanderlingError: it does not answer.
        """
        await self.link.ready()
        asked = SessionRequest(session_id=self.session_id)
        try:
            found = await self.reconnecting.request(LIST_RULES, asked, RulesAnswer)
        except RpcError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            raise SessionError(NO_RULES.format(name=self.name)) from error
        shown = (
            ShownRule(each.rule, self._origin(each), each.last_use, each.kind)
            for each in found.rules
        )
        return RulesPage(tuple(shown), found.problem)

    def change_rule(self, rule: str, new: str) -> None:
        """Delete or replace a rule there. The remote side reports what prevents it."""
        if self.link.is_ready:
            change = RuleChange(session_id=self.session_id, rule=rule, new=new)
            self._notify(CHANGE_RULE, change)
        else:
            self.services.warn(f"Nothing changed: {self.name} is not connected.")

    def _origin(self, rule: RuleLine) -> str:
        """Name the machine behind an origin that would look like a local file."""
        return f"{rule.origin} on {self.name}" if rule.kind == "settings" else rule.origin

    # --- its place, as the link knows it -----------------------------------------------------------------------------------

    @property
    def cwd(self) -> str:
        """
        The project there.

        Raises:
            RemoteRefusedError: it is not known.
        """
        if self.tools.are_wanted:
            return self.services.session.project
        if self.address.path.startswith("/"):
            return self.address.path
        if self.address.kind == "server" and is_local(self.address.url):
            return self.services.session.project
        if not self._cwd:
            raise RemoteRefusedError(NO_PLACE.format(name=self.name))
        return self._cwd

    def start(self) -> AbstractAsyncContextManager[Carrier]:
        return carried(self.address, self.services.settings)

    async def get_ready(self) -> None:
        await self.link.ready()

    async def renew(self) -> None:
        """Do nothing: it has its own login."""

    def methods(self) -> Mapping[str, Method]:
        lent: Mapping[str, Method] = self._model_proxy.methods() if self._lends else {}
        asked = {ELICITATION: self.service.methods()[ELICITATION]}
        tools = self.tools.methods()
        return {"session/request_permission": Method(self._ask), **asked, **lent, **tools}

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        """Return the handlers of notifications outside the protocol."""
        return self._model_proxy.notifications() if self._lends else {}

    def _notify(self, method: str, params: object) -> None:
        self.reconnecting.notify(method, params)

    def begin_turn(self, prompt_id: str) -> None:
        """Let the other side use tools and keys of this machine, until `end_turn`."""
        self.services.calls.begin_turn()
        self.usage.begin_turn()
        self.tools.begin_turn(prompt_id)
        self.turn.begin()

    async def end_turn(self) -> None:
        self.turn.end()
        self._model_proxy.stop()
        await self.tools.end_turn()

    async def aclose(self) -> None:
        await self._model_proxy.aclose()

    def verdict(self, wanted: ToolCall) -> Verdict:  # noqa: ARG002 - the agent's side has asked its own rules
        return Verdict("ask")

    def check(self, answer: InitializeResponse) -> None:
        said = answer.agent_capabilities.meta if answer.agent_capabilities else None
        version = answer.agent_info.version if answer.agent_info else ""
        is_named = OURS in (said or {})
        self._there = ours_in(said, OfAgent) if is_named else OfAgent("")
        self._cwd = self._there.cwd
        if self._there.tools == "client" and self.address.kind == "server":
            if not _may_use_tools(self.address):
                raise RemoteRefusedError(NOT_LENT.format(name=self.name))
            self.tools.begin()
            self.tell_once(HERE.format(name=self.name))
            if self.services.settings.mcp_servers:
                self.tell_once(NO_SERVERS)
        words = {"name": self.name, "ours": __version__, "install": INSTALL}
        if not self.is_ours and self.address.kind != "server":
            program = answer.agent_info.name if answer.agent_info else ""
            if program != "sanderling":
                what = visible(f"{program} {version}".strip()[:80]) or "an agent without a name"
                raise RemoteRefusedError(NOT_SANDERLING.format(what=what, **words))
            raise RemoteRefusedError(
                TOO_OLD.format(version=version or "of an unknown version", **words)
            )
        if self.is_ours and self._there.version != __version__:
            self.tell_once(OTHER.format(version=self._there.version, **words))

    def session_begun(self, session_id: str, *, is_new: bool, why: str = "") -> None:
        super().session_begun(session_id, is_new=is_new, why=why)
        if not is_new:
            self._on_begun()

    def take_meta(self, meta: Mapping[str, Any]) -> None:
        said = meta.get(OURS)
        if not isinstance(said, dict) or "sandbox" not in said or self.tools.are_wanted:
            return
        try:
            sandbox = msgspec.convert(said["sandbox"], _Sandbox)
        except msgspec.ValidationError:
            return
        self.services.emit(SandboxChanged(sandbox.level, sandbox.network, sandbox.missing))

    def keep(self, turn: str = "", *, is_beginning: bool = False) -> None:
        """Have the log know how far what it tells has come, and in which `turn` that is, if in one, or at its beginning."""
        session, name = self.services.session, self.declared.name
        seen = msgspec.convert(msgspec.to_builtins(self.reconnecting.shown), KeptPosition)
        whole = is_beginning or msgspec.UNSET
        keep_agent(session, KeptAgent(name, self.session_id, session.id, turn, whole, seen))

    def connection_changed(self, event: ConnectionChanged) -> None:
        self.services.emit(event)

    def connection_lost(self) -> None:
        self.stop_asking()
        self._model_proxy.stop()

    def told_from_beginning(self) -> None:
        self.presenter.begin_again()

    # --- what it tells -----------------------------------------------------------------------------------------------------

    async def take(self, update: msgspec.Raw) -> None:
        await self.may_show.wait()
        await super().take(update)

    def _take_state(self, update: updates.SessionUpdate | str) -> None:
        super()._take_state(update)
        if isinstance(update, updates.ConfigOptionUpdate):
            self.take_meta(update.meta or {})

    def options_changed(self) -> None:
        super().options_changed()
        if self.tools.are_wanted:
            return  # mode and sandbox are local
        option = self.link.options.of_category("mode")
        if option and option.value != self._mode and option.value in get_args(Mode):
            self._mode = option.value
            self.services.emit(ModeChanged(msgspec.convert(option.value, Mode)))

    @property
    def label(self) -> str:
        return self.address.title


class _ProxyLimits(UsageLimits):
    """The limits of this session for requests that use its keys. Their usage is shown and logged as its own."""

    def __init__(self, external: RemoteAgent) -> None:
        self._external = external
        self._lock = anyio.Lock()
        self._refused_turn = ""

    async def refusal(self, model: str) -> str:
        services = self._external.services
        turn = services.session.prompts[-1].id
        async with self._lock:  # one question, however many requests come at once
            if turn == self._refused_turn:
                return LIMIT_REACHED
            if await services.calls.stop_at_limit():
                self._refused_turn = turn
                return LIMIT_REACHED
        self._external.tell_once(USES_KEY.format(name=self._external.name, model=visible(model)))
        return ""

    def is_priced(self, model: str) -> bool:
        return self._external.services.calls.prices.of(model) is not None

    def count(self, model: str, usage: Usage) -> None:
        self._external.usage.add_lent(model, usage, self._external.services.calls.prices)


def _may_lend(address: Address) -> bool:
    """Return whether the remote agent may use local models. A server has its own keys."""
    return address.kind != "server" and not address.has_own_keys


def _may_use_tools(address: Address) -> bool:
    """
    Whether a server may have its tools run here: the user has said so in its address.

    A server on this machine once could without that. But whoever listens on a port here may be another user, or the end of a tunnel.
    """
    return address.kind == "server" and address.lends_tools


async def _tell_use(external: RemoteAgent, told_id: str, started: ToolStarted) -> None:
    """Show a tool use that starts here, unless the remote side has shown it correctly."""
    await external.reconnecting.all_shown()
    if started.title not in external.presenter.title_of(told_id):
        what = visible(f"{started.tool} {started.title}")
        external.services.emit(Notice("warning", DONE_HERE.format(name=external.name, what=what)))
