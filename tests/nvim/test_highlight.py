"""Markdown is highlighted block by block, where it is seen."""

import json

import pytest
from tests.conftest import wait_until


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


def test_only_what_is_seen_is_parsed_and_the_rest_when_it_is_scrolled_to(scripted):
    child = answered(scripted, "".join(f"paragraph **{n}**\n\n" for n in range(1000)))
    wait_for_capture(child, "paragraph **999**", "@markup.strong.markdown_inline")
    assert captures(child, "paragraph **500**") == []
    child.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    child.feed("/\\*\\*500<CR>")
    wait_for_capture(child, "paragraph **500**", "@markup.strong.markdown_inline")


def test_a_nested_lists_paragraph_is_not_taken_for_code(scripted):
    child = answered(scripted, "1. one\n\n    more of **one**\n\n2. two\n")
    wait_for_capture(child, "1. one", "@markup.list.markdown")
    assert "@markup.raw.block.markdown" not in captures(child, "    more of **one**")


@pytest.mark.parametrize("size", [100_000])
def test_one_enormous_line_stays_plain_and_stalls_nothing(scripted, size):
    child = answered(scripted, "**x** " * (size // 6), chunk_chars=2000)
    assert len(child.transcript()[-1]) >= size - 6
    assert captures(child, child.transcript()[-1]) == []
