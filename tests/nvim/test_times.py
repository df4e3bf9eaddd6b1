"""The times of prompts and turns in the transcript, shown on demand."""

import json
import re

from tests.conftest import wait_until

TODAY = r"\d\d:\d\d, just now"


def shown(child):
    """The times behind the headers, by header, in order."""
    return child.lua("""
      local buf = require('sanderling').transcript().buf
      local ns = vim.api.nvim_get_namespaces().sanderling_times
      local marks = ns and vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true }) or {}
      return vim.tbl_map(function(mark)
        local line = vim.api.nvim_buf_get_lines(buf, mark[2], mark[2] + 1, true)[1]
        return { line:sub(4), mark[4].virt_text[1][1] }
      end, marks)
    """)


def begin(start_agent, count=4):
    agent = start_agent(*[{"step": [{"text": f"Answer {n}."}]} for n in range(count)])
    agent.command("AgentChat")
    agent.say("first")
    return agent


def test_a_key_shows_the_times_of_prompts_and_turns_and_hides_them_again(start_agent):
    agent = begin(start_agent)
    assert shown(agent) == []
    agent.feed("<C-w>k\\t")
    wait_until(lambda: shown(agent))
    (you, sent), (them, ended) = shown(agent)
    assert (you, them) == ("You", "Sanderling")
    assert re.fullmatch(TODAY, sent)
    assert re.fullmatch(f"ended {TODAY}", ended)
    agent.wait_for_screen("just now")
    agent.feed("\\t")
    wait_until(lambda: shown(agent) == [])


def test_turns_that_follow_get_their_times_too(start_agent):
    agent = begin(start_agent)
    agent.command("Agent times")
    agent.say("second")
    wait_until(lambda: [name for name, _ in shown(agent)] == ["You", "Sanderling"] * 2)
    before = agent.transcript()
    agent.command("Agent times")
    assert agent.transcript() == before, "the text is the same"
    assert shown(agent) == []


def test_a_resumed_session_has_the_times_of_its_log_with_the_date_of_another_day(start_agent):
    agent = begin(start_agent)
    session = agent.session_id()
    agent.command("Agent close")
    wait_until(lambda: agent.lua("return #require('sanderling').list()") == 0)
    log = agent.session_files()[0]
    lines = []
    for line in log.read_text().splitlines():
        record = json.loads(line)
        if record["type"] == "message" and record.get("prompt"):
            record["at"] = "2020-02-03T04:05:06Z"
        lines.append(json.dumps(record))
    log.write_text("\n".join(lines) + "\n")
    agent.command(f"AgentResume {session}")
    agent.wait_for_screen("Answer 0.")
    agent.command("Agent times")
    (_, sent), (_, ended) = shown(agent)
    assert re.fullmatch(r"2020-02-0[234] \d\d:\d\d", sent)
    assert re.fullmatch(f"ended {TODAY}", ended)
