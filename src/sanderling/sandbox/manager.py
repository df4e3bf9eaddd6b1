"""
Keeps the sandbox of a session open while it is needed, and opens it again after a failure.

An open sandbox has processes and guards the project as it was found. So it comes to **rest** when it has not been used for some minutes,
or at once after a turn that did not use it: its processes end, and the next use opens it again. Files that commands left on disk, in the
private HOME and /tmp, are still there then. It does not rest while a command runs, or has left data only in memory. Nor does it rest with
granted paths: they are resolved when it opens, and commands may have replaced their targets since.

A sandbox is bound to the directory that was the project when it opened. If that is replaced (`mv`, a new clone), the sandbox is closed
with everything that runs in it, and opened again for the new directory. The same happens when its private HOME or /tmp, which are
ordinary files of the user, are removed, because commands would find no place to write to.
"""

import math
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from sanderling.errors import NoRoomError, SandboxError
from sanderling.protocol.modes import Level
from sanderling.sandbox.effective_policy import EffectivePolicy
from sanderling.sandbox.file_workers import FileWorkers
from sanderling.sandbox.kernel.layout import remove_temporary_directories
from sanderling.sandbox.policy import NO_GRANT
from sanderling.sandbox.project_location import Directory, ProjectLocation
from sanderling.sandbox.report import GuardEvent
from sanderling.sandbox.sandbox import Sandbox, SandboxEvent, check_level

if TYPE_CHECKING:
    from sanderling.sandbox.report import LayerReport

T = TypeVar("T")

REST_AFTER_S = 300.0
CLOSE_S = 5.0  # for an idle sandbox to close, when another one needs its room
OVER = "The session is over."
REMOVE_S = 5.0  # leftovers are removed by the project's next session


_with_processes: dict["SandboxManager", None] = {}
"""The keepers of this process whose sandbox has processes. They share its descriptors, and the user's inotify instances."""


class SandboxManager:
    """
    Keeps a sandbox open, with the access that `effective_policy` allows, as long as it is needed.

    `serve` must run as long as the session lives. `on_change` is called when `level` or `problem` changed.
    """

    rest_after_s = REST_AFTER_S

    def __init__(
        self,
        effective_policy: EffectivePolicy,
        location: ProjectLocation,
        on_event: Callable[[SandboxEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.problem = ""
        self.report: LayerReport | None = None
        self.workers = FileWorkers()
        self._effective_policy = effective_policy
        self._location = location
        self._on_event = on_event
        self._warnings = set[SandboxEvent]()
        self._on_change = on_change
        self._opened_at: Directory | None = None  # where the project was when the sandbox opened
        self._is_wanted = anyio.Event()
        self._is_decided = anyio.Event()
        self._is_over = False
        self._is_kept_open = False
        self._private: object = None  # the state of the private directories when it opened
        self._needed_at = -math.inf  # the last use since it opened
        self._patience: anyio.CancelScope | None = None  # until it may rest
        self._has_no_room = False
        self._is_closing = False
        self._closed = anyio.Event()  # set when all processes of a sandbox have ended

    @property
    def sandbox(self) -> Sandbox | None:
        return self._effective_policy.sandbox

    @property
    def level(self) -> Level | None:
        return self._effective_policy.policy.level or (self.report.level if self.report else None)

    async def find_level(self) -> None:
        """Probe what the kernel can enforce, to show it before a sandbox is opened."""
        try:
            if not self._effective_policy.policy.is_outer:
                self.report = await Sandbox.probe()
                check_level(self._effective_policy.policy, self.report)
        except SandboxError as error:
            self.problem = str(error)
        self._on_change()

    @property
    def _usable_report(self) -> "LayerReport | None":
        """The report. After level none it is probed again: on macOS, a later self-test may have succeeded."""
        return self.report if self.report and self.report.level != "none" else None

    async def serve(self) -> None:
        """Open the sandbox whenever it is requested, until it can rest."""
        try:
            while True:
                await self._is_wanted.wait()
                is_decided = self._is_decided
                try:
                    await self._hold_open(is_decided)
                finally:
                    is_decided.set()
        finally:
            # Wake callers that still wait and cannot be cancelled.
            self._is_over = True
            self._is_decided.set()
            # It is still there if the sandbox rests or has rested.
            if tmp_dir := self._effective_policy.policy.tmp_dir:
                with anyio.move_on_after(REMOVE_S, shield=True):
                    await to_thread.run_sync(
                        remove_temporary_directories, tmp_dir, abandon_on_cancel=True
                    )

    async def _hold_open(self, is_decided: anyio.Event) -> None:
        is_wanted = self._is_wanted  # the next one may already be requested when this one ends
        self._opened_at = self._location.now()
        self._has_no_room, self._closed = False, anyio.Event()
        _with_processes[self] = None
        try:
            async with Sandbox.open(
                self._effective_policy.in_force, self._pass_on, self._usable_report
            ) as sandbox:
                self._effective_policy.policy = self._effective_policy.policy._replace(
                    tmp_dir=sandbox.policy.tmp_dir
                )
                self._effective_policy.sandbox, self.problem = sandbox, ""
                self._private = _private_directories(sandbox)
                if self.report != sandbox.report:
                    self.report = sandbox.report
                    self._on_change()
                try:
                    await self._catch_up(sandbox)
                    is_decided.set()
                    await self._until_it_can_rest(sandbox)
                finally:
                    self._is_closing = True
                    if self.sandbox is sandbox:  # else it was left
                        self._let_go()
                if sandbox.has_ended.is_set():  # a failure
                    self._on_change()
                else:
                    await sandbox.rest()
        except SandboxError as error:
            self.problem = str(error)
            self._has_no_room = isinstance(error, NoRoomError)
        finally:
            del _with_processes[self]
            self._is_closing = False
            self._closed.set()
        if self._is_wanted is is_wanted:
            self._let_go()

    def _pass_on(self, event: SandboxEvent) -> None:
        """Forward an event. Warnings, which are repeated whenever the sandbox opens, are forwarded once per session."""
        if isinstance(event, GuardEvent) and event.kind == "warned":
            if event in self._warnings:
                return
            self._warnings.add(event)
        self._on_event(event)

    async def _catch_up(self, sandbox: Sandbox) -> None:
        """Apply changes made while it was opening, before anything is started in it."""
        sandbox.policy = sandbox.policy._replace(mode=self._effective_policy.policy.mode)
        await self._effective_policy.renew_network()

    async def _until_it_can_rest(self, sandbox: Sandbox) -> None:
        """Return when it has ended or was left, or has not been used for a while and nothing would be lost."""
        while self.sandbox is sandbox and not sandbox.has_ended.is_set():
            with anyio.CancelScope(deadline=self._rest_at) as self._patience:
                await sandbox.has_ended.wait()
            if self.sandbox is not sandbox or self._rest_at > anyio.current_time():
                continue
            policy = self._effective_policy.policy
            has_paths = policy.read_paths or policy.write_paths
            if has_paths or sandbox.runs_commands or await sandbox.holds_memory():
                self._need()
            elif self._rest_at <= anyio.current_time():
                return

    @property
    def _rest_at(self) -> float:
        return math.inf if self._is_kept_open else self._needed_at + self.rest_after_s

    def _need(self) -> None:
        self._needed_at = anyio.current_time()

    def _let_go(self) -> None:
        """Detach the sandbox: the next use opens a new one."""
        self._effective_policy.sandbox, self._is_wanted = None, anyio.Event()
        self._needed_at = -math.inf
        self.workers.close()

    @contextmanager
    def kept_open(self) -> Generator[None]:
        """Keep it open in this context, once it is open. Afterwards it rests at once if it was not used."""
        self._is_kept_open = True
        try:
            yield
        finally:
            self._is_kept_open = False
            if self._patience:
                self._patience.deadline = self._rest_at

    async def get_ready(self) -> None:
        """Open it ahead of its use if possible. Errors are reported at the first use."""
        await self._decided()
        if self.sandbox:
            with suppress(SandboxError):
                await self.workers.of(self.sandbox, NO_GRANT)

    async def _decided(self) -> None:
        """Return when it is open, or opening failed."""
        if self._is_over:
            return
        if self.sandbox is None and not self._is_wanted.is_set():
            self._is_decided = anyio.Event()
            self._is_wanted.set()
        await self._is_decided.wait()

    async def opened(self, *, is_ahead: bool = False) -> Sandbox:
        """
        Return the open sandbox. With `is_ahead`, when it is not needed yet, this does not keep it from resting.

        Raises:
            SandboxError: it cannot be opened, or the project is gone.
        """
        while True:
            self.look_at_project()
            if self.sandbox and _private_directories(self.sandbox) != self._private:
                self._leave()
            if self.sandbox is None:
                self._effective_policy.revoke_changed()  # or it would not open
            if not is_ahead:
                self._need()
            if self.sandbox and self._is_decided.is_set():
                return self.sandbox
            await self._decided()
            if self.sandbox is None:
                if self._has_no_room and not is_ahead and await self._make_room():
                    continue
                self._on_change()
                raise SandboxError(OVER if self._is_over else self.problem)

    async def using(
        self, action: Callable[[Sandbox], Awaitable[T]], *, is_ahead: bool = False
    ) -> T:
        """
        Return what `action` returns for the open sandbox. If it lacks room, idle sandboxes of other sessions close first.

        Raises:
            SandboxError: the sandbox cannot be opened, or `action` raises it.
        """
        while True:
            sandbox = await self.opened(is_ahead=is_ahead)
            try:
                return await action(sandbox)
            except NoRoomError:
                if is_ahead or not await self._make_room():
                    raise

    async def _make_room(self) -> bool:
        """
        Wait until a sandbox of another session has closed: a closing one, else the one idle longest.

        Return False if no session has one to close.
        """
        others = [manager for manager in _with_processes if manager is not self]
        closing = [manager for manager in others if manager._is_closing]  # noqa: SLF001 - of this class
        idle = [manager for manager in others if manager.is_idle]
        idle.sort(key=lambda each: each._needed_at)  # noqa: SLF001
        for manager in (*closing, *idle):
            manager.rest_soon()
            with anyio.move_on_after(CLOSE_S):
                await manager._closed.wait()  # noqa: SLF001
                return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether a sandbox is open in which nothing runs and no turn is in progress."""
        if self.sandbox is None or self._patience is None:
            return False
        return not self._is_kept_open and not self.sandbox.runs_commands

    def look_at_project(self) -> None:
        """
        Leave a sandbox whose directory is no longer the project.

        Raises:
            SandboxError: the project is gone.
        """
        location = self._location.require()
        if self.sandbox and location != self._opened_at:
            self._leave()
        self._location.note(location)

    def _leave(self) -> None:
        """Close the sandbox with everything in it. The next use waits for that and opens a new one."""
        self._let_go()
        if self._patience:
            self._patience.cancel()

    def rest_soon(self) -> None:
        """Let it rest as soon as nothing in it would be lost."""
        if self._patience:
            self._needed_at = -math.inf
            self._patience.deadline = self._rest_at


def _private_directories(sandbox: Sandbox) -> object:
    """Return the identity of the private HOME and /tmp, or None if one is missing."""
    policy = sandbox.policy
    try:
        found = [os.stat(path) for path in (f"{policy.state_dir}/home", policy.tmp_dir)]
    except OSError:
        return None
    return [(status.st_dev, status.st_ino) for status in found]
