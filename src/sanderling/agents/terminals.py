"""
Terminals for an external agent: commands in Sanderling's sandbox, judged like commands of its own bash tool.

They run in the session's environment and do not get the agent's login or hosts. The last part of the output is kept, as many bytes as the
agent requests, cut at a character boundary. The screen shows the output as it arrives, within the limits for commands.
"""

import re
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import anyio

from sanderling.agents.permits import Permits
from sanderling.errors import SandboxError, ToolError
from sanderling.sandbox.denials import Denial
from sanderling.text import printable, signal_name
from sanderling.tools.bash import BashInput, bash
from sanderling.tools.commands.output import ScreenText
from sanderling.tools.commands.running import run_to_end
from sanderling.tools.commands.shell import PRIVATE, ShellState, Started
from sanderling.tools.commands.shell_report import valid_cwd
from sanderling.tools.commands.variables import is_decisive
from sanderling.tools.effects import Effect
from sanderling.tools.workspace import Workspace

DEFAULT_BYTES, MAX_BYTES = 1 << 20, 4 << 20
"""Limits of the kept output. All of it is sent for each terminal/output request."""
MAX_RUNNING, MAX_KEPT = 32, 128
LINGER_S = 0.1
EXIT_SIGNALLED = 128

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_CUT_CHARACTER = re.compile(rb"[\x80-\xbf]{0,3}")

Start = Callable[[Callable[["Terminal"], Awaitable[None]], "Terminal"], None]
"""Starts a task that lives as long as the session."""


class Exit(NamedTuple):
    """The end of a command: its exit status, or the name of the signal that killed it."""

    code: int | None = None
    signal: str | None = None


class Output(NamedTuple):
    """The output so far; `is_truncated` if its beginning was dropped. `exit` is None while the command runs."""

    text: str
    is_truncated: bool
    exit: Exit | None


class Tail:
    """The last bytes of an output, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.is_cut = False

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        # Cutting at every chunk would be quadratic.
        if len(self._data) > 2 * self._limit + len(chunk):
            self._cut()

    def text(self) -> str:
        """Return the text from the first complete character on, with invalid bytes replaced."""
        self._cut()
        data = bytes(self._data)
        if self.is_cut and (found := _CUT_CHARACTER.match(data)):
            data = data[found.end() :]
        return data.decode(errors="replace")

    def _cut(self) -> None:
        if len(self._data) > self._limit:
            self.is_cut = True
            del self._data[: len(self._data) - self._limit]


class Terminal:
    """A command, from its start until it is released."""

    def __init__(self, terminal_id: str, command: str, started: Started, limit: int) -> None:
        self.id = terminal_id
        self.command = command
        self.started = started
        self.tail = Tail(limit)
        self.exit: Exit | None = None
        self.ended = anyio.Event()
        self.is_released = False
        self._screen = ScreenText()

    async def run(self, show: Callable[[str], None]) -> None:
        """Read the output until the command ends. If this is cancelled, all its processes are killed."""
        try:
            status = await run_to_end(
                self.started.process, self._screen, self.tail.add, show, linger_s=LINGER_S
            )
            self.exit = _exit_of(status)
        except SandboxError as error:
            self.tail.add(f"[not run: {error}]\n".encode(errors="replace"))
            self.exit = Exit(code=None, signal="SIGKILL")
        finally:
            self.exit = self.exit or Exit(signal="SIGKILL")
            self.ended.set()

    def kill(self) -> None:
        if not self.ended.is_set():
            self.started.process.kill()


class Terminals:
    """
    The terminals of a session's agent.

    Args:
        start: starts a task of the session.
        on_output: called with output for the screen.
        on_end: called when a command has ended, with what the sandbox refused.
    """

    def __init__(
        self,
        workspace: Workspace,
        permits: Permits,
        start: Start,
        on_output: Callable[[Terminal, str], None] = lambda _terminal, _text: None,
        on_end: Callable[[Terminal, Sequence[Denial]], None] = lambda _terminal, _denials: None,
    ) -> None:
        self._workspace = workspace
        self._permits = permits
        self._start = start
        self._on_output = on_output
        self._on_end = on_end
        self._terminals: dict[str, Terminal] = {}
        self._numbers = count(1)

    async def create(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        output_bytes: int | None = None,
    ) -> Terminal:
        """
        Start a command if it is permitted: a program with `args`, or a shell command line without them.

        Raises:
            DeniedError: the user denied it.
            ToolError: it cannot be started, or a rule forbids it.
        """
        self._require_room()
        line = command_line(command, args)
        where = valid_cwd(cwd or self._workspace.project)
        if not line.strip() or "\0" in line + where or not where:
            raise ToolError("A terminal needs a command without NUL and an absolute directory.")
        state = ShellState(where, _variables(env or {}))
        effect = Effect(
            "bash",
            "run",
            command=line,
            cwd=where,
            exported=tuple(
                f"{name}={value!a}"
                for name, value in sorted((env or {}).items())
                if is_decisive(name, value) or _is_named(name, line)
            ),
        )
        request = self._permits.request(bash, BashInput(command=line), effect=effect)
        permit = await self._permits.of_run(request)
        request.check_ground(self._workspace)
        self._require_room()  # others may have been started during the question
        started = await self._workspace.shell.start(line, permit.grant, state)
        limit = DEFAULT_BYTES if output_bytes is None else max(0, min(output_bytes, MAX_BYTES))
        terminal = Terminal(f"terminal-{next(self._numbers)}", line, started, limit)
        self._terminals[terminal.id] = terminal
        self._start(self._run, terminal)
        return terminal

    def output(self, terminal_id: str) -> Output:
        """
        Return the output of a terminal so far.

        Raises:
            ToolError: unknown ID.
        """
        terminal = self._find(terminal_id)
        text = terminal.tail.text()
        return Output(text, terminal.tail.is_cut, terminal.exit)

    async def wait(self, terminal_id: str) -> Exit:
        """
        Wait for a terminal's command to end.

        Raises:
            ToolError: unknown ID.
        """
        terminal = self._find(terminal_id)
        await terminal.ended.wait()
        assert terminal.exit
        return terminal.exit

    def kill(self, terminal_id: str) -> None:
        """
        Kill a terminal's command; its output is kept.

        Raises:
            ToolError: unknown ID.
        """
        self._find(terminal_id).kill()

    def release(self, terminal_id: str) -> None:
        """
        Kill a terminal's command and drop its output.

        Raises:
            ToolError: unknown ID.
        """
        terminal = self._find(terminal_id)
        terminal.is_released = True
        terminal.kill()
        del self._terminals[terminal_id]

    def close(self) -> None:
        """Release all terminals: the agent or its session has ended."""
        for terminal_id in tuple(self._terminals):
            self.release(terminal_id)

    async def _run(self, terminal: Terminal) -> None:
        try:
            await terminal.run(lambda text: self._on_output(terminal, text))
        finally:
            self._workspace.shell.forget(terminal.started)
            self._on_end(terminal, self._look_after(terminal))

    def _look_after(self, terminal: Terminal) -> Sequence[Denial]:
        code = terminal.exit.code if terminal.exit else None
        return self._workspace.sandbox.look_after(
            terminal.tail.text(),
            has_failed=code != 0,
            cwd=terminal.started.begun_with.cwd,
            status=code,
            command=terminal.command,
        )

    def _find(self, terminal_id: str) -> Terminal:
        if terminal := self._terminals.get(terminal_id):
            return terminal
        raise ToolError(f"There is no terminal '{printable(terminal_id)[:100]}'.")

    def _require_room(self) -> None:
        running = sum(not each.ended.is_set() for each in self._terminals.values())
        if running >= MAX_RUNNING:
            raise ToolError(f"{MAX_RUNNING} terminals are running; end one first.")
        if len(self._terminals) >= MAX_KEPT:
            raise ToolError(f"There are {MAX_KEPT} terminals; release ended terminals.")


def command_line(command: str, args: Sequence[str]) -> str:
    """Return the shell command line for `command` with `args`. Without `args`, some agents pass a whole line as `command`."""
    if not args and not _PLAIN.fullmatch(command):
        return command
    return shlex.join((command, *args))


def _is_named(name: str, line: str) -> bool:
    """Return whether the line may use the variable. If so, the user must see its value before allowing the command."""
    return "$" in line and re.search(rf"(?a)\b{re.escape(name)}\b", line) is not None


def _variables(env: Mapping[str, str]) -> dict[str, str | None]:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name) or name.startswith(PRIVATE) or "\0" in value:
            raise ToolError(f"'{printable(name)[:100]}' is not a valid environment variable.")
    return dict(env)


def _exit_of(status: int) -> Exit:
    """Convert a status. A shell reports a command killed by a signal as 128 plus its number."""
    if status < 0:
        return Exit(signal=signal_name(-status))
    number = status - EXIT_SIGNALLED
    return Exit(status, signal_name(number) if number in [*signal.Signals] else None)
