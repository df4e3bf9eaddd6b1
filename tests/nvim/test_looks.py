"""Parts of the chat that tell things apart at a glance: grounds, guides, seconds, what a turn took. None of it is told by color alone."""

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.replies import DONE, reply, use

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


@prove
def test_what_is_at_work_is_told_with_seconds_from_the_first_one_on(screen):
    screen.send(*turn(1))
    assert " s" not in screen.screen_text().partition("ask streaming")[2].split("\n")[0]
    wait_until(lambda: " 1 s" in screen.screen_text(), screen.screen_text())
    screen.wait_for_screen(" 2 s")
    screen.send(ENDED)
    screen.wait_for_screen("ask idle")
    assert " 2 s" not in screen.screen_text().partition("ask idle")[2].split("\n")[0]


@prove
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


def lines(path, added, removed):
    return [{"path": path, "added": added, "removed": removed}]


def test_a_turn_ends_with_what_it_took_and_the_next_one_puts_that_behind_its_header(screen):
    tool = {"id": "t", "tool": "edit", "title": "a.py"}
    screen.send(
        *turn(1),
        {"type": "tool_started", **tool},
        {"type": "tool_ended", "id": "t", "summary": "+3 −1", "changed": lines("a.py", 3, 1)},
        {"type": "tool_started", **tool, "id": "u", "title": "b.py"},
        {"type": "tool_ended", "id": "u", "summary": "2 files", "changed": lines("b.py", 1, 0)},
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


def test_what_a_turn_took_does_not_stand_below_what_came_after_it(screen):
    screen.send(*turn(1), USAGE, ENDED)
    wait_until(lambda: "$0.02" in screen.screen_text(), screen.screen_text())
    screen.send({"type": "notice", "level": "info", "text": "Something else."})
    wait_until(lambda: "▍Sanderling   $0.02" in screen.screen_text(), screen.screen_text())


def test_what_a_turn_took_stands_with_it_when_the_next_one_begins_at_once(screen):
    screen.send(*turn(1), USAGE, ENDED, *turn(2))
    wait_until(lambda: "question 2" in screen.screen_text(), screen.screen_text())
    first, second = [row.rstrip() for row in screen.screen() if "▍Sanderling" in row]
    assert first.endswith("▍Sanderling   $0.02")
    assert second.endswith("▍Sanderling")


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
    screen.wait_for_screen("bash make")
    assert not any(row.startswith(tuple(guide)) for row in screen.screen())
    screen.feed("<C-w>kggzR")
    wait_until(lambda: f"{guide[1]}two" in screen.screen_text(), screen.screen_text())
    assert f"{guide[0]}bash make" in screen.screen_text()
    assert f"{guide[1]}one" in screen.screen_text()


@pytest.mark.parametrize(
    "text, excerpt",
    [
        ("**Looking for callers**\n\nThe name is in two files.", "Looking for callers · 3 lines"),
        ("\n\n## Plan\nFirst.", "Plan · 4 lines"),
        ("a **very** long line " * 9 + "\nmore", "a very long line"),
    ],
)
def test_a_closed_fold_of_thinking_says_how_its_text_begins(screen, text, excerpt):
    screen.send({"type": "thinking_delta", "block_id": 1, "text": text})
    screen.send({"type": "block_ended", "block_id": 1}, *turn(2))
    screen.wait_for_screen(f"▸ Thinking: {excerpt}")
    assert "First." not in screen.screen_text()


@pytest.mark.parametrize(
    "summary, shown",
    [
        ("1 line", "1 line"),
        ("1,200 lines, 1 image", "1,200 lines, 1 image"),
        ("+3 −1", "+3 −1 · 2 lines"),
        ("2 outlines", "2 outlines · 2 lines"),
    ],
)
def test_a_closed_fold_counts_its_lines_once(screen, summary, shown):
    screen.send(
        {"type": "tool_started", "id": "t", "tool": "notes", "title": "x"},
        {"type": "tool_ended", "id": "t", "summary": summary, "detail": "one\ntwo"},
    )
    screen.wait_for_screen("notes x  ")
    row = next(row for row in screen.screen() if "notes x" in row)
    assert row.endswith(f"▸ notes x  {shown}")


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


# --- the prompt -------------------------------------------------------------------------------------------------------

ASKED = {"type": "approval_requested", "id": "q", "tool": "bash", "title": "make"}


def height_of_prompt(child):
    return child.lua("return vim.api.nvim_win_get_height(0)")


@pytest.fixture
def wide(start_chat):
    return start_chat(columns=200, lines=40)


def test_an_empty_prompt_says_what_can_be_done_just_now(wide):
    assert "Ask anything: <CR> sends" in wide.screen_text()
    wide.send(*turn(1))
    wide.wait_for_screen("<CR> queues, <M-s> steers the turn, <C-c> stops")
    asked = ASKED | {"reason": "", "subject": "make", "choices": ["once"], "cwd": "/"}
    wide.send(asked)
    wait_until(lambda: r"Question pending: \a goes there to answer it" in wide.screen_text())
    wide.send({"type": "approval_settled", "id": "q"})
    choices = {"name": "plan", "kind": "choice", "choices": [{"value": "ask"}]}
    for kind, words in (
        ("plan", r"Plan pending: \a goes there to accept it, <M-d> keeps planning"),
        ("question", r"Question pending: \a goes there to answer it, <M-d> dismisses it"),
    ):
        wide.send(asked | {"tool": "edit", "kind": kind, "fields": [choices]})
        wide.wait_for_screen(words)
        wide.send({"type": "approval_settled", "id": "q"})
    wide.send(ENDED)
    wide.wait_for_screen("Ask anything: <CR> sends")
    waiting = {"queued": [{"id": "2", "text": "later"}], "is_held": True}
    wide.send({"type": "waiting_changed", **waiting})
    wide.wait_for_screen("<CR> sends the held prompts")


def test_an_empty_prompt_names_the_key_of_the_mode_that_one_is_in(screen):
    screen.send(*turn(1))
    screen.wait_for_screen("<CR> queues, <M-s> steers")
    screen.feed("i")
    screen.wait_for_screen("<C-s> queues, <M-s> steers")
    screen.command("vertical resize 35")
    screen.wait_for_screen("<C-s> queues, <C-c> stops")
    screen.send(ENDED)
    wait_until(lambda: any(row.endswith("Ask anything: <C-s> sends") for row in screen.screen()))
    screen.feed("<Esc>")
    wait_until(lambda: any(row.endswith("Ask anything: <CR> sends") for row in screen.screen()))


def test_what_a_command_does_is_wrapped_below_its_beginning(start_screen):
    screen = start_screen(columns=80, lines=24)
    screen.command("Agent help")
    screen.wait_for_screen("/help  ")
    rows = screen.screen()
    first = next(i for i, row in enumerate(rows) if "/resume" in row)
    assert rows[first + 1].index("newest") == rows[first].index("resume an earlier")


def test_an_empty_chat_says_how_to_begin_until_something_is_said(wide):
    assert "Type / for commands, @ to attach files" in wide.screen_text()
    assert "g? lists the keys." in wide.screen_text()
    wide.send(*turn(1))
    wait_until(lambda: "Type / for" not in wide.screen_text())


def test_the_prompt_is_as_high_as_its_text_and_no_higher_than_the_option(screen):
    assert height_of_prompt(screen) == 2
    screen.feed("ione<CR>two<CR>three<CR>four")
    wait_until(lambda: height_of_prompt(screen) == 4)
    screen.feed("<CR>x" * 20)
    wait_until(lambda: height_of_prompt(screen) == 12)
    screen.feed("<Esc>ggdG")
    wait_until(lambda: height_of_prompt(screen) == 2)
    screen.feed("iwords that are wrapped " + "as they are many " * 10)
    wait_until(lambda: height_of_prompt(screen) > 4)


def test_a_prompt_that_the_person_has_made_higher_stays_so(screen):
    screen.feed(":resize 8<CR>")
    wait_until(lambda: height_of_prompt(screen) == 8)
    screen.feed("ione<CR>two<CR>three<Esc>ggdG")
    wait_until(lambda: screen.prompt_lines() == [""])
    assert height_of_prompt(screen) == 8


def test_the_transcripts_end_stays_in_sight_while_the_prompt_grows_and_shrinks(screen):
    screen.send(*turn(1, "\n".join(f"line {n}" for n in range(60)) + "\nthe end"))
    screen.wait_for_screen("the end")
    screen.feed("i" + "x<CR>" * 9)
    wait_until(lambda: height_of_prompt(screen) == 10)
    assert "the end" in screen.screen_text()
    screen.feed("<Esc>ggdG")
    wait_until(lambda: height_of_prompt(screen) == 2)
    rows = [row.rpartition("│")[2].strip() for row in screen.screen()]
    assert rows.index("the end") + 1 == next(n for n, r in enumerate(rows) if " ask " in r)


def test_a_todo_list_is_shown_below_a_prompt_that_makes_room_for_it(screen):
    items = [{"content": f"step {n}", "status": "pending"} for n in range(6)]
    screen.send({"type": "turn_started", "prompt": {"id": "1", "text": "go"}})
    screen.send({"type": "todo_changed", "items": items})
    wait_until(lambda: "step 5" in screen.screen_text(), screen.screen_text())
    assert height_of_prompt(screen) == 7


def test_a_prompt_in_a_float_grows_and_the_transcript_above_gives_way(start_screen):
    screen = start_screen()
    screen.command("AgentChat float")
    before = screen.lua(
        "return vim.api.nvim_win_get_height(require('sanderling').transcript().win)"
    )
    screen.feed("ione<CR>two<CR>three<CR>four")
    wait_until(lambda: height_of_prompt(screen) == 5)
    after = screen.lua("return vim.api.nvim_win_get_height(require('sanderling').transcript().win)")
    assert before - after == 2
    rows = screen.screen()
    assert any("│four" in row for row in rows)


# --- a question from anywhere -----------------------------------------------------------------------------------------

BASH = {"step": [{"tool_use": {"name": "bash", "input": {"command": "touch made"}}}]}
THEN = {"step": [{"text": "Done."}]}


@prove
def test_on_a_small_screen_a_change_that_is_asked_about_names_the_keys(start_agent):
    write = {"name": "write", "input": {"path": "made.txt", "content": "made\n"}}
    agent = start_agent({"step": [{"tool_use": write}]}, THEN, columns=80, lines=24)
    agent.command("AgentChat")
    agent.feed("igo<C-s>")
    wait_until(lambda: "1 hunk to review" in agent.screen_text(), agent.screen_text)
    assert "<Esc><C-w>a answer  <M-d> deny" in agent.screen_text(), agent.screen_text()
    assert r"\a answers, <M-d> denies" in agent.screen_text(), agent.screen_text()


@pytest.mark.parametrize(
    "keys", prove_rest(["<Esc>", "i", "<Esc><C-w>h", "<Esc><C-w>hi"], (-1,), is_one=True)
)
def test_a_question_is_answered_with_the_persons_key_from_prompt_and_code_in_each_mode(
    start_agent, project, keys
):
    agent = start_agent(BASH, THEN, setup={"keys": {"answer_once": "<F5>"}})
    agent.command("AgentChat")
    agent.feed("igo<C-s>" + keys)
    screen = agent.wait_for_question()
    mode = agent.mode()
    focus = "<Esc><C-w>a" if mode == "i" else "<C-w>a"
    assert f" {focus} answer  <F5> allow  <M-d> deny" in screen
    agent.feed("<F5>")
    agent.wait_for_turns()
    assert (project / "made").exists()
    assert agent.mode() == mode
    assert agent.lua("return vim.fn.maparg('<F5>', 'n') .. vim.fn.maparg('<F5>', 'i')") == ""


def test_the_text_before_a_question_stays_above_it_and_fills_the_window_again_without_it(
    start_agent,
):
    text = "\n\n".join(f"paragraph {number}" for number in range(9))
    agent = start_agent({"step": [{"text": text}, *BASH["step"]]}, THEN, columns=100, lines=30)
    agent.command("AgentChat")
    agent.feed("igo<C-s>")
    agent.wait_for_question()
    wait_until(lambda: "paragraph 8" in agent.screen_text(), agent.screen_text)
    agent.rpc.pump(0.3)
    assert "paragraph 8" in agent.screen_text(), agent.screen_text()
    agent.feed("<Esc><C-w>ap")
    wait_until(lambda: agent.lua("return #vim.api.nvim_list_tabpages()") == 2)
    agent.rpc.pump(0.3)
    agent.feed("q")
    wait_until(lambda: agent.lua("return vim.api.nvim_get_current_win()") == agent.float())
    agent.feed("q")
    wait_until(lambda: agent.lua("return vim.bo.filetype") == "sanderling_prompt")
    wait_until(lambda: "paragraph 0" in agent.screen_text(), agent.screen_text)
    assert "paragraph 8" in agent.screen_text(), agent.screen_text()


def test_long_lines_before_a_question_leave_its_call_in_view(start_agent):
    text = "\n\n".join([*["word " * 60] * 3, "last"])
    agent = start_agent({"step": [{"text": text}, *BASH["step"]]}, THEN, columns=100, lines=30)
    agent.command("AgentChat")
    agent.feed("igo<C-s>")
    agent.wait_for_question()
    wait_until(lambda: "│ last" in agent.screen_text(), agent.screen_text)
    agent.rpc.pump(0.3)
    assert "│ last" in agent.screen_text(), agent.screen_text()


def test_the_question_names_its_keys_as_they_are_typed_in_the_current_mode(start_agent):
    """In insert mode <C-w> deletes a word."""
    write = {"name": "write", "input": {"path": "made.txt", "content": "made\n"}}
    agent = start_agent({"step": [{"tool_use": write}]}, THEN, columns=60, lines=20)
    agent.command("AgentChat")
    agent.feed("igo<C-s>")
    wait_until(lambda: " <Esc><C-w>a answer " in agent.screen_text(), agent.screen_text)
    agent.feed("<Esc>")
    wait_until(lambda: " <C-w>a answer  <M-d> deny " in agent.screen_text(), agent.screen_text)
    agent.feed("i")
    wait_until(lambda: " <Esc><C-w>a answer " in agent.screen_text(), agent.screen_text)


@pytest.mark.parametrize("keys", prove_rest(["<Esc>", "<Esc><C-w>h", "<Esc><C-w>hv"], is_one=True))
def test_a_key_goes_to_the_question_from_prompt_and_code(start_agent, project, keys):
    agent = start_agent(BASH, THEN)
    agent.command("AgentChat")
    agent.feed("igo<C-s>" + keys)
    agent.wait_for_question()
    agent.feed("<C-w>a")
    wait_until(lambda: agent.lua("return vim.api.nvim_get_current_win()") == agent.float())
    agent.feed("a")
    agent.wait_for_turns()
    assert (project / "made").exists()
    assert agent.lua("return vim.fn.maparg('<C-w>a', 'n') .. vim.fn.maparg('<C-w>a', 'x')") == ""


@prove
def test_the_other_key_denies_and_a_map_of_the_persons_is_left_alone(start_agent, project):
    agent = start_agent(BASH, THEN)
    agent.command("nnoremap <C-w>a :let g:mine = 1<CR>")
    agent.ask()
    screen = agent.wait_for_question()
    assert "<C-w>a" not in screen
    agent.feed("<C-w>a")
    wait_until(lambda: agent.lua("return vim.g.mine"))
    agent.feed("<M-d>")
    agent.wait_for_turns()
    assert not (project / "made").exists()
    assert "mine" in agent.lua("return vim.fn.maparg('<C-w>a', 'n')")


def test_one_key_denies_with_a_reason_from_anywhere(start_agent, project):
    agent = start_agent(BASH, THEN)
    agent.command("AgentChat")
    agent.feed("igo<C-s><Esc>")
    agent.wait_for_question()
    agent.feed("<M-r>use make<CR>")
    agent.wait_for_turns()
    assert not (project / "made").exists()
    assert "use make" in agent.results()[0]


def test_one_key_undoes_the_last_turn_with_its_files_and_another_redoes_it(start_agent, project):
    agent = start_agent(reply(use("write", path="new.py", content="x = 1\n")), DONE)
    agent.command("AgentMode auto")
    agent.command("AgentChat")
    agent.say("go")
    assert (project / "new.py").exists()
    agent.feed(r"\u")
    wait_until(lambda: not (project / "new.py").exists())
    agent.wait_for_screen("Reverted: 1 file")
    agent.feed(r"\r")
    wait_until((project / "new.py").exists)
