"""Copies of the project as it was before a turn, in which the turn is repeated."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sanderling.errors import WorktreeError
from sanderling.worktrees import present
from sanderling.worktrees.changes import Side, summary
from sanderling.worktrees.records import Record, Repeated
from sanderling.worktrees.snapshots import losses
from sanderling.worktrees.worktrees import Worktrees
from tests.worktrees.conftest import run_git


def turn_in(source: Path) -> Repeated:
    return Repeated("first-session", "p1", str(source), "/nowhere.jsonl")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A project without git."""
    path = tmp_path / "plain"
    (path / "src").mkdir(parents=True)
    (path / "src" / "a.txt").write_text("one\n")
    return path


def files(record: Record) -> dict[str, str]:
    top = Path(record.work_dir)
    return {
        str(path.relative_to(top)): path.read_text()
        for path in sorted(top.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(top).parts
    }


def blobs_in(repository: Path) -> set[str]:
    found = run_git(repository, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    blobs = [line.split()[0] for line in found if line.split()[1] == "blob"]
    return {run_git(repository, "cat-file", "blob", blob) for blob in blobs}


def test_a_copy_has_the_present_files_except_for_the_earlier_ones(
    worktrees: Worktrees, project: Path
):
    (project / "mine.txt").write_text("not committed\n")
    (project / "a.txt").write_text("changed by the turn\n")
    (project / "made.txt").write_text("made by the turn\n")
    (project / ".gitignore").write_text("*.log\n")
    (project / "x.log").write_text("ignored\n")
    status = run_git(project, "status", "--porcelain")
    earlier = {
        f"{project}/a.txt": Side("file", b"one\ntwo\nthree\nand mine\n"),
        f"{project}/made.txt": Side(),
        f"{project}/gone.sh": Side("file", b"removed by the turn\n", is_runnable=True),
        f"{project}/x.log": Side("file", b"ignored before\n"),
        "/etc/elsewhere": Side("file", b"no\n"),
    }
    record = worktrees.copy("second", turn_in(project), earlier)
    assert files(record) == {
        ".gitignore": "*.log\n",
        "a.txt": "one\ntwo\nthree\nand mine\n",
        "gone.sh": "removed by the turn\n",
        "mine.txt": "not committed\n",
    }
    assert os.access(f"{record.work_dir}/gone.sh", os.X_OK)
    assert summary(record) == []
    assert not losses(record).any
    assert record.repeated == turn_in(project)
    assert run_git(project, "status", "--porcelain") == status
    assert run_git(project, "log", "--format=%s") == "first"


def test_a_copy_has_of_env_files_only_what_is_committed(
    make_repository: Callable[..., Path], state: Path
):
    project = make_repository(**{".env": "A=\n", "old.env": "B=\n"})
    (project / ".env").write_text("A=secret\n")
    (project / "old.env").unlink()
    (project / ".env.local").write_text("C=secret\n")
    (project / ".env.example").write_text("C=\n")
    earlier = {f"{project}/.env.test": Side("file", b"D=secret\n")}
    record = Worktrees(str(state), str(project)).copy("second", turn_in(project), earlier)
    assert files(record) == {".env": "A=\n", ".env.example": "C=\n", "old.env": "B=\n"}
    assert blobs_in(project) == {
        "A=",
        "B=",
        "C=",
    }  # not even as an object, all of which commands can read


def test_the_directory_of_an_env_file_is_no_option_of_git(
    make_repository: Callable[..., Path], state: Path
):
    project = make_repository()
    secret = project / "--option/.env"
    secret.parent.mkdir()
    secret.write_text("A=\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "env")
    secret.write_text("A=secret\n")
    run_git(project, "add", "-A")
    record = Worktrees(str(state), str(project)).copy("second", turn_in(project), {})
    assert Path(record.work_dir, "--option/.env").read_text() == "A=\n"


def test_a_copy_of_a_project_without_git_has_no_env_file(plain: Path, state: Path):
    (plain / ".env").write_text("A=secret\n")
    record = Worktrees(str(state), str(plain)).copy("second", turn_in(plain), {})
    assert files(record) == {"src/a.txt": "one\n"}


def test_a_file_can_have_been_a_link_or_a_directory_before(worktrees: Worktrees, project: Path):
    (project / "a.txt").unlink()
    (project / "a.txt").mkdir()
    (project / "a.txt" / "inner").write_text("new\n")
    (project / "l").write_text("a file now\n")
    earlier = {
        f"{project}/a.txt": Side("file", b"one\n"),
        f"{project}/a.txt/inner": Side(),
        f"{project}/l": Side("link", b"a.txt"),
    }
    record = worktrees.copy("second", turn_in(project), earlier)
    assert Path(record.work_dir, "a.txt").read_text() == "one\n"
    assert str(Path(record.work_dir, "l").readlink()) == "a.txt"


def test_a_repository_without_a_commit_can_be_copied(tmp_path: Path, state: Path):
    project = tmp_path / "new"
    project.mkdir()
    run_git(project, "init", "-q")
    (project / "a.txt").write_text("one\n")
    record = Worktrees(str(state), str(project)).copy("second", turn_in(project), {})
    assert files(record) == {"a.txt": "one\n"}


def test_a_subdirectory_of_a_repository_is_copied_with_the_rest(state: Path, project: Path):
    (project / "sub").mkdir()
    (project / "sub" / "b.txt").write_text("b\n")
    worktrees = Worktrees(str(state), str(project / "sub"))
    record = worktrees.copy(
        "second", turn_in(project / "sub"), {f"{project}/sub/b.txt": Side("file", b"before\n")}
    )
    assert files(record) == {"b.txt": "before\n"}
    assert Path(record.directory, "a.txt").exists()


@pytest.mark.parametrize("has_commit", [True, False])
def test_of_files_outside_of_the_project_a_copy_has_only_what_is_committed(
    tmp_path: Path, state: Path, *, has_commit: bool
):
    top = tmp_path / "home"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "b.txt").write_text("b\n")
    (top / ".ssh").mkdir()
    run_git(top, "init", "-q")
    for name in ("config", "gone", "staged"):
        (top / ".ssh" / name).write_text(f"{name}\n")
    run_git(top, "add", ".ssh")
    if has_commit:
        run_git(top, "commit", "-qm", "first")
    (top / ".ssh" / "gone").unlink()
    for name in ("id_rsa", "config", "staged"):
        (top / ".ssh" / name).write_text(f"SECRET {name}\n")
    earlier = {f"{top}/.ssh/before": Side("file", b"SECRET before\n")}
    record = Worktrees(str(state), str(top / "sub")).copy("second", turn_in(top / "sub"), earlier)
    assert files(record) == {"b.txt": "b\n"}
    found = Path(record.directory, ".ssh").glob("*")
    names = ["config", "gone", "staged"] if has_commit else []
    assert sorted((each.name, each.read_text()) for each in found) == [
        (name, f"{name}\n") for name in names
    ]
    assert not any("SECRET" in each for each in blobs_in(top))  # commands can read all objects


def test_a_project_without_git_is_copied_with_a_repository_of_its_own(plain: Path, state: Path):
    worktrees = Worktrees(str(state), str(plain))
    record = worktrees.copy(
        "second", turn_in(plain), {f"{plain}/src/a.txt": Side("file", b"before\n")}
    )
    assert files(record) == {"src/a.txt": "before\n"}
    assert [each.name for each in plain.iterdir()] == ["src"]
    Path(record.work_dir, "src", "a.txt").write_text("after\n")
    assert summary(record) == [("M", "src/a.txt")]
    worktrees.remove(record.name, loses=True)
    [kept] = worktrees.all()
    assert kept.stage == "kept"
    worktrees.remove(record.name, loses=True)
    assert worktrees.all() == []
    assert not list((state / "worktrees").rglob("again-*"))


def test_a_directory_that_its_repository_ignores_is_copied_alone(state: Path, project: Path):
    (project / ".gitignore").write_text("inner\n")
    (project / "inner").mkdir()
    (project / "inner" / "b.txt").write_text("b\n")
    record = Worktrees(str(state), str(project / "inner")).copy(
        "second", turn_in(project / "inner"), {}
    )
    assert files(record) == {"b.txt": "b\n"}
    assert record.repository


@pytest.mark.parametrize("limit", ["MAX_COPIED_FILES", "MAX_COPIED_BYTES"])
def test_a_project_with_too_much_that_is_in_no_commit_is_not_copied(
    plain: Path, state: Path, monkeypatch: pytest.MonkeyPatch, limit: str
):
    (plain / "b.bin").write_bytes(b"0" * 1_000)
    monkeypatch.setattr(present, limit, 1)
    with pytest.raises(WorktreeError, match=r"2 files of this project .* at most"):
        Worktrees(str(state), str(plain)).copy("second", turn_in(plain), {})
    assert not list((state / "worktrees").rglob("again-*"))


KILLED = """
import os, signal, sys
from sanderling.worktrees import extras, present, worktrees
from sanderling.worktrees.git import Git
from sanderling.worktrees.records import Repeated

state, project, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
run, count = Git._raw, 0

def killed(self, *arguments):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, *arguments)

Git._raw = killed
worktrees.Worktrees(state, project).copy("second", Repeated("first", "p1", project, "/nowhere"), {})
"""


@pytest.mark.parametrize("kind", ["project", "plain"])
def test_a_process_that_is_killed_while_it_copies_leaves_nothing_behind(
    kind: str, request: pytest.FixtureRequest, state: Path
):
    project: Path = request.getfixturevalue(kind)
    (project / "new.txt").write_text("new\n")
    ends = set[int]()
    for at in range(1, 40):
        arguments = [sys.executable, "-c", KILLED, str(state), str(project), str(at)]
        ends.add(subprocess.run(arguments, capture_output=True, check=False).returncode)
        assert Worktrees(str(state), str(project)).all() == []  # also without the session's log
        assert not list((state / "worktrees").rglob("again-*")), at
        if 0 in ends:
            break
    assert ends == {-signal.SIGKILL, 0}
    if kind == "project":
        assert run_git(project, "worktree", "list").count("\n") == 0


def test_a_copy_without_its_sessions_log_stays_while_there_is_work_in_it(
    worktrees: Worktrees, project: Path
):
    record = worktrees.copy("second", turn_in(project), {})
    Path(record.work_dir, "new.txt").write_text("work\n")
    assert [each.name for each in worktrees.all()] == [record.name]


def test_a_copy_whose_files_were_applied_is_removed_unless_it_has_commits(
    worktrees: Worktrees, project: Path
):
    record = worktrees.copy("second", turn_in(project), {})
    Path(record.work_dir, "new.txt").write_text("work\n")
    run_git(record.work_dir, "add", "-A")
    run_git(record.work_dir, "commit", "-qm", "work")
    with pytest.raises(WorktreeError, match="stays, because removing it would lose 1 commit"):
        worktrees.remove_whole(record.name)
    run_git(record.work_dir, "reset", "-q", "HEAD~1")
    worktrees.remove_whole(record.name)
    assert worktrees.all() == []
    assert run_git(project, "for-each-ref", "refs/sanderling") == ""
