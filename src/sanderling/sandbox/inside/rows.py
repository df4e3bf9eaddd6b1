"""Rows and what is seen of their change: what a look at the tree tells the host, who need not load how it is done."""

import os
from typing import NamedTuple


class Row(NamedTuple):
    """The state of a name, as far as it can be seen without reading."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def row_of(status: os.stat_result) -> Row:
    return Row(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


class Seen(NamedTuple):
    """
    A name that has changed: its row `before` and `after`, None where there was nothing.

    `object` names that of git's which held the bytes before, in a `repository`. `was_ignored`: something may have been there, but
    nobody had looked.
    """

    path: str
    before: Row | None
    after: Row | None
    object: str = ""
    repository: str = ""
    was_ignored: bool = False
