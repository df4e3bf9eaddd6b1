"""The person's own programs that a view shows: directories of HOME and PATH that hold nothing private."""

import os
import stat
from itertools import islice

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.policy import SandboxPolicy

SYSTEM = (
    "bin",
    "etc",
    "gnu",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix",
    "opt",
    "sbin",
    "snap",
    "sys",
    "usr",
)

TOOLCHAINS = (
    ".asdf",
    ".bun/bin",
    ".bun/install/global",
    ".cabal/bin",
    ".cargo/bin",
    ".deno/bin",
    ".elan",
    ".fnm",
    ".ghcup/bin",
    ".ghcup/ghc",
    ".jenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx/venvs",
    ".local/share/fnm",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/pipx/venvs",
    ".local/share/pnpm",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/state/nix/profiles",
    ".nix-profile",
    ".nodenv",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman/candidates",
    ".volta",
    "anaconda3",
    "go/bin",
    "miniconda3",
    "miniforge3",
)
"""Below HOME, what commands are started from. None of these directories holds a key or a token."""

MAX_PATH_ENTRIES, MAX_PROGRAMS, MAX_LINKS = 64, 2000, 40
"""The most of the person's own programs: more is not looked through while somebody waits."""

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/proc")
"""The places that the sandbox has of its own, beside HOME."""


def programs_of(policy: SandboxPolicy) -> tuple[str, ...]:
    """Find what is shown of HOME for the programs in it: compilers and interpreters, and what else of PATH, like ~/bin, holds nothing else."""
    toolchains = present(tuple(f"{policy.home}/{name}" for name in TOOLCHAINS))
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
    Return those of a list of directories like PATH in which no command can have put anything, but for the project's own.

    What lies in HOME or /tmp and is not shown is, inside, the sandbox's own directory; and what is relative may be any.
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
        return True  # it is mounted there
    return not (is_hidden(path) or is_hidden(real))


def leads_to_hidden(program: str) -> bool:
    """Say whether a program is a link to where the sandbox has directories of its own, so that a command can put another there."""
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
    """The directories of PATH, as the person's shell searches them; not those that depend on where it is."""
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
    Say whether a real directory of HOME holds nothing private: programs that everybody may read, and links to such in HOME's own view.

    HOME itself, what the project or our own state lies in, and what others can write, never are.
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
    """A link shows no more than where it leads: what is not shown there does not exist inside."""
    if entry.name.startswith("."):
        return False
    if entry.is_symlink():
        return True
    mode = entry.stat(follow_symlinks=False).st_mode
    everybody = stat.S_IROTH | stat.S_IXOTH
    return stat.S_ISREG(mode) and mode & everybody == everybody


def present(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if os.path.exists(path)]


def is_system(path: str) -> bool:
    return path.strip("/").split("/")[0] in SYSTEM
