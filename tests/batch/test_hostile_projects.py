"""Projects and ids whose author is hostile: nothing of theirs runs outside of a sandbox, or reaches another task."""

from pathlib import Path

import pytest

from sanderling.batch.checks import Command, run_command
from sanderling.batch.git import git as ours
from sanderling.batch.tasks import directory_name
from sanderling.errors import SandboxError
from tests.batch.batches import Batches, bash, git
from tests.conftest import prove_unless_quick, quick

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]


def with_filters(home: Batches) -> tuple[Path, Path]:
    """Make a repository with a changed file whose filters leave a file outside. Return both."""
    ran = home.folder / "ran"
    repository = home.repository("p", f="a\n", __gitattributes="f filter=x\n")
    for name in ("clean", "smudge"):
        git(repository, "config", f"filter.x.{name}", f"sh -c 'touch {ran}; cat'")
    (repository / "f").write_text("b\n")
    return repository, ran


def test_copying_a_project_runs_no_filter_of_its_repository(home: Batches):
    _, ran = with_filters(home)
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    _, results = home.play([bash("cat f; echo c > f")], DONE)
    assert results["a"]["state"] == "completed", results
    assert "-b\n+c\n" in home.patch("a").read_text()
    assert not ran.exists()


def test_applying_a_patch_runs_no_filter_of_the_repository(home: Batches):
    repository, ran = with_filters(home)
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    home.play([bash("echo c > f")], DONE)
    done = home.batch("apply", str(home.out), "--yes")
    assert done.returncode == 0, done.stderr
    assert (repository / "f").read_text() == "c\n"
    assert not ran.exists()


@quick
def test_git_gets_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-secret-7391")
    shown = ours("-c", "alias.show-env=!env", "show-env", cwd=tmp_path)
    assert b"PATH=" in shown
    assert b"the-secret-7391" not in shown


@quick
def test_an_id_cannot_be_the_directory_of_another():
    other = directory_name("a b")
    assert directory_name(other) != other
    assert directory_name("plain-id-1234") == "plain-id-1234"


def test_a_patch_changes_only_the_part_of_the_repository_that_the_task_was_about(home: Batches):
    repository = home.repository("r", f="old\n")
    (repository / "part").mkdir()
    (repository / "part" / "g").write_text("old\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=Second")
    home.write_tasks({"id": "a", "project": "r/part", "prompt": "Do."})
    home.play([bash("echo new > g")], DONE)
    path = home.patch("a")
    honest = path.read_text()
    path.write_text(honest.replace("part/g", "f"))  # as a node could send it
    done = home.batch("apply", str(home.out), "--yes")
    assert done.returncode == 1
    assert "it changes f, which is not in part" in done.stderr
    assert (repository / "f").read_text() == "old\n"
    path.write_text(
        "diff --git a/f b/part/f\nsimilarity index 100%\nrename from f\nrename to part/f\n"
    )
    assert "rename" in home.batch("apply", str(home.out), "--yes").stderr
    assert (repository / "f").exists()
    path.write_text(honest)
    assert home.batch("apply", str(home.out), "--yes").returncode == 0
    assert (repository / "part" / "g").read_text() == "new\n"


def test_the_output_of_a_check_cannot_fill_the_disk(home: Batches):
    home.directory("p", f="x\n")
    check = "echo first; head -c 100000000 /dev/zero; (sleep 60; echo late) & echo last"
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do.", "check": check})
    _, results = home.play(DONE)
    assert results["a"]["reward"] == 1, results
    output = (home.out / "a__1" / "verifier" / "test-stdout.txt").read_bytes()
    assert len(output) < 20_000_000
    assert output.startswith(b"first\n")
    assert output.endswith(b"last\n")
    assert b"bytes left out]" in output


async def test_a_check_whose_sandbox_cannot_start_fails_as_such(tmp_path: Path):
    command = Command(
        argv=("/missing/program",),
        cwd=tmp_path,
        project=tmp_path,
        state=tmp_path / "state",
        output=tmp_path / "output",
    )
    with pytest.raises(SandboxError):
        await run_command(command, 10)
