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
def work(start_agent, project):
    """Have an agent add `line` to a file, which is open."""

    def work(prompt="Limit it.", line=LINE, **screen):
        (project / "app.py").write_text(OLD)
        agent = start_agent(
            reply(use("read", path="app.py")),
            reply(edit("app.py", "def f():\n", f"def f():\n{line}\n")),
            reply(say("Limited.")),
            DONE,
            **screen,
        )
        agent.command("AgentMode auto")
        agent.command(f"edit {project / 'app.py'}")
        agent.ask_and_wait(prompt)
        wait_until(lambda: agent.lines("app.py") == ["def f():", line, "    return 1"])
        return agent

    return work


@pytest.fixture
def worked(work):
    return work()


def test_virtual_text_names_the_prompt_and_is_toggled(worked):
    worked.command("set columns=200")
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    assert list(labels(worked)) == [2]
    assert labels(worked)[2].startswith("Limit it")
    assert labels(worked)[2].endswith("just now")
    worked.command("AgentBlame")
    assert labels(worked) == {}


def test_asked_for_twice_before_the_answer_labels_are_there_once(worked):
    autocommands = "return #vim.api.nvim_get_autocmds({ group = 'sanderling_blame', buffer = 0 })"
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    once = worked.lua(autocommands)
    worked.command("AgentBlame | AgentBlame | AgentBlame")
    wait_until(lambda: list(labels(worked)) == [2])
    worked.command("normal! 2G")
    worked.command("AgentBlame!")  # the host answers in order
    worked.wait_for_screen("Who wrote this")
    worked.feed("q")
    assert worked.lua(autocommands) == once


def test_labels_return_when_the_file_is_read_again(worked):
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    worked.command("silent edit!")
    wait_until(lambda: list(labels(worked)) == [2])
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


CJK_PROMPT, CJK_LINE = (
    "限制这个函数的返回值并检查所有调用者" * 3,
    '    name = "限制这个函数的返回值"',
)


def box(agent):
    """The rows of the float as drawn, from border to border."""
    return agent.lua("""
      vim.cmd.redraw()
      for _, win in ipairs(vim.api.nvim_list_wins()) do
        if vim.api.nvim_win_get_config(win).relative ~= '' and vim.wo[win].winbar == '' then
          local pos, width = vim.fn.win_screenpos(win), vim.api.nvim_win_get_width(win)
          local rows = {}
          for row = pos[1] - 1, pos[1] + vim.api.nvim_win_get_height(win) do
            local cells = {}
            for col = pos[2] - 1, pos[2] + width do
              cells[#cells + 1] = vim.fn.screenstring(row, col)
            end
            rows[#rows + 1] = table.concat(cells)
          end
          return rows
        end
      end
    """)


def test_wide_text_is_cut_to_cells_in_a_label_and_whole_in_the_float(work):
    agent = work(CJK_PROMPT, CJK_LINE)
    agent.command("set columns=200")
    agent.command("AgentBlame")
    wait_until(lambda: labels(agent))
    title = labels(agent)[2].split(" · ")[0]
    cells = agent.lua("return vim.fn.strdisplaywidth(...)", title)
    assert 40 < cells <= 50
    assert CJK_PROMPT.startswith(title.rstrip("…"))
    agent.command("normal! 2G")
    agent.command("AgentBlame!")
    shown = agent.wait_for_screen("Who wrote this", "+" + CJK_LINE)
    assert CJK_PROMPT[:10] in shown


def test_a_label_fits_its_window_also_after_a_resize(worked):
    worked.command("set columns=200")
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    whole = labels(worked)[2]
    worked.command("vertical resize 34")
    wait_until(lambda: labels(worked)[2].endswith("…"))
    assert whole.startswith(labels(worked)[2].rstrip("…"))
    worked.command("vertical resize 120")
    wait_until(lambda: labels(worked)[2] == whole)


@pytest.mark.parametrize("columns, lines", [(40, 12), (24, 8)])
def test_on_a_narrow_screen_the_text_of_lines_stays_and_the_float_fits(work, columns, lines):
    agent = work(columns=columns, lines=lines)
    agent.command("only")
    agent.command("AgentBlame")
    wait_until(lambda: labels(agent))
    rows = agent.screen()
    assert rows[0].strip() == "def f():"
    assert any(row.endswith("    return 1") for row in rows)
    agent.command("normal! 2G")
    agent.command("AgentBlame!")
    agent.wait_for_screen("Who wrote")
    drawn = box(agent)
    assert len(drawn) <= lines
    assert all(len(row) <= columns for row in drawn)
    agent.feed("q")
    wait_until(lambda: "Who wrote" not in agent.screen_text())


@pytest.mark.parametrize("background", ["dark", "light"])
def test_labels_are_dim_on_a_dark_and_on_a_light_background(worked, background):
    worked.command(f"set background={background}")
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    colors = worked.lua("""
      local function color(name)
        return vim.api.nvim_get_hl(0, { name = name, link = false }).fg
      end
      return { color('AgentStatus') or vim.NIL, color('Normal') or vim.NIL }
    """)
    assert colors[0] is not None
    assert colors[0] != colors[1]


def test_labels_follow_their_lines_and_are_updated_when_the_file_is_written(worked):
    worked.command("AgentBlame")
    wait_until(lambda: labels(worked))
    worked.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('app.py'), 0, 0, true, { '# mine', '' })")
    assert list(labels(worked)) == [4]
    worked.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('app.py'), 3, 4, true, { 'raise other' })")
    worked.command("silent write")
    wait_until(lambda: labels(worked) == {})


def test_a_renamed_file_keeps_its_labels(work):
    worked = work(line="    result = first_of_all(second_of_all, third_of_all)")
    worked.command("silent file renamed.py | silent write | silent !rm app.py")
    worked.command("edit renamed.py")
    worked.command("AgentBlame")
    wait_until(
        lambda: (
            worked.lua("""
      local ns = vim.api.nvim_get_namespaces().sanderling_blame
      return #vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, {})
    """)
            == 1
        )
    )
