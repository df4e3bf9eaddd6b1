"""The tables of verbs, keys and options: what is made from them, and that the made files are up to date."""

import subprocess

import pytest
from tests.conftest import ROOT, find_neovim, wait_until

from sanderling.project.slash_commands import BUILT_IN


def test_what_is_generated_is_up_to_date():
    argv = [find_neovim(), "--clean", "-l", "scripts/generate_plugin.lua", "--check"]
    checked = subprocess.run(
        argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_slash_commands_of_ours_are_those_that_no_markdown_file_can_take(child):
    names = child.lua("""
      require('sanderling.verbs')
      return vim.tbl_map(function(row) return row.name end, require('sanderling.prompt.slash').all())
    """)
    assert set(names) == BUILT_IN


# --- :Agent ------------------------------------------------------------------------------------------------------------


def test_agent_and_a_verb_do_what_the_command_of_that_name_does(child):
    child.command("Agent")
    child.command("Agent mode plan")
    wait_until(lambda: child.lua("return require('sanderling').mode()") == "plan")
    child.command("Agent todo")
    assert "The model has not made a todo list." in child.messages()
    child.command("Agent chat")
    assert child.lua("return require('sanderling').transcript().win == nil")


@pytest.mark.parametrize(
    "line, told",
    [
        ("Agent mdoe plan", "Agent: no 'mdoe'; did you mean 'mode'?"),
        ("Agent stop it", "Agent: stop takes no argument."),
        ("Agent run", "Agent: run needs an argument."),
        ("Agent! stop", "E477: No ! allowed"),
        ("Agent stop!", "Agent: stop takes no !."),
        ("Agent net bogus", "AgentNet: off, proxy or on, not 'bogus'."),
    ],
)
def test_agent_with_what_is_no_verb_or_takes_something_else_says_so(child, line, told):
    child.feed(f":{line}<CR>")
    assert told in wait_until(lambda: child.messages().strip())


@pytest.mark.parametrize(
    "typed, words",
    [
        ("Agent app", ["approvals", "approve"]),
        ("Agent mode ", ["ask", "auto", "plan"]),
        ("Agent compact! u", ["undo"]),
        ("Agent nothing ", []),
    ],
)
def test_agent_completes_verbs_and_what_they_take(child, typed, words):
    assert child.lua("return vim.fn.getcompletion(..., 'cmdline')", typed) == words


def test_agent_ask_takes_the_lines_of_its_range(child):
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'one', 'two', 'three' })")
    child.command("2,3Agent ask what is this?")
    wait_until(lambda: "2-3" in child.transcript_text())


def test_the_key_on_the_line_of_agent_login_is_forgotten(child):
    child.feed(":Agent login sk-secret<CR>")
    wait_until(lambda: "Do not type the key" in child.messages())
    assert "sk-secret" not in child.lua("return vim.fn.histget('cmd', -1)")
