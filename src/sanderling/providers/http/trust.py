"""
The certificates that are trusted: read once, for all clients of the process.

That takes a tenth of a start, and no interpreter: who begins early has it beside all the rest.
"""

import os
from concurrent.futures import Future
from threading import Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")

_beginning = Lock()
_read: "dict[tuple[tuple[str, str], ...], Future[ssl.SSLContext]]" = {}


def told_variables() -> dict[str, str]:
    """The variables of the environment that have a say in it."""
    return {name: told for name in VARIABLES if (told := os.environ.get(name))}


def begin_reading() -> "Future[ssl.SSLContext]":
    """
    Have the certificates be read in a thread, unless they are, or have been.

    Raises:
        ImportError, RuntimeError: what reads them cannot be loaded, or there is no thread to be had.
    """
    import httpcore2  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import httpx2  # both here: threads that import at the same time hold each other up

    told = tuple(told_variables().items())
    with _beginning:
        if told not in _read:
            reading: Future[ssl.SSLContext] = Future()

            def read() -> None:
                try:
                    reading.set_result(httpx2.create_ssl_context())
                except BaseException as error:  # noqa: BLE001  whoever waits gets it
                    with _beginning:
                        del _read[told]  # it may be mended until the next time
                    reading.set_exception(error)

            Thread(target=read, name="certificates", daemon=True).start()
            _read[told] = reading
        return _read[told]


def read_certificates() -> "ssl.SSLContext":
    """
    Return what is trusted, read by now. Blocks.

    Raises:
        ImportError, OSError, RuntimeError, ValueError: they cannot be read.
    """
    return begin_reading().result()
