"""A child of the test that may give up what it never gets back."""

import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STRANGER = 12345  # a user id of nobody

USERS = [os.getuid(), STRANGER] if os.getuid() == 0 else [os.getuid()]


def in_child(function: Callable[[], Any], uid: int | None = None) -> Any:
    """What `function` returns or raises in a forked child that runs as `uid`."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # A fork beside threads; the child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            if uid and uid != os.getuid():
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            answer = (function(), None)
        except BaseException as error:  # noqa: BLE001
            answer = (None, error)
        os.write(writer, pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    result, error = pickle.loads(answer)
    if error:
        raise error
    return result


def errno_of(function: Callable[..., Any], *args: Any) -> int:
    """0 when `function` succeeds."""
    try:
        function(*args)
    except OSError as error:
        return error.errno or -1
    return 0


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user may use; pytest's own is private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
