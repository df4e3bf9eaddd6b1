"""The host's side of `inside.py`: one process for each sample, which ends all others of the sample with it."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from inspect_ai.util import SandboxUnavailableError

from sanderling_inspect.inside import Message, encode, receive

STOP_S = 2.0
"""To end by itself, with all processes in the sandbox, before it is killed."""
GRACE_S = 10.0
"""For the process in the sandbox to report a timeout: a command can stop it."""
SAID_BYTES = 2_000


class _Waiter:
    """A task that waits for an answer, in whatever event loop it runs."""

    def __init__(self) -> None:
        self._token = anyio.lowlevel.current_token()
        self._event = anyio.Event()
        self.answer: tuple[Message, list[bytes]] | None = None

    async def wait(self) -> None:
        await self._event.wait()

    def wake(self, answer: tuple[Message, list[bytes]] | None) -> None:
        self.answer = answer
        with suppress(RuntimeError):  # its loop has ended
            anyio.from_thread.run_sync(self._event.set, token=self._token)


class Output(NamedTuple):
    """What a command left; `has_timed_out` means that it was killed."""

    status: int
    stdout: bytes
    stderr: bytes
    has_timed_out: bool = False


class SandboxProcess:
    """
    A sandbox for one sample.

    Every method raises `SandboxUnavailableError` if the sandbox does not run, and `OSError` if the kernel refuses what it does inside.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._waiting: dict[int, _Waiter] = {}
        self._number = 0
        self._turn = threading.Lock()
        self._has_ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._argv, self._env = argv, env

    async def start(self) -> None:
        """Wait until it can run commands."""
        ready = _Waiter()
        self._waiting[0] = ready
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            await ready.wait()
        finally:
            del self._waiting[0]
        if ready.answer is None:
            raise self._unavailable()

    def _listen(self) -> None:
        try:
            # The process ends with the thread that started it, so this one must last as long.
            with self._log.open("wb") as file:
                self._process = subprocess.Popen(
                    self._argv,
                    cwd="/",
                    env=self._env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                )
            stream = cast("BinaryIO", self._process.stdout)
            while received := receive(stream):
                if waiter := self._waiting.get(received[0].get("number", 0)):
                    waiter.wake(received)
            self._process.wait()
        except OSError as error:
            self._log.write_text(str(error))
        finally:
            self._has_ended = True
            for waiter in [*self._waiting.values()]:
                waiter.wake(None)

    async def execute(
        self,
        argv: Sequence[str],
        data: bytes | None,
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout_s: float | None,
        limit: int,
    ) -> Output:
        """
        Run a command to its end. Its background processes go on. At the timeout, and if the caller is cancelled, all are killed.

        Raises:
            TimeoutError: the process in the sandbox does not answer.
        """
        asked = {"argv": [*argv], "cwd": cwd, "env": {**env}, "timeout": timeout_s, "limit": limit}
        given = [] if data is None else [data]
        with anyio.fail_after(timeout_s + GRACE_S if timeout_s else None):
            answer, found = await self._ask({"do": "execute"} | asked, *given)
        if "has_timed_out" in answer:
            return Output(0, b"", b"", has_timed_out=True)
        return Output(answer["status"], found[0], found[1])

    async def read(self, path: str, limit: int) -> bytes | None:
        """Return a file's content; None if it has more than `limit` bytes."""
        answer, found = await self._ask({"do": "read", "path": path, "limit": limit})
        return None if "is_too_large" in answer else found[0]

    async def write(self, path: str, data: bytes) -> None:
        await self._ask({"do": "write", "path": path}, data)

    async def _ask(self, message: Message, *payloads: bytes) -> tuple[Message, list[bytes]]:
        with self._turn:
            self._number += 1
            number = self._number
        waiter = self._waiting[number] = _Waiter()
        try:
            await self._send(message | {"number": number}, *payloads)
            try:
                await waiter.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True), suppress(SandboxUnavailableError):
                    await self._send({"do": "cancel", "number": number})
                raise
        finally:
            del self._waiting[number]
        if waiter.answer is None:
            raise self._unavailable()
        answer, found = waiter.answer
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["path"])
        return answer, found

    async def _send(self, message: Message, *payloads: bytes) -> None:
        if self._has_ended:
            raise self._unavailable()
        await anyio.to_thread.run_sync(self._write, encode(message, *payloads))

    def _write(self, data: bytes) -> None:
        assert self._process
        stream = cast("BinaryIO", self._process.stdin)
        try:
            with self._turn:
                stream.write(data)
                stream.flush()
        except (OSError, ValueError) as error:
            raise self._unavailable() from error

    def _unavailable(self) -> SandboxUnavailableError:
        said = self._log.read_bytes()[-SAID_BYTES:].decode(errors="replace").strip()
        return SandboxUnavailableError(said or "the process of the sandbox has ended")

    def stop(self) -> None:
        """End everything in the sandbox."""
        if self._process is None:  # it could not be started
            return
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        # A second SIGTERM ends the sandbox, too, if a command has stopped the process in it. After SIGKILL the sandbox would end later than
        # this, and write to its directory.
        for end in (self._process.terminate, self._process.terminate, self._process.kill):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
                break
            end()
        self._process.wait()
        self._has_ended = True
