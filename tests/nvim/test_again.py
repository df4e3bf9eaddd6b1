"""A prompt that is repeated in a private copy, and the comparison of both results; only the model is a script."""

import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.replies import DONE, bash, reply, say
from tests.nvim.test_guests import start_guest  # noqa: F401 - a fixture
from tests.remote.conftest import elsewhere  # noqa: F401 - a fixture
from tests.worktrees.conftest import run_git

NOT_REPEATED = "Only prompts to Sanderling's own agent, with the files on this machine"
TEXT = "".join(f"line {n}\n" for n in range(1, 21))
FIRST = "sed -i -e 's/line 3$/three/' -e 's/line 18$/eighteen/' a.txt; echo 1 > first.txt"
SECOND = "sed -i -e 's/line 3$/III/' a.txt; echo 2 > second.txt"
WORK = reply(bash(f"case $PWD in */again-*) {SECOND};; *) {FIRST};; esac"))


@pytest.fixture(params=["git", "plain"])
def files(project: Path, request: pytest.FixtureRequest) -> Path:
    (project / ".git").rmdir()
    (project / "a.txt").write_text(TEXT)
    if request.param == "git":
        run_git(project, "init", "-q", "-b", "main")
        run_git(project, "add", "-A")
        run_git(project, "commit", "-qm", "first")
    return project


@pytest.fixture
def repeated(run_agent, files):  # noqa: ARG001 - they are there before the host looks
    """The first turn has ended, and its prompt was repeated."""
    agent = run_agent(WORK, reply(say("All *done*.")), DONE)
    agent.command("AgentAgain other-model")
    agent.wait_for_transcript(":AgentAgain! compares both results.")
    return agent


def compare(agent) -> list[list[str]]:
    agent.command("AgentAgain!")
    agent.wait_for_screen("Second result, in its copy")
    return agent.lua(
        """
        return vim.tbl_map(function(win)
          return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(win), 0, -1, true)
        end, vim.api.nvim_tabpage_list_wins(0))
        """
    )


def copies(agent) -> list[Path]:
    return [*(agent.home / "state/nvim/sanderling/worktrees").glob("*/again-*")]


def test_the_prompt_runs_again_with_the_other_model_in_a_copy(repeated, files):
    text = repeated.transcript_text()
    assert "Repeats the prompt with other-model in a private copy." in text
    assert "The first result cost $" in text
    assert (files / "a.txt").read_text().count("three\n") == 1
    assert not (files / "second.txt").exists()
    assert repeated.lua("return require('sanderling.session.live').current().state.model") == (
        "other-model"
    )


def test_both_results_are_shown_next_to_each_other(repeated):
    first, second = compare(repeated)
    repeated.wait_for_screen(
        "First result, in the project", "<CR> diff  a apply  D remove  q close"
    )
    assert first[0].startswith("scripted · $")
    assert first[0].endswith(" · 2 files")
    assert first[1:] == ["  a.txt  +2 −2", "  first.txt  created +1 −0", "", "All *done*."]
    assert second[0].startswith("other-model · $")
    assert second[1:] == ["  a.txt  +1 −1", "  second.txt  created +1 −0", "", "All *done*."]


@pytest.mark.parametrize("files", ["git"], indirect=True)
@pytest.mark.parametrize("arrange", ["", "tabonly", "wincmd T"])
def test_the_comparison_is_closed_wherever_its_windows_are(repeated, arrange):
    compare(repeated)
    repeated.command(arrange)
    repeated.feed("q")
    wait_until(lambda: "result, in" not in repeated.screen_text())
    assert "Error" not in repeated.lua("return vim.fn.execute('messages')")
    assert repeated.lua("return vim.fn.bufname()") != "sanderling://again-second"
    assert len(repeated.lua("return vim.api.nvim_list_tabpages()")) == 1


def test_in_a_shell_the_second_result_is_shown_as_a_diff_and_does_not_replace_the_first(repeated):
    name = next(each.stem for each in copies(repeated))
    argv = [sys.executable, "-m", "sanderling", "worktrees", "show", "--diff", name]
    shown = repeated.lua("return vim.system(...):wait().stdout", argv)
    assert "-line 3\n+III\n" in shown
    assert "second.txt" in shown
    assert "eighteen" not in shown
    applied = repeated.lua("return vim.system(...):wait().stdout", [*argv[:4], "apply", name])
    assert "a.txt  conflict, left as it is: the same lines were changed since" in applied


def test_a_file_of_both_results_is_compared_in_diff_mode_and_lines_are_taken(repeated, files):
    compare(repeated)
    repeated.command("2")
    repeated.feed("<CR>")
    repeated.wait_for_screen("Second result: a.txt")
    assert repeated.lua("return vim.wo.diff")
    assert repeated.lua("return vim.fn.expand('%:t')") == "a.txt"
    repeated.command("3")
    repeated.feed("do")
    wait_until(lambda: repeated.lua("return vim.fn.getline(3)") == "III")
    assert repeated.lua("return vim.fn.getline(18)") == "eighteen"
    repeated.command("write")
    wait_until(lambda: "III\n" in (files / "a.txt").read_text())


def test_the_second_result_replaces_the_first_as_hunks_and_its_copy_is_removed(repeated, files):
    assert copies(repeated)
    repeated.command("tabnew a.txt")
    compare(repeated)
    repeated.feed("a")
    repeated.wait_for_transcript("Applied: 3 files")
    hunks = """
        local hunks = require('sanderling.review.hunks')
        return vim.tbl_map(function(hunk)
          return { hunk.row, hunk.old }
        end, hunks.list(vim.fn.bufnr('a.txt')))
    """
    wait_until(lambda: [17, ["eighteen"]] in repeated.lua(hunks))
    wait_until(lambda: copies(repeated) == [])
    both = TEXT.replace("line 3\n", "III\n")
    wait_until(lambda: (files / "a.txt").read_text() == both)
    assert not (files / "first.txt").exists()
    assert (files / "second.txt").read_text() == "2\n"
    repeated.command("AgentUndo")
    wait_until((files / "first.txt").exists)
    wait_until(lambda: "three\n" in (files / "a.txt").read_text())


def test_the_second_result_is_removed_after_its_loss_was_named(repeated, files):
    repeated.lua(
        "vim.ui.select = function(items, opts, choose) _G.asked = opts.prompt; choose(items[1], 1) end"
    )
    compare(repeated)
    repeated.feed("D")
    repeated.wait_for_message("Removed the worktree again-")
    assert repeated.lua("return _G.asked").endswith(
        "and lose 1 changed file (a.txt), 1 new file (second.txt)?"
    )
    assert "three\n" in (files / "a.txt").read_text()


def test_without_a_repeated_prompt_there_is_nothing_to_compare(run_agent, files):  # noqa: ARG001
    agent = run_agent(DONE)
    agent.command("AgentAgain!")
    agent.wait_for_message("No prompt was repeated here.")


def test_for_a_model_that_does_not_exist_no_copy_is_made(run_agent, files):  # noqa: ARG001
    agent = run_agent(DONE)
    sessions = "return #require('sanderling.session.live').all()"
    agent.command("AgentAgain nowhere:model")
    agent.wait_for_message("nowhere")
    assert copies(agent) == []
    assert agent.lua(sessions) == 1


def test_the_default_is_the_model_that_the_session_has_now(run_agent, files):  # noqa: ARG001
    agent = run_agent(DONE)
    agent.command("AgentModel other-model")
    state = "return require('sanderling.session.live').current().state.model"
    wait_until(lambda: agent.lua(state) == "other-model")
    agent.command("AgentAgain")
    agent.wait_for_transcript(":AgentAgain! compares both results.")
    assert "Repeats the prompt with other-model" in agent.transcript_text()
    assert agent.lua(state) == "other-model"


def test_the_prompt_runs_again_in_the_mode_of_its_session(start_agent, files):  # noqa: ARG001
    agent = start_agent(DONE, setup={"mode": "auto"})
    agent.ask_and_wait()
    agent.command("AgentAgain")
    agent.wait_for_transcript(":AgentAgain! compares both results.")
    assert agent.lua("return require('sanderling.session.live').current().state.mode") == "auto"


def test_without_a_prompt_the_user_is_shown_so_although_no_chat_is_open(start_agent, files):  # noqa: ARG001
    agent = start_agent(DONE)
    agent.command("AgentAgain")
    agent.wait_for_message("There is no prompt to repeat yet.")


def test_a_prompt_to_an_external_agent_is_not_repeated(start_guest):  # noqa: F811
    guest = start_guest({"prompts": {"*": [{"say": "Done."}]}})
    guest.ask_and_wait()
    guest.command("AgentAgain")
    guest.wait_for_message(NOT_REPEATED)
    assert copies(guest) == []
    assert len(guest.session_files()) == 1


def test_a_prompt_to_a_remote_session_is_not_repeated(start_nvim, elsewhere):  # noqa: F811
    child = start_nvim({"PATH": f"{elsewhere.bin}:/usr/bin:/bin"})
    child.command(f"AgentChat {elsewhere.address()}")
    child.wait_for_screen("idle")
    child.submit_and_wait("ping")
    child.command("AgentAgain")
    child.wait_for_message(NOT_REPEATED)
    assert [*elsewhere.here.parent.rglob("again-*")] == []


def test_the_keys_of_the_comparison_fit_into_half_of_80_columns(repeated):
    repeated.rpc.request("nvim_ui_try_resize", 80, 24)
    compare(repeated)
    keys = "<CR> diff  a apply  D remove  q close"
    wait_until(lambda: repeated.screen_text().count(keys) == 2, repeated.screen_text, 5)


def test_commands_in_the_copy_can_commit_and_the_project_does_not_change(run_agent, files):
    me = "-c user.name=Ada -c user.email=ada@example.org"
    commit = f"echo 2 > a.txt; git add -A && git {me} commit -qm second && git log --format=%s"
    work = bash(f"case $PWD in */again-*) {commit};; *) echo 1 > a.txt;; esac")
    agent = run_agent(reply(work), DONE)
    agent.command("AgentAgain")
    agent.wait_for_transcript(":AgentAgain! compares both results.")
    text = agent.transcript_text()
    assert "Sanderling: before the repeated prompt" in text
    assert (files / "a.txt").read_text() == "1\n"
    if (files / ".git").exists():
        assert run_git(files, "log", "--format=%s") == "first"


def test_the_list_of_worktrees_applies_a_second_result_where_the_first_one_is(repeated, files):
    repeated.command("AgentWorktrees")
    repeated.wait_for_screen(" Worktrees ")
    repeated.feed("a")
    repeated.wait_for_transcript("Applied: 3 files")
    wait_until(lambda: (files / "a.txt").read_text() == TEXT.replace("line 3\n", "III\n"))


SET_MODE = """
    local mode = ...
    for _, session in ipairs(require('sanderling.session.live').all()) do
      session:act({ type = "set_mode", mode = mode })
    end
"""


@pytest.mark.parametrize("files", ["git"], indirect=True)
def test_a_second_result_that_could_not_be_applied_stays_when_other_work_is(repeated):
    repeated.lua(SET_MODE, "plan")
    compare(repeated)
    repeated.feed("a")
    repeated.wait_for_transcript("In plan mode the project is read-only.")
    repeated.lua(SET_MODE, "auto")
    repeated.command("AgentNew worktree")
    repeated.wait_for_screen("idle · worktree")
    repeated.command("AgentMode auto")
    repeated.ask_and_wait()
    repeated.command("AgentWorktrees")
    repeated.wait_for_screen(" Worktrees ")
    repeated.feed("a")
    repeated.wait_for_transcript("Applied: ")
    repeated.command("AgentWorktrees")
    repeated.wait_for_screen(" Worktrees ")
    assert "again-" in repeated.screen_text()
