"""edgy.nvim, which gives the chat's windows their places and sizes."""

import pytest

from tests.conftest import wait_until
from tests.nvim.conftest import filetypes
from tests.plugins.setups import EDGY

CHAT = ["sanderling", "sanderling_prompt"]
WIDTH = 48  # 0.4 of 120 columns
WIDTHS = """
return vim.iter(vim.api.nvim_tabpage_list_wins(0)):filter(function(win)
  return vim.bo[vim.api.nvim_win_get_buf(win)].filetype:find('^sanderling') ~= nil
end):map(vim.api.nvim_win_get_width):totable()
"""


@pytest.fixture
def edgy(start, project):
    (project / "a.lua").write_text("x = 1\n")
    child = start(["edgy.nvim"], EDGY)
    child.command("silent edit a.lua | AgentChat")
    wait_until(lambda: child.lua(WIDTHS) == [WIDTH, WIDTH], "edgy has given it its size")
    return child


def test_the_chat_is_an_edgebar_whatever_else_opens_and_closes(edgy):
    edgy.command("copen")
    wait_until(lambda: filetypes(edgy) == ["lua", "qf", *CHAT])
    edgy.command("cclose | wincmd t | split")
    wait_until(lambda: filetypes(edgy) == ["lua", "lua", *CHAT])
    wait_until(lambda: edgy.lua(WIDTHS) == [WIDTH, WIDTH])
    edgy.command("close | AgentNew")
    wait_until(lambda: filetypes(edgy) == ["lua", *CHAT])
    wait_until(lambda: edgy.lua(WIDTHS) == [WIDTH, WIDTH])


def test_the_chat_hides_and_comes_back_in_its_place(edgy):
    for keys in (":AgentChat<CR>", "<C-w>b<C-w>kq", "<C-w>b:quit<CR>"):
        edgy.feed(keys)
        wait_until(lambda: filetypes(edgy) == ["lua"])
        edgy.command("AgentChat")
        wait_until(lambda: edgy.lua(WIDTHS) == [WIDTH, WIDTH])
        assert filetypes(edgy) == ["lua", *CHAT]
    assert edgy.messages().strip() == ""


def test_a_chat_in_each_tab_page_is_an_edgebar_there(edgy):
    edgy.command("tabnew | AgentChat")
    wait_until(lambda: edgy.lua(WIDTHS) == [WIDTH, WIDTH])
    edgy.command(
        "wincmd t | tabclose"
    )  # from an edgebar of two windows, edgy itself breaks it on Neovim 0.12 (E445)
    wait_until(lambda: filetypes(edgy) == ["lua", *CHAT])
    assert edgy.messages().strip() == ""
