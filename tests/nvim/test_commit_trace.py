"""The option commit_trace: a real Neovim writes the message of a real commit, and a real git makes it."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.replies import edit, reply, say, use

OLD = "def f():\n    return 1\n"
LINE = "    limit = compute_the_limit(of_this)"
NEW = f"def f():\n{LINE}\n    return 1\n"
COMMENTS = "\n# Please enter the commit message\n#\n# Changes:\n"
GIT = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(project: Path, *arguments: str, is_checked: bool = True) -> str:
    done = subprocess.run(
        ["git", *GIT, *arguments], cwd=project, check=is_checked, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def committing(start_agent, project):
    """A function that has the agent write a line, and stages it; a message is open. `how` is the option, `by_agent` whether it wrote the line."""

    def start(how: str, *, by_agent: bool = True):
        if (project / ".git").is_dir() and not any((project / ".git").iterdir()):
            (project / ".git").rmdir()
        git(project, "init", "-qb", "main")
        (project / "app.py").write_text(OLD)
        git(project, "add", "app.py")
        git(project, "commit", "-qm", "base")
        steps = [use("read", path="app.py"), edit("app.py", OLD, NEW)]
        for number, step in enumerate(steps):
            step["tool_use"]["id"] = f"toolu_{number}"
        work = [
            reply(steps[0], when="Limit it."),
            reply(steps[1], after="toolu_0"),
            reply(say("Done."), after="toolu_1"),
        ]
        agent = start_agent(
            *(work if by_agent else (reply(say("Done."), when="Limit it."),)),
            reply(say("feat: limit\n\nIt had none."), repeat=True),
            setup={"commit_trace": how},
        )
        agent.command("AgentMode auto")
        agent.ask_and_wait("Limit it.")
        (project / "app.py").write_text(NEW)
        git(project, "add", "app.py")
        (project / ".git/COMMIT_EDITMSG").write_text(COMMENTS)
        agent.command(f"edit {project}/.git/COMMIT_EDITMSG")
        agent.command("set filetype=gitcommit")
        return agent

    return start


def written(agent, project: Path) -> str:
    """Have the message written by the model, accept it, and write the file."""
    agent.command("Agent commit")
    agent.wait_for_screen("+  feat: limit", "accepts")
    agent.command("AgentAccept")
    wait_until(lambda: agent.lua("return vim.fn.getline(1)") == "feat: limit")
    return saved(agent, project)


def saved(agent, project: Path) -> str:
    agent.command("silent write")
    return (project / ".git/COMMIT_EDITMSG").read_text()


def with_trailer(agent, project: Path) -> str:
    message = ""

    def has_it() -> bool:
        nonlocal message
        message = saved(agent, project)
        return "Agent-Trace" in message

    wait_until(has_it)
    return message


def commit(project: Path) -> None:
    git(project, "commit", "-q", "-F", ".git/COMMIT_EDITMSG", "--cleanup=strip")


def trailers(project: Path) -> list[str]:
    return git(project, "log", "-1", "--format=%(trailers:key=Agent-Trace,valueonly)").splitlines()


def test_the_trailer_is_the_record_of_the_commit_and_is_there_once(committing, project):
    agent = committing("trailer")
    written(agent, project)
    with_trailer(agent, project)
    saved(agent, project)
    commit(project)
    [trailer] = [line for line in trailers(project) if line]
    record = json.loads(trailer)
    assert "vcs" not in record
    [file] = record["files"]
    [conversation] = file["conversations"]
    [lines] = conversation["ranges"]
    assert (file["path"], lines["start_line"], lines["end_line"]) == ("app.py", 2, 2)
    assert conversation["url"] == f"sanderling:{agent.session_id()}"
    assert git(project, "log", "-1", "--format=%s") == "feat: limit"


def test_the_trailer_joins_others(committing, project):
    agent = committing("trailer")
    written(agent, project)
    with_trailer(agent, project)
    agent.lua("""
      vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'fix: it', '', 'Why: not.', '', 'Signed-off-by: A <a@b>', '# end' })
    """)
    lines = saved(agent, project).splitlines()
    assert lines[:5] == ["fix: it", "", "Why: not.", "", "Signed-off-by: A <a@b>"]
    assert lines[5].startswith("Agent-Trace: {")
    assert lines[6] == "# end"


def test_a_blank_message_stays_blank(committing, project):
    agent = committing("trailer")
    written(agent, project)
    with_trailer(agent, project)
    agent.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { '', '# end' })")
    assert saved(agent, project) == "\n# end\n"


@pytest.mark.parametrize("how, by_agent", [("off", True), ("trailer", False)])
def test_without_the_option_or_lines_of_the_agents_the_message_is_only_the_models(
    committing, project, how, by_agent
):
    agent = committing(how, by_agent=by_agent)
    assert written(agent, project).splitlines()[:3] == ["feat: limit", "", "It had none."]
    agent.command("AgentBlame!")  # the host answers in order
    agent.command("messages clear")
    assert "Agent-Trace" not in saved(agent, project)
    assert git(project, "for-each-ref", "refs/notes") == ""


def test_a_message_that_is_closed_leaves_no_autocommand(committing, project):
    agent = committing("note")
    written(agent, project)
    agent.command("Agent commit")
    agent.command("edit app.py | bwipeout! COMMIT_EDITMSG")
    assert agent.lua("return vim.api.nvim_get_autocmds({ group = 'sanderling_commit' })") == []


@pytest.mark.parametrize("end", ["edit app.py | bunload COMMIT_EDITMSG", "quitall!"])
def test_the_note_comes_with_the_commit_after_the_buffer_or_neovim_has_ended(
    committing, project, end
):
    agent = committing("note")
    assert "Agent-Trace" not in written(agent, project)
    if end == "quitall!":
        agent.feed(":quitall!<CR>")
        wait_until(lambda: agent.rpc.process.poll() is not None)
    else:
        agent.command(end)
    commit(project)
    wait_until(lambda: git(project, "for-each-ref", "refs/notes"))
    record = json.loads(git(project, "notes", "--ref=agent-trace", "show", "HEAD"))
    assert record["vcs"]["revision"] == git(project, "rev-parse", "HEAD")
    assert record["files"][0]["path"] == "app.py"
