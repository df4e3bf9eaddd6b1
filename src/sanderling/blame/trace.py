"""
Agent Trace records (agent-trace.dev, version 0.1.0): which lines of a commit the agent wrote, with which model.

The lines come from the journals, by content, as everywhere in `blame/`; git only says what a commit adds. The prompts and the names of
files elsewhere do not leave the machine: a record has the commit's own paths, lines, hashes of lines, models, and ids of sessions.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec

from sanderling import __version__
from sanderling.blame.lines import text_of
from sanderling.blame.origins import Origins
from sanderling.changes.editing.lines import lines_of
from sanderling.changes.editing.merge import line_changes
from sanderling.changes.store import MAX_FILE_BYTES
from sanderling.errors import UsageError
from sanderling.json_lines import encoded
from sanderling.protocol.blame import BlamedHunk
from sanderling.state_file import locked
from sanderling.text import printable
from sanderling.worktrees.git import Git

VERSION = "0.1.0"
NOTES = "refs/notes/agent-trace"
TRAILER = "Agent-Trace"
MAX_MODEL_CHARS = 250
_MAKERS = (("claude-", "anthropic"), ("gpt-", "openai"), ("gemini-", "google"))
_RAW = ("--raw", "-z", "-r", "-M", "--no-abbrev", "--no-ext-diff", "--no-textconv")
_REGULAR = ("100644", "100755")


class Contributor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote lines: `mixed` if the user has edited the model's change since."""

    type: Literal["ai", "mixed"]
    model_id: str = ""


class Range(msgspec.Struct, frozen=True):
    """Lines from 1, both included. The hash is of the lines, each with its newline."""

    start_line: int
    end_line: int
    content_hash: str


class Conversation(msgspec.Struct, frozen=True):
    """The lines of one session and contributor. The URL names the session, which only its user's machine has."""

    url: str
    contributor: Contributor
    ranges: tuple[Range, ...]


class TracedFile(msgspec.Struct, frozen=True):
    path: str
    conversations: tuple[Conversation, ...]


class Vcs(msgspec.Struct, frozen=True):
    revision: str
    type: Literal["git"] = "git"


class Tool(msgspec.Struct, frozen=True):
    name: str = "sanderling"
    version: str = __version__


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. Without `vcs` it is about the commit whose message contains it."""

    version: str
    id: str
    timestamp: datetime
    tool: Tool
    files: tuple[TracedFile, ...]
    vcs: Vcs | None = None


class _Changed(NamedTuple):
    """A file that a commit changes; `old` and `new` are blobs, `old` of zeros if the file is new."""

    path: str
    old: str
    new: str


def repository_of(directory: str) -> Git:
    """
    Return git in the top directory of the work tree around `directory`.

    Raises:
        UsageError: there is none.
        WorktreeError: git is not installed.
    """
    top = Git(directory).maybe("rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(f"{directory} is not in the work tree of a git repository")
    return Git(top, directory)


def trace_of_commit(git: Git, origins: Origins, revision: str) -> Record | None:
    """
    Return the record of a commit; None if the agent wrote no line that it adds. A merge adds what its first parent lacks.

    Raises:
        UsageError: there is no such commit.
        WorktreeError: git failed.
    """
    commit = git.maybe(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if commit is None and revision == "HEAD":
        raise UsageError("this branch has no commit yet: make one, or name one of another branch")
    if commit is None:
        raise UsageError(f"there is no commit '{printable(revision)}' here")
    parents = git.line("rev-list", "--parents", "-n1", commit).split()[1:]
    raw = git.run("diff-tree", "--root", "--no-commit-id", *_RAW, *parents[:1], commit)
    return _record(git, origins, raw, Vcs(commit))


def trace_of_index(git: Git, origins: Origins, index: str = "") -> Record | None:
    """
    Return the record of a commit of the index, or of the file `index`; None if the agent wrote no line that it adds.

    Raises:
        WorktreeError: git failed.
    """
    env = {"GIT_INDEX_FILE": str(Path(git.directory, index))} if index else {}
    head = git.maybe("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    base = head or git.line("hash-object", "-t", "tree", "--stdin")
    return _record(git, origins, git.run("diff-index", "--cached", *_RAW, base, "--", env=env))


def as_json(record: Record) -> str:
    """Return the record as one line."""
    return encoded(record).decode()


def add_note(git: Git, record: Record, state_dir: str) -> None:
    """
    Keep the record as the commit's note, instead of an earlier one.

    Raises:
        ConfigError: another process is adding a note, and does not finish.
        UsageError: the ref of the notes leads to another one.
        WorktreeError: git failed.
    """
    assert record.vcs
    text = msgspec.json.format(encoded(record))
    revision = record.vcs.revision
    # Git replaces the whole tree of notes, and does not notice if another process has changed it meanwhile: of eight notes that were
    # added at the same time, four were lost. The lock is not in the repository, where a command of the model's could hold it.
    with locked(Path(state_dir, "trace")):
        # Git would move the other ref, also a branch that the commands of a session in a worktree cannot move.
        if (other := git.maybe("symbolic-ref", "--quiet", NOTES)) is not None:
            raise UsageError(
                f"{NOTES} leads to {printable(other)}: remove it with `git symbolic-ref --delete {NOTES}`"
            )
        git.run("notes", f"--ref={NOTES}", "add", "--force", "--file=-", revision, stdin=text)


def _record(git: Git, origins: Origins, raw: bytes, vcs: Vcs | None = None) -> Record | None:
    changed = [*_changed(raw)]
    texts = _texts(git, {name for each in changed for name in each[1:] if name.strip("0")})
    found = (
        TracedFile(_shown(each.path), _conversations(git, origins, each, texts)) for each in changed
    )
    files = tuple(file for file in found if file.conversations)
    if not files:
        return None
    now = datetime.now(UTC).replace(microsecond=0)
    return Record(VERSION, str(uuid4()), now, Tool(), files, vcs)


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")


def _changed(raw: bytes) -> Iterator[_Changed]:
    """Yield the regular files that a raw difference changes or adds, with the blobs before and after."""
    fields = iter(os.fsdecode(raw).split("\0"))
    for field in fields:
        if not field.startswith(":"):
            continue
        _, mode, old, new, status = field.split(" ")
        path = next(fields)
        if status[0] in "RC":
            path = next(fields)
        if mode in _REGULAR:
            yield _Changed(path, old, new)


def _conversations(
    git: Git, origins: Origins, changed: _Changed, texts: Mapping[str, str]
) -> tuple[Conversation, ...]:
    new, old = texts.get(changed.new), texts.get(changed.old) if changed.old.strip("0") else ""
    if new is None or old is None:
        return ()
    lines = lines_of(new)
    added = {
        number
        for change in line_changes(lines_of(old), lines)
        for number in range(change.new.start, change.new.stop)
    }
    found = origins.blame(f"{git.directory}/{changed.path}", new)
    ranges: dict[tuple[str, Contributor], list[Range]] = {}
    for each in found.lines:
        hunk = found.hunks[each.hunk]
        whole = range(each.first - 1, each.first - 1 + each.count)
        for first, end in _runs(number for number in whole if number in added):
            ranges.setdefault((hunk.session_id, _contributor(hunk)), []).append(
                Range(first + 1, end, _hash(lines[first:end]))
            )
    return tuple(
        Conversation(f"sanderling:{session}", contributor, tuple(its))
        for (session, contributor), its in ranges.items()
    )


def _texts(git: Git, names: Iterable[str]) -> dict[str, str]:
    """Return the texts of blobs by their names, without those of files whose changes are not recorded."""
    wanted = sorted(names)
    sizes = git.run("cat-file", "--batch-check=%(objectsize)", stdin=_lines(wanted)).splitlines()
    small = [
        name
        for name, size in zip(wanted, sizes, strict=True)
        if size.isdigit() and int(size) <= MAX_FILE_BYTES  # a partial clone lacks some: "missing"
    ]
    output, at = git.run("cat-file", "--batch=%(objectsize)", stdin=_lines(small)), 0
    found: dict[str, str] = {}
    for name in small:
        start = output.index(b"\n", at) + 1
        at = start + int(output[at:start])
        data = output[start:at]
        at += 1  # a newline follows
        if b"\0" not in data:
            found[name] = text_of(data)
    return found


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive numbers: the first, and the one after the last."""
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        items = [number for _, number in run]
        yield items[0], items[-1] + 1


def _contributor(hunk: BlamedHunk) -> Contributor:
    return Contributor("mixed" if hunk.outcome == "edited" else "ai", _model_id(hunk.model))


def _model_id(model: str) -> str:
    """Return a model's name with its maker, as models.dev writes it; other names as they are."""
    maker = next((maker for start, maker in _MAKERS if model.startswith(start)), "")
    if re.match(r"o\d", model):
        maker = "openai"
    return printable(f"{maker}/{model}" if maker else model)[:MAX_MODEL_CHARS]


def _hash(lines: Iterable[str]) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return f"sha256:{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
