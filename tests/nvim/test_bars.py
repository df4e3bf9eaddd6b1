"""The bars of a chat: its title and numbers above the transcript, its state between transcript and prompt."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_usage_screen import usage

STATE = "ask idle"
NUMBERS = "ctx 33% $0.42"


def of_chat(screen):
    """The chat's rows, without the columns of the code at its left."""
    return [row.partition("│")[2] or row.partition("├")[2] for row in screen.screen()]


def begin(start_chat, columns=80, commands=()):
    screen = start_chat(columns=columns, lines=24, commands=commands)
    screen.send({"type": "title_changed", "title": "Why is it wrong?"}, usage())
    screen.command("wincmd t")
    screen.wait_for_screen(STATE)
    return screen


@pytest.mark.parametrize("columns", prove_rest([66, 80, 120, 200], (0, 3), is_one=True))
@pytest.mark.parametrize("laststatus", [0, 1, 2])
def test_a_chat_has_a_bar_above_and_one_between_its_windows(start_chat, laststatus, columns):
    screen = begin(start_chat, columns, [f"set laststatus={laststatus}"])
    rows = of_chat(screen)
    bars = [row for row in rows if NUMBERS in row or STATE in row or "Prompt" in row]
    assert bars == [rows[0], next(row for row in rows if STATE in row)]
    assert len([row for row in rows if "Sanderling" in row]) == 0
    assert screen.screen_text().count("Why is it wrong?") == (columns > 150)
    assert max(map(len, screen.screen())) <= columns


def test_under_a_global_statusline_the_state_is_the_winbar_of_the_prompt(start_chat):
    screen = begin(start_chat, commands=["set laststatus=3"])
    rows = of_chat(screen)
    line = next(n for n, row in enumerate(rows) if row.startswith("───"))
    assert STATE in rows[line + 1]
    assert len([row for row in rows if STATE in row]) == 1


def test_the_state_moves_with_laststatus_and_the_prompt_keeps_its_rows(start_chat):
    screen = begin(start_chat, commands=["set laststatus=2"])

    def state():
        rows = of_chat(screen)
        placed = next((n for n, row in enumerate(rows) if STATE in row), None)
        return placed, any(row.startswith("───") for row in rows)

    before = state()
    for laststatus, has_line in ((3, True), (0, False), (2, False), (3, True), (2, False)):
        screen.command(f"set laststatus={laststatus}")
        wait_until(lambda has_line=has_line: state()[0] and state()[1] == has_line, "the state")
        text = screen.lua("""
          for _, win in ipairs(vim.api.nvim_list_wins()) do
            local buf = vim.api.nvim_win_get_buf(win)
            if vim.bo[buf].filetype == 'sanderling_prompt' then
              return vim.fn.getwininfo(win)[1].height
            end
          end
        """)
        assert text == 2
    assert state() == before


def test_a_statusline_of_the_users_leaves_the_state_to_a_winbar(start_chat):
    screen = begin(start_chat, commands=["set laststatus=2 statusline=mine:%f"])
    assert screen.screen_text().count(STATE) == 1
    assert "mine:[Sanderling]" in screen.screen_text()


def test_a_statusline_that_a_plugin_sets_later_moves_the_state_to_the_winbar(start_chat):
    screen = begin(start_chat, commands=["set laststatus=2"])
    screen.lua("vim.wo[require('sanderling').transcript().win][0].statusline = 'theirs'")
    wait_until(lambda: "theirs" in screen.screen_text() and STATE in screen.screen_text())
    assert screen.screen_text().count(STATE) == 1


@pytest.mark.parametrize("key", ["k", "j"])
def test_the_state_has_vims_mode_in_both_windows(start_chat, key):
    screen = begin(start_chat, commands=["set laststatus=2"])
    screen.command(f"wincmd b | wincmd {key}")
    wait_until(lambda: "NORMAL ask idle" in screen.screen_text())
    screen.feed("v")
    wait_until(lambda: "VISUAL ask idle" in screen.screen_text())


def test_a_float_keeps_both_winbars(start_screen):
    screen = start_screen(columns=80, lines=24)
    screen.open_chat(position="float", focus=True)
    screen.send({"type": "title_changed", "title": "Why is it wrong?"}, usage())
    screen.wait_for_screen("NORMAL ask idle", NUMBERS)
