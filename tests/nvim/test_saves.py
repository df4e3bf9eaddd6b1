"""What the person saves while a command of the agent's runs is theirs."""

from pathlib import Path

import pytest
from tests.conftest import prove, wait_until
from tests.nvim.test_agent_acts import DONE, bash, reply

from sanderling.changes.journal import turns_of
from sanderling.changes.records import read_journal

pytestmark = pytest.mark.guard


def journal_of(agent) -> Path | None:
    found = list(Path(agent.lua("return vim.fn.stdpath('state')")).rglob("journal.jsonl"))
    return found[0] if found else None


@prove
def test_a_file_that_is_saved_while_a_command_runs_is_not_taken_for_its_work(start_agent, project):
    (project / "mine.txt").write_text("old\n")
    wait = "while ! [ -e go ]; do sleep 0.02; done; touch made"
    agent = start_agent(reply(bash(f"touch begun; {wait}")), DONE)
    agent.lua("require('sanderling').mode('auto')")
    agent.command("edit mine.txt")
    agent.ask()
    wait_until((project / "begun").exists, "the command runs")
    agent.lua(
        "local buf = vim.fn.bufnr('mine.txt') vim.api.nvim_buf_set_lines(buf, 0, -1, false, { 'mine' })"
        " vim.api.nvim_buf_call(buf, function() vim.cmd('write') end)"
    )
    (project / "go").touch()
    agent.wait_for_turns()
    (turn,) = turns_of(read_journal(journal_of(agent)).records)
    changed = {Path(change.path).name for change in turn.changes}
    assert changed == {"begun", "go", "made"}  # who has made `go`, nobody can know
    assert [Path(change.path).name for change in turn.doubtful] == ["mine.txt"]
