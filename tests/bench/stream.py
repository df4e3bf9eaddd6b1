"""A model that talks: what it costs, how late its words and one's own keys are, however long the chat is."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.bench.shared import Bench, BenchNvim, Row, median_row, percentile, rss_mb
from tests.conftest import cpu_s

RATE = 100  # deltas per second
IDLE_S = 4
SIZES = (0, 20_000, 100_000)  # lines
FLOOD = 20_000  # deltas at once
GROWN = 100_000  # lines
FULL_SPEED = 2_000  # pieces per second, of a fast model or of one that copies
GROWN_S = 5
COUNT_MARKS = """
local ns = vim.api.nvim_get_namespaces().sanderling_markdown
return #vim.api.nvim_buf_get_extmarks(require('sanderling').transcript().buf, ns, 0, -1, {})
"""
TARGETS: dict[str, tuple[str, float | None]] = {
    "Neovim's CPU": ("%", 5),
    "key echo p99": ("ms", 5),
    "text lag p50": ("ms", 12),
    "text lag p99": ("ms", 20),
    "key echo p99 without a stream": ("ms", None),
}


def type_until(nvim: BenchNvim, is_over: Callable[[], bool]) -> list[float]:
    """Type a key about every 50 ms; return the ms that each took to be on the screen."""
    echoes = []
    while not is_over():
        echoes.append(1000 * nvim.echo_s())
        nvim.follow(time.monotonic() + random.uniform(0.04, 0.06))  # never in step with the text
    return echoes


def _stream_once(bench: Bench, nvim: BenchNvim) -> dict[str, float]:
    """Stream for some seconds while keys are typed, and type before without the stream, which tells what the typing costs."""
    duration_s = 3 if bench.is_quick else 10
    nvim.begin_to_type()
    before, end = cpu_s(nvim.pid), time.monotonic() + IDLE_S
    idle_echoes = type_until(nvim, lambda: time.monotonic() > end)
    idle_cpu = (cpu_s(nvim.pid) - before) / IDLE_S

    answer_id, words = bench.server.words("stream", duration_s * RATE, RATE)
    nvim.submit(words)
    nvim.wait_for_mark(f"begin{answer_id:06}")
    before = cpu_s(nvim.pid)
    echoes = type_until(nvim, lambda: f"end{answer_id:06}" in nvim.screen_seen.seen)
    busy_cpu = (cpu_s(nvim.pid) - before) / duration_s
    nvim.wait_until_idle()
    sent, seen = bench.server.report(answer_id)["sent"], nvim.screen_seen.seen
    lags = [1000 * (seen[mark] - at) for mark, at in sent.items() if mark in seen]
    assert len(lags) > 0.9 * len(sent), "most marks are shown"
    return {
        "Neovim's CPU": 100 * (busy_cpu - idle_cpu),
        "key echo p99": percentile(echoes, 99),
        "text lag p50": statistics.median(lags),
        "text lag p99": percentile(lags, 99),
        "key echo p99 without a stream": percentile(idle_echoes, 99),
    }


def stream(bench: Bench) -> Iterator[Row]:
    """Chats of three sizes take turns, so that what disturbs the machine disturbs them alike."""
    with ExitStack() as stack:
        chats = {size: stack.enter_context(bench.warm_nvim()) for size in SIZES}
        for size, nvim in chats.items():
            answer_id, words = bench.server.words("fill", size)
            nvim.answer_to(words, answer_id)
        rounds = [
            {size: _stream_once(bench, nvim) for size, nvim in chats.items()}
            for _ in bench.times(3)
        ]
    for size in SIZES:
        for what, (unit, target) in TARGETS.items():
            value, empty = (
                statistics.median(figures[which][what] for figures in rounds) for which in (size, 0)
            )
            yield Row(
                f"{RATE} deltas/s, {size:,} lines: {what}",
                value,
                unit,
                target,
                reference=empty if size and target else None,
            )


def grown(bench: Bench) -> Iterator[Row]:
    """
    What a chat costs that has just grown at full speed.

    Nothing is measured before and subtracted: that would hide work that was put off.
    """
    cpus, marks, sizes = [], [], []
    for _ in bench.times(3):
        with bench.warm_nvim() as nvim:
            answer_id, words = bench.server.words("fill", GROWN, FULL_SPEED)
            nvim.answer_to(words, answer_id)
            answer_id, words = bench.server.words("stream", 2 * GROWN_S * RATE, RATE)
            nvim.submit(words)
            begin = nvim.wait_for_mark(f"begin{answer_id:06}")
            before = cpu_s(nvim.pid)
            nvim.follow(begin + 0.5)
            marks.append(nvim.lua(COUNT_MARKS))
            nvim.follow(begin + GROWN_S)
            cpus.append(100 * (cpu_s(nvim.pid) - before) / (time.monotonic() - begin))
            sizes.append(rss_mb(nvim.pid))
    what = f"{GROWN:,} lines at {FULL_SPEED:,} pieces/s"
    yield median_row(f"{what}: Neovim's CPU in the next {GROWN_S} s", cpus, "%", 10)
    yield median_row(f"{what}: highlights 0.5 s later", marks, "", 12_000)
    yield median_row(f"{what}: Neovim's memory", sizes, "MB", 60)


def flood(bench: Bench) -> Iterator[Row]:
    walls, cpus, echoes = [], [], []
    with bench.warm_nvim() as nvim:
        for _ in bench.times(5):
            nvim.lua("require('sanderling').clear()")
            answer_id, words = bench.server.words("stream", FLOOD, 0)
            nvim.write(words)
            before, begin = cpu_s(nvim.pid), time.monotonic()
            nvim.rpc.send("nvim_input", "<CR>")
            walls.append(nvim.wait_for_mark(f"end{answer_id:06}") - begin)
            cpus.append(cpu_s(nvim.pid) - before)
            nvim.wait_until_idle()
        for _ in bench.times(3):
            nvim.begin_to_type()
            answer_id, words = bench.server.words("stream", FLOOD, 0)
            nvim.submit(words)
            end = f"end{answer_id:06}"
            echoes += type_until(nvim, lambda end=end: end in nvim.screen_seen.seen)
            nvim.wait_until_idle()
    with bench.bare_client() as ask_bare:
        bare = [ask_bare(FLOOD)[-1] for _ in walls]
    yield median_row(f"{FLOOD:,} deltas at once: wall", walls, "s")
    yield median_row(f"{FLOOD:,} deltas at once: wall of a bare SDK client", bare, "s")
    ratio = statistics.median(walls) / statistics.median(bare)
    yield Row(f"{FLOOD:,} deltas at once: wall / bare client's", ratio, "times", 2)
    yield median_row(f"{FLOOD:,} deltas at once: Neovim's CPU", cpus, "s", 0.3)
    yield Row(
        f"{FLOOD:,} deltas at once: longest key echo", max(echoes), "ms", note=f"of {len(echoes)}"
    )
