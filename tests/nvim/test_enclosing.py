"""The function around a line, which is sent when a question is about one line."""

import pytest
from tests.conftest import prove_rest
from tests.nvim.test_asking import server as server  # noqa: PLC0414 - a fixture
from tests.nvim.test_asking import told

LUA = """local M = {}

function M.first(a)
  local text = 'x'
  each(a, function(b)
    print(b)
  end)
end

M.second = function()
  return 2
end

local third = 3
return M
"""
C = """struct point {
  int x;
};

static int
sum(int a, int b)
{
  return a + b;
}
"""
CASES = {
    "in the body": ("a.lua", LUA, 4, (3, 8)),
    "on the first line": ("a.lua", LUA, 3, (3, 8)),
    "on the last line": ("a.lua", LUA, 8, (3, 8)),
    "in a nameless function": ("a.lua", LUA, 6, (3, 8)),
    "in an assigned function": ("a.lua", LUA, 11, (10, 12)),
    "outside": ("a.lua", LUA, 14, (14, 14)),
    "blank": ("a.lua", LUA, 9, (9, 9)),
    "a function of C": ("a.c", C, 8, (5, 9)),
    "the first line of a struct": ("a.c", C, 1, (1, 3)),
    "no grammar": ("a.unknown", LUA, 4, (4, 4)),
}


@pytest.mark.parametrize("case", prove_rest(CASES, is_one=True))
def test_a_line_stands_for_the_function_around_it(child, project, case):
    name, text, lnum, lines = CASES[case]
    (project / name).write_text(text)
    child.command(f"edit {name}")
    found = child.lua(f"return require('sanderling.code.enclosing').lines(0, {lnum})")
    assert tuple(found) == lines


SYMBOLS = """
vim.lsp.start({
  name = 'symbols',
  cmd = function()
    return {
      request = function(method, _, done)
        local function at(first, last)
          return { start = { line = first, character = 0 }, ['end'] = { line = last, character = 1 } }
        end
        done(nil, method == 'initialize'
          and { capabilities = { documentSymbolProvider = true } }
          or { { name = 'Slow', kind = 5, range = at(1, 9), selectionRange = at(1, 1), children = {
            { name = 'run', kind = 6, range = at(3, 6), selectionRange = at(3, 3) },
          } } })
        return true, 1
      end,
      notify = function() return true end,
      is_closing = function() return false end,
      terminate = function() end,
    }
  end,
})
"""


def test_without_a_grammar_the_symbols_of_a_language_server_say_it(child, project):
    (project / "a.unknown").write_text("line\n" * 12)
    child.command("edit a.unknown")
    child.lua(SYMBOLS)
    lines = "return require('sanderling.code.enclosing').lines(0, {})"
    assert child.lua(lines.format(5)) == [4, 7]
    assert child.lua(lines.format(2)) == [2, 10]
    assert child.lua(lines.format(9)) == [9, 9]


@pytest.mark.parametrize("command", prove_rest(["Agent explain", "4Agent explain", "Agent test"]))
def test_explain_and_test_send_the_function_around_a_line(start_claude, project, server, command):
    (project / "a.lua").write_text(LUA)
    child = start_claude()
    child.setup(answer="chat")
    child.command("edit a.lua")
    child.feed("4G")
    child.command(command)
    child.wait_for_turns()
    [lines] = [text for text in told(server) if text.startswith("a.lua:")]
    assert lines.startswith(
        "a.lua:3-8, as the editor showed it then:\n```lua\n3\tfunction M.first(a)\n"
    )


def test_fix_sends_the_function_around_the_report(start_claude, project, server):
    (project / "a.lua").write_text(LUA)
    child = start_claude()
    child.command("edit a.lua")
    child.lua(
        "vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0,"
        " { { lnum = 3, col = 0, message = 'no text' }, { lnum = 4, col = 0, message = 'other' } })"
    )
    child.feed("4G")
    child.command("Agent fix")
    child.wait_for_turns()
    assert any(text.startswith("a.lua:3-8, ") for text in told(server))
    [reports] = [text for text in told(server) if text.startswith("@diagnostics")]
    assert reports.startswith("@diagnostics, diagnostics of language servers and linters:")
    assert "no text" in reports
    assert "other" not in reports


@pytest.mark.parametrize("command", prove_rest(["/explain", "/fix", "/test"]))
def test_in_the_chat_a_command_without_words_is_about_the_function_at_the_cursor(
    start_claude, project, server, command
):
    (project / "a.lua").write_text(LUA)
    child = start_claude()
    child.command("edit a.lua")
    child.feed("4G")
    child.open_chat()
    child.feed(f"i{command}<Esc><CR>")
    child.wait_for_turns()
    assert any(text.startswith("a.lua:3-8, ") for text in told(server))


def test_in_the_chat_a_command_with_words_attaches_nothing(start_claude, project, server):
    (project / "a.lua").write_text(LUA)
    child = start_claude()
    child.command("edit a.lua")
    child.open_chat()
    child.feed("i/explain the build<Esc><CR>")
    child.wait_for_turns()
    assert not any(text.startswith("a.lua:") for text in told(server))
