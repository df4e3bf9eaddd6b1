"""Answers that are written to stop the editor: the longest time in which it answers nobody while one streams."""

from collections.abc import Iterator

from tests.bench.shared import Bench, Row
from tests.nvim.test_time_limits import HOSTILE

BEAT_MS = 2
STREAM = """
local text = ...
local id = vim.b[require('sanderling').transcript().buf].sanderling_session
local host = require('sanderling.host')
host.act, host.drawn = function() end, function() end
local block_id = (_G.block_id or 1000) + 1
_G.block_id, _G.longest, _G.is_done = block_id, 0, false
local last, at, quiet = vim.uv.hrtime(), 1, 0
local timer = vim.uv.new_timer()
timer:start(0, BEAT, vim.schedule_wrap(function()
  local now = vim.uv.hrtime()
  _G.longest, last = math.max(_G.longest, (now - last) / 1e6), now
  if at <= #text then
    host.receive({ session_id = id, seq = block_id, events = {
      { type = 'text_delta', block_id = block_id, text = text:sub(at, at + 499) } } })
    at = at + 500
  else
    quiet = quiet + 1
    if quiet == 500 then
      timer:close()
      _G.is_done = true
    end
  end
end))
""".replace("BEAT", str(BEAT_MS))


def hostile(bench: Bench) -> Iterator[Row]:
    longest = {}
    with bench.warm_nvim() as nvim:
        nvim.command("syntax on")
        for name, text in HOSTILE.items():
            nvim.lua(STREAM, text)
            nvim.wait(lambda: nvim.lua("return _G.is_done"), name)
            longest[name] = nvim.lua("return _G.longest")
    worst = max(longest, key=longest.__getitem__)
    what = "the editor stands still by an answer's text, 32 kB of it"
    yield Row(what, longest[worst], "ms", 50, f"longest of {len(longest)}: {worst}")
