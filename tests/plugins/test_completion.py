"""Completion in the prompt by plugins that complete from language servers, and their menus elsewhere."""

import subprocess

import pytest

from tests.conftest import wait_until
from tests.nvim.test_mentions import COUNT
from tests.plugins.setups import BLINK, NVIM_CMP

SETUPS = {
    "nvim-cmp": (["nvim-cmp", "cmp-nvim-lsp"], NVIM_CMP),
    "blink.cmp": (["blink.cmp"], BLINK),
    "mini.completion": (["mini.nvim"], "require('mini.completion').setup()"),
}
ACCEPT = {"mini.completion": "<C-n><C-y>"}


@pytest.fixture
def prompt_with(start, project):
    """Start a Neovim with one of `SETUPS`, in the prompt, in insert mode, with the project's files known."""
    (project / "src").mkdir()
    (project / "src" / "slow.py").write_text("one\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)

    def begin(name):
        child = start(*SETUPS[name])
        child.open_chat()
        child.feed("ilook at ")
        wait_until(lambda: child.lua("return #vim.lsp.get_clients({ name = 'sanderling' })") == 1)
        wait_until(lambda: child.lua(COUNT) > 0)
        return child

    return begin


@pytest.mark.parametrize(
    "keys, shown, expected",
    [
        ("@slo", "src/slow.py", "look at @src/slow.py"),
        ("<C-u>/us", "/usage", "/usage"),
        ("@diag", "@diagnostics", "look at @diagnostics"),
    ],
)
@pytest.mark.parametrize("name", SETUPS)
def test_a_plugin_completes_in_the_prompt(prompt_with, name, keys, shown, expected):
    child = prompt_with(name)
    child.feed(keys[:-1])
    child.wait_for_screen(shown)
    child.feed(keys[-1])
    wait_until(lambda: child.screen_text().count(shown) == 1)
    child.feed(ACCEPT.get(name, "<CR>"))
    wait_until(lambda: child.prompt_lines() == [expected])
