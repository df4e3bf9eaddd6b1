"""
The transport to a server over the pipes of its process: one JSON-RPC message per line.

A server's output comes from untrusted code, and is read on the event loop that the editor waits for. So each line is checked before the
SDK gets it. Anything but messages goes to the log, unrequested messages are dropped, and a server that floods us gets little time, or is
ended.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.memory import MemoryObjectSendStream

from sanderling.errors import SandboxError
from sanderling.json_lines import LineSplitter, LineTooLongError, ids_in
from sanderling.mcp.messages import (
    MAX_MESSAGE_BYTES,
    MAX_UNASKED_BYTES,
    NOT_READABLE,
    Envelope,
    message_of,
    messages_in,
    unreadable,
)
from sanderling.mcp.problems import ServerError
from sanderling.sandbox.execution_environment import RunningServer, end_server
from sanderling.text import name_set
from sanderling.tools.commands.server_log import ServerLog, ending

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

MAX_UNSENT = 1_000  # messages that wait until the server reads
MAX_GARBAGE_LINES, MAX_GARBAGE_BYTES = 1_000, 1 << 20  # since the last message
MAX_LOGGED_BYTES = 2_000  # of an unreadable answer
BURST, PAUSE_S = 50, 0.02  # of unrequested messages
PATIENCE_S = 0.5  # with a server that should end
STATUS_S = 0.2

Advise = Callable[[int, str], str]
"""Returns what to do about an end with that exit status, after that log."""

HEARD = name_set(
    """
    notifications/progress notifications/cancelled notifications/tools/list_changed notifications/prompts/list_changed
    notifications/resources/list_changed notifications/resources/updated notifications/elicitation/complete
    notifications/subscriptions/acknowledged
    """
)
SPOKEN = "notifications/message"


class _LogMessage(msgspec.Struct):
    """A log message that a server sends through the protocol."""

    level: str = ""
    data: Any = ""


@asynccontextmanager
async def over_pipes(
    process: RunningServer, log: ServerLog, advise: Advise = lambda _status, _log: ""
) -> AsyncGenerator["TransportStreams"]:
    """
    Open the streams of messages from and to the server `process`, which ends with the context. `advise` says what to do about its end.

    Raises:
        ServerError: in a group: the server has ended, or its output is unacceptable.
    """
    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](MAX_UNSENT)
    assert process.stderr
    try:
        async with anyio.create_task_group() as tasks:
            end = _ServerEnd(process, log, advise)
            reader = _Reader(process, log, to_session, to_server, end)
            tasks.start_soon(reader.run)
            tasks.start_soon(_write, process, end, from_session, reader.asked)
            tasks.start_soon(log.read, process)
            yield from_server, to_server
            tasks.cancel_scope.cancel()
    finally:
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
        with anyio.CancelScope(shield=True):
            await end_server(process, PATIENCE_S)


async def _write(
    process: RunningServer,
    end: "_ServerEnd",
    messages: ObjectReceiveStream["SessionMessage"],
    asked: dict[str, str],
) -> None:
    from mcp_types import JSONRPCRequest

    assert process.stdin
    try:
        async for each in messages:
            if isinstance(each.message, JSONRPCRequest):
                asked[str(each.message.id)] = each.message.method
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(line.encode() + b"\n")
    except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        await end.report("it stopped reading")
        raise AssertionError from error


class _ServerEnd(NamedTuple):
    process: RunningServer
    log: ServerLog
    advise: Advise

    async def report(self, otherwise: str) -> NoReturn:
        """Raise an error about how the server has ended, with the reason that it gave; if it has not, with `otherwise`."""
        why = otherwise
        with anyio.move_on_after(STATUS_S):
            try:
                status = await self.process.wait()
            except SandboxError as error:
                raise ServerError(str(error).rstrip(".")) from error
            why = ending(status)  # what follows may not be in time
            advice = await to_thread.run_sync(self.advise, status, self.log.text())
            why = ending(status, self.log.reason(), advice)
        raise ServerError(why)


class _Reader:
    """
    Reads a server's output and passes messages to `session`; answers only if a request is open. `server` is the way back.

    `asked` has the methods of open requests, by their ids.
    """

    def __init__(
        self,
        process: RunningServer,
        log: ServerLog,
        session: ObjectSendStream["SessionMessage"],
        server: MemoryObjectSendStream["SessionMessage"],
        end: _ServerEnd,
    ) -> None:
        self.asked: dict[str, str] = {}
        self._process = process
        self._log = log
        self._session = session
        self._server = server
        self._end = end
        self._unasked = 0
        self._garbage_lines = self._garbage_bytes = 0

    async def run(self) -> None:
        assert self._process.stdout
        lines = LineSplitter(MAX_MESSAGE_BYTES)
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                for line in lines.feed(await self._process.stdout.receive()):
                    if isinstance(line, LineTooLongError):
                        raise ServerError(f"it wrote {line}")
                    await self._take(line)
        await self._end.report("it closed its output")

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            for envelope, data in messages_in(line):
                await self._take_message(envelope, data)
        except NOT_READABLE as error:
            await self._take_unreadable(line, error)

    async def _take_message(self, envelope: Envelope, data: bytes) -> None:
        from mcp.shared.message import SessionMessage

        request = "" if envelope.method else self._request_of(envelope)
        if envelope.method:
            is_heard = envelope.id is not None or envelope.method in HEARD
            is_wanted = is_heard and len(data) <= MAX_UNASKED_BYTES
        else:
            is_wanted = bool(request)
        if request and envelope.id is None:
            envelope.id = int(request) if request.isdecimal() else request
        message = message_of(data, envelope) if is_wanted else None
        self._garbage_lines = self._garbage_bytes = 0
        if envelope.method == SPOKEN:
            self._take_said(envelope.params)
        if message is not None:
            await self._session.send(SessionMessage(message))
        if request:
            self.asked.pop(request, None)
            return
        if self._server.statistics().tasks_waiting_send:
            raise ServerError("it sends requests but does not read the answers")
        await self._pace()

    def _request_of(self, answer: Envelope) -> str:
        """Return the id of the answered request. An error without an id answers the only open one."""
        if answer.id is None and answer.error is not None and len(self.asked) == 1:
            return next(iter(self.asked))
        return str(answer.id) if str(answer.id) in self.asked else ""

    async def _take_unreadable(self, line: bytes, error: Exception) -> None:
        """Fail the request that this answer belongs to, if that can be known; otherwise the line is garbage."""
        from mcp.shared.message import SessionMessage

        named = ids_in(line) & self.asked.keys()
        is_broken = not isinstance(
            error, msgspec.ValidationError
        )  # otherwise its id is another request's
        if not named and is_broken and b'"jsonrpc"' in line:
            named = set(self.asked)
        if len(named) != 1:
            await self._take_garbage(line)
            return
        [request] = named
        self._log.add(line[:MAX_LOGGED_BYTES] + b"\n")
        answer = unreadable(request, self.asked.pop(request), error)
        await self._session.send(SessionMessage(answer))

    def _take_said(self, params: msgspec.Raw) -> None:
        with suppress(msgspec.DecodeError, RecursionError):
            said = msgspec.json.decode(params, type=_LogMessage)
            words = (
                said.data if isinstance(said.data, str) else msgspec.json.encode(said.data).decode()
            )
            self._log.add(f"[{said.level}] {words}\n".encode(errors="replace"))

    async def _take_garbage(self, line: bytes) -> None:
        self._garbage_lines += 1
        self._garbage_bytes += len(line)
        self._log.add(line + b"\n")
        if self._garbage_lines > MAX_GARBAGE_LINES or self._garbage_bytes > MAX_GARBAGE_BYTES:
            raise ServerError("it writes too much non-protocol output")
        await self._pace()

    async def _pace(self) -> None:
        """Leave the editor its share of time, however much unrequested output comes."""
        self._unasked += 1
        if self._unasked % BURST == 0:
            await anyio.sleep(PAUSE_S)
