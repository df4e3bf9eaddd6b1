"""Files and other buffers that are opened in the chat's windows: they move to a code window."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.conftest import filetypes

CHAT = ["sanderling", "sanderling_prompt"]
WHERE = """
  local name = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(0), ':t')
  return { name, vim.fn.line('.'), vim.bo.filetype }
"""


@pytest.fixture
def files(project):
    for name in ("code.txt", "other.txt", "third.txt"):
        (project / name).write_text("".join(f"{name} {n}\n" for n in range(1, 101)))
    return project


@pytest.fixture
def chat(files, start_chat):  # noqa: ARG001 - the files are in the project
    child = start_chat()
    child.command("wincmd h | edit code.txt | 20 | wincmd l")
    child.in_a_turn("\n".join(f"line {n}" for n in range(1, 101)))
    return child


def where(child):
    return child.lua(WHERE)[:2]


def windows(child):
    """The names of the files in the windows of the tab page; the chat's windows by their filetypes."""
    return child.lua("""
      return vim.tbl_map(function(win)
        local buf = vim.api.nvim_win_get_buf(win)
        local filetype = vim.bo[buf].filetype
        return vim.startswith(filetype, 'sanderling') and filetype
          or vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ':t')
      end, vim.api.nvim_tabpage_list_wins(0))
    """)


def enter(child, filetype):
    child.lua(
        """
        for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
          if vim.bo[vim.api.nvim_win_get_buf(win)].filetype == ... then
            vim.api.nvim_set_current_win(win)
          end
        end
        """,
        filetype,
    )


OPENERS = {
    ":edit": (":edit other.txt<CR>", ["other.txt", 1]),
    ":edit +N": (":edit +42 other.txt<CR>", ["other.txt", 42]),
    ":edit #": (":edit #<CR>", ["code.txt", 20]),
    ":buffer": (":buffer other.txt<CR>", ["other.txt", 1]),
    "nvim_win_set_buf": (
        (
            ":lua vim.api.nvim_win_set_buf(0, vim.fn.bufadd('other.txt'))"
            " vim.api.nvim_win_set_cursor(0, { 7, 0 })<CR>"
        ),
        ["other.txt", 7],
    ),
    "a jump in the file that is shown": (
        (
            ":lua local win = vim.api.nvim_get_current_win()"
            " vim.api.nvim_win_set_buf(win, vim.fn.bufnr('code.txt'))"
            " vim.api.nvim_win_set_cursor(win, { 1, 0 })<CR>"
        ),
        ["code.txt", 1],
    ),
    ":enew": (":enew<CR>", ["", 1]),
}


@pytest.mark.parametrize("filetype", CHAT)
@pytest.mark.parametrize("opener", list(OPENERS))
def test_a_buffer_that_is_opened_in_a_window_of_the_chat_moves_to_the_code_window(
    chat, filetype, opener
):
    keys, expected = OPENERS[opener]
    chat.command("silent badd other.txt")
    enter(chat, filetype)
    chat.feed(keys)
    wait_until(lambda: where(chat) == expected, opener)
    assert windows(chat) == [expected[0], *CHAT]
    assert not chat.messages().count("E1513")


def test_the_screen_never_shows_the_file_in_the_chat(chat):
    enter(chat, "sanderling")
    chat.screen_text()
    drawn = chat.lua("""
      _G.drawn = {}
      local ns = vim.api.nvim_create_namespace('')
      vim.api.nvim_set_decoration_provider(ns, { on_win = function(_, win, buf)
        table.insert(_G.drawn, { win, vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buf), ':t') })
      end })
      return require('sanderling').transcript().win
    """)
    chat.feed(":edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    chat.wait_for_screen("other.txt 1")
    shown = chat.lua("return _G.drawn")
    assert [name for win, name in shown if win == drawn and name == "other.txt"] == []


def test_the_chat_keeps_its_view_its_options_and_its_sizes(chat):
    enter(chat, "sanderling")
    chat.feed("30Gzt5j")
    state = "[winsaveview(), winwidth(0), winheight(0), &l:wrap, &l:winfixwidth, &l:winbar, &l:foldcolumn, &l:statusline]"
    wait_until(lambda: chat.in_transcript("line('.')") == 35)
    before = chat.in_transcript(state)
    chat.feed(":edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    assert chat.in_transcript(state) == before
    options = "return { vim.wo.winbar, vim.wo.winfixwidth, vim.wo.foldcolumn, vim.wo.statusline == vim.go.statusline }"
    assert chat.lua(options) == ["", False, "0", True]


def test_the_transcript_still_follows_the_text(chat):
    enter(chat, "sanderling")
    chat.feed("G:edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    chat.send({"type": "text_delta", "block_id": 1, "text": "\n\nmore\n\nthe end"})
    chat.wait_for_screen("the end")


def test_jumps_and_the_alternate_file_are_those_of_a_file_opened_there(chat):
    enter(chat, "sanderling")
    chat.feed(":edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    assert chat.lua("return vim.fn.bufname('#')") == "code.txt"
    chat.feed("<C-o>")
    wait_until(lambda: where(chat) == ["code.txt", 20])
    chat.feed("<C-i>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    jumps = chat.in_transcript("map(getjumplist()[0], 'bufname(v:val.bufnr)')")
    assert "other.txt" not in jumps


def test_without_a_code_window_the_file_opens_in_a_split_next_to_the_chat(chat):
    chat.command("wincmd t | quit")
    enter(chat, "sanderling")
    chat.feed(":edit +5 other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 5])
    assert windows(chat) == ["other.txt", *CHAT]
    options = "return { vim.wo.winbar, vim.wo.winfixwidth, vim.wo.foldcolumn, vim.wo.statusline == vim.go.statusline }"
    assert chat.lua(options) == ["", False, "0", True]
    width = chat.lua("return vim.api.nvim_win_get_width(require('sanderling').transcript().win)")
    assert width < 70
    assert chat.lua("return #vim.fn.getbufinfo({ buflisted = 1 })") == 2


def test_unsaved_text_that_its_window_must_keep_stays_there(chat):
    chat.command("set nohidden | wincmd t")
    chat.feed("onew<Esc>")
    wait_until(lambda: chat.lua("return vim.bo.modified"))
    enter(chat, "sanderling_prompt")
    chat.feed(":edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    assert sorted(windows(chat)) == sorted(["code.txt", "other.txt", *CHAT])
    assert chat.lines("code.txt")[20] == "new"


@pytest.mark.parametrize("keys", [":quit<CR>", ":close<CR>"])
def test_the_windows_still_close_together(chat, keys):
    enter(chat, "sanderling_prompt")
    chat.feed(":edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    enter(chat, "sanderling")
    chat.feed(keys)
    wait_until(lambda: windows(chat) == ["other.txt"])


def test_the_buffer_of_another_session_shows_that_session(chat):
    first = chat.lua("return require('sanderling').transcript().buf")
    chat.command("AgentNew")
    second = chat.lua("return require('sanderling').transcript().buf")
    assert first != second
    chat.feed(f":buffer {first}<CR>")
    wait_until(lambda: chat.lua("return require('sanderling').transcript().buf") == first)
    assert windows(chat) == ["code.txt", *CHAT]
    assert chat.lua("return #vim.b.sanderling_session") > 0


@pytest.mark.usefixtures("files")
def test_the_window_of_a_chat_in_the_current_window_takes_files(start_screen):
    child = start_screen()
    child.lua("require('sanderling').chat({ position = 'current' })")
    enter(child, "sanderling_prompt")
    child.feed(":edit other.txt<CR>")
    wait_until(lambda: where(child) == ["other.txt", 1])


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "position", prove_rest(["left", "bottom", "top", "float", "tab"], keep=(0, 3))
)
def test_a_file_opens_outside_the_chat_wherever_that_is(start_screen, position):
    child = start_screen()
    child.command("edit code.txt")
    child.lua("require('sanderling').chat({ position = ... })", position)
    child.feed(":edit +3 other.txt<CR>")
    wait_until(lambda: where(child) == ["other.txt", 3])
    expected = {"float": ["other.txt"]}.get(position)
    assert sorted(windows(child)) == sorted(expected or ["other.txt", *CHAT])


def test_a_file_opened_from_insert_mode_moves_too(chat):
    enter(chat, "sanderling_prompt")
    chat.feed("ihalf typed<Cmd>edit other.txt<CR>")
    wait_until(lambda: where(chat) == ["other.txt", 1])
    assert windows(chat) == ["other.txt", *CHAT]
    assert chat.prompt_lines() == ["half typed"]


def test_help_opens_in_a_window_of_its_own(chat):
    enter(chat, "sanderling_prompt")
    chat.feed(":help sanderling<CR>")
    wait_until(lambda: "help" in filetypes(chat))
    assert [name for name in filetypes(chat) if name.startswith("sanderling")] == CHAT


def test_a_plugin_that_deletes_the_buffer_of_its_window_closes_the_chat(chat):
    enter(chat, "sanderling_prompt")
    chat.lua("""
      local buf = vim.api.nvim_get_current_buf()
      vim.api.nvim_win_set_buf(0, vim.fn.bufnr('code.txt'))
      vim.api.nvim_buf_delete(buf, { force = true })
    """)
    wait_until(lambda: set(windows(chat)) == {"code.txt"})
