"""The model's commands while they run, in the foreground or background."""

import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from sanderling.errors import SandboxError, ToolError
from sanderling.protocol.remedies import remedies
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial, Rule
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.text import counted, printable, signal_name
from sanderling.tools.commands import shell_report
from sanderling.tools.commands.output import MAX_SCREEN_CHARS, QUIET_S, OutputLog, ScreenText
from sanderling.tools.commands.pipes import failed_parts, last_pipe
from sanderling.tools.commands.running import read_to_end, run_to_end
from sanderling.tools.commands.shell import Shell, ShellState, Started, in_one_line

if TYPE_CHECKING:
    from sanderling.sandbox.terminals import CommandTerminal
    from sanderling.tools.commands.terminal import Terminal

MAX_RUNNING = 32
MAX_ENDED = 32
MAX_INTERRUPTED = 16
MAX_DENIALS = 20
MAX_LOG_BYTES = 64_000_000
MAX_LOGS_BYTES = 256_000_000
DRAIN_S = 0.1  # how long processes outside the shell's group may hold the pipe open
STOP_STEPS = ((signal.SIGINT, 0.08), (signal.SIGTERM, 0.08))
SHOWN_DENIALS = 5
SHOWN_TARGET_CHARS = 200
EXIT_SIGNALLED = 128
UNCLEAR = "to this command or to another one that ran at the same time"


class Job:
    """
    A command of the model.

    `id` is empty while it runs in the foreground, for the call `tool_use_id`. `outcome` says how it ended, and is empty while it runs. `log`
    is all of its output; with a `terminal`, the text that has left the screen.
    """

    def __init__(
        self,
        command: str,
        started: Started,
        log: OutputLog,
        show: Callable[[str], None],
        tool_use_id: str = "",
    ) -> None:
        self.id = ""
        self.tool_use_id = tool_use_id
        self.command = command
        self.started = started
        self.log = log
        self.ended = anyio.Event()
        self.status: int | None = None
        self.has_failed_in_pipe = False
        self.outcome = ""
        self.is_told = False  # its end was in the result of a call
        self.is_announced = False  # its end was in a note
        self.denials: dict[Denial, None] = {}
        self.unclear: dict[Denial, None] = {}  # refused to this command or to another one
        self._began = time.monotonic()
        self._took_s = 0.0
        self._show: Callable[[str], None] | None = show
        self._screen = ScreenText()
        self._news = anyio.Event()
        device = started.process.terminal
        self.terminal = _terminal(device, command, self._add_text) if device else None

    @property
    def is_running(self) -> bool:
        return not self.ended.is_set()

    @property
    def took_s(self) -> float:
        return self._took_s or time.monotonic() - self._began

    @property
    def has_failed(self) -> bool:
        return self.status != 0 or self.has_failed_in_pipe

    @property
    def has_left_processes(self) -> bool:
        return self.started.process.has_left_processes

    async def run(self) -> None:
        """Read the output until the command ends; if cancelled, kill all its processes."""
        outcome = "ended with the session"
        try:
            process = self.started.process
            if terminal := self.terminal:
                self.status = await read_to_end(
                    process, terminal.follow, linger_s=DRAIN_S, on_end=terminal.end_input
                )
            else:
                self.status = await run_to_end(
                    process, self._screen, self._add, self._draw, linger_s=DRAIN_S
                )
            outcome = _in_words(self.status)
        except SandboxError as error:
            outcome = f"not run: {printable(str(error))}".rstrip(".")
        finally:
            if self.terminal:
                self.terminal.finish()
            self.outcome = outcome
            self._took_s = time.monotonic() - self._began

    async def stop(self) -> None:
        """Interrupt, terminate, then kill it: all within a third of a second."""
        process = self.started.process
        for number, patience_s in STOP_STEPS:
            process.send_signal(number)
            with anyio.move_on_after(patience_s):
                await self.ended.wait()
                return
        process.kill()
        await self.ended.wait()

    def detach(self) -> None:
        self._show = None
        self.log.spill()

    def deny(self, denial: Denial) -> None:
        denial = denial._replace(by="")
        self.unclear.pop(denial, None)
        if len(self.denials) < MAX_DENIALS:
            self.denials[denial] = None

    def may_be_denied(self, denial: Denial) -> None:
        if denial not in self.denials and len(self.unclear) < MAX_DENIALS:
            self.unclear[denial] = None

    async def wait_for_news(self, wait_s: float) -> None:
        """Wait for new output, or the end."""
        with anyio.move_on_after(wait_s):
            while self.is_running and not self.log.has_news:
                await self._next_bytes()
            if self.is_running:
                with anyio.move_on_after(QUIET_S):  # read output that belongs together in one go
                    await self.ended.wait()

    async def wait_for_bytes(self, offset: int) -> None:
        """Wait until more than `offset` bytes were written in total, or the end; `log.read` returns them."""
        while self.is_running and self.log.total_bytes <= offset:
            await self._next_bytes()

    async def _next_bytes(self) -> None:
        if self._news.is_set():
            self._news = anyio.Event()
        await self._news.wait()

    def end(self) -> None:
        self.ended.set()
        self._news.set()

    def _add(self, chunk: bytes) -> None:
        self.log.add(chunk)
        self._news.set()

    def _add_text(self, text: str) -> None:
        self._add(text.encode(errors="replace"))

    def _draw(self, text: str) -> None:
        if not self._show:
            return
        self._show(text)
        if self._screen.is_full:
            self._show(f"\n[Only the first {MAX_SCREEN_CHARS // 1024} KiB are shown here.]\n")
            self._show = None


class Jobs:
    """
    The commands of a session's model.

    `start` starts a task that ends with the session. `on_change` is called when a job begins, ends, or is dropped; `on_denied` with
    accesses refused to background jobs, whose results are not awaited. `is_unfinished` judges whether a shell waits for more of a line.
    """

    def __init__(
        self,
        shell: Shell,
        sandbox: SessionSandbox,
        start: Callable[[Callable[[Job], Coroutine[Any, Any, None]], Job], None],
        on_change: Callable[[], None] = lambda: None,
        on_denied: Callable[[Denial], None] = lambda _: None,
        *,
        is_unfinished: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._shell = shell
        self._sandbox = sandbox
        self._start = start
        self._on_change = on_change
        self._on_denied = on_denied
        self._is_unfinished = is_unfinished
        self._running: list[Job] = []  # in the foreground, too
        self._jobs: dict[str, Job] = {}
        self._count = 0
        self._interrupted: dict[str, str] = {}
        self._logs: deque[OutputLog] = deque()

    @staticmethod
    def get_ready() -> None:
        """Compile the output and report parsers before the first command. Blocks."""
        ScreenText().feed(b"one\ntwo\n")
        shell_report.get_ready()

    def all(self) -> tuple[Job, ...]:
        """Return running and recently ended jobs, in the order in which they went to the background."""
        return tuple(self._jobs.values())

    def take_ended(self) -> list[Job]:
        """Return the jobs whose end the model does not know. It counts as known from now on."""
        ended = [job for job in self._jobs.values() if not job.is_running]
        news = [job for job in ended if not (job.is_told or job.is_announced)]
        for job in news:
            job.is_announced = True
        return news

    def find(self, job_id: str) -> Job:
        """
        Return the job with this id.

        Raises:
            ToolError: it does not exist.
        """
        if job := self._jobs.get(job_id):
            return job
        known = ", ".join(self._jobs) or "none, as each ends with the agent process"
        raise ToolError(f"There is no job '{printable(job_id)}'. Jobs: {known}.")

    def find_terminal(self, job_id: str) -> "Terminal":
        """
        Return the terminal of the job with this id, which runs.

        Raises:
            ToolError: it does not exist, has ended, or has no terminal.
        """
        job = self.find(job_id)
        if not job.is_running:
            raise ToolError(f"{job.id} has ended: {job.outcome}.")
        if not job.terminal:
            raise ToolError(f"{job.id} has no terminal. Start it with bash, pty=true.")
        return job.terminal

    def find_shown(self, shown_id: str) -> Job:
        """
        Return the job with this id, or the running command of the call with this id.

        Raises:
            ToolError: it does not exist.
        """
        in_front = (job for job in self._running if job.tool_use_id == shown_id)
        return next(in_front, None) or self.find(shown_id)

    async def launch(
        self,
        command: str,
        show: Callable[[str], None],
        grant: Grant = NO_GRANT,
        state: ShellState | None = None,
        tool_use_id: str = "",
        *,
        has_terminal: bool = False,
    ) -> Job:
        """
        Start a command in the foreground; `show` gets its output for the screen. One that `has_terminal` goes to the background at once.

        Raises:
            ToolError: it could not be started.
        """
        started = await self._shell.start(command, grant, state, has_terminal=has_terminal)
        path, shown_as = self._shell.new_log(started)
        log = OutputLog(path, shown_as=shown_as, is_new=True, max_file_bytes=MAX_LOG_BYTES)
        job = Job(command, started, log, show, tool_use_id)
        if job.terminal:
            job.terminal.is_unfinished = self._is_unfinished
        self._running.append(job)
        self._start(self._run, job)
        return job

    @property
    def are_running(self) -> bool:
        return any(job.is_running for job in self._jobs.values())

    @property
    def is_full(self) -> bool:
        return sum(job.is_running for job in self._jobs.values()) >= MAX_RUNNING

    def to_background(self, job: Job) -> None:
        self._count += 1
        job.id = f"j{self._count}"
        job.detach()
        self._jobs[job.id] = job
        self._on_change()

    def denied(self, denial: Denial, *, is_of_others: bool = False) -> bool:
        """
        Record that the network refused a host to one of the running commands.

        The refusal is that of the command with its mark. Without a mark it is that of the only command that runs. If several run, or
        others of the user's (`is_of_others`), each of them reports it, but it is not offered: the user would be asked about a command,
        and would allow it to run twice, that did not ask for the host.

        Return whether it may be a foreground command: its result will report it.
        """
        if denial.operation not in ("connect", "resolve"):
            return False
        if denial.by:
            found = [job for job in self._running if job.started.process.mark == denial.by]
        else:
            found = self._running
        is_clear = bool(denial.by) or (len(found) == 1 and not is_of_others)
        for job in found:
            if is_clear:
                job.deny(denial)
            else:
                job.may_be_denied(denial)
        return any(not job.id for job in found)

    def command_with(self, mark: str) -> str:
        """Return the running command with this mark; empty if there is none."""
        found = (job.command for job in self._running if job.started.process.mark == mark)
        return next(found, "")

    def keep_interrupted(self, tool_use_id: str, text: str) -> None:
        self._interrupted[tool_use_id] = text
        while len(self._interrupted) > MAX_INTERRUPTED:
            del self._interrupted[next(iter(self._interrupted))]

    def take_interrupted(self, tool_use_id: str) -> str:
        """Return the partial result of a cancelled tool call; empty if it was not a command."""
        return self._interrupted.pop(tool_use_id, "")

    async def _run(self, job: Job) -> None:
        try:
            await job.run()
        finally:
            self._running.remove(job)
            self._look_at_pipe(job)
            self._look_after(job)
            job.end()
            if job.id:
                self._shell.forget(job.started)
                self._on_change()
            self._close_logs(job)

    def _look_at_pipe(self, job: Job) -> None:
        if last_pipe(job.command):
            statuses = self._shell.pipe_of(job.started)
            if failed := failed_parts(job.command, statuses, job.status):
                job.has_failed_in_pipe = True
                job.outcome += f"; {failed}"

    def _look_after(self, job: Job) -> None:
        denials = self._sandbox.look_after(
            job.log.text(),
            has_failed=job.has_failed,
            cwd=job.started.begun_with.cwd,
            status=job.status,
            command=job.command,
        )
        for denial in denials:
            job.deny(denial)
            if job.id:
                self._on_denied(denial)

    def _close_logs(self, ended: Job) -> None:
        """Drop all ended jobs except the latest, and their files beyond the size limit."""
        for job in [job for job in self._jobs.values() if not job.is_running][:-MAX_ENDED]:
            del self._jobs[job.id]
            job.log.close()
        if not ended.id:
            ended.log.close()
        if ended.log.is_spilled:
            self._logs.append(ended.log)
        while sum(min(log.total_bytes, MAX_LOG_BYTES) for log in self._logs) > MAX_LOGS_BYTES:
            log = self._logs.popleft()
            log.close()
            with suppress(OSError):
                log.path.unlink()


def _terminal(device: "CommandTerminal", command: str, take: Callable[[str], None]) -> "Terminal":
    from sanderling.tools.commands.terminal import Terminal  # rarely needed

    return Terminal(device, command, take)


def ending_line(job: Job) -> str:
    """Return the note on a job that has ended since the last result."""
    size = job.log.news_bytes
    unread = f" `jobs read {job.id}` has {counted(size, 'byte')}." if size else ""
    return f"[{job.id} has ended: {job.outcome}.{unread}]"


def result_text(output: str, facts: str) -> str:
    """Return the result for the model: the output, then the facts, which output cannot imitate there."""
    shown = output.rstrip("\n")
    return f"{shown or '(no output)'}\n{facts}"


def facts(job: Job, *lines: str, names_file: bool = True) -> str:
    """Return `lines`, new refusals, and the file with all output."""
    file = job.log.note() if names_file else ""
    return "\n".join(filter(None, (*lines, *_refusals(job), file)))


def screen_of(job: Job) -> tuple[str, str]:
    """Return the screen of a running job's terminal for the model, and a line about it."""
    from sanderling.tools.commands.terminal import HIDDEN, LEGEND  # rarely needed

    assert job.terminal
    text, where = job.terminal.shown()
    line = f"[{job.id} has a terminal · {where}]"
    return text, f"{line}\n{LEGEND}" if HIDDEN in text else line


def status_line(job: Job, *more: str) -> str:
    return f"[{' · '.join((job.outcome, took(job), *more))}]"


def took(job: Job) -> str:
    return f"{job.took_s:.1f} s" if job.took_s >= 0.1 else f"{job.took_s * 1000:.0f} ms"  # noqa: PLR2004


def _refusals(job: Job) -> list[str]:
    """Return a line for each refusal, with an alternative."""
    denials, job.denials = list(job.denials), {}
    unclear, job.unclear = list(job.unclear) if job.has_failed else [], {}
    lines = [
        *(f"[The sandbox refused: {_refusal(denial)}]" for denial in denials),
        *(f"[The sandbox refused, {UNCLEAR}: {_refusal(denial)}]" for denial in unclear),
    ]
    if len(lines) > SHOWN_DENIALS:
        lines[SHOWN_DENIALS:] = [f"[{len(lines) - SHOWN_DENIALS} more were refused.]"]
    return lines


def _refusal(denial: Denial) -> str:
    target = in_one_line(denial.target)[:SHOWN_TARGET_CHARS]
    what = f"{denial.operation} {target}: {denial.reason}."
    if denial.operation in ("connect", "resolve"):
        return f"{what} Do without, or ask the user to allow it with {remedies().network}."
    if denial.operation == "execute":
        return f"{what} Do without, or ask the user to grant that directory."
    instead: dict[Rule, str] = {
        "hidden": "Use files in the project, or ask the user to grant that path.",
        "read_only": "Write in the project or in $TMPDIR, or ask the user to grant that path.",
        "plan": "Say what you would change; the user can change the mode.",
        "protected": "Tell the user what to change there.",
    }
    return f"{what} {instead.get(denial.rule, '')}".rstrip()


def _in_words(status: int) -> str:
    if status < 0:
        return f"ended by {signal_name(-status)}"
    if status - EXIT_SIGNALLED in list(signal.Signals):
        return f"exit status {status} ({signal_name(status - EXIT_SIGNALLED)})"
    return f"exit status {status}"
