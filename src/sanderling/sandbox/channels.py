"""The host's channels to the processes that it starts for the sandbox, and to the supervisor."""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import anyio

from sanderling.errors import NoRoomError, SandboxError
from sanderling.platforms.endings import ExitWatch
from sanderling.protocol.remedies import remedies
from sanderling.sandbox import wire
from sanderling.sandbox.report import GuardEvent, LayerReport

START = (
    "import gc, os, sys; gc.disable(); sys.path += {path!r}; "
    "from {module} import main; main({arguments}); os._exit(0)"
)
# for the supervisor, which asks git for its global ignore file, for instance
FOR_GIT = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG")
CLOSE_S = 5.0


class SupervisorChannel:
    """The host's end of the supervisor's channel."""

    def __init__(self, channel: socket.socket) -> None:
        self.has_ended = anyio.Event()
        self._channel = channel
        self._listening = anyio.CancelScope(shield=True)
        self._numbers = count()
        self._asked: dict[int, anyio.Event] = {}
        self._answers: dict[int, bool] = {}

    def send(self, message: wire.Message, descriptors: tuple[int, ...] = ()) -> None:
        """
        Send `message` without waiting.

        Raises:
            OSError: the supervisor is gone.
        """
        wire.send(self._channel, message, descriptors)

    async def undoes(self, path: str) -> bool:
        """Return whether the guard would undo a change of the real path `path`. False if the guard has ended."""
        number = next(self._numbers)
        answered = self._asked[number] = anyio.Event()
        try:
            self.send(("undoes", number, path))
            if not self.has_ended.is_set():
                await answered.wait()
        except OSError:
            return False
        else:
            return self._answers.pop(number, False)
        finally:
            del self._asked[number]

    async def listen(self, on_guard_event: Callable[[GuardEvent], None]) -> None:
        """Process the supervisor's messages, even while being cancelled, because it sends events at the end."""
        with self._listening:
            while (received := await receive(self._channel)) is not None:
                match received:
                    case (("guard", *details), _):
                        on_guard_event(GuardEvent(*details))
                    case (("undoes", number, is_undone), _):
                        if number in self._asked:  # otherwise the caller no longer waits
                            self._answers[number] = is_undone
                            self._asked[number].set()
                    case (("closed",), _):
                        break
                    case _:
                        raise SandboxError(f"Unknown message from the supervisor: {received[0]!r}.")
        self.has_ended.set()
        for answered in self._asked.values():
            answered.set()

    async def end(self, *, keeps_tmp: bool) -> None:
        """Have the supervisor kill all processes, run a last audit and clean up. Process its events."""
        with suppress(OSError), anyio.move_on_after(CLOSE_S):
            self.send(("close", keeps_tmp))
            await self.has_ended.wait()

    def stop_listening(self) -> None:
        self._listening.cancel()


async def receive(channel: socket.socket) -> tuple[wire.Message, list[int]] | None:
    await anyio.wait_readable(channel)
    return wire.receive(channel)


async def receive_report(prober: socket.socket) -> LayerReport:
    match await receive(prober):
        case (("report", reasons, landlock_abi), _):
            return LayerReport(reasons=reasons, landlock_abi=landlock_abi)
        case _:
            raise SandboxError("The sandbox's probe ended without a report.")


@asynccontextmanager
async def started(
    module: str, platform: str = sys.platform, *arguments: str
) -> AsyncGenerator[socket.socket]:
    """Start a Python process that runs `module` with a channel and `arguments`, and yield the channel. It ends with the context."""
    with refusing_on_os_errors():
        ours, theirs = wire.socket_pair(platform)
    ours.setblocking(False)
    with ExitStack() as unless_started, theirs:
        unless_started.enter_context(ours)
        path = [str(_directory_above(name)) for name in ("sanderling", "landlock")]
        values = ", ".join(map(repr, (theirs.fileno(), *arguments)))
        code = START.format(path=path, module=module, arguments=values)
        with refusing_on_os_errors():
            process = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-I", "-S", "-c", code],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: os.environ[name] for name in FOR_GIT if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
            unless_started.callback(process.wait)
            unless_started.callback(process.kill)
            ended = ExitWatch(process.pid)
        unless_started.pop_all()
    try:
        with ours:
            yield ours
    finally:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_S) as waiting:
                await anyio.wait_readable(ended)
            if waiting.cancelled_caught:
                process.returncode = 0  # it still cleans up, on its own
            else:
                process.wait()
        ended.close()


def _directory_above(package: str) -> Path:
    spec = find_spec(package)
    if not spec or not spec.origin:
        raise SandboxError(
            f"The sandbox needs the Python package '{package}'. Rebuild the environment: {remedies().install}."
        )
    return Path(spec.origin).parent.parent


@contextmanager
def refusing_on_os_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise SandboxError(f"Cannot set up the sandbox: {error}.") from error
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise NoRoomError(
            f"Too many open files (limit {limit}). Close sessions, or raise the limit with `ulimit -n`."
        ) from error
