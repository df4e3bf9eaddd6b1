"""A chat whose host is the test: events come by the host's own way in, and actions are caught before they leave."""

import pytest
from tests.conftest import ChildNvim

CATCH_ACTIONS = """
  local host = require('sanderling.host')
  _G.actions = {}
  host.open = function() end
  host.act = function(_, action) table.insert(_G.actions, action) end
"""


class Screen(ChildNvim):
    """A chat whose host is the test."""

    def send(self, *events):
        self.lua(
            """
            local id = vim.b[require('sanderling').transcript().buf].sanderling_session
            require('sanderling.host').receive({ session_id = id, seq = 1, events = ... })
            """,
            list(events),
        )

    def actions(self, type_=None):
        actions = self.lua("return _G.actions") or []
        return [action for action in actions if type_ in (None, action["type"])]

    def highlight(self, text):
        """The groups that begin on the first transcript line that equals `text`, or lie over it."""
        return self.lua(
            """
            local wanted = ...
            local buf = require('sanderling').transcript().buf
            for row, line in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, true)) do
              if line == wanted then
                local marks = vim.api.nvim_buf_get_extmarks(
                  buf, -1, { row - 1, 0 }, { row - 1, -1 }, { details = true, overlap = true })
                return vim.tbl_map(function(mark)
                  local ends_here = mark[4].end_row == row - 1 and mark[4].end_col == 0
                  return not ends_here and mark[4].hl_group or ''
                end, marks)
              end
            end
            """,
            text,
        )

    def in_a_turn(self, text="Thinking about it. "):
        self.send(
            {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
            {"type": "text_delta", "block_id": 1, "text": text},
        )

    def winbar(self):
        """The transcript's winbar as drawn, and the highlight groups of its words."""
        return self.lua("""
          local win = require('sanderling').transcript().win
          local bar = vim.api.nvim_win_call(win, function()
            return vim.api.nvim_eval_statusline(vim.wo[win].winbar, {
              winid = win, use_winbar = true, highlights = true, maxwidth = vim.api.nvim_win_get_width(win) })
          end)
          local words = {}
          for i, highlight in ipairs(bar.highlights) do
            local next_start = bar.highlights[i + 1] and bar.highlights[i + 1].start or #bar.str
            words[vim.trim(bar.str:sub(highlight.start + 1, next_start))] = highlight.groups and
              highlight.groups[#highlight.groups] or highlight.group
          end
          return { bar.str, words }
        """)


@pytest.fixture
def start_screen(tmp_path, project):
    children = []

    def start(**options):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        child = Screen(home, project, {}, **options)
        children.append(child)
        child.record_events()
        child.lua(CATCH_ACTIONS)
        return child

    yield start
    for child in children:
        child.close()


@pytest.fixture
def screen(start_screen):
    child = start_screen()
    child.command("AgentChat")
    return child
