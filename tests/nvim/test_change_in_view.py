"""A question about a change shows the change: in its file where all of a hunk is in view, else in the float."""

import re

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_asked import DONE, decide, edit, hunk_count

LONG = "".join(f"line {n}\n" for n in range(1, 601))
FAR = [{"old": "line 501\n", "new": "LINE 501\n"}]
SIZES = [(120, 36), (60, 20), (80, 24), (200, 50)]


@pytest.fixture
def asked_about(start_agent, project):
    """The user is in a chat next to the file; the agent then proposes changes of it."""

    def start(edits=None, *, text=LONG, commands=(), columns=120, lines=36, setup=None, chat=True):
        path = project / "a.txt"
        path.write_text(text)
        (project / "other.txt").write_text("other\n")
        agent = start_agent(
            edit("a.txt", edits or FAR), DONE, columns=columns, lines=lines, setup=setup
        )
        agent.command("edit a.txt")
        for command in commands:
            agent.command(command)
        if chat:
            agent.command("AgentChat")
            agent.feed("igo<C-s>")
        else:
            agent.ask()
        agent.wait_for_question()
        wait_until(lambda: hunk_count(agent, path), "the change is proposed")
        return agent, path

    return start


def question_lines(agent):
    return agent.lua(
        "return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(...), 0, -1, true)",
        agent.float(),
    )


def file_window(agent, path):
    return agent.lua("return vim.fn.bufwinid((...))", str(path))


def view(agent, win):
    return agent.lua("return vim.api.nvim_win_call(..., vim.fn.winsaveview)", win)


def is_in_file(agent):
    """The change is on the screen, but the float does not show it."""
    screen = agent.screen_text()
    return "LINE 501" in screen and not any("LINE 501" in line for line in question_lines(agent))


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 1)))
def test_the_files_window_scrolls_to_the_change_and_the_focus_stays(asked_about, columns, lines):
    agent, path = asked_about(columns=columns, lines=lines)
    screen = agent.screen_text()
    assert "LINE 501" in screen
    assert "line 501" in screen, "the line that goes is shown, too"
    assert agent.lua("return vim.bo.filetype") == "sanderlingprompt" or "prompt" in agent.lua(
        "return vim.bo.filetype"
    )
    if columns > 60:
        assert is_in_file(agent)
        assert "1 hunk to review in the file" in screen
        jumps = agent.lua("return vim.fn.getjumplist(...)[1]", file_window(agent, path))
        assert jumps[-1]["lnum"] == 1, "the jump list leads back"


def test_the_cursor_stays_where_the_window_can_show_both(asked_about):
    edits = [{"old": "line 145\n", "new": "LINE 145\n"}]
    agent, path = asked_about(edits, commands=["normal! 100Gzt20j"])
    win = file_window(agent, path)
    assert "LINE 145" in agent.screen_text()
    assert view(agent, win)["lnum"] == 120
    assert view(agent, win)["topline"] > 100


def test_a_window_that_shows_the_change_does_not_move(asked_about):
    agent, path = asked_about(commands=["normal! 495Gzt"])
    assert is_in_file(agent)
    found = view(agent, file_window(agent, path))
    assert (found["topline"], found["lnum"]) == (495, 495)


def test_the_window_that_the_user_is_in_stays_and_the_float_shows_the_change(asked_about):
    agent, path = asked_about(chat=False)
    found = view(agent, file_window(agent, path))
    assert (found["topline"], found["lnum"]) == (1, 1)
    assert {"-line 501", "+LINE 501"} <= set(question_lines(agent))
    assert any("1 hunk to review in the file" in line for line in question_lines(agent))


def test_the_float_shows_the_change_while_its_window_does_not(asked_about):
    agent, path = asked_about()
    assert is_in_file(agent)
    win = file_window(agent, path)
    agent.lua("vim.api.nvim_win_call(..., function() vim.cmd('normal! gg') end)", win)
    wait_until(lambda: "+LINE 501" in question_lines(agent), "the float shows it")
    assert "+LINE 501" in agent.screen_text()
    agent.lua("vim.api.nvim_win_call(..., function() vim.cmd('normal! 500Gzz') end)", win)
    wait_until(lambda: "+LINE 501" not in question_lines(agent), "the file shows it")
    assert is_in_file(agent)


def test_a_closed_fold_opens_where_the_change_is(asked_about):
    agent, path = asked_about(commands=["set foldmethod=manual", "450,550fold", "1,100fold"])
    assert is_in_file(agent)
    win = file_window(agent, path)
    closed = "return vim.api.nvim_win_call(..., function() return vim.fn.foldclosed(50) end)"
    assert agent.lua(closed, win) == 1, "other folds stay closed"


def test_a_closed_fold_in_the_users_window_leaves_the_change_to_the_float(asked_about):
    agent, _ = asked_about(
        commands=["set foldmethod=manual", "450,550fold", "normal! 440G"], chat=False
    )
    assert "+LINE 501" in question_lines(agent)


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 1)))
def test_a_hunk_that_is_longer_than_the_window_is_in_both(asked_about, columns, lines):
    new = "".join(f"NEW {n}\n" for n in range(1, 80))
    edits = [{"old": "line 501\n", "new": new}]
    agent, _ = asked_about(edits, columns=columns, lines=lines)
    assert "+NEW 1" in question_lines(agent)
    assert re.search("more lines", agent.screen_text())
    agent.command("Agent question")
    wait_until(lambda: "+NEW 79" in question_lines(agent), "all of it can be scrolled to")


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 1)))
def test_of_several_hunks_the_first_is_shown_and_the_float_says_how_many_are(
    asked_about, columns, lines
):
    edits = [{"old": f"line {n}\n", "new": f"LINE {n}\n"} for n in (300, 303, 501)]
    agent, _ = asked_about(edits, columns=columns, lines=lines)
    assert "LINE 300" in agent.screen_text()
    if columns > 80:
        assert "3 hunks to review in the file, 2 in view" in agent.screen_text()


def test_the_float_shows_only_the_hunks_that_are_left(asked_about):
    edits = [{"old": f"line {n}\n", "new": f"LINE {n}\n"} for n in (300, 501)]
    agent, path = asked_about(edits)
    decide(agent, path, (1, False))
    agent.lua(
        "vim.api.nvim_win_call(..., function() vim.cmd('normal! gg') end)", file_window(agent, path)
    )
    wait_until(lambda: "+LINE 501" in question_lines(agent), "the float shows it")
    assert "+LINE 300" not in question_lines(agent)


@pytest.mark.parametrize("command", ["tab split other.txt", "enew"])
def test_a_change_of_a_file_in_no_window_of_the_tab_page_is_in_view(asked_about, command):
    agent, _ = asked_about(commands=[command])
    screen = agent.screen_text()
    assert "LINE 501" in screen
    assert "line 501" in screen


def test_follow_shows_both_sides_of_the_change(asked_about):
    agent, _ = asked_about(setup={"follow": "show"})
    assert is_in_file(agent)
    assert re.search(r"[-−] *line 501", agent.screen_text())


def test_a_change_under_a_floating_chat_is_in_the_question(asked_about):
    agent, _ = asked_about(setup={"chat": {"position": "float"}})
    assert "+LINE 501" in question_lines(agent)


@pytest.mark.parametrize(
    "edits", [[{"old": "line 501\n", "new": ""}], [{"old": "line 600\n", "new": ""}]]
)
def test_a_deletion_is_in_view(asked_about, edits):
    agent, _ = asked_about(edits)
    screen = agent.screen_text()
    assert edits[0]["old"].strip() in screen
    assert "1 hunk to review in the file" in screen


# --- going there and back -----------------------------------------------------------------------------------------------


def place(agent):
    return agent.lua(
        "return { vim.fn.expand('%:t'), vim.fn.line('.'), vim.api.nvim_get_current_win() }"
    )


@pytest.mark.parametrize("start", ["prompt", "transcript", "question"])
@pytest.mark.parametrize("commands", [(), ("tab split other.txt",), ("normal! zE",)])
def test_one_key_goes_to_the_first_hunk_and_back(asked_about, start, commands):
    edits = [{"old": f"line {n}\n", "new": f"LINE {n}\n"} for n in (300, 501)]
    agent, _ = asked_about(edits, commands=commands)
    agent.feed("<Esc>")
    if start == "transcript":
        agent.feed("<C-w>k")
    elif start == "question":
        agent.enter_question()
    before = place(agent)[: 2 if start == "question" else 3]  # the float may be another window
    agent.feed("<C-w>e")
    wait_until(lambda: place(agent)[:2] == ["a.txt", 300])
    agent.feed("<C-w>e")
    wait_until(lambda: place(agent)[: len(before)] == before)
    assert agent.lua("return #require('sanderling.approval.queue').list()") == 1


@pytest.mark.parametrize("start", ["prompt", "transcript"])
def test_the_key_for_the_next_hunk_goes_there_from_the_chat(asked_about, start):
    agent, _ = asked_about()
    agent.feed("<Esc>" + ("<C-w>k" if start == "transcript" else ""))
    agent.feed("]h")
    wait_until(lambda: place(agent)[:2] == ["a.txt", 501])
