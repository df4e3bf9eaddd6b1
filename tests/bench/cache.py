"""What forty turns of a session read from the API's cache. `python -m tests.bench.cache` is the session."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio

from tests.bench.shared import Bench, Row
from tests.cached_session import TURNS, CachedSession
from tests.conftest import ROOT

WITHOUT_FIRST_TURN = 2  # its requests


def cache(_bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "NO_PROXY": "*",
        }
        argv = [sys.executable, "-m", "tests.bench.cache"]
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    told = json.loads(done.stdout)
    note = f"{told['requests']} requests"
    name = f"{TURNS} turns: input tokens not read from the API's cache"
    yield Row(name, 100 * (1 - told["share"]), "%", 5, note)
    yield Row("the same, without the first turn", 100 * (1 - told["share_later"]), "%", 2)
    yield Row(f"{TURNS} turns: changes of the prefix, and requests refused", told["wrong"], "", 0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = CachedSession(Path(folder))
        anyio.run(session.run)
    api = session.api
    told = {
        "requests": len(api.asked),
        "share": api.read_share(),
        "share_later": api.read_share(WITHOUT_FIRST_TURN),
        "wrong": len(api.changes) + len(api.refused),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
