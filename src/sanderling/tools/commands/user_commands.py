"""The user's own commands: run in the session's sandbox, shown as they write, and sent to the model with the next prompt."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from sanderling.errors import SandboxError
from sanderling.protocol.events import (
    AccessDenied,
    CommandEnded,
    CommandOutput,
    CommandsRunning,
    CommandStarted,
    Event,
)
from sanderling.protocol.messages import CommandEnding, CommandRecord
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.session.log import output_dir
from sanderling.session.records import LoggedCommand
from sanderling.session.session import Session
from sanderling.tools.commands.output import MAX_SCREEN_CHARS, OutputLog, ScreenText
from sanderling.tools.commands.running import run_to_end
from sanderling.tools.commands.shell import first_on_path

if TYPE_CHECKING:
    from sanderling.sandbox.execution_environment import RunningCommand

SHELL = ("/bin/sh", "-c")
LINGER_S = 0.25
"""How long processes left behind by a command may write; the sandbox leaves none behind."""

Offer = Callable[["UserCommand", Sequence[Denial]], Awaitable[Grant]]


async def _no_offer(_command: "UserCommand", _denials: Sequence[Denial]) -> Grant:
    return NO_GRANT


class UserCommands:
    """
    The user's commands in a session. They run in parallel, with each other and with the turn.

    `emit` gets the events; during a turn, `hold` delays command events, because they would split the model's answer. `start` starts a
    task that ends with the session, and `on_end` is called after each command. If a command did not find programs, `offer` asks the user
    to grant them; then it runs again. Each runs in the context `running`.
    """

    def __init__(
        self,
        session: Session,
        sandbox: SessionSandbox,
        emit: Callable[[Event], None],
        start: Callable[
            [Callable[["UserCommand"], Coroutine[Any, Any, None]], "UserCommand"], None
        ],
        *,
        on_end: Callable[[], None] = lambda: None,
        offer: Offer = _no_offer,
        running: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._session = session
        self._sandbox = sandbox
        self._emit = emit
        self._is_holding = False
        self._held: list[Event] = []
        self._start = start
        self._on_end = on_end
        self._offer = offer
        self._in_running = running
        self._running: list[UserCommand] = []

    def start(self, command_id: str, text: str, grant: Grant = NO_GRANT) -> None:
        path = output_dir(self._session.path) / f"{command_id}.log"
        command = UserCommand(command_id, text, OutputLog(path), grant)
        self._running.append(command)
        self._start(self._run, command)
        self._emit(CommandsRunning(len(self._running)))

    @property
    def are_running(self) -> bool:
        return bool(self._running)

    def command_with(self, mark: str) -> str:
        """Return the running command with this mark; empty if there is none."""
        return next((command.text for command in self._running if command.mark == mark), "")

    def stop_newest(self) -> bool:
        """Stop the most recently started command; return False if no command is running."""
        running = [command for command in self._running if not command.is_stopped]
        if running:
            running[-1].stop()
        return bool(running)

    def records(self) -> list[CommandRecord]:
        """Return records not yet sent to the model: of ended commands, and the progress of running ones."""
        running = [command.record(CommandEnding("running")) for command in self._running]
        return self._session.commands + running

    def hold(self) -> None:
        """Delay the output of commands until `show_held`."""
        self._is_holding = True

    def show_held(self) -> None:
        self._is_holding = False
        held, self._held = self._held, []
        for event in held:
            self._emit(event)

    def _show(self, event: Event) -> None:
        if self._is_holding:
            self._held.append(event)
        else:
            self._emit(event)

    async def _run(self, command: "UserCommand") -> None:
        self._show(CommandStarted(command.id, command.text))
        ending = CommandEnding("interrupted")
        try:
            async with self._sandbox.environment.lending(command.grant):
                with self._in_running():
                    ending = await command.run(self._sandbox, self._show)
        finally:
            command.log.close()
            self._running.remove(command)
            self._session.append(LoggedCommand(command.record(ending)))
        self._on_end()
        denials = self._sandbox.look_after(
            command.log.text(),
            has_failed=not ending.is_success,
            status=command.status,
            command=command.text,
        )
        for denial in denials:
            self._emit(AccessDenied(denial.operation, denial.target, denial.reason))
        notes = tuple(filter(None, (command.screen_note(), command.log.note())))
        self._show(CommandEnded(command.id, ending.shown, ending.is_success, notes))
        self._emit(CommandsRunning(len(self._running)))
        programs = [denial for denial in denials if denial.operation == "execute"]
        is_first_run = command.grant == NO_GRANT and not command.is_stopped
        if programs and is_first_run:
            grant = await self._offer(command, programs)
            if grant != NO_GRANT:
                self.start(f"{command.id}-again", command.text, grant)


class UserCommand:
    """A running command of the user."""

    def __init__(self, command_id: str, text: str, log: OutputLog, grant: Grant = NO_GRANT) -> None:
        self.grant = grant
        self.id = command_id
        self.text = text
        self.log = log
        self.is_stopped = False
        self.status: int | None = None
        self._screen = ScreenText()
        self._process: RunningCommand | None = None

    @property
    def mark(self) -> str:
        return self._process.mark if self._process else ""

    def stop(self) -> None:
        self.is_stopped = True
        if self._process:
            self._process.kill()

    def record(self, ending: CommandEnding) -> CommandRecord:
        return CommandRecord(self.text, self.log.text(), ending)

    def screen_note(self) -> str:
        limit = MAX_SCREEN_CHARS // 1024
        return f"Only the first {limit} KiB are shown here." if self._screen.is_full else ""

    async def run(self, sandbox: SessionSandbox, show: Callable[[Event], None]) -> CommandEnding:
        """Run the command to its end, showing its output."""
        began = time.monotonic()
        try:
            environment = sandbox.environment
            own = sandbox.first_on_path(environment)
            line = f"{first_on_path(own)}; {self.text}" if own else self.text
            self._process = await environment.spawn([*SHELL, line], grant=self.grant)
        except (SandboxError, OSError) as error:
            return CommandEnding("not_started", problem=str(error))
        if self.is_stopped:
            self._process.kill()
        try:
            status = self.status = await run_to_end(
                self._process,
                self._screen,
                self.log.add,
                lambda text: show(CommandOutput(self.id, text)),
                linger_s=LINGER_S,
            )
        except SandboxError as error:
            return CommandEnding("not_run", problem=str(error))
        how = "stopped" if self.is_stopped else "exited"
        return CommandEnding(how, status, round(time.monotonic() - began, 3))
