"""Places that a text names, as the quickfix list: of an answer, a tool's result, lines, or a search by the model."""

import pytest
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.nvim.replies import bash, reply

pytestmark = prove_unless_quick

APP = "".join(f"line {n}\n" for n in range(1, 31))


@pytest.fixture
def files(project):
    (project / "src").mkdir(exist_ok=True)
    (project / "src" / "app.py").write_text(APP)
    (project / "my notes.md").write_text(APP)
    (project / "src" / "[id].ts").write_text(APP)
    (project / "src" / "a dir").mkdir(exist_ok=True)
    (project / "src" / "a dir" / "my app.go").write_text(APP)
    return project


def entries(child):
    """The quickfix list: file, line, last line, column, text."""
    return child.lua(
        """
        return vim.tbl_map(function(each)
          local name = vim.fs.basename(vim.api.nvim_buf_get_name(each.bufnr))
          return { name, each.lnum, each.end_lnum, each.col, each.text }
        end, vim.fn.getqflist())
        """
    )


def named(child, project, *lines):
    return child.lua(
        """
        local lines, project = ...
        return vim.tbl_map(function(each)
          return { vim.fs.basename(each.filename or vim.api.nvim_buf_get_name(each.bufnr)), each.lnum, each.end_lnum or 0, each.col or 0 }
        end, require('sanderling.access.entries').of(lines, project))
        """,
        list(lines),
        str(project),
    )


@pytest.mark.parametrize(
    "line, places",
    [
        ("see src/app.py:12.", [["app.py", 12, 0, 0]]),
        ("* `src/app.py:12:3`: it is here", [["app.py", 12, 0, 3]]),
        ("**src/app.py:12-20** is long", [["app.py", 12, 20, 0]]),
        ("src/app.py:12\N{EN DASH}20", [["app.py", 12, 20, 0]]),
        ("[the app](src/app.py#L10)", [["app.py", 10, 0, 0]]),
        ("[src/app.py:7](src/app.py#L7)", [["app.py", 7, 0, 0]]),
        ("[here](./src/app.py#L10-L12), and", [["app.py", 10, 12, 0]]),
        ("[notes](my%20notes.md#L3)", [["my notes.md", 3, 0, 0]]),
        ("[notes](<my notes.md:3>)", [["my notes.md", 3, 0, 0]]),
        ("in `my notes.md:3`", [["my notes.md", 3, 0, 0]]),
        ("src/[id].ts:4 has it", [["[id].ts", 4, 0, 0]]),
        ("src/app.py(12,5): error TS1", [["app.py", 12, 0, 5]]),
        ('  File "src/app.py", line 9, in f', [["app.py", 9, 0, 0]]),
        ("`src/app.py`, lines 3-9", [["app.py", 3, 9, 0]]),
        ("src/app.py (line 4)", [["app.py", 4, 0, 0]]),
        ("a/src/app.py:3", [["app.py", 3, 0, 0]]),
        ("src/app.py:1 and src/app.py:2", [["app.py", 1, 0, 0], ["app.py", 2, 0, 0]]),
        ("src/app.py:31", []),
        ("src/app.py:0", []),
        ("src/gone.py:3", []),
        ("src:3", []),
        ("at 12:30 or http://localhost:8080", []),
        ("src/app.py:12:99", [["app.py", 12, 0, 0]]),
        ("src/app.py:28-99", [["app.py", 28, 30, 0]]),
        # Windows
        ("src\\app.py:12", [["app.py", 12, 0, 0]]),
        ("src\\app.py(12,3): error C1", [["app.py", 12, 0, 3]]),
        ("src\\a dir\\my app.go:4:2: no", [["my app.go", 4, 0, 2]]),
        ('"src\\\\app.py", line 3', [["app.py", 3, 0, 0]]),
        # links
        ("[x](/src/app.py#L4)", [["app.py", 4, 0, 0]]),
        ("[x](src/app.py#10)", [["app.py", 10, 0, 0]]),
        ("src/app.py#L10C3-L20C5", [["app.py", 10, 20, 3]]),
        ("https://example.com/src/app.py#L10", []),
        # stack traces
        ("    at f (src/app.py:12:5)", [["app.py", 12, 0, 5]]),
        ("  --> src/app.py:4:5", [["app.py", 4, 0, 5]]),
        ("thread 'main' panicked at src/app.py:4:5:", [["app.py", 4, 0, 5]]),
        ("\t./src/a dir/my app.go:10 +0x1d", [["my app.go", 10, 0, 0]]),
        ("   at A.B() in src/app.py:line 7", [["app.py", 7, 0, 0]]),
        # colors and links of terminals
        ("\x1b[1msrc/app.py\x1b[0m:\x1b[32m12\x1b[0m: no", [["app.py", 12, 0, 0]]),
        ("\x1b[35msrc/app.py\x1b[m\x1b[36m:\x1b[m\x1b[K\x1b[32m3\x1b[m:x", [["app.py", 3, 0, 0]]),
        ("\x1b]8;;http://x/a.py:1\x1b\\src/app.py:5\x1b]8;;\x1b\\ x", [["app.py", 5, 0, 0]]),
        ("\x1b]8;;http://x\x07src/app.py:5\x1b]8;;\x07", [["app.py", 5, 0, 0]]),
        # blanks
        ("my notes.md:3: no", [["my notes.md", 3, 0, 0]]),
        ("see **my notes.md:3**", [["my notes.md", 3, 0, 0]]),
        ("src/a dir/my app.go:3:1: no", [["my app.go", 3, 0, 1]]),
        ("`my notes.md`:3", [["my notes.md", 3, 0, 0]]),
        (
            "\"my notes.md\":3 and 'my notes.md:4'",
            [["my notes.md", 3, 0, 0], ["my notes.md", 4, 0, 0]],
        ),
        ("src/app.py:3 my notes.md:4", [["app.py", 3, 0, 0], ["my notes.md", 4, 0, 0]]),
        # diffs, mentions, words
        ("b/src/app.py:3", [["app.py", 3, 0, 0]]),
        ("w/src/app.py:3", [["app.py", 3, 0, 0]]),
        ("@src/app.py:3", [["app.py", 3, 0, 0]]),
        ("src/app.py:L3-L5", [["app.py", 3, 5, 0]]),
        ("src/app.py at line 3", [["app.py", 3, 0, 0]]),
        ("line 3 of src/app.py.", [["app.py", 3, 0, 0]]),
        ("lines 12\N{EN DASH}15 in `my notes.md`", [["my notes.md", 12, 15, 0]]),
    ],
)
def test_a_line_names_the_places_that_exist(child, files, line, places):
    assert named(child, files, line) == places


def test_an_absolute_name_and_a_file_address_are_places(child, files):
    path = files / "src" / "app.py"
    assert named(child, files, f"{path}:3") == [["app.py", 3, 0, 0]]
    assert named(child, files, f"[it](file://{path}#L4)") == [["app.py", 4, 0, 0]]


def test_a_place_that_is_named_twice_is_listed_once(child, files):
    lines = ["src/app.py:3: one", "then src/app.py:3", "src/app.py:3:2", "src/app.py:4"]
    assert [each[1:4:2] for each in named(child, files, *lines)] == [[3, 0], [3, 2], [4, 0]]


def test_lines_below_a_path_are_places_in_it(child, files):
    lines = ["src/app.py", "3:line 3", "5-line 5", "7:line 7", "", "8:nothing"]
    assert [each[1] for each in named(child, files, *lines)] == [3, 7]


def test_hunks_of_a_diff_are_places_where_they_change_the_file(child, files):
    lines = [
        *("diff --git a/src/app.py b/src/app.py", "--- a/src/app.py", "+++ b/src/app.py"),
        *(
            "@@ -3,5 +3,6 @@ def f",
            " line 3",
            " line 4",
            "-line 5",
            "+new",
            "+newer",
            " line 6",
            "",
        ),
        *("@@ -20 +21 @@", "-line 20", "+other"),
        *(
            "--- a/my notes.md\t2026-01-01",
            "+++ b/my notes.md\t2026-01-01",
            "@@ -1,0 +2 @@",
            "+more",
        ),
        *("--- a/src/[id].ts", "+++ /dev/null", "@@ -1,30 +0,0 @@", "-line 1"),
    ]
    assert [each[:3] for each in named(child, files, *lines)] == [
        ["app.py", 5, 8],
        ["app.py", 21, 0],
        ["my notes.md", 2, 0],
    ]


def test_errors_below_a_path_have_a_column(child, files):
    lines = [str(files / "src" / "app.py"), "  3:7  error  no semicolon", "  4:1  warning  so", ""]
    assert named(child, files, *lines) == [["app.py", 3, 0, 7], ["app.py", 4, 0, 1]]
    assert named(child, files, "src/app.py", "3:2:line 3") == [["app.py", 3, 0, 2]]


def test_names_begin_at_the_directory_that_make_enters(child, files):
    lines = [
        "make[1]: Entering directory '" + str(files / "src") + "'",
        "app.py:3: no",
        "make[1]: Leaving directory '" + str(files / "src") + "'",
        "app.py:4: no",
        "ninja: Entering directory `src'",
        "app.py:5: no",
    ]
    assert [each[1] for each in named(child, files, *lines)] == [3, 5]


@pytest.mark.usefixtures("files")
def test_names_in_a_terminal_begin_at_its_directory(child):
    child.command("edit term://src//echo app.py:3")
    child.command("autocmd! TermClose *")
    wait_until(lambda: child.lines()[0] == "app.py:3")
    child.command("1AgentPlaces")
    assert [each[:2] for each in entries(child)] == [["app.py", 3]]


def test_thousands_of_lines_are_searched_up_to_a_limit(child, files):
    lines = [f"see the file no{n} in x{n}/y.py:{n} at {n}:30" for n in range(4000)]
    assert named(child, files, *lines) == []
    lines = [f"src/app.py:{n % 30 + 1}:{n // 30 + 1}: here" for n in range(5000)]
    assert len({tuple(each[:2]) for each in named(child, files, *lines)}) == 30


def test_unsaved_lines_and_a_file_that_was_never_written_are_places(child, files):
    child.command("edit src/app.py | $put ='more' | edit src/new.py | call setline(1, ['a', 'b'])")
    lines = ["src/app.py:31", "src/new.py:2", "src/new.py:3"]
    assert named(child, files, *lines) == [["app.py", 31, 0, 0], ["new.py", 2, 0, 0]]


@quick
@pytest.mark.usefixtures("files")
def test_the_lines_of_a_range_become_the_quickfix_list(child):
    child.lua("vim.fn.setline(1, { '1. **`src/app.py:3`** \u2014 is wrong', 'src/app.py:9' })")
    child.command("1AgentPlaces")
    assert entries(child) == [["app.py", 3, 0, 0, "is wrong"]]
    assert child.lua("return vim.bo.buftype") == "quickfix"
    child.command("cclose | 1,2AgentPlaces")
    assert entries(child)[1] == ["app.py", 9, 0, 0, "line 9"]


@pytest.mark.usefixtures("files")
def test_lines_without_a_place_leave_the_list_as_it_is(child):
    child.lua("vim.fn.setqflist({ { filename = 'x', lnum = 1 } }) vim.fn.setline(1, 'none')")
    child.command("1AgentPlaces")
    assert len(entries(child)) == 1
    assert "No existing place is named in the lines." in child.lua(
        "return vim.fn.execute('messages')"
    )


@pytest.mark.parametrize(
    "line, text",
    [
        ("* `src/app.py:12`: it is here", "it is here"),
        ("Look at src/app.py:4, where it is.", "Look at src/app.py:4, where it is."),
        ("It is used in `src/app.py:5`.", "It is used in src/app.py:5."),
        ("at load (src/app.py:7:3)", "at load"),
        ("ERROR src/app.py:8", "ERROR"),
        ("critical: src/app.py:9: it sleeps", "critical: it sleeps"),
    ],
)
def test_the_text_of_an_entry_is_the_line_that_names_it(child, files, line, text):
    assert child.lua(
        """
        local items = require('sanderling.access.entries').of({ (...) }, select(2, ...))
        return vim.tbl_map(function(each) return each.text end, items)
        """,
        line,
        str(files),
    ) == [text]


@quick
@pytest.mark.usefixtures("files")
def test_a_key_lists_the_places_of_the_answer_and_of_a_result(start_agent):
    agent = start_agent(
        reply(bash("echo src/app.py:5: found; echo src/gone.py:1")),
        {"step": [{"text": "It is in `src/app.py:8`, and src/app.py:9-11."}]},
    )
    agent.command("AgentMode auto")
    agent.command("AgentChat")
    agent.ask_and_wait()
    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.feed("G")
    agent.command(r"call search('It is in', 'bw')")
    agent.feed("\\l")
    wait_until(lambda: [each[1] for each in entries(agent)] == [8, 9])
    agent.command("cclose")
    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.command(r"call search('^bash', 'bw')")
    agent.feed("\\l")
    wait_until(lambda: entries(agent) == [["app.py", 5, 0, 0, "found"]])


@quick
@pytest.mark.usefixtures("files")
def test_names_in_a_result_begin_at_the_shells_directory(run_agent):
    agent = run_agent(
        reply(bash("cd src")),
        reply(bash("echo app.py:5: found; echo src/app.py:6: found")),
        {"step": [{"text": "Done."}]},
    )
    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.feed("G")
    agent.command(r"call search('^bash', 'bw')")
    agent.feed("\\l")
    wait_until(lambda: [each[1] for each in entries(agent)] == [5, 6])


# --- :AgentFind --------------------------------------------------------------------------------------------------------


@quick
@pytest.mark.usefixtures("files")
def test_a_search_becomes_the_quickfix_list_and_leaves_no_session(start_agent):
    agent = start_agent(
        {"step": [{"text": "* `src/app.py:4`: handles them\n* `src/app.py:7-9`: raises"}]},
    )
    agent.command("edit src/app.py")
    agent.command("AgentFind where are errors handled")
    wait_until(lambda: entries(agent))
    assert entries(agent) == [
        ["app.py", 4, 0, 0, "handles them"],
        ["app.py", 7, 9, 0, "raises"],
    ]
    assert agent.lua("return vim.fn.getqflist({ title = 0 }).title").endswith("errors handled")
    assert agent.lua("return vim.bo.buftype") == "quickfix"
    agent.wait_for_message("2 places.")
    assert agent.lua("return #require('sanderling').list()") == 0


def test_a_search_can_only_read(start_agent, files):
    agent = start_agent(
        reply(bash("echo changed > src/app.py")), {"step": [{"text": "There is none."}]}
    )
    agent.command("AgentFind anything")
    wait_until(lambda: "Nothing found: anything" in agent.lua("return vim.fn.execute('messages')"))
    assert (files / "src" / "app.py").read_text() == APP
    assert entries(agent) == []


@pytest.mark.usefixtures("files")
def test_a_search_that_fails_says_why_and_leaves_no_session(start_agent):
    agent = start_agent()
    agent.command("AgentFind anything")
    messages = "return vim.fn.execute('messages')"
    wait_until(lambda: "Nothing found: " in agent.lua(messages))
    assert "Nothing found: anything" not in agent.lua(messages)
    assert agent.lua("return #require('sanderling.session.live').all()") == 0


@pytest.mark.usefixtures("files")
def test_a_search_can_be_stopped(start_agent):
    agent = start_agent(
        {"step": [{"text": "src/app.py:3 " * 50, "chunk_chars": 1, "chunk_delay_ms": 200}]}
    )
    agent.command("AgentFind anything")
    agent.command("AgentFind!")
    messages = agent.lua("return vim.fn.execute('messages')")
    assert "Stopped." in messages
    assert agent.lua("return #require('sanderling.session.live').all()") == 0
    agent.command("AgentFind!")
    assert "No search is running." in agent.lua("return vim.fn.execute('messages')")
