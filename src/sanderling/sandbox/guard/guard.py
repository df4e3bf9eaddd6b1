"""
The guard notices and undoes, from outside, what mounts cannot prevent.

Mounts protect existing files. Three cases remain: names that do not exist, or no longer exist (`.envrc`); new repositories whose config
or hooks run something, even when the user calls `git status` in the repository around them; and, without namespaces, every file of the
project. For the first, a **tripwire** uses inotify and moves a forbidden name to the quarantine within a millisecond. For the second, an
**audit** after commands compares what git would run with the state at the start. For the third, the audit **restores** protected files.

The guard runs with all rights of the user, in a tree that an attacker may change at the same moment. So it *reads* by path, because the
next audit corrects a wrong answer, but *writes* only through descriptors of directories that were reached without following a link.
Nothing in the tree can make these methods raise.
"""

import os

from sanderling.sandbox.guard.audit import Audit
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.quarantine import Quarantine
from sanderling.sandbox.guard.repositories import Survey
from sanderling.sandbox.guard.restoring import ProjectRestorer
from sanderling.sandbox.guard.tripwire import PolledTripwire, Tripwire
from sanderling.sandbox.report import GuardEvent


class Guard:
    """
    Guards one project, which `found` and `protection` describe as it is when the sandbox opens.

    With `restores`, the kernel does not protect single files, and the guard restores changed ones. If it `is_polled`, a profile protects them,
    and the caller must call `handle_events` often, because no descriptor reports changes.

    Raises:
        SandboxError: no inotify watch is left.
    """

    def __init__(
        self,
        found: Survey,
        protection: GitProtection,
        quarantine_dir: str,
        *,
        restores: bool,
        is_polled: bool = False,
    ) -> None:
        self._project = GuardedProject(found, protection, restores=restores)
        self._quarantine = Quarantine(self._project, quarantine_dir)
        self._restorer = ProjectRestorer(self._project, self._quarantine, protection.pin)
        self._audit = Audit(self._project, self._quarantine, self._restorer, found, protection)
        tripwire = PolledTripwire if is_polled else Tripwire
        self._tripwire = tripwire(self._project, self._quarantine, self._restorer, protection)

    def fileno(self) -> int:
        """The inotify descriptor. It is readable when `handle_events` has work. It is negative if the guard is polled."""
        return self._tripwire.fileno()

    def handle_events(self) -> list[GuardEvent]:
        self._tripwire.read_events()
        return self._project.take_events()

    def warnings(self) -> list[GuardEvent]:
        """Return what the user should know before the first command: code that git would run and that cannot be protected."""
        self._audit.warn()
        return self._project.take_events()

    def undoes(self, path: str) -> bool:
        """
        Return whether the guard would undo a change of the real path `path`: of a forbidden or protected name, `.git`, or anything below.

        Callers use it to refuse a change in advance.
        """
        if self._project.is_inside(path) and os.path.basename(path) == ".git":
            return True
        while self._project.is_inside(path) and path not in self._project.roots:
            if self._tripwire.is_kept_from(path):
                return True
            path = os.path.dirname(path)
        return False

    def audit(self, *, is_routine: bool = False) -> list[GuardEvent]:
        """
        Check everything, after a command and before the host runs programs in the project.

        Takes about 30 ms per 20,000 files, during which the tripwire works. A routine audit, during a command, does not report changes of
        unprotected files, because the command may still remove them.
        """
        self._tripwire.read_events()
        if not self._project.is_lost():
            if self._project.restores:
                self._restorer.put_all_back()
            self._tripwire.check_all()
            self._audit.look(self._tripwire.read_events, is_routine=is_routine)
        return self._project.take_events()

    def close(self) -> list[GuardEvent]:
        """Run the last audit, after all processes of the session have ended."""
        events = self.audit()
        for part in (self._tripwire, self._restorer, self._quarantine):
            part.close()
        return events
