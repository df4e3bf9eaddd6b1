"""`@symbol:name`: the names that are offered for it, and the lines that it attaches without a language server."""

import pytest
from tests.conftest import wait_until
from tests.nvim.test_mentions import ask, menu

LUA = """local M = {}

--- Count the birds.
function M.count_birds(flock)
  return #flock
end

local function one_line() return 1 end

local Cuckoo = function() end

return M
"""

SERVER = """
  _G.asked, _G.held = {}, {}
  local kinds = vim.lsp.protocol.SymbolKind
  local place = { start = { line = 0, character = 0 }, ['end'] = { line = 0, character = 4 } }
  local function symbols(names)
    return vim.tbl_map(function(name)
      local uri = vim.uri_from_fname(vim.fn.getcwd() .. '/far.txt')
      return { name = name, kind = kinds.Function, location = { uri = uri, range = place } }
    end, names)
  end
  vim.lsp.start({
    name = 'birds',
    cmd = function()
      return {
        request = function(method, params, callback)
          if method == 'initialize' then
            callback(nil, { capabilities = { documentSymbolProvider = true, workspaceSymbolProvider = true } })
          elseif method == 'textDocument/documentSymbol' then
            callback(nil, { {
              name = 'Nest', kind = kinds.Class, range = place, selectionRange = place,
              children = { { name = 'hatch(eggs)', kind = kinds.Method, range = place, selectionRange = place } },
            } })
          elseif method == 'workspace/symbol' then
            table.insert(_G.asked, params.query)
            table.insert(_G.held, function() callback(nil, symbols({ 'fledge', 'flap_wings', 'a b' })) end)
          end
          return true, 1
        end,
        notify = function() return true end,
        is_closing = function() return false end,
        terminate = function() end,
      }
    end,
  })
"""


@pytest.fixture
def birds(child, project):
    (project / "birds.lua").write_text(LUA)
    child.command("edit birds.lua")
    child.open_chat()
    return child


def type_again(child, text):
    child.feed(f"<Esc>ggVGc{text}")


def test_the_names_of_an_open_file_are_offered_by_its_grammar(birds):
    type_again(birds, "@symbol:")
    wait_until(lambda: menu(birds) == ["@symbol:count_birds", "@symbol:one_line", "@symbol:Cuckoo"])
    birds.feed("cub")
    wait_until(lambda: menu(birds) == ["@symbol:count_birds"])
    birds.feed("<Tab>")
    wait_until(lambda: birds.prompt_lines() == ["@symbol:count_birds"])


def test_a_name_that_is_typed_later_is_offered_in_its_new_form(birds):
    type_again(birds, "@symbol:one")
    wait_until(lambda: menu(birds) == ["@symbol:one_line"])
    birds.lua("""
      vim.api.nvim_buf_set_lines(vim.fn.bufnr('birds.lua'), 7, 8, true, { 'local function one_nest() end' })
    """)
    type_again(birds, "@symbol:one")
    wait_until(lambda: menu(birds) == ["@symbol:one_nest"])


def test_a_language_server_offers_its_names_when_they_arrive_and_no_key_waits_for_them(
    child, project
):
    (project / "near.txt").write_text("near\n")
    child.command("edit near.txt")
    child.lua(SERVER)
    child.open_chat()
    child.feed("i@symbol:")
    wait_until(lambda: menu(child) == ["@symbol:Nest", "@symbol:hatch"])
    child.feed("fl")
    wait_until(lambda: child.prompt_lines() == ["@symbol:fl"])
    wait_until(lambda: child.lua("return #_G.held") == 1)
    assert menu(child) == []
    child.feed("e")
    wait_until(lambda: child.prompt_lines() == ["@symbol:fle"])
    child.lua("table.remove(_G.held)()")
    wait_until(lambda: menu(child) == ["@symbol:fledge"])
    wait_until(lambda: child.lua("return _G.asked[2]") == "fle")


def test_a_menu_that_was_closed_does_not_come_back_with_late_names(child, project):
    (project / "near.txt").write_text("near\n")
    child.command("edit near.txt")
    child.lua(SERVER)
    child.open_chat()
    child.feed("i@symbol:h")
    wait_until(lambda: menu(child) == ["@symbol:hatch"])
    child.feed("<C-e>")
    wait_until(lambda: menu(child) == [])
    child.lua("table.remove(_G.held)()")
    child.feed("a")
    wait_until(lambda: child.prompt_lines() == ["@symbol:ha"])
    assert menu(child) == []


@pytest.mark.parametrize(
    "name, lines",
    [
        (
            "count_birds",
            (
                "birds.lua:4-6, current editor text:\n```lua\n"
                "4\tfunction M.count_birds(flock)\n5\t  return #flock\n6\tend\n```"
            ),
        ),
        (
            "one_line",
            "birds.lua:8, current editor text:\n```lua\n8\tlocal function one_line() return 1 end\n```",
        ),
    ],
)
def test_a_name_brings_the_lines_that_an_open_file_declares(
    start_claude, server, project, name, lines
):
    (project / "birds.lua").write_text(LUA)
    child = start_claude()
    child.command("edit birds.lua")
    assert ask(child, server, f"what does @symbol:{name} do?")[0] == lines
