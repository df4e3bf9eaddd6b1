"""
What a request costs until the server has it, by another wire than Claude's, beside Claude's in the same run.

Cold is a run of `sanderling -p`, from the start of its process; warm is a prompt in a process that has asked before.
`python -m tests.bench.first_request URL MODEL WORDS…` is the process of the warm ones: it prints when it began with each.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from sanderling.config import Settings
from sanderling.conversation.prompt import system_prompt
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest
from sanderling.providers.choice import make_provider
from sanderling.tools.catalog import TOOLS, specs_of
from tests.bench.print_mode import project
from tests.bench.shared import Bench, Row, percentile, short
from tests.conftest import ROOT

DELTAS = 3
WARM = 30
MAX_RATIO = 1.2
CLAUDE = "claude-test"
OTHERS = {"Chat Completions": "chat:m", "Responses": "responses:m", "Ollama": "ollama:m"}
BASES = {"chat": "/v1", "responses": "/v1", "ollama": ""}


def first_request(bench: Bench) -> Iterator[Row]:
    for wire, model in OTHERS.items():
        for when, measure in (("cold", _cold_ms), ("warm", _warm_ms)):
            theirs: list[float] = []
            ours: list[float] = []
            for _ in bench.times(9):  # in turns, so that what else the machine does meets both
                theirs.append(measure(bench, CLAUDE))
                ours.append(measure(bench, model))
            cost, cost_of_claude = statistics.median(ours), statistics.median(theirs)
            note = f"{short(cost)} against {short(cost_of_claude)} ms, medians of {len(ours)}"
            what = f"{wire}: {when} first request, of Claude's"
            yield Row(what, cost / cost_of_claude, "", MAX_RATIO, note)


def _providers(url: str) -> dict[str, dict[str, str]]:
    return {wire: {"wire": wire, "base_url": url + base} for wire, base in BASES.items()}


@contextmanager
def _project(bench: Bench) -> Generator[tuple[Path, dict[str, str]]]:
    """A project, as in print mode's rows, whose person has declared `BASES`."""
    with project(bench) as (folder, environment):
        config = folder.parent / "config/sanderling/config.toml"
        config.parent.mkdir(parents=True)
        lines = (
            f'[providers.{name}]\nwire = "{each["wire"]}"\nbase_url = "{each["base_url"]}"'
            for name, each in _providers(bench.server.url).items()
        )
        config.write_text("\n".join(lines))
        yield folder, environment


def _cold_ms(bench: Bench, model: str) -> float:
    answer_id, words = bench.server.words("stream", DELTAS, 0)
    with _project(bench) as (folder, environment):
        argv = [sys.executable, "-m", "sanderling", "-p", "--model", model, words]
        begin = time.monotonic()
        subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    return 1000 * (bench.server.report(answer_id)["at"] - begin)


def _warm_ms(bench: Bench, model: str) -> float:
    prompts = [bench.server.words("stream", DELTAS, 0) for _ in range(WARM + 1)]
    with _project(bench) as (_, environment):
        argv = [sys.executable, "-m", "tests.bench.first_request", bench.server.url, model]
        run = subprocess.run(
            [*argv, *(words for _, words in prompts)],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    begins = map(float, run.stdout.split())
    costs = [
        1000 * (bench.server.report(answer_id)["at"] - begin)
        for (answer_id, _), begin in zip(prompts, begins, strict=True)
    ]
    return percentile(costs[1:], 10)  # what is more is the machine's


# --- the process that is measured --------------------------------------------------------------------------------------


async def main(url: str, model: str, *prompts: str) -> None:
    with tempfile.TemporaryDirectory() as state_dir:
        provider = make_provider(Settings(state_dir, model=model, providers=_providers(url)))
        specs = specs_of(TOOLS.values())
        for words in prompts:
            history = [Message("user", (TextBlock(words),))]
            print(time.monotonic())
            async for _ in provider.stream(ModelRequest(system_prompt(), history, specs)):
                pass
        await provider.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
