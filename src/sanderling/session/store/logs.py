"""A session's log as a file: where it is, and its lines."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sanderling.errors import SessionError
from sanderling.paths import open_plain
from sanderling.session.records import READABLE_VERSIONS, Header, decoded, is_session_id

SUFFIX = ".jsonl"


def log_path(session_dir: Path, session_id: str) -> Path:
    """
    Where the log of a session is, or would be.

    Raises:
        SessionError: the id is no file name.
    """
    if not is_session_id(session_id):
        raise SessionError(f"'{session_id}' is not a session id")
    return session_dir / f"{session_id}{SUFFIX}"


def output_dir(log: Path) -> Path:
    """Where the session keeps what commands have put out."""
    return log.with_suffix("")


@contextmanager
def opened(log: Path) -> Generator[BinaryIO]:
    """
    The log, to be read.

    Raises:
        SessionError: there is none, or it cannot be read.
    """
    try:
        with open_plain(log) as file:
            yield file
    except FileNotFoundError:
        raise SessionError(f"there is no session {log.stem}") from None
    except OSError as error:
        raise SessionError(f"cannot read {log}: {error.strerror}") from error


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Its lines from the first on, without one at its end that is torn."""
    return (line for line in file if line.endswith(b"\n"))


def header_of(log: Path, line: bytes) -> Header:
    """
    The header that the first line of `log` is.

    Raises:
        SessionError: it is none, or one of a version that cannot be read.
    """
    header = decoded(line)
    if not isinstance(header, Header):
        raise SessionError(f"{log} is not a Sanderling session: its first line is no header")
    if header.version not in READABLE_VERSIONS:
        raise SessionError(
            f"{log} was written by another version of Sanderling; update Sanderling to read it"
        )
    return header
