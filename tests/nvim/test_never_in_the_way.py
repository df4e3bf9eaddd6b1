"""Streaming does not move a reader, does not disturb a mode, and loses nothing whatever Neovim is busy with."""

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import examples, prove_rest, prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick

ANSWER = [f"line {n} of the answer" for n in range(120)]
TEXT = "\n".join([*ANSWER, ""])
STREAM = f"""
[[reply]]
[[reply.step]]
text = {json.dumps(TEXT)}
chunk_chars = 40
chunk_delay_ms = 4
"""

# The modes of doc/architecture.md: what a user may be in the middle of, the mode that Neovim calls it, and how to leave it.
MODES = {
    "normal": ("", "n", ""),
    "insert in the prompt": ("ityping", "i", "<Esc>"),
    "visual": ("<C-w>kv", "v", "<Esc>"),
    "visual line": ("<C-w>kV", "V", "<Esc>"),
    "visual block": ("<C-w>k<C-v>", "\x16", "<Esc>"),
    "select": ("<C-w>kgh", "s", "<Esc>"),
    "operator pending": ("d", "no", "<Esc>"),
    "text object pending": ("vi", "v", "w<Esc>"),
    "replace pending": ("itext<Esc>0r", "R", "x"),
    "replace mode": ("itext<Esc>0R", "R", "<Esc>"),
    "insert a register": ("itext<C-r>", "i", "<Esc><Esc>"),
    "command line": (":echo 1", "c", "<Esc>"),
    "search": ("/line", "c", "<Esc>"),
    "command-line window": ("q:", "n", ":q<CR>"),
    "hit-enter": (":echo 1 | echo 2 | echo 3<CR>", "r", "<CR>"),
    "more prompt": (":set nomore | set more | highlight<CR>", "rm", "q"),
    "getchar()": (":call getchar()<CR>", "n", "x"),
    "getchar() in an expression mapping": ("<F5>", "n", "x"),
    "input()": (":call input('? ')<CR>", "c", "<CR>"),
    "confirm()": (":call confirm('?')<CR>", "r?", "<CR>"),
    "completion menu": ("ialpha alphabet alp<C-x><C-n>", "ic", "<C-e><Esc>"),
}


def answer_in(child):
    return [line for line in child.transcript() if line.startswith("line ")]


@quick
@pytest.mark.parametrize("mode", prove_rest(MODES, keep=(0,)))
def test_text_that_streams_in_any_mode_is_complete_afterwards(scripted, mode):
    enter, name, leave = MODES[mode]
    child = scripted(STREAM, keys={"hide_prompt": False})
    child.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 3, "the answer begins")
    child.feed(enter)
    wait_until(lambda: child.mode() == name, f"{mode}, not {child.mode()}")
    time.sleep(0.25)  # the answer goes on, or waits, while the user sits there
    child.feed(leave)
    wait_until(lambda: not child.is_blocked(), f"{mode} is left")
    child.wait_for_turns()
    assert answer_in(child) == ANSWER
    assert "E" + "565" not in child.messages()
    assert "rror" not in child.messages()


@pytest.mark.parametrize(
    "enter, mode",
    [("ityping", "i"), ("v", "v"), ("V", "V"), ("d", "no"), (":echo 1", "c"), ("R", "R")],
)
def test_streaming_does_not_change_the_mode(scripted, enter, mode):
    child = scripted(STREAM)
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 3, "the answer begins")
    child.feed(enter)
    wait_until(lambda: child.mode() == mode, f"mode {mode}")
    child.wait_for_turns()
    assert child.mode() == mode


def test_a_visual_selection_at_the_end_does_not_grow(scripted):
    child = scripted(STREAM)
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 3, "the answer begins")
    child.feed("<C-w>kGV")
    wait_until(lambda: child.mode() == "V", "visual mode")
    selected = child.lua("return { vim.fn.line('v'), vim.fn.line('.') }")
    child.wait_for_turns()
    assert child.lua("return { vim.fn.line('v'), vim.fn.line('.') }") == selected


def view(child):
    return child.lua("""
      local win = require('sanderling').transcript().win
      return vim.api.nvim_win_call(win, function()
        local v = vim.fn.winsaveview()
        return { v.lnum, v.col, v.topline }
      end)
    """)


def test_a_reader_who_left_the_last_line_is_not_moved(scripted):
    child = scripted(STREAM)
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 60, "more than a screen of answer")
    child.feed("<C-w>k10kzz")
    before = wait_until(lambda: child.lua("return vim.bo.filetype == 'sanderling'") and view(child))
    child.wait_for_turns()
    assert view(child) == before


def test_a_reader_on_the_last_line_goes_along(scripted):
    child = scripted(STREAM)
    child.chat("go")
    assert child.in_transcript("line('.') == line('$')")
    assert "line 119 of the answer" in child.screen_text()


def test_reading_resumes_with_the_text_after_going_back_to_the_end(scripted):
    child = scripted(STREAM)
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 60, "more than a screen of answer")
    child.feed("<C-w>kgg")
    wait_until(lambda: child.in_transcript("line('.')") == 1, "the reader is at the top")
    child.feed("G")
    child.wait_for_turns()
    assert child.in_transcript("line('.') == line('$')")


def test_every_window_on_the_transcript_keeps_its_own_place(scripted):
    child = scripted(STREAM)
    child.open_chat(position="tab")
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 30, "some answer")
    child.lua("""
      local buf = require('sanderling').transcript().buf
      vim.cmd('topleft vsplit') vim.wo.winfixbuf = false vim.api.nvim_win_set_buf(0, buf)
      _G.reader = vim.api.nvim_get_current_win()
      vim.api.nvim_win_set_cursor(0, { 5, 2 })
      vim.cmd('tabnew') vim.api.nvim_win_set_buf(0, buf)
      _G.other_tab = vim.api.nvim_get_current_win()
      vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(buf), 0 })
    """)
    child.wait_for_turns()
    assert child.lua("return vim.api.nvim_win_get_cursor(_G.reader)") == [5, 2]
    last = child.lua("return vim.api.nvim_buf_line_count(vim.api.nvim_win_get_buf(_G.other_tab))")
    assert child.lua("return vim.api.nvim_win_get_cursor(_G.other_tab)")[0] == last


def test_a_fold_that_the_user_made_survives_the_stream(scripted):
    child = scripted(STREAM)
    child.open_chat()
    child.submit("go")
    wait_until(lambda: len(answer_in(child)) > 30, "some answer")
    child.feed("<C-w>k:8,12fold<CR>:15,18fold<CR>:15foldopen<CR>")
    wait_until(lambda: child.in_transcript("foldclosed(8)") == 8, "the fold is there")
    child.wait_for_turns()
    assert child.in_transcript(
        "[foldclosed(8), foldclosedend(8), foldclosed(15), foldlevel(15)]"
    ) == [8, 12, -1, 1]


MOTIONS = st.sampled_from(
    [
        *("j", "k", "5j", "5k", "gg", "G", "<C-d>", "<C-u>", "zt", "zz", "zb", "/line 7<CR>", "w"),
        *("0", "$", "V", "<Esc>"),
    ]
)


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    deltas=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=40),
        max_size=60,
    ),
    motions=st.lists(MOTIONS, max_size=12),
)
def test_random_deltas_against_random_motions(scripted_once, deltas, motions):
    """Whatever arrives and wherever the reader goes: the text is exact, and a view off the end stays where it is."""
    child, send = scripted_once
    child.lua("require('sanderling').clear()")
    child.wait_for_transcript("demo model")
    filler = "".join(f"filler {n}\n" for n in range(80))
    send([{"type": "turn_started", "prompt": {"id": "1", "text": "go"}}])
    send([{"type": "text_delta", "block_id": 1, "text": filler}])
    child.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    for number, delta in enumerate(deltas):
        if number < len(motions):
            child.feed(motions[number])
            wait_until(lambda: not child.is_blocked())
        child.lua("vim.cmd.redraw()")
        before, is_at_end = view(child), child.in_transcript("line('.') == line('$')")
        send([{"type": "text_delta", "block_id": 1, "text": delta}])
        child.lua("vim.cmd.redraw()")
        if not is_at_end:
            assert view(child) == before
        elif child.mode() == "n":
            assert child.in_transcript("line('.') == line('$')")
    child.feed("<Esc>")
    assert child.transcript_text().partition("## Sanderling\n\n")[2] == filler + "".join(deltas)


@pytest.fixture
def scripted_once(child):
    """A chat whose events the test itself sends, by the host's own way in."""
    child.open_chat()

    def send(events):
        child.lua(
            """
            local id = vim.b[require('sanderling').transcript().buf].sanderling_session
            require('sanderling.host').receive({ session_id = id, seq = 1, events = ... })
            """,
            events,
        )

    return child, send
