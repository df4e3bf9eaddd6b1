"""A session elsewhere: the first words over ssh on loopback, and over a server's WebSocket, beside the same without either."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench.shared import Bench, Row, short
from tests.remote.conftest import Elsewhere
from tests.remote.served import Cutter, Server
from tests.remote.ssh_server import has_sshd, serving

ROUNDS = 40


def remote(bench: Bench) -> Iterator[Row]:
    rounds = ROUNDS // 8 if bench.is_quick else ROUNDS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        path = os.environ["PATH"]
        stack.callback(os.environ.__setitem__, "PATH", path)
        elsewhere = Elsewhere(Path(folder))
        os.environ["PATH"] = f"{elsewhere.bin}:{path}"
        plain, _ = asyncio.run(_asked(elsewhere, elsewhere.address(), rounds))
        note = f"over pipes: {short(plain)} ms"
        if has_sshd():
            address = stack.enter_context(serving(elsewhere, Path(folder)))
            warm, cold = asyncio.run(_asked(elsewhere, address, rounds))
            yield Row("elsewhere: prompt → first chunk over ssh, warm", warm, "ms", 20, note)
            yield Row("elsewhere: connecting over ssh → first chunk", cold, "ms", 2_000)
        server = Server(elsewhere).start()
        stack.callback(server.stop)
        warm, _ = asyncio.run(_asked(elsewhere, server.address(), rounds))
        yield Row("elsewhere: prompt → first chunk over WebSocket, warm", warm, "ms", 20, note)
        yield Row(
            "elsewhere: cut → told what was missed",
            asyncio.run(_cut(elsewhere, server)),
            "ms",
            1_500,
        )


async def _asked(elsewhere: Elsewhere, address: str, rounds: int) -> tuple[float, float]:
    """The median of the time to the first words, and that of the first prompt, from opening the session on."""
    from sanderling.protocol.events import TextDelta, TurnEnded

    began = time.monotonic()
    took: list[float] = []
    async with elsewhere.talk(address=address, session_id=f"s{began}".replace(".", "-")) as talk:
        for number in range(1, rounds + 2):
            begun, count = time.monotonic(), len(talk.of(TextDelta))
            talk.submit("ping")
            await talk.wait_for(lambda count=count: len(talk.of(TextDelta)) > count or talk.errors)
            assert not talk.errors, talk.errors
            now = time.monotonic()
            took.append(1000 * (now - (begun if number > 1 else began)))
            await talk.wait_for(lambda number=number: len(talk.of(TurnEnded)) >= number)
    return statistics.median(took[1:]), took[0]


async def _cut(elsewhere: Elsewhere, server: Server) -> float:
    """The time from a cut in a turn until more of it is shown, of which half a second is waited on purpose."""
    from sanderling.protocol.events import TextDelta

    elsewhere.answer({"text": "word " * 4_000, "chunk_chars": 5, "chunk_delay_ms": 1})
    async with (
        Cutter(server.port) as cutter,
        elsewhere.talk(address=server.address(cutter.port), session_id="cut") as talk,
    ):
        talk.submit("go")
        await talk.wait_for(lambda: len(talk.of(TextDelta)) > 5)
        cutter.cut()
        began, count = time.monotonic(), len(talk.of(TextDelta))
        await talk.wait_for(
            lambda: "waiting" in [e.state for e in talk.events if hasattr(e, "attempt")]
        )
        count = len(talk.of(TextDelta))
        await talk.wait_for(lambda: len(talk.of(TextDelta)) > count)
        return 1000 * (time.monotonic() - began)
