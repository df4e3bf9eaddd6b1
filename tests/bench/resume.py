"""A long session that is opened again: until its end can be read, and what stays in memory."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sanderling.protocol.messages import (
    Message,
    Prompt,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.records import (
    LoggedPartial,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUsage,
)
from sanderling.session.session import Session
from tests.bench.shared import Bench, Row, median_row, rss_mb
from tests.conftest import ROOT, cpu_s, wait_until

LOG_BYTES = 20 << 20
ROUNDS = 5  # of tools in a turn
LINE = "    return sum(value for value in values if value is not None)  # line {}\n"
RESULT = "".join(LINE.format(number) for number in range(110))  # 8 KB: a page of `read`
ANSWER = "It adds up the values that are there.\n\n```py\nprint(total([1, None, 2]))\n```\n" * 3
THOUGHT = "The person wants to know what the function does, so I look at it first. " * 4
END = "end999999"
USAGE = Usage(12, 400, 800, 40_000)
HAS_ALL = """
local win = require('sanderling').transcript().win
vim.api.nvim_set_current_win(win)
vim.api.nvim_input('<Esc>gg')
local first = vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(win), 0, 1, true)[1]
return not vim.startswith(first, '▲')
"""
TOGGLE_MS = """
local function ms(fn)
  local begin = vim.uv.hrtime()
  fn()
  vim.cmd.redraw()
  return (vim.uv.hrtime() - begin) / 1e6
end
local sanderling = require('sanderling')
return { ms(sanderling.hide), ms(sanderling.chat) }
"""
RESUME = """
import json, sys, time
from pathlib import Path

from sanderling.session.session import Session
from sanderling.session.history_pager import HistoryPager

def rss_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before, begin = rss_mb(), time.monotonic()
session = Session.open(Path(sys.argv[1]), "long", "/project")
page = HistoryPager(session).take()
ms = 1000 * (time.monotonic() - begin)
assert page.events and page.has_earlier and len(session.history) > 100
print(json.dumps({"ms": ms, "mb": rss_mb() - before}))
"""


def write_long_session(session_dir: Path, project: str) -> None:
    """A log of 20 MB, as a day of work leaves it: mostly what tools have read."""
    session = Session.open(session_dir, "long", project)
    turn = 0
    while not turn or session.path.stat().st_size < LOG_BYTES:
        turn += 1
        prompt = Prompt(f"p{turn}", f"What does the function in line {turn} do, and who calls it?")
        session.append_prompt(Message("user", (TextBlock(prompt.text),)), prompt)
        for number in range(ROUNDS):
            _append_round(session, f"toolu_{turn}_{number}")
        session.append(LoggedPartial("text", ANSWER))
        session.append(LoggedUsage("claude-sonnet-5-5", USAGE))
        session.append_message(Message("assistant", (TextBlock(f"{ANSWER}\n{END}"),)))
        session.append(LoggedTurnEnd("end_turn"))
    session.close()


def _append_round(session: Session, use_id: str) -> None:
    use = ToolUse(use_id, "read", {"path": "src/app.py", "offset": 1, "limit": 110})
    thought = ThinkingBlock(THOUGHT, "c2lnbmVk" * 40)
    session.append(LoggedUsage("claude-sonnet-5-5", USAGE))
    session.append_message(Message("assistant", (thought, use)))
    session.append(LoggedToolStart(use_id))
    session.append(LoggedToolEnd(use_id, "src/app.py", "110 lines"))
    session.append_message(Message("user", (ToolResult(use_id, RESULT),)))


def resume(bench: Bench) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        write_long_session(Path(folder), "/project")
        found = [_resumed(folder) for _ in bench.times(7)]
    milliseconds = [each["ms"] for each in found]
    growths = [each["mb"] for each in found]
    yield median_row("a session of 20 MB: opened, its last page read", milliseconds, "ms", 300)
    yield median_row("a session of 20 MB: what it adds to the memory", growths, "MB", 60)
    found = [_resumed_in_neovim(bench) for _ in bench.times(7)]
    milliseconds = [each["ms"] for each in found]
    growths = [each["mb"] for each in found]
    yield median_row(":AgentResume of 20 MB → its end on the screen", milliseconds, "ms", 300)
    yield median_row(":AgentResume of 20 MB: what it adds to the host's memory", growths, "MB", 60)


def shown(bench: Bench) -> Iterator[Row]:
    """All pages of a long session, hidden and shown again: 250,000 lines with 4,000 folds."""
    with bench.warm_nvim() as nvim:
        write_long_session(nvim.session_files()[0].parent, str(nvim.project))
        nvim.command("AgentResume long")
        nvim.wait_for_mark(END)
        begin, before = time.monotonic(), cpu_s(nvim.pid)
        wait_until(lambda: nvim.lua(HAS_ALL), "all pages are there", 60)
        wall, cpu = time.monotonic() - begin, cpu_s(nvim.pid) - before
        times = [nvim.lua(TOGGLE_MS) for _ in bench.times(15)]
    hidden, again = zip(*times, strict=True)
    yield Row("all pages of 20 MB: wall", wall, "s")
    yield Row("all pages of 20 MB: Neovim's CPU", cpu, "s")
    yield median_row("250,000 lines, 4,000 folds: hidden", hidden, "ms", 16)
    yield median_row("250,000 lines, 4,000 folds: shown again", again, "ms", 8)


def _resumed_in_neovim(bench: Bench) -> dict[str, float]:
    with bench.warm_nvim() as nvim:
        write_long_session(nvim.session_files()[0].parent, str(nvim.project))
        host = nvim.host_pid()
        before = rss_mb(host)
        begin = time.monotonic()
        request = nvim.rpc.send("nvim_command", "AgentResume long")
        end = nvim.wait_for_mark(END)
        nvim.rpc.answer(request)
        return {"ms": 1000 * (end - begin), "mb": rss_mb(host) - before}


def _resumed(folder: str) -> dict[str, float]:
    argv = [sys.executable, "-c", RESUME, folder]
    done = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
