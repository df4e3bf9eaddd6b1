"""What language servers know of code, as tools of the model: real servers, and such as real ones are on a bad day."""

import shutil
import sys

import pytest
from tests.conftest import ROOT, prove_rest, prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, reply, use

pytestmark = prove_unless_quick

SCRIPTED = [sys.executable, str(ROOT / "tests" / "code_server.py")]
NODE = ROOT / "tests" / "peers" / "node_modules" / ".bin"


def nav(op, symbol="", **where):
    return use("code_nav", op=op, symbol=symbol, **where)


def refactor(op, path, **what):
    return use("code_refactor", op=op, path=path, **what)


def program(name):
    """The program of a language server; skips where it is not installed."""
    places = (ROOT / ".venv" / "bin" / name, NODE / name)
    found = next((str(each) for each in places if each.exists()), None) or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def warm(agent):
    """Wait until the server of the current buffer has read it: the first answer of one takes seconds on a slow machine."""
    ask = """
      local params = { textDocument = vim.lsp.util.make_text_document_params() }
      local answers = vim.lsp.buf_request_sync(0, 'textDocument/documentSymbol', params, 20000) or {}
      for _, client in ipairs(vim.lsp.get_clients({ bufnr = 0 })) do
        if next(client.progress.pending) then
          return false
        end
      end
      if #vim.diagnostic.get(0) > 0 then
        return true
      end
      return vim.iter(vim.tbl_values(answers)):any(function(answer) return #(answer.result or {}) > 0 end)
    """
    wait_until(lambda: agent.lua(ask), "the server has read the file", 60)


def start(agent, project, name, command, filetypes=None):
    """Start a language server for the current buffer, as a person's configuration does."""
    agent.lua(
        """
        local name, command, root, filetypes = ...
        vim.lsp.start(
          { name = name, cmd = command, root_dir = root, filetypes = filetypes ~= vim.NIL and filetypes or nil },
          { bufnr = 0 }
        )
        """,
        name,
        command,
        str(project),
        filetypes,
    )
    ready = "return #vim.tbl_filter(function(c) return c.initialized end, vim.lsp.get_clients({ bufnr = 0, name = ... }))"
    wait_until(lambda: agent.lua(ready, name), f"{name} has the buffer")


@pytest.fixture
def coding(start_agent, project):
    """An agent whose model makes these calls, one after the other, in a Neovim that shows a file which a server has."""

    def begin(files, *uses, shown, style="plain", server=None, mode="auto", before=None, **options):
        for path, text in files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        agent = start_agent(*(reply(each) for each in uses), DONE, **options)
        agent.command(f"edit {shown}")
        if server:
            start(agent, project, server, [program(SERVERS[server][0]), *SERVERS[server][1:]])
            warm(agent)
        elif style:
            start(agent, project, "scripted", [*SCRIPTED, style])
        if before:
            before(agent)
        agent.command(f"AgentMode {mode}")
        agent.ask()
        if mode != "ask":
            wait_until(lambda: agent.events("AgentTurnEnded"), "the turn ends", 60)
        return agent

    return begin


SERVERS = {
    "basedpyright": ["basedpyright-langserver", "--stdio"],
    "ruff": ["ruff", "server"],
    "clangd": ["clangd"],
    "typescript": ["typescript-language-server", "--stdio"],
    "bash": ["bash-language-server", "start"],
}

RENAME = refactor("rename", "a.txt", symbol="one.name", line=3, to="title")

# --- where things are --------------------------------------------------------------------------------------------------

TEXTS = {
    "a.txt": "def one.name\ndef two.name\nuse one.name\nuse one.name two.name\n",
    "b.txt": "\t😀 one.name ä two.name one.name\n",
}


def test_a_symbol_is_found_by_its_name_its_line_and_what_stands_around_it(coding):
    agent = coding(
        TEXTS,
        nav("references", "one/name"),
        nav("definition", "name", path="a.txt", line=3),
        nav("definition", "two.name", path="b.txt", line=1),
        nav("hover", "one", path="b.txt", line=1),
        nav("symbols", "name"),
        nav("outline", path="b.txt"),
        nav("references", "one.name", within="b.txt"),
        shown="a.txt",
    )
    references, by_line, by_text, hover, symbols, outline, within = agent.results()
    assert references == (
        "5 references in 2 files (scripted):\na.txt:1: def one.name\na.txt:3: use one.name\na.txt:4: use one.name two.name\n"
        "b.txt:1: 😀 one.name ä two.name one.name (x2)"
    )
    assert by_line == "1 definition (scripted):\na.txt:1: def one.name"
    assert by_text == "1 definition (scripted):\na.txt:2: def two.name"
    assert hover.startswith("```text\nhover of one")
    assert symbols.splitlines()[1:] == [
        "a.txt:1: def one.name  [function one.name]",
        "a.txt:2: def two.name  [function two.name]",
    ]
    assert outline == "scripted knows no symbols there."
    assert within.splitlines()[0] == "2 references (scripted):"


def test_what_could_be_several_is_told_with_its_lines_and_nothing_is_done(coding):
    agent = coding(
        TEXTS,
        nav("references", "name"),
        nav("references", "name", path="a.txt", line=4),
        nav("references", "name", path="a.txt", line=9),
        refactor("rename", "a.txt", symbol="name", line=4, to="title"),
        nav("references", "nobody"),
        shown="a.txt",
    )
    anywhere, on_line, off_line, rename, unknown = agent.results()
    assert "name is ambiguous" in anywhere
    assert anywhere.endswith("a.txt:1: def one.name\na.txt:2: def two.name")
    assert "different meanings" in on_line
    assert on_line.endswith("a.txt:4: use one.name two.name")
    assert "is not on line 9" in off_line
    assert off_line.count("\na.txt:") == 4
    assert "different meanings" in rename
    assert "know no symbol nobody" in unknown


@pytest.mark.parametrize("style", ["plain", "utf8"])
def test_columns_are_right_behind_emoji_and_tabs(coding, project, style):
    coding(
        TEXTS,
        nav("hover", "two.name", path="b.txt", line=1),
        refactor("rename", "b.txt", symbol="two.name", line=1, to="título"),
        shown="a.txt",
        style=style,
    )
    assert (project / "b.txt").read_text() == "\t😀 one.name ä two.título one.name\n"
    assert (project / "a.txt").read_text().splitlines()[1] == "def two.título"


def test_five_thousand_references_are_a_hundred_rows_and_then_counts(coding):
    files = {f"many/{n:03}.txt": "a\n" * 20 for n in range(250)}
    agent = coding(
        TEXTS | files, nav("references", "one.name", path="a.txt"), shown="a.txt", style="many"
    )
    (result,) = agent.results()
    assert result.startswith("5,000 references in 250 files (scripted):")
    assert sum(":1: a" in line or line.endswith(": a") for line in result.splitlines()) == 100
    assert "many/005.txt: 20" in result
    assert result.endswith("… and 195 more files")
    assert len(result.encode()) < 10_000


def test_unsaved_text_counts(coding):
    agent = coding(
        TEXTS,
        nav("references", "fresh"),
        shown="a.txt",
        before=lambda agent: agent.feed("ggOdef fresh<Esc>"),
    )
    assert agent.results() == ["1 reference (scripted):\na.txt:1: def fresh"]


@quick
@pytest.mark.parametrize(
    "line, symbol, cols",
    prove_rest(
        [
            ('local path = "path" -- path', "path", [6]),
            ("local is_path = path.path", "path", [16, 21]),
            ("local is_path = path.path", "path.path", [21]),
            ("local 😀 = path", "path", []),
        ]
    ),
)
def test_a_name_is_where_the_grammar_has_it_not_in_texts_and_comments(child, line, symbol, cols):
    find = """
      local line, symbol = ...
      local names = require('sanderling.code.names')
      vim.bo.filetype = 'lua'
      vim.api.nvim_buf_set_lines(0, 0, -1, true, { line })
      return names.of_grammar(0, 0, names.in_line(line, symbol), names.last(symbol))
    """
    found = child.lua(find, line, symbol)
    assert found == (cols or [line.encode().index(b"path")])


@quick
@pytest.mark.parametrize(
    "symbol, parts",
    prove_rest(
        [
            ("Parser/parse", ["Parser", "parse"]),
            ("a::b->c", ["a", "b", "c"]),
            ("(*Server).Close", ["Server", "Close"]),
            ("parse(int, char)", ["parse"]),
            ("Map<K, V>.get", ["Map", "get"]),
            ("my-func", ["my-func"]),
            ("größe", ["größe"]),
        ]
    ),
)
def test_a_symbol_has_the_parts_of_its_name(child, symbol, parts):
    assert child.lua("return require('sanderling.code.names').parts(...)", symbol) == parts


# --- servers on a bad day ----------------------------------------------------------------------------------------------


def test_a_server_that_indexes_is_never_taken_to_know_nothing(coding):
    agent = coding(
        TEXTS,
        nav("references", "one.name", path="a.txt", line=3),
        nav("symbols", "one"),
        refactor("rename", "a.txt", symbol="one.name", to="x"),
        shown="a.txt",
        style="indexing",
    )
    for result in agent.results():
        assert result.startswith("scripted is still at work (indexing 42 %)")


@pytest.mark.parametrize(
    "style, words",
    [
        ("mute", "The language server scripted did not answer within 7 s. Use grep."),
        ("dying", "The language server scripted exited during the request. Use grep."),
        (
            "invalid",
            "The answer is not in the protocol: Expected `int`, got `float` - at `$.files[0].rows[0]`.",
        ),
        ("slow", "1 definition (scripted):\na.txt:1: def one.name"),
    ],
)
def test_a_server_that_is_not_well_is_told_of(coding, style, words):
    agent = coding(
        TEXTS, nav("definition", "one.name", path="a.txt", line=3), shown="a.txt", style=style
    )
    assert agent.results() == [words]


def test_without_a_server_that_is_said(coding):
    agent = coding(
        TEXTS,
        nav("definition", "one.name", path="a.txt"),
        nav("definition", "one.name"),
        nav("hover", "one.name", path="b.txt"),
        refactor("rename", "a.txt", symbol="one.name", to="x"),
        use("diagnostics"),
        shown="a.txt",
        style=None,
    )
    for result in agent.results():
        assert "o language server" in result


# --- files that nobody has open ----------------------------------------------------------------------------------------

HOSTILE = "one.name\n# vim: set tabstop=3 filetype=lua:\n"


def test_a_file_is_loaded_unseen_and_runs_nothing(coding):
    def note(agent):
        agent.lua(
            """
            _G.ran = {}
            for _, event in ipairs({ 'BufReadPre', 'BufReadPost', 'FileType', 'BufEnter', 'BufNew', 'BufAdd', 'SwapExists', 'LspAttach' }) do
              vim.api.nvim_create_autocmd(event, { pattern = '*b.txt', callback = function() table.insert(_G.ran, event) end })
            end
            vim.o.modeline = true
            vim.o.swapfile = true
            """
        )

    agent = coding(
        TEXTS | {"b.txt": HOSTILE},
        nav("definition", "one.name", path="b.txt", line=1),
        shown="a.txt",
        before=note,
    )
    assert agent.results() == ["1 definition (scripted):\na.txt:1: def one.name"]
    assert agent.lua("return _G.ran") == []
    hidden = agent.lua(
        "local b = vim.fn.bufnr('b.txt') return { vim.bo[b].tabstop, vim.bo[b].filetype, vim.bo[b].buflisted, vim.bo[b].swapfile }"
    )
    assert hidden == [8, "text", False, False]
    # whoever opens it gets it in the usual way
    agent.command("edit b.txt")
    wait_until(lambda: agent.lua("return vim.bo.tabstop") == 3, "the modeline counts now")
    assert "BufReadPost" in agent.lua("return _G.ran")
    assert agent.lua("return { vim.bo.buflisted, vim.bo.modified, vim.bo.filetype }") == [
        True,
        False,
        "lua",
    ]


def test_an_edit_of_such_a_file_is_made_on_the_disk_and_seen_by_the_server(coding):
    agent = coding(
        TEXTS,
        nav("hover", "one", path="b.txt", line=1),
        use("bash", command="echo 'def three' > b.txt"),
        nav("definition", "three", path="b.txt", line=1),
        nav("references", "three"),
        shown="a.txt",
    )
    assert agent.results()[2] == "1 definition (scripted):\nb.txt:1: def three"
    assert agent.results()[3] == "1 reference (scripted):\nb.txt:1: def three"
    agent.command("set undofile | edit b.txt")
    assert agent.lines() == ["def three"]
    assert agent.lua("return { vim.bo.buflisted, vim.bo.filetype }") == [True, "text"]


def test_a_list_that_names_such_a_file_goes_on_to_name_it(coding):
    agent = coding(
        TEXTS,
        nav("hover", "one", path="b.txt", line=1),
        shown="a.txt",
        before=lambda agent: agent.command("vimgrep /two/j b.txt"),
    )
    assert agent.lua("return vim.b[vim.fn.bufnr('b.txt')].sanderling_hidden") is True
    agent.lua("require('sanderling.editing.hidden').drop_all()")
    assert agent.lua("return vim.fn.bufloaded('b.txt')") == 0
    agent.command("cfirst")
    assert agent.lua("return vim.fn.expand('%:t')") == "b.txt"
    assert agent.lua("return { vim.bo.filetype, vim.bo.modeline, vim.bo.swapfile }") == [
        "text",
        agent.lua("return vim.go.modeline"),
        agent.lua("return vim.go.swapfile"),
    ]


def test_a_linter_is_not_told_of_a_file_that_nobody_has_opened(coding, project):
    agent = coding(
        TEXTS,
        nav("hover", "one", path="b.txt", line=1),
        shown="a.txt",
        before=lambda agent: start(agent, project, "linter", [*SCRIPTED, "linter"]),
    )
    told = "return vim.tbl_map(function(c) return c.name end, vim.lsp.get_clients({ bufnr = vim.fn.bufnr(...) }))"
    assert agent.lua(told, "b.txt") == ["scripted"]
    assert sorted(agent.lua(told, "a.txt")) == ["linter", "scripted"]


def test_no_server_starts_for_a_file_of_another_language(coding):
    agent = coding(
        TEXTS | {"c.py": "x = 1\n"},
        nav("definition", "x", path="c.py"),
        shown="a.txt",
        before=lambda agent: agent.lua(
            "vim.lsp.config('other', { cmd = { 'false' }, filetypes = { 'python' } }) vim.lsp.enable('other')"
        ),
    )
    assert agent.results()[0].startswith("No language server in the editor has c.py. Use grep.")
    assert agent.lua("return #vim.lsp.get_clients({ name = 'other', _uninitialized = true })") == 0


@quick
def test_what_a_rule_keeps_is_neither_loaded_nor_told(coding):
    agent = coding(
        TEXTS | {"kept.txt": "one.name\n"},
        nav("references", "one.name"),
        nav("hover", "one.name", path="kept.txt", line=1),
        nav("definition", "root", path="/etc/passwd"),
        shown="a.txt",
        setup={"permissions": [{"action": "deny", "tool": "read", "path": "kept.txt"}]},
    )
    references, denied, outside = agent.results()
    assert "kept" not in references
    assert "A rule forbids this" in denied
    assert "is not in the project" in outside
    assert agent.lua("return vim.fn.bufexists('kept.txt')") == 0


# --- changes -----------------------------------------------------------------------------------------------------------


@quick
def test_a_rename_is_saved_reviewed_and_undone_with_agent_undo(coding, project):
    agent = coding(TEXTS, RENAME, shown="a.txt")
    assert agent.results()[0].startswith("Done, in 2 files:\na.txt: +3 −3\nb.txt: +1 −1")
    assert (project / "a.txt").read_text() == TEXTS["a.txt"].replace("one.name", "one.title")
    assert (project / "b.txt").read_text() == TEXTS["b.txt"].replace("one.name", "one.title")
    assert agent.lua("return vim.bo[vim.fn.bufnr('a.txt')].modified") is False
    agent.command("AgentUndo")
    wait_until(lambda: (project / "b.txt").read_text() == TEXTS["b.txt"], "it is taken back")
    wait_until(lambda: (project / "a.txt").read_text() == TEXTS["a.txt"], "it is taken back")


@pytest.mark.parametrize(
    "options, words",
    [
        pytest.param({"mode": "plan", "style": "dying"}, "plan mode", marks=quick),
        (
            {"setup": {"permissions": [{"action": "deny", "tool": "edit", "path": "b.txt"}]}},
            "A rule forbids this: deny edit b.txt",
        ),
        ({"style": "greedy"}, "outside.txt, which you may not change"),
        ({"style": "stale"}, "scripted has an outdated text of b.txt"),
    ],
    ids=["plan mode", "a rule for one of the files", "outside of the project", "outdated text"],
)
def test_a_change_that_must_not_be_is_made_in_no_file(coding, project, options, words):
    (project.parent / "outside.txt").write_text("one.name\n")
    agent = coding(TEXTS, RENAME, shown="a.txt", **options)
    assert words in agent.results()[0]
    assert {name: (project / name).read_text() for name in TEXTS} == TEXTS


def test_the_person_is_asked_about_all_of_it_at_once(coding, project):
    agent = coding(
        TEXTS,
        RENAME,
        shown="a.txt",
        mode="ask",
    )
    screen = agent.wait_for_question()
    assert "rename one.name" in screen
    agent.command("AgentAllow")
    agent.wait_for_turns()
    assert (project / "b.txt").read_text() == TEXTS["b.txt"].replace("one.name", "one.title")
    assert len(agent.events("AgentApprovalRequested")) == 1


def test_actions_are_listed_and_done_but_no_commands(coding, project):
    agent = coding(
        TEXTS,
        refactor("action", "a.txt", line=3),
        refactor("action", "a.txt", line=3, symbol="one.name", to="Fix it"),
        refactor("action", "a.txt", line=3, to="Nothing like it"),
        shown="a.txt",
    )
    listed, done, unknown = agent.results()
    assert listed.endswith("- Fix it")
    assert done.startswith("Done, in 1 file:\na.txt: +1 −1")
    assert (project / "a.txt").read_text().splitlines()[2] == "use one.fixed name"
    assert unknown == 'No action "Nothing like it" there. Available: Fix it'


def test_an_action_that_is_a_command_is_refused(coding):
    agent = coding(
        TEXTS, refactor("action", "a.txt", line=3, to="Run it"), shown="a.txt", style="command"
    )
    assert "runs the command run.it in the server" in agent.results()[0]


def test_a_file_moves_with_its_mode_and_its_window(coding, project):
    def make_program(_):
        (project / "a.txt").chmod(0o755)

    agent = coding(
        TEXTS,
        refactor("move_file", "a.txt", to="sub/c.txt"),
        refactor("move_file", "b.txt", to="sub/c.txt"),
        shown="a.txt",
        before=make_program,
    )
    moved, refused = agent.results()
    assert "a.txt is now sub/c.txt" in moved
    assert "already exists" in refused
    assert not (project / "a.txt").exists()
    assert (project / "sub/c.txt").read_text() == TEXTS["a.txt"]
    assert (project / "sub/c.txt").stat().st_mode & 0o777 == 0o755
    wait_until(lambda: agent.lua("return vim.fn.bufwinid('sub/c.txt')") > 0, "its window shows it")
    agent.command("AgentUndo")
    wait_until((project / "a.txt").exists, "it is back")
    wait_until(lambda: not (project / "sub/c.txt").exists(), "and not there any more")
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o755


# --- real servers ------------------------------------------------------------------------------------------------------

PYTHON = {
    "shop/base.py": "class Shape:\n    def area(self) -> float:\n        raise NotImplementedError\n",
    "shop/square.py": (
        "from shop.base import Shape\n\n\nclass Square(Shape):\n    def __init__(self, side: float) -> None:\n        self.side = side\n\n"
        "    def area(self) -> float:\n        return self.side * self.side\n"
    ),
    "shop/__init__.py": "",
    "main.py": (
        "from shop.square import Square\n\n\ndef total(squares: list[Square]) -> float:\n    return sum(each.area() for each in squares)\n\n\n"
        'print("😀", total([Square(2)]))\t# total\n'
    ),
}


TS = {
    "tsconfig.json": "{}",
    "src/shape.ts": "export interface Shape {\n  area(): number;\n}\n",
    "src/square.ts": (
        "import { Shape } from './shape';\n\nexport class Square implements Shape {\n\tconstructor(private side: number) {}\n\tarea(): number {\n\t\treturn this.side * this.side;\n\t}\n}\n"
    ),
    "main.ts": "import { Square } from './src/square';\n\nconst label = '😀'; const total = (all: Square[]) => all.reduce((a, s) => a + s.area(), 0);\nconsole.log(label, total([new Square(2)]));\n",
}


def test_basedpyright_answers_every_question(coding):
    agent = coding(
        PYTHON,
        nav("definition", "Square", path="main.py", line=4),
        nav("references", "Square/area"),
        nav("implementations", "Shape/area", path="shop/base.py"),
        nav("type", "each", path="main.py", line=5),
        nav("hover", "total", path="main.py", line=8),
        nav("outline", path="shop/square.py"),
        nav("symbols", "Squar"),
        nav("callers", "total"),
        nav("callees", "total", path="main.py"),
        nav("definition", "side"),
        nav("definition", "nowhere"),
        shown="main.py",
        server="basedpyright",
    )
    definition, references, implementations, type_, hover, outline, symbols, *rest = agent.results()
    callers, callees, several, unknown = rest
    assert "\nshop/square.py:4: class Square(Shape):\n5\t    def __init__(" in definition
    assert definition.splitlines()[-1].startswith("9\t")
    assert "main.py:5: return sum(each.area() for each in squares)" in references
    assert "shop/square.py:8: def area(self) -> float:" in implementations
    assert type_.endswith("\nshop/square.py:4: class Square(Shape):")
    assert "def total(squares: list[Square]) -> float" in hover
    assert outline.splitlines()[1:3] == ["      4-9 class Square", "      5-6   method __init__"]
    assert "shop/square.py:4: class Square(Shape):  [class Square]" in symbols
    assert 'main.py:8: print("😀", total([Square(2)]))' in callers
    assert "[area, sum]" in callees
    assert "side is ambiguous" in several
    assert "know no symbol nowhere" in unknown


OVERLOADED = {
    "main.py": (
        "from typing import overload\n\n\ndef helper(x: object) -> str:\n    return str(x)\n\n\n"
        "@overload\ndef show(x: int) -> str: ...\n@overload\ndef show(x: str) -> str: ...\n"
        "def show(x: object) -> str:\n    return helper(x)\n\n\n"
        "class Big:\n    def first(self) -> int:\n        return 1\n\n    def last(self) -> int:\n"
        + "".join(f"        print({n})\n" for n in range(80))
        + "        return 2\n"
    ),
}


def test_definition_has_its_body_and_callees_are_those_of_the_implementation(coding):
    agent = coding(
        OVERLOADED,
        nav("callees", "show", path="main.py"),
        nav("callees", "show", path="main.py", line=9),
        nav("callees", "show"),
        nav("definition", "helper", path="main.py"),
        nav("definition", "last", path="main.py"),
        nav("outline", "Big", path="main.py"),
        nav("outline", "Big/last", path="main.py"),
        nav("outline", "Small", path="main.py"),
        shown="main.py",
        server="basedpyright",
    )
    *callees, body, long, outline, method, unknown = agent.results()
    for each in callees:
        assert "main.py:13: return helper(x)  [helper]" in each
    assert body.splitlines()[1:] == [
        "main.py:4: def helper(x: object) -> str:",
        "5\t    return str(x)",
    ]
    assert long.splitlines()[-2] == "79\t        print(58)"
    assert long.splitlines()[-1] == "… and 22 more lines, to line 101"
    assert [line.split(maxsplit=1)[1] for line in outline.splitlines()[1:]] == [
        "class Big",
        "method first",
        "method last",
    ]
    assert method.splitlines()[1].endswith(" method last")
    assert "knows no symbol Small in main.py" in unknown


def test_callees_of_overloads_in_typescript_are_those_of_the_implementation(coding):
    text = (
        "function helper(x: unknown): string {\n  return `${x}`\n}\n\n"
        "export function show(x: number): string\nexport function show(x: string): string\n"
        "export function show(x: unknown): string {\n  return helper(x)\n}\n"
    )
    agent = coding(
        {"main.ts": text, "tsconfig.json": "{}"},
        nav("callees", "show", path="main.ts"),
        nav("callees", "show", path="main.ts", line=5),
        nav("callees", "show"),
        shown="main.ts",
        server="typescript",
    )
    for each in agent.results():
        assert "main.ts:8: return helper(x)  [helper]" in each


SECRETS = {
    "pyrightconfig.json": '{"extraPaths": ["../other"], "reportDeprecated": "warning"}',
    "kept/settings.py": (
        '"""Module words: HUSH-MODULE."""\nfrom typing import Final, Literal\nfrom typing_extensions import deprecated\n\n'
        'DB: Final = "postgres://admin:HUSH-FINAL@db"\nPIN: Final = 847113\n\n\n'
        'def connect(user: str, password: str = "HUSH-DEFAULT", port: int = 847114) -> int:\n'
        '    """Connects. Documented: HUSH-DOC."""\n    return 0\n\n\n'
        'class Vault:\n    """HUSH-CLASS"""\n\n    key: Literal["HUSH-FIELD"] = "HUSH-FIELD"\n\n'
        '    def open(self, code: str = "HUSH-METHOD") -> str:\n        """HUSH-METHOD-DOC"""\n        return code\n\n\n'
        '@deprecated("use HUSH-DEPRECATED instead")\ndef old() -> None: ...\n'
    ),
    "kept/__init__.py": "",
    "main.py": (
        "from kept import settings\nimport elsewhere\n\n"
        "g = settings.connect\nx = settings.DB\ny = x\nz = y\npin = settings.PIN\nvault = settings.Vault()\nfield = vault.key\nfar = elsewhere.connect\nh = g\n"
        "n: int = z\nm: str = pin\nsettings.old()\n"
        "k: int = field\n\n\n"
        'def own(size: int = 4712, name: str = "plain") -> str:\n    """Say the `own` *words*.\n\n    - first\n    """\n    return name\n'
    ),
}


def keep_elsewhere(project):
    (project.parent / "other").mkdir()
    (project.parent / "other/elsewhere.py").write_text(
        'def connect(a: str = "HUSH-OUTSIDE") -> None:\n    """HUSH-OUTSIDE-DOC"""\n'
    )


def test_values_and_words_of_files_that_may_not_be_read_are_in_no_answer(coding, project):
    keep_elsewhere(project)
    names = {"g": 4, "x": 5, "y": 6, "z": 7, "pin": 8, "vault": 9, "field": 10, "far": 11, "h": 12}
    agent = coding(
        SECRETS,
        *(nav("hover", name, path="main.py", line=line) for name, line in names.items()),
        nav("hover", "settings", path="main.py", line=4),
        nav("hover", "own", path="main.py"),
        use("diagnostics", path="main.py"),
        use("edit", path="main.py", edits=[{"old": "h = g", "new": "h = g\no: int = x"}]),
        use("bash", command="sleep 3"),
        refactor("action", "main.py", symbol="x", line=5),
        shown="main.py",
        server="basedpyright",
        setup={"permissions": [{"action": "deny", "tool": "read", "path": "kept/**"}]},
    )
    results = agent.results()
    told = "\n".join(results)
    for secret in ("HUSH", "847113", "847114"):
        assert secret not in told
    by_name = dict(zip(names, results, strict=False))
    assert "password: str" in by_name["g"]
    assert "pin: Literal[…]" in by_name["pin"]
    own = results[len(names) + 1]
    assert 'def own(size: int = 4712, name: str = "plain") -> str' in own.replace(
        "\n    ", ""
    ).replace("\n)", ")")
    assert "words" in own
    assert 'is not assignable to declared type "int"' in told


def test_basedpyright_renames_moves_and_diagnoses(coding, project):
    broken = {"old": "Square(2)", "new": "Square('')"}
    agent = coding(
        PYTHON,
        refactor("rename", "main.py", symbol="total", to="sum_of"),
        refactor("rename", "shop/square.py", symbol="Square/area", line=8, to="surface"),
        refactor("move_file", "shop/square.py", to="shop/quad.py"),
        use("edit", path="main.py", edits=[broken]),
        use("bash", command="sleep 5"),
        use("diagnostics", path="main.py"),
        shown="main.py",
        server="basedpyright",
    )
    results = agent.results()
    assert (project / "main.py").read_text() == (
        "from shop.quad import Square\n\n\ndef sum_of(squares: list[Square]) -> float:\n"
        "    return sum(each.surface() for each in squares)\n\n\n"
        "print(\"😀\", sum_of([Square('')]))\t# total\n"
    )
    assert "def surface(self)" in (project / "shop/quad.py").read_text()
    assert "main.py:8: error: Argument of type" in results[-1]


def test_typescript_answers_renames_and_moves(coding, project):
    agent = coding(
        TS,
        nav("definition", "Square", path="main.ts", line=3),
        nav("implementations", "area", path="src/shape.ts"),
        nav("references", "Square/area"),
        refactor("rename", "main.ts", symbol="total", line=3, to="sum_of"),
        refactor("rename", "src/shape.ts", symbol="Shape/area", to="surface"),
        refactor("move_file", "src/square.ts", to="lib/quad.ts"),
        shown="main.ts",
        server="typescript",
    )
    definition, implementations, references, *_ = agent.results()
    assert "\nsrc/square.ts:3: export class Square implements Shape {\n4\t" in definition
    assert implementations.endswith("\nsrc/square.ts:5: area(): number {")
    assert references.startswith("3 references in 3 files")
    main = (project / "main.ts").read_text()
    assert "from './lib/quad'" in main
    assert "const label = '😀'; const sum_of =" in main
    assert "s.surface()" in main
    assert "console.log(label, sum_of(" in main
    assert "surface(): number;" in (project / "src/shape.ts").read_text()
    moved = (project / "lib/quad.ts").read_text()
    assert "\tsurface(): number {" in moved
    assert "from '../src/shape'" in moved


def test_bash_answers_and_renames(coding, project):
    files = {"run.sh": 'greet() {\n\techo "😀 $1"\n}\ngreet a; greet b\n'}
    agent = coding(
        files,
        nav("definition", "greet", path="run.sh", line=4),
        nav("references", "greet", path="run.sh"),
        nav("outline", path="run.sh"),
        refactor("rename", "run.sh", symbol="greet", to="hello"),
        shown="run.sh",
        server="bash",
    )
    definition, references, outline, _ = agent.results()
    assert "\nrun.sh:1: greet() {\n2\t\techo" in definition
    assert "run.sh:4: greet a; greet b (x2)" in references
    assert "function greet" in outline
    assert (project / "run.sh").read_text() == files["run.sh"].replace("greet", "hello")


def test_clangd_answers_and_renames(coding, project):
    files = {
        "a.c": 'int area(int side) { return side * side; }\nint main(void) { return area(2) + area(3); /* "😀" */ }\n'
    }
    agent = coding(
        files,
        nav("definition", "area", path="a.c", line=2),
        nav("references", "area", path="a.c", line=1),
        refactor("rename", "a.c", symbol="area", line=1, to="surface"),
        shown="a.c",
        server="clangd",
    )
    assert agent.results()[0].endswith("\na.c:1: int area(int side) { return side * side; }")
    assert (project / "a.c").read_text() == files["a.c"].replace("area", "surface")


def test_ruff_fixes_by_an_action(coding, project):
    agent = coding(
        {"a.py": "import os\n\nprint(1)\n"},
        use("diagnostics", path="a.py"),
        refactor("action", "a.py", line=1),
        refactor("action", "a.py", line=1, to="Ruff (F401): Remove unused import: `os`"),
        shown="a.py",
        server="ruff",
    )
    said, listed, done = agent.results()
    assert "a.py:1: warning: `os` imported but unused" in said
    assert "- Ruff (F401): Remove unused import: `os`" in listed
    assert done.startswith("Done, in 1 file:")
    assert (project / "a.py").read_text().strip() == "print(1)"


def test_a_server_hears_of_a_file_that_was_written_on_the_disk(coding):
    agent = coding(
        {"main.py": "def main() -> None:\n    pass\n\n\nprint(1)\n"},
        use("read", path="main.py"),
        use("write", path="extra.py", content="def extra() -> int:\n    return 1\n"),
        use(
            "edit",
            path="main.py",
            edits=[{"old": "print(1)", "new": "from extra import extra\nprint(extra())"}],
        ),
        use("bash", command="sleep 4"),
        use("diagnostics", path="main.py"),
        nav("definition", "extra", path="main.py", line=6),
        shown="main.py",
        server="basedpyright",
    )
    *_, said, definition = agent.results()
    assert said == "No errors or warnings (basedpyright)."
    assert "\nextra.py:1: def extra() -> int:\n2\t    return 1" in definition


@quick
def test_a_file_that_the_parser_would_not_survive_is_not_parsed(child):
    assert child.lua("""
      vim.api.nvim_buf_set_lines(0, 0, -1, true, { ('> '):rep(300) .. 'deep' })
      vim.bo.filetype = 'markdown'
      return require('sanderling.code.names').of_grammar(0, 0, { 600 }, 'deep')
    """) == [600]
