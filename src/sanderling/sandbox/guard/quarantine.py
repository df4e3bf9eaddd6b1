"""The quarantine, to which the guard moves forbidden files. Its size is limited."""

import errno
import os
import stat
import time
from contextlib import suppress

from sanderling.paths import closed_after
from sanderling.platforms import files
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.tree import identity, open_directory, open_up

MAX_MOVED_BYTES = 64 << 20

MAX_MOVED_NAMES = 10_000
"""How many names are copied to a quarantine on another file system while the tripwire waits. Larger trees stay in place, renamed."""


class TooMuchError(Exception):
    pass


class _Copier:
    """Copies links and regular files that may change meanwhile, up to a limit. Other kinds of files are skipped."""

    def __init__(self) -> None:
        self._bytes = MAX_MOVED_BYTES
        self._names = MAX_MOVED_NAMES

    def count(self, _directory: str, names: list[str]) -> list[str]:
        """Count `names` for `shutil.copytree`, ignoring none."""
        self._names -= len(names)
        if self._names < 0:
            raise TooMuchError
        return []

    def copy(self, source: str, destination: str) -> None:
        flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(source, os.O_RDONLY | flags)
        except OSError:
            return
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            if found.st_size > self._bytes:
                raise TooMuchError
            with open(destination, "xb") as copy:
                while chunk := file.read(1 << 20):
                    self._bytes -= len(chunk)
                    if self._bytes < 0:
                        raise TooMuchError
                    copy.write(chunk)


def move(source: str, destination: str) -> None:
    """
    Move files to another file system. They may change meanwhile; only regular files, directories and links are kept.

    Raises:
        OSError, RecursionError, TooMuchError: all or part of it stays.
    """
    import shutil

    copier = _Copier()
    if os.path.isdir(source) and not os.path.islink(source):
        with suppress(shutil.Error):  # raised at the end, for what could not be copied
            shutil.copytree(
                source, destination, symlinks=True, ignore=copier.count, copy_function=copier.copy
            )
        shutil.rmtree(source)
        return
    if os.path.islink(source):
        os.symlink(os.readlink(source), destination)
    else:
        copier.copy(source, destination)
    os.unlink(source)


class Quarantine:
    """The quarantine of a project. Every move is reported."""

    def __init__(self, project: GuardedProject, directory: str) -> None:
        self._project = project
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._fd = os.open(directory, files.ONLY_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def take(self, path: str, reason: str) -> bool:
        if not self._project.is_inside(path):
            return False
        try:
            parent = open_directory(os.path.dirname(path))
        except OSError:
            return False  # its directory was removed or replaced by a link
        with closed_after(parent):
            return self.take_at(parent, os.path.basename(path), path, reason)

    def take_at(self, parent: int, name: str, path: str, reason: str) -> bool:
        """Move `name` out of the directory `parent` and report it. Return whether it is gone."""
        try:
            try:
                kept_at = self._move_away(parent, name, path)
            except PermissionError:
                # Moving a directory requires write permission on it and on its parent.
                open_up(parent, name)
                kept_at = self._move_away(parent, name, path)
        except OSError as error:
            if identity(name, parent) is None:
                return True
            self._project.tell(
                "failed", path, f"{reason}, but could not be moved away: {error.strerror}"
            )
            return False
        self._project.tell("quarantined", path, reason, kept_at)
        return True

    def _move_away(self, parent: int, name: str, path: str) -> str:
        shown = os.fsencode(self._project.shown(path).strip("/").replace("/", "%"))[-150:]
        kept_name = f"{time.time_ns()}-{os.fsdecode(shown)}"
        kept_at = f"{self._directory}/{kept_name}"
        try:
            os.rename(name, kept_name, src_dir_fd=parent, dst_dir_fd=self._fd)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return kept_at
        # Another file system. The name must disappear at once; the copy may take longer.
        harmless = f".quarantined-{kept_name}"
        os.rename(name, harmless, src_dir_fd=parent, dst_dir_fd=parent)
        try:
            move(f"{files.reached_through(parent)}/{harmless}", kept_at)
        except (OSError, RecursionError, TooMuchError):
            with suppress(OSError):
                files.change_mode(parent, harmless, 0)
            return f"{os.path.dirname(path)}/{harmless}"
        return kept_at

    def close(self) -> None:
        os.close(self._fd)
