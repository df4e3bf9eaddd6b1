"""The agent changes files that a person has open: text, undo, marks, views and modes stay theirs, and nothing ever asks them."""

import base64
import codecs
import os
import pickle
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.conftest import DEADLINE_S, is_readable, prove, prove_rest, wait_until

from sanderling.changes.editing.lines import Hunk
from sanderling.errors import ToolError
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import stamp_of
from sanderling.tools.buffers import bytes_of

pytestmark = pytest.mark.guard

CALL = {"deadline_ms": 1e15, "channel": 0, "number": 1}
LINE_ENDINGS = {"unix": "\n", "dos": "\r\n", "mac": "\r"}

# --- the Lua half, asked as Python asks it ---------------------------------------------------------------------------


def ask(child, question, *args):
    return child.lua(
        "return require('sanderling.editing').answer(...)", CALL, question, *map(plain, args)
    )


def plain(value):
    return str(value) if isinstance(value, Path) else value


def identity_of(path):
    if path.exists():
        return Identity(path.stat().st_dev, path.stat().st_ino)
    directory = path.parent.stat() if path.parent.exists() else None
    return Identity(directory.st_dev, directory.st_ino, str(path)) if directory else Identity(0, 0)


def find(child, path):
    answer = ask(child, "find", path, *identity_of(Path(path)))
    assert set(answer) == {"value"}, answer
    return answer["value"]


def change(child, buffer, *hunks, use="use-1"):
    answer = ask(child, "change", buffer["id"], buffer["tick"], hunks, use)
    assert set(answer) == {"value"}, answer
    return answer["value"]


def replace_on_disk(path, data):
    """As the tools write: another file takes its place."""
    target = path.resolve()
    new = target.with_name(target.name + ".new")
    new.write_bytes(data)
    os.utime(new, ns=(time.time_ns(), time.time_ns()))
    new.replace(target)


def encoded(buffer):
    text = buffer["text"].replace("\n", LINE_ENDINGS[buffer["line_ending"]])
    bom = "\ufeff" if buffer["has_bom"] else ""
    return (bom + text).encode(buffer["encoding"] or "utf-8")


def write(child, path):
    """Write the buffer of `path`, hooks and all."""
    buffer = find(child, path)
    answer = ask(child, "before_write", buffer["id"], path)
    buffer = answer["value"]
    replace_on_disk(path, encoded(buffer))
    after_write(child, path, buffer)


def change_and_write(child, path):
    """Change the second line and write the file, of which Neovim has not heard yet."""
    assert change(child, find(child, path), (1, 1, ["TWO"]))
    buffer = ask(child, "before_write", find(child, path)["id"], path)["value"]
    replace_on_disk(path, encoded(buffer))
    return buffer


def after_write(child, path, buffer):
    status = path.stat()
    written = (*divmod(status.st_mtime_ns, 1_000_000_000), status.st_size, status.st_ino)
    child.lua(
        "require('sanderling.editing').after_write(...)", buffer["id"], buffer["tick"], written
    )


def edit(child, path, *hunks, use="use-1"):
    """A whole use of the edit tool: change the buffer and write it."""
    assert change(child, find(child, path), *hunks, use=use)
    write(child, path)


def files_changed(child, *paths):
    child.lua("require('sanderling.editing').files_changed(...)", [str(path) for path in paths])


def assert_undisturbed(child):
    assert not child.is_blocked()
    assert child.messages().strip() == ""


@pytest.fixture
def opened(child, project):
    """Open a file of that name and content, in the current window; gives its path."""

    def open_file(name, data=b"one\ntwo\nthree\nfour\n"):
        path = project / name
        path.write_bytes(data)
        child.lua("vim.cmd('silent edit ' .. vim.fn.fnameescape(...))", str(path))
        return path

    return open_file


# --- which buffer ----------------------------------------------------------------------------------------------------


def test_a_buffer_is_found_with_its_unsaved_text(child, opened):
    path = opened("a.txt")
    assert find(child, path) == {
        "id": 1,
        "path": str(path),
        "tick": find(child, path)["tick"],
        "text": "one\ntwo\nthree\nfour\n",
        "is_modified": False,
        "encoding": "utf-8",
        "line_ending": "unix",
        "has_bom": False,
        "is_diagnosed": False,
    }
    child.type_keys("ccONE<Esc>")
    assert find(child, path)["text"] == "ONE\ntwo\nthree\nfour\n"
    assert find(child, path)["is_modified"]


def test_a_file_without_a_buffer_is_not_found(child, opened, project):
    opened("a.txt")
    (project / "b.txt").write_text("b")
    assert find(child, project / "b.txt") is False
    assert find(child, project / "missing.txt") is False
    assert find(child, project) is False
    assert find(child, "") is False


def test_an_unloaded_buffer_is_not_found(child, opened):
    path = opened("a.txt")
    child.command("enew | bunload 1")
    assert find(child, path) is False


def test_a_hidden_and_unlisted_buffer_is_found(child, opened):
    path = opened("a.txt")
    child.command("setlocal nobuflisted | enew")
    assert find(child, path)["text"].startswith("one\n")


@pytest.mark.parametrize("asks_for_link", [True, False])
def test_a_buffer_is_found_by_every_name_of_its_file(child, project, asks_for_link):
    (project / "real").mkdir()
    (project / "real" / "a.txt").write_text("one\n")
    (project / "directory").symlink_to("real")
    (project / "link.txt").symlink_to("directory/a.txt")
    names = [project / "real" / "a.txt", project / "link.txt"]
    if asks_for_link:
        names.reverse()
    child.command(f"edit {names[0]}")
    assert find(child, names[1])["text"] == "one\n"
    assert find(child, project / "directory" / "a.txt")["path"] == str(project / "directory/a.txt")


def test_a_relative_name_is_found_after_a_change_of_directory(child, project):
    (project / "a.txt").write_text("one\n")
    child.command("edit a.txt")
    child.command("cd /")
    assert find(child, project / "a.txt")["text"] == "one\n"


def test_a_hard_link_is_the_same_file(child, opened, project):
    path = opened("a.txt")
    os.link(path, project / "b.txt")
    assert find(child, project / "b.txt")["id"] == 1


def test_a_buffer_whose_file_was_deleted_is_found(child, opened):
    path = opened("a.txt")
    path.unlink()
    assert find(child, path)["text"] == "one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    "command",
    [
        "edit {project}",  # a directory: netrw
        "terminal cat",
        "help",
        "new | setlocal buftype=nofile | silent file {project}/a.txt",
        "new | setlocal buftype=acwrite | silent file {project}/a.txt",
        "autocmd BufReadCmd,BufWriteCmd *.txt let b:ours = 1 | edit {project}/a.txt",
        "edit {project}/a.txt | autocmd BufWriteCmd <buffer> let b:ours = 1",
    ],
)
def test_a_buffer_that_is_no_plain_file_is_not_found(child, project, command):
    (project / "a.txt").write_text("encrypted\n")
    child.lua("vim.cmd(...)", f"execute {command.format(project=project)!r}")
    name = child.lua("return vim.api.nvim_buf_get_name(0)")
    assert find(child, project / "a.txt") is False
    assert find(child, name) is False


CONTENTS = {
    "empty": (b"", ""),
    "only a newline": (b"\n", "\n"),
    "two newlines": (b"\n\n", "\n\n"),
    "no newline at the end": (b"a\nb", "a\nb"),
    "NUL bytes": (b"a\0b\0\n\0\n", "a\0b\0\n\0\n"),
    "UTF-8": ("größer ☃ 𝄞\n".encode(), "größer ☃ 𝄞\n"),
    "bytes that are no UTF-8": (b"# \xff\xfe\n", "# ÿþ\n"),  # Neovim falls back to latin1
}


@pytest.mark.parametrize("content", prove_rest(CONTENTS, is_one=True))
def test_the_text_is_that_of_the_file(child, opened, content):
    data, text = CONTENTS[content]
    path = opened("a.txt", data)
    assert find(child, path)["text"] == text


ENCODINGS = {
    "latin1": ("naïve\nöl\n".encode("latin1"), "latin1", "unix", False),
    "dos": (b"a\r\nb\r\n", "utf-8", "dos", False),
    "mac": (b"a\rb\r", "utf-8", "mac", False),
    "bom": (codecs.BOM_UTF8 + b"a\nb\n", "utf-8", "unix", True),
    "utf-16le": ("\ufeffa☃\nb\n".encode("utf-16-le"), "utf-16le", "unix", True),
    "utf-16": ("\ufeffa☃\r\nb\r\n".encode("utf-16-be"), "utf-16", "dos", True),
}


@pytest.mark.parametrize("name", prove_rest(ENCODINGS, is_one=True))
def test_a_file_in_any_encoding_keeps_its_other_bytes(child, opened, name):
    data, encoding, line_ending, has_bom = ENCODINGS[name]
    child.command("set fileformats=unix,dos,mac")
    path = opened("a.txt", data)
    buffer = find(child, path)
    if encoding == "utf-16":
        buffer["encoding"] = "utf-16-be"  # as editor/buffers.py calls it
    assert encoded(buffer) == data
    assert (buffer["line_ending"], buffer["has_bom"]) == (line_ending, has_bom)
    assert change(child, buffer, (1, 1, ["changed"]))
    child.command("silent write")
    eol = LINE_ENDINGS[line_ending]
    first = buffer["text"].split("\n")[0]
    bom = "\ufeff" if has_bom else ""
    assert path.read_bytes() == f"{bom}{first}{eol}changed{eol}".encode(buffer["encoding"])


def test_a_binary_buffer_is_its_bytes(child, project):
    (project / "a.bin").write_bytes(b"\xff\r\n\xfe")
    child.command(f"edit ++bin {project}/a.bin")
    buffer = find(child, project / "a.bin")
    assert buffer["text"].encode("utf-8", "surrogateescape") == b"\xff\r\n\xfe"
    assert (buffer["encoding"], buffer["line_ending"], buffer["has_bom"]) == ("", "unix", False)


@prove
def test_a_huge_buffer_is_refused_in_words(child, opened):
    path = opened("a.txt", b"0123456789abcdef" * 512 * 1024 + b"more\n")
    answer = ask(child, "find", path, *identity_of(Path(path)))
    assert "has 8 MB, too much to fetch" in answer["error"]


# --- changing --------------------------------------------------------------------------------------------------------


def test_hunks_replace_insert_and_delete_lines(child, opened):
    path = opened("a.txt")
    assert change(
        child, find(child, path), (0, 0, ["zero"]), (1, 1, ["TWO", "2b"]), (3, 1, []), (4, 0, ["x"])
    )
    assert child.lines() == ["zero", "one", "TWO", "2b", "three", "x"]


def test_a_change_of_what_is_no_longer_there_does_nothing(child, opened):
    path = opened("a.txt")
    buffer = find(child, path)
    child.type_keys("x")
    assert change(child, buffer, (1, 1, ["TWO"])) is False
    child.command("bwipeout! 1")
    assert change(child, buffer, (1, 1, ["TWO"])) is False


@pytest.mark.parametrize(
    "hunks",
    prove_rest(
        [[(5, 1, [])], [(2, 1, []), (1, 1, [])], [(0, 9, [])], [(0, -1, [])], [(0, 1, ["a\nb"])]]
    ),
)
def test_hunks_that_cannot_be_change_nothing(child, opened, hunks):
    path = opened("a.txt")
    before = find(child, path)
    answer = ask(child, "change", before["id"], before["tick"], hunks, "use-1")
    assert set(answer) == {"error"}
    assert find(child, path) == before


def expected_text(text, hunks):
    rows = text.split("\n")
    for first, count, new in reversed(hunks):
        rows[first : first + count] = new
    return "\n".join(rows)


def random_hunks(rng, text):
    rows, row, hunks = text.split("\n"), 0, []
    while row <= len(rows) and len(hunks) < 4 and (not hunks or rng.random() < 0.7):
        row = rng.randint(row, len(rows))
        count = rng.randint(0, min(3, len(rows) - row))
        new = [rng.choice(["", "", "x", "é☃", "a\0b", *rows]) for _ in range(rng.randint(0, 3))]
        hunks.append((row, count, new))
        row += count
    return hunks


@prove
def test_random_hunks_give_the_text_they_say_and_one_undo_gives_it_back(child, opened):
    """The text is that of `split` and `join`, whatever it ends in; undo restores the lines, byte for byte."""
    rng = random.Random(4)
    for number in range(400):
        text = "\n".join(
            rng.choice(["", "a", "a b", "ä☃é", "𝄞x"]) for _ in range(rng.randint(1, 6))
        )
        path = opened("a.txt", text.encode())
        before = child.lines()
        buffer = find(child, path)
        assert buffer["text"] == text
        hunks = random_hunks(rng, text)
        is_changed = expected_text(text, hunks) != text
        assert change(child, buffer, *hunks, use=f"use-{number}")
        assert find(child, path)["text"] == expected_text(text, hunks), (text, hunks)
        if is_changed:
            assert find(child, path)["tick"] != buffer["tick"]
            assert child.is_modified()
            child.command("silent undo")
        assert child.lines() == before, (text, hunks)
        child.command("bwipeout!")


def test_only_what_differs_in_a_line_is_touched(child, opened):
    path = opened("a.txt", "call(größe, 1)\nsame\n".encode())
    child.lua("""
      _G.seen = {}
      vim.api.nvim_buf_attach(0, false, {
        on_bytes = function(_, _, _, row, col, _, old_row, old_col, _, new_row, new_col)
          table.insert(_G.seen, { row, col, old_row, old_col, new_row, new_col })
        end,
      })
    """)
    assert change(child, find(child, path), (0, 2, ["call(grüße, 1)", "same"]))
    assert child.lua("return _G.seen") == [[0, 7, 0, 2, 0, 2]]  # ö and ü: never half a character


def test_a_coarse_hunk_keeps_the_marks_of_lines_that_stay(child, opened):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(50)))
    child.lua(
        'for _, l in ipairs({10, 20, 30}) do vim.fn.setpos("\'" .. string.char(96 + l / 10), {0, l, 3, 0}) end'
    )
    new = [f"line {n}" for n in range(50)]
    new[19] = "line nineteen"
    new[12:14] = ["inserted"] * 4
    assert change(child, find(child, path), (0, 50, new))
    assert child.lua('return { vim.fn.line("\'a"), vim.fn.line("\'b"), vim.fn.line("\'c") }') == [
        10,
        22,
        32,
    ]


def test_marks_extmarks_folds_jumps_and_the_last_change_stay(child, opened):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(60)))
    child.type_keys("50Gmx5Gix<Esc>u40G30G45G")
    child.lua("""
      vim.wo.foldmethod = 'manual'
      vim.cmd('20,25fold')
      _G.ns = vim.api.nvim_create_namespace('test')
      _G.mark = vim.api.nvim_buf_set_extmark(0, _G.ns, 39, 5, { end_col = 7 })
      vim.api.nvim_win_set_cursor(0, { 45, 3 })
    """)
    state = """
      local extmark = vim.api.nvim_buf_get_extmark_by_id(0, _G.ns, _G.mark, {})
      local jumps = vim.tbl_map(function(j) return j.lnum end, vim.fn.getjumplist()[1])
      return { vim.fn.line("'x"), extmark[1], extmark[2], vim.fn.foldclosed(23), vim.fn.foldclosedend(23),
               vim.fn.line('.'), vim.fn.col('.'), vim.fn.line("'."), jumps }
    """
    before = child.lua(state)
    assert before[3:6] == [20, 25, 45]
    assert change(
        child,
        find(child, path),
        (10, 1, ["ten"]),
        (11, 0, ["new", "new"]),
        (39, 1, ["LINE 39 and more"]),
    )
    moved = [n + 2 for n in before[8]]
    assert child.lua("return vim.fn.getline(42)") == "LINE 39 and more"
    assert [line if line > 12 else line + 2 for line in child.lua(state)[8]] == moved
    after = child.lua(state)
    assert after[0] == 52
    assert after[1] == 41
    assert child.lua("return { vim.fn.foldclosed(25), vim.fn.foldclosedend(25) }") == [22, 27]
    assert after[5:8] == [47, 4, before[7]]


def test_every_window_shows_the_same_text_at_the_same_place(child, opened):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(300)))
    child.lua("""
      vim.cmd('normal! 100Gzt') vim.cmd('vsplit | normal! 200Gzz') vim.cmd('split | normal! 5Gzt')
      vim.cmd('tabnew %') vim.cmd('normal! 250Gzb')
      vim.cmd('tabprevious')
    """)
    shown = """
      local shown = {}
      for _, win in ipairs(vim.fn.win_findbuf(1)) do
        table.insert(shown, vim.api.nvim_win_call(win, function()
          return { vim.fn.getline('.'), vim.fn.getline('w0'), vim.fn.winline() }
        end))
      end
      return shown
    """
    before = child.lua("vim.cmd.redraw() " + shown)
    assert len(before) == 4
    assert change(child, find(child, path), (1, 1, []), (2, 0, ["x"] * 7), (149, 1, ["y", "z"]))
    assert child.lua("vim.cmd.redraw() " + shown) == before


@pytest.mark.parametrize("option", ["readonly", "nomodifiable"])
def test_a_locked_buffer_is_refused_in_words(child, opened, option):
    path = opened("a.txt")
    child.command(f"setlocal {option}")
    buffer = find(child, path)
    answer = ask(child, "change", buffer["id"], buffer["tick"], [(0, 1, ["x"])], "use-1")
    assert f"locked in Neovim ('{option}')" in answer["error"]
    assert child.lines() == ["one", "two", "three", "four"]
    assert_undisturbed(child)


def test_who_wants_to_know_is_told_which_lines_an_edit_has_changed(child, opened):
    path = opened("a.txt")
    child.lua("""
      _G.told = {}
      require('sanderling.editing').on_change(function(changed)
        table.insert(_G.told, changed)
      end)
    """)
    change(child, find(child, path), (0, 0, ["new"]), (1, 1, ["TWO"]), (3, 1, []))
    changed = {"path": str(path), "buf": child.lua("return vim.fn.bufnr()"), "tool_use_id": "use-1"}
    (told,) = child.lua("return _G.told")
    assert told == changed | {
        "hunks": [
            {"first_line": 1, "last_line": 1, "old": []},
            {"first_line": 3, "last_line": 3, "old": ["two"]},
            {"first_line": 5, "last_line": 4, "old": ["four"]},
        ]
    }
    event = changed | {"first_line": 1, "last_line": 4}
    wait_until(lambda: child.events("AgentFileChanged") == [event])
    change(child, find(child, path), (0, 1, ["new"]))
    child.lua(
        "require('sanderling.editing').changed_on_disk(...)", "/else", [(4, 2, 1), (9, 0, 2)], "u2"
    )
    wait_until(
        lambda: (
            child.events("AgentFileChanged")[1:]
            == [{"path": "/else", "tool_use_id": "u2", "first_line": 5, "last_line": 10}]
        )
    )


# --- undo ------------------------------------------------------------------------------------------------------------


def test_the_changes_of_one_tool_use_are_one_undo_block(child, opened):
    path = opened("a.txt")
    for row in (0, 1, 2):
        assert change(child, find(child, path), (row, 1, [f"new {row}"]), use="one")
    assert change(child, find(child, path), (3, 1, ["new 3"]), use="another")
    child.type_keys("u")
    assert child.lines() == ["new 0", "new 1", "new 2", "four"]
    child.type_keys("u")
    assert child.lines() == ["one", "two", "three", "four"]
    child.type_keys("<C-r>")
    assert child.lines() == ["new 0", "new 1", "new 2", "four"]


@pytest.mark.parametrize("is_hidden", [True, False])
def test_what_a_person_or_plugin_changes_between_is_a_block_of_its_own(child, opened, is_hidden):
    path = opened("a.txt")
    if is_hidden:
        child.command("enew")
    own = "vim.api.nvim_buf_set_lines(1, 0, 1, true, { 'own ' .. ... })"
    child.lua(own, "1")
    assert change(child, find(child, path), (1, 1, ["agent 1"]), use="one")
    child.lua(own, "2")
    assert change(child, find(child, path), (2, 1, ["agent 2"]), use="one")
    child.lua(own, "3")
    child.command("buffer 1")
    states = [child.lines()[:3]]
    for _ in range(5):
        child.command("silent undo")
        states.append(child.lines()[:3])
    assert states == [
        ["own 3", "agent 1", "agent 2"],
        ["own 2", "agent 1", "agent 2"],
        ["own 2", "agent 1", "three"],
        ["own 1", "agent 1", "three"],
        ["own 1", "two", "three"],
        ["one", "two", "three"],
    ]


def test_a_use_goes_on_after_an_undo(child, opened):
    path = opened("a.txt")
    assert change(child, find(child, path), (0, 1, ["a"]), use="one")
    child.command("silent undo")
    assert change(child, find(child, path), (1, 1, ["b"]), use="one")
    assert child.lines() == ["one", "b", "three", "four"]
    child.command("silent undo")
    assert child.lines() == ["one", "two", "three", "four"]


def test_undo_that_is_switched_off_is_no_obstacle(child, opened):
    path = opened("a.txt")
    child.command("setlocal undolevels=-1")
    assert change(child, find(child, path), (0, 1, ["a"]))
    assert change(child, find(child, path), (0, 1, ["b"]))
    assert child.lines()[0] == "b"
    assert child.lua("return vim.bo.undolevels") == -1


BURSTS = ["abc", "x<CR>y", "<BS><BS>", "<Left>k<Right>", "<C-w>", "<Up>q", "<Down>w<CR>", "<Del>"]


@pytest.mark.parametrize("start", prove_rest(["A", "R", "o"], keep=(0,)))
def test_typing_and_the_agent_never_share_an_undo_block(child, opened, start):
    """In insert mode in the very buffer: each state that the agent left, or found, is a state that undo comes by."""
    rng = random.Random(start)
    for number in range(12):
        path = opened("a.txt")
        states = [child.lines()]
        child.type_keys("2G" + start, "R" if start == "R" else "i")
        for _ in range(4):
            child.feed(rng.choice(BURSTS))
            time.sleep(0.005)
            child.lua("return 1")  # the keys before have been handled
            found = find(child, path)
            states.append(child.lines())
            row = rng.randrange(len(states[-1]))
            hunk = (row, rng.randint(0, 1), [f"agent {rng.random()}"])
            assert change(child, found, hunk, use=f"{number}")
            states.append(child.lines())
        child.type_keys("z<Esc>")
        states.append(child.lines())
        undone = [child.lines()]
        while child.lua("return vim.fn.undotree().seq_cur") > 0:
            child.command("silent undo")
            undone.append(child.lines())
        distinct = [state for n, state in enumerate(states) if n == 0 or state != states[n - 1]]
        remaining = iter(reversed(undone))
        assert all(state in remaining for state in distinct), (distinct, undone)
        child.command("bwipeout!")


def test_one_u_after_typing_takes_back_the_agent_only(child, opened):
    path = opened("a.txt")
    child.type_keys("2GAabc", "i")
    assert change(child, find(child, path), (0, 1, ["ONE", "more"]))
    assert child.lua("return { vim.fn.line('.'), vim.fn.col('.') }") == [3, 7]
    child.type_keys("<Esc>u")
    assert child.lines() == ["one", "twoabc", "three", "four"]
    child.type_keys("u")
    assert child.lines() == ["one", "two", "three", "four"]


# --- modes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key, mode", [("v", "v"), ("V", "V"), ("<C-v>", "\x16"), ("gh", "s")])
def test_a_selection_keeps_its_text(child, opened, key, mode):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(20)))
    child.type_keys(f"10G{key}", mode)
    child.feed("<Down>" if mode == "s" else "j")
    wait_until(lambda: child.lua("return vim.fn.line('.')") == 11, "two lines are selected")
    selected = "return vim.fn.getregion(vim.fn.getpos('v'), vim.fn.getpos('.'), { type = 'V' })"
    before = child.lua(selected)
    assert before == ["line 9", "line 10"]
    assert change(child, find(child, path), (2, 1, ["a", "b", "c"]), (15, 2, []))
    assert child.mode() == mode
    assert child.lua(selected) == before
    child.type_keys("<Esc>")


def test_a_completion_menu_in_the_buffer_is_waited_for(child, opened):
    """Neovim remembers where the completed word began by its line's number; text would be lost."""
    path = opened("a.txt", b"alpha alphabet\n\nthree\n")
    child.command("set completeopt=menuone,noinsert")
    child.feed("jaal<C-x><C-n>")
    wait_until(lambda: child.lua("return vim.fn.pumvisible()") == 1, "the menu is open")
    buffer = find(child, path)
    request = (buffer["id"], buffer["tick"], [(0, 0, ["new"])], "use-1")
    assert ask(child, "change", *request) == {"waits_for": "the choice of a completion"}
    child.feed("<C-n><C-y>")
    child.type_keys("<Esc>")
    assert change(child, find(child, path), (0, 0, ["new"]))
    assert child.lines() == ["new", "alpha alphabet", "alphabet", "three"]


def test_a_pending_operator_is_waited_for(child, opened):
    path = opened("a.txt")
    child.type_keys("3Gd", "no")
    buffer = find(child, path)
    answer = ask(child, "change", buffer["id"], buffer["tick"], [(0, 0, ["new"])], "use-1")
    assert answer == {"waits_for": "the motion of an operator"}
    child.type_keys("d")
    assert child.lines() == ["one", "two", "four"]


def test_locked_text_is_waited_for(child, opened):
    path = opened("a.txt")
    child.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    child.feed("<F5>")
    buffer = find(child, path)
    end = time.monotonic() + 5
    while time.monotonic() < end:  # until the mapping waits
        answer = ask(child, "before_write", buffer["id"], path)
        if "waits_for" in answer:
            break
    assert answer == {"waits_for": "a key for a mapping"}
    answer = ask(child, "change", buffer["id"], buffer["tick"], [(0, 0, ["new"])], "use-1")
    assert answer == {"waits_for": "a key for a mapping"}
    assert not child.is_modified()
    child.feed("x")
    wait_until(
        lambda: (
            "value" in ask(child, "change", buffer["id"], buffer["tick"], [(0, 0, ["new"])], "u")
        )
    )
    assert child.lines()[0] == "new"


def test_the_command_line_window_is_no_obstacle(child, opened):
    path = opened("a.txt")
    child.feed("q:")
    wait_until(lambda: child.lua("return vim.fn.getcmdwintype()") == ":", "the window is open")
    edit(child, path, (0, 1, ["ONE"]))
    assert path.read_text().startswith("ONE\n")
    wait_until(lambda: not child.is_modified(path))
    child.feed(":q<CR>")
    wait_until(lambda: child.lua("return vim.fn.getcmdwintype()") == "")
    assert child.lines(path)[0] == "ONE"


def test_a_question_that_comes_too_late_does_nothing(child, opened):
    path = opened("a.txt")
    buffer = find(child, path)
    answer = child.lua(
        "return require('sanderling.editing').answer(...)",
        CALL | {"deadline_ms": time.monotonic() * 1000 - 1},
        "change",
        buffer["id"],
        buffer["tick"],
        [(0, 1, ["x"])],
        "use-1",
    )
    assert answer == {"is_late": True}
    assert child.lines()[0] == "one"


# --- writing: the table of buffer states -----------------------------------------------------------------------------


def user_writes(child):
    child.feed(":silent w<CR>")
    wait_until(lambda: not child.is_blocked() and not child.is_modified(), "it is written")
    assert "WARNING" not in child.messages()


@pytest.mark.parametrize("autoread", ["autoread", "noautoread"])
@pytest.mark.parametrize("is_hidden", [True, False])
def test_clean_a_buffer_is_unmodified_after_the_write_and_nobody_asks(
    child, opened, autoread, is_hidden
):
    path = opened("a.txt")
    child.command(f"set {autoread}")
    if is_hidden:
        child.command("enew")
    edit(child, path, (1, 1, ["TWO", "and more"]))
    assert not child.is_modified(path)
    assert path.read_text() == "one\nTWO\nand more\nthree\nfour\n"
    child.command("checktime")
    assert_undisturbed(child)
    child.command("buffer 1")
    assert child.lines() == ["one", "TWO", "and more", "three", "four"]
    child.feed("Ofirst<Esc>")
    wait_until(lambda: child.lines()[0] == "first")
    user_writes(child)
    assert path.read_text().startswith("first\none\nTWO\n")


def test_dirty_elsewhere_both_changes_are_in_the_buffer_and_the_file_is_not_written(child, opened):
    path = opened("a.txt")
    child.type_keys("4Gccmine<Esc>")
    assert change(child, find(child, path), (0, 1, ["agent"]))
    assert child.lines() == ["agent", "two", "three", "mine"]
    assert child.is_modified()
    assert path.read_text() == "one\ntwo\nthree\nfour\n"
    child.type_keys("u")
    assert child.lines() == ["one", "two", "three", "mine"]


def test_dirty_overlapping_a_stale_tick_changes_nothing(child, opened):
    path = opened("a.txt")
    buffer = find(child, path)
    child.type_keys("2Gccmine<Esc>")
    assert change(child, buffer, (1, 1, ["agent"])) is False
    assert child.lines() == ["one", "mine", "three", "four"]


def test_undo_afterwards_makes_the_buffer_modified_and_redo_not(child, opened):
    path = opened("a.txt")
    child.type_keys("Aown<Esc>")
    user_writes(child)
    edit(child, path, (1, 1, ["TWO"]), use="one")
    edit(child, path, (2, 1, ["THREE"]), use="two")
    assert not child.is_modified()
    states = []
    for key in ("u", "u", "u", "<C-r>", "<C-r>", "<C-r>"):
        child.type_keys(key)
        states.append((child.lines()[:3], child.is_modified()))
    assert states == [
        (["oneown", "TWO", "three"], True),
        (["oneown", "two", "three"], True),
        (["one", "two", "three"], True),
        (["oneown", "two", "three"], True),
        (["oneown", "TWO", "three"], True),
        (["oneown", "TWO", "THREE"], False),
    ]
    child.type_keys("uu")
    user_writes(child)
    assert path.read_text() == "oneown\ntwo\nthree\nfour\n"


def test_two_windows_both_show_the_change_and_keep_their_places(child, opened):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(200)))
    child.lua("vim.cmd('normal! 150Gzt') vim.cmd('split | normal! 20Gzt') vim.cmd.redraw()")
    edit(child, path, (4, 1, ["five", "and", "more"]))
    places = child.lua("""
      vim.cmd.redraw()
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_call(win, function() return { vim.fn.line('.'), vim.fn.line('w0') } end)
      end, vim.fn.win_findbuf(1))
    """)
    assert places == [[22, 22], [152, 152]]


def test_autosave_between_finds_everything_in_order(child, opened):
    path = opened("a.txt")
    child.lua("""
      vim.api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI', 'BufModifiedSet' }, {
        callback = function() vim.cmd('silent! update') end,
      })
    """)
    assert change(child, find(child, path), (1, 1, ["TWO"]))
    wait_until(lambda: not child.is_modified() and "TWO" in path.read_text(), "it is saved")
    write(child, path)
    edit(child, path, (2, 1, ["THREE"]), use="two")
    child.type_keys("Aown<Esc>")
    wait_until(lambda: path.read_text() == "oneown\nTWO\nTHREE\nfour\n", "it is saved")
    assert_undisturbed(child)


@pytest.mark.parametrize("typed", ["", "Gomore<Esc>"])
def test_what_a_person_writes_while_we_do_asks_them_nothing(child, opened, typed):
    """Between the moment in which the file is written and that in which Neovim hears of it."""
    path = opened("a.txt")
    child.command("autocmd BufWritePre *.txt let g:writes = v:true")
    buffer = change_and_write(child, path)
    child.lua("vim.g.writes = false")
    child.feed(f"{typed}:silent update<CR>")
    wait_until(lambda: child.lua("return vim.g.writes"), "the person writes")
    after_write(child, path, buffer)
    wait_until(lambda: child.mode() == "n" and not child.is_modified(), "it is written")
    assert path.read_text() == "one\nTWO\nthree\nfour\n" + "more\n" * bool(typed)
    assert_undisturbed(child)


def test_write_that_nobody_ends_holds_up_one_of_the_persons_to_the_file(child, opened):
    path = opened("a.txt")
    assert change(child, find(child, path), (1, 1, ["TWO"]))
    ask(child, "before_write", find(child, path)["id"], path)
    held = (
        "return #vim.api.nvim_get_autocmds({ event = 'BufWritePre', group = 'sanderling_buffers' })"
    )
    child.command(f"silent write {path}.copy")
    assert child.lua(held) == 1
    child.command("silent write")
    assert child.lua(held) == 0
    assert path.read_text() == Path(f"{path}.copy").read_text() == "one\nTWO\nthree\nfour\n"
    assert_undisturbed(child)


def test_question_of_an_autosave_that_came_while_we_wrote_is_answered(child, opened):
    path = opened("a.txt")
    buffer = change_and_write(child, path)
    child.command("autocmd User Save silent! update")
    child.feed(":doautocmd User Save<CR>")
    wait_until(lambda: child.mode() == "r?", "it is asked whether to overwrite it")
    after_write(child, path, buffer)
    wait_until(lambda: child.mode() == "n" and not child.is_modified(), "it is written")
    assert path.read_text() == "one\nTWO\nthree\nfour\n"
    assert child.lines() == ["one", "TWO", "three", "four"]

    # The warning is the last message still when Neovim asks something else.
    child.type_keys("onew<Esc>")
    ask(child, "before_write", buffer["id"], path)
    child.feed(":confirm qa<CR>")
    wait_until(lambda: child.mode() == "r?", "it is asked whether to save")
    after_write(child, path, buffer)
    time.sleep(0.2)
    assert child.mode() == "r?"
    child.feed("<Esc>")
    wait_until(lambda: child.mode() == "n", "it is cancelled")
    assert "new" in child.lines()


def test_question_about_a_file_that_somebody_else_has_changed_is_the_persons(child, opened):
    path = opened("a.txt")
    buffer = change_and_write(child, path)
    status = path.stat()
    replace_on_disk(path, b"somebody else\n")
    child.command("autocmd User Save silent! update")
    child.feed(":doautocmd User Save<CR>")
    wait_until(lambda: child.mode() == "r?", "it is asked whether to overwrite it")
    written = (*divmod(status.st_mtime_ns, 1_000_000_000), status.st_size, status.st_ino)
    child.lua(
        "require('sanderling.editing').after_write(...)", buffer["id"], buffer["tick"], written
    )
    time.sleep(0.2)
    assert child.mode() == "r?"
    child.feed("n")
    wait_until(lambda: child.mode() == "r", "it is to be confirmed")
    child.feed("<CR>")
    wait_until(lambda: child.mode() == "n", "it is answered")
    assert path.read_text() == "somebody else\n"


def test_format_on_save_is_in_the_file_and_in_the_same_undo_block(child, opened):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(100)))
    child.command(r"autocmd BufWritePre *.txt silent! 1,3delete | %s/\s\+$//e | $put ='end'")
    child.lua("vim.cmd('normal! 60Gzt') vim.cmd('split | normal! 10G0lllzt') vim.cmd.redraw()")
    edit(child, path, (50, 1, ["fifty   "]))
    assert path.read_text().split("\n") == [
        *(f"line {n}" for n in range(3, 50)),
        "fifty",
        *(f"line {n}" for n in range(51, 100)),
        "end",
        "",
    ]
    assert not child.is_modified()
    views = child.lua("""
      vim.cmd.redraw()
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_call(win, function()
          return { vim.fn.getline('.'), vim.fn.col('.'), vim.fn.getline('w0') }
        end)
      end, vim.fn.win_findbuf(1))
    """)
    assert views == [["line 9", 4, "line 9"], ["line 59", 1, "line 59"]]
    child.type_keys("u")
    assert child.lines() == [f"line {n}" for n in range(100)]
    assert child.is_modified()


def test_file_deleted_the_buffer_stays_and_is_written_anew(child, opened):
    path = opened("a.txt")
    path.unlink()
    files_changed(child, path)
    assert child.lines() == ["one", "two", "three", "four"]
    assert_undisturbed(child)
    edit(child, path, (0, 1, ["ONE"]))
    assert path.read_text() == "ONE\ntwo\nthree\nfour\n"
    child.command("checktime")
    assert not child.is_modified()
    user_writes(child)
    assert_undisturbed(child)


def test_a_buffer_made_before_its_file_can_be_written_by_hand_afterwards(child, project):
    path = project / "new.txt"
    child.command(f"edit {path}")
    edit(child, path, (0, 0, ["fresh"]))
    assert path.read_text() == "fresh\n"
    child.command("checktime")
    child.type_keys("omore<Esc>")
    user_writes(child)
    assert path.read_text() == "fresh\nmore\n"
    assert_undisturbed(child)


def test_hooks_run_once_each_with_the_buffer_as_the_current_one(child, opened):
    path = opened("a.txt")
    child.lua("""
      _G.ran = {}
      vim.api.nvim_create_autocmd({ 'BufWritePre', 'BufWritePost', 'BufWriteCmd', 'FileWritePre' }, {
        pattern = '*.tx?',
        callback = function(e)
          if e.event ~= 'BufWriteCmd' then
            table.insert(_G.ran, { e.event, e.buf, vim.api.nvim_get_current_buf(), vim.bo[e.buf].modified })
          end
        end,
      })
      vim.api.nvim_clear_autocmds({ event = 'BufWriteCmd' })
      vim.cmd('enew')
    """)
    edit(child, path, (0, 1, ["ONE"]))
    assert child.lua("return _G.ran") == [
        ["BufWritePre", 1, 1, True],
        ["BufWritePost", 1, 1, False],
    ]
    assert child.lua("return vim.api.nvim_get_current_buf()") != 1


@pytest.mark.parametrize(
    "hook",
    [
        "lua error('the formatter\\nbroke')",
        "call NoSuchFunction()",
        "throw 'the formatter broke'",
        "echoerr 'the formatter broke'",
        "echo 1 | echo 2 | echo 3 | echo 4 | call NoSuchFunction()",
    ],
)
def test_a_hook_that_fails_is_told_in_one_line_and_stops_nothing(child, opened, hook):
    path = opened("a.txt")
    child.command(f"autocmd BufWritePre *.txt {hook}")
    child.command("autocmd BufWritePre *.txt let g:ran = 1")
    edit(child, path, (0, 1, ["ONE"]))
    child.wait_for_message("Sanderling: BufWritePre of")
    assert not child.is_blocked()
    assert len(child.messages().strip().split("\n")) == 1
    assert path.read_text().startswith("ONE\n")
    assert not child.is_modified()


@pytest.mark.parametrize("keys, mode", [("ix", "i"), ("V", "V")])
def test_hooks_wait_for_no_one_who_types_or_selects_in_the_buffer(child, opened, keys, mode):
    path = opened("a.txt")
    child.command("autocmd BufWritePre *.txt let g:ran = 1")
    child.type_keys(keys, mode)
    edit(child, path, (1, 1, ["TWO"]))
    assert child.lua("return vim.g.ran") is None
    assert child.mode() == mode
    assert not child.is_modified()


def test_what_is_typed_during_the_write_stays_unsaved(child, opened):
    path = opened("a.txt")
    assert change(child, find(child, path), (1, 1, ["TWO"]))
    buffer = ask(child, "before_write", 1, path)["value"]
    child.type_keys("Atyped<Esc>")
    replace_on_disk(path, encoded(buffer))
    after_write(child, path, buffer)
    assert child.is_modified()
    child.command("checktime")
    user_writes(child)
    assert path.read_text() == "onetyped\nTWO\nthree\nfour\n"
    assert_undisturbed(child)


def test_a_check_between_the_write_and_its_end_asks_nothing(child, opened):
    path = opened("a.txt")
    buffer = change_and_write(child, path)
    child.feed(":checktime<CR>")  # as on FocusGained
    wait_until(lambda: not child.is_blocked())
    after_write(child, path, buffer)
    assert child.lines()[1] == "TWO"
    assert not child.is_modified()
    user_writes(child)


def test_a_buffer_opened_through_a_link_is_written_through_it(child, project):
    (project / "real.txt").write_text("one\ntwo\n")
    (project / "link.txt").symlink_to("real.txt")
    child.command(f"edit {project}/link.txt")
    edit(child, project / "real.txt", (0, 1, ["ONE"]))
    assert (project / "link.txt").is_symlink()
    child.command("checktime")
    child.type_keys("Aown<Esc>")
    user_writes(child)
    assert (project / "real.txt").read_text() == "ONEown\ntwo\n"


@pytest.mark.parametrize("events", ["", "all"])
def test_neovim_itself_never_writes_the_file(child, opened, events):
    """Where it goes is the sandbox's decision: a name may have become a link to elsewhere."""
    path = opened("a.txt")
    assert change(child, find(child, path), (0, 1, ["ONE"]))
    buffer = find(child, path)
    replace_on_disk(path, b"not the buffer's text\n")
    child.command(f"set eventignore={events}")
    after_write(child, path, buffer)
    assert path.read_bytes() == b"not the buffer's text\n"
    assert child.lua("return { vim.bo.buftype, vim.o.eventignore, vim.bo.modified }") == [
        "",
        events,
        False,
    ]
    child.command("checktime")
    assert_undisturbed(child)


def test_no_newline_at_the_end_stays_so_or_comes_by_a_hunk(child, opened):
    path = opened("a.txt", b"one\ntwo")
    edit(child, path, (0, 1, ["ONE"]))
    assert path.read_bytes() == b"ONE\ntwo"
    edit(child, path, (2, 0, [""]))
    assert path.read_bytes() == b"ONE\ntwo\n"
    edit(child, path, (2, 1, []))
    assert path.read_bytes() == b"ONE\ntwo"
    assert not child.is_modified()


def test_the_undo_file_belongs_to_what_was_written(child, opened, start_nvim):
    child.command("set undofile")
    path = opened("a.txt")
    edit(child, path, (1, 1, ["TWO"]))
    again = start_nvim()
    again.command(f"set undofile | edit {path}")
    again.command("silent undo")
    assert again.lines() == ["one", "two", "three", "four"]


# --- files that changed on disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("autoread", ["autoread", "noautoread"])
@pytest.mark.parametrize("names_path", [True, False])
def test_an_unmodified_buffer_shows_at_once_what_is_on_disk(child, opened, autoread, names_path):
    path = opened("a.txt", b"".join(b"line %d\n" % n for n in range(200)))
    child.lua("vim.cmd('normal! 150G03lzt') vim.cmd('split | normal! 20Gzt') vim.cmd.redraw()")
    child.command(f"set {autoread}")
    replace_on_disk(path, b"new\nnew\n" + b"".join(b"line %d\n" % n for n in range(200) if n != 9))
    files_changed(child, *([path] if names_path else []))
    assert child.lines()[:3] == ["new", "new", "line 0"]
    assert not child.is_modified()
    assert child.lua("return vim.o.autoread") is (autoread == "autoread")
    views = child.lua("""
      vim.cmd.redraw()
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_call(win, function()
          return { vim.fn.getline('.'), vim.fn.col('.'), vim.fn.getline('w0') }
        end)
      end, vim.fn.win_findbuf(1))
    """)
    assert views == [["line 19", 4, "line 19"], ["line 149", 4, "line 149"]]
    assert_undisturbed(child)
    child.command("silent undo")
    assert child.lines()[0] == "line 0"
    assert child.is_modified()
    user_writes(child)


def test_only_the_files_named_are_looked_at(child, opened):
    first, second = opened("a.txt"), opened("b.txt")
    replace_on_disk(first, b"changed\n")
    replace_on_disk(second, b"changed too\n")
    files_changed(child, second)
    assert child.lines(first)[0] == "one"
    assert child.lines(second) == ["changed too"]


def test_unsaved_changes_stay_and_are_noticed_once_without_a_question(child, opened):
    path = opened("a.txt")
    child.type_keys("Amine<Esc>")
    for text in (b"disk\n", b"disk again\n"):
        replace_on_disk(path, text)
        files_changed(child)
        child.command("checktime")
        assert not child.is_blocked()
    assert child.lines()[0] == "onemine"
    child.wait_for_message("has changed on disk")
    assert child.messages().count("has changed on disk") == 1
    child.feed(":w<CR>")  # and here Neovim asks, as it should
    wait_until(lambda: child.mode() == "r?", "it asks before it overwrites")
    child.type_keys("n<CR>")
    assert path.read_bytes() == b"disk again\n"


MB = 1 << 20


def grow(path, size, kind="zeros"):
    with path.open("r+b") as file:
        if kind == "zeros":
            file.truncate(size)
        else:
            file.write(b"y\n" * (size // 2))


@prove
@pytest.mark.parametrize("kind", ["zeros", "lines"])
@pytest.mark.parametrize("autoread", ["autoread", "noautoread"])
def test_a_file_that_was_blown_up_is_told_and_not_loaded(child, opened, kind, autoread):
    path = opened("a.txt")
    child.command(f"set {autoread}")
    for _ in range(2):  # told once, and never asked about
        grow(path, 64 * MB, kind)
        files_changed(child)
        assert not child.is_blocked()
        assert child.lines() == ["one", "two", "three", "four"]
    child.wait_for_screen("a.txt has changed on disk; it is 64 MB now")
    assert child.messages().count("has changed on disk") == 1
    assert not child.is_modified()
    path.write_text("small again\n")
    files_changed(child)
    assert child.lines() == ["small again"]
    grow(path, 17 * MB, kind)
    files_changed(child)
    wait_until(lambda: child.messages().count("it is 17 MB now") == 1)
    assert child.lines() == ["small again"]


@pytest.mark.parametrize("name", ["/proc/self/pagemap", "/proc/self/maps"])
def test_a_link_to_a_file_of_the_kernel_is_told_and_not_loaded(child, opened, project, name):
    """Such a file says that it is empty, and may have no end."""
    path = opened("a.txt")
    path.unlink()
    (project / "link").symlink_to(name)
    path.symlink_to("link")
    files_changed(child)
    child.wait_for_message("a.txt has changed on disk; it now leads to a kernel file")
    assert child.lines() == ["one", "two", "three", "four"]
    path.unlink()
    path.write_text("a file again\n")
    files_changed(child)
    assert child.lines() == ["a file again"]


@prove
def test_what_was_large_when_it_was_opened_is_loaded_again(child, opened):
    path = opened("a.txt", (b"y" * 99 + b"\n") * 200_000)
    with path.open("ab") as file:
        file.write(b"more\n")
    files_changed(child)
    assert child.lua("return vim.fn.getline('$')") == "more"
    grow(path, 60 * MB)
    files_changed(child)
    child.wait_for_message("it is 60 MB now")
    assert child.lua("return vim.fn.getline('$')") == "more"


def test_a_huge_file_that_is_created_under_an_empty_buffer_is_told(child, project):
    child.command(f"edit {project}/new.txt")
    (project / "new.txt").touch()
    grow(project / "new.txt", 64 * MB)
    files_changed(child)
    child.wait_for_message("it is 64 MB now")
    assert child.lines() == [""]


@pytest.mark.parametrize("pattern, name", [("*.sealed", "a.sealed"), ("sealed:*", "sealed:a")])
@pytest.mark.parametrize("is_new", [True, False])
def test_what_a_plugin_reads_is_not_loaded_by_itself(child, project, pattern, name, is_new):
    path = project / name
    if not is_new:
        path.write_text("one\n")
    child.command(f"edit {path}")
    child.lua(
        """
      vim.api.nvim_create_autocmd('BufReadCmd', { pattern = ..., callback = function(event)
        _G.reached = event.match
      end })
    """,
        pattern,
    )
    child.command("cd .. | cd -")
    path.write_text("changed\n")
    files_changed(child)
    assert child.lua("return _G.reached == nil")
    child.wait_for_message("a plugin reads it")
    assert not child.is_blocked()


def test_a_touched_file_changes_nothing_and_asks_nothing_later(child, opened):
    path = opened("a.txt")
    child.command(
        "autocmd OptionSet * let g:options = get(g:, 'options', '') .. expand('<amatch>')"
    )
    tick = find(child, path)["tick"]
    os.utime(path, ns=(1, 1))
    files_changed(child)
    assert find(child, path)["tick"] == tick
    path.chmod(0o755)
    files_changed(child)
    assert "buftype" not in child.lua("return vim.g.options or ''")
    child.type_keys("x")
    user_writes(child)
    assert_undisturbed(child)


def test_a_file_created_under_an_empty_buffer_is_loaded_without_a_question(child, project):
    child.command(f"edit {project}/new.txt")
    (project / "new.txt").write_text("created\n")
    files_changed(child)
    assert child.lines() == ["created"]
    child.command("checktime")
    assert_undisturbed(child)


def test_a_file_created_under_unsaved_text_is_noticed_without_a_question(child, project):
    child.command(f"edit {project}/new.txt")
    child.type_keys("imine<Esc>")
    (project / "new.txt").write_text("created\n")
    files_changed(child)
    child.wait_for_message("has changed on disk")
    assert not child.is_blocked()
    assert child.lines() == ["mine"]


def test_a_file_that_comes_back_is_loaded(child, opened):
    path = opened("a.txt")
    path.unlink()
    files_changed(child)
    path.write_text("back\n")
    files_changed(child)
    assert child.lines() == ["back"]
    assert_undisturbed(child)


@pytest.mark.parametrize("keys, mode", [("3GVj", "V"), ("d", "no")])
def test_what_cannot_be_loaded_now_is_loaded_afterwards(child, opened, keys, mode):
    path = opened("a.txt")
    child.type_keys(keys, mode)
    replace_on_disk(path, b"short\n")
    files_changed(child)
    assert child.lines()[0] == "one"
    child.type_keys("<Esc>")
    wait_until(lambda: child.lines() == ["short"])
    assert_undisturbed(child)


def test_a_reload_while_somebody_types_there_is_a_block_of_its_own(child, opened):
    path = opened("a.txt")
    child.type_keys("2GA", "i")
    replace_on_disk(path, b"new\none\ntwo\nthree\nfour\n")
    files_changed(child)
    assert child.lines()[0] == "new"
    child.type_keys("typed<Esc>")
    assert child.lines() == ["new", "one", "twotyped", "three", "four"]
    child.type_keys("u")
    assert child.lines() == ["new", "one", "two", "three", "four"]
    child.type_keys("u")
    assert child.lines() == ["one", "two", "three", "four"]


# --- cost ------------------------------------------------------------------------------------------------------------


def test_an_edit_of_a_hundred_thousand_lines_is_little_work(child, opened):
    rows = [f"line {n} of a big file" for n in range(100_000)]
    path = opened("a.txt", "\n".join([*rows, ""]).encode())
    with child.little_work(10):
        child.lua(
            """
        local buffers = require('sanderling.editing')
        local call = { deadline_ms = 1e15 }
        local buffer = buffers.answer(call, 'find', ...).value
        local hunks = { { 50000, 1, { 'x', 'y' } } }
        assert(buffers.answer(call, 'change', buffer.id, buffer.tick, hunks, 'use').value)
        """,
            str(path),
            *identity_of(path),
        )


@prove
@pytest.mark.parametrize("kind", ["every second line", "shuffled", "two kinds of lines", "all new"])
def test_a_hostile_whole_file_change_is_no_freeze(child, opened, kind):
    rng = random.Random(kind)
    rows = [f"line {n} of a big file" for n in range(100_000)]
    new = {
        "every second line": [row + ("!" if n % 2 else "") for n, row in enumerate(rows)],
        "shuffled": rng.sample(rows, len(rows)),
        "two kinds of lines": [rng.choice("ab") for _ in rows],
        "all new": [str(n) for n in range(100_000)],
    }[kind]
    if kind == "two kinds of lines":
        rows = [rng.choice("ab") for _ in rows]
    path = opened("a.txt", "\n".join([*rows, ""]).encode())
    for count in (9_999, 100_000):
        buffer = find(child, path)
        request = [(0, count, new[:count])]
        with child.little_work():
            assert change(child, buffer, *request)
    assert child.lines() == new


# --- the Python half, in a process of its own: pynvim's greenlets upset pytest's compiling -----------------------------

SERVE = textwrap.dedent("""
    import asyncio, base64, pickle, sys
    import pynvim
    from sanderling.editor.bridge import Bridge
    from sanderling.editor.buffers import NeovimBuffers
    from sanderling.editor import questions
    from sanderling.errors import ToolError

    nvim = pynvim.attach("socket", path=sys.argv[1])
    bridge = Bridge(nvim)
    buffers = NeovimBuffers(bridge)
    buffers.ask = questions.EditorQuestions(bridge, "answers").ask

    async def set_deadline(seconds):
        questions.DEADLINE_S = seconds

    async def set_patience(seconds):
        questions.PATIENCE_S = seconds

    buffers.set_deadline = set_deadline
    buffers.set_patience = set_patience

    async def serve():
        reader = asyncio.StreamReader(limit=1 << 28)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            name, args = pickle.loads(base64.b64decode(line))
            try:
                result = await getattr(buffers, name)(*args)
            except ToolError as error:
                result = error
            print(base64.b64encode(pickle.dumps(result)).decode(), flush=True)

    def end(error):
        print(repr(error), file=sys.stderr)
        nvim.stop_loop()

    bridge.start(serve, end)
    nvim.run_loop(lambda *_: None, lambda _, args: bridge.settle(*args))
""")


class PythonSide:
    def __init__(self, child):
        address = child.lua("return vim.fn.serverstart()")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def send(self, name, *args):
        self.process.stdin.write(base64.b64encode(pickle.dumps((name, args))) + b"\n")
        self.process.stdin.flush()

    def receive(self, deadline_s=DEADLINE_S):
        assert is_readable(self.process.stdout, deadline_s), "no answer"
        result = pickle.loads(base64.b64decode(self.process.stdout.readline()))
        if isinstance(result, Exception):
            raise result
        return result

    def call(self, name, *args):
        self.send(name, *args)
        return self.receive()

    def buffer(self, path):
        return self.call("buffer", str(path), identity_of(path))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def python_side(child):
    """With more patience than it has in earnest: Neovim gets little of a machine that is busy."""
    side = PythonSide(child)
    side.call("set_deadline", DEADLINE_S)
    yield side
    side.close()


def as_dict(buffer):
    return {name: getattr(buffer, name) for name in buffer.__struct_fields__}


def test_the_python_side_edits_and_writes_a_file(child, opened, python_side):
    path = opened("a.txt", "größe\ntwo\n".encode("latin1"))
    child.command("autocmd BufWritePre *.txt %s/two/TWO/e")
    assert python_side.buffer(path.with_name("b.txt")) is None
    buffer = python_side.buffer(path)
    assert as_dict(buffer) == find(child, path) | {"encoding": "latin1"}
    hunk = Hunk(first_line=0, line_count=1, lines=("Größe", "new"))
    assert python_side.call("change", buffer, (hunk,), "use-1") is True
    assert python_side.call("change", buffer, (hunk,), "use-1") is False
    buffer = python_side.call("before_write", buffer)
    assert buffer.text == "Größe\nnew\nTWO\n"
    replace_on_disk(path, buffer.text.encode(buffer.encoding))
    python_side.call("after_write", buffer, stamp_of(path.stat()))
    assert not python_side.buffer(path).is_modified  # it is told before the next question is asked
    child.command("checktime")
    assert_undisturbed(child)
    replace_on_disk(path, b"from outside\n")
    python_side.call("files_changed", ())
    assert python_side.buffer(path).text == "from outside\n"


@pytest.mark.parametrize(
    "option, codec",
    prove_rest(
        [
            ("utf-16", "utf-16-be"),
            ("ucs-2le", "utf-16-le"),
            ("ucs-4", "utf-32-be"),
            ("cp1252", "cp1252"),
        ],
        keep=(0,),
    ),
)
def test_a_buffer_has_the_bytes_that_neovim_would_write(child, opened, python_side, option, codec):
    path = opened("a.txt")
    child.command(f"setlocal fileencoding={option}")
    buffer = python_side.buffer(path)
    child.command("silent write")
    assert bytes_of(buffer) == buffer.text.encode(codec) == path.read_bytes()


def test_bytes_that_are_no_text_come_and_go_unchanged(child, project, python_side):
    path = project / "a.bin"
    path.write_bytes(b"\xff\x00\xfe\n\x80\n")
    child.command(f"edit ++bin {path}")
    buffer = python_side.buffer(path)
    assert buffer.text.encode("utf-8", "surrogateescape") == b"\xff\x00\xfe\n\x80\n"
    row = buffer.text.split("\n")[0]
    assert python_side.call("change", buffer, (Hunk(0, 1, (row + "x",)),), "use-1")
    child.command("silent write")
    assert path.read_bytes() == b"\xff\x00\xfex\n\x80\n"


def test_a_question_is_answered_later_while_neovim_goes_on(child, opened, python_side):
    opened("a.txt")
    child.lua("""
      package.loaded.answers = { answer = require('sanderling.host.door').serve({
        double = { begin = function(reply, _, number)
          vim.defer_fn(function() reply({ value = { number * 2, vim.fn.getline(1) } }) end, 100)
        end },
        refuse = { begin = function(reply) reply({ error = 'There is no server.' }) end },
      }) }
    """)
    python_side.send("ask", "double", 21)
    child.feed("itoo ")
    wait_until(lambda: child.lines()[0] == "too one")
    assert python_side.receive() == [42, "too one"]
    with pytest.raises(ToolError, match="There is no server"):
        python_side.call("ask", "refuse")


@prove
def test_half_a_surrogate_pair_is_refused_in_words(opened, python_side):
    path = opened("a.txt")
    buffer = python_side.buffer(path)
    with pytest.raises(ToolError, match="a lone surrogate"):
        python_side.call("change", buffer, (Hunk(0, 1, ("\ud800",)),), "use-1")
    assert python_side.call("change", buffer, (Hunk(0, 1, ("fine",)),), "use-1")


PROMPTS = {
    "hit-enter": (":echo 1 | echo 2 | echo 3<CR>", "the hit-enter prompt", "<CR>"),
    "more": (":set more | highlight<CR>", "the more-prompt", "q"),
    "replace": ("r", "the rest of a command", "<Esc>"),
    "text object": ("vi", "the rest of a command", "<Esc><Esc>"),
    "register": ("i<C-r>", "the rest of a command", "<Esc><Esc>"),
    "operator": ("d", "the motion of an operator", "<Esc>"),
    "confirm": (":call confirm('?')<CR>", "the answer to a prompt", "<CR>"),
    "expression mapping": ("<F5>", "a key for a mapping", "x"),
}


@prove
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_neovim_that_waits_for_a_key_is_an_error_within_the_deadline_and_later_nothing(
    child, opened, python_side, prompt
):
    path = opened("a.txt")
    child.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    buffer = python_side.buffer(path)
    python_side.call("set_deadline", 1.0)
    keys, what, leave = PROMPTS[prompt]
    child.feed(keys)
    wait_until(
        lambda: (
            child.rpc.request("nvim_get_mode") != {"mode": "n", "blocking": False} or keys == "<F5>"
        )
    )
    start = time.monotonic()
    with pytest.raises(ToolError) as error:
        python_side.call("change", buffer, (Hunk(0, 1, ("late",)),), "use-1")
    assert time.monotonic() - start > 0.9
    assert f"Neovim waits for a key ({what})" in str(error.value)
    child.feed(leave)
    wait_until(lambda: not child.is_blocked() and child.mode() == "n", "the prompt is left")
    python_side.call("set_deadline", DEADLINE_S)
    assert python_side.buffer(path).text == "one\ntwo\nthree\nfour\n"
    assert child.lines() == ["one", "two", "three", "four"]


@prove
def test_a_prompt_that_is_answered_in_time_is_only_waited_for(child, opened, python_side):
    path = opened("a.txt")
    buffer = python_side.buffer(path)
    child.type_keys("d", "no")
    python_side.send("change", buffer, (Hunk(0, 1, ("ONE",)),), "use-1")
    time.sleep(0.2)
    assert child.lines()[0] == "one"
    child.feed("<Esc>")
    assert python_side.receive() is True
    assert child.lines()[0] == "ONE"


@prove
def test_a_slow_hook_is_waited_for(child, opened, python_side):
    path = opened("a.txt")
    child.command("autocmd BufWritePre *.txt lua vim.wait(1500) vim.fn.setline(1, 'formatted')")
    buffer = python_side.buffer(path)
    assert python_side.call("before_write", buffer).text.startswith("formatted\n")


def make_busy(child, path, duration_ms):
    sleeps = path.with_name("sleeps")
    sleep = f"vim.fn.writefile({{}}, ...) vim.uv.sleep({duration_ms})"
    child.rpc.send("nvim_exec_lua", sleep, [str(sleeps)])
    wait_until(sleeps.exists)


@prove
def test_a_neovim_that_is_busy_for_two_seconds_is_waited_for(child, opened, python_side):
    path = opened("a.txt")
    buffer = python_side.buffer(path)
    python_side.call("set_deadline", 1.0)
    make_busy(child, path, 2000)
    assert python_side.call("change", buffer, (Hunk(0, 1, ("late",)),), "use-1") is True
    assert child.lines()[0] == "late"


@prove
def test_a_busy_neovim_does_not_do_later_what_was_asked_too_long_ago(child, opened, python_side):
    path = opened("a.txt")
    buffer = python_side.buffer(path)
    python_side.call("set_deadline", 1.0)
    python_side.call("set_patience", 2.0)
    make_busy(child, path, 5000)
    with pytest.raises(ToolError, match="Neovim is busy: no answer within 3 s"):
        python_side.call("change", buffer, (Hunk(0, 1, ("late",)),), "use-1")
    assert child.lines()[0] == "one"


@prove
def test_what_follows_a_write_is_done_after_a_prompt(child, opened, python_side):
    path = opened("a.txt")
    buffer = python_side.buffer(path)
    python_side.call("change", buffer, (Hunk(0, 1, ("ONE",)),), "use-1")
    buffer = python_side.call("before_write", buffer)
    replace_on_disk(path, buffer.text.encode())
    child.feed(":echo 1 | echo 2 | echo 3<CR>")
    wait_until(child.is_blocked)
    python_side.call("after_write", buffer, stamp_of(path.stat()))
    child.feed("<CR>")
    wait_until(lambda: not child.is_blocked())
    wait_until(lambda: not child.is_modified())
    child.command("checktime")
    assert not child.is_blocked()
