"""
What a request costs the longer the conversation is: CPU of the provider for each round of a tool, beside the bare SDK's.

`python -m tests.bench.rounds CLIENT URL WORDS` is the process that is measured: it answers each use of a tool with a page of text
until the model has said all, and prints the CPU of each request in ms.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator

import anthropic
import msgspec

from sanderling.config import Settings
from sanderling.conversation.prompt import system_prompt
from sanderling.protocol.messages import Message, TextBlock, ToolResult, ToolUse
from sanderling.providers import BlockDone, ModelRequest
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.tools.catalog import TOOLS, specs_of
from tests.bench.shared import Bench, Row, median_row
from tests.conftest import ROOT

ROUNDS, PART = 200, 50
MAX_RATIO = 0.5
PAGE = "a line of about forty characters or so.\n" * 100
MODEL = "claude-test"

History = list[Message]


def rounds(bench: Bench) -> Iterator[Row]:
    spent = {client: [_spent_ms(bench, client) for _ in bench.times(5)] for client in CLIENTS}
    for client, runs in spent.items():
        for where, part in (("first", slice(1, PART + 1)), ("last", slice(-PART, None))):
            means = [statistics.mean(run[part]) for run in runs]
            what = f"{ROUNDS} requests of {client}: CPU of each, {where} {PART}"
            yield median_row(what, means, "ms")
    last = {
        client: [statistics.mean(run[-PART:]) for run in runs] for client, runs in spent.items()
    }
    ratio = statistics.median(last["provider"]) / statistics.median(last["bare SDK"])
    what = f"{ROUNDS} requests: CPU of provider's last {PART} / of bare SDK's"
    yield Row(what, ratio, "times", MAX_RATIO)


def _spent_ms(bench: Bench, client: str) -> list[float]:
    answer_id, words = bench.server.words("use", ROUNDS, "read", '{"path":"long.txt","offset":"#"}')
    argv = [sys.executable, "-m", "tests.bench.rounds", client, bench.server.url, words]
    env = os.environ | {"ANTHROPIC_API_KEY": "bench", "NO_PROXY": "*"}
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(ROUNDS + 1):
            bench.server.report(answer_id)  # or the server waits for somebody to read it
        return [float(line) for line in process.stdout]


# --- the process that is measured --------------------------------------------------------------------------------------


async def of_provider(url: str, history: History) -> AsyncIterator[list[ToolUse]]:
    """Ask once for each step; the uses of tools in the answer."""
    with tempfile.TemporaryDirectory() as state_dir:
        provider = AnthropicProvider(Settings(state_dir, base_url=url, model=MODEL))
        await provider.prepare()
        request = ModelRequest(system_prompt(), history, specs_of(TOOLS.values()))
        while True:
            blocks = [i.block async for i in provider.stream(request) if isinstance(i, BlockDone)]
            yield [block for block in blocks if isinstance(block, ToolUse)]


async def of_sdk(url: str, history: History) -> AsyncIterator[list[ToolUse]]:
    client = anthropic.AsyncAnthropic(base_url=url, max_retries=0)
    while True:
        stream = await client.messages.create(
            model=MODEL,
            max_tokens=1000,
            system=system_prompt(),
            tools=msgspec.to_builtins(specs_of(TOOLS.values())),
            messages=msgspec.to_builtins(history),
            stream=True,
        )
        starts = [event async for event in stream if event.type == "content_block_start"]
        blocks = [start.content_block for start in starts]
        yield [ToolUse(b.id, b.name, {"path": "x"}) for b in blocks if b.type == "tool_use"]


CLIENTS = {"provider": of_provider, "bare SDK": of_sdk}


async def main(client: str, url: str, words: str) -> None:
    history = [Message("user", (TextBlock(words),))]
    before = time.process_time()
    async for uses in CLIENTS[client](url, history):
        print(1000 * (time.process_time() - before), flush=True)
        if not uses:
            return
        results = tuple(ToolResult(use.id, PAGE) for use in uses)
        history += [Message("assistant", tuple(uses)), Message("user", results)]
        before = time.process_time()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
