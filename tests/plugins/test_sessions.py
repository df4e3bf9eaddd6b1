"""Plugins that store Neovim's windows and open them again: auto-session."""

import pytest

from tests.conftest import ROOT, wait_until
from tests.nvim.conftest import filetypes
from tests.nvim.replies import reply, say
from tests.plugins.setups import AUTO_SESSION

ANSWER = [reply(say("It answers."), repeat=True)]
CHAT = ["sanderling", "sanderling_prompt"]
HELP = (ROOT / "doc" / "sanderling-extending.txt").read_text()


def snippet(first_line):
    """The Lua of the help that begins with this line."""
    return first_line + HELP.split(first_line, 1)[1].split("\n<", 1)[0]


def closed_with_chat(start, project, config, command):
    """Have a chat next to a file, and quit; `command` runs before."""
    (project / "a.lua").write_text("x = 1\n")
    child = start(["auto-session"], config, ANSWER)
    child.command("silent edit a.lua | AgentChat")
    child.say("sort the list")
    child.command(command)
    child.feed(":qall<CR>")
    wait_until(lambda: child.rpc.process.poll() is not None, "Neovim has ended")


@pytest.mark.parametrize("command", ["wincmd t", "wincmd b", "AgentChat", "tab split"])
def test_a_stored_session_leaves_the_chat_out_and_the_chat_offers_to_resume(
    start, project, command
):
    closed_with_chat(start, project, AUTO_SESSION, command)
    child = start(["auto-session"], AUTO_SESSION, ANSWER)
    wait_until(lambda: child.lua("return vim.fn.bufname()") == "a.lua", "it is restored")
    assert filetypes(child) == ["lua"]
    assert child.messages().strip() == ""
    child.command("AgentChat")
    child.wait_for_screen(":AgentResume continues “sort the list”")


def test_the_snippet_of_the_help_opens_the_chat_again(start, project):
    config = AUTO_SESSION.split("require(")[0] + snippet("require('auto-session').setup({")
    closed_with_chat(start, project, config, "wincmd t")
    child = start(["auto-session"], config, ANSWER)
    wait_until(lambda: filetypes(child) == ["lua", *CHAT], "the chat is open")
    child.wait_for_screen("It answers.")
    assert child.messages().strip() == ""
