"""The guarded project: the paths that must stay unchanged, and the guard's pending events."""

import os
from typing import Literal

from sanderling.paths import is_in_any
from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.repositories import Survey
from sanderling.sandbox.guard.tree import Identity, identity, look, snapshot
from sanderling.sandbox.report import GuardEvent


class GuardedProject:
    """A project and the `roots` that are guarded with it. `kept` has the state to preserve, `bound` the paths that mounts or a profile protect."""

    def __init__(self, found: Survey, protection: GitProtection, *, restores: bool) -> None:
        held = protection.read_only
        self.path = found.project
        self._identity = identity(found.project)
        self.roots = (found.project, *protection.write)
        self.restores = restores
        self._events: list[GuardEvent] = []
        self.trees = protection.trees
        self.kept = snapshot(path for path in held if path not in self.trees)
        # A command that opened one of these before it was mounted again can still write to it, so they are compared by content.
        self.replaced: set[str] = set()
        self.bound: dict[str, Identity | None] = (
            {} if restores else {path: identity(path) for path in held}
        )
        # Below the root, a directory may disappear and return along with protected files. That is reported, not undone.
        self.below_root = {
            path
            for path in listed.held(found.named)
            if os.path.dirname(path) != found.project and self.shown(path) not in listed.AT_ROOT
        }

    def is_lost(self) -> bool:
        """
        Return whether the project's directory was replaced. Then the guard touches neither the new directory nor the moved one.

        Commands cannot do that, because the parent directory is not writable for them.
        """
        return identity(self.path) != self._identity

    def is_inside(self, path: str) -> bool:
        return is_in_any(path, self.roots)

    def is_as_it_was(self, path: str) -> bool:
        """Return whether `path` is still protected by the kernel, or its state is unchanged."""
        around = path
        while around not in self.bound and self.is_inside(around):
            around = os.path.dirname(around)
        if around in self.bound and around not in self.replaced:
            return identity(around) == self.bound[around]
        return path in self.kept and look(path) == self.kept[path]

    def tell(
        self,
        kind: Literal["quarantined", "restored", "replaced", "noticed", "warned", "failed"],
        path: str,
        reason: str,
        kept_at: str = "",
    ) -> None:
        self._events.append(GuardEvent(kind, self.shown(path), reason, kept_at))

    def take_events(self) -> list[GuardEvent]:
        events, self._events = self._events, []
        return events

    def shown(self, path: str) -> str:
        return path.removeprefix(f"{self.path}/")
