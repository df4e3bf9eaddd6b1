"""What tool servers cost: a call next to the bare SDK's, the first request of a session that has some, the memory of many."""

import asyncio
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from sanderling.mcp.server import Server
from sanderling.mcp.servers import load_servers
from sanderling.mcp.source import McpSource
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import SandboxPolicy
from tests.bench.latency import first_request
from tests.bench.sandbox import _descendants, _policy, pss_mb
from tests.bench.shared import Bench, Row, ms_of, rss_mb, short
from tests.mcp.conftest import HOSTILE, PYTHON

CALLS = 200
MANY = 20
MAX_SHARE, STEP_MS = 0.2, 30  # of what a first prompt takes; of one step of their loading
LOADING_S = 0.9  # after :AgentChat
SETTLED_S = 0.5


def servers(bench: Bench) -> Iterator[Row]:
    yield from _first_requests(bench)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        policy = _policy(Path(folder, "project"), Path(folder, "state"))
        yield from asyncio.run(_calls(bench, policy))
        yield from asyncio.run(_memory(policy))


def declared(*how: str) -> dict[str, Any]:
    return {"command": [PYTHON, HOSTILE, *how], "paths": [str(Path(HOSTILE).parent)]}


SLEEPING = {f"s{n}": declared("slow:10") for n in range(3)}


# the first request ---------------------------------------------------------------------------------------------------


def _first_requests(bench: Bench) -> Iterator[Row]:
    """Servers that never get ready, and begin to be started when the chat is open."""
    for settled_s, what in ((0.0, "with :AgentChat"), (LOADING_S, "while their SDK is loaded")):
        without, among = [], []
        for _ in bench.times(7):
            without.append(first_request(bench, settled_s))
            among.append(first_request(bench, settled_s, SLEEPING))
        usual = statistics.median(without)
        added = statistics.median(among) - usual
        words = f"3 servers that sleep 10 s: added to a first prompt {what}"
        target = MAX_SHARE * usual + STEP_MS
        yield Row(words, added, "ms", target, f"{short(usual)} ms without")


# calls ---------------------------------------------------------------------------------------------------------------


async def _calls(bench: Bench, policy: SandboxPolicy) -> list[Row]:
    count = CALLS // 10 if bench.is_quick else CALLS
    bare = await _bare_calls(count)
    words = {"words": "x"}
    async with AsyncExitStack() as stack:
        [server] = await _served(stack, policy, {"s": declared()})
        begin = time.monotonic()
        ours = [await ms_of(lambda: server.call("echo", words)) for _ in range(count)]
        at_once = await _at_once(server)
        assert time.monotonic() - begin < 60
    note = f"{short(statistics.median(ours))} ms; the bare SDK: {short(statistics.median(bare))} ms"
    added = statistics.median(ours) - statistics.median(bare)
    return [
        Row("a tool server's call, over the bare SDK's", added, "ms", 5, note),
        Row("200 calls of a tool server at once", at_once, "ms", 2_000),
    ]


async def _at_once(server: Server) -> float:
    begin = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(server.call, "echo", {"words": str(number)})
    return 1000 * (time.monotonic() - begin)


async def _bare_calls(count: int) -> list[float]:
    from mcp import Client, StdioServerParameters

    command, *arguments = declared()["command"]
    words = {"words": "x"}
    async with Client(StdioServerParameters(command=command, args=arguments)) as client:
        return [await ms_of(lambda: client.call_tool("echo", words)) for _ in range(count)]


async def _served(
    stack: AsyncExitStack, policy: SandboxPolicy, declared: dict[str, Any]
) -> list[Server]:
    """Servers that are ready, until the stack is closed."""
    session = SessionSandbox(policy, lambda _: None, lambda: None)
    source = McpSource(load_servers(declared), session, policy.project)
    tasks = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(tasks.cancel_scope.cancel)
    tasks.start_soon(session.manager.serve)
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
            "servers": sum(map(pss_mb, own)),
            "sandbox": sum(map(pss_mb, pids - own)),
        }


def _command_line(pid: int) -> str:
    return re.sub("\0", " ", Path(f"/proc/{pid}/cmdline").read_text())
