"""Worktrees in which a hostile model has worked: applying them changes only files of the project."""

from pathlib import Path

import pytest

from sanderling.changes.timeline import Timeline
from sanderling.conversation.undo.bringing import BEHIND_LINK, bring
from sanderling.errors import WorktreeError
from sanderling.worktrees.worktrees import Worktrees
from tests.children import said, tree, use
from tests.worktrees.conftest import run_git

TREE = r"""
import subprocess
def git(*words, data=b""):
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    return subprocess.run(["git", *who, *words], input=data, capture_output=True, check=True).stdout.strip().decode()
def tree(mode, name, hash):
    data = b"%b %b\0%b" % (mode, name, bytes.fromhex(hash))
    return git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=data)
blob = git("hash-object", "-w", "--stdin", data=b"evil\n")
*directories, file = NAMES
found = tree(b"100755", file, blob)
for directory in reversed(directories):
    found = tree(b"40000", directory, found)
commit = git("commit-tree", found, "-p", "HEAD", "-m", "x")
git("update-ref", "refs/sanderling/worktrees/WORK", commit)
"""


async def worked(base: Path, line: str, session_id: str = "work") -> str:
    script = [use("bash", command=line)]
    async with tree(base, script, options={"worktree": ""}, session_id=session_id) as it:
        await it.run()
        assert "exit status 0" in it.results[-1]
        return it.services.session.worktree


async def test_a_link_that_became_a_directory_is_one_in_the_project(tmp_path: Path, project: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept\n")
    (project / "d").symlink_to(outside)
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "link")
    name = await worked(tmp_path, "rm d; mkdir d; echo a > d/kept; echo b > d/new")
    async with tree(tmp_path, [said("x")], sandbox={"write": [str(outside)]}) as it:
        done = await bring(it.services, name, Timeline([]))
    assert done.left == ()
    assert not (project / "d").is_symlink()
    assert (project / "d/kept").read_text() == "a\n"
    assert (project / "d/new").read_text() == "b\n"
    assert [path.read_text() for path in outside.iterdir()] == ["kept\n"]


@pytest.mark.parametrize("target", ["../outside", ".git/info"])
async def test_a_directory_that_is_now_a_link_elsewhere_is_left(
    tmp_path: Path, project: Path, target: str
):
    (tmp_path / "outside").mkdir()
    (project / "d").mkdir()
    (project / "d/kept").write_text("kept\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "directory")
    name = await worked(tmp_path, "echo b > d/new; echo c > c")
    (project / "d/kept").unlink()
    (project / "d").rmdir()
    (project / "d").symlink_to(target)
    before = sorted((project / target).iterdir())
    async with tree(tmp_path, [said("x")], sandbox={"write": [str(tmp_path / "outside")]}) as it:
        done = await bring(it.services, name, Timeline([]))
    assert [(each.path, each.why) for each in done.left] == [(f"{project}/d/new", BEHIND_LINK)]
    assert (project / "c").read_text() == "c\n"
    assert sorted((project / target).iterdir()) == before


@pytest.mark.parametrize(
    "names",
    [[b"..", b"evil"], [b"a/../../evil"], [b".git", b"description"], [b"d", b".GIT", b"config"]],
)
async def test_kept_work_with_paths_that_no_project_has_is_refused(
    tmp_path: Path, project: Path, names: list[bytes]
):
    name = await worked(tmp_path, "echo new > new")
    Worktrees(str(tmp_path / "state"), str(project)).remove(name, loses=True)
    program = TREE.replace("NAMES", repr(names)).replace("WORK", name)
    await worked(tmp_path, f"cat > /tmp/x.py <<'END'\n{program}\nEND\npython3 /tmp/x.py", "other")
    async with tree(tmp_path, [said("x")]) as it:
        with pytest.raises(WorktreeError, match="cannot be a file of a project"):
            await bring(it.services, name, Timeline([]))
    assert run_git(project, "status", "--porcelain") == ""
