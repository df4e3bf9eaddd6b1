"""
The guard against a real git: each plant first makes the user's `git status` run it, then the guard is there and it does not.

The plants need no sandbox: what a command of the model can write, a test can.
"""

import errno
import os
import select
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanderling.permissions.decide import decide
from sanderling.platforms import files
from sanderling.sandbox.guard.audit import MAX_REPORTED
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.guard import Guard, GuardEvent
from sanderling.sandbox.guard.protection import protection
from sanderling.sandbox.guard.repositories import Survey, survey
from sanderling.sandbox.guard.settings import env_files_to_hide, executable_settings
from sanderling.sandbox.names import AT_ROOT, MAX_HELD, TABLE, VERSION_CONTROL
from sanderling.tools.effects import Effect
from tests.conftest import DEADLINE_S, prove, prove_rest

pytestmark = pytest.mark.guard

ROOT_NAMES = {name for name in AT_ROOT if "/" not in name}


class Git:
    """Git for one user, whose only configuration is in `home`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text(
            '[user]\n\tname = u\n\temail = u@localhost\n[protocol "file"]\n\tallow = always\n'
        )

    def __call__(self, cwd: Path, *arguments: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def repository(self, path: Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        self(path, "init", "-q", "-b", "main")
        (path / "a.txt").write_text("a\n")
        self(path, "add", "-A")
        self(path, "commit", "-qm", "one")
        return path


class Yard:
    """A project with a commit, a user with a home, and a way to see whether something ran as that user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._git = Git(root)
        self.project = root / "project"
        self.home = self._git.home
        self.state = root / "state"
        self.ran = root / "ran"
        self.evil = self.project / "tool.sh"
        self.guard: Guard | None = None
        for directory in (self.project, self.state):
            directory.mkdir()
        self.evil.write_text(f"#!/bin/sh\n: > '{self.ran}'\n")
        self.evil.chmod(0o755)
        self._git.repository(self.project)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        return self._git(cwd or self.project, *arguments)

    def victim_status(self, cwd: Path) -> bool:
        """The user's plain `git status`; whether it ran the plant. It may fail, as git does in a half of a repository."""
        self.ran.unlink(missing_ok=True)
        if cwd.is_dir():
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
            (self.project / "a.txt").touch()
            subprocess.run(
                ["git", "status"], cwd=cwd, env=environment, capture_output=True, check=False
            )
        return self.ran.exists()

    def start_guard(self, *, restores: bool = False) -> Guard:
        found = survey(str(self.project), TrustedGit())
        quarantine = str(self.state / "quarantine")
        self.guard = Guard(found, protection(found), quarantine, restores=restores)
        return self.guard

    def repository(self, path: Path, config: str = "") -> Path:
        """A git directory at `path` with a commit, and `config` added to its own."""
        work = self.root / "elsewhere"
        work.mkdir()
        self.git("init", "-q", "-b", "main", cwd=work)
        (work / "file").write_text("x")
        self.git("add", "file", cwd=work)
        self.git("commit", "-qm", "x", cwd=work)
        with (work / ".git/config").open("a") as file:
            file.write(config)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(work / ".git", path)
        shutil.rmtree(work)
        return path

    def gitlink(self, name: str) -> None:
        """Let the index say that `name` is a submodule, so that a status of the project looks into it."""
        commit = self.git("rev-parse", "HEAD").strip()
        self.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")

    @property
    def fsmonitor(self) -> str:
        return f"[core]\n\tfsmonitor = {self.evil}\n"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    if yard.guard:
        yard.guard.close()


def put(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def wait_and_handle(guard: Guard) -> list[GuardEvent]:
    assert select.select([guard], [], [], DEADLINE_S)[0], "no event came"
    return guard.handle_events()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def held_names(project: Path) -> list[str]:
    """What is mounted read-only, beside what belongs to git."""
    paths = protection(survey(str(project), TrustedGit())).read_only
    return sorted(path.removeprefix(f"{project}/") for path in paths if "/.git/" not in path)


def kinds(events: list[GuardEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.path) for event in events]


# Plants: each returns where the user then stands.


def plant_commondir(yard: Yard) -> Path:
    """The one file that moves config and hooks of a protected repository."""
    yard.repository(yard.project / "planted", yard.fsmonitor)
    (yard.project / ".git/commondir").write_text("../planted\n")
    return yard.project


def plant_nested(yard: Yard) -> Path:
    """The user stays in the parent: its status asks the submodule's."""
    yard.repository(yard.project / "sub/.git", yard.fsmonitor)
    yard.gitlink("sub")
    return yard.project


def plant_pointer_to_a_hidden_directory(yard: Yard) -> Path:
    yard.repository(yard.project / "docs/images", yard.fsmonitor)
    put(yard.project / "sub/.git", "gitdir: ../docs/images\n")
    yard.gitlink("sub")
    return yard.project


def plant_worktree_with_planted_commondir(yard: Yard) -> Path:
    """The pointer leads into the project's own `.git`, where all looks well, and out again."""
    yard.repository(yard.project / "docs/planted", yard.fsmonitor)
    admin = yard.project / ".git/worktrees/evil"
    put(admin / "HEAD", "ref: refs/heads/main\n")
    (admin / "commondir").write_text("../../../docs/planted\n")
    (admin / "gitdir").write_text(f"{yard.project}/sub/.git\n")
    put(yard.project / "sub/.git", f"gitdir: {admin}\n")
    return yard.project / "sub"


def plant_module(yard: Yard) -> Path:
    yard.repository(yard.project / ".git/modules/evil", yard.fsmonitor)
    put(yard.project / "sub/.git", "gitdir: ../.git/modules/evil\n")
    return yard.project / "sub"


def plant_link(yard: Yard) -> Path:
    yard.repository(yard.project / "docs/images", yard.fsmonitor)
    (yard.project / "sub").mkdir()
    (yard.project / "sub/.git").symlink_to("../docs/images")
    return yard.project / "sub"


def plant_bare(yard: Yard) -> Path:
    """No `.git` at all: git takes a directory that looks like a repository for one."""
    yard.repository(
        yard.project / "vendor",
        yard.fsmonitor.replace("[core]", f"[core]\n\tworktree = {yard.project}\n\tbare = false\n"),
    )
    return yard.project / "vendor"


def plant_pointer_to_commondir(yard: Yard) -> Path:
    yard.repository(yard.project / "docs/images", yard.fsmonitor)
    put(yard.project / "vendor/HEAD", "ref: refs/heads/main\n")
    (yard.project / "vendor/commondir").write_text("../docs/images\n")
    put(yard.project / "sub/.git", "gitdir: ../vendor\n")
    return yard.project / "sub"


def plant_hook(yard: Yard) -> Path:
    git_dir = yard.repository(yard.project / "sub/.git")
    shutil.copy(yard.evil, git_dir / "hooks/post-index-change")
    (yard.project / "sub/file").write_text("x")
    return yard.project / "sub"


def plant_linked_hooks(yard: Yard) -> Path:
    git_dir = yard.repository(yard.project / "sub/.git")
    shutil.rmtree(git_dir / "hooks")
    (yard.project / "scripts").mkdir()
    shutil.copy(yard.evil, yard.project / "scripts/post-index-change")
    (git_dir / "hooks").symlink_to("../../scripts")
    (yard.project / "sub/file").write_text("x")
    return yard.project / "sub"


def plant_include(yard: Yard) -> Path:
    (yard.project / "settings.ini").write_text(yard.fsmonitor)
    yard.repository(yard.project / "sub/.git", "[include]\n\tpath = ../../settings.ini\n")
    return yard.project / "sub"


def plant_linked_config(yard: Yard) -> Path:
    git_dir = yard.repository(yard.project / "sub/.git", yard.fsmonitor)
    (git_dir / "config").rename(yard.project / "settings.ini")
    (git_dir / "config").symlink_to("../../settings.ini")
    return yard.project / "sub"


def plant_worktree_config(yard: Yard) -> Path:
    git_dir = yard.repository(yard.project / "sub/.git", "[extensions]\n\tworktreeConfig = true\n")
    (git_dir / "config.worktree").write_text(yard.fsmonitor)
    return yard.project / "sub"


def plant_in_the_private_home(yard: Yard) -> Path:
    """Outside the project, but where the sandbox writes and the user's git can go: the host's path of its HOME."""
    yard.repository(yard.state / "home/evil", yard.fsmonitor)
    put(yard.project / "sub/.git", f"gitdir: {yard.state}/home/evil\n")
    return yard.project / "sub"


def plant_pointer_with_a_long_tail(yard: Yard) -> Path:
    """Git cuts line ends off, however many there are."""
    stands = plant_pointer_to_a_hidden_directory(yard)
    with (yard.project / "sub/.git").open("a") as file:
        file.write("\n" * 900_000)
    return stands


def plant_commondir_with_a_long_tail(yard: Yard) -> Path:
    stands = plant_pointer_to_commondir(yard)
    with (yard.project / "vendor/commondir").open("a") as file:
        file.write("\n" * (1 << 21))
    return stands


def plant_under_an_odd_name(yard: Yard) -> Path:
    name = os.fsdecode(b"\xff\n%\xc3") + "x" * 200
    yard.repository(yard.project / name / ".git", yard.fsmonitor)
    return yard.project / name


def plant_deep(yard: Yard) -> Path:
    deep = yard.project / "/".join(["d"] * 800)
    yard.repository(deep / ".git", yard.fsmonitor)
    return deep


PLANTS = [value for name, value in list(globals().items()) if name.startswith("plant_")]


@prove
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__[6:])
def test_git_status_runs_the_plant(yard, plant):
    """The control: an attack that fails for another reason proves nothing."""
    assert yard.victim_status(plant(yard))


@pytest.mark.parametrize(
    "plant", prove_rest(PLANTS, keep=(-1,)), ids=lambda plant: plant.__name__[6:]
)
@pytest.mark.parametrize(
    "restores", prove_rest([False, True], keep=(0,)), ids=["mounts", "restores"]
)
def test_git_status_does_not_run_what_the_guard_has_seen(yard, plant, restores):
    guard = yard.start_guard(restores=restores)
    stands = plant(yard)
    events = guard.audit()
    assert not yard.victim_status(stands)
    assert any(event.kind == "quarantined" and Path(event.kept_at).exists() for event in events)
    assert not any(event.kind == "failed" for event in events), events
    assert guard.audit() == [], "it is told once"
    assert yard.git("log", "--oneline").endswith("one\n"), (
        "the project's own repository is untouched"
    )


LINKS = {
    "COMMIT_EDITMSG": "victim",
    "logs/HEAD": "victim",
    "logs/refs/heads/main": "victim",
    "logs/refs": "victims/",
}


def link_elsewhere(yard: Yard, name: str) -> dict[str, str]:
    """Make git write elsewhere when it commits. Return the user's files."""
    put(yard.root / "victim", "mine\n")
    put(yard.root / "victims/heads/main", "mine\n")
    path, target = yard.project / ".git" / name, yard.root / LINKS[name]
    if path.is_dir():
        path.rename(path.with_name("gone"))
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    put(yard.project / ".git/MERGE_MSG", "rm -rf everything\n")
    return users_files(yard)


def users_files(yard: Yard) -> dict[str, str]:
    paths = (yard.root / "victim", yard.root / "victims/heads/main")
    return {str(path): path.read_text(errors="replace") for path in paths}


@prove
@pytest.mark.parametrize("name", LINKS)
def test_a_commit_writes_through_a_link(yard, name):
    """The control."""
    before = link_elsewhere(yard, name)
    yard.git("-c", "core.editor=true", "commit", "-q", "--allow-empty", "--allow-empty-message")
    assert users_files(yard) != before


@pytest.mark.parametrize("name", prove_rest([*LINKS], keep=(0,)))
@pytest.mark.parametrize(
    "restores", prove_rest([False, True], keep=(0,)), ids=["mounts", "restores"]
)
def test_a_commit_does_not_write_through_a_link_that_the_guard_has_seen(yard, name, restores):
    guard = yard.start_guard(restores=restores)
    before = link_elsewhere(yard, name)
    events = guard.audit()
    assert kinds(events) == [("quarantined", f".git/{name}")]
    yard.git("-c", "core.editor=true", "commit", "-q", "--allow-empty", "--allow-empty-message")
    assert users_files(yard) == before
    assert guard.audit() == []


def test_links_in_a_git_directory_that_were_there_stay(yard):
    link_elsewhere(yard, "logs/HEAD")
    guard = yard.start_guard()
    assert guard.audit() == []
    (yard.project / ".git/logs/HEAD").unlink()
    (yard.project / ".git/logs/HEAD").symlink_to(yard.home / ".profile")
    assert kinds(guard.audit()) == [("quarantined", ".git/logs/HEAD")]


def test_a_repository_made_in_a_project_without_one_is_judged(tmp_path):
    yard = Yard(tmp_path)
    shutil.rmtree(yard.project / ".git")
    guard = yard.start_guard()
    yard.repository(yard.project / ".git", yard.fsmonitor)
    assert yard.victim_status(yard.project)
    assert kinds(guard.audit()) == [("quarantined", ".git")]
    assert not yard.victim_status(yard.project)
    guard.close()


def test_a_project_that_turns_into_a_bare_repository_loses_only_what_runs(tmp_path):
    yard = Yard(tmp_path)
    shutil.rmtree(yard.project / ".git")
    guard = yard.start_guard()
    planted = yard.repository(
        yard.root / "planted", yard.fsmonitor + f"\tbare = false\n\tworktree = {yard.project}\n"
    )
    shutil.copytree(planted, yard.project, dirs_exist_ok=True)
    assert yard.victim_status(yard.project)
    assert kinds(guard.audit()) == [("quarantined", "config")]
    assert not yard.victim_status(yard.project)
    assert yard.evil.exists()
    guard.close()


def test_what_passed_once_and_turns_bad_loses_only_the_bad_part(yard):
    guard = yard.start_guard()
    git_dir = yard.repository(yard.project / "sub/.git")
    assert guard.audit() == []
    shutil.copy(yard.evil, git_dir / "hooks/post-checkout")
    assert kinds(guard.audit()) == [("quarantined", "sub/.git/hooks/post-checkout")]
    assert (git_dir / "HEAD").exists()


@prove
def test_repositories_that_run_nothing_survive(yard):
    (yard.project / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    yard.git("config", "core.fsmonitor", "false")  # the user's own settings are nobody's fault
    yard.git("config", "alias.st", "!true")
    upstream = yard.root / "upstream"
    yard.git("clone", "-q", str(yard.project), str(upstream))
    guard = yard.start_guard()
    yard.git("init", "-q", "fresh")
    yard.git("init", "-q", "--bare", "bare.git")
    yard.git("clone", "-q", str(upstream), "cloned")
    yard.git("clone", "-q", "--bare", str(upstream), "cloned.git")
    yard.git("worktree", "add", "-q", "tree")
    yard.git("config", "user.name", "someone", cwd=yard.project / "fresh")
    yard.git("checkout", "-q", "-b", "topic", cwd=yard.project / "cloned")
    yard.git("submodule", "--quiet", "add", str(upstream), "module", cwd=yard.project / "cloned")
    yard.git("sparse-checkout", "set", "--skip-checks", "module", cwd=yard.project / "cloned")
    yard.git("submodule", "--quiet", "add", str(upstream), "module")
    assert {event.path for event in guard.audit()} <= {".git/config"}, "it replaced that itself"
    assert guard.audit() == []
    for name in ("fresh", "cloned", "cloned/module", "tree", "module"):
        yard.git("status", cwd=yard.project / name)


def test_new_repositories_may_not_borrow_objects_from_outside(yard):
    """Else the next session would be shown them, as the project's own repository is shown its alternates."""
    secret = yard.repository(yard.root / "secret/.git")
    shutil.rmtree(yard.project / ".git")
    guard = yard.start_guard()
    yard.git("init", "-q")
    (yard.project / ".git/objects/info/alternates").write_text(f"{secret}/objects\n")
    assert kinds(guard.audit()) == [("quarantined", ".git")]


# The tripwire.


@pytest.mark.parametrize(
    "name",
    prove_rest(
        sorted(ROOT_NAMES | {".git/commondir", ".git/config.worktree", ".hg", ".jj"}),
        keep=(0, 5, 10, -1),
    ),
)
@pytest.mark.parametrize("how", prove_rest(["create", "directory", "rename", "link"]))
def test_a_protected_name_that_appears_is_quarantined(yard, name, how):
    guard = yard.start_guard()
    path = yard.project / name
    if how == "create":
        path.write_text("evil")
    elif how == "directory":
        (path / "below").mkdir(parents=True)
    elif how == "link":
        path.symlink_to("tool.sh")
    else:
        yard.evil.rename(path)
    (event,) = wait_and_handle(guard)
    assert (event.kind, event.path) == ("quarantined", name)
    assert not os.path.lexists(path)
    assert os.path.lexists(event.kept_at)


def test_names_that_were_there_are_left_to_the_mounts(yard):
    (yard.project / ".envrc").write_text("export A=1")
    (yard.project / ".vscode").mkdir()
    guard = yard.start_guard()
    assert held_names(yard.project) == [".envrc", ".vscode"]
    # The user's own doing, for a mount is over it inside.
    (yard.project / ".envrc").write_text("export A=2")
    (yard.project / ".vscode/settings.json").write_text("{}")
    assert guard.audit() == []


def test_a_linked_name_is_watched_and_what_it_leads_to_is_held(yard):
    """Nothing can be mounted over a link."""
    (yard.project / ".vscode").symlink_to("a.txt")
    assert held_names(yard.project) == ["a.txt"]
    (yard.project / ".vscode").unlink()
    guard = yard.start_guard()
    (yard.project / ".vscode").symlink_to("tool.sh")
    assert kinds(wait_and_handle(guard)) == [("quarantined", ".vscode")]


@pytest.mark.parametrize("restores", [False, True], ids=["mounts", "restores"])
def test_the_users_own_links_stay_and_are_put_back(yard, restores):
    (yard.project / ".git").rename(yard.project / "store")
    for name, target in ((".envrc", "a.txt"), (".mcp.json", "nowhere"), (".git", "store")):
        (yard.project / name).symlink_to(target)
    guard = yard.start_guard(restores=restores)
    assert guard.audit() == []
    (yard.project / ".envrc").unlink()
    (yard.project / ".envrc").symlink_to("tool.sh")
    events = guard.handle_events()
    assert kinds(events) == [("quarantined", ".envrc"), ("restored", ".envrc")]
    assert (yard.project / ".envrc").readlink() == Path("a.txt")
    assert guard.audit() == []


@pytest.mark.parametrize(
    "row",
    prove_rest([pytest.param(row) for row in TABLE if row is not VERSION_CONTROL], keep=(0, 5, -1)),
)
def test_what_the_tools_ask_about_is_held_or_told(yard, row):
    """Both readers of the table, for each of its names: in the root, below it, there already and not."""
    all_names = [name.replace("*", "x") for name in row.names.split()]
    for name in all_names:
        for place in ("", "sub/", "a/b/"):
            effect = Effect("write", "write", path=f"{yard.project}/{place}{name}")
            decision = decide(effect, "auto", [], project=str(yard.project), is_confined=True)
            assert (decision.action == "ask") == row.asks
        put(yard.project / "old" / name)
    assert row.asks >= row.anywhere >= bool(row.at_root)
    held = held_names(yard.project)
    assert held == (sorted(f"old/{name}" for name in all_names) if row.anywhere else [])
    guard = yard.start_guard()
    for name in all_names:
        put(yard.project / name)
        put(yard.project / "new" / name)
    guard.audit(is_routine=True)
    told = set(names_told(guard.audit()))
    assert {f"new/{name}" for name in all_names} <= told or len(told) > MAX_REPORTED
    for name in all_names:
        is_taken = not (yard.project / name).exists()
        assert is_taken == (row.at_root == "always" and "/" not in name), name


def test_a_name_must_not_appear_as_its_program_spells_it(yard):
    guard = yard.start_guard()
    profile = put(yard.project / ".Rprofile")
    assert guard.undoes(str(profile))
    assert kinds(guard.audit()) == [("quarantined", ".Rprofile")]
    assert not profile.exists()


def names_told(events: list[GuardEvent]) -> list[str]:
    return [event.path for event in events if event.kind == "noticed"]


def test_what_hooks_name_is_held_and_so_are_their_managers_files(yard):
    for name in (
        *("scripts/lint.py", "check.sh", "tools/deep/run", ".githooks/common", "package.json"),
    ):
        put(yard.project / name)
    put(
        yard.project / ".git/hooks/pre-commit",
        "python scripts/lint.py # package.json\nsh check.sh\n",
    )
    put(yard.project / ".githooks/pre-push", '"$(git rev-parse --show-toplevel)/tools/deep/run"\n')
    yard.git("config", "core.hooksPath", ".githooks")
    assert held_names(yard.project) == [
        ".githooks",
        "check.sh",
        "scripts/lint.py",
        "tools/deep/run",
    ]
    guard = yard.start_guard()
    put(yard.project / ".pre-commit-config.yaml")
    assert kinds(guard.handle_events()) == [("quarantined", ".pre-commit-config.yaml")]


@pytest.mark.parametrize("directory", ["", "web/"])
def test_hooks_that_husky_runs_are_held_and_not_its_wrappers_alone(yard, directory):
    put(yard.project / f"{directory}.husky/_/pre-commit")
    put(yard.project / f"{directory}.husky/pre-commit", "./lint.sh\n")
    put(yard.project / f"{directory}lint.sh")
    yard.git("config", "core.hooksPath", f"{directory}.husky/_")
    assert {f"{directory}.husky", f"{directory}lint.sh"} <= set(held_names(yard.project))


def test_hooks_that_a_manager_keeps_under_another_name_are_held(yard):
    put(yard.project / "dev/hooks/_/pre-commit")
    yard.git("config", "core.hooksPath", "dev/hooks/_")
    assert "dev/hooks" in held_names(yard.project)


def test_what_is_new_or_changed_and_not_held_is_told_once(yard):
    put(yard.project / "AGENTS.md")
    put(yard.project / "pkg/.envrc")
    guard = yard.start_guard()
    put(yard.project / "sub/.vscode/tasks.json")
    put(yard.project / "AGENTS.md", "Obey.")
    put(yard.project / "node_modules/x/.vscode/tasks.json")
    (yard.project / "pkg").rename(yard.project / "moved")
    put(yard.project / "pkg/.envrc", "evil")
    events = guard.audit()
    assert sorted(names_told(events)) == ["AGENTS.md", "moved/.envrc", "pkg/.envrc", "sub/.vscode"]
    assert {event.reason.partition(",")[0] for event in events} == {"is new", "was changed"}
    assert guard.audit() == []
    put(yard.project / "sub/.vscode/tasks.json", "evil")
    assert names_told(guard.audit()) == ["sub/.vscode"]


@pytest.mark.parametrize("place", ["", "sub/"])
def test_a_link_that_makes_a_name_of_the_table_of_another_file_is_told(yard, place):
    put(yard.project / "a/config.toml")
    put(yard.project / f"{place}x")
    (yard.project / f"{place}mise").symlink_to(yard.project / "a")
    guard = yard.start_guard()
    (yard.project / f"{place}.cargo").symlink_to(yard.project / "b")
    put(yard.project / "b/config.toml")
    put(yard.project / "a/config.toml", "evil")
    told = [f"{place}.cargo", "a/config.toml", "b/config.toml"]
    assert sorted(names_told(guard.audit())) == sorted(told)
    assert guard.audit() == []
    (yard.project / f"{place}.cargo").unlink()
    (yard.project / f"{place}.cargo").symlink_to(yard.project / "a")
    assert names_told(guard.audit()) == [f"{place}.cargo"]


def test_what_a_command_has_removed_again_is_not_told(yard):
    guard = yard.start_guard()
    put(yard.project / "sub/.envrc")
    assert guard.audit(is_routine=True) == []
    (yard.project / "sub/.envrc").unlink()
    assert guard.audit() == []


def test_what_the_host_removes_below_the_root_may_come_back(yard):
    put(yard.project / "pkg/.envrc")
    guard = yard.start_guard()
    (yard.project / "pkg/.envrc").unlink()
    assert guard.handle_events() == guard.audit() == []
    put(yard.project / "pkg/.envrc", "evil")
    assert guard.handle_events() == []
    assert names_told(guard.audit()) == ["pkg/.envrc"]


@prove
def test_more_names_than_can_be_mounted_are_told_instead(yard):
    for index in range(MAX_HELD + 5):
        put(yard.project / f"p{index:04}/.envrc")
    put(yard.project / ".envrc")
    assert len(held_names(yard.project)) == MAX_HELD
    assert ".envrc" in held_names(yard.project)
    guard = yard.start_guard()
    put(yard.project / f"p{MAX_HELD + 4:04}/.envrc", "evil")
    assert names_told(guard.audit()) == [f"p{MAX_HELD + 4:04}/.envrc"]


def test_a_lost_event_is_made_up_for(yard):
    guard = yard.start_guard()
    (yard.project / ".envrc").write_text("evil")
    os.read(guard.fileno(), 1 << 16)
    assert guard.handle_events() == []
    assert kinds(guard.audit()) == [("quarantined", ".envrc")]


@prove
def test_an_overflown_queue_loses_nothing(yard):
    guard = yard.start_guard()
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 50_000:
        pytest.skip("the queue is too long to fill")
    first, second = yard.project / "first", yard.project / "second"
    # Two names in turn: equal events that follow each other are merged.
    for _ in range(limit // 2 + 2):
        for path in (first, second):
            path.touch()
            path.unlink()
    (yard.project / ".envrc").write_text("evil")
    events = []
    while select.select([guard], [], [], 0)[0]:
        events += guard.handle_events()
    assert kinds(events) == [("quarantined", ".envrc")]


@pytest.fixture
def far_guard(yard) -> Iterator[Guard]:
    """A guard whose quarantine is on another file system."""
    shm = Path("/dev/shm")
    if shm.stat().st_dev == yard.project.stat().st_dev:
        pytest.skip("one file system")
    other = tempfile.mkdtemp(dir=shm)
    found = survey(str(yard.project), TrustedGit())
    yard.guard = Guard(found, protection(found), other, restores=False)
    yield yard.guard
    subprocess.run(["rm", "-rf", other, str(yard.project)], check=True)


def test_the_quarantine_may_be_on_another_file_system(yard, far_guard):
    put(yard.project / ".vscode/deep/tasks.json", "evil")
    (yard.project / ".vscode/link").symlink_to("/etc/passwd")
    os.mkfifo(yard.project / ".vscode/fifo")
    os.mkfifo(yard.project / ".envrc")
    (yard.project / ".exrc").write_text("evil")
    events = far_guard.handle_events()
    assert sorted(kinds(events)) == [
        ("quarantined", name) for name in (".envrc", ".exrc", ".vscode")
    ]
    kept = {event.path: Path(event.kept_at) for event in events}
    assert (kept[".vscode"] / "deep/tasks.json").read_text() == "evil"
    assert (kept[".vscode"] / "link").is_symlink()
    assert kept[".exrc"].read_text() == "evil"
    assert names(yard.project) == [".git", "a.txt", "tool.sh"]


@prove
@pytest.mark.parametrize("shape", ["deep", "large", "many"])
def test_what_is_too_much_to_copy_stays_under_another_name(yard, far_guard, shape):
    plant = yard.project / ".vscode"
    building = yard.project / "building"
    building.mkdir()
    if shape == "deep":
        below = os.open(building, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", dir_fd=below)
            above, below = below, os.open("d", os.O_RDONLY, dir_fd=below)
            os.close(above)
        os.close(below)
    elif shape == "large":
        with (building / "file").open("wb") as file:
            file.truncate(1 << 36)
    else:
        for index in range(10_001):
            (building / str(index)).touch()
    building.rename(plant)
    (event,) = far_guard.handle_events()
    assert (event.kind, event.path) == ("quarantined", ".vscode")
    assert Path(event.kept_at).parent == yard.project
    assert stat.S_IMODE(Path(event.kept_at).stat().st_mode) == 0
    assert not plant.exists()
    assert far_guard.close() == []
    yard.guard = None


# Putting back.


def change_config(yard: Yard) -> None:
    with (yard.project / ".git/config").open("a") as file:
        file.write(yard.fsmonitor)


def replace_config(yard: Yard) -> None:
    yard.git("config", "core.fsmonitor", str(yard.evil))


def link_config(yard: Yard) -> None:
    (yard.project / "settings.ini").write_text(yard.fsmonitor)
    (yard.project / ".git/config").unlink()
    (yard.project / ".git/config").symlink_to("../settings.ini")


def add_hook(yard: Yard) -> None:
    shutil.copy(yard.evil, yard.project / ".git/hooks/post-index-change")


def replace_hooks(yard: Yard) -> None:
    shutil.rmtree(yard.project / ".git/hooks")
    (yard.project / "scripts").mkdir()
    shutil.copy(yard.evil, yard.project / "scripts/post-index-change")
    (yard.project / ".git/hooks").symlink_to("../scripts")


def exchange_git(yard: Yard) -> None:
    shutil.copytree(yard.project / ".git", yard.project / "copy")
    (yard.project / ".git").rename(yard.project / "away")
    (yard.project / "copy").rename(yard.project / ".git")
    change_config(yard)


def link_git(yard: Yard) -> None:
    change_config(yard)
    (yard.project / "docs").mkdir()
    (yard.project / ".git").rename(yard.project / "docs/away")
    (yard.project / ".git").symlink_to("docs/away")


def bury_git(yard: Yard) -> None:
    """The original goes below something that the restoring itself moves away."""
    shutil.copytree(yard.project / ".git", yard.project / "copy")
    (yard.project / ".git").rename(yard.project / "copy/away")
    (yard.project / "copy").rename(yard.project / ".git")
    change_config(yard)


CHANGES = [
    *(change_config, replace_config, link_config, add_hook, replace_hooks, exchange_git, link_git),
    bury_git,
]


@pytest.mark.parametrize("change", prove_rest(CHANGES, is_one=True))
def test_git_status_runs_the_change(yard, change):
    change(yard)
    assert yard.victim_status(yard.project)


@pytest.mark.parametrize("change", prove_rest(CHANGES))
@pytest.mark.parametrize("moment", ["in one go", "as it happens"])
def test_what_changed_is_put_back_where_no_mount_protects(yard, change, moment):
    guard = yard.start_guard(restores=True)
    was = tree(yard.project / ".git")
    change(yard)
    events = guard.handle_events() if moment == "as it happens" else []
    events += guard.audit()
    assert not yard.victim_status(yard.project)
    assert tree(yard.project / ".git").items() >= was.items()
    assert not (yard.project / ".git").is_symlink()
    assert any(event.kind == "quarantined" for event in events)
    assert guard.audit() == []
    assert yard.git("log", "--oneline").endswith("one\n")


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Modes and contents of what is protected."""
    paths = [root / "config", root / "hooks", *(root / "hooks").iterdir()]
    return {
        str(path): (path.lstat().st_mode, b"" if path.is_dir() else path.read_bytes())
        for path in paths
    }


def test_deleted_files_modes_and_editor_files_are_put_back(yard):
    tasks = put(yard.project / ".vscode/tasks.json", "{}")
    hook = put(yard.project / ".git/hooks/pre-commit", "#!/bin/sh\n")
    hook.chmod(0o755)
    guard = yard.start_guard(restores=True)
    tasks.write_text("evil")
    (yard.project / ".vscode/launch.json").write_text("evil")
    hook.unlink()
    (yard.project / ".git/config").chmod(0o666)
    (yard.project / ".git").chmod(0o777)
    guard.audit()
    assert tasks.read_text() == "{}"
    assert names(tasks.parent) == ["tasks.json"]
    assert stat.S_IMODE(hook.stat().st_mode) == 0o755
    assert stat.S_IMODE((yard.project / ".git/config").stat().st_mode) == 0o644
    assert stat.S_IMODE((yard.project / ".git").stat().st_mode) == 0o755
    assert guard.audit() == []


def test_a_deleted_git_directory_is_told_and_its_protected_files_are_put_back(yard):
    guard = yard.start_guard(restores=True)
    config = (yard.project / ".git/config").read_text()
    shutil.rmtree(yard.project / ".git")
    events = guard.audit()
    assert any(event.kind == "failed" and "deleted" in event.reason for event in events)
    assert (yard.project / ".git/config").read_text() == config


def test_nothing_outside_is_written_through_a_link(yard):
    """The user's other repository, offered in the place of the project's own."""
    other = yard.repository(yard.root / "other/.git", yard.fsmonitor)
    shutil.copy(yard.evil, other / "hooks/pre-commit")
    was = tree(other)
    guard = yard.start_guard(restores=True)
    (yard.project / ".git").rename(yard.project / "away")
    (yard.project / ".git").symlink_to(other)
    (yard.project / "sub").symlink_to(other.parent)
    (yard.project / "away/hooks").rename(yard.project / "away/old")
    (yard.project / "away/hooks").symlink_to(other / "hooks")
    guard.audit()
    guard.audit()
    assert tree(other) == was
    assert names(other / "hooks") == sorted({Path(path).name for path in was} - {"config", "hooks"})


@prove
@pytest.mark.parametrize("restores", [False, True], ids=["mounts", "restores"])
def test_a_race_with_links_moves_nothing_outside(yard, restores):
    """A directory that turns into a link to the user's other projects and back, while the guard works."""
    other = yard.root / "other"
    git_dir = yard.repository(other / "sub/.git", yard.fsmonitor)
    (other / ".git").mkdir()
    (other / ".git/config").write_text("mine")
    guard = yard.start_guard(restores=restores)
    was = sorted(other.rglob("*"))
    racer = """
import os, sys
project, other = sys.argv[1:]
os.chdir(project)
os.symlink(other, "link")
os.makedirs("docs/sub/.git")
open("docs/sub/.git/config", "w").write(open(other + "/sub/.git/config").read())
os.symlink(other + "/.git", "gitlink")
while True:
    for one, two in (("docs", "link"), (".git", "gitlink")):
        try:
            os.rename(one, "tmp"); os.rename(two, one); os.rename("tmp", two)
            os.rename(one, "tmp"); os.rename(two, one); os.rename("tmp", two)
        except OSError:
            pass
"""
    attacker = subprocess.Popen(["python3", "-I", "-S", "-c", racer, str(yard.project), str(other)])
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            guard.handle_events()
            guard.audit()
    finally:
        attacker.kill()
        attacker.wait()
    assert sorted(other.rglob("*")) == was
    assert (other / ".git/config").read_text() == "mine"
    assert yard.fsmonitor in (git_dir / "config").read_text()


def test_a_file_that_the_host_replaced_is_told_each_time(yard):
    """`git config` renames a new file into place, which takes a mount off in every namespace: it must be mounted again."""
    guard = yard.start_guard()
    for value in ("less", "more"):
        yard.git("config", "core.pager", value)
        assert kinds(wait_and_handle(guard)) == [("replaced", ".git/config")]
        assert guard.audit() == []


def test_a_descriptor_from_before_the_hosts_file_was_mounted_again_changes_nothing(yard):
    """Who opened the new file while no mount was over it can write it for as long as it likes."""
    config = yard.project / ".git/config"
    guard = yard.start_guard()
    yard.git("config", "core.pager", "less")
    of_the_host = config.read_text()
    with config.open("a") as opened_in_between:
        assert kinds(wait_and_handle(guard)) == [("replaced", ".git/config")]
        opened_in_between.write(yard.fsmonitor)
        opened_in_between.flush()
        assert yard.victim_status(yard.project), "the control"
        assert kinds(guard.audit()) == [("quarantined", ".git/config"), ("restored", ".git/config")]
        assert not yard.victim_status(yard.project)
        assert config.read_text() == of_the_host
        opened_in_between.write("[alias]\n")
        opened_in_between.flush()
        assert config.read_text() == of_the_host, "it is another file by now"
    assert guard.audit() == []


def test_what_the_host_removed_must_not_come_back(yard):
    """Its mount is gone with it, so that a command can make it."""
    (yard.project / ".envrc").write_text("export A=1")
    (yard.project / ".vscode").mkdir()
    guard = yard.start_guard()
    (yard.project / ".envrc").unlink()
    (yard.project / ".vscode").rename(yard.project / "away")
    assert guard.handle_events() == guard.audit() == []
    (yard.project / ".envrc").write_text("evil")
    (yard.project / ".vscode").mkdir()
    events = guard.handle_events()
    assert kinds(events) == [("quarantined", ".envrc"), ("quarantined", ".vscode")]
    assert all("came back" in event.reason for event in events)


def test_what_the_host_removed_in_a_moment_that_was_lost_must_not_come_back(yard):
    (yard.project / ".envrc").write_text("export A=1")
    guard = yard.start_guard()
    (yard.project / ".envrc").unlink()
    os.read(guard.fileno(), 1 << 16)
    assert guard.audit() == []
    (yard.project / ".envrc").write_text("evil")
    assert kinds(guard.handle_events()) == [("quarantined", ".envrc")]


def test_an_editor_may_save_a_protected_file(yard):
    """Vim and Neovim rename it to a backup, write a new one and remove the backup."""
    envrc = yard.project / ".envrc"
    envrc.write_text("export A=1")
    guard = yard.start_guard()
    for _ in range(2):
        envrc.rename(f"{envrc}~")
        envrc.write_text("export A=2")
        Path(f"{envrc}~").unlink()
        assert kinds(guard.handle_events()) == [("replaced", ".envrc")]
    assert guard.audit() == []


def test_the_host_may_make_a_worktree_again(yard):
    yard.git("worktree", "add", "-q", "tree")
    guard = yard.start_guard()
    yard.git("worktree", "remove", "tree")
    guard.audit()
    yard.git("worktree", "add", "-q", "tree", "main", "--force")
    assert not [event for event in guard.audit() if event.kind != "replaced"]
    yard.git("status", cwd=yard.project / "tree")


def test_a_config_that_the_host_removed_is_judged_when_it_comes_back(yard):
    guard = yard.start_guard()
    (yard.project / ".git/config").unlink()
    guard.handle_events()
    change_config(yard)
    assert yard.victim_status(yard.project)
    assert ("quarantined", ".git/config") in kinds(guard.audit())
    assert not yard.victim_status(yard.project)


# What must not stop the guard.


@prove
def test_no_shape_of_a_tree_makes_the_guard_raise(yard):
    guard = yard.start_guard(restores=True)
    for index, shape in enumerate(("config", "HEAD", "commondir", "hooks")):
        git_dir = yard.repository(yard.project / f"fifo{index}/.git")
        path = git_dir / shape
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        os.mkfifo(path)
    for name, content in {
        "empty": b"",
        "binary": b"gitdir: \0\xff/../x",
        "long": b"gitdir: " + b"x/" * 60_000,
        "self": b"gitdir: .git",
        "spaced": b"gitdir:  ../docs",
    }.items():
        (yard.project / name).mkdir()
        (yard.project / name / ".git").write_bytes(content)
    (yard.project / "loop").mkdir()
    (yard.project / "loop/.git").symlink_to("../loop/.git")
    os.mkfifo(yard.project / "fifo.env")
    (yard.project / "socket").mkdir()
    huge = yard.repository(yard.project / "huge/.git")
    with (huge / "config").open("ab") as file:
        file.truncate(1 << 34)
    broken = yard.repository(yard.project / "broken/.git")
    (broken / "config").write_text("[core\nfsmonitor")
    (yard.project / ".git/modules").symlink_to("/")
    events = guard.audit()
    assert {
        ("quarantined", "huge/.git"),
        ("quarantined", "broken/.git"),
        ("quarantined", "binary/.git"),
    } <= set(kinds(events))
    assert ("quarantined", "fifo0/.git") in kinds(events)


@prove
def test_a_chain_of_links_does_not_hide_another_plant(yard):
    """Python 3.11 and 3.12 follow it by recursion."""
    guard = yard.start_guard()
    (yard.project / "chain").mkdir()
    for index in range(1100):
        (yard.project / f"chain/{index}").symlink_to(str(index + 1))
    (yard.project / "before").mkdir()
    (yard.project / "before/.git").symlink_to("../chain/0")
    plant_nested(yard)
    borrowing = yard.repository(yard.project / "borrowing/.git")
    (borrowing / "objects/info/alternates").write_text(f"{yard.project}/chain/0\n")
    assert sorted(kinds(guard.audit())) == [
        ("quarantined", "before/.git"),
        ("quarantined", "sub/.git"),
    ]


def test_a_worktree_elsewhere_is_quarantined(yard):
    """A `git checkout` there would write the user's files."""
    guard = yard.start_guard()
    yard.repository(yard.project / "sub/.git", f"[core]\n\tworktree = {yard.home}\n")
    assert kinds(guard.audit()) == [("quarantined", "sub/.git")]


def test_the_tripwire_works_while_an_audit_judges(yard, monkeypatch):
    guard = yard.start_guard()
    for index in range(3):
        yard.git("init", "-q", f"nested{index}")
    lived = []

    def judge_slowly(content: bytes, git: TrustedGit) -> frozenset[str]:
        lived.append((yard.project / ".envrc").exists())
        (yard.project / ".envrc").write_text("evil")
        return executable_settings(content, git)

    monkeypatch.setattr("sanderling.sandbox.guard.audit.executable_settings", judge_slowly)
    for index in range(3):  # else the settings of equal configs are known
        yard.git("config", "user.name", str(index), cwd=yard.project / f"nested{index}")
    guard.audit()
    assert lived == [False] * 3


def test_a_project_that_is_deleted_does_not_make_the_guard_raise(tmp_path):
    yard = Yard(tmp_path)
    guard = yard.start_guard(restores=True)
    shutil.rmtree(yard.project)
    guard.handle_events()
    assert guard.audit() == []
    guard.close()


@pytest.mark.parametrize("restores", [False, True])
def test_a_project_that_was_moved_away_is_left_as_it_is_and_so_is_what_is_in_its_place(
    tmp_path, restores
):
    yard = Yard(tmp_path)
    guard = yard.start_guard(restores=restores)
    old = yard.project.rename(tmp_path / "old")
    yard.project.mkdir()
    for project in (old, yard.project):
        (project / ".envrc").write_text("mine\n")
    (old / ".git/config").write_text("[core]\nfsmonitor = mine\n")
    assert guard.handle_events() == []
    assert guard.audit() == []
    assert guard.close() == []
    assert (old / ".envrc").exists()
    assert (yard.project / ".envrc").exists()
    assert not (yard.project / ".git").exists()
    assert "mine" in (old / ".git/config").read_text()


def test_a_lost_quarantine_is_told(yard):
    guard = yard.start_guard()
    shutil.rmtree(yard.state / "quarantine")
    (yard.project / ".envrc").write_text("evil")
    assert kinds(guard.handle_events()) == [("failed", ".envrc")]


def test_closing_audits_for_the_last_time(tmp_path):
    yard = Yard(tmp_path)
    guard = yard.start_guard()
    open_before = len(names(Path("/proc/self/fd")))
    plant_nested(yard)
    assert kinds(guard.close()) == [("quarantined", "sub/.git")]
    assert len(names(Path("/proc/self/fd"))) < open_before


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, whom modes bind")
def test_modes_do_not_keep_the_guard_off():
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    os.chown(root, 65534, 65534)
    os.setegid(65534)
    os.seteuid(65534)
    try:
        (root / "yard").mkdir()
        yard = Yard(root / "yard")
        guard = yard.start_guard()
        (yard.project / ".vscode").mkdir(mode=0o500)
        assert kinds(guard.handle_events()) == [("quarantined", ".vscode")]
        yard.project.chmod(0o500)
        guard.handle_events()
        yard.project.chmod(0o700)
        (yard.project / ".envrc").write_text("evil")
        yard.project.chmod(0o500)
        assert kinds(guard.handle_events()) == [("quarantined", ".envrc")]
        # A directory to be entered, not listed: the index names what is in it.
        yard.repository(yard.project / "hidden/sub/.git", yard.fsmonitor)
        yard.gitlink("hidden/sub")
        (yard.project / "hidden").chmod(0o300)
        assert yard.victim_status(yard.project)
        events = kinds(guard.audit())
        assert events == [("restored", "hidden"), ("quarantined", "hidden/sub/.git")]
        assert not yard.victim_status(yard.project)
        yard.repository(yard.project / "locked/.git", yard.fsmonitor).chmod(0)
        assert kinds(guard.audit()) == [("quarantined", "locked/.git")]
        # At the end of a session there is one look only.
        yard.repository(yard.project / "deep/er/est/.git", yard.fsmonitor)
        for name in ("deep/er/est", "deep/er", "deep"):
            (yard.project / name).chmod(0o300)
        assert kinds(guard.close()) == [
            ("restored", "deep"),
            ("restored", "deep/er"),
            ("restored", "deep/er/est"),
            ("quarantined", "deep/er/est/.git"),
        ]
    finally:
        os.seteuid(0)
        os.setegid(0)
        shutil.rmtree(root)


def test_what_macos_locks_against_its_owner_is_unlocked_and_moved(yard, monkeypatch):
    """As `chflags uchg` and access lists do, which commands can set in the project."""
    locked = {".", ".envrc"}
    rename = os.rename

    def refuse(*names, **options):
        if locked and ".envrc" in names:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        rename(*names, **options)

    guard = yard.start_guard()
    monkeypatch.setattr(os, "rename", refuse)
    monkeypatch.setattr(files, "unlock", lambda _, name: locked.discard(name))
    (yard.project / ".envrc").write_text("evil")
    assert kinds(guard.handle_events()) == [("quarantined", ".envrc")]


def test_a_survey_of_nothing_is_empty(tmp_path):
    git = TrustedGit()
    assert survey(str(tmp_path), git) == Survey(str(tmp_path), git, [], [], [], [], [])


def test_what_a_worktree_brings_along_is_no_news_and_what_differs_is(yard):
    put(yard.project / ".vscode/tasks.json", "{}")
    put(yard.project / "pkg/.envrc", "layout")
    guard = yard.start_guard()
    for tree in ("trees/one", "two"):
        put(yard.project / tree / ".vscode/tasks.json", "{}")
        put(yard.project / tree / "pkg/.envrc", "layout")
    assert names_told(guard.audit()) == []
    put(yard.project / "three/.vscode/tasks.json", "{} ")
    put(yard.project / "four/.vscode/tasks.json", "{}")
    put(yard.project / "four/.vscode/settings.json", "{}")
    (yard.project / "five").mkdir()
    (yard.project / "five/.envrc").symlink_to("../pkg/.envrc")
    put(yard.project / "two/pkg/.envrc", "evil")
    told = ["five/.envrc", "four/.vscode", "three/.vscode", "two/pkg/.envrc"]
    assert sorted(names_told(guard.audit())) == told


HOSTILE = """
[core]
	fsmonitor = {evil}
	hooksPath = {hooks}
	pager = {evil}
	editor = {evil}
	askPass = {evil}
	sshCommand = {evil}
	gitProxy = {evil}
	alternateRefsCommand = {evil}
	attributesFile = {attributes}
	{worktree}
[filter "evil"]
	clean = {evil}
	smudge = {evil}
	process = {evil}
	required = true
[diff]
	external = {evil}
[diff "evil"]
	textconv = {evil}
	command = {evil}
[merge "evil"]
	driver = {evil}
[alias]
	config = !{evil}
	ls-files = !{evil}
[pager]
	config = {evil}
	ls-files = {evil}
[credential]
	helper = {evil}
[gpg]
	program = {evil}
[trace2]
	eventTarget = {ran}
	normalTarget = {ran}
[extensions]
	partialClone = origin
	worktreeConfig = true
[remote "origin"]
	url = ext::{evil}
	promisor = true
	uploadpack = {evil}
[protocol "ext"]
	allow = always
[submodule]
	recurse = true
[submodule "sub"]
	update = !{evil}
"""


@pytest.mark.parametrize(
    "worktree",
    prove_rest(["", "worktree = /etc", "worktree = ../elsewhere", "worktree = .."], keep=(0,)),
)
def test_git_that_the_host_runs_runs_nothing_that_a_repository_names(yard, monkeypatch, worktree):
    hooks = yard.project / "own hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction"):
        shutil.copy(yard.evil, hooks / name)
        shutil.copy(yard.evil, yard.project / ".git/hooks" / name)
    (yard.root / "project/elsewhere").mkdir()
    (yard.project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (yard.project / "sub").mkdir()
    for name in ("secret.env", ".env", "deep/.env"):
        put(yard.project / name, "KEY=1\n")
    yard.git("add", "-A")
    yard.git("commit", "-qm", "two")
    yard.git("worktree", "add", "-q", str(yard.project / "linked"))
    module = yard.repository(yard.project / ".git/modules/sub")
    (yard.project / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    yard.gitlink("sub")
    config = HOSTILE.format(
        evil=yard.evil,
        hooks=hooks,
        ran=yard.ran,
        attributes=yard.project / ".gitattributes",
        worktree=worktree,
    )
    for directory in (yard.project / ".git", module):
        for name in ("config", "config.worktree"):
            with (directory / name).open("a") as file:
                file.write(config)
    yard.repository(yard.project / "bare.git", config)
    assert yard.victim_status(yard.project)
    yard.ran.unlink()
    monkeypatch.setenv("HOME", str(yard.home))
    found = survey(str(yard.project), TrustedGit())
    for path in [*found.env_files, yard.project / "a.txt"]:  # as a status would have to look again
        os.utime(path)
    env_files_to_hide(found)
    protection(found)
    executable_settings(config.encode(), TrustedGit(str(yard.project)))
    guard = yard.start_guard()
    (yard.project / "new").mkdir()
    yard.repository(yard.project / "new/.git", config)
    events = guard.audit()
    assert any(event.kind == "quarantined" for event in events)
    assert not yard.ran.exists()
