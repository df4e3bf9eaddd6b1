"""The chat's windows and buffers in the hands of a person, their plugins and their other windows."""

import pytest
from tests.conftest import ChildNvim, prove, prove_rest, wait_until

PONG = "pong"


def say_ping(child: ChildNvim, count: int = 1) -> None:
    child.feed("iping<C-s><Esc>")
    child.wait_for_turns(count)


# --- autocommands that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    prove_rest(
        ["BufNew", "OptionSet", "BufAdd", "BufFilePre", "BufFilePost", "FileType"], keep=[0, 1]
    ),
)
def test_an_autocommand_of_the_users_that_fails_is_not_in_the_way_of_the_chat(child, event):
    child.lua(
        "vim.api.nvim_create_autocmd(..., { callback = function() error('not today') end })", event
    )
    child.command("AgentChat")
    assert not child.is_blocked()
    say_ping(child)
    assert child.transcript()[-1] == PONG
    assert not child.is_blocked()
    child.feed(":AgentHelp<CR>")
    wait_until(lambda: "Commands" in child.screen_text())
    child.feed("q")
    wait_until(lambda: "Commands" not in child.screen_text())
    assert "not today" not in child.screen_text()


# --- buffers that somebody deletes or empties -------------------------------------------------------------------------

SLOW = {"step": [{"text": "begun"}, {"delay_ms": 600}, {"text": " and done"}]}
ENDLESS = {"step": [{"text": "begun"}, {"delay_ms": 60000}, {"text": " and done"}]}


def buffer_of(child: ChildNvim, filetype: str) -> int:
    return child.lua(
        """
        for _, buf in ipairs(vim.api.nvim_list_bufs()) do
          if vim.bo[buf].filetype == ... and vim.api.nvim_buf_is_loaded(buf) then return buf end
        end
        """,
        filetype,
    )


@pytest.mark.parametrize("which", ["sanderling", pytest.param("sanderling_prompt", marks=prove)])
@pytest.mark.parametrize(
    "command",
    prove_rest(
        ["bwipeout! {}", "bdelete! {}", "bunload! {}", "noautocmd bwipeout! {}", "%bdelete!"]
    ),
)
def test_a_turn_goes_on_when_a_buffer_of_the_chat_is_deleted_and_stands_in_the_next_one(
    start_agent, which, command
):
    agent = start_agent(SLOW, {"step": [{"text": "second"}]})
    agent.command("AgentChat")
    agent.feed("igo<C-s>half typed<Esc>")
    agent.wait_for_screen("begun")
    agent.command(command.format(buffer_of(agent, which)))
    wait_until(lambda: "What runs here goes on: :AgentChat shows it" in agent.screen_text())
    assert "begun" not in agent.screen_text()
    agent.wait_for_turns()
    assert agent.events("AgentTurnEnded")[0]["stop_reason"] == "end_turn"
    agent.command("AgentChat")
    screen = agent.wait_for_screen("▍You", " and done", "half typed")
    assert "[No Name]" not in screen.split("\n")[0]
    assert agent.messages().count("something went wrong") == 0
    assert agent.lua("return #vim.api.nvim_list_wins()") == 3
    agent.feed("<C-s>")
    agent.wait_for_turns(2)
    agent.wait_for_screen("second")


@pytest.mark.parametrize("which", ["sanderling", "sanderling_prompt"])
@pytest.mark.parametrize("command", prove_rest(["edit", "edit!", "noautocmd edit"], keep=[0]))
def test_edit_in_a_window_of_the_chat_leaves_it_as_it_was(start_agent, which, command):
    agent = start_agent(
        {
            "step": [
                {"thinking": "a\nb\nc"},
                {"text": "begun"},
                {"delay_ms": 500},
                {"text": " and done"},
            ]
        }
    )
    agent.command("AgentChat")
    agent.feed("igo<C-s>half typed<Esc>")
    agent.wait_for_screen("begun")
    if which == "sanderling":
        agent.command("wincmd k")
    agent.command(command)
    agent.wait_for_turns()
    agent.wait_for_screen("▍You", "▸ Thinking", " and done", "half typed")
    assert not agent.messages().count("something went wrong")


def test_a_question_waits_on_when_the_chat_is_wiped(start_agent):
    agent = start_agent(
        {"step": [{"tool_use": {"name": "write", "input": {"path": "new.txt", "content": "x\n"}}}]},
        {"step": [{"text": "written"}]},
    )
    agent.command("AgentChat")
    agent.feed("igo<C-s><Esc>")
    agent.wait_for_question()
    agent.command("%bwipeout!")
    agent.command("AgentChat")
    agent.wait_for_question()
    assert agent.events("AgentTurnEnded") == []
    agent.command("AgentApprove")
    agent.wait_for_turns()
    agent.wait_for_screen("written", "write new.txt")
