"""The file tools on files that a person has open: a real Neovim, real files in the real sandbox, and whatever state a buffer can be in."""

import base64
import os
import pickle
import random
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
from tests.conftest import (
    DEADLINE_S,
    find_neovim,
    is_readable,
    prove_rest,
    prove_unless_quick,
    quick,
    small_disk,
    wait_until,
)
from tests.unit.test_replace import AnyFile, any_edit

from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError

pytestmark = prove_unless_quick

SERVE = textwrap.dedent("""
    import asyncio, base64, pickle, sys
    import anyio, pynvim
    from sanderling.editor.bridge import Bridge
    from sanderling.editor.buffers import NeovimBuffers
    from sanderling.errors import ToolError
    from sanderling.sandbox.policy import SandboxPolicy
    from sanderling.sandbox.confinement import SessionSandbox
    from sanderling.tools.base import Context
    from sanderling.tools.edit import edit
    from sanderling.tools.read import read
    from tests.workspaces import workspace_of
    from sanderling.tools.write import write

    address, project, home, state = sys.argv[1:]
    nvim = pynvim.attach("socket", path=address)
    bridge = Bridge(nvim)
    sandbox = SessionSandbox(
        SandboxPolicy(project=project, home=home, state_dir=state), lambda _: None, lambda: None
    )
    workspace = workspace_of(project, sandbox, NeovimBuffers(bridge))
    tools = {tool.name: tool for tool in (edit, read, write)}

    async def use(name, number, data):
        context = Context(workspace, f"use-{number}", lambda _: None)
        return (await tools[name].run(tools[name].parse(data), context)).content

    async def serve():
        reader = asyncio.StreamReader(limit=1 << 28)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )

        async def answer(request):
            try:
                result = await use(*request)
            except ToolError as error:
                result = ToolError(str(error))
            print(base64.b64encode(pickle.dumps((request[1], result))).decode(), flush=True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.manager.serve)
            while line := await reader.readline():
                tasks.start_soon(answer, pickle.loads(base64.b64decode(line)))

    def end(error):
        print(repr(error), file=sys.stderr)
        nvim.stop_loop()

    bridge.start(serve, end)
    nvim.run_loop(lambda *_: None, lambda *_: None)
""")


class Desk:
    def __init__(self, child, base: Path) -> None:
        (base / "state").mkdir()
        address = child.lua("return vim.fn.serverstart()")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE,
                address,
                *map(str, (child.project, child.home, base / "state")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.count = 0

    def begin(self, tool: str, path: Path | str, **data: object) -> int:
        self.count += 1
        request = (tool, self.count, {"path": str(path), **data})
        self.process.stdin.write(base64.b64encode(pickle.dumps(request)) + b"\n")
        self.process.stdin.flush()
        return self.count

    def end(self, deadline_s: float = 20.0) -> str:
        """What the model is told of the use that ends next."""
        assert is_readable(self.process.stdout, deadline_s), "no answer"
        _, result = pickle.loads(base64.b64decode(self.process.stdout.readline()))
        if isinstance(result, Exception):
            raise result
        return result

    def told(self, tool: str, path: Path | str, **data: object) -> str:
        self.begin(tool, path, **data)
        return self.end()

    def edit(self, path: Path | str, old: str, new: str, **more: object) -> str:
        return self.told("edit", path, edits=[{"old": old, "new": new, **more}])

    def refusal(self, tool: str, path: Path | str, **data: object) -> str:
        with pytest.raises(ToolError) as caught:
            self.told(tool, path, **data)
        return str(caught.value)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def desk(child, tmp_path):
    desk = Desk(child, tmp_path)
    yield desk
    desk.close()


TEXT = "".join(f"line {n}\n" for n in range(1, 101))


@pytest.fixture
def opened(child, project):
    """Open a file with that content in the current window; gives its path."""

    def open_file(name="a.txt", data=TEXT, command="edit"):
        path = project / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        child.lua(
            "local command, name = ... vim.cmd('silent ' .. command .. ' ' .. vim.fn.fnameescape(name))",
            command,
            str(path),
        )
        return path

    return open_file


def text_of(child, buf=1):
    """The buffer's lines as text, with a newline at the end if the file is to have one."""
    return child.lua(
        """
        local buf = ...
        local lines = vim.api.nvim_buf_get_lines(buf, 0, -1, true)
        return table.concat(lines, '\\n') .. (vim.bo[buf].endofline and '\\n' or '')
        """,
        buf,
    )


def is_modified(child, buf=1):
    return child.lua("return vim.bo[...].modified", buf)


def assert_undisturbed(child):
    """Nothing asks, now or at a check, and nothing was said."""
    assert not child.is_blocked()
    child.command("checktime")
    assert not child.is_blocked()
    said = child.messages().strip().split("\n")
    assert [line for line in said if line and not re.search("; (before|after) #", line)] == []


def assert_no_question(child):
    child.command("checktime")
    assert not child.is_blocked()


def settled(child, buf=1):
    """What follows a write has followed."""
    wait_until(lambda: not is_modified(child, buf), "the buffer is written")


def write_by_hand(child, path, text):
    """`:w` goes through without a question, and the file is what the person sees."""
    child.feed(":silent w<CR>")
    wait_until(lambda: not child.is_blocked() and not is_modified(child), "it is written")
    assert path.read_text() == text
    assert "WARNING" not in child.messages()


FIFTY, CHANGED = "line 50\n", TEXT.replace("line 50\n", "fifty\nand more\n")


def change_fifty(desk, path):
    return desk.edit(path, FIFTY, "fifty\nand more\n")


PLACES = """
  vim.cmd.redraw()
  local marks = vim.api.nvim_buf_get_extmarks(1, vim.api.nvim_create_namespace('tests'), 0, -1, {})
  return {
    views = vim.tbl_map(function(win)
      return vim.api.nvim_win_call(win, function()
        local view = vim.fn.winsaveview()
        return { view.topline, view.lnum, view.col, vim.fn.foldclosed(21), vim.fn.foldclosed(81), vim.fn.foldclosedend(81) }
      end)
    end, vim.fn.win_findbuf(1)),
    marks = { vim.fn.getpos("'a")[2], vim.fn.getpos("'b")[2], vim.fn.getpos("'b")[3], vim.fn.getpos("'c")[2] },
    extmarks = vim.tbl_map(function(mark) return { mark[2], mark[3] } end, marks),
  }
"""


def settle_in(child):
    """Two windows with places of their own, folds, marks and extmarks around line 50, and somebody who listens to changes."""
    child.lua("""
      vim.cmd('setlocal foldmethod=manual | 20,25fold | 80,85fold | normal! 70G0llzt')
      vim.cmd('split | setlocal foldmethod=manual | 20,25fold | 80,85fold | normal! 10Gzt')
      vim.cmd('10mark a | 50mark c')
      vim.api.nvim_buf_set_mark(1, 'b', 60, 3, {})
      local ns = vim.api.nvim_create_namespace('tests')
      for _, row in ipairs({ 9, 48, 50, 59 }) do
        vim.api.nvim_buf_set_extmark(1, ns, row, 2, {})
      end
      _G.changes = {}
      vim.api.nvim_buf_attach(1, false, { on_lines = function(_, _, _, first, last, new_last)
        table.insert(_G.changes, { first, last, new_last })
      end })
    """)
    return child.lua(PLACES)


# --- the table of states -----------------------------------------------------------------------------------------------


@quick
def test_01_clean_the_file_and_the_buffer_have_the_change_and_all_else_is_where_it_was(
    child, opened, desk
):
    path = opened()
    before = settle_in(child)
    assert change_fifty(desk, path).startswith("Changed a.txt: +2 −1, now lines 50-51.")
    settled(child)
    assert text_of(child) == path.read_text() == CHANGED
    after = child.lua(PLACES)
    assert before["views"] == [[10, 10, 2, 20, 80, 85], [70, 70, 2, 20, 80, 85]]
    assert after["views"] == [[10, 10, 2, 20, 81, 86], [71, 71, 2, 20, 81, 86]]
    assert (before["marks"], after["marks"]) == ([10, 60, 4, 50], [10, 61, 4, 50])
    assert after["extmarks"] == [[9, 2], [48, 2], [51, 2], [60, 2]]
    changes = child.lua("return _G.changes")
    assert min(first for first, _, _ in changes) == 49
    assert max(max(last, new_last) for _, last, new_last in changes) <= 51
    assert_undisturbed(child)


def test_02_dirty_elsewhere_both_changes_are_in_the_buffer_and_neither_in_the_file(
    child, opened, desk
):
    path = opened()
    desk.told("read", path)
    child.type_keys("Amine<Esc>")
    told = change_fifty(desk, path)
    assert "The user has unsaved changes here" in told
    mine = TEXT.replace("line 1\n", "line 1mine\n", 1)
    both = CHANGED.replace("line 1\n", "line 1mine\n", 1)
    assert text_of(child) == both
    assert path.read_text() == TEXT
    assert is_modified(child)
    assert_undisturbed(child)
    child.type_keys("u")
    assert text_of(child) == mine
    child.type_keys("<C-r>")
    assert text_of(child) == both
    write_by_hand(child, path, both)


@quick
def test_03_dirty_overlapping_nothing_is_changed_and_the_model_is_shown_what_is_there(
    child, opened, desk
):
    path = opened()
    desk.told("read", path)
    child.type_keys("50GAmine<Esc>")
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    assert "unsaved changes in a.txt, line 50," in said
    assert "line 50mine" in said
    assert text_of(child) == TEXT.replace("line 50\n", "line 50mine\n")
    assert path.read_text() == TEXT
    desk.told("read", path)
    desk.edit(path, "line 50mine\n", "ours\n")
    assert text_of(child) == TEXT.replace("line 50\n", "ours\n")
    assert path.read_text() == TEXT
    child.type_keys("u")
    assert "line 50mine\n" in text_of(child)


@quick
def test_04_undo_afterwards_one_u_takes_back_all_of_a_tool_use_and_the_next_one_sees_that(
    child, opened, desk
):
    path = opened()
    child.type_keys("Amine<Esc>")
    child.command("silent write")
    mine = TEXT.replace("line 1\n", "line 1mine\n", 1)
    edits = [{"old": f"line {n}\n", "new": f"LINE {n}\nmore\n"} for n in (20, 40, 60, 80)]
    desk.told("edit", path, edits=edits)
    settled(child)
    changed = text_of(child)
    child.type_keys("u")
    assert (text_of(child), is_modified(child)) == (mine, True)
    child.type_keys("<C-r>")
    assert (text_of(child), is_modified(child)) == (changed, False)
    child.type_keys("uu")
    assert (text_of(child), is_modified(child)) == (TEXT, True)
    told = change_fifty(desk, path)
    assert "unsaved changes" in told
    assert text_of(child) == CHANGED
    assert path.read_text() == changed
    child.type_keys("u")
    assert text_of(child) == TEXT
    write_by_hand(child, path, TEXT)


def test_05_two_windows_each_shows_what_it_showed(child, opened, desk):
    path = opened()
    child.command("normal! 90Gzt")
    child.command("tabnew | buffer 1 | normal! 60Gzz")
    child.command("vsplit | normal! 30Gzt")
    shown = """
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_call(win, function()
          return { vim.fn.getline('w0'), vim.fn.getline('.') }
        end)
      end, vim.fn.win_findbuf(1))
    """
    before = child.lua(shown)
    assert sorted(cursor for _, cursor in before) == ["line 30", "line 60", "line 90"]
    edits = [{"old": "line 5\n", "new": ""}, {"old": FIFTY, "new": "5\n0\n"}]
    desk.told("edit", path, edits=edits)
    settled(child)
    assert child.lua(shown) == before


def test_06_autosave_saves_nothing_twice_and_asks_nothing(child, opened, desk):
    path = opened()
    child.lua("""
      _G.writes = 0
      vim.api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI', 'BufModifiedSet' }, {
        callback = function() vim.cmd('silent! update') end,
      })
      vim.api.nvim_create_autocmd('BufWritePost', { callback = function() _G.writes = _G.writes + 1 end })
    """)
    for number in (30, 50, 70):
        desk.edit(path, f"line {number}\n", f"LINE {number}\n")
    settled(child)
    wanted = TEXT
    for number in (30, 50, 70):
        wanted = wanted.replace(f"line {number}\n", f"LINE {number}\n")
    wait_until(lambda: path.read_text() == wanted, "it is saved")
    assert text_of(child) == wanted
    child.type_keys("u")
    wait_until(lambda: "line 70\n" in path.read_text(), "the undo is saved")
    assert text_of(child) == path.read_text()
    assert_undisturbed(child)


def test_07_format_on_save_is_written_told_and_taken_back_with_the_change(child, opened, desk):
    path = opened()
    child.command(r"autocmd BufWritePre *.txt %s/^fifty$/FIFTY/e | 1delete")
    told = change_fifty(desk, path)
    wanted = CHANGED.replace("fifty\n", "FIFTY\n").removeprefix("line 1\n")
    settled(child)
    assert text_of(child) == path.read_text() == wanted
    assert "Then the editor's own hooks (format on save) changed it" in told
    assert "+FIFTY" in told
    child.type_keys("u")
    assert text_of(child) == TEXT
    assert path.read_text() == wanted
    write_by_hand(child, path, TEXT.replace("line 1\n", "", 1))


def test_08_file_deleted_an_edit_stays_in_the_buffer_and_a_whole_file_is_written(
    child, opened, desk
):
    path = opened()
    desk.told("read", path)
    path.unlink()
    told = change_fifty(desk, path)
    assert "not on disk: the change is only in the editor's buffer" in told
    assert text_of(child) == CHANGED
    assert is_modified(child)
    assert not path.exists()
    child.command("checktime")
    assert not child.is_blocked()
    child.type_keys("u")
    assert text_of(child) == TEXT
    child.feed(":silent write<CR>")
    wait_until(lambda: path.exists() and path.read_text() == TEXT, "it is written by hand")
    path.unlink()
    desk.told("read", path)
    desk.told("write", path, content="all new\n")
    settled(child)
    assert text_of(child) == path.read_text() == "all new\n"
    assert_no_question(child)


# --- buffers of other kinds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["readonly", "nomodifiable"])
def test_a_locked_buffer_is_refused_in_words_and_so_is_its_file(child, opened, desk, option):
    path = opened()
    child.command(f"setlocal {option}")
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    assert said == f"a.txt is locked in Neovim ('{option}'). Ask the user to unlock it."
    assert text_of(child) == path.read_text() == TEXT
    assert not is_modified(child)


@pytest.mark.parametrize("is_opened_by_link", [True, False])
def test_a_link_and_its_file_are_one_buffer(child, project, desk, is_opened_by_link):
    real, link = project / "real.txt", project / "link.txt"
    real.write_text(TEXT)
    link.symlink_to("real.txt")
    child.command(f"edit {link if is_opened_by_link else real}")
    change_fifty(desk, real if is_opened_by_link else link)
    settled(child)
    assert text_of(child) == real.read_text() == CHANGED
    assert link.is_symlink()
    child.type_keys("Amine<Esc>")
    write_by_hand(child, real, CHANGED.replace("line 1\n", "line 1mine\n", 1))
    assert link.is_symlink()
    assert_undisturbed(child)


FLIP = """
  local buffers, name, target, questions = require('sanderling.editing'), ...
  local answer, files_changed = buffers.answer, buffers.files_changed
  _G.flips = 0
  local function flip(to)
    _G.flips = _G.flips + 1
    os.remove(name)
    if to then
      assert(vim.uv.fs_symlink(to, name))
    else
      vim.fn.writefile({ 'plain' }, name)
    end
  end
  function buffers.answer(deadline, question, ...)
    if vim.list_contains(questions, question) then
      flip(target)
    end
    return answer(deadline, question, ...)
  end
  function buffers.files_changed(paths)
    if vim.list_contains(questions, 'files_changed') then
      flip(target)
    end
    files_changed(paths)
  end
"""


@pytest.fixture
def secret(child, project):
    """A file that the sandbox covers, open with unsaved changes."""
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (project / ".git" / name).mkdir()
    (project / ".gitignore").write_text(".env\n")
    path = project / ".env"
    path.write_text("TOKEN=secret\n")
    child.command(f"edit {path}")
    return path


@pytest.mark.parametrize("is_there", [True, False])
def test_a_name_that_leads_elsewhere_a_moment_later_shows_no_hidden_buffer(
    child, project, desk, secret, is_there
):
    child.type_keys("ATOPSECRET<Esc>")
    name = project / "x"
    if is_there:
        name.write_text("plain\n")
    child.lua(FLIP, str(name), str(secret), ["find"])
    if is_there:
        assert "secret" not in desk.told("read", name)
    else:
        assert "secret" not in desk.refusal("read", name)
    assert child.lua("return _G.flips") > 0


def test_a_name_that_leads_elsewhere_a_moment_later_changes_no_hidden_buffer(
    child, project, desk, secret
):
    child.type_keys("otoken<Esc>")
    before = text_of(child)
    name = project / "x"
    name.write_text("token\n")
    child.lua(FLIP, str(name), str(secret), ["find"])
    said = desk.refusal("edit", name, edits=[{"old": "token", "new": "evil"}])
    assert "secret" not in said
    assert child.lua("return _G.flips") > 0
    assert text_of(child) == before


def test_a_buffer_that_was_loaded_through_a_link_is_not_read_for_the_file_there_now(
    child, project, desk, secret
):
    name = project / "x"
    name.symlink_to(secret)
    other = project / "y"
    other.write_text("plain\n")
    child.command(f"edit {other}")
    buf = child.lua("return vim.fn.bufnr()")
    name.replace(other)
    child.lua("require('sanderling.editing').files_changed({})")
    assert "secret" in text_of(child, buf)  # the person may see it
    other.unlink()
    other.write_text("plain\n")
    child.lua(FLIP, str(other), str(secret), ["files_changed"])
    assert "secret" not in desk.told("read", other)
    assert child.lua("return _G.flips") > 0


KINDS = {
    "latin1": (
        "größe\nline 50\nende\n".encode("latin-1"),
        "größe\nfifty\nende\n".encode("latin-1"),
    ),
    "utf-16": (
        b"\xff\xfe" + "größe\nline 50\nende\n".encode("utf-16-le"),
        b"\xff\xfe" + "größe\nfifty\nende\n".encode("utf-16-le"),
    ),
    "dos": (b"a\r\nline 50\r\nb\r\n", b"a\r\nfifty\r\nb\r\n"),
    "mixed": (b"a\r\nline 50\nb\r\n", b"a\r\nfifty\nb\r\n"),
    "bomb": (b"\xef\xbb\xbfa\nline 50\n", b"\xef\xbb\xbfa\nfifty\n"),
    "bomb, dos, noeol": (b"\xef\xbb\xbfa\r\nline 50\r\nb", b"\xef\xbb\xbfa\r\nfifty\r\nb"),
    "noeol": (b"a\nline 50\nb", b"a\nfifty\nb"),
    "noeol, the last line": (b"a\nline 50", b"a\nfifty"),
    "one line": (b"line 50\n", b"fifty\n"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_dirty", [False, True])
def test_a_file_of_any_kind_keeps_its_other_bytes(child, opened, desk, kind, is_dirty):
    before, after = KINDS[kind]
    child.command("set nofixendofline")
    path = opened("a.txt", before)
    options = "[&fileencoding, &fileformat, &bomb, &endofline]"
    were = child.lua("return vim.fn.eval(...)", options)
    if is_dirty:
        child.command("setlocal modified")
    desk.edit(path, "line 50", "fifty")
    if is_dirty:
        assert path.read_bytes() == before
        child.command("silent write")
    settled(child)
    assert path.read_bytes() == after
    assert child.lua("return vim.fn.eval(...)", options) == were
    child.type_keys("u")
    child.command("silent write")
    assert path.read_bytes() == before
    assert_undisturbed(child)


LEGACY = {
    "cp932": "// ポート|表\n",
    "gb18030": "// 中文|镕\n",
    "euc-kr": "// 한국|어\n",
    "big5": "// 功能|許\n",
    "cp1251": "// привет|мир\n",
    "koi8-r": "// привет|мир\n",
    "utf-16le": "// Größe|日本\n",
}


@quick
@pytest.mark.parametrize("encoding", prove_rest(LEGACY, keep=(0,)))
@pytest.mark.parametrize("is_dirty", prove_rest([False, True]))
def test_a_file_is_read_and_edited_in_the_encoding_of_its_buffer(
    child, opened, desk, encoding, is_dirty
):
    before = LEGACY[encoding] * 2
    path = opened("a.txt", before.encode(encoding), f"edit ++enc={encoding}")
    assert child.lua("return vim.bo.fileencoding") == encoding
    if is_dirty:
        child.command("setlocal modified")
    assert before.split("\n")[0] in desk.told("read", path)
    word = before[3 : before.index("|")]
    desk.edit(path, f"{word}|", f"{word} or ", replace_all=True)
    after = before.replace("|", " or ")
    if is_dirty:
        assert path.read_bytes() == before.encode(encoding)
        child.command("silent write")
    settled(child)
    assert text_of(child) == after
    assert path.read_bytes() == after.encode(encoding)
    assert child.lua("return vim.bo.fileencoding") == encoding
    assert_undisturbed(child)


@pytest.mark.parametrize(
    "autoread", ["set autoread", "set noautoread", "set noautoread | setlocal autoread"]
)
def test_a_file_changed_by_others_is_loaded_edited_and_written(child, opened, desk, autoread):
    path = opened()
    child.command(autoread)
    desk.told("read", path)
    path.write_text("by others\n" + TEXT)
    told = change_fifty(desk, path)
    settled(child)
    assert "a.txt has changed since you read it, not by you:" in told
    assert text_of(child) == path.read_text() == "by others\n" + CHANGED
    child.type_keys("u")
    assert text_of(child) == "by others\n" + TEXT
    assert_undisturbed(child)


@pytest.mark.parametrize("autoread", ["autoread", "noautoread"])
def test_a_hidden_buffer_is_edited_and_an_unloaded_one_left_unloaded(child, opened, desk, autoread):
    child.command(f"set {autoread} hidden")
    hidden, unloaded = opened("hidden.txt"), opened("unloaded.txt")
    child.command("enew | bunload 2")
    for path in (hidden, unloaded):
        change_fifty(desk, path)
        assert path.read_text() == CHANGED
    settled(child)
    assert text_of(child) == CHANGED
    assert not child.lua("return vim.api.nvim_buf_is_loaded(2)")
    child.command("buffer 2")
    assert text_of(child, 2) == CHANGED
    child.command("buffer 1")
    child.type_keys("u")
    assert text_of(child) == TEXT
    assert_undisturbed(child)


def test_a_huge_file_is_edited_on_the_disk_but_not_under_a_huge_buffer(
    child, project, opened, desk
):
    huge = TEXT + "x" * 99 + "\n" + ("y" * 99 + "\n") * 90_000
    path = project / "closed.txt"
    path.write_text(huge)
    change_fifty(desk, path)
    assert path.read_text() == CHANGED + huge.removeprefix(TEXT)
    path = opened("open.txt", huge)
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    assert "too much to fetch" in said
    assert path.read_text() == huge
    assert not is_modified(child)


def test_what_the_swap_file_holds_is_the_change_too(child, opened, desk, tmp_path):
    child.command(f"set directory={tmp_path} updatecount=1 swapfile")
    path = opened()
    child.command("setlocal swapfile")
    swap = Path(child.lua("return vim.fn.swapname(1)"))
    desk.told("read", path)
    child.type_keys("Amine<Esc>")
    change_fifty(desk, path)
    child.command("preserve")
    child.rpc.process.kill()
    child.rpc.process.wait()
    assert swap.exists()
    recovered = tmp_path / "recovered.txt"
    subprocess.run(
        [
            find_neovim(),
            "--clean",
            "--headless",
            "-r",
            swap,
            "-c",
            f"write! {recovered}",
            "-c",
            "qall!",
        ],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert recovered.read_text() == CHANGED.replace("line 1\n", "line 1mine\n", 1)


def test_the_swap_file_of_another_neovim_asks_nobody(child, start_nvim, opened, desk, tmp_path):
    path = opened()
    other = start_nvim(commands=[f"set directory={tmp_path} swapfile", f"edit {path}"])
    other.command("setlocal swapfile")
    other.type_keys("Atheirs<Esc>")
    child.command(f"set directory={tmp_path} swapfile")
    change_fifty(desk, path)
    settled(child)
    assert text_of(child) == path.read_text() == CHANGED
    assert_undisturbed(child)
    assert text_of(other).startswith("line 1theirs\n")


# --- what the person is in the middle of -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys, mode, line",
    [("70GAmine", "i", "line 70mine"), ("70GRmine", "R", "mine 70"), ("70Gccmine", "i", "mine")],
)
def test_an_edit_while_somebody_types_is_an_undo_step_of_its_own(
    child, opened, desk, *, keys, mode, line
):
    path = opened()
    desk.told("read", path)
    child.type_keys(keys, mode)
    wait_until(lambda: f"{line}\n" in text_of(child))
    mine = text_of(child)
    change_fifty(desk, path)
    both = text_of(child)
    assert both == mine.replace(FIFTY, "fifty\nand more\n")
    child.feed("yours<Esc>")
    wait_until(lambda: child.mode() == "n")
    all_three = text_of(child)
    assert "mineyours" in all_three
    for text in (both, mine, TEXT):
        child.type_keys("u")
        assert text_of(child) == text
    for text in (mine, both, all_three):
        child.type_keys("<C-r>")
        assert text_of(child) == text
    assert path.read_text() == TEXT


def test_a_pending_operator_is_waited_for_and_does_what_it_would_have(child, opened, desk):
    path = opened()
    child.type_keys("10Gd", "no")
    desk.begin("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    child.feed("d")
    desk.end()
    wait_until(lambda: "fifty\n" in text_of(child))
    assert text_of(child) == TEXT.replace("line 10\n", "").replace(FIFTY, "fifty\n")


@pytest.mark.parametrize(
    "keys, what, leave",
    [
        ("d", "the motion of an operator", "<Esc>"),
        ("<F5>", "a key for a mapping", "x"),  # E565
        (":echo 1 | echo 2 | echo 3<CR>", "the hit-enter prompt", "<CR>"),
    ],
)
def test_where_neovim_goes_on_waiting_that_is_told_and_nothing_is_changed(
    child, opened, desk, *, keys, what, leave
):
    path = opened()
    desk.told("read", path)
    child.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    child.feed(keys)
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    assert f"Neovim waits for a key ({what})" in said
    child.type_keys(leave)
    assert text_of(child) == path.read_text() == TEXT
    change_fifty(desk, path)
    assert path.read_text() == CHANGED


def test_a_substitution_that_is_being_typed_and_previewed_is_no_obstacle(child, opened, desk):
    child.command("set inccommand=split")
    path = opened()
    child.feed(":%s/line 9/mine ")
    wait_until(lambda: child.mode() == "c" and "mine" in child.screen_text())
    change_fifty(desk, path)
    assert path.read_text() == CHANGED
    child.feed("<CR>")
    wait_until(lambda: child.mode() == "n")
    assert text_of(child) == CHANGED.replace("line 9", "mine ")
    child.type_keys("u")
    assert text_of(child) == CHANGED


def test_the_command_line_window_is_no_obstacle(child, opened, desk):
    path = opened()
    child.feed("q:")
    wait_until(lambda: child.lua("return vim.fn.getcmdwintype()") == ":")
    change_fifty(desk, path)
    assert path.read_text() == CHANGED
    child.feed("<C-c><C-c>")
    wait_until(lambda: child.lua("return vim.fn.getcmdwintype()") == "")
    settled(child)
    assert text_of(child) == CHANGED
    assert_undisturbed(child)


def test_big_u_is_a_change_of_the_last_changed_line_that_can_be_undone_too(child, opened, desk):
    path = opened()
    desk.told("read", path)
    child.type_keys("xx")
    change_fifty(desk, path)
    both = text_of(child)
    child.type_keys("U")
    assert text_of(child) == both.replace("fifty\n", FIFTY)
    child.type_keys("U")
    assert text_of(child) == both
    child.type_keys("uuu")
    assert text_of(child) == TEXT.replace("line 1\n", "ne 1\n", 1)


# --- races -------------------------------------------------------------------------------------------------------------


APPEND_BEFORE_WRITE = (
    "autocmd BufWritePre * lua local file = assert(io.open(vim.fn.expand('<afile>:p'), 'a'))"
    " file:write('by others\\n') file:close()"
)


def test_a_file_that_others_change_each_time_is_shown_as_they_left_it(child, opened, desk):
    path = opened()
    child.command("autocmd BufWritePost * let g:wrote = 1")
    child.command(APPEND_BEFORE_WRITE)
    said = desk.refusal("edit", path, edits=[{"old": "line 50\n", "new": "fifty\n"}])
    assert "keeps changing while you edit it" in said
    on_disk = path.read_text()
    assert on_disk.startswith(TEXT + "by others\n")
    wait_until(lambda: text_of(child) == on_disk, "the buffer shows the file")
    assert not is_modified(child)
    assert child.lua("return vim.g.wrote == nil")
    assert_undisturbed(child)


def test_what_others_write_before_neovim_hears_of_our_write_is_shown(child, opened, desk):
    path = opened()
    child.command("autocmd BufWritePre * call nvim_input(':echo 1 | echo 2 | echo 3<CR>')")
    told = desk.edit(path, "line 50\n", "fifty\n")
    assert told.startswith("Changed a.txt: +1 −1, now line 50.")
    wait_until(child.is_blocked, "Neovim sits in a prompt")
    others = TEXT.replace("line 50\n", "fifty\n") + "by others\n"
    path.write_text(others)
    child.feed("<CR>")
    wait_until(lambda: not child.is_blocked())
    wait_until(lambda: text_of(child) == others, "the buffer shows the file")
    assert not is_modified(child)
    child.command("checktime")
    assert not child.is_blocked()


def test_what_is_typed_while_the_write_waits_is_not_written(child, opened, desk):
    path = opened()
    child.lua("""
      vim.api.nvim_buf_attach(0, false, { on_lines = function()
        vim.api.nvim_input('c')
        return true
      end })
    """)
    desk.begin("edit", path, edits=[{"old": "line 50\n", "new": "fifty\n"}])
    wait_until(lambda: child.mode() == "no", "an operator waits")
    child.feed("lmine ")
    told = desk.end()
    assert told.startswith("Changed a.txt: +1 −1, now line 50.")
    changed = TEXT.replace("line 50\n", "fifty\n")
    assert path.read_text() == changed
    child.feed("<Esc>")
    wait_until(lambda: child.mode() == "n")
    assert text_of(child) == changed.replace("line 1\n", "mine ine 1\n", 1)
    assert is_modified(child)
    assert "hooks" not in told
    write_by_hand(child, path, text_of(child))


def test_a_buffer_that_a_hook_closes_leaves_the_file_alone(child, opened, desk):
    path = opened()
    child.command("autocmd BufWritePre * ++once bwipeout!")
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": "fifty\n"}])
    assert said == f"The buffer of {path} was closed in Neovim. Read the file again."
    assert path.read_text() == TEXT
    change_fifty(desk, path)
    assert path.read_text() == CHANGED


@pytest.fixture
def full_disk(project):
    with small_disk(project, "1m") as disk:
        yield disk


def test_a_full_disk_leaves_the_buffer_and_the_file_as_they_were(full_disk, child, opened, desk):
    path = opened()
    child.command("autocmd BufWritePost * let g:wrote = 1")
    (full_disk / "ballast").write_bytes(bytes(800 * 1024))
    new = "x" * 300 * 1024
    said = desk.refusal("edit", path, edits=[{"old": FIFTY, "new": new}])
    assert said == "a.txt cannot be written: the disk is full. Nothing was changed."
    wait_until(lambda: not is_modified(child))
    assert text_of(child) == path.read_text() == TEXT
    assert sorted(entry.name for entry in full_disk.iterdir()) == ["a.txt", "ballast"]
    assert child.lua("return vim.g.wrote == nil")
    assert_undisturbed(child)
    change_fifty(desk, path)
    assert path.read_text() == CHANGED


def test_a_host_that_dies_between_change_and_write_leaves_both_texts(child, opened, desk):
    path = opened()
    child.command(f"autocmd BufWritePre * ++once call system('kill -9 {desk.process.pid}')")
    desk.begin("edit", path, edits=[{"old": FIFTY, "new": "fifty\nand more\n"}])
    desk.process.wait(DEADLINE_S)
    assert (text_of(child), is_modified(child)) == (CHANGED, True)
    assert path.read_text() == TEXT
    child.type_keys("u")
    assert text_of(child) == TEXT
    child.type_keys("<C-r>")
    write_by_hand(child, path, CHANGED)
    assert_undisturbed(child)


# --- any edit of any file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_no_edit_in_a_buffer_changes_a_byte_outside_of_what_it_replaces(child, opened, desk, seed):
    chance = random.Random(f"edits in buffers {seed}")
    # As the file tools decode it: Neovim takes what is not UTF-8 for Latin-1 unless it is set otherwise.
    child.command("set nofixendofline fileformats=unix,dos,mac fileencodings=ucs-bom,utf-8,cp1252")
    made = 0
    for number in range(150):
        file = AnyFile(chance)
        if (asked := any_edit(file, chance)) is None:
            continue
        path = opened(f"{number}.txt", file.data)
        buf = child.lua("return vim.api.nvim_get_current_buf()")
        if child.lua("return vim.bo.fileencoding") == "cp1252" and text_of(child) != file.text:
            continue  # in an encoding that the file tools recognize, and Neovim does not
        edits = [msgspec.to_builtins(asked.replacement)]
        if asked.refusal:
            assert asked.refusal in desk.refusal("edit", path, edits=edits)
            assert path.read_bytes() == file.data
            continue
        if child.lua("return vim.bo.readonly"):  # Neovim could not read it as it is
            assert "is locked in Neovim" in desk.refusal("edit", path, edits=edits)
            continue
        made += 1
        desk.told("edit", path, edits=edits)
        settled(child, buf)
        assert asked.is_made_of(path.read_bytes()), (file.data, asked, path.read_bytes())
        edited = path.read_bytes()
        child.command("silent write!")
        assert path.read_bytes() == edited
        text = decode(edited).text
        # Neovim's undo does not bring 'endofline' back.
        if not text or text.endswith("\n") == file.text.endswith("\n"):
            child.command("silent undo | silent write")
            assert path.read_bytes() == file.data
    assert made > 50
    assert_undisturbed(child)


# --- everything at once ------------------------------------------------------------------------------------------------

LINES = 30


class Crowd:
    """Person, agent and other programs, each with every third line to change. What each line must hold in the end is known."""

    def __init__(self, child, path, desk, seed):
        self.child, self.path, self.desk = child, path, desk
        self.chance = random.Random(seed)
        self.count = 0
        self.held = [f"{n:02} {0:05}" for n in range(LINES)]

    def next_line(self, who):
        """A line of the one who is `who`, and what it becomes."""
        self.count += 1
        row = self.chance.randrange(who, LINES, 3)
        return row, f"{row:02} {self.count:05}"

    def person(self):
        row, new = self.next_line(0)
        self.child.feed(f"{row + 1}Gcc{new}<Esc>")
        self.held[row] = new

    def begin_agent(self):
        """The agent begins an edit; what to do when it has ended."""
        row, new = self.next_line(1)
        self.desk.begin(
            "edit", self.path, edits=[{"old": self.held[row] + "\n", "new": new + "\n"}]
        )

        def end():
            try:
                self.desk.end()
            except ToolError as error:
                if "is in the editor" not in str(error):
                    return
            self.held[row] = new

        return end

    def other(self):
        """Another program writes in place, again if somebody was quicker."""
        row, new = self.next_line(2)
        self.held[row] = new
        while self.path.read_text().split("\n")[row] != new:
            with self.path.open("r+b") as file:
                file.seek(row * (len(new) + 1))
                file.write(new.encode())
            # In the same tick of the kernel's clock as our write, and of the same size, nobody could tell it.
            os.utime(self.path, ns=(time.time_ns(),) * 2)

    def save(self):
        child = self.child
        wait_until(lambda: not child.is_blocked() and child.mode() == "n")
        child.command("checktime")
        child.feed(":silent write<CR>")
        wait_until(lambda: not child.is_blocked() and not is_modified(child), "it is saved")

    def step(self):
        kind = self.chance.choice(["nobody", "person", "others"])
        if kind == "others" and is_modified(self.child):
            self.save()
        end = self.begin_agent()
        for _ in range(self.chance.randrange(1, 4)):
            if kind == "person":
                self.person()
            elif kind == "others":
                self.other()
        end()
        if kind == "others":
            self.child.command("checktime")
            wait_until(lambda: self.path.read_text() == text_of(self.child), "the file is shown")
        elif self.chance.random() < 0.5:
            self.save()
            assert self.path.read_text() == text_of(self.child) == self.text
        assert not self.child.is_blocked()

    @property
    def text(self):
        return "".join(line + "\n" for line in self.held)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_together_nobodys_change_is_lost(child, opened, desk, seed):
    path = opened(data="".join(f"{n:02} {0:05}\n" for n in range(LINES)))
    crowd = Crowd(child, path, desk, seed)
    for _ in range(60):
        crowd.step()
    crowd.save()
    assert path.read_text() == text_of(child) == crowd.text
    assert child.messages().strip() == ""
