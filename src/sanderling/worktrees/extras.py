"""
Files that git ignores and a worktree needs: `.env`, `node_modules`. They are copied, or linked where the user says so.

A copy shares its blocks with the original where the file system can do that (reflink), so a large directory costs little. A link leads
to the project's own directory, which the sandbox of the worktree shows read-only: `npm ci` there must not rebuild the user's.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from sanderling.errors import WorktreeError
from sanderling.paths import is_within
from sanderling.text import printable
from sanderling.worktrees import copying


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """A path of the project that a worktree has, too. `fingerprint` is that of the copy as it was made; empty: it is a link."""

    path: str
    fingerprint: str = ""


def copied(project: str, worktree: str, paths: Sequence[str]) -> list[Extra]:
    """
    Copy the `paths` that exist in the project and not in the worktree.

    Raises:
        WorktreeError: one cannot be copied.
    """
    made: list[Extra] = []
    for path in paths:
        if places := _places(project, worktree, path):
            source, target = places
            try:
                copying.copy(os.path.realpath(project), path, target)
            except OSError as error:
                raise WorktreeError(f"cannot copy {printable(source)}: {error.strerror}") from error
            made.append(Extra(path, fingerprint(target)))
    return made


def linked(project: str, worktree: str, paths: Sequence[str]) -> list[Extra]:
    """
    Link the `paths` that exist in the project and not in the worktree to the project's own.

    Raises:
        WorktreeError: one cannot be linked.
    """
    made: list[Extra] = []
    for path in paths:
        if places := _places(project, worktree, path):
            source, target = places
            try:
                os.symlink(source, target)
            except OSError as error:
                raise WorktreeError(f"cannot link {printable(path)}: {error.strerror}") from error
            made.append(Extra(path))
    return made


def missing(project: str, paths: Sequence[str]) -> list[str]:
    """Return the names, perhaps misspelled, in `paths` that the project does not have, as they are shown."""
    return [printable(path) for path in paths if not os.path.lexists(f"{project}/{path}")]


def linked_paths(project: str, extras: Sequence[Extra]) -> tuple[str, ...]:
    """
    Return the existing paths, resolved, to which the links in a worktree lead.

    The links themselves do not count: commands in the worktree can replace them. Neither does a path of the project that leads out of it,
    because commands in the project can make that: either would let the model read any file of the user's.
    """
    top = os.path.realpath(project)
    paths = (os.path.realpath(f"{top}/{each.path}") for each in extras if not each.fingerprint)
    return tuple(path for path in paths if is_within(path, top) and os.path.exists(path))


def changed(worktree: str, extras: Sequence[Extra]) -> list[str]:
    """Return the copies that are not as they were made. A copy that was removed has nothing to lose."""
    return [
        each.path
        for each in extras
        if each.fingerprint
        and os.path.lexists(path := f"{worktree}/{each.path}")
        and fingerprint(path) != each.fingerprint
    ]


def fingerprint(path: str) -> str:
    """Return a digest of the names, types, modes, sizes and times of `path` and all below it."""
    digest = sha256(usedforsecurity=False)
    for name, facts in _walk(path):
        digest.update(os.fsencode(f"{name[len(path) :]}\0{facts}\0"))
    return digest.hexdigest()


def _walk(path: str) -> Iterator[tuple[str, tuple[int, int, int] | None]]:
    """Yield each name with its facts; None for one that is gone, or deeper than a path can be: a line of shell makes that."""
    waiting = [path]
    while waiting:
        name = waiting.pop()
        try:
            found = os.lstat(name)
        except OSError:
            yield name, None
            continue
        if not stat.S_ISDIR(found.st_mode):
            yield name, (found.st_mode, found.st_size, found.st_mtime_ns)
            continue
        # The times of a directory change with entries, which are in the digest themselves.
        yield name, (found.st_mode, 0, 0)
        with suppress(OSError):
            waiting += (f"{name}/{each}" for each in sorted(os.listdir(name), reverse=True))


def _places(project: str, worktree: str, path: str) -> tuple[str, str] | None:
    """
    Return the path in the project and in the worktree; None if there is nothing to do.

    Raises:
        WorktreeError: a link on the way leads out of the project or the worktree.
    """
    source, target = f"{project}/{path}", f"{worktree}/{path}"
    if not os.path.lexists(source) or os.path.lexists(target):
        return None
    for top, each in ((project, source), (worktree, target)):
        if not is_within(os.path.realpath(os.path.dirname(each)), os.path.realpath(top)):
            raise WorktreeError(
                f"worktree.extras names {printable(path)}, which leads out of the project"
            )
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return source, target
