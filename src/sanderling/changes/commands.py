"""
Changes that commands make, and tools from outside: the project is looked at before each and after it, and what differs is its work.

Whoever else changes files while a command runs cannot be told from it by looking. What is known of the person counts for them: what
they save in the editor meanwhile, and what changes while a command of theirs runs, is recorded as doubtful at most, and so is all
that changes while only jobs run in the background. Another program of theirs that writes just then is taken for the command.
"""

import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio

from sanderling.changes.journal import Journal
from sanderling.changes.records import Changed, Changing, CommandBegun, CommandEnded
from sanderling.changes.scan import CannotLookError, Difference
from sanderling.changes.states import FileChange
from sanderling.errors import SandboxError
from sanderling.sandbox.ground import Ground
from sanderling.text import printable

UNCOVERED = "What commands change in this project cannot be undone, because {reason}. What the edit tools change can be."
MISSED = "What the last command has changed cannot be undone, because {reason}."
NOT_RESTORABLE = "{paths} cannot be brought back to what {it} held: {why}."
MAX_NAMED = 3
QUICK_S = 0.2
MAX_CHANGES = 100_000
"""The changes of one command that are noted: 30 MB in the journal."""
SAVED = "you have saved it meanwhile"
YOURS = "a command of yours ran at the same time"
JOB = "a job ran in the background, and nobody knows who has changed it"


class CommandChanges:
    """
    The changes that commands make in a project, for its `journal`.

    `is_job_running` says whether one goes on in the background. `tell` is told what cannot be undone, in a sentence.
    """

    def __init__(
        self, journal: Journal, is_job_running: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        self._journal = journal
        self._is_job_running = is_job_running
        self._tell = tell
        self._looking = anyio.Lock()
        self._in_front: list[str] = []
        self._are_edits = False
        self._job_use = ""
        self._had_job = False
        self._persons = 0
        self._had_persons = False
        self._saved: set[str] = set()
        self._refused = ""
        self._is_refusal_told = False
        self.is_quick = True

    async def look_ahead(self, ground: Ground) -> None:
        """Look ahead of the first command: the first look takes longest. Afterwards `is_quick` says whether it took little time."""
        async with self._looking:
            if self._in_front:
                return  # too late: the look after a guest's tool use must find what that has changed
            began = time.monotonic()
            try:
                await self._look(ground)  # what it is refused is told with the first command
            finally:
                self.is_quick = time.monotonic() - began < QUICK_S

    @asynccontextmanager
    async def during(
        self, ground: Ground, tool_use_id: str, *, are_edits: bool = False
    ) -> AsyncGenerator[None]:
        """Record what changes in this context as the work of a tool use; if they `are_edits`, as those of a file tool, to be reviewed."""
        async with self._looking:  # who looks next must know that it has begun
            await self._look(ground)
            await self._journal.append(CommandBegun(tool_use_id), is_durable=False)
            self._in_front.append(tool_use_id)
            self._are_edits = are_edits
        self._tell_refusal()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._looking:
                    await self._look(ground)
                    await self._journal.append(CommandEnded(tool_use_id), is_durable=False)
                    self._in_front.remove(tool_use_id)
                    self._are_edits = False
                    if self._is_job_running():
                        self._job_use = tool_use_id
                self._tell_refusal()

    @contextmanager
    def of_person(self) -> Generator[None]:
        """Let what changes in this context be the person's as well."""
        self._persons += 1
        self._had_persons = True
        try:
            yield
        finally:
            self._persons -= 1

    def saved(self, path: str) -> None:
        """Take note that the person has just saved the file `path`, its links followed."""
        self._saved.add(path)

    async def look_at_jobs(self, ground: Ground) -> None:
        """Record what jobs in the background have changed up to now."""
        if self._had_job:
            await self.look(ground)

    async def look(self, ground: Ground, *, is_of_command: bool = False) -> list[FileChange]:
        """Record what has changed since this was called last, if the agent may have done it, and return that; a command's is not to be reviewed."""
        async with self._looking:
            changes = await self._look(ground, is_of_command=is_of_command)
        self._tell_refusal()
        return changes

    async def _look(self, ground: Ground, *, is_of_command: bool = False) -> list[FileChange]:
        """Do what `look` says; the caller holds `_looking`."""
        if self._refused:
            return []
        in_front = self._in_front[0] if self._in_front else ""
        has_job = self._had_job
        is_agents = bool(in_front) or has_job
        found: list[Difference] = []
        try:
            with anyio.CancelScope(shield=is_agents):  # what was found is told only once
                found = await self._journal.scan.look(ground, is_whole=is_agents)
        except (CannotLookError, SandboxError) as error:
            self._refuse(error, is_missed=bool(in_front))
            return []
        finally:
            doubt = YOURS if self._had_persons else "" if in_front else JOB
            saved, self._saved = self._saved, set()
            self._had_persons = self._persons > 0
            self._had_job = self._is_job_running()
        if len(found) > MAX_CHANGES:
            self._tell(MISSED.format(reason=f"it has changed more than {MAX_CHANGES:,} files"))
            return []
        use = in_front or self._job_use
        changes = [
            FileChange(
                each.path,
                each.before,
                each.after,
                use,
                SAVED if each.path in saved else doubt or each.doubt,
                before_twin=each.before_twin,
                after_twin=each.after_twin,
            )
            for each in found
        ]
        if changes:
            with anyio.CancelScope(shield=True):
                announced = map(Changing, changes if self._are_edits and not is_of_command else ())
                await self._journal.append(*announced, *map(Changed, changes))
            self._tell_lost(changes)
        return changes

    def _tell_refusal(self) -> None:
        """Say once why what commands change is not recorded."""
        if self._refused and not self._is_refusal_told:
            self._is_refusal_told = True
            self._tell(UNCOVERED.format(reason=self._refused))

    def _refuse(self, error: CannotLookError | SandboxError, *, is_missed: bool) -> None:
        reason = str(error).rstrip(".")
        if isinstance(error, CannotLookError) and error.is_for_good:
            self._refused = reason
        elif is_missed:
            self._tell(MISSED.format(reason=reason))

    def _tell_lost(self, changes: list[FileChange]) -> None:
        """Say at once what of it cannot be brought back."""
        by_reason: dict[str, list[str]] = {}
        for change in changes:
            if why := change.before.lost:
                by_reason.setdefault(why, []).append(printable(change.path))
        for why, paths in by_reason.items():
            more = len(paths) - MAX_NAMED
            named = ", ".join(paths[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
            it = "it" if len(paths) == 1 else "they"
            self._tell(NOT_RESTORABLE.format(paths=named, it=it, why=why))
