"""Harbor's task directories, as tasks. Their files are read when they run: a task that is wrong is one result, and not the end of a run."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sanderling.batch.harbor.task_file import TASK_FILE
from sanderling.batch.tasks import Task, digest_of, unique
from sanderling.errors import UsageError


def read_directory(path: Path) -> list[Task]:
    """
    Return the task in the directory, or in each directory below it.

    Raises:
        UsageError: no task is there, or their files cannot be read.
    """
    if (path / TASK_FILE).is_file():
        directories = [path]
    else:
        directories = sorted(each for each in path.iterdir() if (each / TASK_FILE).is_file())
    if not directories:
        raise UsageError(f"{path} has no tasks: no directory in it has a {TASK_FILE}")
    try:
        return unique([_task_of(directory.resolve()) for directory in directories], str(path))
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error


def _task_of(directory: Path) -> Task:
    digest = digest_of(_contents(directory))
    return Task(id=directory.name, harbor=str(directory), digest=digest)


def _contents(directory: Path) -> Iterator[bytes]:
    """Yield the names, kinds and contents of the files below the directory, in a fixed order."""
    for here, names, files in os.walk(directory):
        names.sort()
        links = [name for name in names if Path(here, name).is_symlink()]
        for name in sorted((*files, *links)):
            path = Path(here, name)
            mode = path.lstat().st_mode
            yield os.fsencode(path.relative_to(directory))
            if stat.S_ISLNK(mode):
                yield b"l" + os.fsencode(path.readlink())
            elif stat.S_ISREG(mode):
                yield (b"x" if mode & stat.S_IXUSR else b"f") + path.read_bytes()
