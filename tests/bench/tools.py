"""A model that uses tools, in the whole product: what a round costs, and what the person at the keys notices of it."""

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

from tests.bench.each_tool import each_tool
from tests.bench.latency import PING_EVERY_S
from tests.bench.print_mode import project
from tests.bench.shared import (
    Bench,
    BenchNvim,
    Row,
    forget_peak_mb,
    median_row,
    peak_mb,
    percentile,
    plain_ms,
    rss_mb,
)
from tests.bench.stream import type_until
from tests.conftest import ROOT, cpu_s

ECHO = {"command": "echo hi $EPOCHREALTIME"}  # when it was, in seconds since 1970
ECHOES = 40
IDLE_S = 4
REST_S = 1.0
OUTPUT_MB = 300
BYTES = OUTPUT_MB << 20
OUTPUTS = {
    "short lines": f"yes | head -c {BYTES}",
    "3 lines": f"for n in 1 2 3; do head -c {BYTES // 3} /dev/zero | tr '\\0' x; echo; done",
    "1 progress line": f"yes '50 %' | tr '\\n' '\\r' | head -c {BYTES}",
}
ROUNDS, PART = 200, 50
FIRST_USES: dict[str, dict[str, object]] = {
    "bash": {"command": "git status | head && ls -la"},
    "read": {"path": "file.py"},
    "edit": {"path": "file.py", "edits": [{"old": "return 1", "new": "return 2"}]},
    "grep": {"pattern": "return"},
}
LONG = "long.txt"
ROUNDS_OF: dict[str, dict[str, object]] = {
    "read": {"path": LONG, "offset": "#", "limit": 100},
    "bash": {"command": "echo $RANDOM"},
}
LATER = range(5)
MAX_FIRST_BASH = 8  # times a plain subprocess, which is at the limit of the noise in ms
GRACE_S = 0.4  # a question takes no answer at first
LINE = "a line of about forty characters or so.\n"


def _ask(bench: Bench, nvim: BenchNvim, count: int, tool: str, data: dict[str, object]) -> int:
    """Have the model use a tool `count` times; returns the id of its answer."""
    answer_id, words = bench.server.words("use", count, tool, json.dumps(data))
    nvim.submit(words)
    return answer_id


def _use(bench: Bench, nvim: BenchNvim, tool: str, data: dict[str, object]) -> None:
    """Have the model use a tool once, to the end of the turn."""
    answer_id = _ask(bench, nvim, 1, tool, data)
    nvim.wait_for_mark(f"end{answer_id:06}")
    nvim.wait_until_idle()


def _in_auto_mode(nvim: BenchNvim) -> None:
    nvim.lua("require('sanderling').mode('auto')")
    nvim.wait(lambda: nvim.lua("return require('sanderling').mode()") == "auto", "auto mode")


def gap(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        _in_auto_mode(nvim)
        count = len(bench.times(ECHOES)) + 1  # the first opens the sandbox
        answer_id = _ask(bench, nvim, count, "bash", ECHO)
        nvim.wait_for_mark(f"end{answer_id:06}")
        reports = [bench.server.report(answer_id) for _ in range(count + 1)]
    gaps, rounds = [], []
    for before, after in pairwise(reports[1:]):
        echoed_at = float(re.search(r"hi (\d+\.\d+)", after["told"])[1])
        gaps.append(1000 * (after["unix_time"] - echoed_at))
        rounds.append(1000 * (after["at"] - before["sent"]["use"]))
    yield median_row("echo in the sandbox → next request on the wire", gaps, "ms", 40)
    yield Row("echo in the sandbox → next request on the wire: p90", percentile(gaps, 90), "ms", 40)
    yield median_row("tool use on the wire → the echo's result on the wire", rounds, "ms")


def first_round(bench: Bench) -> Iterator[Row]:
    """The model thinks before each use, as models do: the first round has a sandbox to open, and what tools need to load."""
    for (where, converse), (tool, data) in product(
        (("print mode", _in_print_mode), ("Neovim", _in_neovim)), ROUNDS_OF.items()
    ):
        firsts, later, plain = [], [], []
        for _ in bench.times(7):
            answer_id, words = bench.server.words("think", len(LATER) + 1, tool, json.dumps(data))
            converse(bench, answer_id, words)
            rounds = pairwise(bench.server.report(answer_id) for _ in (None, None, *LATER))
            gaps = [1000 * (after["at"] - before["sent"]["use"]) for before, after in rounds]
            firsts.append(gaps[0])
            later += gaps[1:]
            if command := data.get("command"):
                plain.append(plain_ms(["bash", "-c", str(command)]))
        what = f"{where}: {tool} on the wire → its result on the wire"
        if plain:
            yield median_row(f"{what}: first round", firsts, "ms")
            yield median_row(f"{tool}: a plain subprocess", plain, "ms")
            ratio = statistics.median(firsts) / statistics.median(plain)
            yield Row(f"{what}: first round / plain subprocess", ratio, "times", MAX_FIRST_BASH)
        else:
            yield median_row(f"{what}: first round", firsts, "ms", 15)
        yield median_row(f"{what}: later rounds", later, "ms")
        more = statistics.median(firsts) - statistics.median(later)
        yield Row(f"{what}: first round, longer than later ones", more, "ms", 10)


def _in_print_mode(bench: Bench, _: int, words: str) -> None:
    with project(bench) as (folder, environment):
        (folder / LONG).write_text(LINE * 1000)
        command = [sys.executable, "-m", "sanderling", "-p", "--mode", "auto", words]
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def _in_neovim(bench: Bench, answer_id: int, words: str) -> None:
    with bench.warm_nvim() as nvim:
        _in_auto_mode(nvim)
        Path(nvim.project, LONG).write_text(LINE * 1000)
        nvim.submit(words)
        nvim.wait_for_mark(f"end{answer_id:06}")
        nvim.wait_until_idle()


def output(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        _in_auto_mode(nvim)
        host = nvim.host_pid()
        _use(bench, nvim, "bash", {"command": "seq 100000"})
        nvim.begin_to_type()
        end = time.monotonic() + IDLE_S
        idle = type_until(nvim, lambda: time.monotonic() > end)
        yield Row("key echo p99 before", percentile(idle, 99), "ms", note=f"of {len(idle)}")
        for what, command in OUTPUTS.items():
            growths, echoes, seconds, rests, kept = [], [], [], [], []
            for _ in bench.times(5):
                nvim.begin_to_type()
                before = forget_peak_mb(host)
                begin = time.monotonic()
                answer_id = _ask(bench, nvim, 1, "bash", {"command": command})
                mark = f"end{answer_id:06}"
                echoes += type_until(nvim, lambda mark=mark: mark in nvim.screen_seen.seen)
                seconds.append(nvim.screen_seen.seen[mark] - begin)
                growths.append(peak_mb(host) - before)
                nvim.wait_until_idle()
                kept.append(rss_mb(host) - before)
                rests.append(_cpu_percent_at_rest(nvim, host))
            name = f"{OUTPUT_MB} MB of output, {what}"
            yield Row(f"{name}: host's growth, at most", max(growths), "MB", 10)
            yield Row(
                f"{name}: key echo p99", percentile(echoes, 99), "ms", 16, f"of {len(echoes)}"
            )
            yield median_row(f"{name}: wall", seconds, "s")
            yield median_row(f"{name}: host's memory afterwards, more than before", kept, "MB")
            yield median_row(f"{name}: host's CPU afterwards", rests, "%")


def _cpu_percent_at_rest(nvim: BenchNvim, pid: int) -> float:
    before = cpu_s(pid)
    nvim.follow(time.monotonic() + REST_S)
    return 100 * (cpu_s(pid) - before) / REST_S


def approval(bench: Bench) -> Iterator[Row]:
    """A command and an edit; each is denied, which ends the question."""
    with bench.warm_nvim() as nvim:
        file = Path(nvim.project, "file.py")
        file.write_text("old = 1\n" * 200)
        _use(bench, nvim, "read", {"path": "file.py"})
        for what, tool, data in (
            ("a command", "bash", {"command": "git push origin main"}),
            ("an edit", "write", {"path": "file.py", "content": "new = 2\n" * 200}),
        ):
            values = [_question_ms(bench, nvim, tool, data) for _ in bench.times(10)]
            yield Row(
                f"tool use on the wire → the first question, about {what}, on the screen",
                values[0],
                "ms",
            )
            yield median_row(
                f"tool use on the wire → question about {what} on the screen", values[1:], "ms", 50
            )


def _question_ms(bench: Bench, nvim: BenchNvim, tool: str, data: dict[str, object]) -> float:
    answer_id = _ask(bench, nvim, 1, tool, data)
    shown = nvim.wait_for_text(f"╭ Allow {tool}")
    asked = bench.server.report(answer_id)["sent"]["use"]
    nvim.follow(shown + GRACE_S)
    nvim.command("AgentDeny")
    nvim.wait_for_mark(f"end{answer_id:06}")
    nvim.wait_until_idle()
    return 1000 * (shown - asked)


LOOK_FOR_SERVERS = """
  require('vim.lsp')
  local diagnostics, buf = require('sanderling.editing.diagnostics'), vim.api.nvim_create_buf(true, false)
  local began = vim.uv.hrtime()
  for _ = 1, ... do
    diagnostics.can_come(buf)
  end
  return (vim.uv.hrtime() - began) / 1e6
"""
LOOKS = 3  # at the buffer of a file that is edited


def diagnostics(bench: Bench) -> Iterator[Row]:
    """The price that an edit pays for diagnostics where no language server has the buffer; servers have others."""
    with bench.warm_nvim() as nvim:
        looks = [nvim.lua(LOOK_FOR_SERVERS, LOOKS) for _ in bench.times(50)]
    yield median_row("edit in a buffer without a language server: longer by", looks, "ms", 0.5)


def rounds(bench: Bench) -> Iterator[Row]:
    """A turn that reads on and on: each page has 100 lines, 4 KB, and stays in the history."""
    firsts, lasts, ratios, walls = [], [], [], []
    for _ in bench.times(5):
        with bench.warm_nvim() as nvim:
            Path(nvim.project, "long.txt").write_text(LINE * 100 * ROUNDS)
            host = nvim.host_pid()
            data = {"path": "long.txt", "offset": "#", "limit": 100}
            answer_id = _ask(bench, nvim, ROUNDS, "read", data)
            spent, times = [], []
            for number in range(ROUNDS + 1):
                report = bench.server.report(answer_id)
                if number % PART == 0:
                    spent.append(cpu_s(host))
                    times.append(report["at"])
            nvim.wait_for_mark(f"end{answer_id:06}")
            firsts.append(1000 * (spent[1] - spent[0]) / PART)
            lasts.append(1000 * (spent[-1] - spent[-2]) / PART)
            ratios.append(lasts[-1] / firsts[-1])
            walls.append((times[-1] - times[-2]) / (times[1] - times[0]))
    yield median_row(f"{ROUNDS} rounds of read: host's CPU per round, first {PART}", firsts, "ms")
    yield median_row(f"{ROUNDS} rounds of read: host's CPU per round, last {PART}", lasts, "ms")
    yield median_row(f"{ROUNDS} rounds of read: CPU, last {PART} / first {PART}", ratios, "times")
    yield median_row(f"{ROUNDS} rounds of read: wall, last {PART} / first {PART}", walls, "times")


def stall(bench: Bench) -> Iterator[Row]:
    """What the first use of a tool loads must not hold up the loop: the slowest of the pings that go on meanwhile."""
    values: dict[str, list[float]] = {tool: [] for tool in FIRST_USES}
    for _ in bench.times(5):
        with bench.warm_nvim() as nvim:
            Path(nvim.project, "file.py").write_text("def one():\n    return 1\n")
            _in_auto_mode(nvim)
            for tool, data in FIRST_USES.items():
                answer_id = _ask(bench, nvim, 1, tool, data)
                values[tool].append(_slowest_ping_ms(nvim, f"end{answer_id:06}"))
                nvim.wait_until_idle()
    for tool, pings in values.items():
        yield median_row(f"first {tool}: longest stall of the host's loop", pings, "ms", 20)


def _slowest_ping_ms(nvim: BenchNvim, until_mark: str) -> float:
    slowest = 0.0
    while until_mark not in nvim.screen_seen.seen:
        begin = time.monotonic()
        nvim.rpc.request("nvim_exec_lua", "require('sanderling.host').ping()", [])
        slowest = max(slowest, time.monotonic() - begin)
        nvim.follow(time.monotonic() + PING_EVERY_S)
    return 1000 * slowest


NAMES = 60
START_SERVER = """
local command, root = ...
vim.cmd('topleft new names.txt')
vim.lsp.start({ name = 'scripted', cmd = command, root_dir = root }, { bufnr = 0 })
"""
SERVER_IS_READY = "return #vim.lsp.get_clients({ name = 'scripted' }) == 1"
ASK_SERVER = """
local client, values = vim.lsp.get_clients({ name = 'scripted' })[1], {}
local buf = vim.fn.bufnr('names.txt')
for row = 0, ... - 1 do
  local params = { textDocument = { uri = vim.uri_from_bufnr(buf) }, position = { line = row, character = 8 } }
  local began, ended = vim.uv.hrtime(), nil
  client:request('textDocument/definition', params, function(_, result)
    assert(#result == 1)
    ended = vim.uv.hrtime()
  end, buf)
  vim.wait(1000, function() return ended ~= nil end, 1)
  values[#values + 1] = (ended - began) / 1e6
end
return values
"""


def code(bench: Bench) -> Iterator[Row]:
    """What language servers know, as a tool of the model: what that costs over the bare question to the server."""
    count = min(len(bench.times(40)), NAMES)
    with bench.warm_nvim() as nvim:
        _in_auto_mode(nvim)
        text = "use one.name\n" * NAMES + "def one.name\n"
        Path(nvim.project, "names.txt").write_text(text)
        nvim.lua(
            START_SERVER,
            [sys.executable, str(ROOT / "tests" / "code_server.py")],
            str(nvim.project),
        )
        nvim.wait(lambda: nvim.lua(SERVER_IS_READY), "the server is there")
        bare = nvim.lua(ASK_SERVER, count)
        where = {"op": "definition", "symbol": "one.name", "path": "names.txt", "line": "#"}
        answer_id = _ask(bench, nvim, count, "code_nav", where)
        nvim.wait_for_mark(f"end{answer_id:06}")
        reports = [bench.server.report(answer_id) for _ in range(count + 1)]
    rounds = [
        1000 * (after["at"] - before["sent"]["use"]) for before, after in pairwise(reports[1:])
    ]
    assert "1 definition" in reports[-1]["told"], reports[-1]["told"]
    yield median_row("the bare question to a language server", bare, "ms")
    over = [each - statistics.median(bare) for each in rounds]
    yield median_row("code_nav on the wire → its result there, over that", over, "ms", 10)


def tools(bench: Bench) -> Iterator[Row]:
    for measure in (first_round, gap, output, approval, diagnostics, stall, rounds, each_tool):
        yield from measure(bench)
