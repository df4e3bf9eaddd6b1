"""What is protected in a project's repositories, and the sentinels, against real git and its layouts."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sanderling.sandbox.gitconfig import write_gitconfig
from sanderling.sandbox.guard import settings
from sanderling.sandbox.guard.git_program import AmbiguousPathError, TrustedGit
from sanderling.sandbox.guard.protection import GitProtection, protection
from sanderling.sandbox.guard.repositories import Survey, find_repository, survey
from sanderling.sandbox.guard.sentinels import (
    SENTINEL,
    Claim,
    clean_up_after_the_dead,
    place_sentinels,
    remove_sentinels,
)
from sanderling.sandbox.guard.settings import env_files_to_hide, executable_settings
from sanderling.sandbox.policy import SandboxPolicy
from tests.conftest import prove, prove_rest, wait_until
from tests.sandbox.test_guard import Git

pytestmark = pytest.mark.guard


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    git = Git(tmp_path)
    monkeypatch.setenv("HOME", str(git.home))
    return git


@pytest.fixture
def repository(git: Git, tmp_path: Path) -> Path:
    return git.repository(tmp_path / "project")


def surveyed(project: Path) -> Survey:
    return survey(str(project), TrustedGit())


def protect(project: Path) -> GitProtection:
    return protection(surveyed(project))


def place(state: Path, project: Path) -> Claim:
    return place_sentinels(str(state), surveyed(project))


def remove(state: Path, claim: Claim) -> None:
    remove_sentinels(str(state), claim)


def under(project: Path, *names: str) -> set[str]:
    return {str(project / name) for name in names}


def watched(plan: GitProtection, directory: Path) -> set[str]:
    return set(dict(plan.watch).get(str(directory), ()))


# What is protected.


def test_a_plain_repository(repository):
    plan = protect(repository)
    assert set(plan.read_only) == under(repository, ".git/config", ".git/hooks")
    assert set(plan.pin) == under(repository, ".git", ".git/objects", ".git/objects/info")
    assert watched(plan, repository / ".git") == {"commondir", "config.worktree"}
    assert watched(plan, repository / ".git/objects/info") == {"alternates"}
    assert watched(plan, repository) == {".hg", ".jj"}
    assert (plan.write, plan.read) == ((), ())


def test_a_project_without_a_repository(tmp_path):
    plan = protect(tmp_path)
    assert plan == GitProtection((), (), (), (), ((str(tmp_path), frozenset({".hg", ".jj"})),))


def test_missing_hooks_are_watched_and_not_made(repository):
    shutil.rmtree(repository / ".git/hooks")
    assert "hooks" in watched(protect(repository), repository / ".git")
    assert not (repository / ".git/hooks").exists()


def test_a_linked_worktree_may_write_the_repository_that_answers_to_it(git, repository, tmp_path):
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", str(tree))
    plan = protect(tree)
    assert plan.write == (f"{repository}/.git",)
    names = (
        ".git/config",
        ".git/hooks",
        ".git/worktrees/tree/commondir",
        ".git/worktrees/tree/gitdir",
    )
    assert set(plan.read_only) == under(repository, *names) | {f"{tree}/.git"}
    assert set(plan.pin) >= under(repository, ".git", ".git/worktrees", ".git/worktrees/tree")
    assert watched(plan, repository / ".git/worktrees/tree") == {"config.worktree"}
    assert "commondir" in watched(plan, repository / ".git")


def test_a_separate_git_directory_may_be_written(git, tmp_path):
    project, store = tmp_path / "project", tmp_path / "store"
    project.mkdir()
    git(project, "init", "-q", "--separate-git-dir", str(store))
    plan = protect(project)
    assert plan.write == (str(store),)
    assert set(plan.read_only) == under(store, "config", "hooks") | {f"{project}/.git"}


@pytest.mark.parametrize("form", prove_rest(["pointer", "link", "commondir", "worktree"]))
def test_a_pointer_does_not_open_another_repository(git, repository, tmp_path, form):
    """A session could write it; the next one must not make the user's other project writable."""
    other = git.repository(tmp_path / "other")
    git(other, "worktree", "add", "-q", str(tmp_path / "tree"))
    if form == "commondir":
        (repository / ".git/commondir").write_text(f"{other}/.git\n")
    else:
        shutil.rmtree(repository / ".git")
        if form == "link":
            (repository / ".git").symlink_to(other / ".git")
        else:
            below = "/worktrees/tree" if form == "worktree" else ""
            (repository / ".git").write_text(f"gitdir: {other}/.git{below}\n")
    plan = protect(repository)
    assert plan.write == ()
    assert not any(path.startswith(str(other)) for path in (*plan.pin, *plan.read_only))


def test_a_submodule_opened_as_a_project(git, repository, tmp_path):
    upstream = git.repository(tmp_path / "upstream")
    git(repository, "submodule", "--quiet", "add", str(upstream), "lib")
    assert protect(repository / "lib").write == (f"{repository}/.git/modules/lib",)


@prove
def test_submodules_worktrees_and_nested_repositories(git, repository, tmp_path):
    inner = git.repository(tmp_path / "inner")
    upstream = git.repository(tmp_path / "upstream")
    git(upstream, "submodule", "--quiet", "add", str(inner), "deep/inner")
    git(upstream, "commit", "-qm", "inner")
    git(repository, "submodule", "--quiet", "add", "--name", "group/lib", str(upstream), "lib")
    git(repository, "submodule", "--quiet", "update", "--init", "--recursive")
    git(repository, "worktree", "add", "-q", "tree")
    nested = git.repository(repository / "nested")
    git(repository, "clone", "-q", "--bare", str(upstream), "mirror")
    plan = protect(repository)
    lib = ".git/modules/group/lib"
    inner_git = f"{lib}/modules/deep/inner"
    for git_dir in (".git", lib, inner_git, "nested/.git", "mirror"):
        assert under(repository, f"{git_dir}/config", f"{git_dir}/hooks") <= set(plan.read_only)
        assert "commondir" in watched(plan, repository / git_dir)
        assert str(repository / git_dir) in plan.pin
    pointers = ("lib/.git", "lib/deep/inner/.git", "tree/.git")
    admin = (".git/worktrees/tree/commondir", ".git/worktrees/tree/gitdir")
    assert under(repository, *pointers, *admin) <= set(plan.read_only)
    ancestors = (
        ".git/modules",
        ".git/modules/group",
        f"{lib}/modules",
        f"{lib}/modules/deep",
        ".git/worktrees",
    )
    assert under(repository, *ancestors) <= set(plan.pin)
    assert str(nested) not in plan.pin


def test_what_the_config_names_in_the_project_is_protected(git, repository):
    for name in (
        *(".husky/pre-commit", "tools/clean.py", "conf/git.ini", "conf/more.ini", "conf/hook"),
        "scripts/push",
    ):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("")
    (repository / "conf/git.ini").write_text(
        "[include]\n\tpath = more.ini\n[core]\n\tfsmonitor = ./conf/hook -x\n"
    )
    (repository / ".git/hooks/pre-push").symlink_to("../../scripts/push")
    git(repository, "config", "core.hooksPath", ".husky")
    git(repository, "config", "filter.x.clean", "python tools/clean.py %f")
    git(repository, "config", "include.path", "../conf/git.ini")
    git(repository, "config", "includeIf.onbranch:topic.path", "../conf/absent.ini")
    plan = protect(repository)
    names = (
        *(".husky", "tools/clean.py", "conf/git.ini", "conf/more.ini", "conf/hook", "scripts/push"),
    )
    assert under(repository, *names) <= set(plan.read_only)
    assert under(repository, "tools", "conf", "scripts") <= set(plan.pin)
    assert watched(plan, repository / "conf") == {"absent.ini"}


def test_hooks_that_the_users_own_config_places_in_the_project(git, repository):
    """Absent so far, two directories deep: the first missing one is watched."""
    with (git.home / ".gitconfig").open("a") as file:
        file.write("[core]\n\thooksPath = dev/git/hooks\n")
    assert "dev" in watched(protect(repository), repository)
    (repository / "dev/git/hooks").mkdir(parents=True)
    plan = protect(repository)
    assert f"{repository}/dev/git/hooks" in plan.read_only
    assert under(repository, "dev", "dev/git") <= set(plan.pin)


def test_links_are_watched_and_what_they_lead_to_is_protected(repository):
    (repository / ".git/hooks").rename(repository / "githooks")
    (repository / ".git/hooks").symlink_to("../githooks")
    plan = protect(repository)
    assert "hooks" in watched(plan, repository / ".git")
    assert f"{repository}/githooks" in plan.read_only


def test_nothing_writable_is_bound_below_what_is_read_only(git, repository):
    (repository / "conf/hooks").mkdir(parents=True)
    (repository / "conf/hooks/tool").write_text("")
    git(repository, "config", "core.hooksPath", "conf")
    git(repository, "config", "alias.x", "!conf/hooks/tool")
    plan = protect(repository)
    assert f"{repository}/conf" in plan.read_only
    assert not [path for path in plan.pin if path.startswith(f"{repository}/conf")]


def test_alternates_are_readable_and_their_list_is_protected(git, repository, tmp_path):
    git(tmp_path, "clone", "-q", "--shared", str(repository), "second")
    git(tmp_path, "clone", "-q", "--shared", str(tmp_path / "second"), "third")
    (tmp_path / "keys").mkdir()
    info = tmp_path / "third/.git/objects/info"
    with (info / "alternates").open("a") as file:
        file.write(f"{tmp_path}/keys\n{info.parent}\n")
    plan = protect(tmp_path / "third")
    assert set(plan.read) == {f"{tmp_path}/second/.git/objects", f"{repository}/.git/objects"}
    assert str(info / "alternates") in plan.read_only


def test_other_version_control_is_protected(tmp_path):
    (tmp_path / ".hg").mkdir()
    (tmp_path / ".hg/hgrc").touch()
    (tmp_path / ".jj/repo").mkdir(parents=True)
    plan = protect(tmp_path)
    assert set(plan.read_only) == under(tmp_path, ".hg/hgrc")
    assert set(plan.pin) == under(tmp_path, ".hg", ".jj", ".jj/repo")
    assert watched(plan, tmp_path / ".jj/repo") == {"config.toml"}


@pytest.mark.parametrize(
    "text", [b"", b"gitdir:  x\n", b"gitdir: x\0y\n", b"gitdir: x \n", b"x", b"gitdir: \n"]
)
def test_a_pointer_that_git_would_not_write_is_unclear(tmp_path, text):
    (tmp_path / ".git").write_bytes(text)
    with pytest.raises(AmbiguousPathError):
        find_repository(f"{tmp_path}/.git")


@pytest.mark.parametrize(
    "config, settings",
    [
        ("[core]\n\tbare = false\n\tworktree = /x\n", {"core.worktree\n/x"}),
        (
            '[extensions]\n\tpartialClone = o\n[remote "o"]\n\tpromisor = true\n',
            {"extensions.partialclone\no", "remote.o.promisor\ntrue"},
        ),
        ('[remote "o"]\n\turl = x\n\tfetch = y\n[branch "a.b"]\n\tmerge = z\n', set()),
        ("[CORE]\n\tFsMonitor = x\n", {"core.fsmonitor\nx"}),
        ("[core] fsmonitor = x", {"core.fsmonitor\nx"}),
        ("[core]\n\tbare = fal\\\nse\n\thooks\\\nPath = y", {"?"}),
        ('[remote "o"]\n\tuploadpack = x\n', {"remote.o.uploadpack\nx"}),
        ("[include]\n\tpath = x\n", {"include.path\nx"}),
        ("[gc]\n\trecentObjectsHook = x\n", {"gc.recentobjectshook\nx"}),
        ("[a-section-of-tomorrow]\n\tcommand = x\n", {"a-section-of-tomorrow.command\nx"}),
        ("[core\n", {"?"}),
    ],
)
def test_settings_that_may_run_something(config, settings, tmp_path):
    assert executable_settings(config.encode(), TrustedGit(str(tmp_path))) == settings


def plant_git(directory: Path, mark: Path) -> Path:
    """A program called git that leaves `mark` when it runs."""
    directory.mkdir(exist_ok=True)
    fake = directory / "git"
    fake.write_text(f"#!/bin/sh\n: > {mark}\n")
    fake.chmod(0o755)
    return fake


def test_the_projects_own_git_is_not_asked(git, repository, monkeypatch):
    fake = plant_git(repository / "bin", git.root / "ran")
    monkeypatch.setenv("PATH", f"{fake.parent}:bin:{os.environ['PATH']}")
    assert executable_settings(b"[core]\n\tfsmonitor = x\n", TrustedGit(str(repository))) == {
        "core.fsmonitor\nx"
    }
    assert not (git.root / "ran").exists()


@pytest.mark.parametrize("planted_in", ["project", "granted"])
async def test_settings_of_the_person_are_not_asked_of_a_git_that_a_command_can_plant(
    git, tmp_path, monkeypatch, planted_in
):
    for name in ("project", "granted"):
        (tmp_path / name).mkdir()
    fake = plant_git(tmp_path / planted_in, git.root / "ran")
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    assert shutil.which("git") == str(fake)
    await write_gitconfig(
        SandboxPolicy(
            project=f"{tmp_path}/project",
            home=str(git.home),
            state_dir=f"{tmp_path}/state",
            write_paths=(f"{tmp_path}/granted",),
        )
    )
    assert not (git.root / "ran").exists()
    assert "u@localhost" in (tmp_path / "state/gitconfig").read_text()


def test_no_git_is_taken_from_where_a_command_can_write(tmp_path, monkeypatch):
    project, granted, tools = (tmp_path / name for name in ("project", "granted", "tools"))
    for directory in (project, granted, tools):
        directory.mkdir()
        (directory / "git").write_text("#!/bin/sh\n")
        (directory / "git").chmod(0o755)
    (tmp_path / "link").symlink_to(granted)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/git").symlink_to(project / "git")
    monkeypatch.chdir(tools)
    entries = (project, f"{tools}/../project", tmp_path / "link", tmp_path / "linked", ".", "")
    monkeypatch.setenv("PATH", ":".join(map(str, entries)))
    assert TrustedGit(str(project), str(granted)).program == ""
    monkeypatch.setenv("PATH", ":".join(map(str, (*entries, tools))))
    assert TrustedGit(str(project), str(granted)).program == f"{tools}/git"


def test_a_project_surveyed_before_brings_no_git_for_another(git, repository, monkeypatch):
    fake = plant_git(repository / "bin", git.root / "ran")
    trusted = TrustedGit(str(git.home))
    survey(str(repository), trusted)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    assert executable_settings(b"[core]\n\tbare = true\n", trusted) == set()
    assert not (git.root / "ran").exists()


def test_without_git_every_config_may_run_something(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert executable_settings(b"[core]\n\tbare = true\n", TrustedGit("/nowhere")) == {"?"}


@pytest.mark.parametrize(
    "config",
    [
        "[core] fsmonitor = ./tool #]\n",
        "[core]\n\tnotesRef = x \\\n[branch]\n\tfsmonitor = ./tool\n",
    ],
)
def test_what_an_oddly_written_config_names_is_protected(repository, config):
    (repository / "nested").mkdir()
    shutil.copytree(repository / ".git", repository / "nested/.git")
    (repository / "nested/.git/config").write_text(config)
    (repository / "nested/tool").write_text("")
    assert f"{repository}/nested/tool" in protect(repository).read_only


@prove
@pytest.mark.parametrize("count", [1, 1100])
def test_endless_links_do_not_keep_a_session_from_starting(git, repository, state, count):
    """One leads to itself."""
    chain = repository / "chain"
    chain.mkdir()
    for index in range(count):
        (chain / str(index)).symlink_to(str((index + 1) if count > 1 else index))
    git_dir = git.repository(repository / "nested") / ".git"
    (git_dir / "hooks/pre-commit").symlink_to(chain / "0")
    (git_dir / "objects/info/alternates").write_text(f"{chain}/0\n")
    with (git_dir / "config").open("a") as file:
        file.write(f"[include]\n\tpath = {chain}/0\n[core]\n\thooksPath = {chain}/0/x\n")
    for name in (".git/hooks", ".git/objects/info/alternates", ".git/config.worktree"):
        path = repository / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(chain / "0")
    (repository / "sub").mkdir()
    (repository / "sub/.git").symlink_to(chain / "0")
    found = surveyed(repository)
    remove(state, place_sentinels(str(state), found))
    assert protection(found).read_only
    env_files_to_hide(found)


# Secrets.


def test_env_files_are_hidden_unless_git_has_their_content(git, repository):
    nested = git.repository(repository / "nested")
    hidden = (
        ".env",
        "app/.env.local",
        "app/dev.env",
        "nested/.env",
        "node_modules/x/.env",
        "changed.env",
        os.fsdecode(b"\xff\n.env"),
    )
    shown = (".env.example", "a.env.dist", "tracked.env", "app/.env.test", "nested/prod.env")
    for name in (*hidden, *shown):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(f"SECRET={name.encode(errors='replace')!r}")
    git(repository, "add", "-f", "changed.env", "tracked.env", "app/.env.test")
    git(nested, "add", "-f", "prod.env")
    (repository / "changed.env").write_text("SECRET=filled in")
    assert set(env_files_to_hide(surveyed(repository))) == under(repository, *hidden)


@pytest.mark.parametrize("how", ["ignore file", "index", "new repository"])
def test_a_command_cannot_unhide_an_env_file(git, repository, how):
    (repository / "app").mkdir()
    secret = repository / "app/.env"
    secret.write_text("SECRET=1")
    (repository / ".gitignore").write_text(".env\n")
    if how == "ignore file":
        (repository / ".gitignore").write_text("!.env\n")
    elif how == "index":
        blob = git(repository, "hash-object", "-w", "a.txt").strip()
        git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},app/.env")
    else:
        git.repository(repository / "other")
        (repository / "other/.git").rename(repository / "app/.git")
    assert env_files_to_hide(surveyed(repository)) == (str(secret),)


def test_without_a_repository_env_files_are_hidden(tmp_path):
    for name in (".env", ".env.local", ".env.example", ".env.dist", "app.env"):
        (tmp_path / name).write_text("")
    hidden = under(tmp_path, ".env", ".env.local", "app.env")
    assert set(env_files_to_hide(surveyed(tmp_path))) == hidden


def test_asking_for_env_files_fetches_nothing(git, repository):
    """A promisor remote is asked for a tree that a sparse index needs, by a program that the config names."""
    for name in ("away/file", "here/file", "here/.env"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("x")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two")
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "here")
    tree = git(repository, "rev-parse", "HEAD:away").strip()
    (repository / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with (repository / ".git/config").open("a") as file:
        file.write(
            '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = o\n[remote "o"]\n\turl = .\n'
            f'\tpromisor = true\n\tuploadpack = "touch {git.root}/ran; false"\n'
        )
    env_files_to_hide(surveyed(repository))
    assert not (git.root / "ran").exists()
    subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, check=False)
    assert (git.root / "ran").exists(), "the control"


@prove
def test_a_config_that_never_ends_is_not_waited_for_in_each_repository(
    git, repository, monkeypatch
):
    for name in ("one", "two", "three"):
        nested = git.repository(repository / name)
        (nested / ".env").write_text("SECRET")
        os.mkfifo(nested / "fifo")
        git(nested, "config", "core.bare", "false")
        with (nested / ".git/config").open("a") as file:
            file.write("[include]\n\tpath = ../fifo\n")
    asked, ask = list[str](), settings._blobs

    def noted(git: TrustedGit, worktree: str) -> dict[str, str]:
        asked.append(worktree)
        return ask(git, worktree)

    monkeypatch.setattr(settings, "_blobs", noted)
    assert len(env_files_to_hide(surveyed(repository))) == 3
    assert len(asked) == 1


def test_asking_which_files_are_ignored_runs_nothing_of_the_project(git, repository):
    (repository / ".gitignore").write_text(".env\n")
    (repository / ".env").write_text("")
    git(repository, "config", "core.fsmonitor", f"touch {git.root}/ran; false")
    assert env_files_to_hide(surveyed(repository)) == (f"{repository}/.env",)
    assert not (git.root / "ran").exists()


# Sentinels.


PLACE = """
import os, resource, sys, time
from sanderling.sandbox.guard.repositories import TrustedGit, survey
from sanderling.sandbox.guard.sentinels import place_sentinels
def place(): place_sentinels(sys.argv[1], survey(sys.argv[2], TrustedGit()))
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state/project-id"
    path.mkdir(parents=True)
    return path


def test_sentinels_are_placed_protected_and_removed(git, repository, state, tmp_path):
    upstream = git.repository(tmp_path / "upstream")
    git(repository, "submodule", "--quiet", "add", str(upstream), "lib")
    git(repository, "worktree", "add", "-q", "tree")
    places = [repository / name for name in (".git/commondir", ".git/modules/lib/commondir")]
    claim = place(state, repository)
    assert [place.read_bytes() for place in places] == [SENTINEL, SENTINEL]
    assert set(map(str, places)) <= set(protect(repository).read_only)
    assert (
        git(repository, "status", "--porcelain", "--untracked-files=no")
        == "A  .gitmodules\nA  lib\n"
    )
    remove(state, claim)
    assert not any(place.exists() for place in places)
    assert (repository / ".git/worktrees/tree/commondir").read_text() == "../..\n"


def test_missing_hooks_are_made_protected_and_removed(git, repository, state):
    hooks = repository / ".git/hooks"
    shutil.rmtree(hooks)
    git(repository, "worktree", "add", "-q", "tree")
    first = place(state, repository)
    second = place(state, repository)
    assert str(hooks) in protect(repository).read_only
    assert not (repository / ".git/worktrees/tree/hooks").exists()
    remove(state, first)
    assert hooks.is_dir()
    remove(state, second)
    assert not hooks.exists()


def test_hooks_of_the_user_stay(repository, state):
    hooks = repository / ".git/hooks"
    shutil.rmtree(hooks)
    hooks.mkdir()  # empty, but not ours
    remove(state, place(state, repository))
    assert hooks.is_dir()
    hooks.rmdir()
    claim = place(state, repository)
    (hooks / "pre-commit").write_text("")
    remove(state, claim)
    assert (hooks / "pre-commit").exists()


def test_the_last_of_several_sessions_removes_the_sentinel(repository, state):
    sentinel = repository / ".git/commondir"
    first = place(state, repository)
    second = place(state, repository)
    remove(state, first)
    assert sentinel.exists()
    third = place(state, repository)
    remove(state, second)
    assert sentinel.exists()
    remove(state, third)
    assert not sentinel.exists()


@pytest.mark.parametrize("cleaner", ["of the project", "of another"])
def test_what_a_killed_session_left_is_removed_by_the_next(repository, state, cleaner):
    sentinel = repository / ".git/commondir"
    code = f"{PLACE}place(); time.sleep(60)"
    session = subprocess.Popen([sys.executable, "-c", code, str(state), str(repository)])
    try:
        wait_until(sentinel.exists, "the sentinel is placed")
        clean_up_after_the_dead(str(state.parent))
        assert sentinel.exists(), "it is alive"
    finally:
        session.kill()
        session.wait()
    assert sentinel.exists()
    if cleaner == "of the project":
        remove(state, place(state, repository))
    else:
        clean_up_after_the_dead(str(state.parent))
    assert not sentinel.exists()


def test_the_last_of_sessions_with_states_of_their_own_removes_the_sentinel(
    git, repository, state, tmp_path
):
    """Of the repository itself under another state directory, and of a linked worktree."""
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    sentinel = repository / ".git/commondir"
    states = [state, tmp_path / "state two", tmp_path / "state three"]
    projects = [repository, repository, tmp_path / "tree"]
    for order in itertools.permutations(range(3)):
        claims = [place(state, project) for state, project in zip(states, projects, strict=True)]
        for number in order:
            assert sentinel.read_bytes() == SENTINEL
            remove(states[number], claims[number])
        assert not sentinel.exists()


def test_sentinel_of_the_killed_is_left_to_a_session_that_lives(repository, state, tmp_path):
    sentinel = repository / ".git/commondir"
    code = f"{PLACE}place(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(state), str(repository)], check=False)
    assert sentinel.exists()
    others = tmp_path / "others"
    claim = place(others, repository)
    clean_up_after_the_dead(str(state.parent))
    assert sentinel.exists()
    remove(others, claim)
    assert not sentinel.exists()


def test_sentinel_whose_record_was_deleted_is_removed_all_the_same(repository, state):
    sentinel = repository / ".git/commondir"
    claim = place(state, repository)
    shutil.rmtree(state)
    remove(state, claim)
    assert not sentinel.exists()


def test_session_that_begins_after_the_record_was_deleted_takes_the_sentinel_over(
    repository, state
):
    sentinel = repository / ".git/commondir"
    first = place(state, repository)
    shutil.rmtree(state)
    state.mkdir()
    second = place(state, repository)
    remove(state, first)
    assert sentinel.exists()
    remove(state, second)
    assert not sentinel.exists()


def test_sentinel_is_taken_over_from_the_killed_whose_state_was_deleted(repository, state):
    sentinel = repository / ".git/commondir"
    sentinel.write_bytes(SENTINEL)
    remove(state, place(state, repository))
    assert not sentinel.exists()


def test_nothing_is_placed_that_could_not_be_recorded(repository, state):
    """A limit does what a full disk does."""
    code = (
        f"{PLACE}resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "try: place()\n"
        "except OSError: print(len(os.listdir('/proc/self/fd')) - before)"
    )
    command = [sys.executable, "-c", code, str(state), str(repository)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert not (repository / ".git/commondir").exists()
    assert (state / "placed").read_bytes() == b""


def test_what_is_no_sentinel_any_more_is_left(repository, state):
    sentinel = repository / ".git/commondir"
    claim = place(state, repository)
    sentinel.write_text("../elsewhere\n")
    remove(state, claim)
    assert sentinel.read_text() == "../elsewhere\n"


@prove
def test_git_works_with_a_sentinel_as_it_does_without(git, repository, state, tmp_path):
    """All that touches refs, the config or other repositories."""
    upstream = git.repository(tmp_path / "upstream")
    git(repository, "submodule", "--quiet", "add", str(upstream), "lib")
    git(repository, "commit", "-qm", "lib")
    git(repository, "remote", "add", "origin", str(upstream))
    claim = place(state, repository)
    (repository / "a.txt").write_text("b\n")
    for command in (
        *("stash -q", "stash pop -q", "commit -qam two", "branch topic", "fetch -q origin"),
        *("gc -q", "pack-refs --all", "worktree add -q ../tree topic", "worktree list"),
        *("worktree remove ../tree", "clone -q . ../clone", "clone -q --shared . ../shared"),
        *("submodule update --init --recursive", "submodule foreach -q git status"),
        *("rebase -q --force-rebase HEAD~1", "bisect start", "bisect reset", "reflog expire --all"),
        *("notes add -m note", "tag t", "config branch.topic.remote origin", "fsck"),
        *("merge -q topic --allow-unrelated-histories --no-edit", "reset -q --hard HEAD"),
        *("for-each-ref", "maintenance run"),
    ):
        git(repository, *command.split())
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "--show-toplevel").strip() == str(repository)
    assert git(repository, "symbolic-ref", "HEAD").strip() == "refs/heads/main"
    remove(state, claim)
    assert git(repository, "fsck", "--connectivity-only") is not None
    assert git(repository, "status", "--porcelain") == ""


def test_libgit2_works_with_a_sentinel(git, repository, state):
    pygit2 = pytest.importorskip("pygit2")
    git(repository, "branch", "topic")
    git(repository, "pack-refs", "--all")
    claim = place(state, repository)
    opened = pygit2.Repository(pygit2.discover_repository(str(repository)))
    assert opened.head.shorthand == "main"
    assert opened.workdir == f"{repository}/"
    assert sorted(opened.branches.local) == ["main", "topic"]
    assert opened.status() == {}
    remove(state, claim)
