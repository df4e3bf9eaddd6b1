"""Plugins that open files in windows: the chat's windows stay the chat's."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.nvim.test_foreign_buffers import CHAT, chat, enter, files, where, windows
from tests.plugins.conftest import PLUGINS, add_to

__all__ = ["chat", "files"]


def load(child, *names, setup=""):
    add_to(child, *names)
    for name in names:
        for path in sorted(Path(PLUGINS, name, "plugin").glob("*")):
            child.command(f"silent source {path}")
    child.lua(setup)


@pytest.mark.parametrize("filetype", CHAT)
def test_telescope_opens_a_file_in_the_code_window(chat, filetype):
    load(chat, "plenary.nvim", "telescope.nvim")
    enter(chat, filetype)
    chat.lua("""
      require('telescope.pickers').new({}, {
        finder = require('telescope.finders').new_table({ 'other.txt' }),
        sorter = require('telescope.config').values.generic_sorter({}),
      }):find()
    """)
    wait_until(lambda: chat.lua("return vim.bo.filetype") == "TelescopePrompt")
    chat.wait_for_screen("> other.txt")
    chat.feed("<CR>")
    wait_until(lambda: where(chat)[0] == "other.txt")
    assert windows(chat) == ["other.txt", *CHAT]


@pytest.mark.parametrize("filetype", CHAT)
def test_oil_shows_the_directory_in_the_code_window(chat, filetype, files):
    load(chat, "oil.nvim", setup="require('oil').setup()")
    enter(chat, filetype)
    chat.feed(f":Oil {files}<CR>")
    wait_until(lambda: chat.lua("return vim.bo.filetype") == "oil")
    chat.wait_for_screen("third.txt")
    assert windows(chat)[1:] == CHAT
    chat.feed("/other<CR><CR>")
    wait_until(lambda: where(chat)[0] == "other.txt")
    assert windows(chat) == ["other.txt", *CHAT]


@pytest.mark.parametrize("filetype", CHAT)
def test_a_picker_of_mini_opens_a_file_in_the_code_window(chat, filetype):
    load(chat, "mini.nvim", setup="require('mini.pick').setup()")
    enter(chat, filetype)
    chat.feed(":lua MiniPick.start({ source = { items = { 'other.txt' } } })<CR>")
    chat.wait_for_screen("other.txt")
    chat.feed("<CR>")
    wait_until(lambda: where(chat)[0] == "other.txt")
    assert windows(chat) == ["other.txt", *CHAT]


@pytest.mark.parametrize("filetype", CHAT)
def test_a_picker_of_snacks_opens_a_file_in_the_code_window(chat, filetype):
    load(chat, "snacks.nvim", setup="require('snacks').setup({ picker = {} })")
    enter(chat, filetype)
    chat.lua(
        "Snacks.picker.pick({ items = { { text = 'other.txt', file = 'other.txt' } }, format = 'file' })"
    )
    wait_until(lambda: chat.lua("return vim.bo.filetype") == "snacks_picker_input")
    chat.wait_for_screen("other.txt")
    chat.feed("<CR>")
    wait_until(lambda: where(chat)[0] == "other.txt")
    assert windows(chat) == ["other.txt", *CHAT]


@pytest.mark.skipif(not shutil.which("fzf"), reason="fzf is not installed")
def test_fzf_lua_opens_a_file_in_the_code_window(chat):
    load(chat, "fzf-lua")
    enter(chat, "sanderling_prompt")
    chat.lua("""
      require('fzf-lua').fzf_exec({ 'other.txt' }, { actions = {
        ['default'] = require('fzf-lua.actions').file_edit } })
    """)
    wait_until(lambda: chat.mode() == "t")
    chat.wait_for_screen("other.txt")
    chat.feed("<CR>")
    wait_until(lambda: where(chat)[0] == "other.txt")
    assert windows(chat) == ["other.txt", *CHAT]


def test_a_buffer_that_mini_removes_closes_its_window_of_the_chat(chat):
    load(chat, "mini.nvim", setup="require('mini.bufremove').setup()")
    enter(chat, "sanderling_prompt")
    chat.feed(":lua MiniBufremove.wipeout(0, true)<CR>")
    wait_until(lambda: windows(chat) == ["code.txt"])
    chat.command("AgentChat")
    wait_until(lambda: windows(chat) == ["code.txt", *CHAT])


@pytest.mark.usefixtures("files")
def test_auto_session_restores_its_files_over_a_chat(start_screen):
    setup = "require('auto-session').setup({ auto_restore = false, log_level = 'error' })"
    first = start_screen()
    load(first, "auto-session", setup=setup)
    first.command("edit code.txt | vsplit other.txt | AgentChat")
    first.feed(":AutoSession save<CR>")
    wait_until(lambda: list((first.home / "data").rglob("*.vim")))
    second = start_screen()
    load(second, "auto-session", setup=setup)
    second.command("AgentChat")
    second.feed("<Esc>:AutoSession restore<CR>")
    wait_until(lambda: sorted(set(windows(second)) - set(CHAT)) == ["code.txt", "other.txt"])
    wait_until(lambda: not second.is_blocked())
    second.command("AgentChat")
    wait_until(lambda: windows(second)[-2:] == CHAT)
    assert len(windows(second)) == 4
