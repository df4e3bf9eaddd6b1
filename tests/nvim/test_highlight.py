"""Markdown is highlighted block by block, where it is seen."""

import json
import time

import pytest
from tests.conftest import prove, prove_rest, wait_until

MARGIN_LINES, MAX_MARKS = 40, 10_000  # of transcript/markdown.lua


def captures(child, line):
    """The highlight groups on the first transcript line that equals `line`."""
    return child.lua(
        """
        local wanted = ...
        local buf = require('sanderling').transcript().buf
        local ns = vim.api.nvim_get_namespaces().sanderling_markdown
        for row, text in ipairs(vim.api.nvim_buf_get_lines(buf, 0, -1, true)) do
          if text == wanted then
            local groups = {}
            local marks = vim.api.nvim_buf_get_extmarks(buf, ns, { row - 1, 0 }, { row - 1, -1 }, { details = true, overlap = true })
            for _, mark in ipairs(marks) do
              groups[#groups + 1] = mark[4].hl_group
            end
            return groups
          end
        end
        return {}
        """,
        line,
    )


def answered(scripted, text, **step):
    fields = "\n".join(f"{key} = {json.dumps(value)}" for key, value in step.items())
    child = scripted(f"[[reply]]\n[[reply.step]]\ntext = {json.dumps(text)}\n{fields}\n")
    child.chat("go")
    return child


def wait_for_capture(child, line, group):
    wait_until(
        lambda: group in captures(child, line), f"{group} on {line!r}: {captures(child, line)}"
    )


def test_headings_emphasis_and_code_are_highlighted(scripted):
    child = answered(
        scripted, "# Title\n\nSome `code` and **strong**.\n\n```lua\nlocal x = 1\n```\n"
    )
    wait_for_capture(child, "# Title", "@markup.heading.1.markdown")
    wait_for_capture(child, "Some `code` and **strong**.", "@markup.strong.markdown_inline")
    wait_for_capture(child, "local x = 1", "@keyword.lua")


@prove
def test_a_block_is_highlighted_while_it_still_grows(scripted):
    child = scripted("""
[[reply]]
[[reply.step]]
text = "```lua\\nlocal early = 1\\n"
[[reply.step]]
delay_ms = 20000
""")
    child.open_chat()
    child.submit("go")
    wait_for_capture(child, "local early = 1", "@keyword.lua")


@prove
def test_code_keeps_its_language_across_blank_lines_and_long_fences(scripted):
    body = "\n".join(f"local v{n} = {n}" for n in range(100))
    child = answered(
        scripted,
        f"```lua\nlocal first = 1\n\nlocal second = 2\n{body}\n```\n\nplain **text**\n",
        chunk_chars=50,
    )
    child.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    child.feed("gg")
    wait_for_capture(child, "local second = 2", "@keyword.lua")
    child.feed("G")
    wait_for_capture(child, "local v99 = 99", "@keyword.lua")
    wait_for_capture(child, "plain **text**", "@markup.strong.markdown_inline")


@prove
def test_only_what_is_seen_is_parsed_and_the_rest_when_it_is_scrolled_to(scripted):
    child = answered(scripted, "".join(f"paragraph **{n}**\n\n" for n in range(1000)))
    wait_for_capture(child, "paragraph **999**", "@markup.strong.markdown_inline")
    assert captures(child, "paragraph **500**") == []
    child.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    child.feed("/\\*\\*500<CR>")
    wait_for_capture(child, "paragraph **500**", "@markup.strong.markdown_inline")


def marked_rows(child):
    return child.lua("""
      local buf = require('sanderling').transcript().buf
      local ns = vim.api.nvim_get_namespaces().sanderling_markdown
      return vim.tbl_map(function(mark) return mark[2] end, vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, {}))
    """)


def wait_until_marked(child):
    """Until nothing more is highlighted; returns the rows of the marks."""
    readings = []

    def is_quiet():
        readings.append(marked_rows(child))
        time.sleep(0.1)
        return len(readings) >= 5 and all(each == readings[-1] for each in readings[-5:])

    wait_until(is_quiet, "highlighting comes to an end")
    return readings[-1]


def says(text, block_id=1):
    return {"type": "text_delta", "block_id": block_id, "text": text}


def paragraphs(first, last):
    return "".join(f"paragraph **{n}**\n\n" for n in range(first, last))


def test_what_has_scrolled_by_before_it_could_be_highlighted_stays_plain(screen):
    """Each page is on the screen once, and the next one comes at once."""
    screen.lua(
        """
        local id = vim.b[require('sanderling').transcript().buf].sanderling_session
        for block_id, text in ipairs(...) do
          require('sanderling.host').receive({ session_id = id, seq = block_id, events = {
            { type = 'text_delta', block_id = block_id, text = text },
            { type = 'block_ended', block_id = block_id },
          } })
          vim.cmd.redraw()
        end
        """,
        [paragraphs(first, first + 20) for first in range(0, 2000, 20)],
    )
    rows = wait_until_marked(screen)
    assert "@markup.strong.markdown_inline" in captures(screen, "paragraph **1999**")
    assert min(rows) >= screen.in_transcript("line('w0')") - MARGIN_LINES - 1 - 2, "of a block"


@prove
def test_marks_far_from_any_window_are_dropped_and_made_again_when_they_are_seen(screen):
    dense = "".join("`a` **b** *c* " * 8 + f"{n}\n\n" for n in range(1000))
    screen.send(says(dense), {"type": "block_ended", "block_id": 1})
    screen.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    top_rows = []
    for lnum in (*range(1, 2000, 200), 1):
        screen.feed(f"<Esc>{lnum}Gzt")
        line = screen.transcript()[lnum - 1]
        wait_for_capture(screen, line, "@markup.strong.markdown_inline")
        rows = wait_until_marked(screen)
        assert len(rows) <= MAX_MARKS
        top_rows.append([row for row in rows if row < 100])
    assert top_rows[0] == top_rows[1]
    assert top_rows[-2] == []
    assert top_rows[-1] == top_rows[0]


def test_a_block_keeps_its_highlights_from_the_time_when_it_grew(screen):
    """Else it would be plain for a moment each time that a paragraph ends."""
    screen.send(says("some **strong** words"))
    wait_for_capture(screen, "some **strong** words", "@markup.strong.markdown_inline")
    screen.send(says(".\n\nMore"))
    assert "@markup.strong.markdown_inline" in captures(screen, "some **strong** words.")


@prove
def test_a_nested_lists_paragraph_is_not_taken_for_code(scripted):
    child = answered(scripted, "1. one\n\n    more of **one**\n\n2. two\n")
    wait_for_capture(child, "1. one", "@markup.list.markdown")
    assert "@markup.raw.block.markdown" not in captures(child, "    more of **one**")


@prove
def test_a_block_of_enormous_lines_stays_plain(scripted):
    line = "**x** " * 1_600
    child = answered(scripted, "\n".join([line] * 4), chunk_chars=2000)
    assert child.transcript()[-4:] == [line] * 4
    assert captures(child, line) == []


NESTED = [
    "> " * 300 + "deep",
    ">" * 300 + "deep",
    "- " * 300 + "deep",
    "- " * 150 + "deep\n" + " " * 300 + "- " * 150 + "deeper",
    "```markdown\n" + "> " * 300 + "deep\n```",
]


@pytest.mark.parametrize("text", prove_rest(NESTED, (0,)))
def test_an_answer_that_the_parser_would_not_survive_stays_plain(scripted, text):
    child = answered(scripted, f"{text}\n\nSome **strong**.", chunk_chars=2000)
    wait_for_capture(child, "Some **strong**.", "@markup.strong.markdown_inline")


def test_delimiters_in_a_row_do_not_stall_the_editor(scripted):
    child = answered(scripted, "*" * 9_000 + "a", chunk_chars=9000)
    assert captures(child, child.transcript()[-1]) == []


def test_long_strings_without_an_end_do_not_stall_the_editor(scripted):
    line = "[[" * 4_000
    child = answered(scripted, f"```lua\n{line}\n{line}\n```", chunk_chars=9000)
    assert captures(child, line) == []


# --- what is concealed, aligned and colored ---------------------------------------------------------------------------

CONTINUATION = "@punctuation.special.markdown"
TABLE = "| way | lines |\n| :-- | --: |\n| `raise` | 2 |\n| **é** return | 10 |\n"


def rows_of_chat(child, count, first):
    """The rows of a screen whose chat fills it, from the one that begins with `first` on."""
    rows = [row.strip() for row in child.screen()]  # beside a column for folds
    top = next((n for n, row in enumerate(rows) if row.startswith(first)), None)
    return [] if top is None else rows[top : top + count]


@pytest.fixture
def wide(start_screen):
    child = start_screen(columns=60, lines=30)
    child.command("AgentChat tab")
    return child


def test_signs_that_only_say_how_text_looks_are_concealed_but_where_the_cursor_is(wide):
    wide.send(
        says("`code`, **strong** *word*, [page](e.org), a[0], __b__.\n\nend"),
        {"type": "block_ended", "block_id": 1},
    )
    seen = "code, strong word, page, a[0], __b__."
    wait_until(lambda: seen in wide.screen_text(), wide.screen_text())
    wide.feed("<C-w>k")
    assert "[page](e.org)" in wide.transcript()[0]
    wide.feed("gg")
    wide.wait_for_screen("`code`, **strong**")


def test_a_prompt_is_shown_as_it_was_typed(wide):
    prompt = {"id": "1", "text": "src/*.py and tests/*.py, `this`"}
    wide.send({"type": "turn_started", "prompt": prompt})
    wait_until_marked(wide)
    assert prompt["text"] in wide.screen_text()


def test_the_columns_of_a_table_stand_below_each_other_once_it_is_complete(wide):
    wide.send(says(TABLE), {"type": "block_ended", "block_id": 1})
    aligned = ["│ way      │ lines │", "│──────────│───────│", "│ raise    │     2 │"]
    wait_until(lambda: rows_of_chat(wide, 3, "│ way") == aligned, wide.screen_text())
    assert wide.transcript()[0] == "| way | lines |"


WIDE = (
    "| file | what is wrong in there | n |\n| :-- | --- | --: |\n"
    "| `src/app.py:12` | the **first** of the two calls gets no deadline | 1 |\n"
    "| b | none | 10 |\n"
)
FITTED = [
    "│ file          │ what is    │  n │",
    "│               │ wrong in   │    │",
    "│               │ there      │    │",
    "│───────────────│────────────│────│",
    "│ src/app.py:12 │ the first  │  1 │",
]


@pytest.mark.parametrize("behind", ["\nThat is all.", ""])
def test_a_table_that_is_wider_than_the_window_has_wrapped_cells(start_screen, behind):
    screen = start_screen(columns=36, lines=30)
    screen.command("AgentChat tab")
    screen.send(says(WIDE + behind), {"type": "block_ended", "block_id": 1})
    wait_until(lambda: rows_of_chat(screen, 5, "│ file") == FITTED, str(FITTED))
    rows = [row for row in screen.screen() if "│" in row]
    assert len({tuple(n for n, sign in enumerate(row) if sign == "│") for row in rows[:3]}) == 1
    assert "│ b             │ none       │ 10 │" in screen.screen_text()
    assert "| b" not in screen.screen_text()
    assert screen.transcript()[2] == WIDE.splitlines()[2]
    screen.rpc.request("nvim_ui_try_resize", 90, 30)
    screen.wait_for_screen("│ the first of the two calls gets no deadline │  1 │")
    screen.rpc.request("nvim_ui_try_resize", 36, 30)
    wait_until(lambda: rows_of_chat(screen, 5, "│ file") == FITTED, str(FITTED))


def test_the_first_table_is_drawn_although_loading_queries_takes_long(start_screen):
    screen = start_screen(columns=60, lines=20)
    screen.lua(
        """
        local get, is_loaded = vim.treesitter.query.get, {}
        vim.treesitter.query.get = function(lang, name)
          local ends = os.clock() + (is_loaded[lang .. name] and 0 or 0.1)
          while os.clock() < ends do
          end
          is_loaded[lang .. name] = true
          return get(lang, name)
        end
        """
    )
    screen.command("AgentChat tab")
    screen.send(says("| a | bcd |\n|---|---|\n| e | f |\n\nend"))
    screen.send({"type": "block_ended", "block_id": 1})
    screen.wait_for_screen("│ e │ f   │")


def test_a_table_that_cannot_fit_is_as_it_was_written(start_screen):
    screen = start_screen(columns=24, lines=20)
    screen.command("AgentChat tab")
    cells = ["long cell"] * 6
    table = f"| {' | '.join(cells)} |\n|{'-|' * 6}\n| {' | '.join(cells)} |\n\nend"
    screen.send(says(table), {"type": "block_ended", "block_id": 1})
    wait_for_capture(screen, table.splitlines()[0], "@markup.heading.markdown")
    assert "| long cell | long" in screen.screen_text()
    assert "│ long" not in screen.screen_text()


@prove
def test_the_row_of_a_wide_table_with_the_cursor_is_as_it_was_written(start_screen):
    screen = start_screen(columns=36, lines=30)
    screen.command("AgentChat tab")
    screen.send(says(WIDE + "\nend"), {"type": "block_ended", "block_id": 1})
    screen.wait_for_screen("│ file  ")
    screen.feed("<C-w>k/none<CR>yy")
    screen.wait_for_screen("| b | none | 10 |", "│ file  ")
    assert screen.lua("return vim.fn.getreg('0')") == "| b | none | 10 |\n"


def test_a_table_has_signs_in_ascii_where_others_are_not_wanted(start_screen):
    screen = start_screen(columns=60, lines=20)
    screen.setup(icons="ascii")
    screen.command("AgentChat tab")
    screen.send(says(TABLE + "\n> said\n\nend"), {"type": "block_ended", "block_id": 1})
    screen.wait_for_screen("|----------|-------|")
    screen.wait_for_screen("| said")  # a block may be drawn later than another
    assert screen.screen_text().replace("é", "e").isascii()


def grounds(child, *wanted):
    """The attributes at the right edge of the screen, in the rows that begin with each of `wanted`."""
    rows = [row.strip() for row in child.screen()]
    return [
        child.lua("return vim.fn.screenattr(...)", rows.index(text) + 1, len(child.screen()[0]))
        for text in wanted
    ]


FENCED = "Look:\n```lua\nlocal x = 1\n\nreturn x\n```\nThat is all.\n\nend"


def test_code_has_a_background_as_wide_as_the_window_and_its_language_above(wide):
    wide.send(says(FENCED), {"type": "block_ended", "block_id": 1})
    wait_until(lambda: len(rows_of_chat(wide, 3, "lua")) == 3, wide.screen_text())
    assert rows_of_chat(wide, 7, "Look:") == [
        "Look:",
        "lua",
        "local x = 1",
        "",
        "return x",
        "",
        "That is all.",
    ]
    prose, behind, label, code = grounds(wide, "Look:", "That is all.", "lua", "return x")
    assert prose == behind != label == code
    assert wide.transcript()[:3] == ["Look:", "```lua", "local x = 1"]


def test_wrapped_code_has_its_background_also_before_the_indent(wide):
    line = "    return " + "word " * 60
    wide.send(says(f"Look:\n```lua\n{line}\n```\n\nend"), {"type": "block_ended", "block_id": 1})
    wide.wait_for_screen("return word")

    def attributes():
        return wide.lua("""
          vim.cmd.redraw()
          local win = require('sanderling').transcript().win
          local at, shown = vim.fn.screenpos(win, 3, 1), {}
          for row = at.row, at.row + 2 do
            shown[#shown + 1] = vim.fn.screenattr(row, at.col)
          end
          shown[#shown + 1] = vim.fn.screenattr(at.row - 2, at.col)
          return shown
        """)

    wait_until(lambda: len(set(attributes()[:3])) == 1 and attributes()[3] != attributes()[0])


def test_code_that_is_too_much_for_a_parser_has_its_background_too(wide):
    wide.send(says("Look:\n```json\n" + "{" * 300 + "\nx\n```\n\nend"))
    wide.send({"type": "block_ended", "block_id": 1})
    wide.wait_for_screen("```json", "Look:")
    wait_until(lambda: wide.screen_text() and len(set(grounds(wide, "Look:", "x"))) == 2)


def test_what_comes_behind_too_much_code_has_its_background_too(wide):
    wide.send(says("Look:\n```json\n" + "{" * 300 + "\n"))
    wide.wait_for_screen("```json", "Look:")
    wait_until(lambda: len(set(grounds(wide, "Look:", "```json"))) == 2)
    wide.send(says("late\n"))
    wait_until(lambda: len(set(grounds(wide, "Look:", "late"))) == 2)
    wide.send(says("later\n```\n"), {"type": "block_ended", "block_id": 1})
    wait_until(lambda: len(set(grounds(wide, "late", "later"))) == 1)


@prove
def test_code_keeps_its_background_from_one_block_to_the_next(wide):
    body = "".join(f"v{n}\n" for n in range(45))
    wide.send(says(f"```lua\n{body}```\n\nend"), {"type": "block_ended", "block_id": 1})
    wide.wait_for_screen("v35", "v44", "end")
    wait_until(lambda: len(set(grounds(wide, "v44", "end"))) == 2)
    assert len(set(grounds(wide, *(f"v{n}" for n in range(35, 45))))) == 1


def test_headings_are_without_their_signs_and_differ_by_level(wide):
    wide.send(says("# One\n\n## Two\n\n### Three\n\n#none\n\n#\n\nend"))
    wide.send({"type": "block_ended", "block_id": 1})
    wanted = ["One", "", "Two", "", "Three", "", "#none", "", "#", "", "end"]
    wait_until(lambda: rows_of_chat(wide, 11, "One") == wanted, wide.screen_text())
    for level, line in enumerate(("# One", "## Two", "### Three"), 1):
        assert f"AgentHeading{level}" in captures(wide, line)
    shapes = wide.lua("""
      return vim.iter({ 1, 2, 3 }):map(function(level)
        return vim.api.nvim_get_hl(0, { name = 'AgentHeading' .. level })
      end):totable()
    """)
    assert len({json.dumps(shape) for shape in shapes}) == 3


LONG = "words and more of them, until the row is full and goes on below"


@pytest.mark.parametrize("sign", prove_rest(["- ", "* ", "12. ", "3) ", "- [x] ", "  - ", "> - "]))
def test_a_list_item_that_wraps_goes_on_below_its_first_word(wide, sign):
    wide.send(says(f"{sign}{LONG}\n\nend"), {"type": "block_ended", "block_id": 1})
    wide.wait_for_screen("below", "end")

    def columns():
        rows = wide.screen()
        first = next(row for row in rows if "words and" in row)
        second = rows[rows.index(first) + 1]
        text = second.replace("▎", " ")
        return first.index("words"), len(text) - len(text.lstrip())

    wait_until(lambda: len(set(columns())) == 1, sign)


def test_each_row_of_a_quote_begins_with_a_bar(wide):
    text = f"> {LONG}\n> and *on*\n> > deeper {LONG}\n\na > b\n\nend"
    wide.send(says(text), {"type": "block_ended", "block_id": 1})

    def begins():
        return [row[:3] for row in rows_of_chat(wide, 5, "▎ words")]

    wait_until(lambda: begins() == ["▎ w", "▎ o", "▎ a", "▎ ▎", "▎ ▎"], str(begins()))
    assert "a > b" in wide.screen_text()
    assert wide.transcript()[1] == "> and *on*"


@prove
def test_a_path_with_its_line_is_never_broken_and_breakat_returns_with_the_last_transcript(wide):
    default = wide.lua("return vim.api.nvim_get_option_info2('breakat', {}).default")
    places = " ".join(f"see src/pkg{n}/deep-{n}/module.py:{n}," for n in range(30))
    wide.send(says(places + "\n\nend"), {"type": "block_ended", "block_id": 1})
    wide.wait_for_screen("end")
    for n in range(20, 30):
        assert f"src/pkg{n}/deep-{n}/module.py:{n}," in wide.screen_text()
    wide.command("wincmd k | split | close")
    assert wide.lua("return vim.go.breakat") != default
    wide.command("AgentChat")
    wait_until(lambda: wide.lua("return vim.go.breakat") == default)
    wide.command("set breakat=, | AgentChat")
    wide.wait_for_screen("end")
    assert wide.lua("return vim.go.breakat") == ","


def test_code_whose_language_has_no_parser_has_the_colors_of_vims_syntax(screen):
    code = "def f(x):\n    return 'a' # it\n"
    screen.send(says(f"```python\n{code}```\n"), {"type": "block_ended", "block_id": 1})
    wait_for_capture(screen, "    return 'a' # it", "pythonStatement")
    assert "pythonComment" in captures(screen, "    return 'a' # it")
    assert "pythonFunction" in captures(screen, "def f(x):")
    screen.send(says("```py\npass\n```\n", 2), {"type": "block_ended", "block_id": 2})
    screen.send(says("```no/such\nz = None\n```\n", 3), {"type": "block_ended", "block_id": 3})
    wait_for_capture(screen, "pass", "pythonStatement")
    wait_for_capture(screen, "```no/such", "@label.markdown")
    assert captures(screen, "z = None") in ([], [CONTINUATION])


def test_code_is_plain_where_the_person_wants_no_syntax(screen):
    screen.command("syntax off")
    screen.send(says("```python\nx = None\n```\n"), {"type": "block_ended", "block_id": 1})
    wait_for_capture(screen, "```python", "@label.markdown")
    assert captures(screen, "x = None") in ([], [CONTINUATION])
