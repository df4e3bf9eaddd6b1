"""
Many clients for a while: memory stays as it is, and one who asks now and then does not notice the others.

What is said in a conversation is kept for the model while that goes on, so each client goes over to a new one after thirty prompts, as
people do; it leaves the old one open, which is the server's to end.
"""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tests.acp.talk import Home
from tests.conftest import ROOT, prove
from tests.serve.talk import Server, attached

SOAK_S = float(os.environ.get("SANDERLING_SOAK_S", "20"))
CLIENTS = 50
ALONE = 10
ROUND_PROMPTS = 3
SESSION_ROUNDS = 10


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@contextmanager
def waiting_client(server: Server, home: Home) -> Generator[Callable[[], tuple[float, float]]]:
    """A client in a process of its own, for it is the server that is to be seen; gives what it has waited next, in ms."""
    argv = [sys.executable, "-m", "tests.serve.idle", server.url, server.token, home.project]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:

        def next_wait() -> tuple[float, float]:
            ping, prompt = map(float, process.stdout.readline().split())
            return ping, prompt

        yield next_wait
        process.kill()


@prove
async def test_fifty_clients_leave_memory_and_an_idle_one_alone(serve, home):
    server = serve()
    memory: list[float] = []
    waits: list[tuple[float, float]] = []
    ends = 0.0
    turns = 0

    async def one(number: int) -> None:
        nonlocal turns
        session, prompt = "", 0
        for count in itertools.count():
            if time.monotonic() >= ends:
                return
            async with attached(
                server, is_judged=False
            ) as client:  # comes again, as one that was cut off
                if count % SESSION_ROUNDS == 0:
                    session = await client.new(home)
                else:
                    await client.again("resume", home, session)
                for _ in range(ROUND_PROMPTS):
                    prompt += 1
                    assert await client.prompt(session, "ping", f"p{number}-{prompt}") == "end_turn"
                    turns += 1
                    await asyncio.sleep(0.2)

    with waiting_client(server, home) as next_wait:
        alone = [await asyncio.to_thread(next_wait) for _ in range(ALONE)]
        ends = time.monotonic() + SOAK_S

        async def watch() -> None:
            while time.monotonic() < ends:
                waits.append(await asyncio.to_thread(next_wait))
                memory.append(rss_mb(server.process.pid))

        await asyncio.gather(watch(), *(one(number) for number in range(CLIENTS)))
    half = len(memory) // 2
    print(f"{turns} turns; memory {memory[half]:.0f} -> {memory[-1]:.0f} MB")
    for what, number in (("ping", 0), ("prompt", 1)):
        before, among = (
            statistics.median(each[number] for each in times) for times in (alone, waits)
        )
        print(f"{what}: {before:.1f} ms alone, {among:.1f} ms among {CLIENTS}")
    assert turns >= CLIENTS * ROUND_PROMPTS
    assert max(memory[half:]) < 1.15 * max(memory[: half + 1]) + 10
    assert waits, "the one that asks now and then is answered among the others"
