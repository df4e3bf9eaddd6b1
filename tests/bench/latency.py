"""From a key to what it does: a prompt's way to the wire, the answer's way to the screen, a stop's."""

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.bench.shared import Bench, BenchNvim, Row, median_row, short
from tests.conftest import ROOT, processes_with, wait_until

PING_EVERY_S = 0.005
IMPORT_S = 4.0  # all is loaded by then
SETTLED_S = 0.5
INTERRUPTS = 10
CHECK_EVERY_S = 0.001
SLEEPS_S = itertools.count(100_000)  # each tells its own processes from all others
READ_S = 0.03  # an answer is highlighted by then; nobody asks the next thing sooner
NOTE_FIRST_TEXT = """
  _G.first_text = {}
  vim.api.nvim_buf_attach(require('sanderling').transcript().buf, false, {
    on_lines = function(_, buf, _, first, _, last)
      local now = vim.uv.hrtime()
      for _, line in ipairs(vim.api.nvim_buf_get_lines(buf, first, last, false)) do
        local mark = line:match('begin%d+')
        if mark then
          _G.first_text[mark] = _G.first_text[mark] or now
        end
      end
    end,
  })
"""


def _round(bench: Bench, nvim: BenchNvim) -> tuple[float, float]:
    """Send a prompt with `<CR>`; return the ms until the server had it, and until its answer was on the screen."""
    answer_id, words = bench.server.words("stream", 3, 0)
    nvim.write(words)
    begin = time.monotonic()
    nvim.rpc.send("nvim_input", "<CR>")
    shown = nvim.wait_for_mark(f"begin{answer_id:06}")
    nvim.wait_until_idle()
    return 1000 * (bench.server.report(answer_id)["at"] - begin), 1000 * (shown - begin)


def warm(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim, bench.bare_client() as ask_bare:
        nvim.lua("require('sanderling').clear()")
        _round(bench, nvim)
        # In turns, so that what else the machine does meets both.
        rounds = [(*_round(bench, nvim), *ask_bare(3)) for _ in bench.times(40)]
    to_wire, to_screen, bare_to_wire, bare_to_first, _ = zip(*rounds, strict=True)
    yield median_row("warm: <CR> → request on the wire", to_wire, "ms", 4)
    yield median_row("warm: <CR> → text on the screen", to_screen, "ms", 6.5)
    # Less than 4 and 6.5 ms where the bare client takes 1.5 and 2.2 ms, as it does when the machine is at its best.
    for what, ours, bare, target in (
        ("request on the wire", to_wire, bare_to_wire, 2.5),
        ("text on the screen / first event", to_screen, bare_to_first, 2.9),
    ):
        of_bare = 1000 * statistics.median(bare)
        ratio = statistics.median(ours) / of_bare
        yield Row(
            f"warm: {what}, of a bare SDK client's", ratio, "times", target, f"{short(of_bare)} ms"
        )


def long(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        answer_id, words = bench.server.words("fill", 20_000)
        nvim.answer_to(words, answer_id)
        values = [_round(bench, nvim)[1] for _ in bench.times(10)]
    yield median_row("20,000 lines: <CR> → text on the screen", values, "ms", 30)


def first_text(bench: Bench) -> Iterator[Row]:
    """An answer that comes all at once: whoever reads it must not read on while its beginning waits to be drawn."""
    with bench.warm_nvim() as nvim:
        nvim.lua(NOTE_FIRST_TEXT)
        for deltas in (40, 2000):
            values = []
            for _ in bench.times(15):
                answer_id, words = bench.server.words("stream", deltas, 0)
                nvim.answer_to(words, answer_id)
                nvim.follow(time.monotonic() + READ_S)
                in_buffer = nvim.lua("return _G.first_text[...]", f"begin{answer_id:06}") / 1e9
                values.append(1000 * (in_buffer - bench.server.report(answer_id)["sent"]["first"]))
            what = f"first byte → text in the buffer, {deltas:,} deltas at once"
            yield median_row(what, values, "ms", 2.2)


def cold(bench: Bench) -> Iterator[Row]:
    at_once, bare, later = [], [], []
    for _ in bench.times(5):
        at_once.append(first_request(bench))
        answer_id, words = bench.server.words("stream", 3, 0)
        begin = time.monotonic()
        argv = [sys.executable, "-m", "tests.bench.bare_client", bench.server.url, words]
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        bare.append(1000 * (bench.server.report(answer_id)["at"] - begin))
        later.append(first_request(bench, settled_s=SETTLED_S))
    yield median_row("cold: :AgentChat and a prompt → request on the wire", at_once, "ms")
    ratio = statistics.median(at_once) / statistics.median(bare)
    note = f"a bare SDK client: {short(statistics.median(bare))} ms"
    yield Row("cold: the same, of a bare SDK client's", ratio, "", 0.4, note)
    yield median_row(f"cold: {SETTLED_S:g} s after :AgentChat → on the wire", later, "ms", 15)
    stalls = [1000 * _longest_stall(bench) for _ in bench.times(5)]
    yield median_row("cold: longest stall of the host's loop", stalls, "ms", 100)


def first_request(
    bench: Bench, settled_s: float = 0, servers: dict[str, Any] | None = None
) -> float:
    """
    The ms from the first prompt of a Neovim to the arrival of its request; the chat has been open for `settled_s`.

    `servers` are the tool servers that it has.
    """
    with bench.nvim() as nvim:
        nvim.setup(max_calls=0, mcp={"servers": servers or {}})
        answer_id, words = bench.server.words("stream", 3, 0)
        keys = f":AgentChat<CR>i{words}<Esc><CR>"
        if settled_s:
            nvim.open_prompt()
            nvim.follow(time.monotonic() + settled_s)
            nvim.write(words)
            keys = "<CR>"
        begin = time.monotonic()
        nvim.rpc.send("nvim_input", keys)
        nvim.wait_for_mark(f"begin{answer_id:06}")
        return 1000 * (bench.server.report(answer_id)["at"] - begin)


def _longest_stall(bench: Bench) -> float:
    """The slowest ping to the host while it loads what it asks with; the first, which waits for the host to start, does not count."""
    with bench.nvim() as nvim:
        nvim.open_prompt()
        nvim.host_pid()
        slowest, end = 0.0, time.monotonic() + IMPORT_S
        while (begin := time.monotonic()) < end:
            nvim.rpc.request("nvim_exec_lua", "require('sanderling.host').ping()", [])
            slowest = max(slowest, time.monotonic() - begin)
            nvim.follow(time.monotonic() + PING_EVERY_S)
    return slowest


def cancel(bench: Bench) -> Iterator[Row]:
    values = []
    with bench.warm_nvim() as nvim:
        for _ in bench.times(10):
            nvim.lua("require('sanderling').clear()")
            nvim.wait(lambda: "Stopped." not in nvim.screen_seen.text(), "an empty chat")
            answer_id, words = bench.server.words("stream", 1000, 100)
            nvim.submit(words)
            nvim.follow(nvim.wait_for_mark(f"begin{answer_id:06}") + 0.5)
            begin = time.monotonic()
            nvim.rpc.send("nvim_input", "<C-c>")
            values.append(1000 * (nvim.wait_for_text("Stopped.") - begin))
            bench.server.report(answer_id)
            wait_until(lambda: "idle" in nvim.lua("return require('sanderling').statusline()"))
    yield median_row("<C-c> while text streams → “Stopped.” on the screen", values, "ms", 50)


def interrupt(bench: Bench) -> Iterator[Row]:
    """A stop in the middle of a command of the model's: what is seen, and when nothing of it runs any more."""
    seen, gone = [], []
    with bench.warm_nvim() as nvim:
        nvim.lua("require('sanderling').mode('auto')")
        for _ in bench.times(INTERRUPTS):
            nvim.lua("require('sanderling').clear()")
            nvim.lua("require('sanderling').mode('auto')")
            nvim.wait(lambda: "Stopped." not in nvim.screen_seen.text(), "an empty chat")
            mark = str(next(SLEEPS_S))
            tree = f"setsid sleep {mark} & (trap '' INT TERM; sleep {mark}) & sleep {mark}"
            _, words = bench.server.words("use", 1, "bash", json.dumps({"command": tree}))
            nvim.submit(words)
            nvim.wait(lambda mark=mark: len(_sleeping(mark)) == 3, "its processes")
            begin = time.monotonic()
            nvim.rpc.send("nvim_input", "<C-c>")
            seen.append(1000 * (nvim.wait_for_text("Stopped.") - begin))
            while _sleeping(mark):
                time.sleep(CHECK_EVERY_S)
            gone.append(1000 * (time.monotonic() - begin))
            nvim.wait_until_idle()
    yield median_row("<C-c> while a command runs → “Stopped.” on the screen", seen, "ms", 50)
    yield median_row("… → its tree is dead (looked at after “Stopped.”)", gone, "ms", 300)


def _sleeping(mark: str) -> list[int]:
    """The processes that sleep for as long as `mark` says."""
    return processes_with(
        "cmdline", lambda line: line.split(b"\0")[:2] == [b"sleep", mark.encode()]
    )
