"""Hunks of what the agent has changed: where they stay, whatever happens to the text, and what keeping and rejecting leave."""

import pytest
from tests.conftest import wait_until

HELPERS = """
local hunks = require('sanderling.review.hunks')
local api = vim.api
_G.hunks = hunks
local function buf() return api.nvim_get_current_buf() end

function _G.agent(first, last, new, is_proposed)
  local source = { session_id = 's', tool_use_id = 'use', turn = 'prompt', is_proposed = is_proposed }
  hunks.changing(buf(), source, function()
    require('sanderling.editing.undo').in_block(buf(), false, function()
      api.nvim_buf_set_lines(buf(), first, last, true, new)
    end)
  end)
end

--- What the agent has changed is changed back.
function _G.restore(first, last, new)
  require('sanderling.editing.listeners').changing(buf(), 'restoring:use', function()
    api.nvim_buf_set_lines(buf(), first, last, true, new)
  end)
end

--- The hunks as "row+count<old lines".
function _G.shown()
  return vim.tbl_map(function(hunk)
    return ('%d+%d<%s'):format(hunk.row, hunk.count, table.concat(hunk.old, ' '))
  end, hunks.list(buf()))
end

function _G.text()
  return table.concat(api.nvim_buf_get_lines(buf(), 0, -1, true), ' ')
end
"""


@pytest.fixture
def edited(child, project):
    """A file of one letter a line, open, in which the agent makes `changes`; gives the Neovim."""

    def open_file(*changes, letters="a b c d e f g"):
        path = project / "file.txt"
        path.write_text("".join(f"{letter}\n" for letter in letters.split()))
        child.lua(HELPERS)
        child.command(f"silent edit {path}")
        for change in changes:
            agent(child, *change)
        return child

    return open_file


def agent(child, first, last, new="", **source):
    child.lua("_G.agent(...)", first, last, new.split(), source.get("is_proposed", False))


def shown(child):
    return child.lua("return _G.shown()")


def text(child):
    return child.lua("return _G.text()")


def keys(child, typed):
    """Run keys in Normal mode, and let what follows from it happen."""
    child.lua(
        "vim.cmd('silent normal! ' .. vim.keycode(...)) vim.wait(0, function() return false end)",
        typed,
    )


def keep(child, index):
    child.lua("hunks.accept({ hunks.list(vim.api.nvim_get_current_buf())[...] })", index)


def reject(child, index):
    child.lua("hunks.reject({ hunks.list(vim.api.nvim_get_current_buf())[...] })", index)


def test_lines_that_come_before_a_hunk_move_it(edited):
    child = edited((1, 2, "B B2"), (6, 7))
    assert shown(child) == ["1+2<b", "6+0<f"]
    keys(child, "ggOmine<Esc>")
    assert shown(child) == ["2+2<b", "7+0<f"]
    assert text(child) == "mine a B B2 c d e g"


@pytest.mark.parametrize(
    "typed, typed_text, hunk, restored",
    [
        ("2GOup<Esc>jjodown<Esc>", "a up B B2 down c d e f g", "2+2<b", "a up b down c d e f g"),
        ("2Gomine<Esc>", "a B mine B2 c d e f g", "1+3<b", "a b c d e f g"),
        ("3G2dd", "a B d e f g", "1+1<b", "a b d e f g"),
    ],
    ids=["beside it", "in it", "deleted across its border"],
)
def test_what_a_person_types_at_a_hunk_is_of_it_or_not(edited, typed, typed_text, hunk, restored):
    child = edited((1, 2, "B B2"))
    keys(child, typed)
    assert (text(child), shown(child)) == (typed_text, [hunk])
    reject(child, 1)
    assert text(child) == restored


def test_lines_joined_across_a_border_come_back_whole(edited):
    child = edited((1, 2, "B B2"))
    keys(child, "3GJ")
    assert child.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)[3]") == "B2 c"
    reject(child, 1)
    assert text(child) == "a b c d e f g"


def test_a_filter_of_the_whole_file_joins_what_it_touches(edited):
    child = edited((1, 2, "B B2"), (6, 7))
    keys(child, ":%!sed 's/^B/x/; s/^d/y/'<CR>")
    assert (text(child), shown(child)) == ("a x x2 c y e g", ["1+2<b", "6+0<f"])
    child.lua("hunks.reject(hunks.list(vim.api.nvim_get_current_buf()))")
    assert text(child) == "a b c y e f g"


def test_undo_and_redo_bring_hunks_and_text_together(edited):
    child = edited((1, 2, "B B2"), (6, 7))
    keys(child, "ggOmine<Esc>")
    states = [(text(child), shown(child))]
    for _ in range(3):
        keys(child, "u")
        states.append((text(child), shown(child)))
    assert states[1:] == [
        ("a B B2 c d e g", ["1+2<b", "6+0<f"]),
        ("a B B2 c d e f g", ["1+2<b"]),
        ("a b c d e f g", []),
    ]
    for state in reversed(states[:-1]):
        keys(child, "<C-r>")
        assert (text(child), shown(child)) == state


def test_undo_takes_a_rejection_back_and_redo_repeats_it(edited):
    child = edited((1, 2, "B B2"), (4, 4, "new"))
    reject(child, 1)
    assert (text(child), shown(child)) == ("a b c new d e f g", ["3+1<"])
    keys(child, "u")
    assert (text(child), shown(child)) == ("a B B2 c new d e f g", ["1+2<b", "4+1<"])
    keys(child, "<C-r>")
    assert (text(child), shown(child)) == ("a b c new d e f g", ["3+1<"])


def test_keys_that_come_in_a_row_undo_as_those_that_come_one_by_one_do(edited):
    child = edited((1, 2, "B"))
    reject(child, 1)
    child.feed("uggOmine<Esc>")
    wait_until(lambda: text(child) == "mine a B c d e f g")
    assert shown(child) == ["2+1<b"]


def test_what_is_kept_stays_kept_whatever_is_undone(edited):
    child = edited((1, 2, "B"), (3, 4, "D"))
    keys(child, "ggOmine<Esc>")
    keep(child, 1)
    assert shown(child) == ["4+1<d"]
    keys(child, "u")
    assert shown(child) == ["3+1<d"]
    keys(child, "u")
    assert (text(child), shown(child)) == ("a B c d e f g", [])
    keys(child, "2<C-r>")
    assert shown(child) == ["4+1<d"]


def test_a_change_over_hunks_joins_them_with_the_lines_between(edited):
    child = edited((1, 2, "B"), (3, 4, "D"), (0, 5, "all new"))
    assert shown(child) == ["0+2<a b c d e"]
    reject(child, 1)
    assert text(child) == "a b c d e f g"


def test_a_change_that_takes_another_back_leaves_no_hunk(edited):
    child = edited((1, 2, "B B2"), (1, 3, "b"))
    assert shown(child) == []


def restore(child, first, last, new=""):
    child.lua("require('sanderling.review') _G.restore(...)", first, last, new.split())


def test_a_change_that_is_restored_leaves_no_hunk(edited):
    child = edited((1, 2))
    restore(child, 1, 1, "b")
    assert shown(child) == []
    agent(child, 1, 2, "c b")
    agent(child, 3, 4)  # c: now they have changed places, in two hunks
    assert len(shown(child)) > 0
    restore(child, 0, 4, "a b c d")
    assert (text(child), shown(child)) == ("a b c d e f g", [])


def test_what_is_restored_beside_a_hunk_of_an_earlier_turn_is_none_of_it(edited):
    child = edited((1, 2, "B"), (4, 5))
    keep(child, 2)
    restore(child, 4, 4, "e")
    assert shown(child) == ["1+1<b"]
    agent(child, 2, 3)  # beside the first one: they are one hunk
    restore(child, 2, 2, "c")
    assert shown(child) == ["1+1<b"]


def test_a_file_that_is_what_it_was_when_it_is_read_again_has_no_hunk(edited, project):
    child = edited()
    before = (project / "file.txt").read_text()
    agent(child, 1, 2)
    child.command("silent write")
    (project / "file.txt").write_text(before)
    child.command("silent edit!")
    assert (text(child), shown(child)) == ("a b c d e f g", [])


def test_all_lines_deleted_come_back(edited):
    child = edited((0, 7))
    assert shown(child) == ["0+0<a b c d e f g"]
    reject(child, 1)
    assert (text(child), shown(child)) == ("a b c d e f g", [])


def test_an_empty_file_is_empty_again(edited, project):
    child = edited(letters="")
    agent(child, 0, 0, "new text")
    child.lua("vim.api.nvim_buf_set_lines(0, 2, 3, true, {})")
    reject(child, 1)
    child.command("silent write")
    assert (project / "file.txt").read_bytes() == b""


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_end_of_the_last_line_comes_back(edited, project, end):
    child = edited()
    (project / "file.txt").write_text(f"a\nb{end}")
    child.command("set nofixendofline | silent edit!")
    child.lua("""
      local source = { session_id = 's', tool_use_id = 'use', turn = 'prompt' }
      hunks.changing(vim.api.nvim_get_current_buf(), source, function()
        vim.api.nvim_buf_set_lines(0, 0, 1, true, { 'A' })
        vim.bo.endofline = not vim.bo.endofline
      end)
    """)
    assert shown(child) == ["0+1<a", "1+1<b"]
    child.lua("hunks.reject(hunks.list(vim.api.nvim_get_current_buf()))")
    child.command("silent write")
    assert (project / "file.txt").read_text() == f"a\nb{end}"


def test_hunks_outlive_the_buffer_that_shows_their_file(edited, project):
    child = edited((1, 2, "B B2"))
    child.command("silent write | silent edit!")
    assert shown(child) == ["1+2<b"]
    path = project / "file.txt"
    path.write_text("z\n" + path.read_text())
    child.command("silent checktime")
    assert wait_until(lambda: shown(child) == ["2+2<b"])
    child.command("silent new")
    child.command("silent bunload #")
    assert child.lua("return hunks.unloaded()") == {str(path): 1}
    path.write_text("y\n" + path.read_text())
    child.command(f"silent edit {path}")
    assert shown(child) == ["3+2<b"]
    child.command("silent bwipeout")
    child.command(f"silent edit {path}")
    assert shown(child) == ["3+2<b"]
    reject(child, 1)
    assert text(child) == "y z a b c d e f g"
