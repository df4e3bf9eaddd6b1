"""`sanderling changes|undo|redo` after a run of print mode: output, exit statuses, and what stands on the disk."""

import fcntl
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import ROOT, prove, prove_rest
from tests.unit.test_print_mode import Shell

from sanderling.__main__ import EXIT_UNREAD, EXIT_UNWRITTEN
from sanderling.session.session import Session

pytestmark = pytest.mark.guard

WRITE = {"tool_use": {"name": "write", "input": {"path": "new.txt", "content": "x\n"}}}
EDIT = {
    "tool_use": {
        "name": "edit",
        "input": {"path": "old.txt", "edits": [{"old": "before", "new": "after"}]},
    }
}


@pytest.fixture
def shell(tmp_path) -> Shell:
    shell = Shell(tmp_path)
    (shell.project / "old.txt").write_text("before\n")
    read = {"tool_use": {"name": "read", "input": {"path": "old.txt"}}}
    done = shell.play([read], [WRITE, EDIT], [{"text": "Done."}], args=("--mode", "auto"))
    assert done.returncode == 0, done.stderr
    return shell


def test_the_last_run_is_undone_in_a_shell(shell):
    undone = shell.run("undo")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert undone.stdout.splitlines()[0] == "undone: 2 files"
    assert not (shell.project / "new.txt").exists()
    assert (shell.project / "old.txt").read_text() == "before\n"


def test_what_stays_is_not_counted_as_undone(shell):
    with (shell.project / "new.txt").open("a") as file:
        file.write("mine\n")
    undone = shell.run("undo")
    assert undone.stdout.splitlines()[0] == "undone: 1 file, 1 kept"
    assert undone.returncode == 1


@prove
def test_what_may_come_with_another_try_is_named_with_the_way_to_it(shell):
    (shell.project / "new.txt").unlink()
    (shell.project / "new.txt").mkdir()
    undone = shell.run("undo")
    assert undone.stdout.splitlines()[-1] == (
        "  run `sanderling undo --turn 1` for the rest, once the problem is solved"
    )
    (shell.project / "new.txt").rmdir()
    again = shell.run("undo", "--turn", "1")
    assert (again.returncode, again.stdout) == (0, "undone: no file, all are already as before\n")


@prove
def test_what_the_record_of_changes_has_lost_is_said_and_counts_as_left(shell):
    (journal,) = shell.state.rglob("journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = [line for line in lines if b'"changed"' in line and b"old.txt" in line]
    journal.write_bytes(b"".join(line[7:] if line in damaged else line for line in lines))
    for command in ("changes", "undo"):
        shown = shell.run(command)
        assert shown.returncode == 1
        assert "1 line of this session's change record is damaged" in shown.stderr
    journal.write_bytes(lines[0].replace(b'"version":1', b'"version":2') + b"".join(lines[1:]))
    shown = shell.run("changes")
    assert (shown.returncode, "another version" in shown.stderr) == (1, True)


@prove
def test_what_nobody_reads_is_undone_all_the_same(shell):
    shell.environment["PYTHONUNBUFFERED"] = "1"  # else the last flush alone would meet the pipe
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as unread:
        undone = shell.run("undo", stdout=unread)
    assert (undone.returncode, undone.stderr) == (EXIT_UNREAD, "")
    assert (shell.project / "old.txt").read_text() == "before\n"


def _shown_to_nowhere(shell: Shell, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m sanderling {command} >&-', sys.executable],
        cwd=shell.project,
        env=shell.environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@prove
def test_what_is_written_to_nowhere_is_undone(shell):
    undone = _shown_to_nowhere(shell, "undo")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert (shell.project / "old.txt").read_text() == "before\n"


@pytest.mark.parametrize("command", prove_rest(["sessions", "config show", "sandbox status"]))
def test_what_is_shown_to_nowhere_is_no_error(shell, command):
    shown = _shown_to_nowhere(shell, command)
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", prove_rest(["", "1"], keep=(0,)))
def test_what_cannot_be_written_is_undone_and_told(shell, unbuffered):
    shell.environment["PYTHONUNBUFFERED"] = unbuffered
    with Path("/dev/full").open("w") as full:
        undone = shell.run("undo", stdout=full)
    told = "sanderling: standard output cannot be written: No space left on device\n"
    assert (undone.returncode, undone.stderr) == (EXIT_UNWRITTEN, told)
    assert (shell.project / "old.txt").read_text() == "before\n"


@prove
def test_a_session_that_is_open_elsewhere_is_named_with_what_does_the_same_there(shell):
    with shell.sessions()[0].path.open("r+b") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        refused = shell.run("changes")
    assert refused.returncode == 1
    assert (
        "open: if it is open in Neovim, review and undo there (:help sanderling-undo)"
        in refused.stderr
    )


@prove
def test_a_run_is_undone_and_redone_by_its_number_and_in_part(shell):
    new, old = shell.project / "new.txt", shell.project / "old.txt"
    changes = shell.run("changes")
    assert changes.stdout.splitlines() == [
        "1 Do it.",
        "  new.txt  created  +1 −0",
        "  old.txt  changed  +1 −1",
    ]
    assert shell.run("undo").returncode == 0
    assert (new.exists(), old.read_text()) == (False, "before\n")
    assert "(undone)" in shell.run("changes", "--turn", "1").stdout

    redone = shell.run("redo", "--turn", "1", "--json")
    assert redone.returncode == 0
    assert json.loads(redone.stdout)["kind"] == "redo"
    assert (new.read_text(), old.read_text()) == ("x\n", "after\n")

    old.write_text("mine\n")
    partly = shell.run("undo", "--session", shell.sessions()[0].id)
    assert partly.returncode == 1
    assert "old.txt  kept: the same lines were changed since" in partly.stdout
    assert (new.exists(), old.read_text()) == (False, "mine\n")
    nothing = shell.run("undo")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "Nothing to undo" in nothing.stderr


@prove
def test_what_is_wrong_is_named(shell):
    (session,) = shell.sessions()
    for arguments, words in (
        (("--session", "none"), "there is no session 'none'"),
        (("--turn", "7"), "there is no turn 7"),
    ):
        failed = shell.run("undo", *arguments)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert words in failed.stderr
    for command in ("changes", "undo", "redo"):
        failed = shell.run(command, "nonsense")
        assert failed.returncode == 2
        assert failed.stderr.startswith(f"usage: sanderling {command} [-h] [--session ID]")
        assert "unrecognized arguments: nonsense" in failed.stderr
    with closing(Session.open(session.path.parent, session.id, "/")):
        failed = shell.run("undo")
    assert failed.returncode == 1
    assert "open" in failed.stderr


MAKE_ODD = r"""printf one > "$(printf 'caf\351')"; printf two > 'new
line'; printf three > "$(printf '\033[31m')"; printf four > "$(printf '\302\23331m')" """


def names_in(project: Path) -> set[bytes]:
    return {os.fsencode(path.name) for path in project.iterdir()}


@prove
def test_names_that_are_no_text_can_be_listed_and_taken_back(tmp_path):
    shell = Shell(tmp_path)
    odd = {"tool_use": {"name": "bash", "input": {"command": MAKE_ODD}}}
    done = shell.play([odd], [{"text": "Done."}], args=("--mode", "auto"))
    assert done.returncode == 0, done.stderr
    names = {b"caf\xe9", b"new\nline", b"\x1b[31m", b"\xc2\x9b31m"}
    assert names_in(shell.project) >= names
    changes = shell.run("changes")
    assert (changes.returncode, changes.stderr) == (0, "")
    assert "\x1b" not in changes.stdout
    assert len(changes.stdout.splitlines()) == 1 + len(names)  # a name is no line of ours
    printed = shell.run("changes", "--json").stdout
    assert "\x9b" not in printed
    listed = json.loads(printed)
    shown = {file["path"] for file in listed["turns"][0]["files"]}
    assert shown == {"caf\ufffd", "new\nline", "\x1b[31m", "\x9b31m"}
    undone = shell.run("undo", "--json")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert len(json.loads(undone.stdout)["files"]) == 4
    assert "\x9b" not in undone.stdout
    assert not names_in(shell.project) & names
    assert shell.run("redo").returncode == 0
    assert names_in(shell.project) >= names


@prove
def test_what_is_printed_as_json_stays_as_it_is(shell):
    (turn,) = json.loads(shell.run("changes", "--json").stdout)["turns"]
    outputs = [
        shell.run(*line.split(), "--json").stdout.replace(turn["turn"], "TURN")
        for line in ("changes", "undo", "changes --turn 1", "redo")
    ]
    golden = ROOT / "tests" / "golden" / "undo_json_v1.jsonl"
    assert "".join(outputs).splitlines() == golden.read_text().splitlines()


@prove
@pytest.mark.parametrize(
    "command, does",
    [
        ("changes", "List the agent's changes to files"),
        ("undo", "Undo the changes of the agent's last turn"),
        ("redo", "Redo the last undo"),
    ],
)
def test_help_says_what_a_command_does_and_takes(tmp_path, command, does):
    shell = Shell(tmp_path)
    shown = shell.run(command, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    text = " ".join(shown.stdout.split())
    words = [does, "--session ID", "--turn N", "--json", "The exit status is 0, 1 if"]
    assert [word for word in words if word not in text] == []
    wrong = shell.run(command, "--turn", "x")
    assert (wrong.returncode, wrong.stdout) == (2, "")


@prove
def test_without_a_session_nothing_can_be_listed(tmp_path):
    for command in ("changes", "undo", "redo"):
        failed = Shell(tmp_path).run(command)
        assert (failed.returncode, failed.stdout) == (2, ""), failed.stderr
        assert "session" in failed.stderr
