"""Agent Trace records of commits, by a real git, after runs of print mode."""

import json
import os
import shutil
import subprocess
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from tests.unit.test_blame_cli import ADDED, AFTER, BEFORE, GIT, act, edit, git
from tests.unit.test_print_mode import Shell

from sanderling.blame.origins import Origins, origins_in
from sanderling.blame.trace import (
    Record,
    Vcs,
    add_note,
    as_json,
    repository_of,
    trace_of_commit,
    trace_of_index,
)
from sanderling.cli import trace
from sanderling.config import Settings

pytestmark = pytest.mark.guard

SCHEMA = json.loads(Path(__file__).with_name("agent_trace_record.schema.json").read_text())
NOTES = ("-c", "notes.rewriteRef=refs/notes/agent-trace")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    for name in ("a.py", "b.py"):
        (shell.project / name).write_text(BEFORE)
    if (shell.project / ".git").is_dir():
        (shell.project / ".git").rmdir()
    git(shell, "init", "-qb", "main")
    git(shell, "add", ".")
    git(shell, "commit", "-qm", "base")
    act(shell, "Limit it.", edit("a.py", BEFORE, AFTER))
    return shell


def output(shell: Shell, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *GIT, *arguments], cwd=shell.project, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(shell: Shell) -> str:
    git(shell, "commit", "-qam", "limit")
    return output(shell, "rev-parse", "HEAD")


def checked(text: str) -> dict[str, Any]:
    record = json.loads(text)
    jsonschema.Draft202012Validator(
        SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate(record)
    return record


def traced(shell: Shell, *arguments: str) -> dict[str, Any]:
    done = shell.run("trace", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return checked(done.stdout)


def noted(shell: Shell, revision: str = "HEAD") -> dict[str, Any]:
    return checked(output(shell, "notes", "--ref=agent-trace", "show", revision))


def origins_of(shell: Shell) -> Origins:
    return origins_in(Settings(str(shell.state)), str(shell.project))


def staged(shell: Shell, index: str = "") -> Record | None:
    return trace_of_index(repository_of(str(shell.project)), origins_of(shell), index)


def test_a_record_has_the_lines_of_the_commit_that_the_agent_wrote(shell):
    (shell.project / "b.py").write_text(f"# mine\n{BEFORE}")
    (shell.project / "a.py").write_text(f"# mine\n{AFTER}")
    revision = commit(shell)
    record = traced(shell)
    [session] = shell.sessions()
    assert record["version"] == "0.1.0"
    assert record["vcs"] == {"type": "git", "revision": revision}
    assert record["tool"]["name"] == "sanderling"
    [file] = record["files"]
    [conversation] = file["conversations"]
    assert file["path"] == "a.py"
    assert conversation["url"] == f"sanderling:{session.id}"
    assert conversation["contributor"]["type"] == "ai"
    assert conversation["ranges"] == [
        {
            "start_line": 3,
            "end_line": 3,
            "content_hash": f"sha256:{sha256(ADDED.encode()).hexdigest()}",
        }
    ]


def test_a_commit_is_named_and_only_its_own_lines_count(shell):
    first = commit(shell)
    act(shell, "More.", edit("b.py", BEFORE, AFTER), path="b.py")
    commit(shell)
    assert [each["path"] for each in traced(shell)["files"]] == ["b.py"]
    assert [each["path"] for each in traced(shell, first)["files"]] == ["a.py"]
    done = shell.run("trace", "HEAD~2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the agent wrote no line that HEAD~2 adds" in done.stderr


@pytest.mark.parametrize("name", ["nope", "--output=x", "HEAD:a.py", ""])
def test_a_wrong_commit_is_refused(shell, name):
    done = shell.run("trace", "--", name)
    assert done.returncode == 2
    assert f"there is no commit '{name}' here" in done.stderr
    assert not (shell.project / "x").exists()


def test_on_a_branch_without_commits_it_says_what_to_do(shell):
    git(shell, "checkout", "-q", "--orphan", "fresh")
    done = shell.run("trace")
    assert done.returncode == 2
    assert "this branch has no commit yet: make one, or name one of another branch" in done.stderr
    assert shell.run("trace", "main").returncode == 1


def test_outside_of_a_repository_there_is_no_record(shell):
    (shell.project / ".git").rename(shell.project.parent / "elsewhere")
    done = shell.run("trace")
    assert done.returncode == 2
    assert "is not in the work tree of a git repository" in done.stderr


def test_the_first_commit_a_merge_and_a_rename_have_records(shell):
    git(shell, "checkout", "-q", "--orphan", "fresh")
    commit(shell)
    assert traced(shell)["files"][0]["conversations"][0]["ranges"][0]["start_line"] == 2
    git(shell, "checkout", "-q", "-f", "main")
    git(shell, "checkout", "-qb", "topic")
    (shell.project / "a.py").write_text(AFTER)
    commit(shell)
    git(shell, "checkout", "-q", "main")
    git(shell, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    assert [each["path"] for each in traced(shell)["files"]] == ["a.py"]
    git(shell, "mv", "a.py", "c.py")
    git(shell, "commit", "-qm", "rename")
    assert shell.run("trace").returncode == 1


def test_lines_that_the_user_edited_are_mixed(shell):
    (shell.project / "a.py").write_text(AFTER.replace("of_this", "of_mine"))
    commit(shell)
    [conversation] = traced(shell)["files"][0]["conversations"]
    assert conversation["contributor"]["type"] == "mixed"


def test_a_note_is_kept_once_and_survives_an_amended_commit_and_a_rebase(shell):
    commit(shell)
    for _ in range(2):
        assert shell.run("trace", "--note").returncode == 0
    record = noted(shell)
    git(shell, *NOTES, "commit", "-q", "--amend", "-m", "other words")
    assert noted(shell) == record
    git(shell, "checkout", "-qb", "topic")
    git(shell, "checkout", "-qb", "other", "HEAD~1")
    (shell.project / "b.py").write_text("b = 2\n")
    git(shell, "commit", "-qam", "other")
    git(shell, *NOTES, "rebase", "-q", "other", "topic")
    assert noted(shell) == record
    assert record["vcs"]["revision"] != output(shell, "rev-parse", "HEAD")
    assert shell.run("trace", "--note").returncode == 0
    assert noted(shell)["vcs"]["revision"] == output(shell, "rev-parse", "HEAD")


def test_notes_that_are_added_at_the_same_time_are_all_kept(shell):
    repository = repository_of(str(shell.project))
    record = trace_of_commit(repository, origins_of(shell), commit(shell))
    assert record
    for number in range(7):
        git(shell, "commit", "-q", "--allow-empty", "-m", f"{number}")
    revisions = output(shell, "rev-list", "-8", "HEAD").splitlines()
    with ThreadPoolExecutor(8) as threads:
        for revision in revisions:
            each = replace(record, vcs=Vcs(revision))
            threads.submit(add_note, repository, each, str(shell.state))
    for revision in revisions:
        assert noted(shell, revision)["vcs"]["revision"] == revision


def test_a_ref_of_notes_that_leads_to_a_branch_does_not_move_it(shell):
    head = commit(shell)
    git(shell, "symbolic-ref", "refs/notes/agent-trace", "refs/heads/main")
    done = shell.run("trace", "--note")
    assert done.returncode == 2
    assert "leads to refs/heads/main" in done.stderr
    assert output(shell, "rev-parse", "main") == head


def test_git_is_asked_once_while_no_commit_comes(shell, tmp_path, monkeypatch):
    calls, program = tmp_path / "calls", tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$1" >> {calls}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(trace, "AWAIT_S", 1)
    monkeypatch.setattr(trace, "POLL_S", 0.01)
    monkeypatch.chdir(shell.project)
    head = output(shell, "rev-parse", "HEAD")
    assert trace.run(Namespace(commit="HEAD", note=True, after=head)) == trace.EXIT_NOTHING
    assert calls.read_text().splitlines().count("reflog") == 1


def test_a_note_is_of_the_commit_that_was_made_and_of_none_that_was_checked_out(shell):
    base = output(shell, "rev-parse", "HEAD")
    git(shell, "checkout", "-qb", "other")
    other = commit(shell)
    git(shell, "checkout", "-q", "main")
    git(shell, "checkout", "-q", "other")
    assert shell.run("trace", "--note", "--after", base).returncode == 1
    assert output(shell, "notes", "--ref=agent-trace", "list") == ""
    git(shell, "commit", "-q", "--amend", "-m", "limit it")
    made = output(shell, "rev-parse", "HEAD")
    git(shell, "checkout", "-q", "main")
    assert shell.run("trace", "--note", "--after", other).returncode == 0
    assert noted(shell, made)["vcs"]["revision"] == made


def test_no_hook_of_the_repository_runs_for_a_note(shell):
    commit(shell)
    hook = shell.project / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {shell.project}/ran\n")
    hook.chmod(0o755)
    assert shell.run("trace", "--note").returncode == 0
    assert noted(shell)
    assert not (shell.project / "ran").exists()


def test_the_staged_changes_have_a_record_and_others_do_not(shell):
    assert staged(shell) is None
    git(shell, "add", "a.py")
    (shell.project / "a.py").write_text(BEFORE)
    record = staged(shell)
    assert record
    [file] = checked(as_json(record))["files"]
    assert (file["path"], file["conversations"][0]["ranges"][0]["start_line"]) == ("a.py", 2)
    assert "\n" not in as_json(record)


def test_the_index_of_this_commit_counts(shell):
    index = str(shell.project.parent / "index")
    subprocess.run(
        ["git", "add", "a.py"],
        cwd=shell.project,
        env={**os.environ, "GIT_INDEX_FILE": index},
        check=True,
    )
    assert staged(shell) is None
    assert staged(shell, index)


def test_what_is_staged_for_the_first_commit_has_a_record(shell):
    git(shell, "checkout", "-q", "--orphan", "fresh")
    git(shell, "add", ".")
    assert staged(shell)


@pytest.mark.parametrize("name", ["ä b.py", 'quo"te.py', "new\nline.py", "-dash.py", "日本.py"])
def test_files_with_unusual_names_have_records(shell, name):
    write = {"tool_use": {"name": "write", "input": {"path": name, "content": "n = 1\n"}}}
    act(shell, "New.", write)
    git(shell, "add", "--", f":(literal){name}")
    record = staged(shell)
    assert record
    assert [file.path for file in record.files] == [name]


def test_a_blob_that_the_repository_lacks_and_a_large_file_have_no_record(shell):
    (shell.project / "large.py").write_text("x = 1\n" * 900_000)
    git(shell, "add", ".")
    gone = output(shell, "rev-parse", "HEAD:a.py")
    (shell.project / ".git/objects" / gone[:2] / gone[2:]).unlink()
    assert staged(shell) is None
