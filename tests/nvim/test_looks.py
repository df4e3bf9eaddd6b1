"""Parts of the chat that tell things apart at a glance: grounds, guides, seconds, what a turn took. None of it is told by color alone."""

import pytest
from tests.conftest import wait_until

USAGE = {
    "type": "usage_updated",
    "total": {},
    "turn": {},
    "last_request": {},
    "turn_cost_usd": 0.02,
    "cost_usd": 0.02,
    "is_priced": True,
}
DIFF_DELETE = "return vim.api.nvim_get_hl(0, { name = 'AgentDiffDelete' })"


def turn(number, text="Done."):
    prompt = {"id": str(number), "text": f"question {number}"}
    return [
        {"type": "turn_started", "prompt": prompt},
        {"type": "text_delta", "block_id": number, "text": text},
        {"type": "block_ended", "block_id": number},
    ]


ENDED = {"type": "turn_ended", "stop_reason": "end_turn"}


def test_what_is_at_work_is_told_with_seconds_from_the_first_one_on(screen):
    screen.send(*turn(1))
    assert " s" not in screen.screen_text().partition("ask streaming")[2].split("\n")[0]
    wait_until(lambda: " 1 s" in screen.screen_text(), screen.screen_text())
    wait_until(lambda: " 2 s" in screen.screen_text(), "it goes on by itself")
    screen.send(ENDED)
    wait_until(lambda: "ask idle" in screen.screen_text())
    assert " 2 s" not in screen.screen_text().partition("ask idle")[2].split("\n")[0]


@pytest.mark.parametrize("icons, sign", [("unicode", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"), ("ascii", "-\\|/")])
def test_a_spinner_turns_beside_the_seconds(start_screen, icons, sign):
    screen = start_screen()
    screen.setup(icons=icons)
    screen.command("AgentChat")
    screen.send({"type": "commands_running", "count": 1})
    seen = set()

    def is_turning():
        row = next((r for r in screen.screen() if "running 1 command" in r), "")
        seen.update(set(row.partition("command ")[2][:1]) & set(sign))
        return len(seen) > 2

    wait_until(is_turning, f"{seen}")


def test_a_turn_ends_with_what_it_took_and_the_next_one_puts_that_behind_its_header(screen):
    tool = {"id": "t", "tool": "edit", "title": "a.py"}
    screen.send(
        *turn(1),
        {"type": "tool_started", **tool},
        {"type": "tool_ended", "id": "t", "summary": "+3 −1"},
        {"type": "tool_started", **tool, "id": "u", "title": "b.py"},
        {"type": "tool_ended", "id": "u", "summary": "+1 −0"},
        USAGE,
        ENDED,
    )
    took = "$0.02 · 2 files +4 −1"
    wait_until(lambda: took in screen.screen_text(), screen.screen_text())
    rows = screen.screen()
    assert next(n for n, r in enumerate(rows) if took in r) > next(
        n for n, r in enumerate(rows) if "b.py" in r
    )
    screen.send(*turn(2))
    wait_until(lambda: f"▍Sanderling   {took}" in screen.screen_text(), screen.screen_text())
    assert screen.screen_text().count(took) == 1


def test_a_turn_that_took_nothing_ends_without_a_word(screen):
    screen.send(*turn(1), ENDED)
    rows = [row.rpartition("│")[2].strip() for row in screen.screen()]
    assert rows[rows.index("Done.") + 1] == ""
    assert "0 s" not in screen.screen_text()


def test_a_prompt_stands_on_a_ground_of_its_own_and_its_answer_does_not(screen):
    screen.send(*turn(1))
    assert "AgentPrompt" in screen.highlight("## You")
    assert "AgentPrompt" in screen.highlight("question 1")
    assert "AgentPrompt" not in screen.highlight("## Sanderling")
    assert "AgentPrompt" not in screen.highlight("Done.")


@pytest.mark.parametrize("icons, guide", [("unicode", "▾│"), ("ascii", "-|")])
def test_what_is_in_an_open_fold_has_a_guide_beside_it(start_screen, icons, guide):
    screen = start_screen(columns=50, lines=20)
    screen.setup(icons=icons)
    screen.command("AgentChat tab")
    screen.send(
        {"type": "tool_started", "id": "t", "tool": "bash", "title": "make"},
        {"type": "tool_output", "id": "t", "text": "one\ntwo"},
        {"type": "tool_ended", "id": "t", "summary": "✓"},
    )
    wait_until(lambda: "bash make" in screen.screen_text())
    assert not any(row.startswith(tuple(guide)) for row in screen.screen())
    screen.feed("<C-w>kggzR")
    wait_until(lambda: f"{guide[1]}two" in screen.screen_text(), screen.screen_text())
    assert f"{guide[0]}bash make" in screen.screen_text()
    assert f"{guide[1]}one" in screen.screen_text()


def test_removed_lines_have_a_ground_where_the_scheme_gives_them_none(child):
    child.lua("require('sanderling.ui.colors')")
    dark = child.lua(DIFF_DELETE)["bg"]
    child.command("set background=light")
    assert child.lua(DIFF_DELETE)["bg"] > dark
    child.command("colorscheme habamax")
    assert child.lua(DIFF_DELETE) == {"link": "DiffDelete"}
    child.command("colorscheme default")
    assert child.lua(DIFF_DELETE)["bg"] == dark
    child.command("highlight AgentDiffDelete guibg=#123456")
    child.command("doautocmd ColorScheme")
    assert child.lua(DIFF_DELETE)["bg"] == 0x123456
