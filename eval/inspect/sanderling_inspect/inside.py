"""
The process in the sandbox that runs the commands of a sample and accesses its files, on requests over its stdin.

It is a program of its own: `inside.py WORKDIR`, with nothing but the standard library. Commands share its namespaces, so what they start in
the background is there for the next command, as in a container. The kernel ends all of them with this process, which ends with its stdin.

A message is a line of JSON, followed by binary data whose lengths `sizes` lists.
"""

import ctypes
import errno
import fcntl
import json
import os
import selectors
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

CHUNK_BYTES = 1 << 16
PR_SET_DUMPABLE = 4
F_GETPIPE_SZ = 1032  # fcntl.F_GETPIPE_SZ needs Python 3.10
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as in a shell

Message = dict[str, Any]
Answer = tuple[Message, tuple[bytes, ...]]
"""With its binary data."""


def encode(message: Message, *payloads: bytes) -> bytes:
    line = json.dumps(message | {"sizes": [len(each) for each in payloads]})
    return b"".join((line.encode(), b"\n", *payloads))


def receive(stream: BinaryIO) -> tuple[Message, list[bytes]] | None:
    """Return the next message and its data, or None at the end."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message: Message = json.loads(line)
    payloads: list[bytes] = []
    for size in message.pop("sizes"):
        payloads.append(stream.read(size))
        if len(payloads[-1]) < size:
            return None
    return message, payloads


class Server:
    """Answers requests, each in a thread of its own."""

    def __init__(self, workdir: Path, answers: BinaryIO) -> None:
        self._workdir = workdir
        self._answers = answers
        self._turn = threading.Lock()
        self._running: dict[
            int, int
        ] = {}  # the session of each command, by the number of its request
        self._cancelled: set[int] = set()

    def serve(self, requests: BinaryIO) -> None:
        self.answer({"ready": True})
        while received := receive(requests):
            message, payloads = received
            if message["do"] == "cancel":
                self._cancel(message["number"])
            else:
                threading.Thread(target=self._do, args=(message, payloads), daemon=True).start()

    def answer(self, message: Message, *payloads: bytes) -> None:
        data = encode(message, *payloads)
        with self._turn:
            self._answers.write(data)
            self._answers.flush()

    def _do(self, message: Message, payloads: list[bytes]) -> None:
        number: int = message["number"]
        try:
            answered, found = self._done(number, message, payloads)
        except OSError as error:
            answered, found = {"errno": error.errno or errno.EIO, "path": error.filename}, ()
        except ValueError as error:  # a NUL in a name
            answered, found = {"errno": errno.EINVAL, "path": str(error)}, ()
        self.answer(answered | {"number": number}, *found)

    def _done(self, number: int, message: Message, payloads: list[bytes]) -> Answer:
        match message["do"]:
            case "read":
                return self._read(message["path"], message["limit"])
            case "write":
                self._write(message["path"], payloads[0])
                return {}, ()
            case _:
                return self._execute(number, message, payloads[0] if payloads else None)

    # --- files ---------------------------------------------------------------------------------------------------------

    def _path(self, path: str) -> Path:
        return self._workdir / path

    def _read(self, path: str, limit: int) -> Answer:
        # Without O_NONBLOCK, a FIFO would block this thread for ever.
        descriptor = os.open(self._path(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise _error(errno.EISDIR, path)
            data = bytearray()
            while len(data) <= limit and (chunk := os.read(descriptor, CHUNK_BYTES)):
                data += chunk
        finally:
            os.close(descriptor)
        return ({"is_too_large": True}, ()) if len(data) > limit else ({}, (bytes(data),))

    def _write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if path.is_dir():
            raise _error(errno.EISDIR, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            file.write(data)

    # --- commands ------------------------------------------------------------------------------------------------------

    def _execute(self, number: int, asked: Message, data: bytes | None) -> Answer:
        try:
            process = subprocess.Popen(
                asked["argv"],
                cwd=self._path(asked["cwd"]),
                env=os.environ | asked["env"],
                stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno == errno.EACCES:
                raise
            status = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
            said = f"{error.filename or asked['argv'][0]}: {error.strerror}\n"
            return {"status": status}, (b"", said.encode(errors="surrogateescape"))
        self._running[number] = process.pid
        deadline = time.monotonic() + asked["timeout"] if asked["timeout"] else None
        streams = _Streams(process, data or b"", asked["limit"])
        try:
            if number in self._cancelled or not streams.follow(deadline):
                kill_session(process.pid)
                process.wait()
                return {"has_timed_out": True}, ()
            status = process.wait()
            return {"status": status if status >= 0 else 128 - status}, streams.results()
        finally:
            del self._running[number]
            streams.leave()

    def _cancel(self, number: int) -> None:
        self._cancelled.add(number)
        if session := self._running.get(number):
            kill_session(session)


class _Streams:
    """The streams of a command. Of each output it keeps the end, at most `limit` bytes."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes, limit: int) -> None:
        assert process.stdout
        assert process.stderr
        self._stdin = process.stdin
        self._rest = memoryview(data)
        self._outputs = {process.stdout: bytearray(), process.stderr: bytearray()}
        self._limit = limit
        self._end = os.pidfd_open(process.pid)

    def follow(self, deadline: float | None) -> bool:
        """Pass on data until the command has ended, also if processes that it left have the streams. Return False at the deadline."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._end, selectors.EVENT_READ)
            for output in self._outputs:
                os.set_blocking(output.fileno(), False)
                selector.register(output, selectors.EVENT_READ)
            if self._stdin:
                os.set_blocking(self._stdin.fileno(), False)
                selector.register(self._stdin, selectors.EVENT_WRITE)
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                ready = {key.fileobj for key, _ in selector.select(left)}
                if self._stdin in ready and not self._feed():
                    selector.unregister(self._stdin)
                    self._stdin.close()
                for output in self._outputs:
                    if output in ready and not self._take(output):
                        selector.unregister(output)
                if self._end in ready:
                    break
        for (
            output
        ) in self._outputs:  # what is left in the pipe; others may write to it without an end
            for _ in range(fcntl.fcntl(output, F_GETPIPE_SZ) // CHUNK_BYTES + 1):
                if not self._take(output):
                    break
        return True

    def _feed(self) -> bool:
        """Write to stdin. Return whether there is more."""
        assert self._stdin
        with suppress(BlockingIOError):
            try:
                self._rest = self._rest[os.write(self._stdin.fileno(), self._rest[:CHUNK_BYTES]) :]
            except BrokenPipeError:
                return False
        return bool(self._rest)

    def _take(self, output: Any) -> bool:
        """Read from an output. Return whether there was something."""
        try:
            chunk = os.read(output.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        kept = self._outputs[output]
        kept += chunk
        if len(kept) > 2 * self._limit:
            del kept[: -self._limit]
        return bool(chunk)

    def results(self) -> tuple[bytes, bytes]:
        first, second = (bytes(kept[-self._limit :]) for kept in self._outputs.values())
        return first, second

    def leave(self) -> None:
        """Close the streams. Processes in the background can go on writing: the output is read, and lost."""
        os.close(self._end)
        if self._stdin:
            self._stdin.close()
        for output in self._outputs:
            os.set_blocking(output.fileno(), True)
            threading.Thread(target=_drain, args=(output,), daemon=True).start()


def _drain(output: BinaryIO) -> None:
    with output:
        while os.read(output.fileno(), CHUNK_BYTES):
            pass


def kill_session(session: int) -> None:
    """Kill a session, and all processes that descend from it."""
    while found := _descendants(session):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # until the kernel has ended them


def _descendants(session: int) -> set[int]:
    """Return the processes of the session and their descendants, without those that have ended."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "stat").read_bytes().rpartition(b")")[2]
        except OSError:  # it has ended
            continue
        state, parent, _, its_session, *_ = said.split()
        if state not in (b"Z", b"X"):
            pid = int(process.name)
            parents[pid] = int(parent)
            if int(its_session) == session:
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def main(workdir: str) -> NoReturn:
    # Otherwise a command could forge answers, with ptrace or through our descriptors in /proc.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    with os.fdopen(requests, "rb") as stream, os.fdopen(answers, "wb") as answer_to:
        Server(Path(workdir), answer_to).serve(stream)
        os._exit(0)  # the kernel ends what still runs


if __name__ == "__main__":
    main(sys.argv[1])
