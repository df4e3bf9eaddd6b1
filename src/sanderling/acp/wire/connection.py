"""
A JSON-RPC 2.0 connection over two byte streams, one message per line, with requests in both directions.

Notifications are handled in order, before any later message. Each request is handled by a task of its own, so a slow one does not delay
others. Invalid messages are answered as the specification says and do not end the connection. An exception in a handler fails its request
and is logged.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from sanderling.acp.wire.change_signal import ChangeSignal
from sanderling.acp.wire.envelope import (
    NOTHING,
    Id,
    Notification,
    Request,
    Response,
    decoded,
    error_line,
    message_of,
    notification_line,
    readable,
    request_line,
    result_line,
)
from sanderling.acp.wire.errors import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    BadAnswerError,
    ClosedError,
    MalformedError,
    RpcError,
)
from sanderling.acp.wire.outbox import MAX_UNSENT_BYTES, Outbox, Writer
from sanderling.acp.wire.wire_log import WireLog
from sanderling.json_lines import LineSplitter, LineTooLongError

MAX_LINE_BYTES = 32 << 20
MAX_RUNNING = 1_000  # requests of the peer that are being handled
GRACE_S = 2.0  # for pending responses after the peer has closed its side

CANCEL = "$/cancel_request"

T = TypeVar("T")
log = logging.getLogger(__name__)


class ByteReader(Protocol):
    async def receive(self) -> bytes:
        """
        Return some bytes.

        Raises:
            anyio.EndOfStream: the stream has ended.
        """
        ...


class Method(NamedTuple):
    """
    A method that the peer can call. `handle` returns its result, None for an empty one, or raises `RpcError`.

    `on_arrival` is called before any later message is handled, and may raise `RpcError`. If there is an `on_cancel`, a cancelled request
    calls it instead of cancelling `handle`, which must then return early.
    """

    handle: Callable[[msgspec.Raw], Awaitable[Any]]
    on_arrival: Callable[[msgspec.Raw], None] | None = None
    on_cancel: Callable[[msgspec.Raw], None] | None = None


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: Id


class _Running(NamedTuple):
    scope: anyio.CancelScope
    cancel: Callable[[], None]


class _Waiting:
    """A response that a caller waits for."""

    def __init__(self) -> None:
        self.has_come = anyio.Event()
        self.response: Response | None = None

    def take(self, response: Response | None) -> None:
        self.response = response
        self.has_come.set()


class AcpConnection:
    """
    One end of a connection.

    `methods` and `notifications` handle the peer's messages. When the peer has closed its side, `on_end` is called, and pending responses
    get `grace_s` to finish. The connection ends when more than `max_unsent_bytes` are waiting to be sent.
    """

    def __init__(
        self,
        reader: ByteReader,
        writer: Writer,
        methods: Mapping[str, Method],
        notifications: Mapping[str, Callable[[msgspec.Raw], None]],
        *,
        wire_log: WireLog | None = None,
        on_end: Callable[[], None] | None = None,
        grace_s: float = GRACE_S,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
    ) -> None:
        self._reader = reader
        self._methods, self._notifications = methods, notifications
        self._log = wire_log
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._waiting: dict[Id, _Waiting] = {}
        self._running: dict[bytes, _Running] = {}
        self._answered = ChangeSignal()
        self._is_over = False  # nothing more will be received
        self._grace_s = grace_s
        self._outbox = Outbox(writer, max_unsent_bytes)
        self._scope = anyio.CancelScope()

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that the peer has not taken yet."""
        return self._outbox.unsent_bytes

    async def serve(self) -> None:
        """Handle messages until the peer closes its side or `close` is called. May be called once."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                with self._scope:
                    await self._read(tasks)
                self._end()
                with anyio.move_on_after(self._grace_s):
                    await self._answer_all()
                    await self._outbox.drain()
                self._outbox.close()  # later messages are neither sent nor logged as sent
                tasks.cancel_scope.cancel()
        finally:
            self._end()

    def close(self) -> None:
        """Stop reading; `serve` returns when pending requests have been answered."""
        self._scope.cancel()

    async def request(self, method: str, params: object, kind: type[T]) -> T:
        """
        Send a request and return its result. If the caller is cancelled, the peer is asked to cancel the request.

        Raises:
            RpcError: the peer returned an error or an invalid result.
            ClosedError: the connection has ended.
        """
        if self._is_over:
            raise ClosedError
        request_id, waiting = next(self._ids), _Waiting()
        self._waiting[request_id] = waiting
        self._send(request_line(request_id, method, params))
        try:
            await waiting.has_come.wait()
        except anyio.get_cancelled_exc_class():
            self.notify(CANCEL, {"requestId": request_id})
            raise
        finally:
            self._waiting.pop(request_id, None)
        if waiting.response is None:
            raise ClosedError
        if waiting.response.error:
            raise waiting.response.error
        try:
            return decoded(waiting.response.result, kind)
        except RpcError as error:
            raise BadAnswerError(method, str(error)) from error

    def notify(self, method: str, params: object) -> None:
        """Send a notification. It is dropped if the connection has ended."""
        self._send(notification_line(method, params))

    async def drain(self) -> None:
        await self._outbox.drain()

    # --- incoming messages ---------------------------------------------------------------------------------------------

    async def _read(self, tasks: TaskGroup) -> None:
        lines = LineSplitter(MAX_LINE_BYTES)
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                chunk = await self._reader.receive()
                for line in lines.feed(chunk):
                    self._take_line(line, tasks)

    def _take_line(self, line: bytes | LineTooLongError, tasks: TaskGroup) -> None:
        if isinstance(line, LineTooLongError):
            self._note_in(str(line).encode(), is_message=False)
            self._refuse(None, RpcError(INVALID_REQUEST, f"{line} is ignored"))
        elif line.strip():
            self._take(line, tasks)

    def _refuse(self, request_id: Id, error: RpcError) -> None:
        self._send(error_line(request_id, error))

    def _take(self, line: bytes, tasks: TaskGroup) -> None:
        line = readable(line)
        try:
            message = message_of(line)
        except MalformedError as error:
            self._note_in(line, is_message=False)
            if b'"method"' not in line and (waiting := self._waiting.pop(error.id, None)):
                waiting.take(Response(error.id, NOTHING, error))
            else:
                self._refuse(error.id, error)
            return
        self._note_in(line)
        match message:
            case Request():
                self._take_request(message, tasks)
            case Notification(method, params):
                self._take_notification(method, params)
            case Response(response_id) if waiting := self._waiting.pop(response_id, None):
                waiting.take(message)
            case Response():
                log.info("response to an unknown request: %r", message.id)

    def _note_in(self, line: bytes, *, is_message: bool = True) -> None:
        if self._log:
            self._log.note("in", line, is_message=is_message)

    def _take_notification(self, method: str, params: msgspec.Raw) -> None:
        handler = self._cancel_running if method == CANCEL else self._notifications.get(method)
        if handler is None:
            log.info("unknown notification: %s", method)
            return
        try:
            handler(params)
        except RpcError as error:  # a notification has no response
            log.warning("%s: %s", method, error)
        except Exception as defect:  # a handler must not end the connection
            log.critical("%s crashed", method, exc_info=defect)

    def _cancel_running(self, params: msgspec.Raw) -> None:
        if running := self._running.get(_key(decoded(params, _Cancelled).request_id)):
            running.cancel()

    # --- requests of the peer ------------------------------------------------------------------------------------------

    def _take_request(self, request: Request, tasks: TaskGroup) -> None:
        method, key = self._methods.get(request.method), _key(request.id)
        if key in self._running:  # an error with this ID would seem to be the first one's
            self._refuse(None, RpcError(INVALID_REQUEST, f"the id {request.id!r} is in use"))
            return
        if method is None:
            words = f"unknown method {request.method!r}"
            self._refuse(request.id, RpcError(METHOD_NOT_FOUND, words))
            return
        if len(self._running) >= MAX_RUNNING:
            words = f"too many requests: {MAX_RUNNING:,} are running"
            self._refuse(request.id, RpcError(INTERNAL_ERROR, words))
            return
        try:
            if method.on_arrival:
                method.on_arrival(request.params)
        except RpcError as error:
            self._refuse(request.id, error)
            return
        scope, on_cancel = anyio.CancelScope(), method.on_cancel
        cancel = (lambda: on_cancel(request.params)) if on_cancel else scope.cancel
        self._running[key] = _Running(scope, cancel)
        tasks.start_soon(self._answer, request, method, scope)

    async def _answer(self, request: Request, method: Method, scope: anyio.CancelScope) -> None:
        line = error_line(request.id, RpcError(CANCELLED, "the request was cancelled"))
        try:
            with scope:
                line = result_line(request.id, await method.handle(request.params))
        except RpcError as error:
            line = error_line(request.id, error)
        except Exception as defect:  # the peer must get a response in any case
            log.critical("%s crashed", request.method, exc_info=defect)
            words = f"{request.method} failed: {type(defect).__name__}"
            line = error_line(request.id, RpcError(INTERNAL_ERROR, words))
        finally:
            del self._running[_key(request.id)]
            self._answered.notify()
        self._send(line)

    async def _answer_all(self) -> None:
        while self._running:
            await self._answered.wait()

    def _end(self) -> None:
        """Fail all open requests: no more responses will come."""
        self._is_over = True
        if self._on_end:
            on_end, self._on_end = self._on_end, None
            on_end()
        for waiting in self._waiting.values():
            waiting.take(None)
        self._waiting.clear()

    # --- outgoing messages ---------------------------------------------------------------------------------------------

    def _send(self, line: bytes) -> None:
        if self._log and not self._outbox.is_closed:
            self._log.note("out", line)
        self._outbox.add(line)

    async def _write(self) -> None:
        await self._outbox.serve()
        self._scope.cancel()  # the peer no longer reads


def _key(request_id: Id) -> bytes:
    """Return a key for an ID, distinct for 1, 1.0 and "1"."""
    return msgspec.json.encode(request_id)
