"""A session can do without prompt and windows: what works by itself has a transcript, and a chat only once somebody wants one."""

import pytest
from tests.conftest import wait_until

BEGIN = """
  _G.hidden = require('sanderling.chat').begin_hidden('hidden', '/elsewhere')
  _G.hidden:open()
"""
TEXT = "return vim.api.nvim_buf_get_lines(_G.hidden.transcript_buf, 0, -1, true)"
ALL_BUFFERS = "return #vim.api.nvim_list_bufs()"


def receive(screen, *events):
    screen.lua(
        "require('sanderling.host').receive({ session_id = 'hidden', seq = 1, events = ... })",
        list(events),
    )


def test_a_session_works_without_prompt_and_windows_and_is_gone_when_closed(screen):
    layout, before = screen.lua("return vim.fn.winlayout()"), screen.lua(ALL_BUFFERS)
    current = screen.lua("return require('sanderling.session.live').current_id()")
    screen.lua(BEGIN)
    assert screen.lua("return { _G.hidden.prompt == nil, #_G.hidden:buffers() }") == [True, 1]
    assert screen.lua("return _G.hidden:send({ 'Look at it.' })")
    assert screen.actions("submit_prompt")[0]["prompt"]["text"] == "Look at it."
    receive(
        screen,
        {"type": "session_opened", "model": "m"},
        {"type": "turn_started", "prompt": {"id": "1", "text": "Look at it."}},
        {"type": "todo_changed", "items": [{"content": "look", "status": "pending"}]},
        {"type": "text_delta", "block_id": 1, "text": "I *see*."},
        {"type": "turn_ended", "stop_reason": "end_turn"},
    )
    text = "\n".join(screen.lua(TEXT))
    assert "Look at it." in text
    assert "I *see*." in text
    assert screen.lua("return require('sanderling.session.live').current_id()") == current
    assert len(screen.lua("return require('sanderling').list()")) == 1
    screen.lua("require('sanderling').switch()")
    assert "No other session is open" in screen.messages()
    screen.lua("require('sanderling.chat').remove(_G.hidden)")
    assert screen.events("AgentSessionClosed")[-1]["session_id"] == "hidden"
    assert screen.lua("return vim.fn.winlayout()") == layout
    assert screen.lua(ALL_BUFFERS) == before


def test_its_text_comes_back_when_its_buffer_is_deleted(screen):
    screen.lua(BEGIN)
    receive(screen, {"type": "notice", "level": "info", "text": "Something was said."})
    screen.lua("vim.cmd.bwipeout(_G.hidden.transcript_buf)")
    wait_until(lambda: screen.lua("return _G.hidden:is_whole()"))
    assert "Something was said." in screen.lua(TEXT)


def test_what_it_could_not_send_is_in_the_history_of_prompts(screen):
    screen.lua(BEGIN)
    screen.lua("_G.hidden:send({ 'Look at it.' })")
    screen.lua("require('sanderling.chat').remove(_G.hidden)")
    assert screen.lua("return require('sanderling.prompt.history').entries()")[-1] == "Look at it."


@pytest.mark.parametrize(
    "show",
    [
        "require('sanderling.chat').open('hidden', '/elsewhere', {})",
        "vim.cmd.tabnew() vim.cmd.buffer(_G.hidden.transcript_buf) vim.api.nvim_input('i')",
    ],
    ids=["it is opened", "somebody writes in it"],
)
def test_it_has_a_prompt_once_somebody_wants_to_see_it_as_a_chat(screen, show):
    screen.lua(BEGIN)
    screen.lua(show)
    wait_until(lambda: screen.lua("return vim.bo.filetype == 'sanderling_prompt'"))
    assert screen.lua("return require('sanderling.session.live').current_id()") == "hidden"
    screen.feed("<Esc>iHello.<Esc><CR>")
    wait_until(lambda: screen.lua("return #_G.hidden.state.unconfirmed == 1"))
    assert len(screen.lua("return require('sanderling').list()")) == 2
