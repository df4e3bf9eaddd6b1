"""
Repositories: what git would run in them, and where it reads that from.

Plain `git status` runs `core.fsmonitor` and hooks, so writing a repository's config means running code as the user. Git finds the config
in steps. A `.git` entry is a directory, a link, or a file with `gitdir: PATH`. In the git directory, a file `commondir` may point to
another directory, which has `config`, `hooks` and `objects`. `config.worktree` is in the first directory, and the config may include
other files (gitrepository-layout(5), git-config(1)). Mounts protect the existing ones of these files; `guard.py` watches for the
others.

`commondir` needs special care. While it does not exist, no mount can protect it, and one small file there redirects config and hooks: a
plain `git status`, or an editor's git plugin, then runs `core.fsmonitor` from the planted directory. So the sandbox creates a
**sentinel**: a `commondir` that points to its own directory. This changes nothing for git, libgit2 and gitoxide. It is removed when the
last session that needs it ends or, if all were killed, when the next one starts. A missing directory `hooks` is made and removed likewise.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sanderling.paths import closed_after, is_in_any
from sanderling.platforms.files import ONLY_PATH
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.git_program import (
    AmbiguousPathError,
    TrustedGit,
    follow_links,
    leads_to,
)

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_POINTER_BYTES = 1 << 20
"""How much git reads of a `.git` file, including line ends that it cuts off."""
MAX_CONFIG_BYTES = 1 << 20
MAX_HOOK_BYTES = 64 << 10
MAX_NAMED = 2_000
MAX_CHAIN = 10
"""The limit for following includes, and alternates of alternates. Git's own limits are 10 and 5."""

TELLING = frozenset(("HEAD", "objects", "refs", "commondir"))
"""Names by which git recognizes a repository."""

SURFACE = ("config", "config.worktree", "hooks", "commondir")
WORKTREE_SURFACE = ("config.worktree", "commondir", "gitdir")
OTHER_SURFACE = {
    ".hg": ("hgrc", "hgrc-not-shared", "requires", "sharedpath"),
    ".jj": ("workspace-config.toml",),
    ".jj/repo": ("config.toml",),
}
"""The files of other version control systems that run code when a shell prompt or an editor asks for the status."""
_NOT_WALKED = frozenset({"objects", "annex", "lfs", "hooks", "modules", "worktrees"})
"""Directories of a git directory that are large stores, or are judged on their own."""
_WORK_TREE = re.compile(rb"(^|\])\s*worktree\s*=", re.IGNORECASE | re.MULTILINE)


class Repository(NamedTuple):
    """The directories that git uses for `entry`, resolved: its own git directory, and the one shared between worktrees."""

    entry: str
    git_dir: str
    common_dir: str


class Survey(NamedTuple):
    """
    The result of one walk of the project, without following links or entering `.git` directories. All paths are absolute.

    Attributes:
        git: the program to ask about the project.
        repositories: entries named `.git`, and bare repositories.
        env_files: regular files that may contain secrets, by their name.
        unlistable: directories that can be entered but not read.
        named: paths whose name is in the table, including links.
    """

    project: str
    git: TrustedGit
    repositories: list[str]
    env_files: list[str]
    sockets: list[str]
    unlistable: list[str]
    named: list[str]


def survey(
    project: str,
    git: TrustedGit,
    between: Callable[[], object] = lambda: None,
    makes_listable: Callable[[str], bool] = lambda _: False,
) -> Survey:
    """
    Walk the project, given by its absolute, resolved path. From now on `git` runs no program from there.

    `between` is called regularly, so that a large tree does not delay urgent work. `makes_listable` is called with each directory that cannot
    be listed, and returns whether it can now; it may be below another one.

    Raises:
        OSError: the directory does not exist.
    """
    git.distrust(project)
    found = Survey(project, git, [], [], [], [], [])
    waiting = [""]
    count = 0
    with closed_after(os.open(project, ONLY_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        while waiting:
            directory = waiting.pop()
            count += 1
            if not count % 64:
                between()
            try:
                with _listing(directory or ".", root) as entries:
                    waiting += _sort(entries, f"{directory}/" if directory else "", found)
            except PermissionError:
                path = f"{project}/{directory}".rstrip("/")
                if path not in found.unlistable and makes_listable(path):
                    waiting.append(directory)
                found.unlistable.append(path)
            except OSError:
                pass  # removed or replaced since its name was read
    return found


def survey_linked(path: str, git: TrustedGit) -> Survey:
    """Walk a directory of the project to which its worktree links; of a file, only judge the name."""
    if os.path.isdir(path):
        with suppress(OSError):  # removed just now
            return survey(path, git)
    directory, name = os.path.split(path)
    return Survey(directory, git, [], [path] if is_env_file(name) else [], [], [], [])


def is_env_file(name: str) -> bool:
    return ".env" in name and (name.endswith(".env") or name.startswith(".env."))


def _sort(entries: "Iterable[os.DirEntry[str]]", prefix: str, found: Survey) -> list[str]:
    """Add a directory's entries to `found` and return its subdirectories. Called for every directory, so it must be fast."""
    directories: list[str] = []
    telling: set[str] = set()
    above = prefix.split("/")
    is_foreign = not listed.DEPENDENCIES.isdisjoint(above)
    directory = above[-2] if prefix else ""
    for entry in entries:
        name = entry.name
        if name in TELLING:
            telling.add(name)
        if not is_foreign and listed.is_listed(name, directory) and len(found.named) < MAX_NAMED:
            found.named.append(f"{found.project}/{prefix}{name}")
        if name == ".git":
            found.repositories.append(f"{found.project}/{prefix}.git")
        elif entry.is_dir(follow_symlinks=False):
            directories.append(prefix + name)
        elif entry.is_file(follow_symlinks=False):
            if is_env_file(name):
                found.env_files.append(f"{found.project}/{prefix}{name}")
        elif entry.is_symlink():
            if len(found.named) < MAX_NAMED:
                found.named.extend(listed.listed_by_link(f"{found.project}/{prefix}{name}"))
        elif _is_socket(entry):
            found.sockets.append(f"{found.project}/{prefix}{name}")
    if "HEAD" in telling and ("commondir" in telling or telling >= {"objects", "refs"}):
        found.repositories.append(f"{found.project}/{prefix}".rstrip("/"))
    return directories


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextmanager
def _listing(directory: str, dir_fd: int | None = None) -> "Generator[Iterator[os.DirEntry[str]]]":
    """Open and list a directory that is not a link."""
    fd = os.open(directory, DIRECTORY, dir_fd=dir_fd)
    try:  # for every directory, and so without another context manager
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


def find_repository(entry: str) -> Repository | None:
    """
    Return the repository that git finds at `entry`, a `.git` or a git directory, or None.

    Raises:
        AmbiguousPathError: a pointer is not written as git writes it, so programs may read it differently.
    """
    try:
        git_dir = follow_links(_git_directory(entry))
    except OSError:
        return None  # missing, or removed just now
    try:
        common_dir = follow_links(os.path.join(git_dir, pointer(f"{git_dir}/commondir")))
    except OSError:
        common_dir = git_dir
    return Repository(entry, git_dir, common_dir)


def clear_repository(entry: str) -> Repository | None:
    """Return the repository that `entry` leads to, or None if it is missing or a pointer is unclear."""
    try:
        return find_repository(entry)
    except AmbiguousPathError:
        return None


def _git_directory(entry: str) -> str:
    if os.path.islink(entry):
        if os.path.isfile(entry):
            raise AmbiguousPathError("is a link to a .git file, which programs resolve differently")
        return entry
    if os.path.isdir(entry):
        return entry
    return os.path.join(os.path.dirname(entry), pointer(entry, b"gitdir: "))


def pointer(path: str, prefix: bytes = b"") -> str:
    try:
        content = read_file(path, MAX_POINTER_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise AmbiguousPathError("is not a readable regular file") from error
    line = content.removeprefix(prefix).rstrip(b"\r\n")
    is_plain = bool(line) and line == line.strip() and not any(byte < ord(" ") for byte in line)
    if not (is_plain and content.startswith(prefix)):
        raise AmbiguousPathError("is not written as git writes it")
    return os.fsdecode(line)


def read_file(path: str, limit: int, *, follows: bool = True, dir_fd: int | None = None) -> bytes:
    """
    Return the content of a regular file of at most `limit` bytes.

    Raises:
        OSError: it is missing, too large, or not a regular file. FIFOs do not block, and devices are not kept open.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    flags = flags if follows else flags | os.O_NOFOLLOW
    with closed_after(os.open(path, flags, dir_fd=dir_fd)) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = b""
        while chunk := os.read(fd, limit + 1 - len(content)):
            content += chunk
    if len(content) > limit:
        raise OSError(errno.EFBIG, "too large", path)
    return content


def git_directories(survey: Survey, outside: Iterable[str] = ()) -> list[str]:
    """Return the git directories in the project and `outside`: targets of entries, and directories below `modules` and `worktrees`."""
    roots = (survey.project, *outside)
    found: set[str] = set(outside)
    for entry in survey.repositories:
        if repository := clear_repository(entry):
            found.update((repository.git_dir, repository.common_dir))
    found = {path for path in found if is_in_any(path, roots)}
    waiting = [f"{path}/{name}" for path in found for name in ("modules", "worktrees")]
    while waiting:
        directory = waiting.pop()
        try:
            with _listing(directory) as entries:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        is_git_dir = "HEAD" in kinds or "commondir" in kinds
        if is_git_dir:
            found.add(directory)
        skipped = ("objects", "refs", "logs", "hooks") if is_git_dir else ()
        waiting += [
            f"{directory}/{name}"
            for name, is_directory in kinds.items()
            if is_directory and name not in skipped
        ]
    return sorted(found)


def links_in(git_dir: str, makes_listable: Callable[[str], bool]) -> dict[str, str]:
    """Return the targets of the symbolic links in a git directory, by path. `makes_listable` is as for `survey`."""
    found: dict[str, str] = {}
    waiting = [git_dir]
    while waiting:
        directory = waiting.pop()
        skipped = _NOT_WALKED if directory == git_dir else ()
        try:
            with _listing(directory) as entries:
                kinds = {
                    f"{directory}/{entry.name}": entry.is_symlink()
                    for entry in entries
                    if entry.name not in skipped
                    and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
                }
        except PermissionError:
            waiting += [directory] * makes_listable(directory)
            continue
        except OSError:
            continue
        waiting += [path for path, is_link in kinds.items() if not is_link]
        for path in (path for path, is_link in kinds.items() if is_link):
            with suppress(OSError):  # removed just now
                found[path] = os.readlink(path)
    return found


def has_its_files_around(project: str) -> bool:
    """
    Return whether no setting moves the worktree of the project's repository elsewhere.

    Git is not asked: it would obey the setting and show any file that the index names. If `.git` is unusable, the project itself may be a
    bare repository.
    """
    try:
        found = list(filter(None, map(find_repository, (f"{project}/.git", project))))
    except AmbiguousPathError:
        return False
    places = {place for each in found for place in (each.git_dir, each.common_dir)}
    for path in (f"{place}/{name}" for place in places for name in ("config", "config.worktree")):
        try:
            if _WORK_TREE.search(read_file(path, MAX_CONFIG_BYTES)):
                return False
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def alternates(store: str) -> list[str]:
    """Return the object stores that `store` borrows from, resolved. Entries with too many links, which nothing can follow, are skipped."""
    try:
        lines = read_file(f"{store}/info/alternates", MAX_CONFIG_BYTES).splitlines()
    except OSError:
        return []
    named = [line for line in lines if line and not line.startswith(b"#") and b"\0" not in line]
    return [path for line in named if (path := leads_to(store, os.fsdecode(line)))]
