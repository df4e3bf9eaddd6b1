"""What the model does, on the screen: blocks of tool uses, the way to the files that they name, mode, to-do list and jobs."""

import base64
import re
import time

import pytest
from tests.conftest import is_alive, prove, prove_rest, wait_until
from tests.rpc import NvimError

DIFF = """\
--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,4 @@
 line 1
-line 2
+line two
+--- a/other
 line 3
@@ -50 +51 @@
-line 50
+line fifty
"""
TURN_STARTED = {"type": "turn_started", "prompt": {"id": "1", "text": "go"}}
TURN_ENDED = {"type": "turn_ended", "stop_reason": "end_turn"}


def started(tool="bash", title="pytest -q", id_="t1"):
    return {"type": "tool_started", "id": id_, "tool": tool, "title": title}


def output(text, id_="t1"):
    return {"type": "tool_output", "id": id_, "text": text}


def ended(summary="✓ 2.1 s", detail="", id_="t1", **fields):
    event = {"type": "tool_ended", "id": id_, "summary": summary, "detail": detail}
    return event | fields


def edited(id_="t1", diff=DIFF):
    return (started("edit", "src/app.py", id_), ended("+3 −2", diff, id_, filetype="diff"))


def delta(text, block_id=1):
    return {"type": "text_delta", "block_id": block_id, "text": text}


def todo(*statuses):
    items = [{"content": f"item {n}", "status": status} for n, status in enumerate(statuses)]
    return {"type": "todo_changed", "items": items}


def jobs(*outcomes):
    return {
        "type": "jobs_changed",
        "jobs": [{"id": f"j{n}", "command": "make", "outcome": o} for n, o in enumerate(outcomes)],
    }


def fold_at(screen, lnum):
    """The level and the ends of the closed fold at a line, -1 where it is open."""
    return screen.in_transcript(f"[foldlevel({lnum}), foldclosed({lnum}), foldclosedend({lnum})]")


def go_to(screen, pattern, keys=""):
    """Go to the first match in the transcript's window, in normal mode there, and type `keys`."""
    screen.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    screen.feed("<Esc>gg")
    screen.lua("return 1")
    assert screen.lua("return vim.fn.search(..., 'cW')", pattern) > 0
    assert screen.mode() == "n"
    screen.feed(keys)


def here(screen):
    name, lnum, col = screen.lua(
        "return { vim.fn.expand('%:p'), vim.fn.line('.'), vim.fn.col('.') }"
    )
    return name, lnum, col


@pytest.fixture
def files(project):
    (project / "src").mkdir()
    (project / "src" / "app.py").write_text("".join(f"line {n}\n" for n in range(1, 100)))
    (project / "with blank.txt").write_text("x\n")
    return project


# --- blocks ------------------------------------------------------------------------------------------------------------


def test_a_tool_use_is_one_line_with_what_came_of_it(screen):
    screen.send(TURN_STARTED, started(), output("1 pas"))
    assert screen.transcript()[6:] == ["bash pytest -q", "1 pas"]
    screen.send(output("sed\n"), ended())
    assert screen.transcript()[6:] == ["bash pytest -q  ✓ 2.1 s", "1 passed", ""]
    assert screen.highlight("bash pytest -q  ✓ 2.1 s") == ["AgentTool", "AgentStatus"]
    assert screen.highlight("1 passed") == ["AgentOutput"]
    assert "▸ bash pytest -q  ✓ 2.1 s · 1 line" in screen.screen_text()
    assert "1 passed" not in screen.screen_text()


def test_while_it_runs_a_mark_says_so_and_the_header_stays_where_it_is(screen):
    screen.send(TURN_STARTED, started())
    row = next(i for i, line in enumerate(screen.screen()) if "bash pytest -q …" in line)
    screen.send(output("a\nb\n"))
    assert "bash pytest -q …" in screen.screen()[row]
    screen.send(ended())
    assert "bash pytest -q  ✓ 2.1 s" in screen.screen()[row]
    assert "✓ 2.1 s …" not in screen.screen_text()


def test_a_use_that_failed_is_open_and_marked(screen):
    screen.send(started(), output("boom\n"), ended("exit 1 · 2.1 s", is_error=True))
    header = "bash pytest -q  ✗ exit 1 · 2.1 s"
    assert screen.transcript() == [header, "boom", ""]
    assert "AgentError" in screen.highlight(header)
    assert fold_at(screen, 2) == [1, -1, -1]
    assert "boom" in screen.screen_text()


@pytest.mark.parametrize("is_error, mark", [(False, ""), (True, "  ✗")])
def test_a_use_without_anything_to_tell_has_no_fold_and_is_marked_where_it_failed(
    screen, is_error, mark
):
    screen.send(started("todo", "3 items"), ended("", is_error=is_error))
    assert screen.transcript() == [f"todo 3 items{mark}", ""]
    assert fold_at(screen, 1)[0] == 0


def test_detail_stands_below_the_output_and_is_folded_with_it(screen):
    screen.send(started(), output("out"), ended(detail="detail\nmore\n\n"))
    assert screen.transcript() == ["bash pytest -q  ✓ 2.1 s", "out", "detail", "more", ""]
    assert fold_at(screen, 1) == [1, 1, 4]
    assert "· 3 lines" in screen.screen_text()


def test_uses_stand_close_together_and_a_blank_line_stands_around_them(screen):
    screen.send(
        TURN_STARTED,
        delta("Let me look."),
        {"type": "block_ended", "block_id": 1},
        started("read", "a"),
        ended("2 lines", "1\n2"),
        started("ls", "b", "t2"),
        ended("", id_="t2"),
        started("bash", "c", "t3"),
        output("x\n\n\n", "t3"),
        ended("✓", id_="t3"),
        delta("Done.", 2),
        TURN_ENDED,
    )
    assert screen.transcript()[6:] == [
        "Let me look.",
        "",
        "read a  2 lines",
        "1",
        "2",
        "ls b",
        "bash c  ✓",
        "x",
        "",
        "",
        "",
        "Done.",
    ]
    text = screen.screen_text()
    first = text.index("▸ read a  2 lines")
    assert re.search(r"a  2 lines\s*\n.*ls b\s*\n.*▸ bash c", text[first:])


def test_thinking_between_uses_is_a_block_of_its_own(screen):
    thinking = {"type": "thinking_delta", "block_id": 5, "text": "Hm.\n"}
    screen.send(TURN_STARTED, *edited(), thinking, *edited("t2"), delta("Done.", 6))
    text = screen.transcript_text()
    assert "+line fifty\n\nThinking\nHm." in text
    assert "\n\nedit src/app.py  +3 −2\n--- a" in text.partition("Thinking")[2]
    screen.command("redraw")
    folded = screen.screen_text()
    assert folded.count("▸ edit src/app.py  +3 −2 · 11 lines") == 2
    assert "▸ Thinking" in folded


def test_a_diff_has_colours_that_its_own_content_cannot_change(screen):
    screen.send(*edited())
    assert "AgentDiffHeader" in screen.highlight("+++ b/src/app.py")
    assert "AgentDiffHunk" in screen.highlight("@@ -1,3 +1,4 @@")
    assert "AgentDiffAdd" in screen.highlight("+line two")
    assert "AgentDiffAdd" in screen.highlight("+--- a/other")
    assert "AgentDiffDelete" in screen.highlight("-line 50")
    assert set(screen.highlight(" line 1")) == {"AgentOutput", ""}  # what ends here is ""


@pytest.mark.parametrize(
    "title, shown",
    prove_rest(
        [
            ("echo " + "x" * 200 + " | tail -3", r"bash echo x+…x+ \| tail -3"),
            ("全角" * 60 + "終", "bash 全角.*….*全 ?角 ?終"),
            ("", "bash"),
        ]
    ),
)
def test_the_line_of_a_closed_fold_keeps_tool_both_ends_of_the_title_summary_and_count(
    screen, title, shown
):
    screen.send(started(title=title), ended(detail="y"))
    line = rf"▸ {shown}  ✓ 2.1 s · 1 line *$"
    assert re.search(line, screen.screen_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "summary, shown",
    [
        ("Half up; unit, doctest; mean", "▸ ask_user Wh…?  Half up; unit, doctest; mean"),
        (
            "Half up; unit, doctest; arithmetic mean",
            "▸ ask_user W…  Half up; unit, doctest; arith…",
        ),
    ],
)
def test_a_narrow_window_drops_the_count_and_then_the_end_of_the_summary(screen, summary, shown):
    screen.command("vertical resize 47")
    screen.send(started("ask_user", "Which rounding?"), ended(summary=summary, detail="y"))
    assert re.search(rf"{re.escape(shown)} *$", screen.screen_text(), re.MULTILINE)


def test_a_title_is_one_line_in_which_nothing_hides(screen):
    screen.send(started("ba\nsh", "a\x1b[1m\u202eb\nrm x"), ended())
    assert screen.transcript()[0] == "ba sh a [1m·b …  ✓ 2.1 s"
    screen.send(started(title="z" * 5000, id_="t2"))
    assert len(screen.transcript()[1]) < 400


def test_output_with_fences_and_bytes_that_are_no_text_disturbs_nothing(screen):
    screen.send(TURN_STARTED, started(), output("```lua\n## Title\na\0b\x1b[31m\n"), ended())
    screen.send(delta("plain **strong**\n\n"), {"type": "block_ended", "block_id": 1})
    wait_until(lambda: "@markup.strong.markdown_inline" in screen.highlight("plain **strong**"))
    assert screen.highlight("## Title")[-1] == "AgentOutput"
    assert "went wrong" not in screen.messages()


@pytest.mark.parametrize("reason", prove_rest(["cancelled", "interrupted", "error"]))
def test_what_runs_when_the_turn_ends_is_finished_as_stopped(screen, reason):
    screen.send(TURN_STARTED, started(), output("half\n"))
    screen.send({"type": "turn_ended", "stop_reason": reason})
    assert screen.transcript()[6:8] == ["bash pytest -q  ✗ stopped", "half"]
    assert "pytest -q …" not in screen.screen_text()
    screen.send(ended())  # comes too late
    assert "2.1 s" not in screen.transcript_text()


def test_what_runs_when_the_host_ends_is_finished_as_stopped(screen):
    screen.send(TURN_STARTED, started())
    screen.lose_host()
    assert screen.transcript()[6:] == ["bash pytest -q  ✗ stopped", "", "It is gone."]


def test_an_error_of_the_turn_leaves_the_header_of_what_ran_marked(screen):
    screen.send(TURN_STARTED, started(), output("half"))
    screen.send({"type": "error_occurred", "kind": "cut", "message": "Cut.", "remedy": ""})
    screen.send({"type": "turn_ended", "stop_reason": "error"})
    assert screen.transcript()[6:] == ["bash pytest -q  ✗ stopped", "half", "", "Cut."]


def test_a_command_of_the_persons_comes_in_between_under_its_own_header(screen):
    screen.send(
        started(),
        output("one\n"),
        {"type": "command_started", "id": "c1", "command": "ls"},
        output("two\n"),
        {"type": "command_output", "id": "c1", "text": "file\n"},
        {"type": "command_ended", "id": "c1", "outcome": "Done.", "is_success": True},
        ended(),
    )
    assert screen.transcript() == [
        "bash pytest -q",
        "one",
        "",
        "$ ls",
        "",
        "bash pytest -q (continued)  ✓ 2.1 s",
        "two",
        "",
        "$ ls (continued)",
        "file",
        "Done.",
    ]
    assert "pytest -q …" not in screen.screen_text()


def test_what_the_sandbox_refused_stands_in_the_block_and_keeps_it_open(screen):
    denied = {"type": "access_denied", "operation": "connect", "target": "x:443", "rule": "off"}
    screen.send(started(), output("a\n"), denied, output("b\n"), ended())
    text = screen.transcript_text()
    assert re.search(r"^bash .*\na\nThe sandbox blocked: connect x:443 .*\n.*\nb\n", text)
    assert "The sandbox blocked" in screen.screen_text()


def test_a_reader_in_the_block_is_not_folded_away_and_one_at_the_end_goes_along(screen):
    screen.send(TURN_STARTED, started(), output("".join(f"{n}\n" for n in range(100))))
    go_to(screen, "^50$")
    screen.send(ended())
    assert fold_at(screen, 20) == [1, -1, -1]
    screen.feed("G")
    screen.send(started(id_="t2"), output("x\n" * 100, "t2"), ended(id_="t2"), delta("Done."))
    assert "Done." in screen.screen_text()
    assert "▸ bash pytest -q  ✓ 2.1 s · 100 lines" in screen.screen_text()


def test_folds_of_uses_that_ended_while_the_chat_was_hidden_are_as_they_would_have_been(screen):
    screen.feed("\\q")
    wait_until(lambda: screen.lua("return require('sanderling').transcript().win == nil"))
    screen.send(
        *edited(), started(id_="t2"), output("boom", "t2"), ended("", id_="t2", is_error=True)
    )
    screen.command("AgentChat")
    assert fold_at(screen, 2) == [1, 1, 12]
    assert fold_at(screen, 14) == [1, -1, -1]


def test_a_block_is_complete_when_the_buffer_could_not_be_written(screen):
    screen.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    id_ = screen.session_id()
    screen.feed("<F5>")
    time.sleep(0.05)
    request = screen.begin_to_send(id_, started(), output("one\n"), ended(detail="two"))
    time.sleep(0.05)
    screen.feed("x")
    screen.rpc.answer(request)
    wait_until(lambda: screen.transcript() == ["bash pytest -q  ✓ 2.1 s", "one", "two", ""])
    assert "rror" not in screen.messages()


@prove
def test_a_use_costs_the_same_however_long_the_transcript_is(screen):
    def seconds(first):
        ids = [f"t{n}" for n in range(first, first + 300)]
        events = [event for id_ in ids for event in edited(id_)]
        return screen.lua(
            """
            local id = vim.b[require('sanderling').transcript().buf].sanderling_session
            local host, before = require('sanderling.host'), vim.uv.getrusage().utime
            host.receive({ session_id = id, seq = 1, events = ... })
            local after = vim.uv.getrusage().utime
            return after.sec - before.sec + (after.usec - before.usec) / 1e6
            """,
            events,
        )

    early = min(seconds(0), seconds(300))
    for first in range(600, 3000, 300):
        seconds(first)
    late = min(seconds(3000), seconds(3300))
    assert late < 5 * early + 0.1  # by the square it would be eleven times


# --- from a line to a file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, place",
    prove_rest(
        [
            ("src/app.py:12: error", (12, 1)),
            ("see src/app.py:12:4)", (12, 4)),
            ("(src/app.py:7)", (7, 1)),
            ("`src/app.py`, and", (1, 1)),
            ('  File "src/app.py", line 33, in f', (33, 1)),
            ("no/such.py:3 src/app.py:5", (5, 1)),
            ("src/app.py:5000", (99, 1)),
            ("./src/app.py:9:line 9", (9, 1)),
        ],
        keep=(0, 5, 6, 7),
    ),
)
@pytest.mark.parametrize("key", ["gf", "<CR>"])
def test_a_key_opens_the_file_that_a_line_names_in_the_code_window(screen, files, line, place, key):
    screen.send(started(), output(line + "\n"), ended("", is_error=True))
    go_to(screen, r"\V" + line, key)
    wait_until(lambda: here(screen) == (str(files / "src/app.py"), *place))
    assert screen.lua("return #vim.api.nvim_list_wins()") == 3


def test_a_header_leads_to_its_file_also_one_with_blanks_and_a_closed_fold(screen, files):
    screen.send(started("read", "with blank.txt"), ended("1 line", "x"))
    go_to(screen, "^read", "gf")
    wait_until(lambda: here(screen)[0] == str(files / "with blank.txt"))


@pytest.mark.parametrize(
    "pattern, lnum",
    prove_rest(
        [
            ("^+++ b", 1),
            ("^+line two", 2),
            ("^+--- a/other", 3),
            ("^+line fifty", 51),
            ("^@@ -50", 51),
        ]
    ),
)
def test_a_line_of_a_diff_leads_to_that_line_of_its_file(screen, files, pattern, lnum):
    screen.send(*edited())
    go_to(screen, "^edit", "zo")
    go_to(screen, pattern, "<CR>")
    wait_until(lambda: here(screen)[:2] == (str(files / "src/app.py"), lnum))


def test_enter_opens_a_closed_fold_first(screen, files):
    screen.send(*edited())
    go_to(screen, "^edit", "<CR>")
    wait_until(lambda: fold_at(screen, 1) == [1, -1, -1])
    assert screen.lua("return vim.bo.filetype") == "sanderling"
    screen.feed("<CR>")
    wait_until(lambda: here(screen)[0] == str(files / "src/app.py"))


@pytest.mark.parametrize(
    "line", prove_rest(["nothing here", "no/such.py:3", "src", "fifo:1", "http://x/y:80"])
)
def test_where_no_file_is_named_that_is_said(screen, files, line):
    screen.lua("vim.fn.system({ 'mkfifo', ... })", str(files / "fifo"))
    screen.send(started(), output(line + "\n"), ended("", is_error=True))
    go_to(screen, r"\V" + line, "<CR>")
    screen.wait_for_message("No existing file is named here.")
    assert screen.lua("return vim.bo.filetype") == "sanderling"


@prove
def test_a_line_of_a_hundred_thousand_bytes_is_searched_quickly(screen):
    screen.send(started(), output("(" * 50_000 + ":" * 50_000), ended("", is_error=True))
    go_to(screen, "^(")
    with screen.little_work():
        screen.feed("gf")
        screen.wait_for_message("No existing file")


def test_the_file_opens_in_the_window_that_was_used_last(screen, files):
    screen.command("wincmd h")
    screen.command("edit with\\ blank.txt | split | split")
    wins = screen.lua("return vim.tbl_map(vim.fn.win_getid, { 1, 2, 3 })")
    screen.lua("vim.api.nvim_set_current_win(...)", wins[1])
    screen.feed("<C-w>l")
    screen.send(started("read", "src/app.py"), ended())
    go_to(screen, "^read", "gf")
    wait_until(lambda: here(screen)[0] == str(files / "src/app.py"))
    assert screen.lua("return vim.api.nvim_get_current_win()") == wins[1]


def test_a_buffer_with_changes_is_left_and_not_lost(screen, files):
    screen.feed("<C-w>h")
    screen.command("edit with\\ blank.txt | set nohidden | call setline(1, 'mine')")
    screen.send(started("read", "src/app.py"), ended())
    go_to(screen, "^read", "gf")
    wait_until(lambda: here(screen)[0] == str(files / "src/app.py"))
    changed = screen.lua("return vim.fn.getbufline('with blank.txt', 1)")
    assert changed == ["mine"]


@pytest.mark.parametrize("position", ["tab", "float", "current"])
def test_where_the_chat_has_the_whole_screen_the_file_gets_a_window(start_screen, files, position):
    screen = start_screen()
    screen.open_chat(position=position, focus=True)
    screen.send(started("read", "src/app.py"), ended())
    go_to(screen, "^read", "gf")
    wait_until(lambda: here(screen)[0] == str(files / "src/app.py"))
    assert "line 1" in screen.screen_text()


# --- input and output in full ------------------------------------------------------------------------------------------


def shown_use(result="out\n```\nx"):
    return {"tool": "bash", "input": '{\n  "command": "pytest -q"\n}', "result": result}


def test_a_key_shows_input_and_result_in_full_in_a_float(screen):
    screen.send(started(), output("x\n"), ended())
    go_to(screen, "^bash", "K")
    wait_until(lambda: screen.actions() == [{"type": "inspect_tool_use", "id": "t1"}])
    screen.answer("inspect_tool_use", **shown_use("\n".join(f"result {n}" for n in range(300))))
    assert "result 2" in screen.screen_text()
    assert screen.lua("return vim.api.nvim_win_get_config(0).relative") == "editor"
    group = screen.lua("return vim.fn.synIDattr(vim.fn.synID(2, 4, 1), 'name')")
    assert group.startswith("json")
    assert screen.lua("return vim.fn.synIDattr(vim.fn.synID(6, 2, 1), 'name')") == ""
    screen.feed("G")
    screen.wait_for_screen("result 299")


def test_a_line_with_tabs_is_whole_in_the_float(screen):
    screen.lua("vim.o.list, vim.o.tabstop = true, 8")
    screen.send(started(), ended())
    go_to(screen, "^bash", "K")
    wait_until(lambda: screen.actions("inspect_tool_use"))
    screen.answer(
        "inspect_tool_use", **shown_use("1\tthe place\tof a float:\n2\tand the next line")
    )
    screen.wait_for_screen("│1       the place       of a float:│")


def test_a_job_that_is_stopped_is_told_and_its_line_says_how_it_ended(screen):
    screen.send(
        TURN_STARTED, started("bash", "make watch"), output("begun\n"), ended("→ j0", job="j0")
    )
    screen.send(
        started("bash", "make serve", "t2"), ended("→ j1", id_="t2", job="j1"), jobs("", "")
    )
    screen.command("Agent terminal! j0")
    assert "Stopping j0: make" in screen.messages()
    screen.send(jobs("stopped", ""))
    screen.send(jobs("stopped", "exit status 2"))
    screen.command("redraw!")
    assert "bash make serve  → j1 · exit status 2" in screen.screen_text()
    assert "▸ bash make watch  → j0 · stopped · 1 line" in screen.screen_text()
    screen.command("Agent terminal!")
    assert "j1 is over: exit status 2." in screen.messages()
    assert len(screen.actions("stop_job")) == 1


@pytest.mark.parametrize("key", ["q", "<Esc>"])
@pytest.mark.parametrize("columns, lines", [(120, 40), (60, 20)])
def test_the_float_of_a_use_fits_the_screen_and_closes(start_chat, key, columns, lines):
    screen = start_chat(columns=columns, lines=lines)
    screen.send(started(), ended())
    go_to(screen, "^bash", "K")
    wait_until(screen.actions)
    screen.answer("inspect_tool_use", **shown_use("long " * 200))
    rows = [row for row in screen.screen() if "╭" in row or "╰" in row]
    assert len(rows) == 2
    screen.feed(key)
    wait_until(lambda: screen.lua("return vim.bo.filetype") == "sanderling")


def test_what_comes_too_late_shows_nothing(screen):
    screen.send(started(), ended())
    go_to(screen, "^bash", "K<C-w>h")
    wait_until(screen.actions)
    screen.answer("inspect_tool_use", **shown_use())
    assert screen.lua("return #vim.api.nvim_list_wins()") == 3


def test_beside_a_tool_use_there_is_nothing_to_show(screen):
    screen.send(TURN_STARTED, delta("Text."), *edited(), delta("More.", 2))
    go_to(screen, r"^More\.", "K")
    screen.wait_for_message("No tool call under the cursor.")
    go_to(screen, r"^Text\.", "K")
    go_to(screen, "^edit", "zojjjK")
    wait_until(lambda: screen.actions() == [{"type": "inspect_tool_use", "id": "t1"}])


# --- mode --------------------------------------------------------------------------------------------------------------


def prompt_winbar(screen):
    return next(
        row
        for row in screen.screen()
        if re.search("(NORMAL |INSERT |│ )(ask|auto|plan) [a-z0-9]", row)
    )


def test_of_tools_that_run_side_by_side_the_first_is_named_and_the_others_are_counted(screen):
    names = ("read", "grep", "bash", "glob")
    screen.send(TURN_STARTED, *(started(name, "x", name) for name in names))
    assert "running read and 3 more" in prompt_winbar(screen)
    screen.send(ended(id_="read"), ended(id_="glob"))
    assert "running grep and 1 more" in prompt_winbar(screen)
    screen.send(ended(id_="bash"))
    assert prompt_winbar(screen).rstrip().endswith("running grep")


def test_a_key_in_the_prompt_goes_through_the_modes(screen):
    screen.feed("<S-Tab>i<S-Tab><S-Tab>")
    modes = ["auto", "plan", "ask"]
    expected = [{"type": "set_mode", "mode": mode} for mode in modes]
    wait_until(lambda: screen.actions() == expected)
    assert screen.mode() == "i"
    assert screen.prompt_lines() == [""]


def test_in_the_completion_menu_the_key_selects(screen):
    screen.feed("ialpha alphabet alp<C-x><C-p>")
    wait_until(lambda: screen.lua("return vim.fn.pumvisible()") == 1)
    screen.feed("<S-Tab>")
    screen.lua("return 1")
    assert screen.actions() == []


@pytest.mark.parametrize(
    "mode, group",
    prove_rest([("ask", "AgentStatus"), ("auto", "AgentModeAuto"), ("plan", "AgentModePlan")]),
)
def test_the_mode_is_in_the_winbar_of_the_prompt(screen, mode, group):
    screen.send({"type": "mode_changed", "mode": mode})
    assert f" {mode} " in prompt_winbar(screen)
    bar = screen.lua("return require('sanderling.status').prompt_winbar()")
    assert f"%#{group}#{mode}" in bar
    is_told = f"mode {mode}" in screen.statusline()
    assert is_told == (mode != "ask")


def test_agentmode_sets_tells_completes_and_refuses(screen):
    screen.feed(":AgentMode plan<CR>")
    wait_until(lambda: screen.actions() == [{"type": "set_mode", "mode": "plan"}])
    assert screen.lua("return require('sanderling').mode()") == "ask"  # it is not confirmed
    screen.send({"type": "mode_changed", "mode": "plan"})
    assert screen.lua("return require('sanderling').mode()") == "plan"
    screen.feed(":AgentMode<CR>")
    screen.wait_for_message("Mode plan: nothing can be changed")
    assert screen.lua("return vim.fn.getcompletion('AgentMode ', 'cmdline')") == [
        "ask",
        "auto",
        "plan",
    ]
    assert screen.lua("return vim.fn.getcompletion('Mode a', 'cmdline')") == ["ask", "auto"]
    screen.feed(":AgentMode yolo<CR>")
    screen.wait_for_message("AgentMode: ask, auto or plan, not 'yolo'.")
    with pytest.raises(NvimError, match="'ask', 'auto' or 'plan'"):
        screen.lua("require('sanderling').mode('yolo')")
    assert not screen.is_blocked()


def test_the_mode_works_before_the_chat_was_opened_and_is_confirmed_below(start_screen):
    screen = start_screen()
    assert screen.lua("return require('sanderling').mode()") == "ask"
    assert screen.lua("return package.loaded['sanderling.chat'] == nil")
    screen.command("AgentMode auto")
    screen.send({"type": "mode_changed", "mode": "auto"})
    assert "Mode auto: anything the sandbox can confine runs without asking." in screen.messages()
    assert screen.lua("return #vim.api.nvim_list_wins()") == 1


def test_a_new_host_begins_in_mode_ask(screen):
    screen.send({"type": "mode_changed", "mode": "auto"})
    screen.lose_host()
    assert screen.lua("return require('sanderling').mode()") == "ask"
    assert " ask " in prompt_winbar(screen)


def test_the_words_of_the_chat_know_mode_todo_and_terminal(screen):
    screen.feed(":mode auto<CR>")
    wait_until(lambda: screen.actions() == [{"type": "set_mode", "mode": "auto"}])
    screen.feed(":todo<CR>")
    screen.wait_for_message("No todo list yet")
    screen.feed(":terminal<CR>")
    screen.wait_for_message("No jobs in this conversation")


# --- to-do list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns, lines", [(120, 40), (60, 20)])
def test_the_list_is_pinned_around_what_is_in_progress(start_chat, columns, lines):
    screen = start_chat(columns=columns, lines=lines)
    screen.send(TURN_STARTED, todo(*["completed"] * 4, "in_progress", *["pending"] * 5))
    shown = [row for row in screen.screen() if "item" in row or ":Agent todo" in row]
    assert "☑ item 3" in shown[0]
    assert "◐ item 4" in shown[1]
    assert "☐ item 5" in shown[2]
    assert "more: :Agent todo" in shown[-1]
    assert 3 <= len(shown) <= 6


def test_the_list_stays_below_what_is_typed(screen):
    screen.send(TURN_STARTED, todo("in_progress", "pending"))
    screen.feed("ione<Esc>otwo")
    wait_until(lambda: screen.prompt_lines() == ["one", "two"])
    text = screen.screen_text()
    assert text.index("two") < text.index("◐ item 0") < text.index("☐ item 1")


def test_a_done_list_is_hidden_when_the_turn_ends_and_an_open_one_when_the_next_starts(screen):
    screen.send(TURN_STARTED, todo("completed", "completed"))
    assert "☑ item 1" in screen.screen_text()
    screen.send(TURN_ENDED)
    assert "item" not in screen.screen_text()
    screen.send(TURN_STARTED, todo("completed", "pending"), TURN_ENDED)
    assert "☐ item 1" in screen.screen_text()
    screen.send(TURN_STARTED)
    assert "item" not in screen.screen_text(), "it was the list of the turn before"
    screen.send(todo("completed", "pending"))
    assert "☐ item 1" in screen.screen_text()
    screen.send(todo())
    assert "item" not in screen.screen_text()
    screen.send(todo("pending"))
    screen.command("lua require('sanderling').clear()")
    assert "item" not in screen.screen_text()


def test_agenttodo_shows_the_whole_list_in_a_float(start_screen):
    screen = start_screen()
    screen.feed(":Agent todo<CR>")
    screen.wait_for_message("No todo list yet")
    screen.command("AgentChat")
    screen.send(todo(*["completed"] * 10, "in_progress", *["pending"] * 9))
    screen.command("Agent todo")
    text = screen.screen_text()
    assert "☑ item 0" in text
    assert "☐ item 19" in text
    assert screen.lua("return vim.fn.getline('.')") == "◐ item 10"
    screen.feed("q")
    wait_until(lambda: "item 0" not in screen.screen_text())


def test_an_item_is_one_line_in_which_nothing_hides(screen):
    item = {"content": "a\n\u202eb" + "x" * 500, "status": "in_progress"}
    screen.send(TURN_STARTED, {"type": "todo_changed", "items": [item]})
    assert "◐ a ·bx" in screen.screen_text()
    assert "went wrong" not in screen.messages()


# --- jobs --------------------------------------------------------------------------------------------------------------


def terminal(screen):
    return [line for line in screen.lines() if line]


def job_output(text, id_="j0"):
    return {"type": "job_output", "id": id_, "text": text}


def test_jobs_that_run_are_counted_in_winbar_and_statusline(screen):
    screen.send(jobs("", "", "exit status 0"))
    assert "2 jobs" in prompt_winbar(screen)
    assert "2 jobs" in screen.statusline()
    screen.send(jobs("done", "", "done"))
    assert "1 job" in prompt_winbar(screen)
    screen.send(jobs("done", "done", "done"))
    assert "job" not in prompt_winbar(screen)


def test_agentterminal_watches_the_newest_job_and_shows_what_it_writes(screen):
    screen.send(jobs("", ""))
    screen.command("Agent terminal")
    assert screen.actions() == [{"type": "watch_job", "id": "j1", "is_on": True}]
    screen.send(
        job_output("one\n\x1b[31mred\x1b[0m\ntwo\r\nthree", "j1"), job_output("other", "j0")
    )
    wait_until(lambda: terminal(screen) == ["one", "red", "two", "three"])
    assert screen.lua("return vim.bo.buftype") == "terminal"
    screen.send(job_output("!\n", "j1"), jobs("", "exit status 3"))
    wait_until(lambda: terminal(screen)[-2:] == ["three!", "[exit status 3]"])
    screen.send(jobs("", "exit status 3"))
    assert terminal(screen).count("[exit status 3]") == 1


def test_agentterminal_watches_the_command_that_runs_rather_than_jobs(screen):
    screen.send(jobs("", "exit status 0"), started("bash", "make test", "t7"))
    screen.command("Agent terminal")
    assert screen.actions() == [{"type": "watch_job", "id": "t7", "is_on": True}]
    screen.send(job_output("one\n", "t7"), job_output("other", "j1"))
    wait_until(lambda: terminal(screen) == ["one"])
    screen.command("Agent terminal!")
    assert screen.actions()[-1] == {"type": "stop_job", "id": "t7"}
    screen.send(ended("exit status 130 · 2 s", "", "t7"))
    wait_until(lambda: terminal(screen) == ["one", "[exit status 130 · 2 s]"])
    screen.command("close")
    screen.command("Agent terminal")
    assert screen.actions()[-1] == {"type": "watch_job", "id": "j0", "is_on": True}


def test_watched_command_that_becomes_a_job_goes_on(screen):
    screen.send(started("bash", "make test", "t7"))
    screen.command("Agent terminal")
    screen.send(job_output("one\n", "t7"), ended("→ j0", "", "t7", job="j0"), jobs(""))
    screen.send(job_output("two\n", "t7"), jobs("exit status 3"))
    wait_until(lambda: terminal(screen) == ["one", "two", "[exit status 3]"])


def with_terminal(outcome=""):
    event = jobs("", outcome)
    event["jobs"][1]["has_terminal"] = True
    return event


def has_quit(screen):
    return not is_alive(screen.pid)


def is_refused(screen):
    if screen.is_blocked():  # "E162: No write since last change for buffer …"
        screen.feed("<CR>")
        return False
    return "Job j1 runs in its terminal. :qa! ends it." in screen.messages()


@pytest.mark.parametrize("quits", [":qa<CR>", ":wqa<CR>", ":only<CR>:q<CR>", ":only<CR>ZZ"])
def test_neovim_does_not_quit_while_a_terminal_that_was_opened_runs(screen, quits):
    screen.send(with_terminal())
    screen.command("Agent terminal j1")
    screen.feed(quits)
    wait_until(lambda: is_refused(screen))
    assert screen.lua("return vim.bo.buftype") == "terminal"
    assert "which runs" not in screen.lua("return vim.fn.execute('ls!')")
    screen.send(with_terminal("exit status 0"))
    screen.feed(":qa<CR>")
    wait_until(lambda: has_quit(screen))


def test_quitting_with_a_question_leaves_the_choice_to_the_user(screen):
    screen.send(with_terminal())
    screen.command("Agent terminal j1")
    screen.feed(":confirm qa<CR>")
    wait_until(lambda: "Save changes to" in screen.screen_text())
    screen.feed("c")
    wait_until(lambda: is_refused(screen))
    screen.feed(":confirm qa<CR>")
    wait_until(lambda: "Save changes to" in screen.screen_text())
    screen.feed("n")
    wait_until(lambda: has_quit(screen))


@pytest.mark.parametrize("opened, quits", [("j1", ":qa!"), ("j0", ":qa"), ("", ":qa")])
def test_neovim_quits_with_jobs_that_the_user_does_not_have_open_in_a_terminal(
    screen, opened, quits
):
    screen.send(with_terminal())
    if opened:
        screen.command(f"Agent terminal {opened}")
    screen.feed(f"{quits}<CR>")
    wait_until(lambda: has_quit(screen))


def test_agentterminal_does_not_wait_for_a_command_that_is_asked_about(screen):
    asked = {"type": "approval_requested", "id": "t7", "tool": "bash", "title": "make test"}
    asked |= {"subject": "make test", "reason": "", "cwd": "/", "choices": ["once"]}
    screen.send(jobs(""), started("bash", "make test", "t7"), asked)
    screen.command("Agent terminal")
    assert screen.actions() == [{"type": "watch_job", "id": "j0", "is_on": True}]


CLIPBOARD = "52;c;ZXZpbA=="
WHOLE = "\x1b[2J\x1b[HabcdefghÜi"  # alone
HOSTILE_OUTPUT = {
    "strings": f"a\x1b]{CLIPBOARD}\x07b\x1b]{CLIPBOARD}\x1b\\c\x1bP1$r\x1b\\d\x9d{CLIPBOARD}\x9ce"
    "\x1b_x\x1b\\f\x1b]0;title\x18g\x1b[1mh\x1b[0mÜ\x1b]2;Ü\x07i",
    **{
        f"control {control:#x}": f"\x1b{chr(control)}]{CLIPBOARD}\x07\x1b]{chr(control)}0;x\x07"
        f"\x1b{chr(control)}P1$r\x07\x1b[{chr(control)}0m\x1b[1{chr(control)}\x1b]2;x\x07{WHOLE}"
        for control in (*range(24), 25, *range(28, 32), 127)
    },
    "line feed": f"\x1b\n]{CLIPBOARD}\x07\x1b\n\r\n]2;x\x1b\\{WHOLE}",
    "controls": f"abcdef\x1b\0\x01\t\b\x7f]{CLIPBOARD}\x07g\x9b\x010mh\x90x\x9cÜ\x1b\x1b]2;x\x07i",
    "C1": f"abcdef\x9d{CLIPBOARD}\x07\x90x\x9c\x98x\x9c\x9ex\x9c\x9f52;x\x9cg\x9b1mh\x9b0m\x85Ü\x80\x99i",
    "cancelled": f"abcdef\x1b\x18g\x1b[1\x1ah\x1b[1\x1b]{CLIPBOARD}\x07Ü\x1b[\x9d{CLIPBOARD}\x07i",
    "in a CSI": f"\x1b[1\x1b]{CLIPBOARD}\x07\x1b[\x1b\x1b]2;x\x07\x1b[0;\x07m\x1b[99]2;x\b\x1b[ü]2;x{WHOLE}",
    "other": "abc\x1b(Bdef\x1b7g\x1b8h\x1b=\x1b>\x1bc\x1b( ]\x1b%G\x1b#8\x1b#Ü\x1b N\x1bNi",
    "answers": "abc\x1b[6n\x1b[cd\x1b[>c\x1b[>qe\x1b[?6nf\x1b[21tg\x1b[?25$ph\x1b[!pÜ\x1b[?u\x1b[=1ui",
    "long": f"abcdefgh\x1b[{'1;' * 99}m\x1b[{'9' * 200}A\x1b]{'x' * 5000}\x07Üi",
}


@pytest.mark.parametrize("name", prove_rest(HOSTILE_OUTPUT, keep=(0, 1, 2, 8, -8, -7, -6, -5, -4)))
def test_what_a_job_writes_cannot_speak_to_the_terminal(screen, name):
    screen.lua("""
      _G.requests = {}
      vim.api.nvim_create_autocmd('TermRequest', { callback = function(args)
        table.insert(_G.requests, args.data)
      end })
      vim.g.clipboard = { name = 'test', copy = {
        ['+'] = function(lines) _G.copied = lines end, ['*'] = function(lines) _G.copied = lines end,
      }, paste = { ['+'] = function() return {} end, ['*'] = function() return {} end } }
    """)
    screen.send(jobs(""))
    screen.command("Agent terminal")
    title = screen.lua("return vim.b.term_title")
    hostile = HOSTILE_OUTPUT[name]
    for split in range(1, len(hostile) + 1, max(3, len(hostile) // 20)):
        screen.send(job_output("\x1b[0m\x1b[2J\x1b[H"))
        screen.send(job_output(hostile[:split]), job_output(hostile[split:]))
        wait_until(lambda: shown(screen).endswith("abcdefghÜi"), f"{name} cut at {split}")
    assert screen.lua("return _G.requests") == []
    assert screen.lua("return _G.copied == nil")
    assert screen.lua("return vim.b.term_title") == title


def shown(screen):
    """What stands in the terminal, without blanks."""
    return "".join("".join(terminal(screen)).split())


def test_a_job_is_stopped_by_a_key_or_a_command_and_hidden_by_q(screen):
    stop = {"type": "stop_job", "id": "j0"}
    screen.send(jobs(""))
    screen.feed(":Agent terminal j0<CR>")
    wait_until(lambda: screen.lua("return vim.bo.buftype") == "terminal")
    screen.feed("<C-c>")
    wait_until(lambda: screen.actions("stop_job") == [stop])
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    screen.feed("<C-c>")
    wait_until(lambda: screen.actions("stop_job") == [stop, stop])
    screen.feed("<C-\\><C-n>q")
    wait_until(lambda: screen.lua("return vim.bo.buftype") != "terminal")
    screen.command("Agent terminal! j0")
    assert screen.actions("stop_job") == [stop, stop, stop]
    screen.send(job_output("while hidden\n"))
    screen.command("Agent terminal")
    wait_until(lambda: terminal(screen) == ["while hidden"])
    assert len(screen.actions("watch_job")) == 1


def shared(screen, outcome=""):
    """Show a job with a terminal."""
    job = {"id": "j0", "command": "bash -i", "outcome": outcome, "has_terminal": True}
    screen.send({"type": "jobs_changed", "jobs": [job]})


def typed(screen):
    return b"".join(base64.b64decode(each["data"]) for each in screen.actions("type_in_terminal"))


def uses(screen):
    return [each["what"] for each in screen.actions("use_terminal")]


def test_the_user_takes_a_terminal_with_i_and_hands_it_back_by_leaving_terminal_mode(screen):
    shared(screen)
    screen.command("Agent terminal")
    assert "The model has the terminal" in screen.lua("return vim.wo.winbar")
    screen.feed("x")
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    wait_until(lambda: "You have the terminal" in screen.lua("return vim.wo.winbar"))
    screen.feed("pw<C-c><C-w><Up>ü<CR>")
    wait_until(lambda: typed(screen) == "pw\x03\x17\x1b[Aü\r".encode())
    screen.feed("<C-\\><C-n>")
    wait_until(lambda: uses(screen) == ["take", "hand_back"])
    assert "The model has the terminal" in screen.lua("return vim.wo.winbar")
    assert screen.actions("stop_job") == []


def test_every_way_out_of_the_window_hands_the_terminal_back(screen):
    shared(screen)
    for number, leave in enumerate(("wincmd p", "hide", "stopinsert", "tabnew", "bwipeout!"), 1):
        screen.command("Agent terminal")
        screen.feed("i")
        wait_until(lambda: screen.mode() == "t")
        screen.lua(f"vim.cmd('{leave}')")
        wait_until(lambda number=number: uses(screen).count("hand_back") >= number, leave)
        assert uses(screen) == ["take", "hand_back"] * number


def test_a_terminal_whose_program_has_ended_belongs_to_no_one(screen):
    shared(screen)
    screen.command("Agent terminal")
    screen.feed("i")
    wait_until(lambda: uses(screen) == ["take"])
    shared(screen, "exit status 0")
    wait_until(lambda: " Exit status 0." in screen.lua("return vim.wo.winbar"))
    sent = len(screen.actions())
    screen.feed("x<C-\\><C-n>")
    wait_until(lambda: screen.mode() == "nt")
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    screen.command("resize 9")
    assert screen.actions()[sent:] == []
    assert " Exit status 0." in screen.lua("return vim.wo.winbar")


def test_the_program_gets_the_size_of_the_window(screen):
    shared(screen)
    screen.command("Agent terminal")
    kinds = [each["type"] for each in screen.actions()]
    assert kinds.index("resize_terminal") < kinds.index("watch_job")
    screen.command("resize 9")
    wait_until(lambda: screen.actions("resize_terminal")[-1]["rows"] == 8)
    width = screen.lua("return vim.api.nvim_win_get_width(0)")
    assert screen.actions("resize_terminal")[-1] == {
        "type": "resize_terminal",
        "id": "j0",
        "rows": 8,
        "columns": width,
    }


def resizes(screen):
    return screen.lua("return #vim.api.nvim_get_autocmds({ event = 'WinResized' })")


def test_the_line_above_says_who_has_the_terminal_until_its_program_has_ended(screen):
    before = resizes(screen)
    shared(screen)
    screen.command("Agent terminal")
    assert resizes(screen) == before + 1
    screen.command("hide")
    screen.command("Agent terminal")
    assert "The model has the terminal" in screen.lua("return vim.wo.winbar")
    shared(screen, "exit status 0")
    wait_until(lambda: " Exit status 0." in screen.lua("return vim.wo.winbar"))
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    assert uses(screen) == []
    assert resizes(screen) == before
    screen.feed("<C-\\><C-n>")
    screen.command("bwipeout!")
    screen.command("Agent terminal")
    assert " Exit status 0." in screen.lua("return vim.wo.winbar")


def test_cursor_keys_are_sent_as_the_program_asked(screen):
    shared(screen)
    screen.command("Agent terminal")
    screen.send(job_output("\x1b[?1h"))
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    screen.feed("<Up>")
    wait_until(lambda: typed(screen) == b"\x1bOA")


def test_agent_reveal_shows_the_model_the_screen(screen):
    shared(screen)
    screen.command("Agent reveal")
    assert screen.actions() == [{"type": "use_terminal", "id": "j0", "what": "show"}]
    screen.send(jobs("", ""))
    screen.command("Agent reveal j1")
    assert "j1 has no terminal" in screen.messages()


def test_agent_reveal_finds_the_terminal_behind_a_command_and_says_when_it_has_ended(screen):
    shared(screen)
    screen.send(started("bash", "make test", "t7"))
    screen.command("Agent reveal")
    assert [each["id"] for each in screen.actions("use_terminal")] == ["j0"]
    shared(screen, "exit status 0")
    screen.command("Agent reveal j0")
    assert "j0 is over: exit status 0." in screen.messages()
    screen.command("Agent reveal")
    assert "No terminal runs in this conversation." in screen.messages()
    assert len(screen.actions("use_terminal")) == 1


def test_a_terminal_can_be_taken_while_the_call_that_starts_it_still_runs(screen):
    screen.send(started("bash", "bash …", "t7"))
    shared(screen)
    screen.command("Agent terminal")
    assert screen.actions("watch_job") == [{"type": "watch_job", "id": "j0", "is_on": True}]
    assert "The model has the terminal" in screen.lua("return vim.wo.winbar")


def test_a_terminal_that_is_shown_again_has_its_line_and_its_first_row(screen):
    shared(screen)
    screen.command("Agent terminal")
    rows = screen.actions("resize_terminal")[-1]["rows"]
    screen.send(job_output("\x1b[m\x1b[H\x1b[J>>> " + "\r\n" * (rows - 1) + "\x1b[1;5H"))
    wait_until(lambda: terminal(screen) == [">>> "])
    assert screen.lua("return vim.fn.line('w0')") == 1
    screen.feed("q")
    wait_until(lambda: screen.lua("return vim.bo.buftype") != "terminal")
    screen.command("Agent terminal")
    assert "The model has the terminal" in screen.lua("return vim.wo.winbar")


@pytest.mark.parametrize("is_opened_before", [True, False])
def test_a_terminal_that_has_ended_says_so_and_cannot_be_taken(screen, is_opened_before):
    shared(screen, "" if is_opened_before else "exit status 0 %x")
    screen.command("Agent terminal")
    shared(screen, "exit status 0 %x")
    screen.send(job_output("\x1b[m\x1b[H\x1b[J>>> exit()"))
    wait_until(lambda: terminal(screen) == [">>> exit()"])
    assert " Exit status 0 %%x." in screen.lua("return vim.wo.winbar")
    screen.feed("i")
    wait_until(lambda: screen.mode() == "t")
    screen.feed("x<C-\\><C-n>")
    wait_until(lambda: screen.mode() == "nt")
    assert " Exit status 0 %%x." in screen.lua("return vim.wo.winbar")
    assert (uses(screen), typed(screen)) == ([], b"")


def test_a_job_is_watched_no_longer_when_its_buffer_is_gone_and_again_when_it_is_asked_for(screen):
    screen.send(jobs(""))
    screen.command("Agent terminal")
    screen.command("bwipeout!")
    watch = {"type": "watch_job", "id": "j0", "is_on": True}
    assert screen.actions() == [watch, watch | {"is_on": False}]
    screen.send(job_output("lost"))
    screen.command("Agent terminal")
    assert screen.actions()[2:] == [watch]


def test_agentterminal_completes_ids_and_says_which_it_does_not_know(screen):
    screen.send(jobs("", ""))
    assert screen.lua("return vim.fn.getcompletion('Agent terminal ', 'cmdline')") == ["j0", "j1"]
    screen.command("Agent terminal nope")
    assert "No job nope." in screen.messages()
    assert screen.actions() == []


def test_the_terminal_takes_nothing_of_the_chats_windows(screen):
    screen.send(jobs(""))
    screen.feed("<C-w>k")
    screen.command("Agent terminal")
    options = screen.lua("return { vim.wo.winbar, vim.wo.winfixbuf, vim.bo.filetype }")
    assert options == ["", False, ""]
    assert screen.transcript_win()
    screen.send(started(), ended())
    go_to(screen, "^bash")


def test_when_the_host_ends_a_terminal_says_so_and_watches_nothing(screen):
    screen.send(jobs(""))
    screen.command("Agent terminal")
    screen.lose_host()
    wait_until(lambda: terminal(screen) == ["[The agent process ended.]"])
    screen.command("bwipeout!")
    assert len(screen.actions("watch_job")) == 1
