"""Ways through a transcript by its parts: tool calls, messages, fenced blocks."""

import pytest
from tests.nvim.test_diagnostics import reply, use

ANSWER = "Look:\n\n```python\nprint(1)\nprint(2)\n```\n\nThat is all.\n"


@pytest.fixture
def transcript(start_agent, project):
    (project / "a.txt").write_text("one\n")
    agent = start_agent(
        reply(use("read", path="a.txt")),
        reply(use("ls", path=".")),
        reply({"text": ANSWER}),
    )
    agent.ask()
    agent.wait_for_turns()
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
