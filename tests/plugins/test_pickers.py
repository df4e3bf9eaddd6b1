"""Lists in the pickers of plugins."""

import shutil

import pytest

from tests.conftest import wait_until
from tests.nvim.test_mcp_screen import controls, show
from tests.nvim.test_pickers import ANSWERS, CATCH_SELECT, chat
from tests.plugins.conftest import add_to

__all__ = ["chat"]
SETUPS = {
    "snacks": (("snacks.nvim",), "require('snacks').setup({ picker = { enabled = true } })"),
    "telescope": (("plenary.nvim", "telescope.nvim"), "require('telescope').setup()"),
    "fzf-lua": (("fzf-lua",), "require('fzf-lua').setup()"),
    "mini.pick": (("mini.nvim",), "require('mini.pick').setup()"),
}
TITLES = "return vim.tbl_map(function(each) return each.name end, require('sanderling').list())"


def set_up(child, name):
    directories, setup = SETUPS[name]
    add_to(child, *directories)
    child.lua(setup)


@pytest.fixture(params=SETUPS)
def picker(request, chat):
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


@pytest.mark.skipif(not shutil.which("fzf"), reason="there is no fzf")
def test_a_key_that_fzf_does_not_have_is_not_offered_there(chat):
    set_up(chat, "fzf-lua")
    chat.setup(keys={"pick_rename": "gr"})
    chat.command("AgentSessions")
    chat.wait_for_screen("Sessions", "alpha question · ", "fork")
    assert "rename" not in chat.screen_text()


def test_the_option_chooses_the_plugin(scripted):
    child = scripted(ANSWERS, picker="select")
    child.lua(CATCH_SELECT)
    set_up(child, "telescope")
    child.chat("alpha question")
    child.command("AgentSessions")
    wait_until(lambda: child.lua("return #_G.offered") == 1)


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
