"""Plugins and distributions that set options, statuslines, and draw in every window."""

import pytest

from tests.conftest import wait_until
from tests.nvim.replies import reply, say
from tests.plugins.setups import BLINK, MANAGED, MINI, NOICE, SNACKS

CODE = "```lua\nlocal function f()\n  if x then\n    y()\n  end\nend\n```\n"
OPTIONS = """
return vim.iter(vim.api.nvim_tabpage_list_wins(0)):map(function(win)
  local wo = vim.wo[win]
  return vim.bo[vim.api.nvim_win_get_buf(win)].filetype ~= 'python' and { wo.number, wo.relativenumber, wo.list, wo.spell, wo.wrap, wo.cursorline,
    wo.statuscolumn, wo.signcolumn } or nil
end):totable()
"""
PLAIN = [False, False, False, False, True, False, "", "no"]
MARKS_THE_FIRST_ROW = [
    False,
    False,
    True,
    False,
    True,
    False,
    "",
    "no",
]  # with a 'listchars' of its own


def test_lazyvims_options_do_not_reach_the_chat(start, project):
    (project / "a.py").write_text("x = 1\n")
    child = start(*MANAGED["LazyVim"], [reply(say("It answers."))], is_managed=True)
    child.command("set nowrap | silent edit a.py | AgentChat")
    assert child.lua(OPTIONS) == [MARKS_THE_FIRST_ROW, PLAIN]
    child.command("wincmd t")
    assert child.lua("return { vim.wo.number, vim.wo.statuscolumn ~= '', vim.wo.wrap }") == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "plugins, config",
    [(["snacks.nvim"], SNACKS), (["mini.nvim"], MINI)],
    ids=["snacks", "mini"],
)
def test_no_plugin_draws_between_the_lines_of_an_answer(start, plugins, config):
    child = start(plugins, config, [reply(say(f"Look:\n\n{CODE}\nThe end."), repeat=True)])
    child.chat("go")
    child.feed("<C-w>k5k")  # in a scope of the code
    child.wait_for_screen("The end.")
    left = [row.split("│", 1)[-1] for row in child.screen()]
    assert "y()" in child.lua("return vim.fn.getline('.')")
    assert [row.rstrip() for row in left if "y()" in row] == ["     y()"]


LUALINE = """
require('lualine').setup({ options = { globalstatus = true, icons_enabled = false },
  sections = { lualine_x = { 'sanderling' } } })
"""


def test_lualine_shows_the_state_in_its_component(start):
    child = start(["lualine.nvim"], LUALINE, [reply(say("It answers."), repeat=True)])
    child.chat("go")
    child.command("wincmd t")
    wait_until(lambda: "idle · " in child.screen()[-2], "the state is in the bar")


@pytest.mark.parametrize(
    "plugins, config",
    [(["blink.cmp"], BLINK), (["noice.nvim", "nui.nvim"], NOICE)],
    ids=["blink", "noice"],
)
def test_commands_complete_in_a_plugins_command_line(start, plugins, config):
    child = start(plugins, config, [reply(say("It answers."), repeat=True)])
    child.feed(":AgentMode pl<Tab>")
    child.when_free(lambda: "AgentMode plan" in child.screen_text())
    child.feed("<CR>")
    child.when_free(lambda: child.lua("return require('sanderling').status().mode") == "plan")
