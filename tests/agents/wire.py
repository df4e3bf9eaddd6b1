"""A client without a screen, in a few lines: it starts an agent as we do, and serves it with what we serve."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from sanderling.agents.calls import Diff, ToolCall
from sanderling.agents.declared import load_agent
from sanderling.agents.process import AgentProcess, running
from sanderling.errors import SanderlingError
from sanderling.permissions.gate import DeniedError
from tests.agents.test_served import Served, serving


class Client:
    """A client of one agent. `asked` are the questions that it was asked, `called` the methods that it was called by."""

    def __init__(self, served: Served, agent: AgentProcess) -> None:
        self.served = served
        self.agent = agent
        self.updates: list[dict[str, Any]] = []
        self.asked: list[ToolCall] = []
        self.called: list[str] = []
        self.session = ""
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[anyio.Event, list[Any]]] = {}

    async def run(self) -> None:
        rest = b""
        async with anyio.create_task_group() as tasks:
            async for chunk in self.agent.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    message = json.loads(line)
                    if "method" not in message:
                        event, box = self._answers[message["id"]]
                        box.append(message)
                        event.set()
                    elif "id" in message:
                        tasks.start_soon(self._serve, message)
                    else:
                        self.updates.append(message["params"].get("update", {}))
            raise AssertionError(f"{await self.agent.wait()}\n{self.agent.log.text()}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        event, box = self._answers[number] = anyio.Event(), []
        await self._send(id=number, method=method, params=params)
        await event.wait()
        assert "result" in box[0], box[0]
        return box[0]["result"]

    async def begin(self) -> None:
        can = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
        await self.call("initialize", protocolVersion=1, clientCapabilities=can)
        project = str(self.served.project)
        self.session = (await self.call("session/new", cwd=project, mcpServers=[]))["sessionId"]

    async def say(self, text: str) -> str:
        """Have a turn; return all that the agent says in it."""
        count = len(self.updates)
        prompt = [{"type": "text", "text": text}]
        answer = await self.call("session/prompt", sessionId=self.session, prompt=prompt)
        assert answer["stopReason"] == "end_turn", answer
        told = (each for each in self.updates[count:] if "chunk" in each.get("sessionUpdate", ""))
        return "".join(each["content"].get("text", "") for each in told)

    async def _send(self, **message: Any) -> None:
        await self.agent.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _serve(self, message: dict[str, Any]) -> None:
        self.called.append(message["method"])
        try:
            result = await self._result(message["method"], message["params"])
            await self._send(id=message["id"], result=result)
        except (SanderlingError, DeniedError) as error:
            await self._send(id=message["id"], error={"code": -32000, "message": str(error)})

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        files, terminals = self.served.files, self.served.terminals
        terminal = params.get("terminalId", "")
        match method:
            case "fs/read_text_file":
                text = await files.read(params["path"], params.get("line"), params.get("limit"))
                return {"content": text}
            case "fs/write_text_file":
                await files.write(params["path"], params["content"])
            case "terminal/create":
                made = await terminals.create(
                    params["command"],
                    params.get("args") or (),
                    env={each["name"]: each["value"] for each in params.get("env") or ()},
                    cwd=params.get("cwd") or "",
                    output_bytes=params.get("outputByteLimit"),
                )
                return {"terminalId": made.id}
            case "terminal/output":
                output = terminals.output(terminal)
                exit_ = output.exit and {"exitCode": output.exit.code, "signal": output.exit.signal}
                more = {"exitStatus": exit_} if exit_ else {}
                return {"output": output.text, "truncated": output.is_truncated, **more}
            case "terminal/wait_for_exit":
                ended = await terminals.wait(terminal)
                return {"exitCode": ended.code, "signal": ended.signal}
            case "terminal/kill":
                terminals.kill(terminal)
            case "terminal/release":
                terminals.release(terminal)
            case "session/request_permission":
                return self._judged(params)
            case _:
                raise AssertionError(method)
        return {}

    def _judged(self, params: dict[str, Any]) -> dict[str, Any]:
        told = params["toolCall"]
        diffs = (each for each in told.get("content") or () if each["type"] == "diff")
        call = ToolCall(
            told.get("kind") or "other",
            told.get("rawInput"),
            tuple(Diff(each["path"], each.get("oldText"), each["newText"]) for each in diffs),
            tuple(each["path"] for each in told.get("locations") or ()),
        )
        self.asked.append(call)
        verdict = self.served.permits.judge(call)
        kind = "allow_once" if verdict.action == "allow" else "reject_once"
        option = next(each["optionId"] for each in params["options"] if each["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option}}


@asynccontextmanager
async def client_of(
    base: Path, entry: dict[str, Any], mode: Any = "auto", **options: Any
) -> AsyncIterator[Client]:
    """A session in which the agent runs that `entry` declares, and has begun one of its own."""
    async with serving(base, mode=mode, **options) as served:
        declared = load_agent("it", {"it": entry})
        async with running(declared, served.services.sandbox, str(served.project)) as agent:
            client = Client(served, agent)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.run)
                await client.begin()
                yield client
                tasks.cancel_scope.cancel()
