"""Rows and what is seen of their change: what a look at the tree tells the host, who need not load how it is done."""

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import os

    from sanderling.sandbox.kernel.file_systems import Status


class Row(NamedTuple):
    """The state of a name, as far as it can be seen without reading. A file has so many `links`, or names."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int = 1


def row_of(status: "os.stat_result | Status") -> Row:
    return Row(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_nlink,
    )


class Seen(NamedTuple):
    """
    A name that has changed: its row `before` and `after`, None where there was nothing.

    `object` names that of git's which held the bytes before, in a `repository`. `was_ignored`, or `was_closed`: something may have
    been there, but nobody had looked, or could.

    If it `is_unsure`, its times cannot tell what happened to it, so that its bytes have to: with equal rows whether it has changed at
    all, else whether somebody has changed it again since a tool did. If it `is_shared`, it has got another name outside of the tree
    since, by which somebody else may have changed it. A twin is another name of the same file, before or after. What was `left_out`
    is known by its name alone, for that is how it was looked at: git ignores it, it is version control's own, or a directory that
    nobody could look into.
    """

    path: str
    before: Row | None
    after: Row | None
    object: str = ""
    repository: str = ""
    was_ignored: bool = False
    is_unsure: bool = False
    is_shared: bool = False
    before_twin: str = ""
    after_twin: str = ""
    left_out: Literal["", "ignored", "own", "closed"] = ""
    was_closed: bool = False
