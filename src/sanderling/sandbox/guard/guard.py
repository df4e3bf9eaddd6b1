"""
The guard: what no mount can prevent is noticed and undone, from outside.

A mount protects what exists. Three things are left: a name that does not exist, yet or any more (`.envrc`), a new
repository whose own config or hooks run something, and, where there are no namespaces, every file of the project. For the first
there is a **tripwire**: inotify tells of the name, and within a millisecond it is renamed into the quarantine. For the second an
**audit** after commands: what git would run is compared with what it ran at the start. For the third the audit **restores**.

The guard works as the user, with all of the user's rights, in a tree that an attacker may change at the same moment. So it
*reads* by path, for a wrong answer then is repeated at the next audit, but *writes* only by descriptor: a rename or a file is
relative to a directory that was reached without following one link. Nothing in the tree makes these methods raise.
"""

import os

from sanderling.sandbox.guard.audit import Audit
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.protection import GitProtection
from sanderling.sandbox.guard.quarantine import Quarantine
from sanderling.sandbox.guard.repositories import Survey
from sanderling.sandbox.guard.restoring import Restorer
from sanderling.sandbox.guard.tripwire import Tripwire
from sanderling.sandbox.report import GuardEvent


class Guard:
    """
    Watch over one project from now on. `found` and `protection` describe it as it is and as the mounts hold it.

    `restores`: nothing is mounted; the guard puts back what changed.

    Raises:
        SandboxError: the kernel has no inotify watch to give.
    """

    def __init__(
        self, found: Survey, protection: GitProtection, quarantine_dir: str, *, restores: bool
    ) -> None:
        self._project = GuardedProject(found, protection, restores=restores)
        self._quarantine = Quarantine(self._project, quarantine_dir)
        self._restorer = Restorer(self._project, self._quarantine, protection.pin)
        self._audit = Audit(self._project, self._quarantine, self._restorer, found, protection)
        self._tripwire = Tripwire(self._project, self._quarantine, self._restorer, protection)

    def fileno(self) -> int:
        """The inotify descriptor: readable when `handle_events` has something to do."""
        return self._tripwire.fileno()

    def handle_events(self) -> list[GuardEvent]:
        self._tripwire.read_events()
        return self._project.take_events()

    def warnings(self) -> list[GuardEvent]:
        """Return what the user should know before a first command runs: what cannot be held, and git would run."""
        self._audit.warn()
        return self._project.take_events()

    def undoes(self, path: str) -> bool:
        """
        Say whether a change of `path`, which is real, would not last: of what is forbidden or held, of git's own, or of anything below.

        Whoever can be told beforehand need not see it taken away.
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
        Look at everything, after a command and before anything of the host is run again.

        Takes some 30 ms per 20 000 files, in which the tripwire still works. What could not be held is told, unless it `is_routine`:
        while a command runs, it may remove what it has made.
        """
        self._tripwire.read_events()
        if not self._project.is_lost():
            if self._project.restores:
                self._restorer.put_all_back()
            self._tripwire.check_all()
            self._audit.look(self._tripwire.read_events, is_routine=is_routine)
        return self._project.take_events()

    def close(self) -> list[GuardEvent]:
        """The last audit, when every process of the session is gone."""
        events = self.audit()
        for part in (self._tripwire, self._restorer, self._quarantine):
            part.close()
        return events
