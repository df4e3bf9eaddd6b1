"""Plugins that wait for keys: which-key, mini.clue. Ours work with them, and are named by them."""

import pytest

from tests.conftest import wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.replies import DONE, bash, reply
from tests.nvim.test_review import CHANGE
from tests.plugins.setups import WHICH_KEY

CLUE = """
require('mini.clue').setup({ triggers = {
  { mode = 'n', keys = ']' }, { mode = 'n', keys = '<C-w>' }, { mode = 'n', keys = '\\\\' } } })
"""


@pytest.fixture
def changed(start, project):
    """Start a Neovim with a plugin, in a file that the agent has changed."""

    def begin(plugin, config):
        (project / "file.txt").write_text("one\ntwo\n")
        child = start([plugin], config)
        child.feed("]")  # the plugin maps the beginnings of keys
        child.feed("<Esc>")
        child.command("silent edit file.txt")
        wait_until(lambda: child.lua("return vim.fn.maparg(']', 'n') ~= ''"), "it has mapped ]")
        child.lua(CHANGE, str(project / "file.txt"), 1, 2, ["2"])
        return child

    return begin


@pytest.mark.parametrize(
    "plugin, config", [("which-key.nvim", WHICH_KEY), ("mini.nvim", CLUE)], ids=["which", "clue"]
)
def test_keys_of_a_change_work_below_a_trigger(changed, plugin, config):
    child = changed(plugin, config)
    child.feed("]h")
    child.when_free(lambda: child.lua("return vim.fn.line('.')") == 2)
    child.feed("\\hr")
    child.when_free(lambda: child.lines() == ["one", "two"])


@pytest.mark.parametrize(
    "plugin, config", [("which-key.nvim", WHICH_KEY), ("mini.nvim", CLUE)], ids=["which", "clue"]
)
def test_the_key_to_a_question_works_below_a_trigger(start, plugin, config):
    child = start([plugin], config, [reply(bash("touch made")), DONE])
    child.ask()
    child.wait_for_question()
    count_keys_after(child, 0)
    assert "<C-w>a answer" in child.screen_text()
    child.feed("<C-w>a")
    wait_until(lambda: child.float() == child.lua("return vim.api.nvim_get_current_win()"))
    child.feed("a")
    child.wait_for_turns()


def test_which_key_shows_the_name_of_a_group_of_keys(changed):
    child = changed("which-key.nvim", WHICH_KEY)
    wait_until(lambda: child.lua("return vim.fn.mapcheck('\\\\h', 'n') ~= ''"))
    child.feed("v<Esc>")  # which-key looks for new keys when the mode or the buffer changes
    child.when_free(lambda: child.lua("return vim.fn.maparg('\\\\', 'n') ~= ''"))
    child.feed("\\")
    child.when_free(lambda: "agent: changes" in child.screen_text())
    child.feed("h")
    child.when_free(lambda: "Agent: accept the change here" in child.screen_text())


def test_a_key_that_a_plugin_has_for_itself_stays_its_own(changed):
    child = changed("mini.nvim", "require('mini.diff').setup()" + CLUE)
    assert "Agent" not in child.lua("return vim.fn.maparg(']h', 'n', false, true).desc")
    assert "Agent" in child.lua("return vim.fn.maparg('\\\\ha', 'n', false, true).desc")
