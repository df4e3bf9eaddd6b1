"""
Changes by commands and third-party tools: the project is scanned before and after each, and the difference is its work.

A scan cannot tell who changed a file while a command ran. Known actions of the user are respected: files that they save in the editor
meanwhile, and changes during their own commands, are recorded as doubtful at most, as are all changes while only background jobs run.
Another program that writes just then is mistaken for the command.
"""

import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
from msgspec.structs import replace

from sanderling.changes.journal import Journal
from sanderling.changes.records import Changed, Changing, CommandBegun, CommandEnded
from sanderling.changes.scan import ScanError
from sanderling.changes.states import FileChange
from sanderling.errors import SandboxError
from sanderling.sandbox.execution_environment import ExecutionEnvironment
from sanderling.text import printable

UNCOVERED = "Changes by commands in this project cannot be undone, because {reason}. Changes by the edit tools can be."
MISSED = "The last command's changes cannot be undone, because {reason}."
NOT_RESTORABLE = "{paths} cannot be restored: {why}."
MAX_NAMED = 3
QUICK_S = 0.2
MAX_CHANGES = 100_000
"""More changes by one command are not recorded; these are 30 MB in the journal."""
SAVED = "you saved it meanwhile"
YOURS = "a command of yours ran at the same time"
JOB = "a background job was running, so it is unknown who changed it"


class CommandChanges:
    """
    Records the changes of commands in the `journal`.

    `is_job_running` is about background jobs. `tell` gets each problem as a sentence for the user.
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
        self._made: dict[str, list[FileChange]] = {}  # by commands in front
        self._persons = 0
        self._had_persons = False
        self._saved: set[str] = set()
        self._refused = ""
        self._is_refusal_reported = False
        self.is_quick = True

    async def look_ahead(self, environment: ExecutionEnvironment) -> None:
        """Scan before the first command, because the first scan takes longest; then `is_quick` tells whether it was fast."""
        async with self._looking:
            if self._in_front:
                return  # too late: the scan after an external agent's tool call must find its changes
            began = time.monotonic()
            try:
                await self._look(environment)  # a problem is reported with the first command
            finally:
                self.is_quick = time.monotonic() - began < QUICK_S

    @asynccontextmanager
    async def during(
        self, environment: ExecutionEnvironment, tool_use_id: str, *, are_edits: bool = False
    ) -> AsyncGenerator[list[FileChange]]:
        """
        Record changes in this context as a tool call's; if they `are_edits`, they are to be reviewed like a file tool's.

        The list has them after the context, without those that may be somebody else's.
        """
        async with self._looking:  # the next scan must know that this call has begun
            await self._look(environment)
            await self._journal.append(CommandBegun(tool_use_id), is_durable=False)
            self._in_front.append(tool_use_id)
            made = self._made[tool_use_id] = []
            self._are_edits = are_edits
        self._report_refusal()
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                async with self._looking:
                    await self._look(environment)
                    await self._journal.append(CommandEnded(tool_use_id), is_durable=False)
                    self._in_front.remove(tool_use_id)
                    self._made.pop(tool_use_id, None)
                    self._are_edits = False
                    if self._is_job_running():
                        self._job_use = tool_use_id
                self._report_refusal()

    @contextmanager
    def of_person(self) -> Generator[None]:
        """Count changes in this context as possibly the user's."""
        self._persons += 1
        self._had_persons = True
        try:
            yield
        finally:
            self._persons -= 1

    def saved(self, path: str) -> None:
        self._saved.add(path)

    async def look_at_jobs(self, environment: ExecutionEnvironment) -> None:
        """Record the changes of background jobs up to now."""
        if self._had_job:
            await self.look(environment)

    async def look(
        self, environment: ExecutionEnvironment, *, is_of_command: bool = False
    ) -> list[FileChange]:
        """Record and return the agent's changes since the last call. With `is_of_command`, they need no review."""
        async with self._looking:
            changes = await self._look(environment, is_of_command=is_of_command)
        self._report_refusal()
        return changes

    async def _look(
        self, environment: ExecutionEnvironment, *, is_of_command: bool = False
    ) -> list[FileChange]:
        """Do the work of `look`; the caller holds `_looking`."""
        if self._refused:
            return []
        in_front = self._in_front[0] if self._in_front else ""
        has_job = self._had_job
        is_agents = bool(in_front) or has_job
        found: list[FileChange] = []
        try:
            with anyio.CancelScope(shield=is_agents):  # the scan reports each change only once
                found = await self._journal.scan.look(environment, is_whole=is_agents)
        except (ScanError, SandboxError) as error:
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
            replace(
                each,
                tool_use_id=use,
                doubt=SAVED if each.path in saved else doubt or each.doubt,
            )
            for each in found
        ]
        self._made.get(in_front, []).extend(each for each in changes if not each.doubt)
        if changes:
            with anyio.CancelScope(shield=True):
                announced = map(Changing, changes if self._are_edits and not is_of_command else ())
                await self._journal.append(*announced, *map(Changed, changes))
            self._report_lost(changes)
        return changes

    def _report_refusal(self) -> None:
        if self._refused and not self._is_refusal_reported:
            self._is_refusal_reported = True
            self._tell(UNCOVERED.format(reason=self._refused))

    def _refuse(self, error: ScanError | SandboxError, *, is_missed: bool) -> None:
        reason = str(error).rstrip(".")
        if isinstance(error, ScanError) and error.is_for_good:
            self._refused = reason
        elif is_missed:
            self._tell(MISSED.format(reason=reason))

    def _report_lost(self, changes: list[FileChange]) -> None:
        by_reason: dict[str, list[str]] = {}
        for change in changes:
            if why := change.before.lost:
                by_reason.setdefault(why, []).append(printable(change.path))
        for why, paths in by_reason.items():
            more = len(paths) - MAX_NAMED
            named = ", ".join(paths[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
            self._tell(NOT_RESTORABLE.format(paths=named, why=why))
