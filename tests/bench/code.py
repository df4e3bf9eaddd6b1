"""What language servers know, as a tool of the model: what that costs over the bare question to the server."""

import statistics
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.bench.shared import Bench, Row, median_row
from tests.bench.tools import _ask, _in_auto_mode
from tests.conftest import ROOT

NAMES = 60
START = """
local command, root = ...
vim.cmd('topleft new names.txt')
vim.lsp.start({ name = 'scripted', cmd = command, root_dir = root }, { bufnr = 0 })
"""
READY = "return #vim.lsp.get_clients({ name = 'scripted' }) == 1"
BARE = """
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
    count = min(len(bench.times(40)), NAMES)
    with bench.warm_nvim() as nvim:
        _in_auto_mode(nvim)
        text = "use one.name\n" * NAMES + "def one.name\n"
        Path(nvim.project, "names.txt").write_text(text)
        nvim.lua(START, [sys.executable, str(ROOT / "tests" / "code_server.py")], str(nvim.project))
        nvim.wait(lambda: nvim.lua(READY), "the server is there")
        bare = nvim.lua(BARE, count)
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
