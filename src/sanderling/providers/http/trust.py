"""
The certificates that are trusted: read once, for all clients of the process.

That takes a tenth of a start, and no interpreter: who begins early has it beside all the rest.
"""

import os
import ssl
from _thread import start_new_thread
from concurrent.futures import Future
from pathlib import Path

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
READ_S = 30.0

_read: dict[object, Future[ssl.SSLContext]] = {}


def told_variables() -> dict[str, str]:
    """The variables of the environment that have a say in it."""
    return {name: told for name in VARIABLES if (told := os.environ.get(name))}


def begin_reading() -> None:
    """
    Have the certificates be read in a thread, unless they are, or have been.

    Raises:
        ImportError, RuntimeError: what reads them cannot be loaded, or there is no thread to be had.
    """
    import httpcore2  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import httpx2  # noqa: F401  # pyright: ignore[reportUnusedImport]

    # Both are loaded here: threads that import at the same time hold each other up.
    place, mine = _place(), Future[ssl.SSLContext]()
    if _reading(place, mine) is mine:
        try:
            # A `Thread` would wait for its own start, for ever if there is no memory for it.
            start_new_thread(_fill, (place, mine))
        except RuntimeError:
            _read.pop(place, None)
            raise


def read_certificates() -> ssl.SSLContext:
    """
    Return what is trusted, read by now. Blocks.

    Raises:
        ImportError, MemoryError, OSError, ValueError: they cannot be read.
    """
    place, mine = _place(), Future[ssl.SSLContext]()
    reading = _reading(place, mine)
    if reading is mine:
        _fill(place, mine)
    return reading.result(READ_S)


def _reading(place: object, mine: Future[ssl.SSLContext]) -> Future[ssl.SSLContext]:
    """The reading of `place` that there is, else `mine`. Of another place none is kept: a log of TLS keys changes all the time."""
    if place not in _read:
        _read.clear()
    return _read.setdefault(place, mine)


def _place() -> object:
    """The files that are named, as they are now."""
    return tuple((*named, _changed_at(named[1])) for named in told_variables().items())


def _changed_at(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


def _fill(place: object, reading: Future[ssl.SSLContext]) -> None:
    try:
        import httpx2

        reading.set_result(httpx2.create_ssl_context())
    except BaseException as error:  # noqa: BLE001  whoever waits gets it
        _read.pop(place, None)  # it may be mended until the next time
        reading.set_exception(error)
