"""The completion of a mention among 100,000 files, as a language server is asked for it, key by key."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.bench.shared import Bench, Row, percentile, short

FILES = 100_000
WORDS = [
    *("alpha", "beta", "gamma", "parser", "token", "render", "session", "window", "buffer"),
    *("config", "lexer", "model"),
]
QUERIES = (
    *("p", "pa", "par", "pars", "sess_9", "prsr99", "src/al", "e", "_", "wnd", "zzzz", "srcbufcfg"),
)
ASK = """
local words, count = ...
local values, completion = {}, require('sanderling.prompt.completion')
local id = require('sanderling.session.live').current_id()
for _ = 1, count do
  for _, word in ipairs(words) do
    local began = vim.uv.hrtime()
    completion.candidates('see @' .. word, true, id)
    values[#values + 1] = (vim.uv.hrtime() - began) / 1e6
  end
end
return values
"""
COUNT = """
local tracked, project = require('sanderling.prompt.tracked'), vim.fn.getcwd()
tracked.refresh(project)
return tracked.count(project)
"""


def mentions(bench: Bench) -> Iterator[Row]:
    with bench.warm_nvim() as nvim:
        _make_files(nvim.project)
        nvim.feed("<Esc>i")
        nvim.wait(lambda: nvim.lua(COUNT) > FILES, "the files are known")
        values = [value for _ in bench.times(5) for value in nvim.lua(ASK, QUERIES, 5)]
    note = f"of {len(values)} keys; longest {short(max(values))}"
    what = f"mention completion in {FILES:,} files: a request, p99"
    yield Row(what, percentile(values, 99), "ms", 10, note)


def _make_files(project: Path) -> None:
    """A repository whose index has the files: none of them need be there."""
    run = subprocess.run
    (project / ".git").rmdir()
    run(["git", "init", "-q"], cwd=project, check=True)
    hash_object = ["git", "hash-object", "-w", "--stdin"]
    blob = run(
        hash_object, cwd=project, input="x", text=True, capture_output=True, check=True
    ).stdout.strip()
    names = (
        f"src/{WORDS[n % 12]}/{WORDS[n * 7 % 12]}/{WORDS[(n * 5 + 3) % 12]}_{n}.lua"
        for n in range(FILES)
    )
    lines = "".join(f"100644 {blob}\t{name}\n" for name in names)
    run(["git", "update-index", "--index-info"], cwd=project, input=lines, text=True, check=True)
