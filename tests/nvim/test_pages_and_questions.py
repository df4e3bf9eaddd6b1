"""Floats with information never cover a question, and `q` closes each of them."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.replies import DONE, reply, use
from tests.nvim.test_approval import SIX

COMMAND = {"command": "touch made"}
PAGES = {
    "help": ":Agent help<CR>",
    "todo": ":Agent todo<CR>",
    "queue": ":Agent queue<CR>",
    "usage": ":Agent usage<CR>",
    "settings": ":Agent settings<CR>",
    "keys of the prompt": "g?",
    "keys of the transcript": "<C-w>kg?",
    "tool call": "<C-w>kggzR/todo<CR>K",
}
TODO = [{"content": f"task {n}", "status": "pending"} for n in range(30)]


def pages(agent):
    """The floats in which there is no question."""
    return agent.lua("""
      return vim.tbl_filter(function(win)
        local config = vim.api.nvim_win_get_config(win)
        return config.relative ~= '' and config.zindex ~= 60 and config.focusable
      end, vim.api.nvim_tabpage_list_wins(0))
    """)


def covered_lines(agent):
    """The lines of the question that are not on the screen in the question's area."""
    lines, rows, width = agent.lua(
        """
        local win = ...
        vim.cmd.redraw()
        local top, left = unpack(vim.api.nvim_win_get_position(win))
        local width, rows = vim.api.nvim_win_get_width(win), {}
        for row = 1, vim.api.nvim_win_get_height(win) do
          local cells = {}
          for col = 1, width do
            cells[col] = vim.fn.screenstring(top + row + 1, left + col + 1)
          end
          rows[row] = (table.concat(cells):gsub('%s+$', ''))
        end
        return { vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(win), 0, -1, true), rows, width }
        """,
        agent.float(),
    )
    return [line for line in lines if len(line) <= width and line not in rows]


@pytest.fixture
def asked(start_agent):
    def start(columns=80, lines=24):
        agent = start_agent(
            reply(use("todo", items=TODO)),
            reply(use("bash", **COMMAND)),
            DONE,
            columns=columns,
            lines=lines,
        )
        agent.command("AgentChat")
        agent.feed("igo<C-s><Esc>")
        agent.wait_for_question()
        agent.feed("inext<C-s><Esc>")
        agent.wait_for_screen("1 to answer · 1 q")  # the rest is cut in a narrow window
        return agent

    return start


@pytest.mark.parametrize("columns, lines", prove_rest([(80, 24), (60, 20), (120, 36)], keep=(0,)))
@pytest.mark.parametrize("name", PAGES)
def test_a_page_covers_no_question_and_q_closes_it(asked, name, columns, lines):
    agent = asked(columns, lines)
    agent.feed(PAGES[name])
    wait_until(lambda: pages(agent), "the page")
    assert covered_lines(agent) == []
    assert "Allow bash?" in agent.screen_text()
    agent.feed("q")
    wait_until(lambda: not pages(agent), "the page is closed")
    assert agent.float(), "the question is left"
    assert agent.lua("return vim.fn.reg_recording()") == ""
    assert agent.results()[1:] == []


def test_a_question_that_comes_is_above_the_page_that_the_user_reads(start_agent):
    gate = {
        "step": [{"delay_ms": 1500}, {"tool_use": {"id": "t1", "name": "bash", "input": COMMAND}}]
    }
    agent = start_agent(gate, DONE, columns=80, lines=24)
    agent.command("AgentChat")
    agent.feed("igo<C-s><Esc>")
    agent.feed(":Agent help<CR>")
    wait_until(lambda: pages(agent))
    agent.wait_for_question()
    assert covered_lines(agent) == []
    assert agent.lua("return vim.api.nvim_get_current_win()") in pages(agent)


@pytest.mark.parametrize("key", ["g?"])
def test_a_page_that_is_opened_from_a_question_is_above_it(asked, key):
    agent = asked()
    agent.enter_question()
    listed = agent.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)")
    assert set(SIX) <= set(listed)
    agent.feed(key)
    wait_until(lambda: pages(agent))
    assert "deny it and all that was asked with it" in agent.screen_text()
    agent.feed("q")
    wait_until(lambda: agent.float() == agent.lua("return vim.api.nvim_get_current_win()"))
