"""
The trusted certificates, read once for all clients of the process.

Reading them takes a tenth of the start, but without the interpreter's lock: begun early, it runs alongside everything else.
"""

import os
import ssl
from _thread import start_new_thread
from concurrent.futures import Future
from pathlib import Path

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
READ_S = 30.0

_read: dict[object, Future[ssl.SSLContext]] = {}


def tls_variables() -> dict[str, str]:
    """Return the variables of the environment that affect TLS."""
    return {name: value for name in VARIABLES if (value := os.environ.get(name))}


def begin_reading() -> None:
    """
    Start reading the certificates in a thread, unless they are being read or have been.

    Raises:
        ImportError, RuntimeError: a module cannot be imported, or a thread cannot start.
    """
    import httpcore2  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import httpx2  # noqa: F401  # pyright: ignore[reportUnusedImport]

    # Import both here: threads that import at the same time block each other.
    files, mine = _files(), Future[ssl.SSLContext]()
    if _reading(files, mine) is mine:
        try:
            # A `Thread` would wait for its own start, for ever if there is no memory for it.
            start_new_thread(_fill, (files, mine))
        except RuntimeError:
            _read.pop(files, None)
            raise


def read_certificates() -> ssl.SSLContext:
    """
    Return the trusted certificates, waiting until they are read. Blocks.

    Raises:
        ImportError, MemoryError, OSError, ValueError: they cannot be read.
    """
    files, mine = _files(), Future[ssl.SSLContext]()
    reading = _reading(files, mine)
    if reading is mine:
        _fill(files, mine)
    return reading.result(READ_S)


def _reading(files: object, mine: Future[ssl.SSLContext]) -> Future[ssl.SSLContext]:
    """Return the reading of `files` in progress or done, else `mine`. Only one is kept, because a log of TLS keys changes all the time."""
    if files not in _read:
        _read.clear()
    return _read.setdefault(files, mine)


def _files() -> object:
    """Return the files that the environment names, with the times of their last changes."""
    return tuple((*named, _changed_at(named[1])) for named in tls_variables().items())


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


def _fill(files: object, reading: Future[ssl.SSLContext]) -> None:
    try:
        import httpx2

        reading.set_result(httpx2.create_ssl_context())
    except BaseException as error:  # noqa: BLE001  re-raised in the waiting thread
        _read.pop(files, None)  # the next attempt may succeed
        reading.set_exception(error)
