"""The user's own programs that a view shows: directories in HOME and PATH that contain nothing private."""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice

from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.kernel.installations import (
    PARTS,
    chain,
    entries,
    files_with_tokens,
    installation_parts,
    parts_of_roots,
)
from sanderling.sandbox.policy import SandboxPolicy, is_too_wide

_SYSTEM = "bin etc gnu lib lib32 lib64 libx32 nix opt sbin snap sys usr"
SYSTEM = _SYSTEM.split()

_TOOLCHAINS = (
    ".asdf .bun/bin .bun/install/global .cabal/bin .cargo/bin .deno/bin .elan .fnm .ghcup/bin"
    " .ghcup/ghc .jenv .juliaup .local/bin .local/lib .local/share/fnm .local/share/mise/installs"
    " .local/share/mise/shims .local/share/pnpm .local/state/nix/profiles .nix-profile .nodenv .nvm .opam .pyenv .rbenv .rustup .rvm .sdkman/candidates .volta anaconda3 go/bin miniconda3"
    " miniforge3"
)
TOOLCHAINS = _TOOLCHAINS.split()
"""Directories in HOME from which programs run. They contain no keys and no tokens."""
FILLED = (
    ".local/pipx/venvs",
    ".local/share/pipx/venvs",
    ".local/share/uv/python",
    ".local/share/uv/tools",
)
"""
Directories in HOME whose entries are shown one by one, read-only, in a private directory that can be written.

uvx and `pipx run` lock or fill the directory itself. With all of it read-only, they end before they do anything.
"""

_PRIVATE_PARTS = (
    ".aws .azure .cache .config .docker .gnupg .kube .local/share/keyrings .mozilla .password-store .ssh"
    " .thunderbird"
)
BESIDE_KEYS = _PRIVATE_PARTS.split()
"""Directories in HOME from which no installation is shown, even if it has a known layout."""
DATA = (".local/share", ".local/state")
"""Directories in HOME with the data of all programs, tokens among it: an installation there is shown, but never all of the directory."""
DATA_VARIABLES = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")

MAX_PATH_ENTRIES, MAX_PROGRAMS, MAX_LINKS = 64, 2000, 40
"""Limits for the scan of the user's own programs, which happens while the user waits."""

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/proc")
"""Directories that the sandbox replaces by its own, in addition to HOME."""


def programs_of(policy: SandboxPolicy) -> tuple[str, ...]:
    """
    Return the paths to show for the user's programs, in HOME or in a version manager's root that its variable names.

    They are toolchains, PATH entries such as ~/bin that contain only programs, and the installations to which programs on PATH lead.
    """
    toolchains = present(f"{policy.home}/{name}" for name in TOOLCHAINS)
    filled = [each for name in FILLED for each in entries(f"{policy.home}/{name}")]
    shown = [*toolchains, *filled]
    for path in path_entries():
        if (
            not is_system(path)
            and not is_in_any(path, (*shown, policy.project))
            and _may_be_shown(os.path.realpath(path), policy)
        ):
            shown.append(path)
    for path in (*parts_of_roots(os.environ), *_installations(policy)):
        if not is_system(path) and not is_in_any(path, shown) and _is_owned(path, policy):
            shown.append(path)
    return tuple(shown)


def with_programs(policy: SandboxPolicy) -> SandboxPolicy:
    """Return `policy` with the user's programs as they are now, and the files next to them that must stay hidden."""
    programs = programs_of(policy)
    return policy._replace(programs=programs, masked=files_with_tokens(programs))


def _installations(policy: SandboxPolicy) -> Iterator[str]:
    """Yield the parts of the installations to which programs on PATH lead: through links, and by the interpreters of scripts."""
    left = MAX_PROGRAMS
    for entry in path_entries():
        real = os.path.realpath(entry)
        is_private = is_within(real, policy.home) and not is_within(real, policy.project)
        if not is_private and entry != "/usr/local/bin":
            continue
        yield from installation_parts(f"{real}/.")
        for program in _programs_in(real, left):
            left -= 1
            yield from _parts_behind(program, policy)


def _programs_in(directory: str, most: int) -> Iterator[str]:
    with suppress(OSError), os.scandir(directory) as found:
        for each in islice(found, most):
            if each.is_file() and (each.is_symlink() or os.access(each.path, os.X_OK)):
                yield each.path


def _parts_behind(program: str, policy: SandboxPolicy) -> Iterator[str]:
    # Interpreters that a script finds by PATH are among the programs anyway.
    for each in chain(program, path=""):
        real = os.path.realpath(each)
        for path in dict.fromkeys((os.path.normpath(each), real)):
            if is_within(path, policy.home):
                yield from installation_parts(path)
        if real != each and _may_be_shown(os.path.dirname(real), policy):
            yield os.path.dirname(real)


def _is_owned(path: str, policy: SandboxPolicy) -> bool:
    """
    Return whether a part of an installation is really the user's or the system's, so that no other user can replace it or write there.

    HOME, directories around the project or Sanderling's state, what lies next to keys, and what contains keys or the data of all
    programs are refused. In HOME itself and in ~/.local, such as after `npm config set prefix ~/.local`, not everything is the prefix's.
    """
    real = os.path.realpath(path)
    is_homes_own = os.path.dirname(real) == policy.home and os.path.basename(real) in PARTS
    around = (policy.project, policy.state_dir, *policy.read_paths, *policy.write_paths)
    private = [f"{policy.home}/{name}" for name in BESIDE_KEYS]
    data = [f"{policy.home}/{name}" for name in DATA]
    data += [os.path.realpath(at) for name in DATA_VARIABLES if (at := os.environ.get(name))]
    if (
        is_homes_own
        or any(is_within(each, real) or is_within(real, each) for each in around)
        or any(is_within(each, real) for each in (*private, *data))
        or is_too_wide(real, policy.home)
        or is_system(real)
        or (is_in_any(real, private) and "node_modules" not in real.split("/"))
    ):
        return False
    try:
        while real not in (policy.home, "/"):
            if not _is_written_only_by_user(os.stat(real)):
                return False
            real = os.path.dirname(real)
    except OSError:
        return False
    return True


def _is_written_only_by_user(status: os.stat_result) -> bool:
    """In a sticky directory, such as /tmp, others can write, but not replace what is the user's."""
    others = stat.S_IWOTH if _is_private_group(status.st_gid) else stat.S_IWGRP | stat.S_IWOTH
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and stat.S_ISDIR(status.st_mode)
    return status.st_uid in {os.geteuid(), 0} and (is_sticky or not status.st_mode & others)


@cache
def _is_private_group(gid: int) -> bool:
    """Return whether only the user is in the group, as on systems that give each user one; files there are often writable for it."""
    if os.geteuid() == 0 or gid != os.getegid():
        return False
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not {*group.gr_mem} - {user.pw_name}


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
        if status.st_mode & stat.S_ISVTX or not _is_written_only_by_user(status):
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
