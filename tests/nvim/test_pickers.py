"""Lists in a picker, without a plugin that has one; tests/plugins/test_pickers.py has these."""

import pytest
from tests.conftest import wait_until

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
