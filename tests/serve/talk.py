"""`sanderling serve` as a process, and a client that is held by hand."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from tests.acp.schema import check_wire
from tests.acp.talk import FULL, AgentError, Home
from tests.conftest import DEADLINE_S, wait_until

OURS = {"_meta": {"sanderling": {"resume": True}}}
LOST = (ConnectionClosed, InvalidHandshake, InvalidMessage, OSError, EOFError)


class Server:
    """One process of `sanderling serve`."""

    def __init__(self, home: Home, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.home = home
        self.stderr_path = home.folder / "serve-stderr"
        with self.stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sanderling", "serve", "--listen", listen, *arguments],
                cwd=home.project,
                env=home.environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.stderr_path.read_text()
        self.token = (home.state / "serve-token").read_text().strip()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def connect(self, url: str = "", **more: Any) -> Any:
        more = {"additional_headers": self.headers, "max_size": 64 << 20} | more
        if self.url.startswith("unix:"):
            return unix_connect(self.url.removeprefix("unix:"), "ws://localhost/acp", **more)
        return connect(url or self.url, **more)

    def finish(self) -> None:
        """End it as a person would; nothing is left running, and there was no defect."""
        self.process.terminate()
        assert self.process.wait(DEADLINE_S) == 0
        self.check()

    def check(self) -> None:
        stderr = self.stderr_path.read_text()
        assert "Traceback" not in stderr, stderr[-4000:]
        assert "defect" not in stderr, stderr[-4000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


class Client:
    """One client on one connection. `answers` are those to what it is asked, by method; without one it leaves that open."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []  # parameters of session/update
        self.accepted: list[str] = []
        self.cancelled: list[Any] = []
        self._ids = 0
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self._sending: list[asyncio.Task[None]] = []
        self._task = asyncio.create_task(self._read())

    # --- sending -------------------------------------------------------------------------------------------------------

    async def send(self, message: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0"} | message
        self.messages.append({"direction": "in", "message": message})
        await self.socket.send(json.dumps(message))

    async def begin(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        self._ids += 1
        future = self._responses[self._ids] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda each: each.cancelled() or each.exception())
        await self.send({"id": self._ids, "method": method, "params": params})
        return future

    async def request(self, method: str, **params: Any) -> Any:
        return await asyncio.wait_for(await self.begin(method, **params), DEADLINE_S)

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"method": method, "params": params})

    async def initialize(self, capabilities: dict[str, Any] | None = None) -> Any:
        capabilities = FULL | OURS if capabilities is None else capabilities
        return await self.request("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def new(self, home: Home) -> str:
        return (await self.begin_session(home))[0]

    async def begin_session(self, home: Home) -> tuple[str, str]:
        """Begin a session; return its id, and its life."""
        said = await self.request("session/new", cwd=str(home.project), mcpServers=[])
        return said["sessionId"], said["_meta"]["sanderling"]["life"]

    async def again(self, how: str, home: Home, session: str, **ours: Any) -> dict[str, Any]:
        """Load or resume a session; return what the answer says in `_meta`."""
        meta = {"_meta": {"sanderling": ours}} if ours else {}
        said = await self.request(
            f"session/{how}", sessionId=session, cwd=str(home.project), mcpServers=[], **meta
        )
        return said["_meta"]["sanderling"]

    async def begin_prompt(
        self, session: str, text: str, prompt_id: str = "", **ours: Any
    ) -> "asyncio.Future[Any]":
        block = {"type": "text", "text": text}
        ours |= {"prompt_id": prompt_id} if prompt_id else {}
        meta = {"_meta": {"sanderling": ours}} if ours else {}
        return await self.begin("session/prompt", sessionId=session, prompt=[block], **meta)

    async def prompt(self, session: str, text: str, prompt_id: str = "", **ours: Any) -> str:
        future = await self.begin_prompt(session, text, prompt_id, **ours)
        return (await asyncio.wait_for(future, DEADLINE_S))["stopReason"]

    # --- receiving -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            async for frame in self.socket:
                self._take(json.loads(frame))
                self._news.set()
        except ConnectionClosed:
            pass
        finally:
            for future in self._responses.values():
                if not future.done():
                    future.set_exception(ConnectionError("the connection has ended"))
            self._news.set()

    def _take(self, message: dict[str, Any]) -> None:
        self.messages.append({"direction": "out", "message": message})
        match message:
            case {"method": "session/update", "params": params}:
                self.told.append(params)
            case {"method": "_sanderling/prompt_accepted", "params": params}:
                self.accepted.append(params["promptId"])
            case {"method": "$/cancel_request", "params": params}:
                self.cancelled.append(params["requestId"])
            case {"method": method, "id": request_id, "params": params}:
                self.asked.append(message)
                if answer := self.answers.get(method):
                    self._spawn(self._answer(request_id, answer(params)))
            case {"id": request_id} if request_id in self._responses:
                future = self._responses.pop(request_id)
                if "error" in message:
                    future.set_exception(AgentError(message["error"]))
                else:
                    future.set_result(message["result"])
            case _:
                pass

    async def _answer(self, request_id: Any, answer: Any) -> None:
        result = await answer if inspect.isawaitable(answer) else answer
        await self.send({"id": request_id, "result": result})

    def _spawn(self, sending: Any) -> None:
        async def send() -> None:
            with suppress(*LOST):
                await sending

        self._sending.append(asyncio.create_task(send()))

    async def wait_for(self, condition: Callable[[], Any], what: str = "") -> Any:
        async def wait() -> Any:
            while not (found := condition()):
                self._news.clear()
                await self._news.wait()
            return found

        try:
            return await asyncio.wait_for(wait(), DEADLINE_S)
        except TimeoutError:
            raise AssertionError(f"{what or condition}: {self.messages[-5:]}") from None

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each["update"] for each in self.told if each["update"]["sessionUpdate"] in kinds]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.of(kind))

    @property
    def numbers(self) -> list[int]:
        return [each["_meta"]["sanderling"].get("seq", 0) for each in self.told]

    async def close(self) -> None:
        await self.socket.close()
        await self._task


@asynccontextmanager
async def attached(
    server: Server, capabilities: dict[str, Any] | None = None, *, is_judged: bool = True
) -> AsyncGenerator[Client]:
    """A client that has said what it can do; all that was said is held against the schema at the end, if it `is_judged`."""
    async with server.connect() as socket:
        client = Client(socket)
        await client.initialize(capabilities)
        yield client
        await client.close()
        if is_judged:
            check_wire(client.messages)


def ended(server: Server) -> bool:
    return wait_until(lambda: server.process.poll() is not None)
