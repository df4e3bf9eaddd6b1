"""What Neovim's start, the first `:AgentChat` and the host's memory cost."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.latency import PING_EVERY_S
from tests.bench.shared import Bench, Row, child_pids, median_row, rss_mb
from tests.conftest import ROOT, find_neovim

LINE = "a line of about forty characters or so.\n"
ROUNDS = 120
SETTLED_S = 2.0
WITH_PLUGIN = ("--cmd", f"set rtp^={ROOT}")


def _start(*args: str) -> float:
    """Start Neovim and end it; return its CPU time in ms."""
    environment = os.environ | {"XDG_CONFIG_HOME": os.devnull}
    argv = [find_neovim(), "--clean", "--headless", "-n", *args, "+qall!"]
    pid = subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ).pid
    usage = os.wait4(pid, 0)[2]
    return 1000 * (usage.ru_utime + usage.ru_stime)


def _sourcing_ms(folder: str) -> float:
    log = Path(folder, "log")
    log.unlink(missing_ok=True)
    _start(*WITH_PLUGIN, "--startuptime", str(log))
    line = next(line for line in log.read_text().splitlines() if "plugin/sanderling.lua" in line)
    return float(re.findall(r"\d+\.\d+", line)[2])  # clock, self+sourced, self


def start(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        values = [_sourcing_ms(folder) for _ in bench.times(20)]
    yield median_row("start: plugin/sanderling.lua", values, "ms", 1)
    differences = [_start(*WITH_PLUGIN) - _start() for _ in bench.times(20)]
    yield median_row("start: CPU added by the plugin", differences, "ms")
    with bench.nvim() as nvim:
        count = len(child_pids(nvim.pid))
    yield Row("start: processes started", count, "", 0)


def chat(bench: Bench) -> Iterator[Row]:
    values = []
    for _ in bench.times(7):
        with bench.nvim() as nvim:
            begin = time.monotonic()
            nvim.rpc.send("nvim_input", ":AgentChat<CR>iXYZ")
            end = nvim.wait_for_text("XYZ")
            values.append(1000 * (end - begin))
    yield median_row(":AgentChat → keys are echoed in the prompt", values, "ms", 20)


def memory(bench: Bench) -> Iterator[Row]:
    with bench.nvim({}) as nvim:
        nvim.open_prompt()
        nvim.wait_for_text("demo model")
        before = rss_mb(nvim.host_pid())
    with bench.warm_nvim() as nvim:
        with_client = rss_mb(nvim.host_pid())
    yield Row("host's memory before there is a client", before, "MB", 45)
    yield Row("host's memory with one", with_client, "MB", 60)
    yield from _after_conversations(bench)


def _after_conversations(bench: Bench) -> Iterator[Row]:
    """Each reads 20 KB in every round, and is closed; the pings go on meanwhile."""
    slowest = 0.0
    data = json.dumps({"path": "long.txt", "offset": "#", "limit": 500})
    with bench.warm_nvim() as nvim:
        Path(nvim.project, "long.txt").write_text(LINE * (ROUNDS + 500))
        for _ in bench.times(5):
            answer_id, words = bench.server.words("use", ROUNDS, "read", data)
            nvim.submit(words)
            for _ in range(ROUNDS + 1):
                bench.server.report(answer_id)  # or the server waits for somebody to read it
            nvim.wait_for_mark(f"end{answer_id:06}")
            nvim.wait_until_idle()
            nvim.feed("<Esc>:clear<CR>")
            end = time.monotonic() + SETTLED_S
            while time.monotonic() < end:
                begin = time.monotonic()
                nvim.rpc.request("nvim_exec_lua", "require('sanderling.host').ping()", [])
                slowest = max(slowest, time.monotonic() - begin)
                nvim.follow(begin + PING_EVERY_S)
        after = rss_mb(nvim.host_pid())
    what = f"conversations of {ROUNDS} rounds were closed"
    yield Row(f"host's memory after {len(bench.times(5))} {what}", after, "MB", 105)
    yield Row(f"longest stall of the host's loop when {what}", 1000 * slowest, "ms", 20)
