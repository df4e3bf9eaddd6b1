"""
A link to a remote session that survives lost connections.

The server numbers its updates (`acp/ours.py`): a reconnected client skips updates that it has seen and gets those that it missed first. A
prompt has an ID and is sent again until it is accepted; it runs once, however often it is sent. If the remote process ends with its
connection, the session is reopened there from its log, and the turn that was running counts as interrupted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from sanderling.acp.client.link import AgentHost, Link, LiveAgent, TurnAnswer, failure
from sanderling.acp.remote.address import RemoteRefusedError
from sanderling.acp.wire.content import ContentBlock
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    NOT_FOUND,
    ClosedError,
    RpcError,
)
from sanderling.acp.wire.ours import (
    OURS,
    PROMPT_ACCEPTED,
    After,
    OfPrompt,
    Position,
    PromptAccepted,
    meta_of,
    ours_in,
)
from sanderling.acp.wire.sessions import (
    NewSessionResponse,
    OldSessionRequest,
    OldSessionResponse,
    PromptRequest,
    SessionRequest,
)
from sanderling.acp.wire.setup import InitializeResponse
from sanderling.errors import ProviderError, SanderlingError
from sanderling.protocol.events import ConnectionChanged

T = TypeVar("T")

FIRST_S, AGAIN_S = 0.5, 2.0
FIRST_CONNECTION_S = 30.0  # retrying: the server may still be starting behind a proxy
CUT = "The connection was lost and the remote agent ended: the turn was interrupted."
GO_ON = "Its work so far is saved. Send a prompt to continue."


def _nothing() -> None: ...


class RemoteAgentHost(AgentHost, Protocol):
    """A host whose session is on another machine."""

    def check(self, answer: InitializeResponse) -> None:
        """
        Check that the server has the features that are needed.

        Raises:
            RemoteRefusedError: it lacks one of them.
        """
        ...

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        """Return the handlers of notifications that are not part of ACP."""
        ...

    def connection_changed(self, event: ConnectionChanged) -> None: ...

    def connection_lost(self) -> None:
        """Withdraw the server's open questions. It asks them again on the next connection."""
        ...

    def told_from_beginning(self) -> None:
        """Prepare for a replay of the current turn from its beginning."""
        ...


class ReconnectingLink(Link):
    """
    A link to a remote session.

    `seen` is the position of the last update received, also from before a restart; `shown` that of the last update shown.
    """

    start_s: ClassVar[float] = 30.0

    def __init__(self, host: RemoteAgentHost, spawn: Callable[..., None], seen: Position) -> None:
        super().__init__(host, spawn)
        self.seen = self.shown = seen
        self._remote_host = host
        self._has_lived = False
        self._is_continued = False
        self._is_to_stop = False
        self._prompt_id = ""
        self._is_accepted = self._was_stopped = False
        self._on_accepted = _nothing
        self._again = anyio.Event()

    # --- requests ------------------------------------------------------------------------------------------------------------

    async def deliver(
        self,
        prompt_id: str,
        blocks: Sequence[ContentBlock],
        on_accepted: Callable[[], None],
        *,
        is_known: bool = False,
        notes: tuple[str, ...] = (),
    ) -> TurnAnswer:
        """
        Send a prompt and return its answer, over as many connections as needed. `notes` are added for the model.

        `on_accepted` is called, once or several times, when the prompt is in the remote log. `is_known`: it already is.

        Raises:
            ProviderError: the agent refused, is unreachable, or lost the turn together with a connection.
        """
        self._was_stopped = is_cut = False
        self._prompt_id, self._is_accepted = prompt_id, is_known
        self._on_accepted = on_accepted
        try:
            while True:
                await self.ready()
                live = self._live
                if live is None:  # it ended meanwhile
                    await anyio.lowlevel.checkpoint()
                    continue
                try:
                    answer = await self._deliver(live, prompt_id, blocks, notes)
                except ClosedError:
                    is_cut = True
                    continue
                except RpcError as error:
                    raise failure(self._host.name, error) from error
                was_lost = is_cut and not self._is_continued and answer.stop_reason == "cancelled"
                if was_lost and not self._was_stopped:
                    raise ProviderError("cut", CUT, GO_ON)
                return answer
        finally:
            self._on_accepted = _nothing

    async def _deliver(
        self,
        live: LiveAgent,
        prompt_id: str,
        blocks: Sequence[ContentBlock],
        notes: tuple[str, ...],
    ) -> TurnAnswer:
        request = PromptRequest(
            session_id=live.session_id,
            prompt=list(blocks),
            meta=meta_of(OfPrompt(prompt_id, self._is_accepted, notes)),
        )
        try:
            return await live.connection.request("session/prompt", request, TurnAnswer)
        finally:
            await self._updates.all_shown()

    def cancel(self) -> None:
        """Ask the agent to stop, now or on the next connection."""
        self._was_stopped = True
        if self.is_ready:
            super().cancel()
        else:
            self._is_to_stop = True

    def notify(self, method: str, params: object) -> None:
        if live := self._live:
            live.connection.notify(method, params)

    async def request(self, method: str, params: object, kind: type[T]) -> T:
        """
        Send a request outside of the protocol.

        Raises:
            RpcError: the peer refused, or is not connected.
        """
        if self._live is None:
            raise ClosedError
        return await self._live.connection.request(method, params, kind)

    def connect_now(self) -> None:
        self._again.set()

    @property
    def _has_session(self) -> bool:
        """Whether a remote session exists, to which reconnecting is tried without limit."""
        return self._has_lived or self._host.session_id != ""

    # --- connections ---------------------------------------------------------------------------------------------------------

    async def _live_on(self, settled: anyio.Event) -> None:
        attempt, begun_at = 0, anyio.current_time()
        while True:
            self._tell("connecting", attempt=attempt)
            why = await self._try(settled, begun_at + FIRST_CONNECTION_S)
            if settled.is_set():
                attempt = 0
                settled = self._settled = anyio.Event()
            self._live, self._why = None, ""
            attempt += 1
            await self._pause(why, attempt)

    async def _try(self, settled: anyio.Event, give_up_at: float) -> str:
        """Serve one connection until it ends; return the reason. Raise if a retry is useless, or too late for a first connection."""
        try:
            await super()._live_on(settled)
        except RemoteRefusedError as error:
            self._tell("refused", str(error))
            raise
        except (SanderlingError, OSError) as error:
            is_late = not self._has_session and anyio.current_time() >= give_up_at
            if is_late or _is_final(error):
                self._tell("refused", str(error))
                raise
            return str(error)
        return self._why

    async def _pause(self, why: str, attempt: int) -> None:
        delay_s = FIRST_S if attempt == 1 else AGAIN_S
        self._tell("waiting", why, delay_s=delay_s, attempt=attempt)
        self._again = anyio.Event()
        with anyio.move_on_after(delay_s):
            await self._again.wait()

    def _tell(self, state: Any, why: str = "", *, delay_s: float = 0, attempt: int = 0) -> None:
        self._remote_host.connection_changed(
            ConnectionChanged(state, self._host.name, why, delay_s, attempt)
        )

    async def _explained(self, problem: SanderlingError, live: LiveAgent) -> SanderlingError:
        explained = await super()._explained(problem, live)
        refusal = live.process.refusal()
        return RemoteRefusedError(refusal) if refusal else explained

    def _check(self, answer: InitializeResponse) -> None:
        self._remote_host.check(answer)

    # --- the session ---------------------------------------------------------------------------------------------------------

    async def _open_again(self, live: LiveAgent, known: str) -> str:
        after = After(self.seen.life, self.seen.seq) if self.seen.life else After()
        request = OldSessionRequest(
            session_id=known, cwd=self._host.cwd, mcp_servers=[], meta=meta_of(after)
        )
        try:
            received = await live.connection.request("session/resume", request, OldSessionResponse)
        except RpcError as error:
            if error.code == NOT_FOUND:  # the session is empty and was never stored
                return str(error)
            raise
        position = _position_in(received.meta)
        self._is_continued = bool(position.is_continued)
        if position.is_continued is False:
            received = await self._load(live, known)
        self._begin_session(live, known, received)
        self._host.session_begun(known, is_new=False)
        if self._is_to_stop and self._is_continued:
            live.connection.notify("session/cancel", SessionRequest(session_id=known))
        self._is_to_stop = False
        return ""

    async def _load(self, live: LiveAgent, known: str) -> OldSessionResponse:
        """Load the whole session, because the server has discarded some of the missed updates. Only the current turn is shown."""
        request = OldSessionRequest(session_id=known, cwd=self._host.cwd, mcp_servers=[])
        before, self.seen = self.seen, Position("")
        self._is_replaying = True
        try:
            return await live.connection.request("session/load", request, OldSessionResponse)
        except ClosedError:
            self.seen = before  # the next connection has to load it again
            raise
        finally:
            self._is_replaying = False

    def _begin_session(
        self, live: LiveAgent, session_id: str, response: NewSessionResponse | OldSessionResponse
    ) -> None:
        super()._begin_session(live, session_id, response)
        self._has_lived = True
        if not self._is_continued or session_id != self._host.session_id:
            self.seen = self.shown = _position_in(response.meta)
        self._tell("connected")

    # --- updates -------------------------------------------------------------------------------------------------------------

    def _over(self) -> None:
        self._remote_host.connection_lost()

    def _notifications(self) -> Any:
        ours = {PROMPT_ACCEPTED: self._take_acceptance, **self._remote_host.notifications()}
        return {**super()._notifications(), **ours}

    def _take_acceptance(self, params: msgspec.Raw) -> None:
        received = decoded(params, PromptAccepted)
        if received.prompt_id == self._prompt_id:
            self._is_accepted = True
            self._on_accepted()

    def _take_update(self, params: msgspec.Raw) -> None:
        if self._is_replaying and self._prompt_id and _is_prompt(params, self._prompt_id):
            self._is_replaying = False  # the current turn begins here
        position = _position_of(params)
        if position.seq:
            if position.life == self.seen.life and position.seq <= self.seen.seq:
                return  # a duplicate
            self.seen = position
        super()._take_update(params)

    async def _show(self, params: msgspec.Raw) -> None:
        if self._prompt_id and _is_prompt(params, self._prompt_id):
            self._on_accepted()  # the notification of it may have been lost with a connection
            self._remote_host.told_from_beginning()
        await super()._show(params)
        position = _position_of(params)
        self.shown = position if position.seq else self.shown


def _position_in(meta: dict[str, Any] | None) -> Position:
    """Return the position in `meta`; one without a life if the server does not number its updates."""
    named = (meta or {}).get(OURS)
    is_there = isinstance(named, dict) and "life" in named
    return ours_in(meta, Position) if is_there else Position("")


class _OfUpdate(msgspec.Struct, rename={"meta": "_meta"}):
    meta: dict[str, Any] | None = None


def _position_of(params: msgspec.Raw) -> Position:
    if b'"seq"' not in bytes(params):
        return Position("")
    return _position_in(decoded(params, _OfUpdate).meta)


def _is_prompt(params: msgspec.Raw, prompt_id: str) -> bool:
    head = bytes(params)
    return b'"user_message_chunk"' in head and f'"{prompt_id}"'.encode() in head


def _is_final(error: Exception) -> bool:
    return isinstance(error, RpcError) and error.code in (AUTH_REQUIRED, INVALID_PARAMS)
