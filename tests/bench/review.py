"""Changes that wait for a review: how long many of them take to draw, and to scroll over."""

from collections.abc import Iterator

from tests.bench.shared import Bench, Row, median_row, percentile, short

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
  changed[i] = changed[i]:gsub('compute', 'find')
  changed[i + 1] = changed[i + 1]:gsub('text', 'words')
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
SCROLL = """
local values = {}
for i = 1, ... do
  local began = vim.uv.hrtime()
  vim.cmd.normal({ vim.keycode(i % 3 == 0 and '<C-f>' or '<C-e>'), bang = true })
  vim.cmd.redraw()
  values[i] = (vim.uv.hrtime() - began) / 1e6
end
return values
"""


def review(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        nvim.command("wincmd p")
        drawn, scrolled = [], []
        for _ in bench.times(10):
            nvim.lua(MAKE, HUNKS, LINES)
            drawn.append(nvim.lua(DRAW))
            scrolled += nvim.lua(SCROLL, 300)
    what = f"{HUNKS} changes to review in {LINES:,} lines"
    yield median_row(f"{what}: drawn", drawn, "ms", 30)
    note = f"of {len(scrolled)} keys; longest {short(max(scrolled))}"
    yield Row(f"{what}: scrolled, p99", percentile(scrolled, 99), "ms", 5, note)
