"""
What tool servers cost: a call next to the bare SDK's, the first request of a session that has some, the memory of many.

`python -m tests.bench.servers URL WORDS COUNT DELAY_S` is a session with COUNT servers that sleep for 10 s. It sends WORDS as its
first prompt, DELAY_S after it was opened, and prints when that was.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from sanderling.config import Settings
from sanderling.conversation.opening import Wishes, open_conversation
from sanderling.mcp.server import Server
from sanderling.mcp.servers import load_servers
from sanderling.mcp.source import McpSource
from sanderling.protocol.actions import SubmitPrompt
from sanderling.protocol.events import Event, TurnEnded
from sanderling.protocol.messages import Prompt
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import SandboxPolicy
from tests.bench.sandbox import _descendants, _policy, _pss_mb
from tests.bench.shared import Bench, Row, rss_mb, short
from tests.conftest import ROOT
from tests.mcp.conftest import HOSTILE, PYTHON

CALLS = 200
MANY = 20
SLEEPS = "slow:10"
LOADING_MS = 20  # of one step
LOADING_S = 0.9  # after the opening: the SDK of the servers is being loaded
SETTLED_S = 0.5


def servers(bench: Bench) -> Iterator[Row]:
    yield from _first_requests(bench)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        policy = _policy(Path(folder, "project"), Path(folder, "state"))
        yield from asyncio.run(_calls(bench, policy))
        yield from asyncio.run(_memory(policy))


def declared(*how: str) -> dict[str, Any]:
    return {"command": [PYTHON, HOSTILE, *how], "paths": [str(Path(HOSTILE).parent)]}


# the first request ---------------------------------------------------------------------------------------------------


def _first_requests(bench: Bench) -> Iterator[Row]:
    for delay_s, what in ((0.0, "at once"), (LOADING_S, "while their SDK is loaded")):
        without, among = [], []
        for _ in bench.times(9):
            without.append(_first_request(bench, 0, delay_s))
            among.append(_first_request(bench, 3, delay_s))
        note = f"{short(statistics.median(without))} ms without"
        added = statistics.median(among) - statistics.median(without)
        words = f"3 servers that sleep 10 s: added to a first prompt {what}"
        yield Row(words, added, "ms", 0.2 * statistics.median(without) + LOADING_MS, note)


def _first_request(bench: Bench, count: int, delay_s: float) -> float:
    """The ms from the first prompt of a session to the arrival of its request."""
    answer_id, words = bench.server.words("stream", 3, 0)
    argv = [sys.executable, "-m", "tests.bench.servers", bench.server.url]
    begun = subprocess.run(
        [*argv, words, str(count), str(delay_s)], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    return 1000 * (bench.server.report(answer_id)["at"] - float(begun))


async def _session(url: str, words: str, count: int, delay_s: float, folder: str) -> None:
    os.environ |= {"ANTHROPIC_API_KEY": "bench", "ANTHROPIC_BASE_URL": url, "NO_PROXY": "*"}
    project = Path(folder, "project")
    project.mkdir()  # noqa: ASYNC240
    settings = Settings(
        state_dir=f"{folder}/state", mcp_servers={f"s{n}": declared(SLEEPS) for n in range(count)}
    )
    ended = anyio.Event()

    def take(event: Event) -> None:
        if isinstance(event, TurnEnded):
            ended.set()

    opened = await open_conversation("s1", str(project), settings, take, Wishes())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opened.agent.serve)
        await anyio.sleep(delay_s)
        print(time.monotonic(), flush=True)
        opened.agent.act(SubmitPrompt(Prompt("p1", words)))
        await ended.wait()
        os._exit(0)


# calls ---------------------------------------------------------------------------------------------------------------


async def _calls(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    count = CALLS // 10 if bench.is_quick else CALLS
    bare = await _bare_calls(count)
    async with AsyncExitStack() as stack:
        [server] = await _served(stack, policy, {"s": declared()})
        begin = time.monotonic()
        ours = [await _ms(server.call("echo", {"words": "x"})) for _ in range(count)]
        at_once = await _at_once(server)
        assert time.monotonic() - begin < 60
    note = f"{short(statistics.median(ours))} ms; the bare SDK: {short(statistics.median(bare))} ms"
    added = statistics.median(ours) - statistics.median(bare)
    return [
        Row("a tool server's call, over the bare SDK's", added, "ms", 5, note),
        Row("200 calls of a tool server at once", at_once, "ms", 2_000),
    ]


async def _ms(call: Any) -> float:
    begin = time.monotonic()
    await call
    return 1000 * (time.monotonic() - begin)


async def _at_once(server: Server) -> float:
    begin = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(server.call, "echo", {"words": str(number)})
    return 1000 * (time.monotonic() - begin)


async def _bare_calls(count: int) -> list[float]:
    from mcp import Client, StdioServerParameters

    command, *arguments = declared()["command"]
    async with Client(StdioServerParameters(command=command, args=arguments)) as client:
        return [await _ms(client.call_tool("echo", {"words": "x"})) for _ in range(count)]


async def _served(
    stack: AsyncExitStack, policy: SandboxPolicy, declared: dict[str, Any]
) -> list[Server]:
    """Servers that are ready, until the stack is closed."""
    session = SessionSandbox(policy, lambda _: None, lambda: None)
    source = McpSource(load_servers(declared), session, policy.project)
    tasks = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(tasks.cancel_scope.cancel)
    tasks.start_soon(session.serve)
    tasks.start_soon(source.run)
    source.begin()
    for server in source.servers.values():
        await server.settled()
        assert server.status.state == "ready", server.status
    return [*source.servers.values()]


# memory --------------------------------------------------------------------------------------------------------------


async def _memory(policy: SandboxPolicy) -> list[Row]:
    """Servers of which each has something of its own, and so a view of its own."""
    of_one = await _sizes(policy, 1)
    of_many = await _sizes(policy, MANY)
    host = of_many["host"] - of_one["host"]
    each = (of_many["sandbox"] - of_one["sandbox"]) / (MANY - 1)
    server = of_many["servers"] / MANY
    note = f"{short(of_many['sandbox'])} MB of {MANY}"
    return [
        Row(f"{MANY} tool servers: ready after", of_many["ready"], "ms"),
        Row("tool server: the host's memory for another one", host / (MANY - 1), "MB", 1),
        Row("tool server: the sandbox's memory for one (PSS)", each, "MB", 9, note),
        Row("tool server: its own memory (PSS), an idle Python", server, "MB"),
    ]


async def _sizes(policy: SandboxPolicy, count: int) -> dict[str, float]:
    others = set(_descendants(os.getpid()))
    async with AsyncExitStack() as stack:
        begin = time.monotonic()
        await _served(stack, policy, {f"n{n}": declared(f"of:{count}") for n in range(count)})
        ready = 1000 * (time.monotonic() - begin)
        await anyio.sleep(SETTLED_S)
        pids = set(_descendants(os.getpid())) - others
        own = {pid for pid in pids if f"of:{count}" in _command_line(pid)}
        return {
            "ready": ready,
            "host": rss_mb(os.getpid()),
            "servers": sum(map(_pss_mb, own)),
            "sandbox": sum(map(_pss_mb, pids - own)),
        }


def _command_line(pid: int) -> str:
    return re.sub("\0", " ", Path(f"/proc/{pid}/cmdline").read_text())


def main() -> None:
    url, words, count, delay_s = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asyncio.run(_session(url, words, int(count), float(delay_s), folder))


if __name__ == "__main__":
    main()
