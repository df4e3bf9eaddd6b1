"""Plugin managers: lazy.nvim with the spec of the README and with usual variations of it, and LazyVim."""

import pytest

from tests.conftest import ROOT, wait_until
from tests.nvim.replies import reply, say
from tests.plugins.setups import LAZY

SPEC = (ROOT / "README.md").read_text().split("lazy.nvim:\n\n```lua\n")[1].split("```")[0]
PONG = [reply(say("It answers."), repeat=True)]


def lazy(*specs):
    """A configuration whose lazy.nvim loads our checkout by each of `specs`, tables in Lua."""
    ours = ",".join(f"vim.tbl_extend('force', {spec}, OURS)" for spec in specs)
    return LAZY.replace("SPECS", ours)


@pytest.fixture
def managed(start):
    def begin(config, *plugins, **options):
        return start(["lazy.nvim", *plugins], config, PONG, is_managed=True, **options)

    return begin


def ask_by(child, keys):
    child.feed(keys)
    wait_until(lambda: child.lua("return vim.bo.filetype") == "sanderling_prompt", "the chat opens")
    child.say("hello")
    child.wait_for_screen("It answers.")
    assert child.messages().strip() == ""


@pytest.mark.parametrize("keys", [" aa", ":AgentChat<CR>"], ids=["key", "command"])
def test_the_spec_of_the_readme_works_with_lazy(managed, keys):
    child = managed(lazy(SPEC))
    assert child.lua("return vim.fn.exists(':AgentUndo')") == 2
    assert (
        child.lua(
            "return vim.tbl_filter(function(n) return n:find('^sanderling') end, vim.tbl_keys(package.loaded))"
        )
        == []
    )
    ask_by(child, keys)


VARIATIONS = {
    "keys": ("{ keys = { { '<Leader>aa', '<Plug>(AgentChat)' } } }", " aa"),
    "keys with a command": ("{ keys = { { '<Leader>aa', '<Cmd>AgentChat<CR>' } } }", " aa"),
    "cmd": ("{ cmd = { 'AgentChat', 'AgentAsk' } }", ":AgentChat<CR>"),
    "event": ("{ event = 'VeryLazy' }", ":AgentChat<CR>"),
    "opts": ("{ lazy = false, opts = { chat = { position = 'left' } } }", ":AgentChat<CR>"),
    "opts and cmd": ("{ cmd = 'AgentChat', opts = {} }", ":AgentChat<CR>"),
    "config": ("{ config = true }", ":AgentChat<CR>"),
    "main": ("{ main = 'sanderling', opts = {} }", ":AgentChat<CR>"),
}


@pytest.mark.parametrize("name", VARIATIONS)
def test_variations_of_the_spec_work(managed, name):
    spec, keys = VARIATIONS[name]
    child = managed(lazy(spec))
    if "VeryLazy" in spec:
        wait_until(lambda: child.lua("return vim.fn.exists(':AgentChat')") == 2)
    ask_by(child, keys)


def test_visual_keys_of_the_readme_ask_about_the_selection(managed, project):
    (project / "a.py").write_text("one\ntwo\nthree\n")
    child = managed(lazy(SPEC))
    child.command("silent edit a.py")
    child.feed("jVj ak")
    wait_until(lambda: "ask" in child.lua("return vim.bo.filetype") or child.floats())
    assert child.messages().strip() == ""
