"""`sanderling blame` and `sanderling changes --line` after runs of print mode, and after what git and the user do then."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_print_mode import Shell

pytestmark = pytest.mark.guard

BEFORE = "def f():\n    return 1\n"
ADDED = "    limit = compute_the_limit(of_this)\n"
AFTER = f"def f():\n{ADDED}    return 1\n"
GIT = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return {
        "tool_use": {"name": "edit", "input": {"path": path, "edits": [{"old": old, "new": new}]}}
    }


def read(path: str) -> dict[str, Any]:
    return {"tool_use": {"name": "read", "input": {"path": path}}}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    (shell.project / "a.py").write_text(BEFORE)
    return shell


def act(shell: Shell, prompt: str, *steps: dict[str, Any], path: str = "a.py") -> None:
    model = shell.write_script([read(path)], [*steps], [{"text": "Done."}])
    done = shell.run("-p", prompt, "--model", model, "--mode", "auto")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def worked(shell: Shell) -> Shell:
    act(shell, "Limit it.", edit("a.py", BEFORE, AFTER))
    assert (shell.project / "a.py").read_text() == AFTER
    return shell


def blamed(shell: Shell, place: str) -> dict[str, Any]:
    done = shell.run("blame", place, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def written(shell: Shell, path: str = "a.py") -> list[str]:
    """The agent's lines of the file."""
    lines = (shell.project / path).read_text().splitlines()
    found = blamed(shell, path).get("lines", ())
    return [line for each in found for line in lines[each["first"] - 1 :][: each["count"]]]


def git(shell: Shell, *arguments: str) -> None:
    subprocess.run(["git", *GIT, *arguments], cwd=shell.project, check=True, capture_output=True)


def test_a_line_leads_to_its_prompt_model_turn_and_session(worked):
    [session] = worked.sessions()
    hunk = blamed(worked, "a.py:2")
    assert (hunk["prompt"], hunk["number"], hunk["session_id"]) == ("Limit it.", 1, session.id)
    assert (hunk["outcome"], hunk["lines"]) == ("unreviewed", [ADDED.rstrip("\n")])
    assert hunk["model"]
    assert hunk["project"] == str(worked.project)
    shown = worked.run("blame", "a.py:2").stdout
    assert "Limit it." in shown
    assert f"+{ADDED.rstrip()}" in shown
    [line] = worked.run("blame", "a.py").stdout.splitlines()
    assert line.startswith("2  ")
    assert line.endswith("Limit it.")


def test_a_line_that_is_not_the_agents_is_not_attributed_to_it(worked):
    done = worked.run("blame", "a.py:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the agent did not write line 1 of a.py" in done.stderr


@pytest.mark.parametrize(
    "place, says",
    [
        ("a.py:4", "a.py has no line 4, its last one is 3"),
        ("a.py:0", "a.py has no line 0, its last one is 3"),
        ("a.py:x", "'x' after a.py is not the number of a line"),
        ("a.py:", "'' after a.py is not the number of a line"),
        ("a.py:-1", "'-1' after a.py is not the number of a line"),
        (f"a.py:{'9' * 5000}", "is not the number of a line"),
        (".", "Is a directory"),
        ("/dev/zero", "it is not a regular file"),
        ("gone.py", "cannot read"),
        ("gone.py:1", "cannot read"),
    ],
)
def test_a_wrong_place_is_refused_with_the_reason(worked, place, says):
    for command in (("blame", place), ("changes", "--line", place)):
        done = worked.run(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr or "the number of the line is missing" in done.stderr


def test_missing_and_extra_arguments_are_refused(worked):
    for arguments in ((), ("a.py", "b.py"), ("a.py", "--turn", "1")):
        done = worked.run("blame", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: sanderling blame" in done.stderr


GOLDEN = Path(__file__).parent.parent / "golden" / "blame_v1.txt"
COMMANDS = (
    ("blame", "a.py"),
    ("blame", "a.py:2"),
    ("blame", "a.py", "--json"),
    ("blame", "a.py:2", "--json"),
    ("changes", "--line", "a.py:2"),
    ("changes", "--line", "a.py:2", "--json"),
)
VARYING = (
    (r"\d{8}-\d{6}-[0-9a-f]{8}", "SESSION"),
    (r'"turn":"[0-9a-f]+"', '"turn":"TURN"'),
    (r'"at":[0-9.]+', '"at":0.0'),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME"),
)


def test_the_output_is_the_documented_one(worked):
    act(worked, "Rename it.", edit("a.py", "of_this", "of_that"))
    output = ""
    for command in COMMANDS:
        done = worked.run(*command)
        assert (done.returncode, done.stderr) == (0, "")
        output += f"$ sanderling {' '.join(command)}\n{done.stdout}"
    output = output.replace(str(worked.project), "/project")
    output = output.replace(str(worked.script), "script.json")
    for pattern, name in VARYING:
        output = re.sub(pattern, name, output)
    assert output == GOLDEN.read_text()


def test_commits_a_rebase_and_a_squash_change_no_author(worked):
    shutil.rmtree(worked.project / ".git")
    git(worked, "init", "-qb", "main")
    (worked.project / "b.py").write_text("b = 1\n")
    git(worked, "add", "b.py")
    git(worked, "commit", "-qm", "base")
    git(worked, "checkout", "-qb", "topic")
    git(worked, "add", "a.py")
    git(worked, "commit", "-qm", "one")
    (worked.project / "a.py").write_text(f"# mine\n{AFTER}")
    git(worked, "commit", "-qam", "two")
    git(worked, "checkout", "-q", "main")
    (worked.project / "b.py").write_text("b = 2\n")
    git(worked, "commit", "-qam", "other")
    git(worked, "rebase", "-q", "main", "topic")
    assert written(worked) == [ADDED.rstrip("\n")]
    git(worked, "checkout", "-q", "main")
    git(worked, "merge", "--squash", "topic")
    git(worked, "commit", "-qm", "squashed")
    git(worked, "branch", "-qD", "topic")
    assert written(worked) == [ADDED.rstrip("\n")]


def test_a_renamed_file_keeps_the_authors_of_its_lines(worked):
    (worked.project / "a.py").rename(worked.project / "renamed.py")
    act(
        worked,
        "More.",
        {"tool_use": {"name": "write", "input": {"path": "new.py", "content": "n\n"}}},
        path="renamed.py",
    )
    long = "    result = first_of_all(second_of_all, third_of_all)\n"
    act(worked, "Long.", edit("renamed.py", ADDED, ADDED + long), path="renamed.py")
    (worked.project / "renamed.py").rename(worked.project / "again.py")
    assert long.rstrip("\n") in written(worked, "again.py")


def test_an_undone_turn_has_no_lines_and_a_redone_one_has_them_again(worked):
    assert worked.run("undo").returncode == 0
    assert written(worked) == []
    assert worked.run("redo").returncode == 0
    assert written(worked) == [ADDED.rstrip("\n")]


def test_lines_of_several_sessions_lead_to_theirs(worked):
    other = "    check(limit, of_that)\n"
    act(worked, "Check it.", edit("a.py", ADDED, ADDED + other))
    assert blamed(worked, "a.py:2")["prompt"] == "Limit it."
    assert blamed(worked, "a.py:3")["prompt"] == "Check it."


def test_the_changes_of_a_line_are_listed_back_to_the_first(worked):
    act(worked, "Rename it.", edit("a.py", "of_this", "of_that"))
    done = worked.run("changes", "--line", "a.py:2", "--json")
    assert done.returncode == 0, done.stderr
    prompts = [json.loads(line)["prompt"] for line in done.stdout.splitlines()]
    assert prompts == ["Rename it.", "Limit it."]
    refused = worked.run("changes", "--line", "a.py:2", "--turn", "1")
    assert (refused.returncode, "--turn" in refused.stderr) == (2, True)
    refused = worked.run("changes", "--line", "a.py")
    assert (refused.returncode, "the number of the line" in refused.stderr) == (2, True)


def test_an_edited_line_and_one_of_a_deleted_session_say_so(worked):
    (worked.project / "a.py").write_text(AFTER.replace("of_this", "of_mine"))
    assert blamed(worked, "a.py:2")["outcome"] == "edited"
    [log] = (worked.state / "sessions").glob("*.jsonl")
    log.unlink()
    assert "deleted" in worked.run("blame", "a.py").stdout


def test_a_file_whose_name_ends_in_a_number_is_a_file(worked):
    (worked.project / "a.py").rename(worked.project / "a:2")
    assert "line_count" in blamed(worked, "a:2")


def test_a_line_of_a_child_names_it_and_leads_to_the_turn_that_started_it(shell):
    task = {"name": "delegate", "input": {"task": "Task A.", "role": "edit"}, "id": "toolu_0"}
    write = {"name": "write", "input": {"path": "new.py", "content": "n = 1\n"}, "id": "toolu_1"}
    replies = [
        {"when": "Task A.", "step": [{"tool_use": write}]},
        {"after": "toolu_1", "step": [{"text": "Did it."}]},
        {"step": [{"tool_use": task}]},
        {"step": [{"text": "All done."}]},
    ]
    shell.script.write_text(json.dumps({"version": 1, "reply": replies}))
    model = ("--model", f"script:{shell.script}")
    done = shell.run("-p", "Go.", *model, "--allow", "delegate", "--mode", "auto")
    assert done.returncode == 0, done.stderr
    hunk = blamed(shell, "new.py:1")
    assert (hunk["prompt"], hunk["child"]) == ("Go.", "edit 1")
    assert hunk["child_id"] in {session.id for session in shell.sessions() if session.parent}
