"""What the agent has done is taken back, from end to end: a real Neovim, host, sandbox and files; only the model is a script."""

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.replies import DONE, reply, say, use
from tests.nvim.test_agent_acts import APP, FIXED, edit
from tests.nvim.test_agent_acts import app as app  # noqa: PLC0414 - a fixture


def dimmed(agent):
    """The headers of the turns that are dimmed."""
    return agent.lua("""
      local buf = require('sanderling').transcript().buf
      local names = {}
      for row, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, true)) do
        local marks = vim.api.nvim_buf_get_extmarks(buf, -1, { row - 1, 0 }, { row - 1, -1 },
          { details = true, overlap = true })
        local is_dimmed = vim.iter(marks):any(function(mark)
          return mark[4].hl_group == 'AgentRewound'
        end)
        table.insert(names, is_dimmed and line:match('^## (.*)') or nil)
      end
      return names
    """)


def test_turns_that_were_taken_back_are_dimmed_and_stay_so_when_the_session_is_resumed(start_agent):
    agent = start_agent(*[reply(say(f"Answer {n}.")) for n in range(4)])
    for n in range(3):
        agent.ask_and_wait(f"Prompt {n}.")
    agent.command("Agent rewind 2 Prompt 1.")
    agent.wait_for_screen("Conversation: without the last 2 turns")
    agent.feed("c")
    wait_until(lambda: dimmed(agent))
    assert dimmed(agent) == ["You", "Sanderling"] * 2
    agent.ask_and_wait("Another prompt.")
    assert dimmed(agent) == ["You", "Sanderling"] * 2
    session = agent.session_id()
    agent.command("Agent close")
    wait_until(lambda: agent.lua("return #require('sanderling').list()") == 0)
    agent.command(f"AgentResume {session}")
    agent.wait_for_screen("Another prompt.")
    wait_until(lambda: dimmed(agent) == ["You", "Sanderling"] * 2)


@pytest.mark.parametrize("columns, lines", prove_rest([(80, 24), (160, 48), (60, 20)], keep=(0,)))
def test_undo_redo_and_rewind_on_the_screen(start_agent, project, app, columns, lines):
    agent = start_agent(
        reply(edit()),
        reply(say("Fixed.")),
        reply(use("write", path="new.py", content="x = 1\n")),
        DONE,
        columns=columns,
        lines=lines,
    )
    agent.command("AgentMode auto")
    agent.command(f"edit {app}")
    agent.ask_and_wait("Fix it.")
    agent.ask_and_wait("And a new one.")
    assert (app.read_text(), (project / "new.py").exists()) == (FIXED, True)

    agent.command("AgentUndo")
    agent.wait_for_screen("Reverted: 1 file", "new.py")
    assert not (project / "new.py").exists()
    agent.command("AgentUndo")
    wait_until(lambda: app.read_text() == APP)
    buffer = "return table.concat(vim.api.nvim_buf_get_lines(vim.fn.bufnr('app.py'), 0, -1, true), '\\n')"
    wait_until(lambda: agent.lua(buffer) + "\n" == APP)
    wait_until(lambda: not agent.lua("return vim.bo[vim.fn.bufnr('app.py')].modified"))
    assert agent.lua("return #require('sanderling.review.hunks').list(vim.fn.bufnr('app.py'))") == 0
    agent.command("AgentRedo")
    wait_until(lambda: app.read_text() == FIXED)
    turns = ["2 And a new one.", "1 Fix it."]
    complete = "return vim.fn.getcompletion('Agent rewind ', 'cmdline')"
    wait_until(lambda: agent.lua(complete) == turns)

    agent.command("Agent rewind 1 Fix it.")
    screen = agent.wait_for_screen(
        "Back to before: Fix it.", "src/app.py  +1", "Conversation: without the last 2 turns"
    )
    assert "c conversation" in screen
    agent.feed("b")
    wait_until(lambda: app.read_text() == APP)
    wait_until(lambda: "back to before the prompt" in " ".join(agent.transcript_text().split()))
    wait_until(lambda: "Fix it." in "\n".join(agent.prompt_lines()))
    assert dimmed(agent) == ["You", "Sanderling", "You", "Sanderling"]


@prove
def test_a_turn_that_there_is_not_is_named(start_agent):
    agent = start_agent(DONE)
    agent.ask_and_wait("Hello.")
    agent.command("AgentUndo")
    agent.wait_for_screen("Nothing to undo")
    agent.command("Agent rewind 7")
    agent.wait_for_screen("No turn 7")


def test_what_stays_names_the_way_to_the_rest(start_agent, project):
    agent = start_agent(reply(use("write", path="new.py", content="x = 1\n")), DONE)
    agent.command("AgentMode auto")
    agent.ask_and_wait("A new one.")
    (project / "new.py").unlink()
    (project / "new.py").mkdir()
    agent.command("AgentUndo")
    agent.wait_for_screen("Reverted: 0 files, 1 kept", ":AgentUndo 1 does the rest")
    (project / "new.py").rmdir()
    agent.command("AgentUndo 1")
    agent.wait_for_screen("Reverted: nothing to change")
