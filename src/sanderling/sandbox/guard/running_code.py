"""Project code that git runs and that cannot be protected. The user is warned of it, and of its changes."""

import os
from glob import escape, iglob

from sanderling.sandbox import names as listed
from sanderling.sandbox.guard.project import GuardedProject
from sanderling.sandbox.guard.protection import GitProtection, Run

MAX_STAMPS = 20_000
MAX_REPORTED = 5
LOOK_FIRST = "check it before you use git"

Stamp = tuple[object, ...]


class RunningCode:
    """The `runs` of a protection, and the last state of the files that they depend on."""

    def __init__(self, project: GuardedProject, protection: GitProtection) -> None:
        self._project = project
        self._runs = protection.runs
        self._stamps = [self._stamped(run) for run in self._runs]

    def warn(self) -> None:
        for run in self._runs:
            for path in (*run.ruling, *self._trees(run)):
                reason = f"decides what “{run.setting}” runs, and commands can change it"
                self._project.tell("warned", path, f"{reason}: {LOOK_FIRST}")
            if run.is_unclear and not run.ruling:
                reason = f"makes git run “{run.setting}”, which may be code of this project"
                self._project.tell("warned", run.origin or ".git/config", f"{reason}: {LOOK_FIRST}")

    def report_changes(self) -> None:
        for number, run in enumerate(self._runs):
            before, now = self._stamps[number], self._stamped(run)
            self._stamps[number] = now
            changed = sorted(path for path in now if now[path] != before.get(path))
            for path in changed[:MAX_REPORTED]:
                others = (
                    f", as are {len(changed) - MAX_REPORTED} others"
                    if len(changed) > MAX_REPORTED
                    else ""
                )
                news = "was changed" if path in before else "is new"
                reason = f"{news}{others}, and “{run.setting}” may run it: {LOOK_FIRST}"
                self._project.tell("noticed", path, reason)

    def _stamped(self, run: Run) -> dict[str, Stamp]:
        stamps: dict[str, Stamp] = {}
        for place in (*run.ruling, *run.nearby, *self._trees(run)):
            directory, name = os.path.split(place)
            if name == "*.py":
                modules = iglob(f"{escape(directory)}/*.py")
                packages = iglob(f"{escape(directory)}/*/__init__.py")
                found = [each for path in (*modules, *packages) for each in listed.stamp(path)]
            else:
                found = listed.stamp(place, MAX_STAMPS)
            named = {str(each[0]): each for each in found}
            stamps |= {
                path: each for path, each in named.items() if not self._project.is_as_it_was(path)
            }
        return stamps

    def _trees(self, run: Run) -> tuple[str, ...]:
        """Return the packages that it loads if nothing is mounted. They are too many to be restored."""
        return run.trees if self._project.restores else ()
