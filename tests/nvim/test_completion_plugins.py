"""Plugins of others, of which `COMPLETION_PLUGINS` names a directory with checkouts: nvim-cmp, cmp-nvim-lsp, blink.cmp 1, mini.nvim, which-key.nvim."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.test_mentions import COUNT
from tests.nvim.test_review import CHANGE

PLUGINS = os.environ.get("COMPLETION_PLUGINS", "")

SETUPS = {
    "nvim-cmp": (
        ("nvim-cmp", "cmp-nvim-lsp"),
        """
        vim.cmd('runtime! plugin/cmp.lua after/plugin/cmp_nvim_lsp.lua')
        local cmp = require('cmp')
        cmp.setup({
          sources = { { name = 'nvim_lsp' } },
          mapping = cmp.mapping.preset.insert({ ['<CR>'] = cmp.mapping.confirm({ select = true }) }),
        })
        """,
    ),
    "blink.cmp": (
        ("blink.cmp",),
        """
        require('blink.cmp').setup({ fuzzy = { implementation = 'lua' }, keymap = { preset = 'enter' },
          sources = { default = { 'lsp' } } })
        """,
    ),
    "mini.completion": (("mini.nvim",), "require('mini.completion').setup()"),
}
ACCEPT = {"nvim-cmp": "<CR>", "blink.cmp": "<CR>", "mini.completion": "<C-n><C-y>"}


@pytest.mark.skipif(not PLUGINS, reason="COMPLETION_PLUGINS does not say where they are")
@pytest.mark.parametrize(
    "keys, shown, expected",
    [
        ("@slo", "src/slow.py", "look at @src/slow.py"),
        ("<C-u>/us", "/usage", "/usage"),
        ("@diag", "@diagnostics", "look at @diagnostics"),
    ],
)
@pytest.mark.parametrize("name", SETUPS)
def test_a_plugin_completes_in_the_prompt(start_nvim, project, name, keys, shown, expected):  # noqa: PLR0917 - pytest gives them by name
    (project / "src").mkdir()
    (project / "src" / "slow.py").write_text("one\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    child = start_nvim()
    directories, setup = SETUPS[name]
    for directory in directories:
        child.command(f"set runtimepath+={Path(PLUGINS, directory)}")
    child.lua(setup)
    child.setup()
    child.open_chat()
    child.feed("ilook at ")
    wait_until(lambda: child.lua("return #vim.lsp.get_clients({ name = 'sanderling' })") == 1)
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed(keys[:-1])
    child.wait_for_screen(shown)
    child.feed(keys[-1])
    wait_until(lambda: child.screen_text().count(shown) == 1)
    child.feed(ACCEPT[name])
    wait_until(lambda: child.prompt_lines() == [expected])


@pytest.mark.skipif(not PLUGINS, reason="COMPLETION_PLUGINS does not say where they are")
def test_which_key_shows_the_name_of_a_group_of_keys(start_nvim, project):
    (project / "file.txt").write_text("one\n")
    child = start_nvim()
    child.command(f"set runtimepath+={Path(PLUGINS, 'which-key.nvim')}")
    child.lua("require('which-key').setup({ delay = 0 })")
    child.command("silent edit file.txt")
    child.lua(CHANGE, str(project / "file.txt"), 1, 1, ["two"])
    wait_until(lambda: child.lua("return vim.fn.mapcheck('\\\\h', 'n')"))
    child.feed("\\")
    child.wait_for_screen("agent: changes")
    child.feed("h")
    child.wait_for_screen("Agent: keep the change here")
