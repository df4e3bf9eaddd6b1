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


def _dot_git(world: World) -> Path:
    return Path(world.project, ".git")


def _plant_hooks(world: World, hooks: Path) -> None:
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-index-change", "reference-transaction", "post-checkout"):
        (hooks / name).unlink(missing_ok=True)
        shutil.copy(_canary(world), hooks / name)


@attack("git-hook-add", kind="traps", evidence="canary", scene="own")
def git_hook_add(world: World) -> str:
    shutil.copy(_canary(world), _dot_git(world) / "hooks" / "post-index-change")
    return "planted"


@attack("git-hook-change", kind="traps", evidence="canary", scene="own")
def git_hook_change(world: World) -> str:
    hook = _dot_git(world) / "hooks" / "pre-commit"
    hook.write_text(Path(_canary(world)).read_text())
    return "changed"


@attack("git-hook-replace", kind="traps", evidence="canary", scene="own")
def git_hook_replace(world: World) -> str:
    Path(_canary(world)).replace(_dot_git(world) / "hooks" / "pre-commit")
    return "replaced"


@attack("git-hooks-rename", kind="traps", evidence="canary", scene="own")
def git_hooks_rename(world: World) -> str:
    hooks = _dot_git(world) / "hooks"
    hooks.rename(hooks.with_name("old"))
    _plant_hooks(world, hooks)
    return "renamed and planted"


@attack("git-hooks-symlink", kind="traps", evidence="canary", scene="own")
def git_hooks_symlink(world: World) -> str:
    ours = Path(world.project, "ours")
    _plant_hooks(world, ours)
    hooks = _dot_git(world) / "hooks"
    shutil.rmtree(hooks)
    hooks.symlink_to(ours)
    return "linked"


@attack("git-hook-chmod", kind="traps", evidence="canary", scene="own")
def git_hook_chmod(world: World) -> str:
    """A hook that runs a file of the project: the file changes, not the hook; one that was not executable becomes so."""
    (_dot_git(world) / "hooks" / "commit-msg").chmod(0o755)
    shutil.copy(_canary(world), Path(world.project, "check.sh"))
    return "made executable"


@attack("git-config-append", kind="traps", evidence="canary", scene="own")
def git_config_append(world: World) -> str:
    with (_dot_git(world) / "config").open("a") as config:
        config.write(_trap_config(world))
    return "appended"


@attack("git-config-command", kind="traps", evidence="canary", scene="own")
def git_config_command(world: World) -> str:
    _git(world, "config", "core.fsmonitor", _canary(world))
    return "configured"


@attack("git-config-replace", kind="traps", evidence="canary", scene="own")
def git_config_replace(world: World) -> str:
    ours = Path(world.project, "config")
    ours.write_text(_trap_config(world))
    ours.replace(_dot_git(world) / "config")
    return "replaced"


@attack("git-config-hardlink", kind="traps", evidence="canary", scene="own")
def git_config_hardlink(world: World) -> str:
    """A second name for the same file, and the write goes through that."""
    ours = Path(world.project, "config")
    os.link(_dot_git(world) / "config", ours)
    with ours.open("a") as config:
        config.write(_trap_config(world))
    return "written through a link"


@attack("git-config-other-name", kind="traps", evidence="canary", scene="own")
def git_config_other_name(world: World) -> str:
    """The user linked it under this name once."""
    with Path(world.project, "saved-config").open("a") as config:
        config.write(_trap_config(world))
    return "written through a link of the user's"


@attack("git-hook-other-name", kind="traps", evidence="canary", scene="own")
def git_hook_other_name(world: World) -> str:
    """A usual way to install hooks: the project's file is the hook."""
    Path(world.project, "tools/pre-commit").write_text(Path(_canary(world)).read_text())
    return "written through a link of the user's"


@attack("git-filter-program", kind="traps", evidence="canary", scene="own")
def git_filter_program(world: World) -> str:
    """The user's own setting names it, behind a substitution."""
    Path(world.project, "tools/clean").write_text(Path(_canary(world)).read_text())
    return "changed"


@attack("git-filter-program-replace", kind="traps", evidence="canary", scene="own")
def git_filter_program_replace(world: World) -> str:
    """Its directory is moved away, and another one has its name."""
    tools = Path(world.project, "tools")
    tools.rename(Path(world.project, "old-tools"))
    tools.mkdir()
    shutil.copy(_canary(world), tools / "clean")
    return "replaced"


@attack("git-config-worktree", kind="traps", evidence="canary", scene="own")
def git_config_worktree(world: World) -> str:
    (_dot_git(world) / "config.worktree").write_text(_trap_config(world))
    return "planted"


@attack("git-commondir", kind="traps", evidence="canary", scene="own")
def git_commondir(world: World) -> str:
    ours = Path(world.project, "common")
    shutil.copytree(_dot_git(world), ours, ignore=shutil.ignore_patterns("config", "hooks"))
    (ours / "config").write_text(_trap_config(world))
    (_dot_git(world) / "commondir").write_text("../common\n")
    return "planted"


@attack("git-commondir-replace", kind="traps", evidence="canary", scene="own")
def git_commondir_replace(world: World) -> str:
    commondir = _dot_git(world) / "commondir"
    commondir.unlink(missing_ok=True)
    return git_commondir(world)


@attack("git-move-dot-git", kind="traps", evidence="canary", scene="own")
def git_move_dot_git(world: World) -> str:
    old = Path(world.project, "old")
    _dot_git(world).rename(old)
    shutil.copytree(old, _dot_git(world), ignore=shutil.ignore_patterns("commondir"))
    (_dot_git(world) / "config").write_text(_trap_config(world))
    return "replaced"


@attack("git-dot-git-symlink", kind="traps", evidence="canary", scene="own")
def git_dot_git_symlink(world: World) -> str:
    ours = Path(world.project, "ours")
    shutil.copytree(_dot_git(world), ours, ignore=shutil.ignore_patterns("commondir"))
    (ours / "config").write_text(_trap_config(world))
    _dot_git(world).rename(Path(world.project, "old"))
    _dot_git(world).symlink_to(ours)
    return "linked"


@attack("git-dot-git-exchange", kind="traps", evidence="canary", scene="own")
def git_dot_git_exchange(world: World) -> str:
    from .kernel import AT_FDCWD, syscall

    ours = Path(world.project, "ours")
    shutil.copytree(_dot_git(world), ours, ignore=shutil.ignore_patterns("commondir"))
    (ours / "config").write_text(_trap_config(world))
    syscall("renameat2", AT_FDCWD, str(ours), AT_FDCWD, str(_dot_git(world)), 2)
    return "exchanged"


@attack("git-project-directory-replaced", kind="traps", evidence="canary", scene="own")
def git_project_directory_replaced(world: World) -> str:
    """The project's directory itself gets another one's place."""
    project = Path(world.project)
    ours = project.with_name(project.name + "-new")
    _canary(world)
    shutil.copytree(project, ours, symlinks=True)
    (ours / ".git" / "config").write_text(_trap_config(world))
    project.rename(project.with_name(project.name + "-old"))
    ours.rename(project)
    return "replaced"


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
def nested_fsmonitor(world: World) -> str:
    (_nest(world, "sub") / "config").write_text(_trap_config(world))
    return "planted"


@attack("nested-include", kind="traps", evidence="canary", scene="own")
def nested_include(world: World) -> str:
    Path(world.project, "harmless").write_text(_trap_config(world))
    dot_git = _nest(world, "sub")
    with (dot_git / "config").open("a") as config:
        config.write("[include]\n\tpath = ../../harmless\n")
    return "planted"


@attack("nested-hooks", kind="traps", evidence="canary", scene="own")
def nested_hooks(world: World) -> str:
    dot_git = _nest(world, "sub")
    _plant_hooks(world, dot_git / "hooks")
    return "planted"


@attack("nested-hooks-path", kind="traps", evidence="canary", scene="own")
def nested_hooks_path(world: World) -> str:
    dot_git = _nest(world, "sub")
    _plant_hooks(world, Path(world.project, "ours"))
    with (dot_git / "config").open("a") as config:
        config.write("[core]\n\thooksPath = ../ours\n")
    return "planted"


@attack("nested-pointer", kind="traps", evidence="canary", scene="own")
def nested_pointer(world: World) -> str:
    """`.git` is a file that names a directory which looks like data."""
    dot_git = _nest(world, "sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.rename(Path(world.project, "data"))
    dot_git.write_text("gitdir: ../data\n")
    return "planted"


@attack("nested-symlink", kind="traps", evidence="canary", scene="own")
def nested_symlink(world: World) -> str:
    dot_git = _nest(world, "sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.rename(Path(world.project, "data"))
    dot_git.symlink_to("../data")
    return "planted"


@attack("nested-commondir", kind="traps", evidence="canary", scene="own")
def nested_commondir(world: World) -> str:
    dot_git = _nest(world, "sub")
    common = Path(world.project, "data")
    shutil.copytree(dot_git, common)
    (common / "config").write_text(_trap_config(world))
    (dot_git / "commondir").write_text("../../data\n")
    return "planted"


@attack("nested-config-worktree", kind="traps", evidence="canary", scene="own")
def nested_config_worktree(world: World) -> str:
    dot_git = _nest(world, "sub")
    with (dot_git / "config").open("a") as config:
        config.write("[extensions]\n\tworktreeConfig = true\n")
    (dot_git / "config.worktree").write_text(_trap_config(world))
    return "planted"


@attack("nested-in-node-modules", kind="traps", evidence="canary", scene="own")
def nested_in_node_modules(world: World) -> str:
    (_nest(world, "node_modules/x") / "config").write_text(_trap_config(world))
    return "planted"


@attack("nested-deep", kind="traps", evidence="canary", scene="own")
def nested_deep(world: World) -> str:
    (_nest(world, "a/b/c/d/e/f/g/h") / "config").write_text(_trap_config(world))
    return "planted"


@attack("nested-unlistable", kind="traps", evidence="canary", scene="own")
def nested_unlistable(world: World) -> str:
    """A search of the project cannot list the directory; git needs no list to find its `.git`."""
    dot_git = _nest(world, "outer/sub")
    (dot_git / "config").write_text(_trap_config(world))
    dot_git.parent.parent.chmod(0o311)
    return "planted"


@attack("nested-bare", kind="traps", evidence="canary", scene="own")
def nested_bare(world: World) -> str:
    """A directory that holds what a `.git` holds is a repository to git, whatever its name."""
    dot_git = _nest(world, "sub", add=False)
    config = _trap_config(world).replace("bare = false", "bare = false\n\tworktree = .")
    (dot_git / "config").write_text(config)
    dot_git.rename(Path(world.project, "data"))
    return "planted"


@attack("nested-existing-config", kind="traps", evidence="canary", scene="own")
def nested_existing_config(world: World) -> str:
    """A repository inside the project that has been there before."""
    with Path(world.project, "vendor/lib/.git/config").open("a") as config:
        config.write(_trap_config(world))
    return "appended"


@attack("nested-existing-hook", kind="traps", evidence="canary", scene="own")
def nested_existing_hook(world: World) -> str:
    _plant_hooks(world, Path(world.project, "vendor/lib/.git/hooks"))
    return "planted"


@attack("nested-existing-renamed", kind="traps", evidence="canary", scene="own")
def nested_existing_renamed(world: World) -> str:
    """The directory above it moves, and another one takes its name."""
    vendor = Path(world.project, "vendor")
    old = vendor.with_name("old")
    vendor.rename(old)
    shutil.copytree(old, vendor, symlinks=True)
    (vendor / "lib/.git/config").write_text(_trap_config(world))
    return "replaced"


@attack("nested-late", kind="traps", evidence="canary", scene="late")
def nested_late(world: World) -> str:
    """Innocent until the last moment: the config is written by a process that the command leaves behind."""
    dot_git = _nest(world, "sub")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.2)
            (dot_git / "config").write_text(_trap_config(world))
        os._exit(0)
    return "left a process"


@attack("submodule-config", kind="traps", evidence="canary", scene="own")
def submodule_config(world: World) -> str:
    with (_dot_git(world) / "modules/lib/config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {_canary(world)}\n")
    return "appended"


@attack("submodule-hook", kind="traps", evidence="canary", scene="own")
def submodule_hook(world: World) -> str:
    _plant_hooks(world, _dot_git(world) / "modules/lib/hooks")
    return "planted"


def _replace_submodule(world: World, directory: Path) -> str:
    old = directory.with_name("old")
    directory.rename(old)
    shutil.copytree(old, directory)
    config = directory / ("config" if directory.name == "lib" else "lib/config")
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}[core]\n\tfsmonitor = {_canary(world)}\n")
    return "replaced"


@attack("submodule-renamed", kind="traps", evidence="canary", scene="own")
def submodule_renamed(world: World) -> str:
    return _replace_submodule(world, _dot_git(world) / "modules/lib")


@attack("submodules-renamed", kind="traps", evidence="canary", scene="own")
def submodules_renamed(world: World) -> str:
    return _replace_submodule(world, _dot_git(world) / "modules")


@attack("submodule-pointer", kind="traps", evidence="canary", scene="own")
def submodule_pointer(world: World) -> str:
    """The submodule's `.git` file names another directory."""
    ours = Path(world.project, "data")
    shutil.copytree(_dot_git(world) / "modules/lib", ours)
    config = ours / "config"
    text = config.read_text().replace("../../../lib", "../lib")
    config.unlink()
    config.write_text(f"{text}[core]\n\tfsmonitor = {_canary(world)}\n")
    pointer = Path(world.project, "lib/.git")
    pointer.unlink()
    pointer.write_text("gitdir: ../data\n")
    return "redirected"


@attack("submodule-commondir", kind="traps", evidence="canary", scene="own")
def submodule_commondir(world: World) -> str:
    module = _dot_git(world) / "modules/lib"
    ours = Path(world.project, "data")
    shutil.copytree(module, ours)
    config = ours / "config"
    text = config.read_text()
    config.unlink()
    config.write_text(f"{text}[core]\n\tfsmonitor = {_canary(world)}\n")
    (module / "commondir").write_text(f"{ours}\n")
    return "planted"


@attack("worktrees-commondir", kind="traps", evidence="canary", scene="own")
def worktrees_commondir(world: World) -> str:
    """The project has a linked worktree beside it; its administrative files lie in the project's .git."""
    (administration,) = (_dot_git(world) / "worktrees").iterdir()
    ours = Path(world.project, "common")
    shutil.copytree(_dot_git(world), ours, ignore=shutil.ignore_patterns("config", "hooks"))
    (ours / "config").write_text(_trap_config(world))
    (administration / "commondir").write_text(f"{ours}\n")
    return "redirected"


@attack("worktrees-config", kind="traps", evidence="canary", scene="own")
def worktrees_config(world: World) -> str:
    (administration,) = (_dot_git(world) / "worktrees").iterdir()
    (administration / "config.worktree").write_text(_trap_config(world))
    return "planted"


@attack("worktrees-renamed", kind="traps", evidence="canary", scene="own")
def worktrees_renamed(world: World) -> str:
    worktrees = _dot_git(world) / "worktrees"
    old = worktrees.with_name("old")
    worktrees.rename(old)
    shutil.copytree(old, worktrees)
    (administration,) = worktrees.iterdir()
    (administration / "config.worktree").write_text(_trap_config(world))
    return "replaced"


# --------------------------------------------------------------- the project is itself a linked worktree


def _common(world: World) -> Path:
    return Path(world.common_git_directory)


@attack("linked-pointer", kind="traps", evidence="canary", scene="worktree")
def linked_pointer(world: World) -> str:
    ours = Path(world.project, "data")
    shutil.copytree(_common(world), ours, ignore=shutil.ignore_patterns("config", "worktrees"))
    (ours / "config").write_text(_trap_config(world))
    _dot_git(world).unlink()
    _dot_git(world).write_text("gitdir: data\n")
    return "redirected"


@attack("linked-pointer-rewrite", kind="traps", evidence="canary", scene="worktree")
def linked_pointer_rewrite(world: World) -> str:
    ours = Path(world.project, "data")
    shutil.copytree(_common(world), ours, ignore=shutil.ignore_patterns("config", "worktrees"))
    (ours / "config").write_text(_trap_config(world))
    _dot_git(world).write_text("gitdir: data\n")
    return "rewritten"


@attack("linked-common-config", kind="traps", evidence="canary", scene="worktree")
def linked_common_config(world: World) -> str:
    with (_common(world) / "config").open("a") as config:
        config.write(_trap_config(world))
    return "appended"


@attack("linked-common-hook", kind="traps", evidence="canary", scene="worktree")
def linked_common_hook(world: World) -> str:
    _plant_hooks(world, _common(world) / "hooks")
    return "planted"


@attack("linked-common-commondir", kind="traps", evidence="canary", scene="worktree")
def linked_common_commondir(world: World) -> str:
    ours = Path(world.project, "data")
    shutil.copytree(_common(world), ours, ignore=shutil.ignore_patterns("config", "worktrees"))
    (ours / "config").write_text(_trap_config(world))
    (_common(world) / "commondir").write_text(f"{ours}\n")
    return "planted"


@attack("linked-commondir", kind="traps", evidence="canary", scene="worktree")
def linked_commondir(world: World) -> str:
    ours = Path(world.project, "data")
    shutil.copytree(_common(world), ours, ignore=shutil.ignore_patterns("config", "worktrees"))
    (ours / "config").write_text(_trap_config(world))
    pointer = _dot_git(world).read_text().removeprefix("gitdir: ").strip()
    Path(pointer, "commondir").write_text(f"{ours}\n")
    return "redirected"


@attack("linked-config-worktree", kind="traps", evidence="canary", scene="worktree")
def linked_config_worktree(world: World) -> str:
    pointer = _dot_git(world).read_text().removeprefix("gitdir: ").strip()
    Path(pointer, "config.worktree").write_text(_trap_config(world))
    return "planted"


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
    def change(world: World, name: str = _name, text: str = _text) -> str:
        with Path(world.project, name).open("a") as file:
            file.write(text)
        return "changed"

    @attack(
        f"plant{_top}", kind="traps", evidence="changed", target=f"{{project}}/{_top}", scene="bare"
    )
    def plant(world: World, name: str = _name, text: str = _text) -> str:
        path = Path(world.project, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return "planted"


@attack(
    "replace.nvim.lua", kind="traps", evidence="changed", target="{project}/.nvim.lua", scene="own"
)
def replace_nvim_lua(world: World) -> str:
    ours = Path(world.project, "ours")
    ours.write_text("os.execute('canary')")
    ours.replace(Path(world.project, ".nvim.lua"))
    return "replaced"


@attack("rename.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="own")
def rename_vscode(world: World) -> str:
    there = Path(world.project, ".vscode")
    there.rename(there.with_name("old"))
    there.mkdir()
    (there / "tasks.json").write_text("{}")
    return "replaced"


@attack("add-to.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="own")
def add_to_vscode(world: World) -> str:
    Path(world.project, ".vscode", "launch.json").write_text("{}")
    return "added"


@attack("link.exrc", kind="traps", evidence="changed", target="{project}/.exrc", scene="bare")
def link_exrc(world: World) -> str:
    """Planted by the other attack too, as a file; here as a symlink, moved into place."""
    link = Path(world.project, "some-link")
    link.symlink_to("README")
    link.rename(Path(world.project, ".exrc"))
    return "linked"


@attack(
    "move-in.vscode", kind="traps", evidence="changed", target="{project}/.vscode", scene="bare"
)
def move_in_vscode(world: World) -> str:
    made = Path(world.project, "made")
    made.mkdir()
    (made / "tasks.json").write_text("{}")
    made.chmod(0o500)
    made.rename(Path(world.project, ".vscode"))
    return "moved in"


@attack(
    "flood.exrc",
    kind="traps",
    evidence="changed",
    target="{project}/.exrc",
    scene="bare",
    timeout_s=8,
)
def flood_exrc(world: World) -> str:
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
    return "planted"
