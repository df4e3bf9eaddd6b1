"""Plugins that show messages get them whole, with a title and a level."""

import pytest

from tests.plugins.setups import NOICE, SNACKS

MINI = """
require('mini.notify').setup()
vim.notify = require('mini.notify').make_notify()
"""
SHOWN = {
    "snacks": (
        (["snacks.nvim"], SNACKS),
        """vim.iter(require('snacks').notifier.get_history()):map(function(each)
          return { each.msg, each.title, each.level:upper() }
        end):totable()""",
    ),
    "noice": (
        (["noice.nvim", "nui.nvim"], NOICE),
        """vim.iter(require('noice.message.manager').get({ event = 'notify' }, { history = true })):map(function(each)
          return { each:content(), each.opts.title, each.level:upper() }
        end):totable()""",
    ),
    "noice and snacks": (
        (["noice.nvim", "nui.nvim", "snacks.nvim"], SNACKS + NOICE),
        """vim.iter(require('snacks').notifier.get_history()):map(function(each)
          return { each.msg, each.title, each.level:upper() }
        end):totable()""",
    ),
    "mini": (
        (["mini.nvim"], MINI),
        """vim.iter(require('mini.notify').get_all()):map(function(each)
          return { each.msg, 'Sanderling', each.level }
        end):totable()""",
    ),
}
LONG = f"{'A long line of words. ' * 30}\nA second line, with `code` and <Esc> and %s.\n\nThe last."


@pytest.mark.parametrize("name", SHOWN)
def test_a_plugin_gets_a_message_whole(start, name):
    setup, history = SHOWN[name]
    child = start(*setup)
    child.command("AgentChat")
    tell = "require('sanderling.ui.message').tell(..., vim.log.levels.WARN)"
    child.lua(tell, LONG)
    child.when_free(lambda: [LONG, "Sanderling", "WARN"] in child.lua(f"return {history}"))
    child.when_free(lambda: "A long line of words." in child.screen_text(), "it is on the screen")
