"""Characters that nobody sees: which they are, and that what is approved, or was done, shows them."""

import re
import unicodedata

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_asked import DONE, decide, edit
from tests.nvim.test_looks import turn

from sanderling.text import number, visible, visible_prose

UNSEEN = "\u3164\u115f\u1160\u2800\xad\u200b\u202e\u2066\ufeff\u180b\ufe0f\u00a0\u3000\x1b\x9b\U000e0041\U000e0100"
HANGUL = "const { timeout,\u3164} = req.query\n"


def is_comparable(code):
    """Fonts have signs for private use, versions of Python differ in what is assigned, and halves of pairs are no text."""
    category = unicodedata.category(chr(code))
    return category != "Cs" and (
        category not in ("Co", "Cn") or visible_prose(chr(code)) != chr(code)
    )


def test_lua_and_python_agree_on_what_is_not_seen(child):
    for plane in range(17):
        codes = range(plane << 16, (plane + 1) << 16)
        text = "|".join(chr(code) for code in codes if is_comparable(code))
        runs = child.lua("return require('sanderling.ui.unseen').runs(...)", text, len(text))
        numbers = [number(character) for character in text if visible(character) != character]
        assert [run["text"] for run in runs] == numbers


@pytest.mark.parametrize("usual", ["❤️", "👩🏽‍💻", "5️⃣", "☺︎", "👨‍👩‍👧", "line\r"])
def test_what_is_usual_in_emoji_and_at_the_end_of_a_line_is_not_counted(child, usual):
    assert child.lua("return require('sanderling.ui.unseen').visible(...)", usual) == usual
    assert child.lua("return require('sanderling.ui.unseen').count(...)", usual) == 0


def test_a_selector_elsewhere_is_counted(child):
    assert child.lua("return require('sanderling.ui.unseen').count(...)", "a\ufe0f\u200db\rc") == 3


@pytest.fixture
def proposed(start_agent, project):
    def start(new, old="one\n"):
        (project / "a.txt").write_text(old)
        agent = start_agent(edit("a.txt", [{"old": old, "new": new}]), DONE)
        agent.command("edit a.txt")
        agent.ask()
        wait_until(lambda: "1 hunk to review" in agent.screen_text(), agent.screen_text)
        return agent

    return start


def question_text(agent):
    lines = "return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(...), 0, -1, false)"
    return " ".join(" ".join(agent.lua(lines, agent.float())).split())


def warnings(agent):
    """The virtual texts within the lines of the file."""
    return agent.lua("""
      local ns = vim.api.nvim_get_namespaces().sanderling_hunk_details
      local found = {}
      for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { details = true })) do
        found[#found + 1] = mark[4].virt_text and mark[4].virt_text[1]
      end
      return found
    """)


@pytest.mark.parametrize("character", prove_rest(UNSEEN, is_one=True))
def test_a_proposal_in_the_file_shows_what_is_not_seen(proposed, character):
    agent = proposed(f"be{character}fore\nafter{character}{character}\n")
    screen = agent.screen_text()
    shown = re.escape(number(character))
    assert re.search(f"be.{{0,8}}{shown}fore", screen), screen
    assert re.search(f"after.{{0,16}}{shown}{shown}", screen), screen
    words = f"Contains 3 characters that cannot be seen: {number(character)}."
    assert words in question_text(agent)
    assert [group for _, group in warnings(agent)] == ["AgentWarning"] * 2


def test_what_is_not_seen_is_gone_from_the_screen_when_it_is_edited_out_or_kept(proposed, project):
    agent = proposed(HANGUL + "other\u3164\n")
    assert "Contains 2 characters" in agent.screen_text()
    agent.feed("gg:%s/,.}/,}/<CR>")
    wait_until(lambda: "Contains 1 character that" in agent.screen_text(), agent.screen_text)
    assert "timeout,}" in agent.screen_text()
    decide(agent, project / "a.txt", (1, True))
    agent.wait_for_turns()
    assert "<U+3164>" not in agent.screen_text()


def test_a_proposal_that_has_nothing_to_hide_says_nothing_of_it(proposed):
    assert "cannot be seen" not in proposed("two ❤️ 👩🏽‍💻\n").screen_text()


def test_a_flood_of_them_is_named_once(proposed):
    agent = proposed("\u3164" * 5000 + "\n" + "a\U000e0041" * 5000 + "\n")
    words = "Contains 10000 characters that cannot be seen: <U+3164>, <U+E0041>."
    assert words in question_text(agent)
    marks = [text for text, _ in warnings(agent)]
    assert marks[0] == "<U+3164>" * 8 + "<5000 in all>"
    assert len(marks) == 1001
    assert marks[-1] == "<more invisible characters>"


def test_lines_that_go_show_it_too(proposed):
    agent = proposed("one\nnew\n", old="one\nold\u3164\n")
    assert "old<U+3164>" in agent.screen_text()


def test_what_a_tool_does_unasked_hides_nothing(screen):
    title = "echo \U000e0041\u3164\xad\ufe0f\u115f\u2800"
    diff = f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+{HANGUL}"
    screen.send(
        *turn(1)[:1],
        {"type": "tool_started", "id": "1", "tool": "ba\u3164sh", "title": title},
        {"type": "tool_ended", "id": "1", "summary": "1\u3164", "detail": diff, "filetype": "diff"},
    )
    screen.wait_for_transcript("ba·sh echo ······  1·")
    assert "+const { timeout,<U+3164>} = req.query" in screen.transcript()


def test_the_preview_of_an_edit_shows_it(child):
    lines = child.lua(
        """
        local preview = require('sanderling.inline.preview')
        local difference = preview.difference({ 'a' }, { ... }, true)
        preview.draw(0, 0, nil, { title = 't', difference = difference, is_whole = true, status = { { '' } } })
        local mark = vim.api.nvim_buf_get_extmarks(0, -1, 0, -1, { details = true })[1]
        return vim.tbl_map(function(line) return line[1][1] end, mark[4].virt_lines)
        """,
        HANGUL.strip(),
    )
    assert any("timeout,<U+3164>}" in line for line in lines)
