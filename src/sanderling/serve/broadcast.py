"""
The audience of a served session: any number of clients that may connect and disconnect.

Each update is numbered and kept. A watcher is sent what it has not had, in order, as fast as it reads; it has no queue of its own. If it
falls so far behind that its next update is no longer kept, it is disconnected and has to reconnect. Questions go to all clients that can
answer, also to those that connect while one is open. The first answer counts.
"""

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

from sanderling.acp.agent.clients import UPDATE, Ability, Client, accept
from sanderling.acp.agent.tasks import TaskStarter
from sanderling.acp.wire.base import EMPTY, PROTOCOL_VERSION
from sanderling.acp.wire.change_signal import ChangeSignal
from sanderling.acp.wire.connection import AcpConnection
from sanderling.acp.wire.content import text_block
from sanderling.acp.wire.errors import ClosedError, RpcError
from sanderling.acp.wire.ours import Position, meta_of
from sanderling.acp.wire.setup import (
    ClientCapabilities,
    ClientSessionCapabilities,
    InitializeRequest,
)
from sanderling.acp.wire.updates import (
    AgentThoughtChunk,
    CompactionUpdate,
    Notice,
    SessionNotification,
    SessionUpdate,
    UserMessageChunk,
)
from sanderling.serve.replay_buffer import ReplayBuffer

AHEAD_BYTES = 1 << 20  # sent to a watcher and not read yet, before it has to wait
FULL = Client(
    InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(
            session=ClientSessionCapabilities(notices=EMPTY, compaction=EMPTY)
        ),
    )
)
"""A client that supports everything, except streamed command output: every client gets that as content, because not all can stream it."""
FULL.reads_calls = False  # all clients get the same updates, and most are Sanderling's
SAID = {
    "in_progress": "Summarizing the conversation.",
    "completed": "The conversation was summarized.",
    "failed": "The conversation could not be summarized.",
    "cancelled": "The conversation was not summarized.",
}

T = TypeVar("T")


class Watcher:
    """A client that watches a session. Nothing is sent to it before `begin`."""

    def __init__(
        self,
        broadcast: "Broadcast",
        connection: AcpConnection,
        client: Client,
        cut: Callable[[], None],
    ) -> None:
        self.client = client
        self.connection = connection
        self.own_prompts: set[str] = set()
        self.is_begun = self.is_over = False
        self.next = broadcast.replay.last + 1
        self._broadcast = broadcast
        self._cut = cut
        self._is_waiting = False
        self._advanced = ChangeSignal()

    def begin(self) -> None:
        """Start sending: new updates first, then each one as it happens."""
        if self.is_over:
            return
        self.is_begun = True
        self.advance()
        self._broadcast.ask_newcomer(self)

    def end(self) -> None:
        self.is_begun, self.is_over = False, True
        self._advanced.notify()

    def advance(self) -> None:
        """Send the updates that the client has not had, as fast as it reads."""
        replay = self._broadcast.replay
        if not self.is_begun or self._is_waiting:
            return
        while self.next <= replay.last:
            if self.connection.unsent_bytes > AHEAD_BYTES:
                self._is_waiting = True
                self._broadcast.tasks.start_soon(self._advance_later)
                return
            update = replay.get(self.next)
            if update is None:
                self._cut()
                return
            self.send(update, self.next)
            self.next += 1
        self._advanced.notify()

    async def _advance_later(self) -> None:
        await self.connection.drain()
        self._is_waiting = False
        self.advance()

    async def has_all(self) -> None:
        """Wait until every update so far was sent."""
        while self.is_begun and self.next <= self._broadcast.replay.last:
            await self._advanced.wait()

    async def tell_all(self) -> None:
        """Send the whole update history, for a client that has none of it."""
        short, numbered = self._broadcast.replay.all()
        for update in short:
            await self.tell_earlier(update)
        for seq, update in numbered:
            await self._has_room()
            self.send(update, seq)
            self.next = seq + 1

    async def tell_earlier(self, update: SessionUpdate) -> None:
        """Send an update that has no number."""
        await self._has_room()
        self.send(update, 0)

    async def _has_room(self) -> None:
        if self.connection.unsent_bytes > AHEAD_BYTES:
            await self.connection.drain()

    def send(self, update: SessionUpdate, seq: int) -> None:
        is_own = isinstance(update, UserMessageChunk) and update.message_id in self.own_prompts
        if is_own and not self.client.ours.resume:
            return  # the client shows its own prompts itself
        notification = SessionNotification(
            session_id=self._broadcast.session_id,
            update=for_client(update, self.client),
            meta=meta_of(Position(self._broadcast.life, seq)),
        )
        self.connection.notify(UPDATE, notification)


class _Question:
    """An open question, and the clients that are being asked."""

    def __init__(self, method: str, params: object, kind: type[Any], ability: Ability) -> None:
        self.method, self.params, self.kind, self.ability = method, params, kind, ability
        self.asked: dict[Watcher, anyio.CancelScope] = {}
        self.is_settled = anyio.Event()
        self.answer: Any = None
        self.error: RpcError | None = None

    def settle(self, answer: Any, error: RpcError | None = None) -> None:
        if not self.is_settled.is_set():
            self.answer, self.error = answer, error
            self.is_settled.set()


class Broadcast:
    """The audience of one session, in one of its lives."""

    client = FULL

    def __init__(self, session_id: str, tasks: TaskStarter) -> None:
        self.on_left: Callable[[], None] = lambda: None
        """Called when a client has gone."""
        self.session_id = session_id
        self.life = secrets.token_hex(8)
        self.replay = ReplayBuffer()
        self.tasks = tasks
        self._watchers: list[Watcher] = []
        self._questions: list[_Question] = []

    # --- watchers ------------------------------------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        return bool(self._watchers)

    def add(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def remove(self, watcher: Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        watcher.end()
        for question in self._questions:
            if scope := question.asked.pop(watcher, None):
                scope.cancel()
        self.on_left()

    def knows(self, life: str, after: int) -> bool:
        """Return whether a client that has the updates of `life` up to `after` can continue from there."""
        return life == self.life and self.replay.first - 1 <= after <= self.replay.last

    # --- updates -------------------------------------------------------------------------------------------------------

    def tell(self, update: SessionUpdate) -> None:
        self.replay.add(update)
        for watcher in tuple(self._watchers):
            watcher.advance()

    def tell_prompt(self, update: SessionUpdate) -> None:
        self.tell(update)

    def accept(self, prompt_id: str) -> None:
        for watcher in self._watchers:
            if watcher.client.is_ours:
                accept(watcher.connection, self.session_id, prompt_id)

    # --- questions -----------------------------------------------------------------------------------------------------

    def can(self, ability: Ability) -> bool:
        return not self._watchers or any(ability(each.client) for each in self._watchers)

    async def ask(self, method: str, params: object, kind: type[T], ability: Ability) -> T:
        question = _Question(method, params, kind, ability)
        self._questions.append(question)
        try:
            for watcher in tuple(self._watchers):
                self._put(question, watcher)
            await question.is_settled.wait()
        finally:
            self._questions.remove(question)
            for scope in question.asked.values():
                scope.cancel()
        if question.error:
            raise question.error
        return question.answer

    def ask_newcomer(self, watcher: Watcher) -> None:
        for question in self._questions:
            self._put(question, watcher)

    def _put(self, question: _Question, watcher: Watcher) -> None:
        if watcher.is_begun and watcher not in question.asked and question.ability(watcher.client):
            scope = question.asked[watcher] = anyio.CancelScope()
            self.tasks.start_soon(self._ask_one, question, watcher, scope)

    async def _ask_one(
        self, question: _Question, watcher: Watcher, scope: anyio.CancelScope
    ) -> None:
        with scope:
            try:
                await watcher.has_all()
                answer = await watcher.connection.request(
                    question.method, question.params, question.kind
                )
            except ClosedError:  # the client may reconnect
                question.asked.pop(watcher, None)
            except RpcError as error:
                question.asked.pop(watcher, None)
                if not question.asked:  # no other client is being asked
                    question.settle(None, error)
            else:
                question.asked.pop(watcher, None)
                question.settle(answer)


def for_client(update: SessionUpdate, client: Client) -> SessionUpdate:
    """Return `update`, or a replacement if `client` does not support it."""
    match update:
        case Notice(title=title, description=more) if not client.takes_notices:
            return _thought("\n".join(filter(None, (title, more))))
        case CompactionUpdate(status=status) if not client.takes_compaction:
            said = SAID.get(status, status)
            return Notice(severity="info", title=said) if client.takes_notices else _thought(said)
        case _:
            return update


def _thought(text: str) -> SessionUpdate:
    return AgentThoughtChunk(content=text_block(f"{text}\n"))
