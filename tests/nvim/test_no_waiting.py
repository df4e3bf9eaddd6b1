"""Neovim waits for nobody: neither for the agent process when a word is completed, nor for git when a prompt is sent."""

import pytest
from tests.conftest import wait_until

COMPLETED = ["AgentChat ", "AgentResume ", "AgentModel ", "Agent rewind ", "Agent provider_test "]
WATCH_WAITS = """
  _G.waits = {}
  local wait = vim.wait
  vim.wait = function(...)
    table.insert(_G.waits, debug.traceback())
    return wait(...)
  end
"""


@pytest.mark.parametrize("is_open", [False, True])
def test_completing_waits_for_nothing_and_starts_no_process(child, is_open):
    if is_open:
        child.open_chat()
        child.lua("require('sanderling.host').is_running = function() return false end")
    child.lua(WATCH_WAITS)
    child.lua("""
      require('sanderling.host').request = function() error('nobody is asked') end
    """)
    for command in COMPLETED:
        child.lua("return vim.fn.getcompletion(..., 'cmdline')", command)
    assert child.lua("return _G.waits") == []


def test_names_that_need_no_process_are_completed_at_once(child):
    child.setup(agents={"mine": {"command": ["my-agent"]}})
    names = child.lua("return vim.fn.getcompletion('AgentChat ', 'cmdline')")
    assert {"right", "claude", "codex", "mine"} <= set(names)
    assert child.lua("return require('sanderling.host').is_running()") is False


GIT = """#!/bin/sh
case "$*" in
  *config*) until [ -e "$GO" ] || [ ! -d "${GO%/*}" ]; do sleep 0.02; done; exit 1;;
  *rev-parse*) echo true;;
  *diff*) printf -- 'diff --git a/x b/x\\n--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\n-old\\n+new\\n';;
esac
"""


@pytest.fixture
def slow_git(start_screen, tmp_path):
    """A chat whose git says nothing before the file `go` is there. It ends with the test's directory, too."""
    git, go = tmp_path / "bin" / "git", tmp_path / "go"
    git.parent.mkdir()
    git.write_text(GIT)
    git.chmod(0o755)
    screen = start_screen()
    screen.lua(
        "vim.env.PATH, vim.env.GO = ... .. ':' .. vim.env.PATH, select(2, ...)",
        str(git.parent),
        str(go),
    )
    screen.command("AgentChat")
    return screen, go


def prompts(screen):
    return [action["prompt"] for action in screen.actions("submit_prompt")]


def test_a_prompt_whose_mention_git_answers_keeps_nobody_waiting(slow_git):
    screen, go = slow_git
    screen.feed("ireview @diff<C-s>")
    screen.wait_for_screen("Resolving mentions")
    assert screen.prompt_lines() == [""]
    screen.feed("and this<C-s>")
    wait_until(lambda: screen.prompt_lines() == [""])
    assert prompts(screen) == []
    go.touch()
    wait_until(lambda: [each["text"] for each in prompts(screen)] == ["review @diff", "and this"])
    assert "+new" in prompts(screen)[0]["selections"][0]["text"]
    assert not prompts(screen)[1].get("selections")
    wait_until(lambda: "Resolving" not in screen.screen_text())


def test_a_prompt_whose_session_is_closed_meanwhile_is_in_the_history(slow_git):
    screen, go = slow_git
    screen.feed("ireview @diff<C-s>")
    screen.wait_for_screen("Resolving")
    screen.feed("<Esc>")
    screen.command("Agent clear")
    go.touch()
    screen.feed("i<M-p>")
    wait_until(lambda: screen.prompt_lines() == ["review @diff"])
    assert prompts(screen) == []


def test_what_fails_while_it_is_looked_up_is_said_and_the_prompt_comes_back(screen):
    screen.lua("""
      local sources, process = require('sanderling.prompt.sources'), require('sanderling.access.process')
      sources.BY_WORD.diff = function()
        process.await(function(settle)
          settle()
          return true
        end)
        error('the look-up is broken')
      end
    """)
    screen.feed("ireview @diff<C-s>")
    screen.wait_for_transcript("the look-up is broken")
    wait_until(lambda: screen.prompt_lines() == ["review @diff"])
    assert prompts(screen) == []
