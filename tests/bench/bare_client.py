"""
The least that reads an answer: the SDK alone.

`python -m tests.bench.bare_client URL WORDS…` asks each of the words in turn, without any each line that it reads, and prints when it
began, when the first event was there and when the last one was, in CLOCK_MONOTONIC. What the plugin takes is compared with it.
"""

import asyncio
import sys
import time

import anthropic


async def ask(client: anthropic.AsyncAnthropic, words: str) -> tuple[float, float, float]:
    begin, first = time.monotonic(), 0.0
    stream = await client.messages.create(
        model="m",
        max_tokens=1000,
        messages=[{"role": "user", "content": [{"type": "text", "text": words}]}],
        stream=True,
    )
    async for _ in stream:
        first = first or time.monotonic()
    return begin, first, time.monotonic()


async def main(url: str, *prompts: str) -> None:
    client = anthropic.AsyncAnthropic(base_url=url, api_key="bench", max_retries=0)
    for words in prompts or sys.stdin:
        print(*await ask(client, words.strip()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
