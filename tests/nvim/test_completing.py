"""The arguments that the command line completes for :Agent and its short commands, and that no key waits for the host."""

import os
import signal

import pytest
from tests.conftest import wait_until

ANSWERS = """
[[reply]]
repeat = true
[[reply.step]]
text = "answered"
"""
COMPLETE = "return vim.fn.getcompletion(..., 'cmdline')"
VERBS = """
  local verbs = require('sanderling.verbs')
  local found = {}
  for _, verb in ipairs(verbs.list) do
    if verbs.name_in(verb, 'ex') and verbs.argument_of(verb) then
      found[#found + 1] = verb.name
    end
  end
  return found
"""
PROSE = {
    "steer",
    "comment",
    "deny",
    "ask",
    "explain",
    "fix",
    "test",
    "commit",
    "edit",
    "find",
    "each",
}
EMPTY_HERE = {"option", "reveal", "terminal"}  # no external agent answers, and no job has run


@pytest.fixture
def chat(scripted, project):
    (project / "notes.txt").write_text("one\n")
    child = scripted(ANSWERS)
    child.chat("sort the list")
    return child


def complete(child, line):
    return child.lua(COMPLETE, line)


def test_each_verb_completes_its_argument_unless_that_is_prose(chat):
    def silent():
        return {name for name in chat.lua(VERBS) if not complete(chat, f"Agent {name} ")}

    wait_until(lambda: silent() == PROSE | EMPTY_HERE, "the others complete")


@pytest.mark.parametrize(
    "line, expected",
    [
        ("AgentSessions ", ["sort the list"]),
        ("AgentSessions! SOR", ["sort the list"]),
        ("Agent sessions sort the li", ["list"]),
        ("Agent rename ", ["sort the list"]),
        ("AgentEffort hi", ["high"]),
        ("AgentEffort high ", ["once"]),
        ("Agent effort high o", ["once"]),
        ("Agent rewind ", ["1 sort the list"]),
        ("Agent mo", ["mode", "model"]),
        ("Agent nothing ", []),
    ],
)
def test_an_argument_is_completed_by_its_words(chat, line, expected):
    wait_until(lambda: complete(chat, line) == expected)


def test_tab_does_not_wait_for_a_host_that_does_not_answer(chat):
    host = chat.host_pid()
    names = chat.lua(VERBS)
    wait_until(lambda: complete(chat, "AgentSessions ") == ["sort the list"])
    os.kill(host, signal.SIGSTOP)
    try:
        for name in names:
            complete(chat, f"Agent {name} ")
        assert complete(chat, "AgentSessions ") == ["sort the list"]
        chat.feed(":Agent mod<Tab>")
        wait_until(lambda: chat.lua("return vim.fn.getcmdline()") == "Agent mode")
        chat.feed("<Esc>")
        wait_until(lambda: chat.mode() == "n")
        chat.feed("i/mod")
        wait_until(lambda: chat.lua("return vim.fn.pumvisible()") == 1)
        chat.feed("<Tab>")
        wait_until(lambda: chat.prompt_lines() == ["/model"])
        chat.feed("<C-u>@session:")
        wait_until(lambda: chat.prompt_lines() == ["@session:"])
    finally:
        os.kill(host, signal.SIGCONT)
