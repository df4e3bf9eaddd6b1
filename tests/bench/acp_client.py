"""Another agent in a session of ours: the first words after a prompt, beside a bare client, and a thousand of them."""

import asyncio
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.bench.shared import Bench, Row, short

AGENT = Path(__file__).parents[1] / "acp_client" / "agent.py"
CHUNKS, ROUNDS = 1_000, 40
SCRIPT = {
    "prompts": {"ping": [{"say": "pong"}], "go": [{"flood": {"count": CHUNKS, "text": "word "}}]}
}


def acp_client(bench: Bench) -> Iterator[Row]:
    rounds = ROUNDS // 8 if bench.is_quick else ROUNDS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        script = Path(folder, "script.json")
        script.write_text(json.dumps(SCRIPT))
        argv = [sys.executable, str(AGENT), str(script)]
        bare, bare_flood = [0.0], 0.0
        if importlib.util.find_spec("acp"):  # the SDK is there
            bare, bare_flood = asyncio.run(_bare(argv, folder, rounds))
        ours, flood, cold = asyncio.run(_ours(argv, folder, rounds))
    added = statistics.median(ours) - statistics.median(bare)
    note = f"{short(statistics.median(ours))} ms; the bare SDK: {short(statistics.median(bare))} ms"
    yield Row("another agent: prompt → first chunk, over a bare client's", added, "ms", 10, note)
    note = f"the bare SDK: {short(bare_flood)} ms"
    yield Row(f"another agent: {CHUNKS:,} chunks", flood, "ms", 1_000, note)
    yield Row("another agent: opening its session in the sandbox → first chunk", cold, "ms", 2_000)


async def _bare(argv: list[str], folder: str, rounds: int) -> tuple[list[float], float]:
    """A client on the official SDK for Python that does nothing with what it is told but look at the clock."""
    from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block

    arrived = [0.0]

    class Bare(Client):
        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ARG002
            arrived[0] = arrived[0] or time.monotonic()

    async with spawn_agent_process(Bare(), argv[0], *argv[1:]) as (agent, _):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        session = await agent.new_session(cwd=folder, mcp_servers=[])
        took: list[float] = []

        async def ask(text: str) -> float:
            arrived[0], began = 0.0, time.monotonic()
            await agent.prompt(session_id=session.session_id, prompt=[text_block(text)])
            took.append(1000 * (arrived[0] - began))
            return 1000 * (time.monotonic() - began)

        for _ in range(rounds):
            await ask("ping")
        return took, await ask("go")


async def _ours(argv: list[str], folder: str, rounds: int) -> tuple[list[float], float, float]:
    from sanderling.protocol.events import TextDelta, TurnEnded
    from tests.acp_client.conftest import OF_PYTHON, Guests

    guests = Guests(Path(folder), Path(folder, "state"))
    paths = [str(AGENT.parent), argv[-1], *OF_PYTHON]
    async with AsyncExitStack() as stack:
        began = time.monotonic()
        talk = await stack.enter_async_context(
            guests.talk({}, command=argv, paths=paths, sandbox=True)
        )
        took: list[float] = []

        async def ask(text: str) -> float:
            begun, count = time.monotonic(), len(talk.of(TextDelta))
            talk.submit(text)
            await talk.wait_for(lambda: len(talk.of(TextDelta)) > count or talk.errors)
            assert not talk.errors, talk.errors
            took.append(1000 * (time.monotonic() - begun))
            ended = len(took)
            await talk.wait_for(lambda: len(talk.of(TurnEnded)) >= ended)
            return 1000 * (time.monotonic() - begun)

        await ask("ping")
        cold = 1000 * (time.monotonic() - began)
        for _ in range(rounds):
            await ask("ping")
        return took[1:], await ask("go"), cold
