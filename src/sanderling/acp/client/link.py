"""
The process, connection and session of an external agent.

One task owns all three, so nothing of a process outlives it. A caller that needs the agent waits until that task has it ready or has
failed. When the agent ends, its open requests fail. The next use starts a new process, which resumes the session if it can.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import anyio
import anyio.lowlevel
import msgspec

from sanderling import __version__
from sanderling.acp.client.options import AgentOptions
from sanderling.acp.client.update_queue import UpdateQueue
from sanderling.acp.wire.base import PROTOCOL_VERSION, Empty, Implementation
from sanderling.acp.wire.connection import AcpConnection, ByteReader, Method
from sanderling.acp.wire.content import ContentBlock
from sanderling.acp.wire.errors import AUTH_REQUIRED, ClosedError, RpcError
from sanderling.acp.wire.outbox import Writer
from sanderling.acp.wire.sessions import (
    McpServer,
    NewSessionRequest,
    NewSessionResponse,
    OldSessionRequest,
    OldSessionResponse,
    PromptRequest,
    SessionRequest,
    SetConfigOptionResponse,
)
from sanderling.acp.wire.setup import (
    AgentCapabilities,
    AuthenticateRequest,
    AuthMethod,
    ClientCapabilities,
    InitializeRequest,
    InitializeResponse,
    check_agents,
)
from sanderling.acp.wire.updates import IncomingUpdate
from sanderling.acp.wire.wire_log import VARIABLE, WireLog
from sanderling.errors import ProviderError, SanderlingError


class Carrier(Protocol):
    """
    The transport of a connection: the pipes of a local or remote process, or a socket.

    `is_outdated`: it was ended so that a new one can replace it. `notice` and `warnings` are shown to the user.
    """

    @property
    def stdin(self) -> Writer: ...
    @property
    def stdout(self) -> ByteReader: ...
    @property
    def is_outdated(self) -> bool: ...
    @property
    def notice(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...

    async def wait(self) -> str:
        """Wait for its end; return a description of how it ended."""
        ...

    def kill(self) -> None: ...

    def refusal(self) -> str:
        """Return why a retry is useless, after it ended; "" if a retry may work."""
        ...


class AgentHost(Protocol):
    """The session's side of an external agent."""

    @property
    def name(self) -> str: ...

    @property
    def cwd(self) -> str: ...

    def start(self) -> AbstractAsyncContextManager[Carrier]:
        """
        Run the agent within the returned context.

        Raises:
            SanderlingError: it cannot be started.
        """
        ...

    def methods(self) -> Mapping[str, Method]: ...

    def begun(self, carrier: Carrier) -> None: ...

    @property
    def capabilities(self) -> ClientCapabilities: ...

    def take_meta(self, meta: Mapping[str, Any]) -> None:
        """Handle the `_meta` of a session response."""
        ...

    async def take(self, update: msgspec.Raw) -> None: ...

    async def log_in(self, methods: Sequence[AuthMethod]) -> str:
        """Ask the user for a login method; return its ID, or "" if the user declined."""
        ...

    def servers(self, capabilities: AgentCapabilities) -> list[McpServer]:
        """Return the MCP servers that the agent should start, limited to the transports that it supports."""
        ...

    def options_changed(self) -> None: ...

    @property
    def session_id(self) -> str:
        """The agent's ID of the session to resume; "" for a new session."""
        ...

    def session_begun(self, session_id: str, *, is_new: bool, why: str = "") -> None:
        """Note that the agent's session is open. `why` says why a new one replaces the old one, if there was one."""
        ...


CLOSE_S = 2.0
"""For a process to end after its output: on a busy machine it takes long, and only its exit status says why it ended."""
LAST_WORDS_S = 0.2
AGAIN = "The next prompt starts it again."

log = logging.getLogger(__name__)


class LiveAgent:
    """A running agent."""

    def __init__(self, process: Carrier, connection: AcpConnection) -> None:
        self.process = process
        self.connection = connection
        self.session_id = ""
        self.capabilities = AgentCapabilities()
        self.auth_methods: Sequence[AuthMethod] = ()


class Link:
    """A link to one agent, for one session. `spawn` starts a task that lives as long as the session is served."""

    start_s: ClassVar[float] = 120.0  # the program may have to be downloaded first

    def __init__(self, host: AgentHost, spawn: Callable[..., None]) -> None:
        self.options = AgentOptions()
        self._host = host
        self._spawn = spawn
        self._live: LiveAgent | None = None
        self._settled: anyio.Event | None = None  # set while a task owns the agent
        self._problem: SanderlingError | None = None
        self._ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._why = ""
        self._is_replaying = False
        self._updates = UpdateQueue()

    @property
    def is_ready(self) -> bool:
        return self._live is not None and self._live.session_id != ""

    @property
    def capabilities(self) -> AgentCapabilities:
        return self._live.capabilities if self._live else AgentCapabilities()

    # --- requests ------------------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """
        Start the agent and open its session, unless that is done.

        Raises:
            ProviderError: the agent cannot be started, or refuses.
        """
        live = self._live
        if self._settled and (self._scope.cancel_called or (live and live.process.is_outdated)):
            await self._ended.wait()  # the agent is ending; wait for that and start a new one
        if self._settled is None:
            self._settled = anyio.Event()
            self._problem = None
            self._ended, self._why, self._scope = anyio.Event(), "", anyio.CancelScope()
            self._spawn(self._own)
        await self._settled.wait()
        if self._problem:
            words = str(self._problem)
            if isinstance(self._problem, RpcError):
                words = f"Cannot communicate with {self._host.name}: {words}"
            raise ProviderError("server", words, _remedy(self._problem))

    async def prompt(self, blocks: Sequence[ContentBlock]) -> "TurnAnswer":
        """
        Send a prompt. Everything that the agent reports arrives as updates, which are shown when this returns.

        Raises:
            ProviderError: the agent has ended, or refuses.
        """
        live = self._live
        if live is None:
            raise ProviderError("cut", self._ending(), AGAIN)
        can = live.capabilities.prompt_capabilities
        seen = [block for block in blocks if block.type != "image" or (can and can.image)]
        request = PromptRequest(session_id=live.session_id, prompt=seen)
        try:
            answer = await live.connection.request("session/prompt", request, TurnAnswer)
        except ClosedError as error:
            await self._ended.wait()
            raise ProviderError("cut", self._ending(), AGAIN) from error
        except RpcError as error:
            raise failure(self._host.name, error) from error
        finally:
            await self._updates.all_shown()
        return answer

    async def all_shown(self) -> None:
        await self._updates.all_shown()

    def cancel(self) -> None:
        """Ask the agent to stop; `prompt` returns when it has."""
        if live := self._live:
            request = SessionRequest(session_id=live.session_id)
            live.connection.notify("session/cancel", request)

    async def set_option(self, name: str, value: str) -> None:
        """
        Set an option.

        Raises:
            SanderlingError: the agent refuses, or the value is invalid.
        """
        await self.ready()
        live = self._live
        if live is None:
            raise ProviderError("cut", self._ending(), AGAIN)
        wish = self.options.wish(live.session_id, name, value)
        if wish.method == "session/set_mode":
            await live.connection.request(wish.method, wish.params, Empty)
            await self.all_shown()
            self.options.take_mode(getattr(wish.params, "mode_id", value))
        else:
            response = await live.connection.request(
                wish.method, wish.params, SetConfigOptionResponse
            )
            await self.all_shown()  # updates sent before the response are older
            self.options.take(response.config_options)
        self._host.options_changed()

    def end(self, why: str = "") -> None:
        """Kill the agent and all its processes. `why` explains the end to a running turn."""
        self._why = why or self._why
        if live := self._live:
            live.process.kill()
        self._scope.cancel()

    async def ended(self) -> None:
        """Kill the agent and wait for its end. The next use starts a new one."""
        self.end()
        await self._ended.wait()

    # --- process -------------------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        """Own the agent until it ends."""
        settled = self._settled
        assert settled
        self._updates = UpdateQueue()
        try:
            with self._scope:
                await self._live_on(settled)
        except SanderlingError as error:
            self._problem = error
        except OSError as error:
            self._problem = SanderlingError(f"{self._host.name} cannot be started: {error}.")
        finally:
            settled = self._settled or settled
            self._live, self._settled = None, None
            self._updates.close()
            if not settled.is_set() and self._problem is None:
                self._problem = SanderlingError(self._ending())
            settled.set()
            self._ended.set()

    async def _live_on(self, settled: anyio.Event) -> None:
        """Run one process until it ends. `settled` is set when the agent can be used."""
        async with self._host.start() as process:
            wire_log = _wire_log()
            connection = AcpConnection(
                process.stdout,
                process.stdin,
                self._host.methods(),
                self._notifications(),
                wire_log=wire_log,
                on_end=self._over,
            )
            live = self._live = LiveAgent(process, connection)
            self._host.begun(process)
            problem: SanderlingError | None = None
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve, live, tasks.cancel_scope)
                tasks.start_soon(self._watch, live)
                tasks.start_soon(self._updates.show, self._show)
                try:
                    await self._shake_hands(live)
                    settled.set()
                    await anyio.sleep_forever()
                except SanderlingError as error:
                    problem = error
                    tasks.cancel_scope.cancel()
            if wire_log:
                wire_log.close()
            if problem:
                raise await self._explained(problem, live)

    def _over(self) -> None:
        """Called when the agent has closed its side of the connection."""

    def _notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {"session/update": self._take_update}

    async def _watch(self, live: LiveAgent) -> None:
        """Close the connection after the process has ended: another process may still hold its pipe open."""
        ending = await live.process.wait()
        self._why = self._why or f"{self._host.name} has ended: {ending}."
        await anyio.sleep(LAST_WORDS_S)
        live.connection.close()

    async def _serve(self, live: LiveAgent, scope: anyio.CancelScope) -> None:
        """Serve the connection. When it ends, kill the agent, even if it is still busy."""
        await live.connection.serve()
        with anyio.move_on_after(CLOSE_S):
            await live.process.wait()
            await anyio.lowlevel.checkpoint()  # let `_watch` set the reason first
        self._why = self._why or f"{self._host.name} has closed its output."
        await self._updates.all_shown()
        scope.cancel()

    async def _explained(self, problem: SanderlingError, live: LiveAgent) -> SanderlingError:
        """Return how the agent ended if it has, else `problem`."""
        if not isinstance(problem, ClosedError):
            return problem
        with anyio.move_on_after(CLOSE_S):
            ending = await live.process.wait()
            return SanderlingError(f"{self._host.name} ended before it answered: {ending}.")
        return SanderlingError(self._ending())

    def _ending(self) -> str:
        return self._why or f"{self._host.name} is not running."

    # --- handshake -----------------------------------------------------------------------------------------------------------

    async def _shake_hands(self, live: LiveAgent) -> None:
        with anyio.move_on_after(self.start_s) as patience:
            request = InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=self._host.capabilities,
                client_info=Implementation(
                    name="sanderling", title="Sanderling", version=__version__
                ),
            )
            answer = await live.connection.request("initialize", request, InitializeResponse)
            check_agents(answer.protocol_version)
            self._check(answer)
            live.capabilities = answer.agent_capabilities or live.capabilities
            live.auth_methods = answer.auth_methods or ()
        if patience.cancelled_caught:
            raise SanderlingError(f"{self._host.name} did not answer within {self.start_s:.0f} s.")
        try:
            await self._open_session(live)
        except RpcError as error:
            if error.code != AUTH_REQUIRED:
                raise
            await _log_in(self._host, live, error)
            await self._open_session(live)
        self._host.options_changed()

    def _check(self, answer: InitializeResponse) -> None:
        """Raise a SanderlingError if this kind of agent cannot be used."""

    async def _open_session(self, live: LiveAgent) -> None:
        """Resume the known session if possible, else open a new one."""
        why, known = "", self._host.session_id
        if known:
            why = await self._open_again(live, known)
            if not why:
                return
        servers = self._host.servers(live.capabilities)
        request = NewSessionRequest(cwd=self._host.cwd, mcp_servers=servers)
        response = await live.connection.request("session/new", request, NewSessionResponse)
        self._begin_session(live, response.session_id, response)
        self._host.session_begun(response.session_id, is_new=True, why=why)

    async def _open_again(self, live: LiveAgent, known: str) -> str:
        """Resume the known session; return the reason if that is impossible."""
        sessions = live.capabilities.session_capabilities
        method = "session/resume" if sessions and sessions.resume else ""
        method = method or ("session/load" if live.capabilities.load_session else "")
        if not method:
            return "it cannot resume a session"
        servers = self._host.servers(live.capabilities)
        request = OldSessionRequest(session_id=known, cwd=self._host.cwd, mcp_servers=servers)
        self._is_replaying = True  # the transcript has the replayed messages already
        try:
            response = await live.connection.request(method, request, OldSessionResponse)
        except ClosedError:
            raise
        except RpcError as error:
            if error.code == AUTH_REQUIRED:
                raise
            return str(error)
        finally:
            self._is_replaying = False
        self._begin_session(live, known, response)
        self._host.session_begun(known, is_new=False)
        return ""

    def _begin_session(
        self, live: LiveAgent, session_id: str, response: NewSessionResponse | OldSessionResponse
    ) -> None:
        live.session_id = session_id
        self.options = AgentOptions()
        self.options.take(response.config_options or (), response.modes)
        self._host.take_meta(response.meta or {})

    # --- updates -------------------------------------------------------------------------------------------------------------

    def _take_update(self, params: msgspec.Raw) -> None:
        """Queue an update. An agent that sends more than can be shown is killed."""
        if self._is_replaying and not _is_state(params):
            return
        if not self._updates.add(params):
            self.end(f"{self._host.name} sent more than can be shown, so it was stopped.")

    async def _show(self, params: msgspec.Raw) -> None:
        live = self._live
        try:
            incoming = msgspec.json.decode(params, type=IncomingUpdate)
            is_ours = live is not None and live.session_id in ("", incoming.session_id)
            if is_ours:
                await self._host.take(incoming.update)
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("a malformed update of %s: %s", self._host.name, error)


class TurnAnswer(msgspec.Struct, rename="camel"):
    """The response to a prompt; `usage` has the tokens of the turn, if the agent reports them."""

    stop_reason: str
    usage: Any = None


_STATES = (
    *(b'"available_commands_update"', b'"current_mode_update"', b'"config_option_update"'),
    *(b'"plan"', b'"usage_update"', b'"session_info_update"'),
)


def _is_state(params: msgspec.Raw) -> bool:
    """Return whether an update carries the current state of something, rather than a part of the conversation."""
    head = bytes(params)[:4096]
    return any(state in head for state in _STATES)


def _wire_log() -> WireLog | None:
    """Return a log of the connection if the user has enabled it."""
    directory = os.environ.get(VARIABLE, "")
    try:
        return WireLog(Path(directory)) if directory else None
    except OSError as error:
        log.warning("no log of the connection in %s: %s", directory, error)
        return None


def _remedy(problem: SanderlingError) -> str:
    return problem.remedy if isinstance(problem, ProviderError) else ""


def failure(name: str, error: RpcError) -> ProviderError:
    """Return an agent's refusal as an error that includes its `name`."""
    if error.code == AUTH_REQUIRED:
        return ProviderError("auth", f"{name} wants you to log in: {error}", AGAIN)
    return ProviderError("server", f"{name} could not answer: {error}")


async def _log_in(host: AgentHost, live: LiveAgent, refusal: RpcError) -> None:
    method = await host.log_in(live.auth_methods)
    if not method:
        raise failure(host.name, refusal)
    await live.connection.request("authenticate", AuthenticateRequest(method_id=method), Empty)
