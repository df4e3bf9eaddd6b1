"""Changes that wait for a review: how long many of them take to draw, and to scroll over."""

import time
from collections.abc import Iterator

from tests.bench.shared import Bench, BenchNvim, Row, median_row, percentile, short

HUNKS, LINES = 500, 10_000
MAKE = """
local count, line_count = ...
require('sanderling.review')
local lines = {}
for i = 1, line_count do
  lines[i] = ('    local value_%d = compute(%d, "text") -- and what it is for'):format(i, i)
end
vim.cmd('enew!')
local buf = vim.api.nvim_get_current_buf()
vim.api.nvim_buf_set_lines(buf, 0, -1, true, lines)
local changed, step = vim.list_slice(lines), line_count / count
for i = 1, line_count, step do
  for row = i, i + i / step % 12 do -- of 1 to 12 lines, and of most of those a word
    changed[row] = changed[row]:gsub('compute', 'find'):gsub('text', row % 3 > 0 and 'words' or '%0')
  end
end
local source = { session_id = '', tool_use_id = 'use', turn = '' }
local hunks = require('sanderling.review.hunks')
vim.cmd.redraw()
hunks.changing(buf, source, function()
  vim.api.nvim_buf_set_lines(buf, 0, -1, true, changed)
end)
assert(#hunks.list(buf) == count)
"""
DRAW = """
local draw, buf = require('sanderling.review.draw'), vim.api.nvim_get_current_buf()
draw.forget(buf)
vim.cmd.redraw()
local began = vim.uv.hrtime()
draw.update(buf)
vim.cmd.redraw()
return (vim.uv.hrtime() - began) / 1e6
"""


def echo_ms(nvim: BenchNvim, key: str) -> float:
    """The time from a key that scrolls until the screen shows it."""
    before = nvim.screen_seen.text()
    start = time.monotonic()
    request = nvim.rpc.send("nvim_input", key)
    end = nvim.wait(lambda: nvim.screen_seen.text() != before, f"echo of {key}")
    nvim.rpc.answer(request)
    return 1000 * (end - start)


def review(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        nvim.feed("<Esc>")
        nvim.command("1wincmd w")
        drawn, scrolled = [], []
        for _ in bench.times(10):
            nvim.lua(MAKE, HUNKS, LINES)
            drawn.append(nvim.lua(DRAW))
            nvim.feed("gg")
            scrolled += [echo_ms(nvim, "<C-f>" if n % 3 == 2 else "<C-e>") for n in range(300)]
    what = f"{HUNKS} changes to review in {LINES:,} lines"
    yield median_row(f"{what}: drawn", drawn, "ms", 30)
    note = f"of {len(scrolled)} keys; longest {short(max(scrolled))}"
    yield Row(f"{what}: key echo p99 when scrolling", percentile(scrolled, 99), "ms", 5, note)
