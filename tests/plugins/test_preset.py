"""`keys.preset = 'chat'`, where `<CR>` sends from insert mode, next to plugins that map it, too."""

import pytest

from tests.conftest import wait_until
from tests.nvim.replies import reply, say
from tests.plugins.setups import SETUPS

PRESET = (
    "vim.g.sanderling = vim.tbl_extend('force', vim.g.sanderling, { keys = { preset = 'chat' } })\n"
)


@pytest.fixture
def chatting(start):
    def begin(name):
        plugins, config = SETUPS[name]
        child = start(plugins, PRESET + config, [reply(say("It answers."), repeat=True)])
        child.command("AgentChat")
        child.feed("i")
        wait_until(lambda: child.lua("return #vim.lsp.get_clients({ name = 'sanderling' })") == 1)
        return child

    return begin


def type_text(child, text):
    child.feed(text)
    child.when_free(lambda: child.prompt_lines()[-1].startswith(text), "it is typed")
    child.screen()


@pytest.mark.parametrize("name", ["none", "nvim-cmp", "blink.cmp", "mini", "nvim-autopairs"])
def test_enter_sends(chatting, name):
    child = chatting(name)
    type_text(child, "hello there")
    child.feed("<CR>")
    child.wait_for_turns()
    assert child.sent() == ["hello there"]


@pytest.mark.parametrize("name", ["nvim-cmp", "blink.cmp"])
def test_enter_accepts_what_is_chosen_in_a_plugins_menu(chatting, name):
    child = chatting(name)
    type_text(child, "/usa")
    child.wait_for_screen("/usage")
    child.feed("<CR>")
    child.when_free(lambda: child.prompt_lines() == ["/usage"], "it is accepted")


@pytest.mark.parametrize("name", ["none", "nvim-cmp", "blink.cmp", "mini", "nvim-autopairs"])
def test_meta_enter_breaks_the_line(chatting, name):
    child = chatting(name)
    type_text(child, "one")
    child.feed("<M-CR>")
    child.when_free(lambda: child.prompt_lines() == ["one", ""])
