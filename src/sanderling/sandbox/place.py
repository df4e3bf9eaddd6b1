"""The project's place: which directory it is, for another one may be put there while a session lives."""

import os
from collections.abc import Callable

from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.sandbox.report import ProjectReplaced

GONE = "The project's directory {project} is gone: nothing runs, is searched or changed until there is one again."

Directory = tuple[str, int, int]
"""The directory that a path leads to: the real path, device and inode."""


class ProjectPlace:
    """The place of `project`. That another directory stands there is told to `on_event`."""

    def __init__(self, project: str, on_event: Callable[[ProjectReplaced], None]) -> None:
        self._project = project
        self._on_event = on_event
        self._known: Directory | None = None
        self._has_been_replaced = False

    def now(self) -> Directory | None:
        """Return which directory is there; None if there is none."""
        try:
            status = os.stat(f"{self._project}/")
        except OSError:
            return None
        return real_path(self._project), status.st_dev, status.st_ino

    def require(self) -> Directory:
        """
        Return which directory is there.

        Raises:
            SandboxError: there is none.
        """
        if place := self.now():
            return place
        raise SandboxError(GONE.format(project=self._project))

    def note(self, place: Directory) -> None:
        """Remember `place`, and tell if it is another one than before."""
        known, self._known = self._known or place, place
        if known != place:
            self._has_been_replaced = True
            self._on_event(ProjectReplaced(self._project))

    def take_replaced(self) -> bool:
        """Say whether the project's directory was replaced since this was asked last."""
        has_been_replaced, self._has_been_replaced = self._has_been_replaced, False
        return has_been_replaced
