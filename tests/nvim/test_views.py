"""A session has any number of views; the host hears that a frame is drawn when it is in all of them."""

import pytest
from tests.conftest import wait_until

OPEN = """
  local session = require('sanderling.session.live').current()
  _G.session, _G.drawn = session, {}
  require('sanderling.host').drawn = function(_, seq) table.insert(_G.drawn, seq) end
  _G.buf = vim.api.nvim_create_buf(false, true)
  _G.view = require('sanderling.chat.buffers').open_view(session, _G.buf)
"""

WHAT_IS_SHOWN = """
  local shown = {}
  for i, buf in ipairs({ _G.session.transcript_buf, _G.buf }) do
    local marks = {}
    local ns = vim.api.nvim_get_namespaces().sanderling
    for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true })) do
      table.insert(marks, { mark[2], mark[3], mark[4].end_row, mark[4].hl_group, mark[4].virt_text })
    end
    shown[i] = { lines = vim.api.nvim_buf_get_lines(buf, 0, -1, true), marks = marks }
  end
  for i, transcript in ipairs({ _G.session.transcript, _G.view }) do
    shown[i].turns, shown[i].folds = transcript.turns, vim.tbl_map(function(fold)
      return { fold.first, fold.last, fold.label }
    end, transcript.folds)
  end
  return shown
"""

TOOL = {"id": "t", "tool": "edit", "title": "a.py"}
PAGE = [
    {"type": "turn_started", "prompt": {"id": "0", "text": "before"}},
    {"type": "text_delta", "block_id": 1, "text": "Long ago."},
    {"type": "turn_ended", "stop_reason": "end_turn"},
]


def assert_same(screen, *texts):
    first, second = screen.lua(WHAT_IS_SHOWN)
    assert first == second
    for text in texts:
        assert text in "\n".join(first["lines"])


def test_a_second_view_of_a_running_session_shows_what_the_first_one_does(screen):
    screen.in_a_turn("First *words*.")
    screen.send({"type": "text_delta", "block_id": 1, "text": "\n\nAnd "})
    screen.lua(OPEN)
    assert_same(screen, "First *words*.")
    screen.send({"type": "text_delta", "block_id": 1, "text": "more."})
    assert_same(screen, "And more.")
    screen.send(
        {"type": "tool_started", **TOOL}, {"type": "tool_output", "id": "t", "text": "1\n2"}
    )
    screen.send({"type": "tool_ended", "id": "t", "summary": "+1", "detail": "@@ -1 +1 @@\n+x"})
    assert_same(screen, "edit a.py  +1")
    screen.send({"type": "history_shown", "events": PAGE, "start": 0})
    assert_same(screen, "Long ago.")
    screen.send({"type": "text_delta", "block_id": 2, "text": "Cut o"})
    screen.send({"type": "answer_restarted", "block_id": 2})
    screen.send({"type": "turn_ended", "stop_reason": "cancelled"})
    assert_same(screen, "Stopped.")
    assert len(screen.lua("return _G.drawn")) == 7


def test_a_frame_is_acknowledged_when_the_last_view_has_drawn_it(screen):
    screen.lua(OPEN)
    screen.lua("_G.view:go_away()")
    screen.in_a_turn("Words.")
    assert screen.lua("return _G.drawn") == []
    assert screen.events("AgentTurnStarted") == []
    screen.lua("_G.view:come_back(_G.buf)")
    assert screen.lua("return _G.drawn") == [1]
    assert len(screen.events("AgentTurnStarted")) == 1
    assert_same(screen, "Words.")


@pytest.mark.parametrize("end", ["_G.session.views:remove(_G.view)", "vim.cmd.bwipeout(_G.buf)"])
def test_nobody_waits_for_a_view_that_is_gone(screen, end):
    screen.lua(OPEN)
    screen.lua("_G.view:go_away()")
    screen.in_a_turn("Words.")
    screen.lua(end)
    wait_until(lambda: screen.lua("return _G.drawn") == [1])
    screen.send({"type": "text_delta", "block_id": 1, "text": "More."})
    assert screen.lua("return _G.drawn") == [1, 1]


def test_a_session_without_any_view_goes_on(screen):
    screen.lua(OPEN)
    screen.lua("_G.session.views:remove(_G.view) _G.session.views:remove(_G.session.transcript)")
    screen.in_a_turn("Words.")
    assert screen.lua("return _G.drawn") == [1]
    assert screen.lua("return _G.session.state.is_in_turn")
