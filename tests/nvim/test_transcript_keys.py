"""Ways through a transcript by its parts: tool calls, messages, fenced blocks."""

import pytest
from tests.conftest import prove, wait_until
from tests.nvim.test_diagnostics import reply, use

ANSWER = "Look:\n\n```python\nprint(1)\nprint(2)\n```\n\nThat is all.\n"


@pytest.fixture
def transcript(start_agent, project):
    (project / "a.txt").write_text("one\n")
    agent = start_agent(
        reply(use("read", path="a.txt")), reply(use("ls", path=".")), reply({"text": ANSWER})
    )
    agent.ask_and_wait()
    agent.lua(
        "vim.api.nvim_set_current_win(vim.fn.bufwinid(require('sanderling').transcript().buf))"
    )
    agent.feed("ggzR")
    return agent


def line(agent):
    return agent.lua("return vim.api.nvim_get_current_line()")


def yanked(agent, keys):
    agent.lua("vim.fn.setreg('\"', '')")
    agent.feed(keys)
    return agent.lua("return vim.fn.getreg('\"')")


@prove
def test_keys_go_from_one_tool_call_to_the_next(transcript):
    transcript.feed("]t")
    assert "read a.txt" in line(transcript)
    transcript.feed("]t")
    assert "ls ." in line(transcript)
    transcript.feed("[t")
    assert "read a.txt" in line(transcript)
    transcript.feed("gg2]t")
    assert "ls ." in line(transcript)
    transcript.feed("]t")
    assert "ls ." in line(transcript)


def test_a_fenced_block_and_a_message_are_text_objects(transcript):
    transcript.feed("/print(2)<CR>")
    assert yanked(transcript, "yic") == "print(1)\nprint(2)\n"
    assert yanked(transcript, "yac") == "```python\nprint(1)\nprint(2)\n```\n"
    assert yanked(transcript, "vicy") == "print(1)\nprint(2)\n"
    inner, whole = yanked(transcript, "yim"), yanked(transcript, "yam")
    assert inner.endswith("That is all.\n")
    assert whole.endswith(inner)
    assert len(whole.splitlines()) > len(inner.splitlines())
    transcript.feed("/That<CR>")
    assert yanked(transcript, "yic") == ""
    assert transcript.lua("return vim.api.nvim_get_mode().mode") == "n"


# --- fenced blocks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def answer(start_agent, project):
    """The transcript of a question about a line of a file."""
    (project / "a.py").write_text("one\ntwo\nthree\n")
    agent = start_agent(reply({"text": ANSWER}))
    agent.command("edit a.py")
    agent.command("2AgentAsk what else?")
    agent.wait_for_turns()
    agent.lua(
        "vim.api.nvim_set_current_win(vim.fn.bufwinid(require('sanderling').transcript().buf))"
    )
    agent.feed("ggzR/print<CR>")
    return agent


@prove
def test_a_fenced_block_is_offered_as_an_edit_of_what_was_asked_about(answer):
    answer.feed("\\i")
    answer.wait_for_screen("From the answer")
    assert answer.lua("return vim.fn.expand('%:t')") == "a.py"
    assert answer.lines() == [
        "one",
        "two",
        "three",
    ]
    answer.feed("\\ea")
    wait_until(lambda: answer.lines() == ["one", "print(1)", "print(2)", "three"])


@prove
def test_where_the_lines_have_changed_it_is_offered_below_the_cursor(answer):
    answer.feed("<C-w>p2GA!<Esc>3G<C-w>p\\i")
    answer.wait_for_screen("From the answer")
    answer.feed("\\ea")
    wait_until(lambda: answer.lines() == ["one", "two!", "three", "print(1)", "print(2)"])


@prove
def test_a_fenced_block_is_yanked_and_opened(answer):
    answer.feed('"z\\y')
    assert answer.lua("return vim.fn.getreg('z')") == "print(1)\nprint(2)\n"
    answer.feed("\\o")
    wait_until(lambda: line(answer) == "print(1)")
    assert answer.lua("return { vim.bo.filetype, vim.fn.expand('%') }") == ["python", ""]


@prove
def test_where_there_is_no_block_that_is_said(answer):
    answer.feed("gg\\y")
    answer.wait_for_message("No fenced block under the cursor.")


@pytest.mark.parametrize("lines", [24, 60])
def test_a_page_says_that_it_is_longer_than_its_float(transcript, lines):
    transcript.command(f"set lines={lines}")
    transcript.feed("g?")
    wait_until(lambda: " q closes ╯" in transcript.screen_text(), transcript.screen_text)
    screen = transcript.screen_text()
    assert ("─ <C-d> scrolls  q closes ╯" in screen) == (lines == 24), screen
    transcript.feed("q")
    transcript.command("Agent usage")
    wait_until(lambda: "Run it again" in transcript.screen_text(), transcript.screen_text)
    assert "<C-d> scrolls" not in transcript.screen_text()
