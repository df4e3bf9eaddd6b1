"""Markdown is highlighted block by block, where it is seen."""

import json
import time

from tests.conftest import prove, wait_until

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
    child.open_chat()
    child.submit("go")
    child.wait_for_turns()
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
    """The rows on which a mark begins, each as often as there are marks."""
    return child.lua("""
      local buf = require('sanderling').transcript().buf
      local ns = vim.api.nvim_get_namespaces().sanderling_markdown
      return vim.tbl_map(function(mark) return mark[2] end, vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, {}))
    """)


def wait_until_marked(child):
    """Until nothing more is highlighted; returns the rows of the marks."""
    readings = [None]

    def is_quiet():
        readings.append(marked_rows(child))
        time.sleep(0.1)
        return readings[-1] == readings[-2]

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
