"""A stop in the middle of a command of the model's: what a person sees, and when nothing of it runs any more."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.shared import Bench, Row, median_row

ROUNDS = 10
CHECK_EVERY_S = 0.001
SLEEPS_S = itertools.count(100_000)  # each tells its own processes from all others


def interrupt(bench: Bench) -> Iterator[Row]:
    seen, gone = [], []
    with bench.warm_nvim() as nvim:
        nvim.lua("require('sanderling').mode('auto')")
        for _ in bench.times(ROUNDS):
            nvim.lua("require('sanderling').clear()")
            nvim.lua("require('sanderling').mode('auto')")
            nvim.wait(lambda: "Stopped." not in nvim.screen_seen.text(), "an empty chat")
            mark = str(next(SLEEPS_S))
            tree = f"setsid sleep {mark} & (trap '' INT TERM; sleep {mark}) & sleep {mark}"
            _, words = bench.server.words("use", 1, "bash", json.dumps({"command": tree}))
            nvim.submit(words)
            nvim.wait(lambda mark=mark: len(_running(mark)) == 3, "its processes")
            begin = time.monotonic()
            nvim.rpc.send("nvim_input", "<C-c>")
            seen.append(1000 * (nvim.wait_for_text("Stopped.") - begin))
            while _running(mark):
                time.sleep(CHECK_EVERY_S)
            gone.append(1000 * (time.monotonic() - begin))
            nvim.wait_until_idle()
    yield median_row("<C-c> while a command runs → “Stopped.” on the screen", seen, "ms", 50)
    yield median_row("… → its tree is dead (looked at after “Stopped.”)", gone, "ms", 300)


def _running(mark: str) -> list[str]:
    """The processes that sleep for as long as `mark` says."""
    found: list[str] = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(directory.name)
    return found
