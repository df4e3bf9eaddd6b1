"""Sessions in worktrees, and :AgentWorktrees, from end to end; only the model is a script."""

from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.replies import DONE, bash, reply
from tests.worktrees.conftest import run_git

TEXT = "".join(f"line {n}\n" for n in range(1, 21))
WORK = reply(
    bash("sed -i -e 's/line 3$/three/' -e 's/line 18$/eighteen/' a.txt; echo new > new.txt")
)


@pytest.fixture
def repository(project: Path) -> Path:
    (project / ".git").rmdir()
    run_git(project, "init", "-q", "-b", "main")
    (project / "a.txt").write_text(TEXT)
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "first")
    return project


@pytest.fixture
def worked(start_agent, repository):  # noqa: ARG001 - it is there before the host looks
    """A session has worked in a worktree, and the list is shown."""
    agent = start_agent(WORK, DONE)
    agent.command("edit a.txt")
    agent.command("AgentNew worktree")
    agent.command("AgentMode auto")
    go_to_file(agent)
    agent.ask_and_wait()
    return agent


def go_to_file(agent) -> None:
    agent.lua("vim.api.nvim_set_current_win(vim.fn.win_findbuf(vim.fn.bufnr('a.txt'))[1])")


def show(agent) -> list[str]:
    agent.command("AgentWorktrees")
    agent.wait_for_screen(" Worktrees ")
    return lines(agent)


def lines(agent) -> list[str]:
    return agent.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)")


def hunks(agent):
    return agent.lua(
        """
        local hunks = require('sanderling.review.hunks')
        return vim.tbl_map(function(hunk)
          return { hunk.row, hunk.old }
        end, hunks.list(vim.fn.bufnr('a.txt')))
        """
    )


def test_the_list_says_what_removing_would_lose_and_shows_the_changes(worked, repository):
    title, place, loss = show(worked)
    assert title.startswith("main-")
    assert " kB · " in title
    assert "from HEAD at " in title
    assert "/worktrees/project-" in place
    assert loss == "    removing loses 1 changed file (a.txt), 1 new file (new.txt)"
    assert run_git(repository, "status", "--porcelain") == ""
    worked.feed("<CR>")
    worked.wait_for_screen("Changes in main-")
    assert "+eighteen" in lines(worked)


def test_its_changes_are_merged_into_the_users_buffer_and_reviewed_hunk_by_hunk(worked, repository):
    worked.command("10s/line 10/mine/")  # unsaved
    show(worked)
    worked.feed("a")
    wait_until(lambda: len(hunks(worked)) == 2)
    assert hunks(worked) == [[2, ["line 3"]], [17, ["line 18"]]]
    buffer = worked.lua("return vim.api.nvim_buf_get_lines(vim.fn.bufnr('a.txt'), 0, -1, true)")
    assert [buffer[n] for n in (2, 9, 17)] == ["three", "mine", "eighteen"]
    wait_until((repository / "new.txt").exists)
    assert (repository / "new.txt").read_text() == "new\n"
    go_to_file(worked)
    worked.command("3AgentReject")
    wait_until(lambda: len(hunks(worked)) == 1)
    worked.command("write")
    text = TEXT.replace("line 10\n", "mine\n").replace("line 18", "eighteen")
    wait_until(lambda: (repository / "a.txt").read_text() == text)


def test_a_session_in_another_worktree_does_not_take_the_changes(worked, repository):
    worked.command("AgentNew worktree")
    worked.wait_for_screen("idle · worktree")
    show(worked)
    worked.command("call search('1 changed file', 'w')")
    worked.feed("a")
    worked.wait_for_transcript("Applied: 2 files")
    wait_until((repository / "new.txt").exists)
    assert "idle · worktree" not in worked.screen_text()
    assert worked.lua("return require('sanderling.session.live').current().state.worktree") == ""


def test_the_list_names_the_session(worked):
    titles = [line for line in show(worked) if not line.startswith(" ")]
    assert titles[0].endswith("“go”")


def test_a_conflict_is_shown_and_the_users_lines_stay(worked, repository):
    worked.command("3s/.*/drei/ | write")
    show(worked)
    worked.feed("a")
    worked.wait_for_transcript("line 3 was changed on both sides, and yours stay")
    wait_until(lambda: hunks(worked) == [[17, ["line 18"]]])
    text = TEXT.replace("line 3\n", "drei\n").replace("line 18", "eighteen")
    wait_until(lambda: (repository / "a.txt").read_text() == text)
    assert (repository / "new.txt").exists()


def test_removing_asks_with_the_loss_and_a_changed_loss_is_not_removed(worked):
    worked.lua(
        "vim.ui.select = function(items, opts, choose) _G.asked = opts.prompt; _G.go = function()"
        " choose(items[1], 1) end end"
    )
    place = Path(show(worked)[1].strip().replace("~", str(worked.home)))
    worked.feed("D")
    wait_until(lambda: worked.lua("return _G.asked"))
    assert worked.lua("return _G.asked").endswith(
        "and lose 1 changed file (a.txt), 1 new file (new.txt)?"
    )
    (place / "late.txt").write_text("late\n")
    worked.lua("_G.go()")
    worked.wait_for_message("would now lose 1 changed file (a.txt), 2 new files")
    assert (place / "late.txt").exists()


def test_the_changes_in_a_removed_worktree_are_no_longer_to_review(start_agent, repository):  # noqa: ARG001
    write = {"id": "w1", "name": "write", "input": {"path": "new.txt", "content": "new\n"}}
    task = {"task": "Do it.", "role": "edit", "isolation": "worktree"}
    agent = start_agent(
        {"when": "Do it.", "step": [{"tool_use": write}]},
        {"after": "w1", "step": [{"text": "Did it."}]},
        {"step": [{"tool_use": {"name": "delegate", "input": task}}]},
        DONE,
        setup={"permissions": [{"action": "allow", "tool": "delegate"}]},
    )
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.wait_for_screen("1 to review")
    show(agent)
    agent.lua("vim.ui.select = function(items, _, choose) choose(items[1], 1) end")
    agent.feed("D")
    agent.wait_for_message("Removed the worktree main-")
    wait_until(lambda: "to review" not in agent.screen_text())


def test_without_worktrees_it_says_how_one_is_made(start_agent, repository):  # noqa: ARG001
    agent = start_agent(DONE)
    agent.command("AgentWorktrees")
    agent.wait_for_message("AgentNew worktree")


def test_a_session_without_a_possible_worktree_says_why_and_does_not_open(start_agent, project):
    (project / ".git").rmdir()
    run_git(project, "init", "-q")
    agent = start_agent(WORK, DONE)
    agent.command("AgentNew worktree")
    agent.wait_for_screen("the repository has no commit yet", ":Agent close")
    assert not (project / "new.txt").exists()


def test_an_unknown_word_is_named(start_agent, repository):  # noqa: ARG001
    agent = start_agent(DONE)
    agent.command("AgentNew worktre")
    agent.wait_for_message(":AgentNew: worktree, not 'worktre'.")
