"""Rows and their changes: the result of a look at the tree. The host imports these types without the code that looks."""

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import os

    from sanderling.sandbox.kernel.file_systems import FileStatus


class FileRow(NamedTuple):
    """The state of a name that is visible without reading the file. `links` counts the file's hard links."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    links: int = 1


def row_of(status: "os.stat_result | FileStatus") -> FileRow:
    return FileRow(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_nlink,
    )


class ChangedRow(NamedTuple):
    """
    A changed name: its row `before` and `after`, None where there was nothing.

    Attributes:
        object: the git object with the previous bytes, in `repository`.
        was_ignored: the file may have existed before, unnoticed because it was ignored.
        was_closed: the file may have existed before, in a directory that could not be read.
        is_unsure: the times cannot show what happened, so the bytes must be compared. With equal rows it is unknown whether the file
            changed at all, else whether another program changed it again after a tool did.
        is_shared: the file has gained a name outside the tree, through which another program may have changed it.
        before_twin, after_twin: another name of the same file, before or after the change.
        left_out: only the name was known, because git ignores it, because it belongs to version control ("own"), or because it is a
            directory that could not be read ("closed").
    """

    path: str
    before: FileRow | None
    after: FileRow | None
    object: str = ""
    repository: str = ""
    was_ignored: bool = False
    is_unsure: bool = False
    is_shared: bool = False
    before_twin: str = ""
    after_twin: str = ""
    left_out: Literal["", "ignored", "own", "closed"] = ""
    was_closed: bool = False
