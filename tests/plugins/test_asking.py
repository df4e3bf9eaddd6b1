"""Questions and inputs next to plugins that replace Neovim's own: snacks.input, noice's command line."""

import pytest

from tests.conftest import wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.replies import bash, reply, say
from tests.plugins.setups import MANAGED, SETUPS

REPLIES = [reply(bash("touch made")), reply(say("I see."), repeat=True)]
NAMES = ["none", "snacks", "noice", "noice and snacks", "mini", "LazyVim"]


@pytest.fixture
def asked(start):
    """Start a Neovim in which the model asks for a command, with the cursor in the question."""

    def begin(name):
        child = start(*(SETUPS | MANAGED)[name], REPLIES, is_managed=name in MANAGED)
        child.command("AgentChat")
        child.feed("igo<C-s><Esc>")
        child.wait_for_question()
        count_keys_after(child, 0)
        child.feed("<C-w>a")
        child.when_free(lambda: child.float() == child.lua("return vim.api.nvim_get_current_win()"))
        return child

    return begin


@pytest.mark.parametrize("name", NAMES)
def test_a_denial_with_a_reason_is_typed_in_a_plugins_input(asked, name):
    child = asked(name)
    child.feed("D")
    wait_until(lambda: child.mode() in {"i", "c"}, "it asks for the reason")
    child.feed("use make<CR>")
    child.wait_for_turns()
    [result] = child.results()
    assert "use make" in str(result)
    child.when_free(lambda: child.mode() == "n")


@pytest.mark.parametrize("name", NAMES)
def test_a_question_that_was_left_is_entered_and_answered_again(asked, name):
    child = asked(name)
    child.feed("q")
    child.when_free(lambda: child.lua("return vim.bo.filetype") == "sanderling_prompt")
    child.feed("<C-w>a")
    child.when_free(lambda: child.float() == child.lua("return vim.api.nvim_get_current_win()"))
    child.feed("a")
    child.wait_for_turns()
    assert (child.project / "made").exists()


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_in_place_is_shown_below_its_lines_and_accepted(start, project, name):
    (project / "a.txt").write_text("one\ntwo\n")
    replies = [reply(say("ONE"), repeat=True)]
    child = start(*(SETUPS | MANAGED)[name], replies, is_managed=name in MANAGED)
    child.command("silent edit a.txt")
    child.feed(":1AgentEdit in capitals<CR>")
    child.when_free(lambda: "ONE" in child.screen_text())
    child.when_free(lambda: child.lua("return vim.fn.maparg('\\\\ea', 'n') ~= ''"))
    child.feed("\\ea")
    child.when_free(lambda: child.lines() == ["ONE", "two"])
