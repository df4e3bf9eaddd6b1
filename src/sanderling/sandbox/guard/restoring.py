"""Restores protected files where nothing can be mounted."""

import os
import stat
from collections.abc import Iterable

from sanderling.paths import closed_after, is_in_any
from sanderling.platforms import files
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.quarantine import Quarantine
from sanderling.sandbox.guard.tree import (
    DIRECTORY,
    identity,
    identity_of,
    look,
    open_directory,
    put,
    rename_back,
)


class ProjectRestorer:
    """Restores the recorded files of `project`, and the directories in `pins` from wherever they were moved."""

    def __init__(
        self, project: GuardedProject, quarantine: Quarantine, pins: Iterable[str]
    ) -> None:
        self._project = project
        self._quarantine = quarantine
        self._pins = {path: os.open(path, DIRECTORY) for path in pins if project.restores}
        self._pin_modes = {path: os.fstat(fd).st_mode for path, fd in self._pins.items()}

    def put_all_back(self) -> None:
        for path in sorted(self._pins):
            try:
                self._restore_pin(path)
            except OSError as error:
                self._project.tell("failed", path, f"cannot be restored: {error.strerror}")
        for path in sorted(self._project.kept):
            self.put_back(path)

    def _restore_pin(self, path: str) -> None:
        """Move the original directory back, with its content, from wherever it is now."""
        fd, mode = self._pins[path], self._pin_modes[path]
        name = os.path.basename(path)
        with closed_after(open_directory(os.path.dirname(path))) as parent:
            if identity(name, parent) != identity_of(fd):
                self._quarantine.take_at(parent, name, path, "replaced a protected directory")
                if os.fstat(fd).st_nlink:
                    rename_back(fd, parent, name)
                    self._project.tell("restored", path, "was moved away")
                else:
                    os.mkdir(name, stat.S_IMODE(mode), dir_fd=parent)
                    self._pins[path] = os.open(name, DIRECTORY, dir_fd=parent)
                    os.close(fd)
                    self._project.tell(
                        "failed", path, "was deleted; only its protected files can be restored"
                    )
            if os.fstat(self._pins[path]).st_mode != mode:
                files.set_mode(self._pins[path], stat.S_IMODE(mode))
                self._project.tell("restored", path, "had a different mode")

    def put_back(self, path: str) -> None:
        kept = self._project.kept[path]
        try:
            parent = open_directory(os.path.dirname(path))
        except OSError:
            # Without its directory, git does not find it. If it comes back, it is new.
            del self._project.kept[path]
            if not is_in_any(path, self._project.below_root):
                self._project.tell(
                    "failed", path, "was removed with its directory and cannot be restored"
                )
            return
        name = os.path.basename(path)
        try:
            now = look(name, parent)
            if now == kept:
                return
            if now and now.kind == kept.kind and now.mode != kept.mode:
                files.change_mode(parent, name, kept.mode)
                self._project.tell("restored", path, "had a different mode")
                now = look(name, parent)
            if now and now.kind == kept.kind == stat.S_IFDIR:
                for new in now.names - kept.names:
                    self._quarantine.take(
                        f"{path}/{new}", "must not appear in a protected directory"
                    )
            elif now != kept and self._quarantine.take_at(
                parent, name, path, "is protected and was changed"
            ):
                put(parent, name, kept)
                self._project.tell("restored", path, "was restored")
        except OSError as error:
            self._project.tell("failed", path, f"cannot be restored: {error.strerror}")
        finally:
            os.close(parent)

    def close(self) -> None:
        for fd in self._pins.values():
            os.close(fd)
