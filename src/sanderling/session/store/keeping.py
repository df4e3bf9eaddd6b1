"""Rename, delete and fork sessions that are not open."""

import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import chain
from pathlib import Path

from msgspec import UNSET

from sanderling.errors import SessionError
from sanderling.paths import replacing
from sanderling.protocol.messages import Message, Prompt, ToolResult, ToolUse
from sanderling.session.codec import Codec
from sanderling.session.log import changes_dir, log_path, opened, output_dir, records_of
from sanderling.session.records import (
    LOG_VERSION,
    Header,
    LoggedMessage,
    LoggedPrompt,
    LoggedState,
    LoggedTurnEnd,
    Record,
    StateKey,
)
from sanderling.session.session import Session

_FORK = r"(.*) \(fork(?: (\d+))?\)"
OWN_STATES = ("waiting", "grants")
"""States that a fork does not inherit: pending prompts would be sent twice, and grants were given to another session."""


def rename(session_dir: Path, session_id: str, title: str) -> None:
    """
    Set a session's title; a blank title restores the default. The session's time of change stays the same.

    Raises:
        SessionError: the session does not exist or is open, or its log cannot be read or written.
    """
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        status = os.fstat(file.fileno())
    session = Session.open(session_dir, session_id, "")
    try:
        session.keep_state("title", " ".join(title.split()))
        if session.log.write_error:
            raise SessionError(f"cannot rename the session: {session.log.write_error}")
    finally:
        session.close()
    with suppress(OSError):
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


def delete(session_dir: Path, session_id: str) -> None:
    """
    Delete a session's log, the outputs of its commands, and its journal of changes.

    Raises:
        SessionError: the session does not exist, is open, or cannot be deleted.
    """
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise SessionError(
                "the session is open, here or in another Neovim: close it first"
            ) from None
        try:
            for directory in (output_dir(log), changes_dir(log)):
                with suppress(FileNotFoundError):
                    shutil.rmtree(directory)
            log.unlink()
        except OSError as error:
            raise SessionError(f"cannot remove {error.filename}: {error.strerror}") from error


def fork(
    session_dir: Path,
    source_id: str,
    new_id: str,
    prompt_id: str = "",
    *,
    is_before: bool = False,
    before_use: str = "",
    parent: str = "",
    is_read_only: bool = False,
    worktree: str = "",
    states: Iterable[LoggedState] = (),
) -> Prompt | None:
    """
    Copy a session, which may be open, into the new session `new_id`, up to the end of the turn of `prompt_id`.

    Without a `prompt_id`, copy all of it. With `is_before`, stop before the prompt and return it; with `before_use`, before the message with
    this tool call. A child has a `parent`, and its access. Damaged lines of the source are left out. Long outputs of commands are not
    copied. The copy works in `worktree`, or without it where the source does: in its worktree or in the project. It has `states` instead of
    the source's.

    Raises:
        SessionError: the session or prompt does not exist, `new_id` is taken, or a log cannot be read or written.
    """
    source, target = log_path(session_dir, source_id), log_path(session_dir, new_id)
    if target.exists():
        raise SessionError(f"there is a session {new_id} already")
    cut = _Cut(prompt_id, is_before=is_before, before_use=before_use)
    with opened(source) as file:
        header, records = records_of(source, file)
        new = Header(
            LOG_VERSION,
            new_id,
            header.project,
            forked_from=source_id,
            parent=parent or UNSET,
            access="ro" if is_read_only else UNSET,
            worktree=worktree or header.worktree,
        )
        try:
            with replacing(target) as fork_file:
                kept = chain((new,), cut.kept(records), states)
                fork_file.writelines(map(Codec().encoded, kept))
                if prompt_id and not cut.prompt:
                    raise SessionError(f"there is no prompt {prompt_id} in the session {source_id}")
        except OSError as error:
            raise SessionError(f"cannot write {target}: {error.strerror}") from error
    if not parent:
        _name_fork(session_dir, new_id)
    return cut.prompt if is_before else None


def _name_fork(session_dir: Path, session_id: str) -> None:
    session = Session.open(session_dir, session_id, "")
    try:
        if title := session.title:
            fork = re.fullmatch(_FORK, title)
            own = f"{fork[1]} (fork {int(fork[2] or 1) + 1})" if fork else f"{title} (fork)"
            session.keep_state("title", own)
    finally:
        session.close()


class _Cut:
    """Selects the records of a fork. `prompt` is the prompt that was searched for, once it is found."""

    def __init__(self, prompt_id: str, *, is_before: bool, before_use: str = "") -> None:
        self._before_use = before_use
        self.prompt: Prompt | None = None
        self._prompt_id = prompt_id
        self._is_before = is_before and bool(prompt_id)

    def kept(self, records: Iterator[Record]) -> Iterator[Record]:
        own = (*OWN_STATES, "role", "mode", "title") if self._before_use else OWN_STATES
        for record in _carried(records, own):
            match record:
                case LoggedMessage(message=message) if self._before_use and self._ends_at(message):
                    return
                case LoggedMessage(prompt=Prompt()) if self.prompt:
                    return  # the next turn; this one has no end
                case LoggedMessage() if not self.prompt:
                    self.prompt = self._find(record)
                    if self.prompt and self._is_before:
                        yield from _results_before(record)
                        return
                case _:
                    pass
            yield record
            if self.prompt and isinstance(record, LoggedTurnEnd):
                return

    def _ends_at(self, message: Message) -> bool:
        uses = (each.id for each in message.content if isinstance(each, ToolUse))
        return self._before_use in uses

    def _find(self, record: LoggedMessage) -> Prompt | None:
        prompts = (record.prompt, *record.steered)
        return next((each for each in prompts if each and each.id == self._prompt_id), None)


def _carried(records: Iterator[Record], own: Container[StateKey]) -> Iterator[Record]:
    """
    Yield the records that a fork inherits, without its `own` states.

    The log records which notes were sent before the message that contains them. Here that record comes after the message, or a fork that
    ends between the two would never send the notes.
    """
    sent_state: list[Record] = []
    for record in records:
        match record:
            case LoggedPrompt():
                pass
            case LoggedState(key=key) if key in own:
                pass
            case LoggedState(key="told"):
                sent_state = [record]
            case LoggedMessage():
                yield record
                yield from sent_state
                sent_state = []
            case _:
                yield record


def _results_before(record: LoggedMessage) -> Iterator[Record]:
    """Yield the message without the prompts sent during the turn: it has the results of the tool calls before them."""
    results = tuple(block for block in record.message.content if isinstance(block, ToolResult))
    if results:
        yield LoggedMessage(Message("user", results), at=record.at)
