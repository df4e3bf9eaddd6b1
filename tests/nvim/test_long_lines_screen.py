"""A line of 10 MB, wherever one comes from: the screen shows its beginning, the log and the model have all of it."""

import pytest
from tests.conftest import is_alive, prove_unless_quick, wait_until
from tests.nvim.conftest import texts_told

pytestmark = prove_unless_quick

MEGABYTES = 10
LINE = "wörd " * (MEGABYTES * 1_000_000 // 6)
MAX_SHOWN_CHARS = 10_200  # with the words about the rest


def longest(screen):
    return max(map(len, screen.transcript()))


def told(agent, role):
    return [
        text
        for each in agent.logged_messages()
        if each["role"] == role
        for text in texts_told(each)
    ]


def assert_shown_in_part(agent):
    assert longest(agent) < MAX_SHOWN_CHARS
    lines = [line for line in agent.transcript() if "MB more" in line]
    assert lines
    assert all(line.startswith("wörd wörd ") for line in lines)
    return lines


@pytest.mark.parametrize("chunk_chars", [0, 50_000])
def test_an_answer_of_one_line_is_shown_in_part_and_kept_whole(start_agent, chunk_chars):
    answer = {"text": f"{LINE}\nand more\n\nThe end.", "chunk_chars": chunk_chars}
    agent = start_agent({"step": [answer]})
    agent.chat("go")
    agent.wait_for_screen("The end.")
    [line] = assert_shown_in_part(agent)
    assert line.endswith("… [10.0 MB more: :Agent export writes all of it]")
    assert "and more" in agent.transcript()
    assert told(agent, "assistant") == [answer["text"]]

    agent.command("Agent export out.md")
    wait_until((agent.project / "out.md").exists, "it is written")
    wait_until(lambda: LINE.strip().encode() in (agent.project / "out.md").read_bytes())


def test_an_answer_that_stops_in_its_long_line_says_so(start_agent):
    agent = start_agent({"step": [{"text": LINE}, {"text": "", "delay_ms": 60_000}]})
    agent.open_chat()
    agent.submit("go")
    wait_until(lambda: longest(agent) > 9_000, "the answer is on the screen")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_turns()
    agent.wait_for_screen("Stopped.")
    assert_shown_in_part(agent)


def test_a_thought_of_one_line_is_shown_in_part(start_agent):
    agent = start_agent({"step": [{"thinking": LINE}, {"text": "The end."}]})
    agent.open_chat()
    agent.submit("go")
    agent.wait_for_screen("The end.")
    [line] = assert_shown_in_part(agent)
    assert line.endswith("… [10.0 MB more]")


def test_a_prompt_of_one_line_is_shown_in_part_and_told_whole(start_agent):
    agent = start_agent({"step": [{"text": "The end."}]})
    agent.open_chat()
    agent.submit(LINE)
    agent.wait_for_screen("The end.")
    assert_shown_in_part(agent)
    assert told(agent, "user") == [LINE]


def test_lines_that_go_along_are_shown_in_part_and_told_whole(start_agent):
    agent = start_agent({"step": [{"text": "The end."}]})
    (agent.project / "long.txt").write_text(f"{LINE}\n")
    agent.command("edit long.txt")
    agent.command("1AgentAsk what is this?")
    agent.command("bdelete long.txt")
    agent.wait_for_screen("The end.")
    assert_shown_in_part(agent)
    assert LINE in "".join(told(agent, "user"))


def test_a_session_with_long_lines_opens_again_with_their_beginnings(start_agent):
    agent = start_agent({"step": [{"thinking": LINE}, {"text": LINE}]}, {"step": [{"text": "ok"}]})
    agent.open_chat()
    agent.submit_and_wait(LINE)
    host = agent.host_pid()
    agent.close()
    wait_until(lambda: not is_alive(host), "the log is written")
    again = start_agent()
    again.command("AgentResume")
    again.wait_for_screen("MB more")
    # The newest page is there first; where it does not fill the window, the one before follows.
    wait_until(lambda: len(assert_shown_in_part(again)) == 3)
    assert told(again, "user") == told(again, "assistant") == [LINE]


def test_what_a_tool_was_given_is_shown_whole_in_lines_that_can_be_drawn(start_agent):
    use = {"name": "write", "input": {"path": "new.txt", "content": LINE}}
    agent = start_agent({"step": [{"tool_use": use}]}, {"step": [{"text": "The end."}]})
    agent.open_chat()
    agent.submit("go")
    agent.enter_question()
    agent.feed("a")
    agent.wait_for_screen("The end.")
    assert longest(agent) < MAX_SHOWN_CHARS
    assert (agent.project / "new.txt").read_text() == LINE

    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.feed("<Esc>")
    agent.lua("vim.fn.search('^write new.txt')")
    agent.feed("K")
    lines = wait_until(
        lambda: agent.lua("""
          if vim.api.nvim_win_get_config(0).relative ~= '' then
            return vim.api.nvim_buf_get_lines(0, 0, -1, true)
          end
        """),
        "the use is shown",
    )
    assert max(len(line.encode()) for line in lines) <= 10_000
    assert LINE in "".join(lines)
