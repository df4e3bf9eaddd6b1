"""Detects when the project's directory is replaced during a session."""

import os
from collections.abc import Callable

from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.sandbox.report import ProjectReplaced

GONE = "The project's directory {project} is gone: nothing runs until it exists again."

Directory = tuple[str, int, int]
"""The directory that a path leads to: real path, device and inode."""


class ProjectLocation:
    """Tracks which directory `project` is. A replacement is reported to `on_event`."""

    def __init__(self, project: str, on_event: Callable[[ProjectReplaced], None]) -> None:
        self._project = project
        self._on_event = on_event
        self._known: Directory | None = None
        self._has_been_replaced = False

    def now(self) -> Directory | None:
        """Return the current directory, or None if it is missing."""
        try:
            status = os.stat(f"{self._project}/")
        except OSError:
            return None
        return real_path(self._project), status.st_dev, status.st_ino

    def require(self) -> Directory:
        """
        Return the current directory.

        Raises:
            SandboxError: it is missing.
        """
        if place := self.now():
            return place
        raise SandboxError(GONE.format(project=self._project))

    def note(self, place: Directory) -> None:
        """Remember `place`, and report if it differs from the last one."""
        known, self._known = self._known or place, place
        if known != place:
            self._has_been_replaced = True
            self._on_event(ProjectReplaced(self._project))

    def take_replaced(self) -> bool:
        """Return whether the project's directory was replaced since the last call."""
        has_been_replaced, self._has_been_replaced = self._has_been_replaced, False
        return has_been_replaced
