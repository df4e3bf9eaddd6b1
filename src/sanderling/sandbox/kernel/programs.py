"""The user's own programs that a view shows: directories in HOME and PATH that contain nothing private."""

import os
import stat
from collections.abc import Iterable
from itertools import islice

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.policy import SandboxPolicy

_SYSTEM = "bin etc gnu lib lib32 lib64 libx32 nix opt sbin snap sys usr"
SYSTEM = _SYSTEM.split()

_TOOLCHAINS = (
    ".asdf .bun/bin .bun/install/global .cabal/bin .cargo/bin .deno/bin .elan .fnm .ghcup/bin"
    " .ghcup/ghc .jenv .juliaup .local/bin .local/lib .local/pipx/venvs .local/share/fnm"
    " .local/share/mise/installs .local/share/mise/shims .local/share/pipx/venvs .local/share/pnpm"
    " .local/share/uv/python .local/share/uv/tools .local/state/nix/profiles .nix-profile .nodenv"
    " .nvm .opam .pyenv .rbenv .rustup .rvm .sdkman/candidates .volta anaconda3 go/bin miniconda3"
    " miniforge3"
)
TOOLCHAINS = _TOOLCHAINS.split()
"""Directories in HOME from which programs run. They contain no keys and no tokens."""

MAX_PATH_ENTRIES, MAX_PROGRAMS, MAX_LINKS = 64, 2000, 40
"""Limits for the scan of the user's own programs, which happens while the user waits."""

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/proc")
"""Directories that the sandbox replaces by its own, in addition to HOME."""


def programs_of(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the directories in HOME to show for their programs: toolchains, and PATH entries such as ~/bin that contain only programs."""
    toolchains = present(f"{policy.home}/{name}" for name in TOOLCHAINS)
    others = (
        path
        for path in path_entries()
        if not is_system(path)
        and not is_in_any(path, (*toolchains, policy.project))
        and _may_be_shown(os.path.realpath(path), policy)
    )
    return (*toolchains, *others)


def search_path(value: str, policy: SandboxPolicy) -> str:
    """
    Return the entries of a PATH-like list that no command can have filled, except the project's own.

    Directories in HOME or /tmp that are not shown are the sandbox's own inside, where commands can write. Relative entries may be
    anywhere.
    """
    return os.pathsep.join(
        entry for entry in value.split(os.pathsep) if _holds_no_surprise(entry, policy)
    )


def _holds_no_surprise(entry: str, policy: SandboxPolicy) -> bool:
    path, real = os.path.normpath(entry), os.path.realpath(entry)
    if not os.path.isabs(entry) or (path != entry and os.path.realpath(path) != real):
        return False
    granted = (*policy.read_paths, *policy.write_paths)
    shown = (policy.project, *granted, *policy.programs)

    def is_hidden(place: str) -> bool:
        return is_in_any(place, (policy.home, *PRIVATE)) and not is_in_any(place, shown)

    if is_in_any(path, policy.programs) or (is_hidden(path) and is_in_any(real, granted)):
        return True  # mounted there
    return not (is_hidden(path) or is_hidden(real))


def leads_to_hidden(program: str) -> bool:
    """
    Return whether a program is a link into a directory that the sandbox replaces by its own.

    A command could plant another program there.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    toolchains = [f"{home}/{name}" for name in TOOLCHAINS]
    for _ in range(MAX_LINKS):
        if not os.path.islink(program):
            return False
        directory = os.path.realpath(os.path.dirname(program))
        program = os.path.normpath(os.path.join(directory, os.readlink(program)))
        is_beside = os.path.dirname(program) == directory
        is_private = is_in_any(program, (home, *PRIVATE))
        if is_private and not is_beside and not is_in_any(program, toolchains):
            return True
    return True


def path_entries() -> list[str]:
    """Return the directories of PATH, without those whose meaning depends on the current directory."""
    entries = os.environ.get("PATH", "").split(os.pathsep)[:MAX_PATH_ENTRIES]
    return [
        path
        for entry in dict.fromkeys(entries)
        if os.path.isabs(entry)
        and os.path.isdir(path := os.path.normpath(entry))
        and os.path.realpath(path) == os.path.realpath(entry)
    ]


def _may_be_shown(directory: str, policy: SandboxPolicy) -> bool:
    """
    Return whether a real directory in HOME has nothing private: only programs that every user may read, and links.

    HOME itself, directories around the project or Sanderling's state, and directories that others can write never qualify.
    """
    if directory == policy.home or not is_within(directory, policy.home):
        return False
    around = (policy.project, policy.state_dir, *policy.read_paths, *policy.write_paths)
    if any(is_within(path, directory) or is_within(directory, path) for path in around):
        return False
    try:
        status = os.stat(directory)
        if status.st_uid not in {os.geteuid(), 0} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
        with os.scandir(directory) as entries:
            found = list(islice(entries, MAX_PROGRAMS + 1))
        return 0 < len(found) <= MAX_PROGRAMS and all(map(_is_program, found))
    except OSError:
        return False


def _is_program(entry: "os.DirEntry[str]") -> bool:
    """A link discloses nothing: if its target is not shown, it does not exist inside."""
    if entry.name.startswith("."):
        return False
    if entry.is_symlink():
        return True
    mode = entry.stat(follow_symlinks=False).st_mode
    everybody = stat.S_IROTH | stat.S_IXOTH
    return stat.S_ISREG(mode) and mode & everybody == everybody


def present(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def is_system(path: str) -> bool:
    return path.strip("/").split("/")[0] in SYSTEM
