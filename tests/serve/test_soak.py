"""
Many clients for a while: memory stays as it is, and one who asks now and then does not notice the others.

What is said in a conversation is kept for the model while that goes on, so each client goes over to a new one after thirty prompts, as
people do; it leaves the old one open, which is the server's to end.
"""

import asyncio
import itertools
import os
import statistics
import time
from pathlib import Path

from tests.conftest import prove
from tests.serve.talk import attached

SOAK_S = float(os.environ.get("SANDERLING_SOAK_S", "20"))
CLIENTS = 50
ROUND_PROMPTS = 3
SESSION_ROUNDS = 10


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@prove
async def test_fifty_clients_leave_memory_and_an_idle_one_alone(serve, home):
    server = serve()
    memory: list[float] = []
    waits: list[float] = []
    alone: list[float] = []
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

    async with attached(server, is_judged=False) as idle:
        session = await idle.new(home)

        async def ask(waits: list[float]) -> None:
            began = time.monotonic()
            assert await idle.prompt(session, "ping") == "end_turn"
            waits.append(time.monotonic() - began)

        for _ in range(10):
            await ask(alone)
        ends = time.monotonic() + SOAK_S

        async def watch() -> None:
            while time.monotonic() < ends:
                await ask(waits)
                memory.append(rss_mb(server.process.pid))
                await asyncio.sleep(0.5)

        await asyncio.gather(watch(), *(one(number) for number in range(CLIENTS)))
    half = len(memory) // 2
    print(
        f"{turns} turns; memory {memory[half]:.0f} -> {memory[-1]:.0f} MB; "
        f"{1000 * statistics.median(alone):.0f} ms alone, {1000 * statistics.median(waits):.0f} ms among {CLIENTS}"
    )
    assert turns >= CLIENTS * ROUND_PROMPTS
    assert max(memory[half:]) < 1.15 * max(memory[: half + 1]) + 10
    assert statistics.median(waits) < 2.0
