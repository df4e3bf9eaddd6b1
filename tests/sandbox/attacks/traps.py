"""Traps in the project: what makes the user's own git or editor run a program later, outside of every sandbox."""

# Attacks are system calls.

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

from .registry import Stopped, World, attack

EDITOR_FILES = {  # name: what it holds
    ".nvim.lua": "os.execute('canary')\n",
    ".exrc": ":silent !canary\n",
    ".nvimrc": ":silent !canary\n",
    ".lazy.lua": "return {}\n",
    ".envrc": "canary\n",
    ".mcp.json": '{"mcpServers": {"canary": {"command": "canary"}}}\n',
    ".vscode/tasks.json": '{"tasks": [{"command": "canary", "runOptions": {"runOn": "folderOpen"}}]}\n',
    ".idea/workspace.xml": "<project/>\n",
}


def _git(world: World, *arguments: str, cwd: str = "") -> None:
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    subprocess.run(command, cwd=Path(world.project, cwd), check=True, capture_output=True)


def _canary(world: World) -> str:
    """A program of the project that leaves a mark outside."""
    script = Path(world.project, "canary.sh")
    script.write_text(f"#!/bin/sh\n: > '{world.outside}/ran'\n")
    script.chmod(0o755)
    return str(script)


def _trap_config(world: World) -> str:
    return (
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = {_canary(world)}\n"
    )


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _trapped_copy(world: World, source: Path, name: str, *left_out: str) -> Path:
    """A copy of a git directory in the project, with a config that is a trap."""
    ours = Path(world.project, name)
    shutil.copytree(source, ours, ignore=shutil.ignore_patterns(*left_out))
    (ours / "config").write_text(_trap_config(world))
    return ours


def _dot_git(world: World) -> Path:
    return Path(world.project, ".git")


def _plant_hooks(world: World, hooks: Path) -> None:
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-index-change", "reference-transaction", "post-checkout"):
        (hooks / name).unlink(missing_ok=True)
        shutil.copy(_canary(world), hooks / name)


@attack("git-hook-add", kind="traps", evidence="canary", scene="own")
def git_hook_add(world: World) -> None:
    shutil.copy(_canary(world), _dot_git(world) / "hooks" / "post-index-change")


@attack("git-hook-change", kind="traps", evidence="canary", scene="own")
def git_hook_change(world: World) -> None:
    hook = _dot_git(world) / "hooks" / "pre-commit"
    hook.write_text(Path(_canary(world)).read_text())


@attack("git-hook-replace", kind="traps", evidence="canary", scene="own")
def git_hook_replace(world: World) -> None:
    Path(_canary(world)).replace(_dot_git(world) / "hooks" / "pre-commit")


@attack("git-hooks-rename", kind="traps", evidence="canary", scene="own")
def git_hooks_rename(world: World) -> None:
    hooks = _dot_git(world) / "hooks"
    hooks.rename(hooks.with_name("old"))
    _plant_hooks(world, hooks)


@attack("git-hooks-symlink", kind="traps", evidence="canary", scene="own")
def git_hooks_symlink(world: World) -> None:
    ours = Path(world.project, "ours")
    _plant_hooks(world, ours)
    hooks = _dot_git(world) / "hooks"
    shutil.rmtree(hooks)
    hooks.symlink_to(ours)


@attack("git-hook-chmod", kind="traps", evidence="canary", scene="own")
def git_hook_chmod(world: World) -> None:
    """A hook that runs a file of the project: the file changes, not the hook; one that was not executable becomes so."""
    (_dot_git(world) / "hooks" / "commit-msg").chmod(0o755)
    shutil.copy(_canary(world), Path(world.project, "check.sh"))


@attack("git-config-append", kind="traps", evidence="canary", scene="own")
def git_config_append(world: World) -> None:
    _append(_dot_git(world) / "config", _trap_config(world))


@attack("git-config-command", kind="traps", evidence="canary", scene="own")
def git_config_command(world: World) -> None:
    _git(world, "config", "core.fsmonitor", _canary(world))


@attack("git-config-replace", kind="traps", evidence="canary", scene="own")
def git_config_replace(world: World) -> None:
    ours = Path(world.project, "config")
    ours.write_text(_trap_config(world))
    ours.replace(_dot_git(world) / "config")


@attack("git-config-hardlink", kind="traps", evidence="canary", scene="own")
def git_config_hardlink(world: World) -> None:
    """A second name for the same file, and the write goes through that."""
    ours = Path(world.project, "config")
    os.link(_dot_git(world) / "config", ours)
    _append(ours, _trap_config(world))


@attack("git-config-other-name", kind="traps", evidence="canary", scene="own")
def git_config_other_name(world: World) -> None:
    """The user linked it under this name once."""
    _append(Path(world.project, "saved-config"), _trap_config(world))


@attack("git-hook-other-name", kind="traps", evidence="canary", scene="own")
def git_hook_other_name(world: World) -> None:
    """A usual way to install hooks: the project's file is the hook."""
    Path(world.project, "tools/pre-commit").write_text(Path(_canary(world)).read_text())


@attack("git-filter-program", kind="traps", evidence="canary", scene="own")
def git_filter_program(world: World) -> None:
    """The user's own setting names it, behind a substitution."""
    Path(world.project, "tools/clean").write_text(Path(_canary(world)).read_text())


@attack("git-filter-program-replace", kind="traps", evidence="canary", scene="own")
def git_filter_program_replace(world: World) -> None:
    """Its directory is moved away, and another one has its name."""
    tools = Path(world.project, "tools")
    tools.rename(Path(world.project, "old-tools"))
    tools.mkdir()
    shutil.copy(_canary(world), tools / "clean")


@attack("git-config-worktree", kind="traps", evidence="canary", scene="own")
def git_config_worktree(world: World) -> None:
    (_dot_git(world) / "config.worktree").write_text(_trap_config(world))


@attack("git-commondir", kind="traps", evidence="canary", scene="own")
def git_commondir(world: World) -> None:
    _trapped_copy(world, _dot_git(world), "common", "config", "hooks")
    (_dot_git(world) / "commondir").write_text("../common\n")


@attack("git-commondir-replace", kind="traps", evidence="canary", scene="own")
def git_commondir_replace(world: World) -> None:
    commondir = _dot_git(world) / "commondir"
    commondir.unlink(missing_ok=True)
    git_commondir(world)


@attack("git-move-dot-git", kind="traps", evidence="canary", scene="own")
def git_move_dot_git(world: World) -> None:
    old = Path(world.project, "old")
    _dot_git(world).rename(old)
    shutil.copytree(old, _dot_git(world), ignore=shutil.ignore_patterns("commondir"))
    (_dot_git(world) / "config").write_text(_trap_config(world))


@attack("git-dot-git-symlink", kind="traps", evidence="canary", scene="own")
def git_dot_git_symlink(world: World) -> None:
    ours = _trapped_copy(world, _dot_git(world), "ours", "commondir")
    _dot_git(world).rename(Path(world.project, "old"))
    _dot_git(world).symlink_to(ours)


@attack("git-dot-git-exchange", kind="traps", evidence="canary", scene="own")
def git_dot_git_exchange(world: World) -> None:
    from .kernel import AT_FDCWD, syscall

    ours = _trapped_copy(world, _dot_git(world), "ours", "commondir")
    syscall("renameat2", AT_FDCWD, str(ours), AT_FDCWD, str(_dot_git(world)), 2)


@attack("git-project-directory-replaced", kind="traps", evidence="canary", scene="own")
def git_project_directory_replaced(world: World) -> None:
    """The project's directory itself gets another one's place."""
    project = Path(world.project)
    ours = project.with_name(project.name + "-new")
    _canary(world)
    shutil.copytree(project, ours, symlinks=True)
    (ours / ".git" / "config").write_text(_trap_config(world))
    project.rename(project.with_name(project.name + "-old"))
    ours.rename(project)


# --------------------------------------------------------------- nested repositories


def _nest(world: World, where: str, *, add: bool = True) -> Path:
    """A repository with a commit below the project, known to the project's index; its .git directory."""
    nested = Path(world.project, where)
    nested.mkdir(parents=True)
    _git(world, "init", "-q", cwd=where)
    (nested / "file").write_text("x")
    _git(world, "add", "file", cwd=where)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    _git(world, *identity, "commit", "-qm", "x", cwd=where)
    # `git status` writes the index, and runs the hook for that, only when it finds a file older or younger than noted.
    os.utime(nested / "file", (0, 0))
    if add:
        _git(world, "add", "-f", where)
    return nested / ".git"


@attack("nested-fsmonitor", kind="traps", evidence="canary", scene="own")
def nested_fsmonitor(world: World) -> None:
    (_nest(world, "sub") / "config").write_text(_trap_config(world))


@attack("nested-include", kind="traps", evidence="canary", scene="own")
def nested_include(world: World) -> None:
    Path(world.project, "harmless").write_text(_trap_config(world))
    dot_git = _nest(world, "sub")
    _append(dot_git / "config", "[include]\n\tpath = ../../harmless\n")


@attack("nested-hooks", kind="traps", evidence="canary", scene="own")
def nested_hooks(world: World) -> None:
    dot_git = _nest(world, "sub")
    _plant_hooks(world, dot_git / "hooks")


@attack("nested-hooks-path", kind="traps", evidence="canary", scene="own")
def nested_hooks_path(world: World) -> None:
    dot_git = _nest(world, "sub")
    _plant_hooks(world, Path(world.project, "ours"))
    _append(dot_git / "config", "[core]\n\thooksPath = ../ours\n")


@attack("nested-pointer", kind="traps", evidence="canary", scene="own")
def nested_pointer(world: World) -> None:
    """`.git` is a file that names a directory which looks like data."""
    dot_git = _nest(world, "sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.rename(Path(world.project, "data"))
    dot_git.write_text("gitdir: ../data\n")


@attack("nested-symlink", kind="traps", evidence="canary", scene="own")
def nested_symlink(world: World) -> None:
    dot_git = _nest(world, "sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.rename(Path(world.project, "data"))
    dot_git.symlink_to("../data")


@attack("nested-commondir", kind="traps", evidence="canary", scene="own")
def nested_commondir(world: World) -> None:
    dot_git = _nest(world, "sub")
    common = Path(world.project, "data")
    shutil.copytree(dot_git, common)
    (common / "config").write_text(_trap_config(world))
    (dot_git / "commondir").write_text("../../data\n")


@attack("nested-config-worktree", kind="traps", evidence="canary", scene="own")
def nested_config_worktree(world: World) -> None:
    dot_git = _nest(world, "sub")
    _append(dot_git / "config", "[extensions]\n\tworktreeConfig = true\n")
    (dot_git / "config.worktree").write_text(_trap_config(world))


@attack("nested-in-node-modules", kind="traps", evidence="canary", scene="own")
def nested_in_node_modules(world: World) -> None:
    (_nest(world, "node_modules/x") / "config").write_text(_trap_config(world))


@attack("nested-deep", kind="traps", evidence="canary", scene="own")
def nested_deep(world: World) -> None:
    (_nest(world, "a/b/c/d/e/f/g/h") / "config").write_text(_trap_config(world))


@attack("nested-unlistable", kind="traps", evidence="canary", scene="own")
def nested_unlistable(world: World) -> None:
    """A search of the project cannot list the directory; git needs no list to find its `.git`."""
    dot_git = _nest(world, "outer/sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.parent.parent.chmod(0o311)


@attack("nested-bare", kind="traps", evidence="canary", scene="own")
def nested_bare(world: World) -> None:
    """A directory that holds what a `.git` holds is a repository to git, whatever its name."""
    dot_git = _nest(world, "sub", add=False)
    config = _trap_config(world).replace("bare = false", "bare = false\n\tworktree = .")
    (dot_git / "config").write_text(config)
    dot_git.rename(Path(world.project, "data"))


@attack("nested-existing-config", kind="traps", evidence="canary", scene="own")
def nested_existing_config(world: World) -> None:
    """A repository inside the project that has been there before."""
    _append(Path(world.project, "vendor/lib/.git/config"), _trap_config(world))


@attack("nested-existing-hook", kind="traps", evidence="canary", scene="own")
def nested_existing_hook(world: World) -> None:
    _plant_hooks(world, Path(world.project, "vendor/lib/.git/hooks"))


@attack("nested-existing-renamed", kind="traps", evidence="canary", scene="own")
def nested_existing_renamed(world: World) -> None:
    """The directory above it moves, and another one takes its name."""
    vendor = Path(world.project, "vendor")
    old = vendor.with_name("old")
    vendor.rename(old)
    shutil.copytree(old, vendor, symlinks=True)
    (vendor / "lib/.git/config").write_text(_trap_config(world))


@attack("nested-late", kind="traps", evidence="canary", scene="late")
def nested_late(world: World) -> None:
    """Innocent until the last moment: the config is written by a process that the command leaves behind."""
    dot_git = _nest(world, "sub")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.2)
            (dot_git / "config").write_text(_trap_config(world))
        os._exit(0)


@attack("submodule-config", kind="traps", evidence="canary", scene="own")
def submodule_config(world: World) -> None:
    _append(_dot_git(world) / "modules/lib/config", f"[core]\n\tfsmonitor = {_canary(world)}\n")


@attack("submodule-hook", kind="traps", evidence="canary", scene="own")
def submodule_hook(world: World) -> None:
    _plant_hooks(world, _dot_git(world) / "modules/lib/hooks")


def _rewrite_config(world: World, config: Path, *replaced: str) -> None:
    """Put a file with the trap in the place of a submodule's config, with the first of `replaced` turned into the second."""
    text = config.read_text().replace(*replaced) if replaced else config.read_text()
    config.unlink()
    config.write_text(f"{text}[core]\n\tfsmonitor = {_canary(world)}\n")


def _replace_submodule(world: World, directory: Path) -> None:
    old = directory.with_name("old")
    directory.rename(old)
    shutil.copytree(old, directory)
    _rewrite_config(world, directory / ("config" if directory.name == "lib" else "lib/config"))


@attack("submodule-renamed", kind="traps", evidence="canary", scene="own")
def submodule_renamed(world: World) -> None:
    _replace_submodule(world, _dot_git(world) / "modules/lib")


@attack("submodules-renamed", kind="traps", evidence="canary", scene="own")
def submodules_renamed(world: World) -> None:
    _replace_submodule(world, _dot_git(world) / "modules")


@attack("submodule-pointer", kind="traps", evidence="canary", scene="own")
def submodule_pointer(world: World) -> None:
    """The submodule's `.git` file names another directory."""
    ours = Path(world.project, "data")
    shutil.copytree(_dot_git(world) / "modules/lib", ours)
    _rewrite_config(world, ours / "config", "../../../lib", "../lib")
    pointer = Path(world.project, "lib/.git")
    pointer.unlink()
    pointer.write_text("gitdir: ../data\n")


@attack("submodule-commondir", kind="traps", evidence="canary", scene="own")
def submodule_commondir(world: World) -> None:
    module = _dot_git(world) / "modules/lib"
    ours = Path(world.project, "data")
    shutil.copytree(module, ours)
    _rewrite_config(world, ours / "config")
    (module / "commondir").write_text(f"{ours}\n")


@attack("worktrees-commondir", kind="traps", evidence="canary", scene="own")
def worktrees_commondir(world: World) -> None:
    """The project has a linked worktree beside it; its administrative files lie in the project's .git."""
    (administration,) = (_dot_git(world) / "worktrees").iterdir()
    ours = _trapped_copy(world, _dot_git(world), "common", "config", "hooks")
    (administration / "commondir").write_text(f"{ours}\n")


@attack("worktrees-config", kind="traps", evidence="canary", scene="own")
def worktrees_config(world: World) -> None:
    (administration,) = (_dot_git(world) / "worktrees").iterdir()
    (administration / "config.worktree").write_text(_trap_config(world))


@attack("worktrees-renamed", kind="traps", evidence="canary", scene="own")
def worktrees_renamed(world: World) -> None:
    worktrees = _dot_git(world) / "worktrees"
    old = worktrees.with_name("old")
    worktrees.rename(old)
    shutil.copytree(old, worktrees)
    (administration,) = worktrees.iterdir()
    (administration / "config.worktree").write_text(_trap_config(world))


# --------------------------------------------------------------- the project is itself a linked worktree


def _common(world: World) -> Path:
    return Path(world.common_git_directory)


@attack("linked-pointer", kind="traps", evidence="canary", scene="worktree")
def linked_pointer(world: World) -> None:
    _trapped_copy(world, _common(world), "data", "config", "worktrees")
    _dot_git(world).unlink()
    _dot_git(world).write_text("gitdir: data\n")


@attack("linked-pointer-rewrite", kind="traps", evidence="canary", scene="worktree")
def linked_pointer_rewrite(world: World) -> None:
    _trapped_copy(world, _common(world), "data", "config", "worktrees")
    _dot_git(world).write_text("gitdir: data\n")


@attack("linked-common-config", kind="traps", evidence="canary", scene="worktree")
def linked_common_config(world: World) -> None:
    _append(_common(world) / "config", _trap_config(world))


@attack("linked-common-hook", kind="traps", evidence="canary", scene="worktree")
def linked_common_hook(world: World) -> None:
    _plant_hooks(world, _common(world) / "hooks")


@attack("linked-common-commondir", kind="traps", evidence="canary", scene="worktree")
def linked_common_commondir(world: World) -> None:
    ours = _trapped_copy(world, _common(world), "data", "config", "worktrees")
    (_common(world) / "commondir").write_text(f"{ours}\n")


@attack("linked-commondir", kind="traps", evidence="canary", scene="worktree")
def linked_commondir(world: World) -> None:
    ours = _trapped_copy(world, _common(world), "data", "config", "worktrees")
    pointer = _dot_git(world).read_text().removeprefix("gitdir: ").strip()
    Path(pointer, "commondir").write_text(f"{ours}\n")


@attack("linked-config-worktree", kind="traps", evidence="canary", scene="worktree")
def linked_config_worktree(world: World) -> None:
    pointer = _dot_git(world).read_text().removeprefix("gitdir: ").strip()
    Path(pointer, "config.worktree").write_text(_trap_config(world))


@attack("linked-main-worktree", kind="secrets", evidence="loot", scene="worktree")
def linked_main_worktree(world: World) -> str:
    """The main worktree's files are another project; only its .git is needed."""
    return (_common(world).parent / ".env").read_text()


# --------------------------------------------------------------- editors

for _name, _text in EDITOR_FILES.items():
    _top = _name.partition("/")[0]

    @attack(
        f"change{_top}",
        kind="traps",
        evidence="changed",
        target=f"{{project}}/{_top}",
        scene="main",
    )
    def change(world: World, name: str = _name, text: str = _text) -> None:
        with Path(world.project, name).open("a") as file:
            file.write(text)

    @attack(
        f"plant{_top}", kind="traps", evidence="changed", target=f"{{project}}/{_top}", scene="bare"
    )
    def plant(world: World, name: str = _name, text: str = _text) -> None:
        path = Path(world.project, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@attack(
    "replace.nvim.lua", kind="traps", evidence="changed", target="{project}/.nvim.lua", scene="own"
)
def replace_nvim_lua(world: World) -> None:
    ours = Path(world.project, "ours")
    ours.write_text("os.execute('canary')")
    ours.replace(Path(world.project, ".nvim.lua"))


@attack("rename.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="own")
def rename_vscode(world: World) -> None:
    there = Path(world.project, ".vscode")
    there.rename(there.with_name("old"))
    there.mkdir()
    (there / "tasks.json").write_text("{}")


@attack("add-to.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="own")
def add_to_vscode(world: World) -> None:
    Path(world.project, ".vscode", "launch.json").write_text("{}")


@attack("link.exrc", kind="traps", evidence="changed", target="{project}/.exrc", scene="bare")
def link_exrc(world: World) -> None:
    """Planted by the other attack too, as a file; here as a symlink, moved into place."""
    link = Path(world.project, "some-link")
    link.symlink_to("README")
    link.rename(Path(world.project, ".exrc"))


@attack(
    "move-in.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="bare"
)
def move_in_vscode(world: World) -> None:
    made = Path(world.project, "made")
    made.mkdir()
    (made / "tasks.json").write_text("{}")
    made.chmod(0o500)
    made.rename(Path(world.project, ".vscode"))


@attack(
    "flood.exrc",
    kind="traps",
    evidence="changed",
    target="{project}/.exrc",
    scene="bare",
    timeout_s=8,
)
def flood_exrc(world: World) -> None:
    """Planted again and again, from two threads, as fast as it goes."""
    path = Path(world.project, ".exrc")
    deadline = time.monotonic() + 0.3

    def flood() -> None:
        while time.monotonic() < deadline:
            try:
                path.write_text("canary")
            except OSError:
                continue

    threads = [threading.Thread(target=flood) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not path.exists():
        raise Stopped("gone as soon as it was there")
