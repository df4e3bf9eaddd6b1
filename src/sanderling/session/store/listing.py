"""
The list of sessions.

There may be hundreds of logs of up to 20 MB, and the user waits for the list. So only the header, the first prompt and the last title of
each log are decoded. A search decodes the messages, too, and skips all other lines.
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sanderling.errors import UsageError
from sanderling.paths import open_plain
from sanderling.protocol.messages import TextBlock
from sanderling.protocol.requests import SessionInfo
from sanderling.session.codec import Codec
from sanderling.session.log import SUFFIX, log_path, opened, whole_lines
from sanderling.session.records import (
    Header,
    LoggedMessage,
    LoggedState,
    is_session_id,
)
from sanderling.session.titles import first_title
from sanderling.text import shortened, visible_prose

MAX_EXCERPT_CHARS = 120
MAX_SHOWN_CHARS = 4000  # of the last prompt, and of the answer to it
CHUNK_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 16  # a foreign file may be one long line
SAID = (b'{"type":"message",', b'{"type":"prompt",')  # how the lines with messages begin
_FLOCK = r"FLOCK +ADVISORY +WRITE +\S+ +\S+:(\d+) "
TITLE = b'\n{"type":"state","key":"title",'


def list_sessions(
    session_dir: Path, project: str, text: str, *, is_in_editor: bool = False
) -> list[SessionInfo]:
    """
    Return the sessions of `project`, or of all projects if that is empty, the most recently changed first.

    A `text` selects sessions in which the user or the model wrote it, in any case, and adds an excerpt. Files that are not session logs
    or cannot be read are left out. So are, if this `is_in_editor`, sessions of other frontends, because scripts create many. Which
    sessions are open is known only on Linux.
    """
    wanted, locked = _pattern(text), _locked_inodes()
    infos = [
        info
        for session_id in _session_ids(session_dir)
        if (info := _info(log_path(session_dir, session_id), project, wanted, locked, is_in_editor))
    ]
    infos.sort(key=lambda info: info.changed_at, reverse=True)
    return infos


def newest_session(session_dir: Path, project: str) -> str:
    """
    Return the id of the project's most recently changed session that is not a child of another.

    Raises:
        UsageError: the project has no session.
    """
    for info in list_sessions(session_dir, project, ""):
        if not info.parent:
            return info.id
    raise UsageError(f"there is no session of {project} to continue")


def last_exchange(session_dir: Path, session_id: str) -> str:
    """
    Return the last prompt of a session and the answer to it as Markdown, both shortened.

    Raises:
        SessionError: the session does not exist or its log cannot be read.
    """
    prompt, answer = "", list[str]()
    with opened(log_path(session_dir, session_id)) as file:
        for said in _said(file):
            if said.prompt:
                prompt, answer = said.prompt.text, []
            elif said.message.role == "assistant":
                answer += filter(str.strip, _texts(said))
    parts = (("You", prompt), ("Sanderling", "\n\n".join(answer)))
    shown = (
        f"## {who}\n\n{shortened(text, MAX_SHOWN_CHARS)}\n" for who, text in parts if text.strip()
    )
    return visible_prose("\n".join(shown))


def _locked_inodes() -> set[int]:
    """Return the inodes of locked files. Trying the locks instead would fail a process that opens a session at this moment."""
    locked = set[int]()
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():  # proc_locks(5)
            found = re.search(_FLOCK, line)
            if found:
                locked.add(int(found[1]))
    return locked


def _session_ids(session_dir: Path) -> list[str]:
    try:
        names = [path.name for path in session_dir.iterdir()]
    except OSError:
        return []
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return [stem for stem in stems if is_session_id(stem)]


def _info(
    log: Path,
    project: str,
    wanted: re.Pattern[str] | None,
    locked: Collection[int],
    is_in_editor: bool,
) -> SessionInfo | None:
    with suppress(OSError), open_plain(log) as file:
        header = Codec().decoded(file.readline(MAX_HEADER_BYTES))
        if not isinstance(header, Header) or project not in {"", header.project}:
            return None
        if is_in_editor and header.face:
            return None
        excerpt = _excerpt(file, wanted) if wanted else ""
        if wanted and not excerpt:
            return None
        status = os.fstat(file.fileno())
        title = _last_title(file, status.st_size) or _first_title(file)
        return SessionInfo(
            log.stem,
            header.project,
            title,
            status.st_mtime,
            status.st_size,
            status.st_ino in locked,
            excerpt,
            header.parent or "",
        )
    return None


def _last_title(file: BinaryIO, size: int) -> str:
    """
    Return the title that was set last, or "".

    Reads backwards, in pieces. Mapping the file would be simpler, but another process may open the session and truncate a torn record,
    and access to a mapped page that is gone kills this process.
    """
    end = size
    while end:
        start = max(0, end - CHUNK_BYTES)
        data = os.pread(file.fileno(), end - start + len(TITLE) - 1, start)
        found = data.rfind(TITLE)
        if found < 0:
            end = start
            continue
        end = start + found
        file.seek(end + 1)
        record = Codec().decoded(file.readline())
        if isinstance(record, LoggedState):
            return record.value if isinstance(record.value, str) else ""
    return ""


def _first_title(file: BinaryIO) -> str:
    return first_title(said.prompt.text for said in _said(file) if said.prompt)


def _said(file: BinaryIO) -> Iterator[LoggedMessage]:
    file.seek(0)
    codec = Codec()
    for line in whole_lines(file):
        record = codec.decoded(line) if line.startswith(SAID) else None
        if isinstance(record, LoggedMessage):
            yield record


def _texts(said: LoggedMessage) -> Iterator[str]:
    """Yield the texts to search. User messages also contain Sanderling's notes, so the prompts are searched instead."""
    if said.message.role == "user":
        yield from (prompt.text for prompt in (said.prompt, *said.steered) if prompt)
    else:
        yield from (block.text for block in said.message.content if isinstance(block, TextBlock))


def _pattern(text: str) -> re.Pattern[str] | None:
    """Return a pattern for the words of `text` with any space between them, or None."""
    words = r"\s+".join(map(re.escape, text.split()))
    return re.compile(words, re.IGNORECASE) if words else None


def _excerpt(file: BinaryIO, wanted: re.Pattern[str]) -> str:
    """Return the text around the first match, or an empty string."""
    for said in _said(file):
        for text in _texts(said):
            if found := wanted.search(text):
                return _around(text, found.start(), found.end())
    return ""


def _around(text: str, start: int, end: int) -> str:
    room = MAX_EXCERPT_CHARS - 2  # for the ellipses
    first = max(0, min(start - (room - (end - start)) // 2, start))
    last = first + room
    before, after = "…" * (first > 0), "…" * (last < len(text))
    return before + " ".join(text[first:last].split()) + after
