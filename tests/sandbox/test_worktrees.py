"""A session in a worktree reaches neither the project's checkout nor what of its repository runs or belongs to others."""

import shlex
from pathlib import Path

import pytest

from sanderling.sandbox.processes import PIPE, STDOUT
from sanderling.sandbox.sandbox import Sandbox
from sanderling.worktrees.records import Record
from sanderling.worktrees.worktrees import Worktrees
from tests.sandbox.test_sandbox import Place

pytestmark = pytest.mark.guard


class Tree:
    """A worktree of the project, and the sandbox of a session in it."""

    def __init__(self, place: Place, *links: str) -> None:
        self.place = place
        self.worktrees = Worktrees(str(place.base / "state"), str(place.project))
        self.record: Record = self.worktrees.create("s", links=links)
        self.top = self.record.directory
        self.git_dir = f"{place.project}/.git"

    def is_whole(self, record: Record) -> bool:
        pointer = Path(record.directory, ".git")
        return pointer.read_text() == f"gitdir: {record.git_dir}\n"

    def open(self, level: str | None = None, **changes):
        return self.place.open(
            level,
            project=self.record.work_dir,
            state_dir=str(self.place.base / "state/sandbox/x"),
            state_root=str(self.place.base / "state"),
            is_worktree=True,
            **changes,
        )


@pytest.fixture
def tree(place: Place) -> Tree:
    place.git("branch", "other")
    return Tree(place)


async def output(sandbox: Sandbox, line: str) -> str:
    process = await sandbox.spawn(["/bin/sh", "-c", line], stdout=PIPE, stderr=STDOUT)
    assert process.stdout
    data = b"".join([chunk async for chunk in process.stdout])
    await process.wait()
    return data.decode()


@pytest.fixture(params=["full", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_everyday_git_works_in_a_worktree(tree: Tree, level: str):
    async with tree.open(level) as sandbox:
        said = await output(
            sandbox,
            "set -ex; echo work > new; git add -A; git commit -qm work; git switch -qc feature;"
            " echo more >> new; git stash -q; git stash apply -q; git commit -qam more; git log --oneline;"
            " git switch -q --detach HEAD~1; echo x > y; git add y; git commit -qm y; git rebase -q feature;"
            " git cherry-pick --no-commit feature~1 || true; git status --short; git reset -q --hard; echo done",
        )
    assert said.endswith("done\n"), said
    assert tree.place.git("log", "--format=%s", "feature") == "more\nwork\nfirst\n"
    assert tree.place.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "attack",
    [
        "cd {project} && echo bad > file",
        "echo bad > {project}/file",
        "cd ../../../../../../..; echo bad > {project}/file",
        "git -C {project} commit --allow-empty -m bad",
        "git --git-dir={git} --work-tree={project} commit --allow-empty -m bad",
        "GIT_DIR={git} GIT_WORK_TREE=. git add -A",
        "GIT_DIR={git} git config core.fsmonitor evil",
        "git config core.fsmonitor evil",
        "git config --worktree core.fsmonitor evil",
        "echo evil > {git}/hooks/post-commit",
        "echo evil > {git}/config",
        "echo evil > {git}/config.worktree",
        "echo . > {git}/commondir",
        "echo evil > {git}/index",
        "echo 'ref: refs/heads/other' > {git}/HEAD",
        "echo evil > {git}/info/attributes",
        "echo evil > {git}/worktrees/other/HEAD",
        "echo evil > {git}/worktrees/other/index",
        "rm -rf {git}/worktrees/other",
        "mv {git}/worktrees/other {git}/worktrees/gone",
        "mv {git}/hooks {git}/gone",
        "mv {git} {git}.gone",
        "echo {git}/worktrees/other > .git",
        "git worktree remove --force {git}/../../other",
        "git worktree add ../escape",
        "rm {git}/packed-refs; git pack-refs --all",
        "cat {project}/file",
    ],
)
async def test_nothing_outside_the_worktree_is_reached(tree: Tree, level: str, attack: str):
    other = tree.worktrees.create("s", name="other")
    project, git = tree.place.project, Path(tree.git_dir)
    before = {
        path: path.read_bytes()
        for top in (git, git / "hooks", git / "info", git / "worktrees/other", project)
        for path in top.iterdir()
        if path.is_file() and path.name != "commondir"
    }
    line = attack.format(project=shlex.quote(str(project)), git=shlex.quote(str(git)))
    async with tree.open(level) as sandbox:
        said = await output(sandbox, line)
    assert "public" not in said
    for path, content in before.items():
        assert path.read_bytes() == content, path
    new = {
        path
        for top in (git, git / "hooks", git / "worktrees/other", project)
        for path in top.iterdir()
        if path.is_file() and path not in before and path.name != "commondir"
    }
    assert new == set()
    assert tree.is_whole(other)
    assert tree.is_whole(tree.record)


@pytest.mark.parametrize("attack", ["echo {commit} > {ref}", "rm {ref}", "mv {heads} {heads}2"])
async def test_the_branch_that_the_user_has_checked_out_does_not_move(tree: Tree, attack: str):
    heads = f"{tree.git_dir}/refs/heads"
    line = attack.format(
        commit=tree.record.base, ref=shlex.quote(f"{heads}/main"), heads=shlex.quote(heads)
    )
    async with tree.open("full") as sandbox:
        await output(sandbox, "git commit --allow-empty -qm bad; " + line)
        said = await output(sandbox, "git branch -f main HEAD; git update-ref refs/heads/main HEAD")
    assert said
    assert tree.place.git("log", "--format=%s", "main") == "first\n"


async def test_the_user_can_commit_in_the_project_meanwhile(tree: Tree):
    async with tree.open("full") as sandbox:
        await output(sandbox, "true")
        tree.place.git("commit", "--allow-empty", "-qm", "mine")
        said = await output(sandbox, "git commit --allow-empty -qm work && git log -1 --format=%s")
        tree.place.git("commit", "--allow-empty", "-qm", "again")
    assert said.endswith("work\n")
    assert tree.place.git("log", "--format=%s", "main") == "again\nmine\nfirst\n"


async def test_a_linked_directory_is_read_only(place: Place):
    (place.project / "node_modules").mkdir()
    (place.project / "node_modules/x").write_text("mine\n")
    tree = Tree(place, "node_modules")
    async with tree.open("full", read_paths=(f"{place.project}/node_modules",)) as sandbox:
        said = await output(
            sandbox, "cat node_modules/x; echo bad > node_modules/x; rm -rf node_modules/*"
        )
    assert said.startswith("mine\n")
    assert (place.project / "node_modules/x").read_text() == "mine\n"
