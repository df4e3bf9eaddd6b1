"""What ten reads cost in units (tests/reading.py): one by one and all at once. `python -m tests.bench.units N` is the session."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.events import Event, TurnEnded
from sanderling.protocol.messages import Prompt
from sanderling.providers.choice import make_provider
from sanderling.sandbox.confinement import policy_for
from sanderling.session.session import Session
from tests.bench.shared import Bench, Row
from tests.conftest import DEADLINE_S, ROOT
from tests.reading import FILES, PROMPT, ReadingApi, units, write_files

MAX_UNITS = 39_820  # codecompanion.nvim's


def cost_units(_bench: Bench) -> Iterator[Row]:
    for at_once, how in ((1, "one by one"), (FILES, "all at once")):
        with tempfile.TemporaryDirectory() as home:
            own = {"HOME": home, "XDG_CONFIG_HOME": home, "NO_PROXY": "*"}
            argv = [sys.executable, "-m", "tests.bench.units", str(at_once)]
            done = subprocess.run(
                argv,
                cwd=ROOT,
                env=os.environ | own | {"ANTHROPIC_API_KEY": "sk-ant-test"},
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        told = json.loads(done.stdout)
        note = "{requests} requests, {first:,} bytes in the first, {bytes:,} in all".format(**told)
        yield Row(f"{FILES} files read {how}", told["units"], "cost units", MAX_UNITS, note)


async def _run(folder: Path, api: ReadingApi) -> None:
    project = folder / "project"
    write_files(project / "src")
    events: list[Event] = []
    settings = Settings(state_dir=str(folder / "state"), **api.options)
    async with AsyncExitStack() as stack:
        session = Session.open(settings.session_dir, "s1", str(project))
        stack.callback(session.close)
        provider = make_provider(settings)
        stack.push_async_callback(provider.aclose)
        policy = policy_for(settings, str(project))
        services = SessionServices(session, provider, events.append, policy, settings)
        conversation = Conversation(services)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(conversation.serve)
        stack.callback(conversation.close)
        conversation.submit(Prompt("p1", PROMPT))
        with anyio.fail_after(DEADLINE_S):
            while not any(isinstance(event, TurnEnded) for event in events):
                await anyio.sleep(0.005)


def main(at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ReadingApi(at_once) as api:
        anyio.run(_run, Path(folder), api)
    told = {
        "units": units(api.asked),
        "requests": len(api.asked),
        "first": api.sizes[0],
        "bytes": sum(api.sizes),
        "each": [each.usage for each in api.asked],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]))
