"""Lists in plugins of others, of which `PLUGINS` names a directory with checkouts: snacks.nvim, telescope.nvim, plenary.nvim, fzf-lua, mini.nvim."""

import os
import shutil
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.test_mcp_screen import controls, show

PLUGINS = os.environ.get("PLUGINS", "")
needs_plugins = pytest.mark.skipif(not PLUGINS, reason="PLUGINS does not say where they are")

SETUPS = {
    "snacks": (("snacks.nvim",), "require('snacks').setup({ picker = { enabled = true } })"),
    "telescope": (("plenary.nvim", "telescope.nvim"), "require('telescope').setup()"),
    "fzf-lua": (("fzf-lua",), "require('fzf-lua').setup()"),
    "mini.pick": (("mini.nvim",), "require('mini.pick').setup()"),
}
ANSWERS = """
[[reply]]
repeat = true
[[reply.step]]
text = "answered at length"
"""
CATCH_SELECT = """
  _G.offered = {}
  vim.ui.select = function(items, opts, on_choice)
    table.insert(_G.offered, vim.tbl_map(opts.format_item or tostring, items))
    _G.choose = function(index) on_choice(items[index], index) end
  end
"""
TITLES = "return vim.tbl_map(function(each) return each.name end, require('sanderling').list())"


def set_up(child, name):
    directories, setup = SETUPS[name]
    for directory in directories:
        child.command(f"set runtimepath+={Path(PLUGINS, directory)}")
    child.lua(setup)


@pytest.fixture
def chat(scripted):
    """A Neovim with two sessions, of which the second is shown."""
    child = scripted(ANSWERS)
    child.command("set columns=160 lines=40")
    child.lua(CATCH_SELECT)
    child.chat("alpha question")
    child.command("AgentNew")
    child.say("beta question")
    return child


@pytest.fixture(params=SETUPS)
def picker(request, chat):
    if not PLUGINS:
        pytest.skip("PLUGINS does not say where they are")
    if request.param == "fzf-lua" and not shutil.which("fzf"):
        pytest.skip("there is no fzf")
    set_up(chat, request.param)
    chat.plugin = request.param
    return chat


def open_sessions(child):
    child.command("AgentSessions")
    child.wait_for_screen("Sessions", "alpha question · ", "beta question · ", "rename")


def filter_by(child, typed, expected, every_line=" · just now · "):
    """Type until only the line with `expected` is left, and selected: telescope selects it a little later."""
    child.feed(typed)
    wait_until(lambda: child.screen_text().count(every_line) == 1)
    child.wait_for_screen(("> " if child.plugin == "telescope" else "") + expected)


def test_a_plugin_shows_a_preview_and_resumes_with_one_key(picker):
    open_sessions(picker)
    filter_by(picker, "alp", "alpha question · ")
    if picker.plugin == "mini.pick":
        picker.feed("<Tab>")
    picker.wait_for_screen("alpha question", "answered at length", "Sanderling")
    picker.feed("<CR>")
    wait_until(lambda: picker.lua("return #_G.offered") == 0)
    picker.wait_for_transcript("## You\n\nalpha question\n")


def test_keys_of_a_plugin_rename_fork_and_delete(picker):
    picker.lua("vim.ui.input = function(opts, answer) answer('gamma') end")
    open_sessions(picker)
    filter_by(picker, "alp", "alpha question · ")
    picker.feed("<C-t>")
    wait_until(lambda: "gamma" in picker.lua(TITLES))
    picker.command("AgentSessions")
    picker.wait_for_screen("gamma · ", "beta question · ")
    filter_by(picker, "gam", "gamma · ")
    picker.feed("<C-o>")
    wait_until(lambda: len(picker.lua(TITLES)) == 3)
    picker.command("AgentSessions")
    picker.wait_for_screen("beta question · ")
    filter_by(picker, "bet", "beta question · ")
    picker.feed("<C-x>")
    picker.wait_for_message("The session is open. Close it first, with :Agent close.")


def test_a_plugin_that_is_left_without_a_choice_changes_nothing(picker):
    before = picker.lua(TITLES)
    open_sessions(picker)
    picker.feed("<Esc><Esc>" if picker.plugin in {"snacks", "telescope"} else "<Esc>")
    wait_until(lambda: "rename" not in picker.screen_text())
    assert picker.lua(TITLES) == before
    assert picker.lua("return #_G.offered") == 0


def test_a_plugin_without_a_preview_chooses_a_model(picker):
    picker.lua("""
      require('sanderling.session.live').current():note({
        type = 'local_models_known', models = { 'nobody:one', 'nobody:two' }, notes = {},
      })
    """)
    picker.command("AgentModel")
    picker.wait_for_screen("Model", "nobody:two")
    filter_by(picker, "two", "nobody:two", "nobody:")
    picker.feed("<CR>")
    picker.wait_for_transcript("nobody")


@needs_plugins
def test_the_option_chooses_the_plugin(scripted):
    child = scripted(ANSWERS, picker="select")
    child.lua(CATCH_SELECT)
    set_up(child, "telescope")
    child.chat("alpha question")
    child.command("AgentSessions")
    wait_until(lambda: child.lua("return #_G.offered") == 1)


def test_a_plugin_that_fails_gives_way_to_vim_ui_select_with_one_message(chat):
    chat.lua("""
      package.loaded.snacks = { config = { picker = { enabled = true } }, picker = { pick = function() error('broken inside') end } }
    """)
    for count in (1, 2):
        chat.command("AgentSessions")
        wait_until(lambda count=count: chat.lua("return #_G.offered") == count)
    assert [line.split(" · ")[0] for line in chat.lua("return _G.offered[1]")] == [
        "beta question",
        "alpha question",
    ]
    assert chat.messages().count("broken inside") == 1
    assert "The picker snacks failed" in chat.messages()


def test_a_chosen_plugin_that_is_missing_is_named(chat):
    chat.setup(picker="telescope")
    chat.command("AgentSessions")
    wait_until(lambda: chat.lua("return #_G.offered") == 1)
    assert "The picker telescope failed" in chat.messages()


def test_sessions_with_the_same_title_are_told_apart_by_their_beginning(chat):
    chat.command("AgentNew")
    chat.say("beta question")
    chat.command("AgentSessions")
    wait_until(lambda: chat.lua("return #_G.offered") == 1)
    first, second, third = chat.lua("return _G.offered[1]")
    assert first.startswith("beta question · begun ")
    assert second.startswith("beta question · begun ")
    assert "begun" not in third


def test_no_picker_is_loaded_before_it_is_used(chat):
    loaded = "return vim.tbl_filter(function(name) return name:find('^sanderling%.picker') end, vim.tbl_keys(package.loaded))"
    assert chat.lua(loaded) == []


@needs_plugins
@pytest.mark.parametrize("name", SETUPS)
def test_servers_have_a_preview_and_keys_in_a_plugin(screen, name):
    screen.command("set columns=160 lines=40")
    set_up(screen, name)
    show(screen)
    screen.wait_for_screen("Tool servers", "git     ready", "linear  failed", "restart")
    screen.plugin = name
    filter_by(screen, "lin", "✗ linear", " failed")
    wait_until(lambda: "git     ready" not in screen.screen_text())
    if name == "mini.pick":
        screen.feed("<Tab>")
    wait_until(lambda: screen.actions("show_tool_server"))
    screen.answer("show_tool_server", title="linear", text="what it says in its log")
    if name == "mini.pick":
        screen.wait_for_screen("what it says in its log")
        screen.feed("<Tab>")
    screen.feed("<C-s>")
    wait_until(lambda: controls(screen) == [("linear", "start")])
