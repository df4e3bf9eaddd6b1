"""Files that we read without having been asked to: what else stands in their place must not keep us waiting."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: Path) -> BinaryIO:
    """
    Open `path` to read it. /dev/null stands for an empty file, as ever.

    Raises:
        OSError: it cannot be opened, or it is none: a pipe may never answer, and a device never end.
    """
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - Path.open takes no opener
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) or os.path.samestat(found, Path(os.devnull).stat()):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
