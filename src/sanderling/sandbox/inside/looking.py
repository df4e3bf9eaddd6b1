"""Finds the changes in a project for the journal, and copies the changed files."""

import errno
import os
import stat
import zlib
from _blake2 import blake2b  # hashlib would load OpenSSL, a seventh of the start
from collections.abc import Sequence
from threading import Lock

from sanderling.paths import closed_after
from sanderling.sandbox.inside.reading import OPENED, take
from sanderling.sandbox.inside.rows import FileRow, row_of
from sanderling.sandbox.inside.tree import Tree

DIGEST_BYTES = 32
MAX_ANSWER_BYTES = 4 << 20
MAX_TRIES = 3
MAX_TREES = 16
GONE, HIDDEN = FileRow(0, 0, 0, 0, 0), FileRow(stat.S_IFREG, 0, 0, 0, 0)
"""The rows of what is not there, and of what may be there, in a directory that is closed."""
_trees: dict[str, Tree] = {}
_forgotten: set[str] = set()
_turn = Lock()
"""Without a sandbox these functions run in the host, each in a thread."""

Copy = tuple[str, tuple[int, ...], bytes, int, bytes]
"""A path, its row, and for a file the digest, the size and the compressed bytes; for a link its target."""


def scan(root: str, token: str) -> tuple[bool, bool, list[tuple[object, ...]]]:
    """
    Return whether this is the first look of `token`, whether `unclean` has anything to report, and the changes since the last look.

    Raises:
        OSError: the root cannot be read, or there is too much: E2BIG, ETIME.
    """
    with _turn:
        tree = _trees.pop(token, None)
    is_first = tree is None
    tree = tree or Tree(root)
    try:
        changes = tree.look()
    except BaseException:
        tree.close()
        raise
    _keep(token, tree)
    return (
        is_first,
        tree.has_unjudged,
        [
            (path, before and tuple(before), after and tuple(after), *rest)
            for path, before, after, *rest in changes
        ],
    )


def _keep(token: str, tree: Tree) -> None:
    """Keep the tree for the next look, unless its owner forgot it meanwhile."""
    with _turn:
        if token in _forgotten:
            tree.close()
            return
        _trees[token] = tree
        while len(_trees) > MAX_TREES:
            _trees.pop(next(iter(_trees))).close()


def unclean(_root: str, token: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the files whose bytes are not recorded anywhere: they changed since the last call and differ from what git has."""
    tree = _trees.get(token)
    return [(path, tuple(row)) for path, row in tree.unclean()] if tree else []


def objects(
    _root: str, token: str, repository: str, names: Sequence[str], limit: int
) -> list[tuple[str, bytes]]:
    """
    Return the compressed bytes of the first held objects among `names`, as many as fit into one answer; b"" for objects not held.

    The host asks when git no longer has them, because a command removed them.
    """
    tree = _trees.get(token)
    held = tree.held(repository) if tree else None
    found: list[tuple[str, bytes]] = []
    room = MAX_ANSWER_BYTES
    for name in names:
        data = held.read(bytes.fromhex(name), limit) if held else None
        found.append((name, b"" if data is None else zlib.compress(data, 1)))
        room -= len(found[-1][1]) + len(name)
        if room < 0:
            break
    if held:
        held.forget()
    return found


def judged(_root: str, token: str, paths: Sequence[str]) -> None:
    """Mark these files as known: the journal has their bytes."""
    if tree := _trees.get(token):
        tree.judged(paths)


def forget(token: str) -> None:
    """Drop a tree, at once or when the running look at it ends."""
    with _turn:
        _forgotten.add(token)
        if tree := _trees.pop(token, None):
            tree.close()


def copies(_root: str, paths: Sequence[str], limit: int) -> list[Copy]:
    """Copy the first of `paths`, as many as fit into one answer. A file larger than `limit`, or unreadable, has no digest."""
    found: list[Copy] = []
    room = MAX_ANSWER_BYTES
    for path in paths:
        copy = _copy(path, limit)
        found.append(copy)
        room -= len(copy[-1]) + len(path)
        if room < 0:
            break
    return found


def _copy(path: str, limit: int) -> Copy:
    row = GONE
    for _ in range(MAX_TRIES):
        try:
            row = row_of(os.lstat(path))
            if stat.S_ISLNK(row.mode):
                return path, tuple(row), b"", 0, os.fsencode(os.readlink(path))
            if not stat.S_ISREG(row.mode) or row.size > limit:
                break
            data = _bytes(path, row, limit)
        except OSError as error:
            if error.errno == errno.ESTALE:
                continue
            if row == GONE and error.errno not in (errno.ENOENT, errno.ENOTDIR):
                row = HIDDEN
            break
        digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
        return path, tuple(row), digest, len(data), zlib.compress(data, 1)
    return path, tuple(row), b"", 0, b""


def _bytes(path: str, row: FileRow, limit: int) -> bytes:
    """Return the file's content, if it still has this row."""
    with closed_after(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | OPENED)) as descriptor:
        data = take(descriptor, limit + 1)
        if row_of(os.fstat(descriptor)) != row or len(data) != row.size:
            raise OSError(errno.ESTALE, "it has changed")
    return data
