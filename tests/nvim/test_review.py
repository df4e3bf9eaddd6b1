"""The review of what the agent has changed, as a person sees it: signs, virtual lines, keys, commands."""

import pytest
from tests.conftest import wait_until

CHANGE = """
local path, first, last, new = ...
local buf = vim.fn.bufnr(path)
require('sanderling.review')
require('sanderling.editing.listeners').changing(buf, 'use', function()
  require('sanderling.editing.undo').in_block(buf, false, function()
    vim.api.nvim_buf_set_lines(buf, first, last, true, new)
  end)
end)
"""


@pytest.fixture
def opened(start_nvim, project):
    """A file of these lines, changed by the agent, in a Neovim of 60 by 20 cells; gives both."""

    def open_file(lines, *changes, **options):
        child = start_nvim(columns=60, lines=20)
        if options:
            child.setup(**options)
        path = project / "file.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        child.command(f"silent edit {path}")
        for change in changes:
            agent(child, path, *change)
        return child, path

    return open_file


def agent(child, path, first, last, *new):
    child.lua(CHANGE, str(path), first, last, list(new))


def rows(child, count):
    return child.screen()[:count]


def runs(child, row):
    """The runs of cells of a screen row that look alike: their text, and their attributes."""
    return child.lua(
        """
        local row = ...
        vim.cmd.redraw()
        local runs = {}
        for col = 1, vim.o.columns do
          local cell = vim.api.nvim__inspect_cell(1, row - 1, col - 1)
          if #runs == 0 or not vim.deep_equal(runs[#runs][2], cell[2]) then
            runs[#runs + 1] = { '', cell[2] }
          end
          runs[#runs][1] = runs[#runs][1] .. cell[1]
        end
        return runs
        """,
        row,
    )


def test_a_hunk_shows_what_came_and_above_it_what_went(opened):
    child, _ = opened(["one", "two", "three"], (1, 2, "2", "two and a half"), (4, 4, "four"))
    assert rows(child, 6) == ["  one", "− two", "~ 2", "~ two and a half", "  three", "+ four"]


def test_beside_line_numbers_what_went_stands_where_what_came_does_at_once(opened):
    child, path = opened(["one", "two", "three"])
    child.command("set number")
    agent(child, path, 1, 2, "2")
    wait_until(lambda: rows(child, 3) == ["    1 one", "−     two", "~   2 2"])


def test_lines_that_are_gone_stand_where_they_were(opened):
    child, _ = opened(["one", "two", "three", "four"], (1, 2), (2, 3))
    child.command("set number")
    assert rows(child, 4) == ["  1 one", "−   two", "  2 three", "−   four"]


@pytest.mark.parametrize("icons, minus, above", [("unicode", "−", "‾"), ("ascii", "-", "^")])
def test_a_line_with_lines_gone_above_it_does_not_look_like_one_of_them(
    opened, icons, minus, above
):
    child, path = opened(["one", "two", "three"], icons=icons)
    agent(child, path, 0, 1)
    assert rows(child, 2) == [f"{above} two", "  three"]
    child.feed("<C-y>")
    assert rows(child, 3) == [f"{minus} one", f"{above} two", "  three"]


def test_with_ascii_icons_no_sign_is_anything_else(opened):
    child, path = opened(["one", "two", "three"], icons="ascii")
    agent(child, path, 0, 1, "1")
    agent(child, path, 2, 3)
    child.feed("<C-y>")
    shown = rows(child, 5)
    assert shown == ["- one", "~ 1", "  two", "- three", "~"]


@pytest.mark.parametrize("background", ["dark", "light"])
def test_words_that_differ_stand_out_on_both_sides(opened, background):
    child, path = opened(["import os", "def load(path, mode):"])
    child.command(f"set background={background}")
    agent(child, path, 1, 2, "def load(path, text):")
    assert rows(child, 3)[1:] == ["− def load(path, mode):", "~ def load(path, text):"]
    removed, added = dict(runs(child, 2)), dict(runs(child, 3))
    assert "mode" in removed
    assert added["text"]["background"] != added["def load(path, "]["background"]


def test_a_file_of_which_nothing_is_left_shows_what_was_there(opened):
    child, _ = opened(["one", "two"], (0, 2))
    assert rows(child, 4) == ["", "− one", "− two", "~"]


def test_long_odd_and_many_lines_that_are_gone_are_shown_in_part(opened):
    child, _ = opened(
        ["here", "x" * 5000, "a\tb\x01c", *(f"line {n}" for n in range(200))], (1, 153)
    )
    shown = rows(child, 3)
    assert shown[1] == "− " + "x" * 58
    assert shown[2] == "− a       b^Ac"
    child.feed("90<C-e>")
    assert "− … 52 more lines" in child.screen()


@pytest.mark.parametrize("keys", ["", "i", "V"])
def test_the_line_under_the_cursor_stays_where_it_is_on_the_screen(opened, keys):
    child, path = opened([f"line {n}" for n in range(100)])
    child.feed("50Gzz" + keys)
    child.lua("vim.cmd.redraw()")
    before = child.lua(
        "return { vim.fn.winline(), vim.fn.col('.'), vim.api.nvim_get_mode().mode, vim.fn.getline('.') }"
    )
    agent(child, path, 45, 46, "a", "b", "c")
    agent(child, path, 47, 49)
    agent(child, path, 10, 12)
    agent(child, path, 60, 62)
    after = child.lua(
        "return { vim.fn.winline(), vim.fn.col('.'), vim.api.nvim_get_mode().mode, vim.fn.getline('.') }"
    )
    assert after == before


def test_signs_and_virtual_lines_go_with_their_hunk_and_come_back_with_undo(opened):
    child, _ = opened(["one", "two", "three"], (1, 2, "2"))
    assert rows(child, 4) == ["  one", "− two", "~ 2", "  three"]
    child.feed("u")
    assert rows(child, 4) == ["one", "two", "three", "~"]
    child.feed("<C-r>")
    assert rows(child, 4) == ["  one", "− two", "~ 2", "  three"]
    child.lua("local h = require('sanderling.review.hunks') h.accept(h.list(vim.fn.bufnr()))")
    assert rows(child, 4) == ["one", "2", "three", "~"]


def text(child):
    return child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), ' ')")


def type_keys(child, keys):
    child.feed(keys)
    child.lua("return 1")


def test_keys_go_from_hunk_to_hunk_keep_one_and_reject_another(opened):
    child, _ = opened("abcdefgh", (1, 2, "B"), (3, 4, "D"), (5, 6, "F"))
    type_keys(child, "]h]h")
    assert child.lua("return vim.fn.line('.')") == 4
    type_keys(child, r"\hr[h\ha")
    assert text(child) == "a B c d e F g h"
    type_keys(child, "]h")
    assert child.lua("return vim.fn.line('.')") == 6
    child.command("AgentAccept all")
    assert child.lua("return vim.api.nvim_buf_get_keymap(0, 'n')") == []


def test_a_key_that_is_mapped_stays_as_it_is(opened):
    child, path = opened("abc")
    child.command("nnoremap ]h :let g:mine = 1<CR>")
    child.command(r"nnoremap \h :let g:mine = 2<CR>")
    agent(child, path, 1, 2, "B")
    left = child.lua(
        "return vim.tbl_map(function(m) return m.lhs end, vim.api.nvim_buf_get_keymap(0, 'n'))"
    )
    assert [lhs for lhs in left if not lhs.startswith("<Plug>")] == ["[h"]


def test_which_key_is_told_once_what_a_group_of_keys_is_for(opened):
    child, path = opened(["one", "two", "three", "four"])
    child.lua("""
      named = {}
      package.loaded['which-key'] = { add = function(spec) table.insert(named, spec) end }
    """)
    agent(child, path, 0, 1, "1")
    child.feed("\\ha")
    agent(child, path, 3, 4, "4")
    buf = child.lua("return vim.api.nvim_get_current_buf()")
    assert child.lua("return #named") == 1
    assert child.lua("return { named[1][1], named[1].group, named[1].buffer }") == [
        "<LocalLeader>h",
        "agent: changes",
        buf,
    ]


def test_a_trigger_that_reads_the_other_keys_itself_takes_none_of_ours(opened):
    child, path = opened(["one"])
    child.lua("""
      local function map(lhs, opts)
        vim.keymap.set('n', lhs, '<Nop>', vim.tbl_extend('error', opts, { buffer = true }))
      end
      map(']', { nowait = true, desc = 'which-key-trigger' })
      map('\\\\h', { desc = "the user's, which waits" })
      map('[hx', { nowait = true, desc = "the user's, which is longer" })
    """)
    agent(child, path, 0, 1, "1")
    ours = "return vim.fn.maparg(..., 'n', false, true).desc or ''"
    assert child.lua(ours, "]h").startswith("Agent: ")
    assert not child.lua(ours, "\\ha")
    assert not child.lua(ours, "[h")


def test_without_which_key_nothing_of_it_is_loaded(opened):
    child, path = opened(["one"])
    child.lua("package.preload['which-key'] = function() error('loaded') end")
    agent(child, path, 0, 1, "1")
    assert child.lua("return package.loaded['which-key'] == nil")


def test_keys_take_a_count_and_the_dot_repeats_them(opened):
    child, path = opened("abcdefghij")
    for row in range(1, 10, 2):
        agent(child, path, row, row + 1, f"{row}")
    type_keys(child, r"]h\hr]h.")
    assert text(child) == "a b c d e 5 g 7 i 9"
    type_keys(child, "u")
    assert text(child) == "a b c 3 e 5 g 7 i 9"
    type_keys(child, r"gg]h2\ha")
    assert child.lua("return #require('sanderling.review.hunks').list(vim.fn.bufnr())") == 2
    type_keys(child, "]h2.")
    assert child.lua("return #require('sanderling.review.hunks').list(vim.fn.bufnr())") == 0
    assert text(child) == "a b c 3 e 5 g 7 i 9"


def test_a_map_of_another_buffer_takes_no_key(opened):
    child, path = opened("abc")
    child.command("split other.txt | nnoremap <buffer> ]h :let g:mine = 1<CR>")
    agent(child, path, 1, 2, "B")
    maps = "return vim.tbl_map(function(m) return m.lhs end, vim.api.nvim_buf_get_keymap(vim.fn.bufnr(...), 'n'))"
    assert "]h" in child.lua(maps, str(path))
    child.command(f"edit {path}")
    child.command("AgentAccept all | nnoremap <buffer> ]h :let g:mine = 1<CR>")
    agent(child, path, 0, 1, "A")
    type_keys(child, "]h")
    assert child.lua("return vim.g.mine") == 1


def test_lines_that_went_above_the_first_show_in_a_window_where_nobody_is(opened):
    child, path = opened("abc")
    child.command("new")
    agent(child, path, 0, 1, "A")
    assert "− a" in child.screen()


def test_the_command_rejects_in_lines_in_the_file_and_in_all_files(opened, project):
    child, path = opened("abcdefgh")
    other = project / "other.txt"
    other.write_text("one\ntwo\n")
    agent(child, path, 1, 2, "B")
    agent(child, path, 3, 4, "D")
    agent(child, path, 5, 6)
    child.command("3,6AgentReject not these")
    assert text(child) == "a B c d e f g h"
    child.command(f"silent edit {other}")
    agent(child, other, 0, 1, "1")
    child.command("Agent reviews")
    listed = child.lua("return vim.fn.getqflist()")
    assert [(each["lnum"], each["text"]) for each in listed] == [(2, "+1 −1  B"), (1, "+1 −1  1")]
    child.command("AgentReject all")
    assert path.read_text() == "a\nb\nc\nd\ne\nf\ng\nh\n"
    assert other.read_text() == "one\ntwo\n"
    assert "Rejected 2 changes." in child.messages()


def test_the_commands_say_what_is_missing(opened):
    child, _ = opened("abc")
    child.command("AgentAccept")
    assert "No change to review here." in child.messages()
    child.command("AgentAccept some")
    assert "AgentAccept: hunk, file, turn, all, not 'some'." in child.messages()


OFFER = """
local line, text = ...
local region = require('sanderling.inline.region').lines(vim.fn.bufnr(), line, line)
require('sanderling.inline.edits').offer(region, text, 'offered')
"""


def test_accept_and_reject_mean_the_edit_at_the_cursor_before_the_change_there(opened):
    child, _ = opened("abcdef", (1, 2, "B"), (3, 4, "D"))
    child.lua(OFFER, 2, "edited")
    child.feed("4G")
    child.command("AgentReject")  # the change: the edit is elsewhere
    assert text(child) == "a B c d e f"
    child.feed("2G")
    child.command("AgentAccept hunk")
    assert child.lua("return #require('sanderling.review.hunks').list(0)") == 0
    child.command("AgentAccept")
    assert text(child) == "a edited c d e f"
    child.lua(OFFER, 5, "E")
    child.command("1AgentAccept")  # a range means changes
    assert "No change to review in these lines." in child.messages()
    child.command("AgentAccept")  # the only edit
    assert text(child) == "a edited c d E f"


def test_with_a_bang_all_edits_are_meant_and_nothing_else(opened):
    child, _ = opened("abcdef", (1, 2, "B"))
    for line in (1, 3, 5):
        child.lua(OFFER, line, line * "x")
    child.feed("2G")
    child.command("AgentAccept! all")
    assert "With ! it takes no scope and no range." in child.messages()
    child.command("AgentAccept!")
    assert text(child) == "x B xxx d xxxxx f"
    child.command("AgentReject!")
    assert "No edit in this buffer." in child.messages()
    child.lua(OFFER, 1, "y")
    child.lua(OFFER, 3, "y")
    child.command("AgentReject!")
    assert child.lua("return require('sanderling.inline.edits').here() == nil")
    assert text(child) == "x B xxx d xxxxx f"
    child.command("AgentReject")
    assert text(child) == "x b xxx d xxxxx f"


def test_where_nothing_is_to_be_kept_it_is_said_what_goes_to_the_changes(opened):
    child, _ = opened("abc", (2, 3, "C"))
    child.feed("\\ha")
    assert "to review here: ]h goes to the next." in child.messages()
    child.command("enew")
    child.command("AgentAccept")
    assert "to review here: see :Agent reviews." in child.messages()


def test_a_rejection_is_written_where_the_file_had_no_unsaved_changes(opened):
    child, path = opened("abc", (1, 2, "B"))
    child.command("silent write")
    child.command("2AgentReject")
    assert path.read_text() == "a\nb\nc\n"
    child.feed("uggOmine<Esc>")
    wait_until(lambda: text(child) == "mine a B c")
    child.command("3AgentReject")
    assert (text(child), path.read_text()) == ("mine a b c", "a\nb\nc\n")


def test_the_bytes_are_exact_after_two_of_four_hunks_are_kept(opened):
    child, path = opened("a")
    path.write_bytes(b"\r\n".join(bytes([letter]) for letter in b"abcdefghij"))
    child.command("set nofixendofline foldmethod=manual | silent edit!")
    assert child.lua("return vim.bo.fileformat") == "dos"
    child.command("4,8fold")
    for row in (9, 6, 4, 1):
        agent(child, path, row, row + 1, "new", "lines")
    child.lua("""
      local hunks = require('sanderling.review.hunks')
      local list = hunks.list(vim.fn.bufnr())
      _G.count = #list
      hunks.accept({ list[1], list[3] })
    """)
    assert child.lua("return _G.count") == 4
    child.command("AgentReject file")
    child.command("silent write")
    kept = b"a new lines c d e f new lines h i j".replace(b" ", b"\r\n")
    assert path.read_bytes() == kept


def test_in_diff_mode_nothing_is_shown_twice(opened, project):
    child, path = opened(["one", "two", "three"])
    (project / "before.txt").write_text(path.read_text())
    agent(child, path, 1, 2, "2")
    shown = ["  one", "− two", "~ 2", "  three"]
    assert rows(child, 4) == shown
    child.command(
        "set foldcolumn=0 diffopt+=foldcolumn:0 | diffthis | vertical diffsplit before.txt"
    )
    child.command("wincmd p | vertical resize 20 | wincmd p")
    wait_until(lambda: child.screen()[1].split() == ["two", "│~", "2"])
    child.command("close")
    child.command("diffoff")
    wait_until(lambda: rows(child, 4) == shown)


def test_the_difference_of_a_removed_line_shows_in_a_narrow_window(opened):
    line = "    return [greet(name) for name in names{}]"
    child, path = opened(["one", line.format("[1:]"), "three"])
    child.command("rightbelow vnew | wincmd p | vertical resize 36")
    agent(child, path, 1, 2, line.format(""))
    wait_until(lambda: "− …reet(name) for name in names[1:]]" in rows(child, 2)[1])
    child.command("only")
    wait_until(lambda: rows(child, 2)[1] == "− " + line.format("[1:]"))


def test_a_buffer_that_is_emptied_shows_what_went_and_no_error(opened):
    child, _ = opened(["one", "two", "three"], (2, 3, "3"))
    child.feed(":silent %d<CR>")
    wait_until(lambda: "− three" in rows(child, 4))
    assert "Error" not in child.messages()
