"""Making, keeping and removing worktrees: no work is lost, and what cannot be is refused in words."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from sanderling.errors import WorktreeError
from sanderling.worktrees import records
from sanderling.worktrees.extras import linked_paths
from sanderling.worktrees.records import Record
from sanderling.worktrees.snapshots import keep_snapshot, losses
from sanderling.worktrees.worktrees import Worktrees
from tests.conftest import wait_until
from tests.worktrees.conftest import run_git


def tree(record: Record, project: Path, path: str) -> str:
    return run_git(project, "show", f"{record.kept_ref}:{path}")


# --- making ------------------------------------------------------------------------------------------------------------


def test_a_worktree_is_a_detached_checkout_of_head(worktrees: Worktrees, project: Path):
    record = worktrees.create("session-1")
    assert Path(record.directory, "a.txt").read_text() == "one\ntwo\nthree\n"
    assert run_git(record.directory, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert record.base == run_git(project, "rev-parse", "HEAD")
    assert record.name in record.directory
    assert record.session_id == "session-1"
    assert worktrees.all() == [record]


def test_a_worktree_can_start_from_a_branch_that_is_checked_out(
    worktrees: Worktrees, project: Path
):
    record = worktrees.create("s", "main")
    run_git(project, "branch", "other")
    other = worktrees.create("s", "other")
    assert record.base == other.base
    assert run_git(project, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.parametrize("alone", [True, False])
def test_a_process_that_is_being_started_does_not_keep_a_worktree_in_use(
    worktrees: Worktrees, alone: bool
):
    path = worktrees._path(worktrees.create("s").name)
    end, begin = os.pipe()
    with records.in_use(path, alone=alone):
        if (pid := os.fork()) == 0:  # as between the fork and the exec of a command
            os.close(begin)
            os.read(end, 1)
            os._exit(0)
    with records.in_use(path, alone=True):
        pass
    os.close(begin)
    os.waitpid(pid, 0)
    os.close(end)


def test_the_projects_unsaved_state_stays_out_of_a_worktree_and_as_it_is(
    worktrees: Worktrees, project: Path
):
    (project / "a.txt").write_text("mine\n")
    run_git(project, "merge", "--quiet", "main")
    record = worktrees.create("s")
    assert Path(record.directory, "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (project / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize(
    "prepare, ref, why",
    [
        (lambda _: None, "", "is in no git repository"),
        (lambda path: run_git(path, "init", "-q"), "", "has no commit yet"),
        (lambda path: run_git(path, "init", "-q", "--bare"), "", "is bare"),
    ],
)
def test_no_worktree_is_made_where_none_can_be(
    tmp_path: Path, state: Path, prepare: Callable[[Path], object], ref: str, why: str
):
    path = tmp_path / "here"
    path.mkdir()
    prepare(path)
    with pytest.raises(WorktreeError, match=why):
        Worktrees(str(state), str(path)).create("s", ref)
    assert Worktrees(str(state), str(path)).all() == []


@pytest.mark.parametrize("ref", ["nowhere", "--help", "main\nother", "a b"])
def test_a_ref_that_does_not_exist_is_named(worktrees: Worktrees, ref: str):
    with pytest.raises(WorktreeError, match="there is no branch or commit"):
        worktrees.create("s", ref)


@pytest.mark.parametrize("name", ["a b", "a\nb", "../up", "-x", "é"])
def test_a_name_that_is_no_file_name_everywhere_is_refused(worktrees: Worktrees, name: str):
    with pytest.raises(WorktreeError, match="cannot name a worktree"):
        worktrees.create("s", name=name)
    with pytest.raises(WorktreeError, match="there is no worktree"):
        worktrees.find(name)


def test_a_branch_with_an_unusual_name_still_gives_a_usable_one(
    worktrees: Worktrees, project: Path
):
    run_git(project, "branch", "wip/ünter#1")
    record = worktrees.create("s", "wip/ünter#1")
    assert record.name.startswith("wip-nter-1-")


def test_a_project_in_a_subdirectory_is_that_subdirectory_in_the_worktree(
    state: Path, project: Path
):
    (project / "sub dir").mkdir()
    (project / "sub dir/b.txt").write_text("b\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "sub")
    record = Worktrees(str(state), str(project / "sub dir")).create("s")
    assert record.work_dir == f"{record.directory}/sub dir"
    assert Path(record.work_dir, "b.txt").exists()
    (project / "new").mkdir()
    with pytest.raises(WorktreeError, match="HEAD does not contain new"):
        Worktrees(str(state), str(project / "new")).create("s")


def test_no_hook_filter_or_monitor_of_the_repository_runs(
    worktrees: Worktrees, project: Path, tmp_path: Path
):
    mark = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f'#!/bin/sh\necho "$0 $*" >> {mark}\ncat\n')
    script.chmod(0o755)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "post-commit"):
        hook = project / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {mark}\n")
        hook.chmod(0o755)
    (project / ".gitattributes").write_text("*.txt filter=a=b\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-q", "-m", "attributes", "--no-verify")
    mark.unlink(missing_ok=True)
    with (project / ".git/config").open("a") as config:
        config.write(
            f'[filter "a=b"]\n\tsmudge = {script}\n\tclean = {script}\n\trequired = true\n'
        )
        config.write(f"[core]\n\tfsmonitor = {script}\n")
    record = worktrees.create("s")
    Path(record.directory, "a.txt").write_text("changed\n")
    keep_snapshot(record)
    assert losses(record).modified == ("a.txt",)
    assert tree(record, tmp_path / "project", "a.txt") == "changed"
    mark.unlink(missing_ok=True)  # `git show` above was the user's own
    worktrees.remove(record.name, loses=True)
    assert not mark.exists()
    assert "no filter runs in a worktree" in record.notes[0]


def test_a_repository_below_the_worktree_runs_nothing(worktrees: Worktrees, tmp_path: Path):
    record = worktrees.create("s")
    mark = tmp_path / "ran"
    nested = Path(record.directory, "nested")
    nested.mkdir()
    run_git(nested, "init", "-q")
    (nested / "x.txt").write_text("x\n")
    run_git(nested, "add", "-A")
    run_git(nested, "commit", "-qm", "x")
    (nested / ".gitattributes").write_text("* filter=evil\n")
    run_git(record.directory, "add", "nested")  # now a submodule of the worktree's index
    with (nested / ".git/config").open("a") as config:
        config.write(f'[filter "evil"]\n\tclean = "touch {mark}; cat"\n')
        config.write(f"[core]\n\tfsmonitor = touch {mark}\n")
    (nested / "x.txt").write_text("y\n")
    keep_snapshot(record)
    assert losses(record).any
    with pytest.raises(WorktreeError):
        worktrees.remove(record.name)
    assert not mark.exists()


def test_lfs_pointers_stay_pointers(worktrees: Worktrees, project: Path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n"
    run_git(project, "config", "filter.lfs.clean", "cat")
    run_git(project, "config", "filter.lfs.smudge", "echo large")
    run_git(project, "config", "filter.lfs.required", "true")
    (project / "big.bin").write_text(pointer)
    run_git(project, "add", "big.bin")
    (project / ".gitattributes").write_text("*.bin filter=lfs\n")
    run_git(project, "add", ".gitattributes")
    run_git(project, "commit", "-qm", "lfs")
    record = worktrees.create("s")
    assert Path(record.directory, "big.bin").read_text() == pointer
    assert record.notes == (
        "big.bin is as git stores it, with Git LFS a pointer: no filter runs in a worktree.",
    )
    assert not losses(record).any


@pytest.fixture
def with_submodule(make_repository: Callable[..., Path], project: Path) -> Path:
    library = make_repository("library", **{"lib.txt": "lib\n"})
    run_git(project, "submodule", "--quiet", "add", str(library), "lib")
    run_git(project, "commit", "-qm", "with lib")
    return project


@pytest.mark.usefixtures("with_submodule")
def test_clean_submodules_are_empty_and_said_to_be(worktrees: Worktrees):
    record = worktrees.create("s")
    assert record.notes == ("Submodules are empty in a worktree: lib.",)
    assert not losses(record).any
    worktrees.remove(record.name)
    assert not Path(record.directory).exists()


@pytest.mark.parametrize("change", ["file", "new file", "commit"])
def test_a_submodule_with_changes_is_refused(
    worktrees: Worktrees, with_submodule: Path, change: str
):
    lib = with_submodule / "lib"
    (lib / ("lib.txt" if change == "file" else "new.txt")).write_text("changed\n")
    if change == "commit":
        run_git(lib, "add", "-A")
        run_git(lib, "commit", "-qm", "more")
    with pytest.raises(WorktreeError, match="the submodule lib has changes"):
        worktrees.create("s")
    assert worktrees.all() == []


def test_a_sparse_checkout_stays_sparse_and_its_missing_files_are_no_deletions(
    worktrees: Worktrees, project: Path
):
    for name in ("in", "out"):
        (project / name).mkdir()
        (project / name / "f.txt").write_text("f\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "two")
    run_git(project, "sparse-checkout", "set", "in")
    record = worktrees.create("s")
    assert not Path(record.directory, "out").exists()
    assert not losses(record).any
    Path(record.directory, "in/f.txt").write_text("g\n")
    keep_snapshot(record)
    assert tree(record, project, "out/f.txt") == "f"
    assert tree(record, project, "in/f.txt") == "g"


# --- copies and links --------------------------------------------------------------------------------------------------


def test_listed_files_are_copied_and_a_change_of_one_counts(worktrees: Worktrees, project: Path):
    (project / ".gitignore").write_text(".env\nnode_modules\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "ignore")
    (project / ".env").write_text("KEY=1\n")
    (project / "node_modules/x").mkdir(parents=True)
    (project / "node_modules/x/index.js").write_text("1\n")
    record = worktrees.create("s", copies=(".env", "node_modules", "missing"))
    assert [each.path for each in record.extras] == [".env", "node_modules"]
    assert record.notes == ("Not in the project, so not copied or linked: missing.",)
    assert not losses(record).any
    Path(record.directory, "node_modules/x/index.js").write_text("22\n")
    assert (project / "node_modules/x/index.js").read_text() == "1\n"
    assert losses(record).extras == ("node_modules",)
    with pytest.raises(WorktreeError, match=r"1 changed copy \(node_modules\)"):
        worktrees.remove(record.name)
    Path(record.directory, "node_modules/x/index.js").unlink()
    assert losses(record).extras == ("node_modules",)


def test_a_copy_is_whole_and_shares_nothing_but_content(worktrees: Worktrees, project: Path):
    top = project / "data"
    (top / "sub").mkdir(parents=True)
    (top / "sub/run").write_bytes(b"x" * 3_000_000)
    (top / "sub/run").chmod(0o4751)
    (top / "empty").touch()
    (top / "link").symlink_to("sub/run")
    (top / "sub").chmod(0o500)
    os.mkfifo(top / "pipe")
    os.utime(top / "sub/run", ns=(1, 1_000_000_001))
    record = worktrees.create("s", copies=("data",))
    made = Path(record.directory, "data")
    assert sorted(path.name for path in made.rglob("*")) == ["empty", "link", "run", "sub"]
    assert (made / "sub/run").read_bytes() == b"x" * 3_000_000
    found = (made / "sub/run").stat()
    assert (found.st_mode & 0o7777, found.st_mtime_ns) == (0o751, 1_000_000_001)
    assert (made / "link").readlink() == Path("sub/run")
    assert (made / "sub").stat().st_mode & 0o777 == 0o500
    assert losses(record).extras == ()


def test_a_directory_that_becomes_a_link_while_it_is_copied_is_not_followed(
    worktrees: Worktrees, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("SECRET\n")
    (project / "data/sub").mkdir(parents=True)
    real_stat = os.stat

    def stat_and_replace(path: object, **options: object) -> os.stat_result:
        found = real_stat(path, **options)  # type: ignore[arg-type]
        if path == "sub":  # as a command in the project does it, in a loop
            (project / "data/sub").rmdir()
            (project / "data/sub").symlink_to(tmp_path / "secrets")
        return found

    monkeypatch.setattr(os, "stat", stat_and_replace)
    with pytest.raises(WorktreeError, match="cannot copy"):
        worktrees.create("s", copies=("data",))
    assert worktrees.all() == []


def test_a_copy_that_is_deeper_than_any_path_is_a_changed_one(worktrees: Worktrees, project: Path):
    (project / "data").mkdir()
    record = worktrees.create("s", copies=("data",))
    program = "import os\nfor _ in range(1500):\n os.mkdir('dddd')\n os.chdir('dddd')"
    subprocess.run([sys.executable, "-c", program], cwd=f"{record.directory}/data", check=True)
    assert losses(record).extras == ("data",)
    subprocess.run(["rm", "-rf", f"{record.directory}/data"], check=True)


def test_a_linked_directory_is_a_link(worktrees: Worktrees, project: Path):
    (project / "node_modules").mkdir()
    record = worktrees.create("s", links=("node_modules",))
    assert Path(record.directory, "node_modules").readlink() == project / "node_modules"


@pytest.mark.parametrize("how", ["copies", "links"])
def test_a_listed_path_that_a_link_leads_outside_is_refused(
    worktrees: Worktrees, project: Path, tmp_path: Path, how: str
):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/.env").write_text("SECRET\n")
    (project / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(WorktreeError, match="leads out of the project"):
        worktrees.create("s", **{how: ("link/.env",)})
    assert worktrees.all() == []


def test_only_the_projects_own_links_make_something_readable(
    worktrees: Worktrees, project: Path, tmp_path: Path
):
    (tmp_path / "secrets").mkdir()
    (project / "data").mkdir()
    (project / "other").mkdir()
    record = worktrees.create("s", links=("data", "other"))
    both = (str(project / "data"), str(project / "other"))
    assert linked_paths(record.project, record.extras) == both
    Path(record.directory, "data").unlink()  # as a command in the worktree can do
    Path(record.directory, "data").symlink_to(tmp_path / "secrets")
    (project / "other").rmdir()  # as a command in the project can do
    (project / "other").symlink_to(tmp_path / "secrets")
    assert linked_paths(record.project, record.extras) == both[:1]


# --- the five ways of losing work --------------------------------------------------------------------------------------


def test_a_changed_file_is_never_removed(worktrees: Worktrees):
    record = worktrees.create("s")
    Path(record.directory, "a.txt").write_text("work\n")
    with pytest.raises(WorktreeError, match=r"it would lose 1 changed file \(a.txt\)"):
        worktrees.remove(record.name)
    assert Path(record.directory, "a.txt").read_text() == "work\n"


def test_a_change_in_the_second_of_the_checkout_counts_though_the_size_is_the_same(
    worktrees: Worktrees, project: Path
):
    def changed_at_once() -> Record | None:
        record = worktrees.create("s")
        path = Path(record.directory, "a.txt")
        checked_out = int(path.stat().st_ctime)  # git compares seconds
        path.write_text("ONE\ntwo\nthree\n")
        return record if int(path.stat().st_ctime) == checked_out else None

    record = wait_until(changed_at_once)
    second = int(time.time())
    wait_until(lambda: time.time() > second + 1)
    assert losses(record).modified == ("a.txt",)
    keep_snapshot(record)
    assert tree(record, project, "a.txt") == "ONE\ntwo\nthree"


def test_a_new_file_is_never_removed(worktrees: Worktrees, project: Path):
    run_git(project, "config", "status.showUntrackedFiles", "no")
    record = worktrees.create("s")
    Path(record.directory, "new.txt").write_text("work\n")
    with pytest.raises(WorktreeError, match=r"1 new file \(new.txt\)"):
        worktrees.remove(record.name)
    assert Path(record.directory, "new.txt").exists()


@pytest.mark.parametrize(
    "arguments, lost",
    [
        (("rm", "-q", "--cached", "a.txt"), r"1 changed file \(a.txt\), 1 new file \(a.txt\)"),
        (("rm", "-q", "a.txt"), r"1 changed file \(a.txt\)"),
        (("add", "new.txt"), r"1 changed file \(new.txt\)"),
    ],
)
def test_a_staged_change_is_never_removed(
    worktrees: Worktrees, arguments: tuple[str, ...], lost: str
):
    record = worktrees.create("s")
    if "add" in arguments:
        Path(record.directory, "new.txt").write_text("work\n")
    run_git(record.directory, *arguments)
    with pytest.raises(WorktreeError, match=f"it would lose {lost}"):
        worktrees.remove(record.name)
    assert Path(record.directory).exists()


def test_a_deletion_is_never_forgotten(worktrees: Worktrees):
    record = worktrees.create("s")
    Path(record.directory, "a.txt").unlink()
    with pytest.raises(WorktreeError, match=r"it would lose 1 deletion \(a.txt\)"):
        worktrees.remove(record.name)


def test_a_commit_on_no_branch_is_never_removed_though_the_tree_is_clean(worktrees: Worktrees):
    record = worktrees.create("s")
    Path(record.directory, "a.txt").write_text("work\n")
    run_git(record.directory, "commit", "-qam", "work")
    with pytest.raises(WorktreeError, match="1 commit on no branch"):
        worktrees.remove(record.name)
    run_git(record.directory, "branch", "work")
    worktrees.remove(record.name)
    assert not Path(record.directory).exists()
    assert [each.stage for each in worktrees.all()] == ["kept"]


def test_what_git_was_asked_to_overlook_counts(worktrees: Worktrees, project: Path):
    record = worktrees.create("s")
    run_git(record.directory, "update-index", "--assume-unchanged", "a.txt")
    Path(record.directory, "a.txt").write_text("work\n")
    assert losses(record).modified == ("a.txt",)
    keep_snapshot(record)
    assert tree(record, project, "a.txt") == "work"
    run_git(record.directory, "update-index", "--no-assume-unchanged", "a.txt")
    run_git(record.directory, "update-index", "--skip-worktree", "a.txt")
    assert losses(record).modified == ("a.txt",)


def test_removing_a_worktree_follows_no_link(worktrees: Worktrees, project: Path):
    (project / "node_modules").mkdir()
    (project / "node_modules/x").write_text("x\n")
    (project / ".gitignore").write_text("node_modules\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "ignore")
    record = worktrees.create("s", links=("node_modules",))
    worktrees.remove(record.name)
    assert (project / "node_modules/x").read_text() == "x\n"


def test_age_removes_nothing(worktrees: Worktrees):
    record = worktrees.create("s")
    record = records.write(worktrees._path(record.name), replace(record, created_at=0.0))
    os.utime(record.directory, (0, 0))
    assert worktrees.all() == [record]
    assert Path(record.directory).exists()


def test_a_worktree_in_use_is_not_removed_even_with_force(worktrees: Worktrees):
    record = worktrees.create("s")
    fd = worktrees.use(record)
    with pytest.raises(WorktreeError, match="in use"):
        worktrees.remove(record.name, loses=True)
    os.close(fd)
    worktrees.remove(record.name)
    assert worktrees.all() == []


# --- what is kept ------------------------------------------------------------------------------------------------------


def test_everything_but_ignored_files_is_kept_without_touching_index_and_branches(
    worktrees: Worktrees, project: Path
):
    (project / ".gitignore").write_text("ignored\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "ignore")
    record = worktrees.create("s")
    top = Path(record.directory)
    (top / "a.txt").unlink()
    (top / "new file").write_text("new\n")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("new file")
    (top / "bin").write_bytes(bytes(range(256)))
    (top / "ignored").write_text("x\n")
    (top / "staged").write_text("staged\n")
    run_git(top, "add", "staged")
    before = run_git(top, "status", "--porcelain"), run_git(project, "for-each-ref", "refs/heads")
    commit = keep_snapshot(record)
    assert before == (
        run_git(top, "status", "--porcelain"),
        run_git(project, "for-each-ref", "refs/heads"),
    )
    names = run_git(project, "ls-tree", "-r", "--format=%(objectmode) %(path)", commit).split("\n")
    assert sorted(names) == [
        "100644 .gitignore",
        "100644 bin",
        "100644 new file",
        "100644 staged",
        "100755 run",
        "120000 link",
    ]
    assert keep_snapshot(record) == commit
    (top / "more").write_text("more\n")
    assert keep_snapshot(record) != commit
    assert len(run_git(project, "reflog", "show", record.kept_ref).split("\n")) == 2


def test_a_pipe_in_the_place_of_a_file_keeps_nothing_else_from_being_kept(
    worktrees: Worktrees, project: Path
):
    record = worktrees.create("s")
    Path(record.directory, "a.txt").unlink()
    os.mkfifo(Path(record.directory, "a.txt"))
    os.mkfifo(Path(record.directory, "pipe"))
    Path(record.directory, "new").write_text("new\n")
    kept = keep_snapshot(record)
    assert run_git(project, "ls-tree", "--name-only", kept) == "new"
    assert losses(record).modified == ("a.txt",)


def test_an_index_that_was_replaced_by_a_link_is_not_read(worktrees: Worktrees, tmp_path: Path):
    record = worktrees.create("s")
    Path(record.directory, "new").write_text("new\n")
    index = Path(record.git_dir, "index")
    index.rename(tmp_path / "index")
    index.symlink_to(tmp_path / "index")  # or to /dev/zero
    with pytest.raises(WorktreeError, match="index cannot be copied: it was replaced"):
        keep_snapshot(record)
    assert [path.name for path in Path(record.directory).parent.glob("*.index-*")] == []


def test_an_untouched_worktree_keeps_nothing_and_is_removed(worktrees: Worktrees, project: Path):
    record = worktrees.create("s")
    assert keep_snapshot(record) == ""
    worktrees.remove(record.name)
    assert worktrees.all() == []
    assert run_git(project, "worktree", "list").count("\n") == 0
    assert run_git(project, "for-each-ref", "refs/sanderling") == ""


def test_after_a_forced_removal_the_work_is_still_kept_until_the_user_deletes_that_too(
    worktrees: Worktrees, project: Path
):
    record = worktrees.create("s")
    Path(record.directory, "new.txt").write_text("work\n")
    worktrees.remove(record.name, loses=True)
    assert not Path(record.directory).exists()
    assert tree(record, project, "new.txt") == "work"
    assert [each.stage for each in worktrees.all()] == ["kept"]
    with pytest.raises(WorktreeError, match="its work would be lost"):
        worktrees.remove(record.name)
    worktrees.remove(record.name, loses=True)
    assert worktrees.all() == []
    assert run_git(project, "for-each-ref", "refs/sanderling") == ""


def test_a_user_who_prunes_and_collects_garbage_loses_nothing(worktrees: Worktrees, project: Path):
    record = worktrees.create("s")
    Path(record.directory, "a.txt").write_text("work\n")
    run_git(record.directory, "commit", "-qam", "work")
    keep_snapshot(record)
    Path(record.directory).rename(record.directory + ".away")
    run_git(project, "worktree", "prune", "--expire", "now")
    run_git(project, "reflog", "expire", "--expire=now", "--all")
    run_git(project, "gc", "--quiet", "--prune=now")
    assert tree(record, project, "a.txt") == "work"
    assert run_git(project, "log", "-1", "--format=%s", f"{record.kept_ref}^") == "work"
    Path(record.directory + ".away").rename(record.directory)
    assert losses(record).commits == 1


@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_a_worktree_whose_directory_is_gone_is_named_and_only_removed_on_purpose(
    worktrees: Worktrees, project: Path, tmp_path: Path, how: str
):
    record = worktrees.create("s")
    if how == "moved":
        Path(record.directory).rename(tmp_path / "elsewhere")
    else:
        subprocess.run(["rm", "-rf", record.directory], check=True)
    assert worktrees.all() == [record]
    with pytest.raises(WorktreeError, match="was moved or deleted"):
        worktrees.remove(record.name)
    with pytest.raises(WorktreeError, match="is gone"):
        worktrees.use(record)
    worktrees.remove(record.name, loses=True)
    assert worktrees.all() == []
    assert (tmp_path / "elsewhere/a.txt").exists() == (how == "moved")
    assert run_git(project, "worktree", "list").count("\n") == 0


# --- crashes, and two at once ------------------------------------------------------------------------------------------

STEP = """
import os, signal, sys
from sanderling.worktrees import extras, records, worktrees as module
from sanderling.worktrees.git import Git

what, state, project, name, number = sys.argv[1:]
count = 0

def die_at(kind):
    def wrap(function):
        def run(*arguments, **options):
            global count
            count += 1
            if count == int(number) and kind == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **options)
            if count == int(number) and kind == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return run
    return wrap

for kind in ("before", "after")[int(number) % 2 :][:1]:
    Git._raw = die_at(kind)(Git._raw)
    records.write = die_at(kind)(records.write)
mine = module.Worktrees(state, project)
if what == "create":
    mine.create("s", name=name)
else:
    mine.remove(name, loses=True)
print("done")
"""


def refusal_of_git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", directory, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stderr


def killed_at(step: int, what: str, state: Path, project: Path, name: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", STEP, what, str(state), str(project), name, str(step)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def test_a_kill_at_any_step_of_making_leaves_nothing_behind(
    worktrees: Worktrees, state: Path, project: Path
):
    step = 1
    while killed_at(step, "create", state, project, f"w{step}"):
        assert [each for each in worktrees.all() if each.stage != "ready"] == []
        for each in worktrees.all():
            worktrees.remove(each.name)
        assert run_git(project, "worktree", "list").count("\n") == 0
        assert list(Path(state, "worktrees").glob("*/w*")) == []
        step += 1
    assert step > 8


def test_a_kill_at_any_step_of_removing_loses_nothing_that_was_kept(
    worktrees: Worktrees, state: Path, project: Path
):
    step = 1
    is_killed = True
    while is_killed:
        name = f"w{step}"
        record = worktrees.create("s", name=name)
        Path(record.directory, "new.txt").write_text("work\n")
        is_killed = killed_at(step, "remove", state, project, name)
        (left,) = [each for each in worktrees.all() if each.name == name]
        if left.stage == "ready":
            assert Path(record.directory, "new.txt").read_text() == "work\n"
        else:
            assert left.stage == "kept"
            assert tree(record, project, "new.txt") == "work"
        step += 1
    assert step > 8


def test_a_worktree_is_made_while_git_adds_another(worktrees: Worktrees, project: Path):
    run_git(project, "worktree", "add", "--detach", f"{project}-other")
    (half,) = project.glob(".git/worktrees/*/commondir")
    whole = half.read_text()
    half.write_text("")
    assert "commondir" in refusal_of_git(project, "worktree", "list")
    with ThreadPoolExecutor() as pool:
        making = pool.submit(worktrees.create, "s")
        time.sleep(0.3)  # git fails several times meanwhile
        assert not making.done()
        half.write_text(whole)
        assert making.result(timeout=30).stage == "ready"


def test_two_processes_make_and_remove_at_once(state: Path, project: Path):
    def start(what: str, name: str, number: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", STEP, what, str(state), str(project), name, str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    both = [start("create", name, 10_000) for name in ("one", "two", "same", "same")]
    ends = [each.communicate(timeout=60) for each in both]
    assert [each.returncode for each in both[:2]] == [0, 0], ends
    assert sorted(each.returncode for each in both[2:]) == [0, 1]
    mine = Worktrees(str(state), str(project))
    assert sorted(each.name for each in mine.all()) == ["one", "same", "two"]
    both = [start("remove", "same", 10_000) for _ in range(2)]
    for each in both:
        each.communicate(timeout=60)
    assert sorted(each.name for each in mine.all()) == ["one", "two"]
    assert min(each.returncode for each in both) == 0


def test_a_file_that_appears_after_the_check_survives_an_interrupted_removal(
    worktrees: Worktrees,
):
    record = worktrees.create("s", name="w")
    records.write(worktrees._path("w"), replace(record, stage="removing"))
    Path(record.directory, "late.txt").write_text("late\n")
    (left,) = worktrees.all()
    assert left.stage == "ready"
    assert Path(record.directory, "late.txt").exists()


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_worktree_whose_record_was_deleted_is_not_replaced(
    worktrees: Worktrees, state: Path, project: Path, is_moved: bool
):
    record = worktrees.create("s", name="w")
    path = Path(record.directory)
    (path / "new.txt").write_text("work\n")
    (only,) = Path(state, "worktrees").glob("*/w.json")
    only.unlink()
    if is_moved:
        path = path.rename(project.parent / "moved")
    with pytest.raises(WorktreeError, match="there is a worktree w already"):
        worktrees.create("s", name="w")
    assert (path / "new.txt").read_text() == "work\n"
    assert Path(record.git_dir, "HEAD").exists()


def test_only_the_user_can_look_at_worktrees(worktrees: Worktrees, state: Path):
    worktrees.create("s")
    (root,) = Path(state, "worktrees").iterdir()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert time.time() - worktrees.all()[0].created_at < 3600
