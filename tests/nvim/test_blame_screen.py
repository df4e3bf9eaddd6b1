""":AgentBlame from end to end: a real Neovim, host and files; only the model is a script."""

import pytest
from tests.conftest import wait_until
from tests.nvim.replies import DONE, edit, reply, say, use

OLD = "def f():\n    return 1\n"
LINE = "    limit = compute_the_limit(of_this)"


def labels(agent):
    """The virtual texts of the file by line."""
    found = agent.lua("""
      local ns = vim.api.nvim_get_namespaces().sanderling_blame
      local buf = vim.fn.bufnr('app.py')
      return vim.tbl_map(function(mark)
        return { mark[2] + 1, mark[4].virt_text[1][1] }
      end, ns and vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true }) or {})
    """)
    return {lnum: label.strip() for lnum, label in found}


@pytest.fixture
def worked(start_agent, project):
    (project / "app.py").write_text(OLD)
    agent = start_agent(
        reply(use("read", path="app.py")),
        reply(edit("app.py", "def f():\n", f"def f():\n{LINE}\n")),
        reply(say("Limited.")),
        DONE,
    )
    agent.command("AgentMode auto")
    agent.command(f"edit {project / 'app.py'}")
    agent.ask_and_wait("Limit it.")
    wait_until(lambda: agent.lines("app.py") == ["def f():", LINE, "    return 1"])
    return agent


def test_virtual_text_names_the_prompt_and_is_toggled(worked):
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    assert list(labels(worked)) == [2]
    assert labels(worked)[2].startswith("Limit it")
    assert labels(worked)[2].endswith("just now")
    worked.command("AgentBlame")
    assert labels(worked) == {}


def test_lines_of_an_unsaved_buffer_are_found_where_they_are(worked):
    worked.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('app.py'), 0, 0, true, { '# mine', '' })")
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    assert list(labels(worked)) == [4]


def test_the_float_shows_the_prompt_and_a_key_opens_the_session_at_the_turn(worked):
    session = worked.session_id()
    for n in range(2):
        worked.ask_and_wait(f"Prompt {n}.")
    worked.command("Agent close")
    wait_until(lambda: worked.lua("return #require('sanderling').list()") == 0)
    worked.command("normal! 2G")
    worked.command("AgentBlame!")
    shown = worked.wait_for_screen("Who wrote this", "Limit it.", "for the turn", "+" + LINE)
    assert f"session {session}, turn 1" in shown
    worked.feed("<CR>")
    wait_until(lambda: worked.lua("return vim.fn.getline('.')") == "## You")
    assert worked.lua("return vim.fn.getline(vim.fn.line('.') + 2)").startswith("Limit it") or (
        "Limit it." in worked.lua("return table.concat(vim.fn.getline('.', vim.fn.line('.') + 3))")
    )


@pytest.mark.parametrize("command", ["AgentBlame", "AgentBlame!"])
def test_a_file_without_lines_of_the_agents_says_so(worked, project, command):
    (project / "mine.py").write_text("mine\n")
    worked.command(f"edit {project / 'mine.py'}")
    worked.command(command)
    worked.wait_for_message("The agent wrote no line of this file")


def test_a_buffer_that_is_no_file_is_refused(worked):
    worked.command("enew")
    worked.command("AgentBlame")
    worked.wait_for_message("This buffer is not a file.")
