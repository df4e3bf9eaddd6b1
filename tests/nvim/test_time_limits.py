"""No text stops the editor: what could take long is given to no parser, and what takes longer than its share stays plain."""

import re

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.test_approval import asked
from tests.nvim.test_form import form
from tests.nvim.test_highlight import captures, says, wait_for_capture

MAX_BYTES = 8192  # of access/parsing.lua
HOSTILE = {
    "emphasis": "*a **b " * 4570,
    "emphasis in lines": ("*a **b " * 100 + "\n") * 40,
    "underscores": "_a __b " * 4570,
    "strikes": "~a ~~b " * 4570,
    "mixed": "*_*~" * 8000,
    "images": "![" * 16_000,
    "links": "[a](" * 8000,
    "quotes": "> " * 10_000,
    "lists": "- " * 10_000,
    "nested lists": "\n".join("  " * n + "- x" for n in range(300)),
    "blanks in a table": "| a | b |\n|---|---|\n|" + " " * 32_000 + "|",
    "tabs in a table": "| a | b |\n|---|---|\n|" + "\t" * 32_000 + "|",
    "columns": "|" + "a|" * 10_000 + "\n|" + "-|" * 10_000,
    "braces in C": "```c\n" + ("{" * 300 + "\n") * 30 + "```",
    "braces in Lua": "```lua\nx=" + "{" * 30_000 + "\n```",
    "braces in Java": "```java\n" + ("{" * 300 + "\n") * 30 + "```",
}
COUNT = """
  _G.given, _G.looks = {}, 0
  local get = vim.treesitter.get_string_parser
  vim.treesitter.get_string_parser = function(text, ...)
    table.insert(_G.given, #text)
    return get(text, ...)
  end
  local synID = vim.fn.synID
  vim.fn.synID = function(...)
    _G.looks = _G.looks + 1
    return synID(...)
  end
"""


def streamed(screen, text, block_id=1):
    """Send `text` in pieces, have the growing block drawn after each, and then all that the window shows."""
    for start in range(0, len(text), 1000):
        screen.send(says(text[start : start + 1000], block_id))
        screen.lua("""
          local transcript = require('sanderling.session.live').current().transcript
          transcript.markdown:draw_open_block()
        """)
    screen.send({"type": "block_ended", "block_id": block_id})
    screen.lua("""
      local transcript = require('sanderling.session.live').current().transcript
      while not transcript.markdown:draw_seen(math.huge) do end
    """)


@pytest.mark.parametrize("name", prove_rest(HOSTILE, (0, -1), is_one=True))
def test_little_is_parsed_at_once_and_little_in_all(screen, name):
    screen.lua(COUNT)
    streamed(screen, HOSTILE[name])
    given = screen.lua("return _G.given")
    assert max(given, default=0) <= MAX_BYTES + 100  # with the line that opens a fence
    assert sum(given) <= 6 * len(HOSTILE[name])
    assert screen.lua("return _G.looks") <= 20_000
    streamed(screen, "Some **strong** words.", 2)
    wait_for_capture(screen, "Some **strong** words.", "@markup.strong.markdown_inline")


SLOW = {  # what a parser takes 0.2 s to minutes for, in 8 kB
    "a long fence": "`" * 7000,
    "brackets in prose": "[*" + "![" * 8 + "_" + "![" * 12 + "*a",
    "brackets in lines": "_<![[__[_<![[<\n<![![<\n![<![![_[![<\n[___<<_<_____[_<[<![![_[_[!\n",
    "documents in fences": "```markdown\n" * 600,
    "in other words": "```Markdown title=x\n" * 300,
    "documents in a quote": "> > ```markdown\n" * 250,
    "operators": "```c\n" + "===***" * 1200,
    "in lines": "```c\n" + "<!--<!--<!\n" * 600,
    "with words": "```c\n" + "!-\nx " * 1400,
    "brackets": "```c\n" + ")(;,}{" * 1200,
}
PROSE = "See `a[0]`, [the *page*](https://example.com/a_b), [1], *all* of [[x]] and [0, 1).\n"
CODE = {
    "JSON": '{"a": [1, 2, {"b": null}], "c": "---"},\n' * 60,
    "C": "/* ====================== */\nwhile (n > 0 && *p != 0) { *p++ = a->b << 2; n--; }\n" * 40,
    "a rule": "-" * 2000 + "\n",
    "documents": "```md\na\n```\n" * 3,
}


@pytest.mark.parametrize("name", SLOW)
def test_what_would_be_parsed_for_long_is_not(child, name):
    assert is_too_much(child, SLOW[name])


@pytest.mark.parametrize("name", CODE)
def test_usual_code_is_parsed(child, name):
    assert not is_too_much(child, f"````x\n{CODE[name]}````")


def test_usual_prose_is_parsed(child):
    assert not is_too_much(child, PROSE * 7 + "\n" + PROSE * 7)


def is_too_much(child, text):
    return child.lua(
        "return require('sanderling.access.parsing').is_too_much(vim.split(..., '\\n'))",
        text[:8000],
    )


def set_clock(screen, seconds):
    """Have the clock of budgets go on by `seconds` each time that somebody looks at it."""
    screen.lua(
        """
        local step, now = ..., 0
        require('sanderling.ui.time').clock = function()
          now = now + step
          return now
        end
        """,
        seconds,
    )


def test_what_takes_longer_than_its_share_stays_plain_and_is_not_drawn_again(screen):
    screen.lua(COUNT)
    set_clock(screen, 1)
    line = "`a` **b** *c* " * 8
    streamed(screen, line * 3)
    assert captures(screen, line * 3) == []
    assert len(screen.lua("return _G.given")) == 1
    set_clock(screen, 0)
    streamed(screen, "Some **strong** words.", 2)
    wait_for_capture(screen, "Some **strong** words.", "@markup.strong.markdown_inline")


SLICE = """
  local blocks = require('sanderling.session.live').current().transcript.markdown
  local is_growing = ...
  blocks:draw_open_block()
  blocks.is_armed = is_growing
  return blocks:draw_seen(math.huge)
"""


def test_a_block_that_needs_more_than_one_slice_is_finished_when_no_text_streams(screen):
    set_clock(screen, 0.0016)
    line = "**b** " * 12
    screen.send(says(line))
    screen.lua(SLICE, True)
    first = captures(screen, line).count("@markup.strong.markdown_inline")
    screen.lua(SLICE, True)
    assert captures(screen, line).count("@markup.strong.markdown_inline") == first < 12
    screen.send({"type": "block_ended", "block_id": 1})
    set_clock(screen, 0.0001)
    wait_until(lambda: captures(screen, line).count("@markup.strong.markdown_inline") == 12)


@pytest.mark.parametrize("code", ["! ", "(a,", '"a" ', "x=1;"])
def test_blocks_that_take_long_are_not_parsed_when_their_text_has_used_up_its_time(screen, code):
    screen.command("syntax on")
    screen.lua(COUNT)
    set_clock(screen, 0.004)
    streamed(screen, "```c\n" + (code * 40 + "\n") * (32_000 // len(code * 40)) + "```\n")
    assert len(screen.lua("return _G.given")) < 10


def test_a_language_that_took_too_long_twice_has_no_colors(screen):
    screen.command("syntax on")
    screen.lua(COUNT)
    fence = "```java\nclass A {}\n```\n\n"
    streamed(screen, fence, 1)
    wait_for_capture(screen, "class A {}", "javaClassDecl")
    screen.lua("""
      require('sanderling.ui.time').clock = function() return 0.03 * _G.looks end
    """)
    for block_id in range(2, 9):
        streamed(screen, fence, block_id)
    set_clock(screen, 0)
    looks = screen.lua("return _G.looks")
    streamed(screen, fence, 9)
    assert screen.lua("return _G.looks") == looks
    streamed(screen, "```css\na { color: red }\n```\n", 10)
    wait_for_capture(screen, "a { color: red }", "cssTagName")


def test_only_the_first_columns_of_code_are_looked_at(screen):
    screen.command("syntax on")
    screen.lua(COUNT)
    streamed(screen, "```css\n" + "{} " * 1300 + "\n```\n")
    assert 0 < screen.lua("return _G.looks") <= 200 * 6


@prove
def test_names_of_languages_are_looked_up_a_limited_number_of_times(screen):
    screen.command("syntax on")
    screen.lua("""
      local match = vim.filetype.match
      _G.matched = 0
      vim.filetype.match = function(...) _G.matched = _G.matched + 1 return match(...) end
    """)
    text = "".join(f"```x{n}y\na\n```\n" for n in range(2000))
    screen.lua(
        """
        local code = require('sanderling.transcript.code')
        local paint = require('sanderling.transcript.paint')
        local buf, ns = vim.api.nvim_create_buf(false, true), vim.api.nvim_create_namespace('x')
        for _, fence in ipairs(vim.split(..., '\\n```\\n')) do
          local lines = vim.split(fence .. '\\n```', '\\n')
          vim.api.nvim_buf_set_lines(buf, 0, -1, false, lines)
          while not paint.begin(buf, ns, { first = 0, last = #lines }):go_on(1000) do end
        end
        """,
        text,
    )
    assert 0 < screen.lua("return _G.matched") <= 300


@pytest.mark.parametrize("text", ["", " ", "  \n\t ", "a", " a b\n", "\n a", "a\n "])
def test_blanks_are_trimmed_as_neovim_does(child, text):
    assert child.lua("return require('sanderling.ui.words').trimmed(...)", text) == text.strip()


def test_blanks_alone_are_gone_through_once(child):
    """vim.trim() goes through 200,000 of them 20 billion times."""
    assert child.lua("return require('sanderling.ui.words').trimmed((' '):rep(200000))") == ""


def test_nobody_trims_text_of_others_with_neovims_pattern():
    from tests.conftest import ROOT

    ours = {"icons.lua", "scratch.lua", "health.lua", "disk.lua"}  # and what the person has typed
    ours |= {"login.lua", "completion.lua", "templates.lua", "clients.lua", "commands.lua"}
    for path in (ROOT / "lua").rglob("*.lua"):
        assert path.name in ours or not re.search(
            r"^[^-]*vim\.trim\(", path.read_text(), re.MULTILINE
        ), path


def test_a_page_with_too_much_in_a_paragraph_is_plain(screen):
    screen.lua(
        """
        for _, text in ipairs({ ... }) do
          local buf = vim.api.nvim_create_buf(false, true)
          vim.api.nvim_buf_set_lines(buf, 0, -1, false, vim.split(text, '\\n'))
          require('sanderling.access.parsing').start(buf)
          _G.active = _G.active or {}
          table.insert(_G.active, vim.treesitter.highlighter.active[buf] ~= nil)
        end
        """,
        "Some **words**.\n\n" * 3000,
        "```json\n" + '  {"a": 1},\n' * 2000 + "```",
        HOSTILE["emphasis"],
        "fine\n\n" + HOSTILE["braces in C"],
    )
    wait_until(lambda: screen.lua("return _G.active") == [True, True, False, False])


HUGE = {
    "blanks": " " * 200_000,
    "words": "ab " * 40_000,
    "unseen": "\u3164" * 40_000,
    "lines": "a\n" * 100_000,
    "one word": "x" * 200_000,
}


@pytest.mark.parametrize("name", prove_rest(HUGE, (0,), is_one=True))
@pytest.mark.parametrize("field", prove_rest(["title", "reason", "subject", "rule", "tool"]))
def test_a_question_of_any_size_is_shown_and_answered(screen, name, field):
    text = HUGE[name] if field != "tool" else HUGE[name].replace("\n", " ")
    screen.send(asked(**{field: text}))
    count_keys_after(screen, 0)
    screen.feed("<Esc><C-w>a")
    wait_until(lambda: screen.lua("return vim.fn.bufname()") == "[Sanderling question]")
    screen.feed("d")
    wait_until(lambda: screen.actions("answer_approval"))


@pytest.mark.parametrize("name", prove_rest(HUGE, (1,), is_one=True))
def test_a_form_with_texts_of_any_size_opens(screen, name):
    text = HUGE[name]
    fields = [
        {
            "name": f"n{number}",
            "kind": "choice",
            "label": text,
            "help": text,
            "choices": [{"value": "a", "title": text}],
        }
        for number in range(20)
    ]
    screen.send(form(fields=fields))
    count_keys_after(screen, 0)
    screen.feed("<Esc><C-w>a")
    wait_until(lambda: screen.lua("return vim.fn.bufname()") == "[Sanderling question]")
    screen.feed("a")
    wait_until(lambda: screen.lua("return vim.fn.bufname()") == "[Sanderling form]")
    assert screen.lua("return vim.fn.line('$')") < 20 * 100


def test_a_slash_command_takes_many_lines(screen):
    prompt = ["/review", *map(str, range(20_000))]
    screen.lua("require('sanderling.session.live').current():send_typed(..., false)", prompt)
    [sent] = screen.actions("submit_prompt")
    assert sent["prompt"]["text"].endswith("19999")
