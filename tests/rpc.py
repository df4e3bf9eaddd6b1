"""
A msgpack-RPC client for tests and benchmarks: one thread, no greenlets, a deadline on every request.

(pynvim's client runs greenlets inside the test process, which upsets pytest's own compiling on Python 3.11; and it waits for
ever when Neovim sits in a prompt.)
"""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2


class NvimError(Exception):
    """What Neovim answered instead of a result."""


class Rpc:
    """A Neovim that runs `argv` (with `--embed`); `on_notification` sees what it sends by itself, `redraw` first of all."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        on_notification: Callable[[str, list[Any]], None] = lambda _name, _args: None,
    ) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._unpacker = msgpack.Unpacker(
            ext_hook=lambda _code, data: msgpack.unpackb(data),
            unicode_errors="surrogateescape",
            strict_map_key=False,
        )
        self._packer = msgpack.Packer(unicode_errors="surrogateescape")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._on_notification = on_notification
        self._answers: dict[int, tuple[Any, Any]] = {}
        self._last_id = 0

    def send(self, method: str, *args: Any) -> int:
        """Send a request without waiting for its answer; returns its id, for `answer`."""
        self._last_id += 1
        self._in.write(self._packer.pack([REQUEST, self._last_id, method, args]))
        self._in.flush()
        return self._last_id

    def answer(self, request_id: int, deadline_s: float = 60.0) -> Any:
        end = time.monotonic() + deadline_s
        while request_id not in self._answers:
            self.pump(end - time.monotonic())
            if time.monotonic() > end:
                raise TimeoutError(f"Neovim did not answer within {deadline_s} s")
        error, result = self._answers.pop(request_id)
        if error:
            raise NvimError(error[1] if isinstance(error, list) else error)
        return result

    def has_answer(self, request_id: int) -> bool:
        return request_id in self._answers

    def request(self, method: str, *args: Any, deadline_s: float = 60.0) -> Any:
        return self.answer(self.send(method, *args), deadline_s)

    def pump(self, timeout_s: float) -> None:
        """Handle what Neovim has sent, waiting for at most `timeout_s` for it to send something."""
        if not self._selector.select(max(0.0, timeout_s)):
            return
        data = os.read(self._out.fileno(), 1 << 20)
        if not data:
            raise EOFError("Neovim has ended")
        self._unpacker.feed(data)
        for message in self._unpacker:
            if message[0] == RESPONSE:
                self._answers[message[1]] = (message[2], message[3])
            elif message[0] == NOTIFICATION:
                self._on_notification(message[1], message[2])

    def close(self) -> None:
        self._selector.close()
        self._in.close()
        self._out.close()
