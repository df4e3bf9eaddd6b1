"""grep: search files' text."""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, NamedTuple

import msgspec

from sanderling.changes.editing.text import utf_16_hint
from sanderling.errors import ToolError
from sanderling.paths import is_within
from sanderling.text import CONTROL, counted
from sanderling.tools.base import Context, tool
from sanderling.tools.buffers import identify
from sanderling.tools.effects import Effect
from sanderling.tools.elsewhere import missing
from sanderling.tools.links import Links, listed, with_links
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped, rooted
from sanderling.tools.ripgrep import (
    ABORTED,
    Ended,
    Filter,
    each_file,
    failure,
    names_of_type,
    run_ripgrep,
)
from sanderling.tools.texts import fitting
from sanderling.tools.workspace import Workspace

MAX_BYTES = 26_000  # of the matches; the rest of the result stays below 30 KB in all
MAX_LINE_CHARS = 500
BEFORE_MATCH_CHARS = 200
MAX_COUNTED = 50_000
MAX_COUNTED_IN_FILE = 5_000
MAX_COUNTED_BY_NAME = 100  # in a file, with files_only
SHOWN_PER_FILE = 5  # if there are more than `limit`
MAX_DIRECTORIES = 12
MAX_BUFFERS = 20
LEFT_OUT_BYTES = 64 * 1024 * 1024  # when memory runs out, skip larger files

_LINE_BREAK = r"(?<!\\)(?:\\\\)*\\n"


class GrepInput(msgspec.Struct, forbid_unknown_fields=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, description="Regular expression (Rust syntax)")
    ]
    path: Annotated[str, msgspec.Meta(description="File or directory")] = "."
    glob: Annotated[str, msgspec.Meta(description="Only such files: *.py, src/**/*.{ts,tsx}")] = ""
    type: Annotated[str, msgspec.Meta(description="Only files of a ripgrep type: py, rust")] = ""
    context: Annotated[int, msgspec.Meta(ge=0, le=10, description="Lines around a match")] = 0
    ignore_case: bool = False
    literal: Annotated[bool, msgspec.Meta(description="The pattern is plain text")] = False
    files_only: Annotated[bool, msgspec.Meta(description="Names and counts, no lines")] = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Most matches to show")] = 200


# --- rg's output -------------------------------------------------------------------------------------------------------


class Text(msgspec.Struct):
    """Text, or base64 of bytes that are not UTF-8."""

    text: str | None = None
    raw: bytes | None = msgspec.field(default=None, name="bytes")

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        return (self.raw or b"").decode(errors="backslashreplace")

    @property
    def path(self) -> str:
        if self.text is not None:
            return self.text
        return (self.raw or b"").decode(errors="surrogateescape")


class MatchSpan(msgspec.Struct):
    """A match in its line, as a byte offset."""

    start: int


class Stats(msgspec.Struct):
    searches: int = 0


class Data(msgspec.Struct):
    path: Text = msgspec.field(default_factory=Text)
    lines: Text = msgspec.field(default_factory=Text)
    line_number: int | None = None
    submatches: tuple[MatchSpan, ...] = ()
    binary_offset: int | None = None
    stats: Stats = msgspec.field(default_factory=Stats)


class Record(msgspec.Struct):
    type: str
    data: Data


_decode = msgspec.json.Decoder(Record).decode


# --- matches -----------------------------------------------------------------------------------------------------------


class Line(msgspec.Struct, frozen=True):
    number: int
    text: str
    is_match: bool

    def __str__(self) -> str:
        return f"{self.number or '?'}{':' if self.is_match else '-'} {self.text}"


class File:
    """The matches in a file: all are counted, but only those lines are kept that can be shown."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[Line] = []
        self.size = len(path)
        self.matches = 0
        self.is_binary = False

    def add(self, line: Line) -> None:
        self.matches += line.is_match
        if self.size < MAX_BYTES:
            self.lines.append(line)
            self.size += len(line.text)

    def shorten(self) -> None:
        """Keep only the lines that are shown when there are too many matches."""
        numbers = [at for at, line in enumerate(self.lines) if line.is_match]
        if len(numbers) > SHOWN_PER_FILE:
            self.lines = self.lines[: numbers[SHOWN_PER_FILE]]
            self.size = len(self.path) + sum(len(line.text) for line in self.lines)


class Matches:
    """
    The matches of a search, sorted by path.

    Files that sort too late to be shown are only counted, with their matches.
    """

    def __init__(self, files: Filter, limit: int, most_in_file: int) -> None:
        self.files: list[File] = []
        self.file_count = 0
        self.matches = 0
        self.searched = 0  # files; known at the end of the search
        self.is_all_counted = True
        self._filter = files
        self.links: dict[str, str] = {}  # link by its target
        self.counts = dict[str, int]()  # matches by path
        self._limit = limit
        self.most_in_file = most_in_file
        self._size = 0
        self._file: File | None = None

    def take(self, record: bytes) -> bool:
        """Process one record from rg; return False to stop the search."""
        try:
            event = _decode(record)
        except msgspec.DecodeError:  # truncated: a line of megabytes, or one with that many matches
            if self._file and record.startswith(b'{"type":"match"'):
                self._file.add(Line(0, "[a match in a line too long to show]", is_match=True))
            return True
        data = event.data
        match event.type:
            case "begin":
                path = self.links.get(data.path.path, data.path.path)
                self._file = File(path) if self._filter.lets_in(path) else None
            case "match" | "context" if self._file:
                for line in _lines(data, is_match=event.type == "match"):
                    self._file.add(line)
            case "end" if self._file:
                self._file.is_binary = data.binary_offset is not None
                self._finish_file()
            case "summary":
                self.searched += data.stats.searches
            case _:
                pass
        self.is_all_counted &= self.matches < MAX_COUNTED
        return self.matches < MAX_COUNTED

    async def chosen(self, workspace: Workspace, links: Sequence[str], file_type: str) -> list[str]:
        """Return the links that the search includes by name and type."""
        chosen = [link for link in links if self._filter.lets_in(link)]
        if not (chosen and file_type):
            return chosen
        globs = await names_of_type(workspace, file_type)
        return [link for link in chosen if any(glob.matches(link) for glob in globs)]

    async def search(
        self, workspace: Workspace, options: Sequence[str], places: Sequence[str]
    ) -> Ended:
        """Add the matches in `places`, files or directories, with these options of rg."""
        options = ["--json", "--crlf", *options]
        ended = await run_ripgrep(workspace, options, places, self.take)
        self._finish_file()
        self.is_all_counted &= ended.status is not None and not ended.is_cut_off
        return ended

    def _finish_file(self) -> None:
        """Complete the current file: rg reports no more matches in it."""
        file, self._file = self._file, None
        if not file or not file.matches:
            return
        self.file_count += 1
        self.counts[file.path] = file.matches
        self.matches += file.matches
        self.is_all_counted &= file.matches < self.most_in_file
        self.files.append(file)
        self._size += file.size
        if self._size > 4 * MAX_BYTES or len(self.files) > 4 * self._limit:
            self._drop_last()

    def sorted(self) -> list[File]:
        return sorted(self.files, key=lambda file: file.path)

    def _drop_last(self) -> None:
        files, self.files, self._size = self.sorted(), [], 0
        for file in files[: self._limit]:
            if self._size > MAX_BYTES:
                break
            file.shorten()
            self.files.append(file)
            self._size += file.size


def _lines(data: Data, *, is_match: bool) -> Iterator[Line]:
    """Yield the lines of a record: several if a match spans them."""
    text = str(data.lines).removesuffix("\n")
    at = 0
    if is_match and data.submatches and len(text) > MAX_LINE_CHARS:
        at = len(text.encode()[: data.submatches[0].start].decode(errors="ignore"))
    for offset, line in enumerate(text.split("\n")):
        shown = _cut(line.removesuffix("\r"), at)
        yield Line((data.line_number or 0) + offset, shown, is_match)
        at = max(0, at - len(line) - 1)


def _cut(line: str, at: int) -> str:
    """Return the part of a line around character `at`, with control characters escaped."""
    first = max(0, min(at - BEFORE_MATCH_CHARS, len(line) - MAX_LINE_CHARS))
    shown = line[first : first + MAX_LINE_CHARS]
    shown = CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", shown)
    return f"{'…' if first else ''}{shown}{'…' if first + MAX_LINE_CHARS < len(line) else ''}"


# --- the tool ----------------------------------------------------------------------------------------------------------


def _place(args: GrepInput, workspace: Workspace) -> tuple[str, str]:
    directory = workspace.path(args.path)
    return rooted(args.glob, directory) if args.glob else (directory, "")


def _effect(args: GrepInput, workspace: Workspace) -> Effect:
    return Effect("grep", "read", path=_place(args, workspace)[0])


def _title(args: GrepInput, workspace: Workspace) -> str:
    where = workspace.shown(workspace.path(args.path))
    only = ", ".join(filter(None, (args.glob, args.type)))
    return escaped(
        f"'{args.pattern[:80]}'"
        + ("" if where == workspace.project else f" in {where}")
        + (f" ({only})" if only else "")
    )


@tool(GrepInput, effect=_effect, title=_title)
async def grep(args: GrepInput, context: Context) -> Outcome:
    r"""
    Search file contents with ripgrep. Use this instead of grep or rg in bash.

    Results are grouped by file in path order: `12: text` is a match on line 12, `11- text` is context. Long lines are cut around the
    match. `files_only` lists files with their number of matching lines.

    Hidden files are searched. .git, node_modules, virtual environments, binary files, links to directories and files in .gitignore are
    skipped unless `path` is in them. A glob without a slash matches names at any depth, one with a slash paths below `path`. With \n in
    the pattern, matches may span lines. Files are searched as saved on disk.
    """
    workspace = context.workspace
    directory, glob = _place(args, workspace)
    status = workspace.disk.status(directory)
    if status and not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        name = escaped(workspace.shown(directory))
        raise ToolError(f"Search failed: {name} is neither a file nor a directory.")
    files = Filter(workspace.disk, directory, glob, args.type, context.may_read)
    search = partial(_search, args, workspace, directory, files)
    (found, ended, left_out), links = await with_links(workspace, directory, search)
    passed_over = await _search_links(args, workspace, directory, links, found)
    shown = escaped(workspace.shown(directory))
    has_failed = ended.is_late or ended.is_cut_off or (ended.errors and not found.searched)
    if not found.matches and has_failed:
        if ended.is_missing:
            raise await missing(workspace, directory, context.may_read)
        raise failure(ended, workspace, directory)
    if not found.matches:
        count = found.searched
        if args.glob or files.skipped:
            count = await _count(workspace, directory, files) + len(found.links)
        text, summary = _nothing(args, shown, count), "no matches"
        if count == 1:
            text += await _hint(workspace, directory)
        if files.skipped:
            text += (
                f" Not searched: {listed(files.skipped, workspace)}. Pass one as path to search it."
            )
        paths = [directory]
    elif args.files_only:
        text, summary, paths = _names(found, args, workspace)
    else:
        text, summary, paths = _matches(found, args, workspace)
    unsaved = await _unsaved(paths, workspace)
    by_rule = "Files that a rule denies were left out." if context.may_read else ""
    notes = (text, unsaved, left_out, by_rule, passed_over, ended.notes)
    return Outcome(content="\n\n".join(filter(None, notes)), summary=summary)


async def _search(
    args: GrepInput, workspace: Workspace, directory: str, files: Filter
) -> tuple[Matches, Ended, str]:
    """Search; return the matches, how the search ended, and a note on skipped files."""
    most = MAX_COUNTED_BY_NAME if args.files_only else MAX_COUNTED_IN_FILE
    arguments = [*_arguments(args, most), *files.arguments]
    found = Matches(files, args.limit, most)
    ended = await found.search(workspace, arguments, [directory])
    left_out = ""
    if ended.status == ABORTED:  # out of memory: rg holds a whole line, however long
        arguments.append(f"--max-filesize={LEFT_OUT_BYTES}")
        left_out = f"Files of more than {LEFT_OUT_BYTES >> 20} MB were left out: one has a line too long to search."
        found = Matches(files, args.limit, most)
        ended = await found.search(workspace, arguments, [directory])
    return found, ended, left_out


async def _search_links(
    args: GrepInput, workspace: Workspace, directory: str, links: Links, found: Matches
) -> str:
    """
    Search the targets of links that were not searched under their own names; return a note on links that were not followed.

    The permission covers `directory`: a link that leads out of both it and the project is not followed.
    """
    disk, top = workspace.disk, workspace.disk.real_path(directory)
    leading_out: list[str] = []
    for link in await found.chosen(workspace, links.files, args.type):
        real = disk.real_path(link)
        if is_within(real, top):
            if directory + real[len(top) :] not in found.counts:
                found.links.setdefault(real, link)
        elif workspace.is_inside(link):
            found.links.setdefault(real, link)
        else:
            leading_out.append(link)
    notes = [links.note(workspace, directory, is_found=found.matches > 0)]
    if found.links and found.is_all_counted:
        arguments = _arguments(args, found.most_in_file)
        ended = await found.search(workspace, arguments, list(found.links))
        notes.append(ended.notes)
    if leading_out:
        notes.append(
            f"Links out of the project were not followed: {listed(leading_out, workspace)}."
        )
    return "\n".join(filter(None, notes))


def _arguments(args: GrepInput, most: int) -> list[str]:
    is_multiline = "\n" in args.pattern or (
        not args.literal and re.search(_LINE_BREAK, args.pattern)
    )
    return [
        f"--max-count={most}",
        f"--context={0 if args.files_only else args.context}",
        *(["--ignore-case"] if args.ignore_case else []),
        *(["--fixed-strings"] if args.literal else []),
        *(["--multiline"] if is_multiline else []),
        f"--regexp={args.pattern}",
    ]


async def _count(workspace: Workspace, directory: str, files: Filter) -> int:
    count = 0

    def take(_path: str) -> None:
        nonlocal count
        count += 1

    ended = await each_file(workspace, directory, files, take)
    if ended.is_late or ended.is_cut_off:
        raise failure(ended, workspace, directory)
    return count


async def _hint(workspace: Workspace, path: str) -> str:
    """Return why a search of this one file cannot match, if it is UTF-16."""
    with suppress(OSError):
        return utf_16_hint((await (await workspace.files()).load(path, 0)).data)
    return ""


def _nothing(args: GrepInput, shown: str, count: int) -> str:
    if not count:
        only = " and ".join(filter(None, (args.glob, args.type and f"type {args.type}")))
        which = f"match {only}" if only else "are not ignored"
        return f"No files were searched: none in {shown} {which}."
    return f"No matches for {escaped(args.pattern)} in {counted(count, 'file')}."


class _ShownMatches(NamedTuple):
    blocks: list[str]
    paths: list[str]
    matches: int


def _blocks(
    found: Matches, args: GrepInput, workspace: Workspace, most_in_file: int
) -> _ShownMatches:
    """Return the matches by file, as many as fit."""
    blocks: list[str] = []
    paths: list[str] = []
    room, shown = MAX_BYTES, 0
    for file in found.sorted():
        lines = [escaped(workspace.shown(file.path)) + (" (binary)" if file.is_binary else "")]
        room -= len(lines[0].encode()) + 2
        last = before = 0
        for line in file.lines:
            text = str(line)
            room -= len(text.encode()) + 4
            is_enough = line.is_match and before == most_in_file
            if room < 0 or is_enough or (line.is_match and shown == args.limit):
                break
            if args.context and last and line.number > last + 1:
                lines.append("--")
            lines.append(text)
            shown += line.is_match
            before += line.is_match
            last = line.number
        if last or len(lines) > 1:
            if before < file.matches and most_in_file < args.limit:
                lines.append(f"({file.matches - before:,} more)")
            blocks.append("\n".join(lines))
            paths.append(file.path)
        if room < 0 or shown == args.limit:
            break
    return _ShownMatches(blocks, paths, shown)


def _matches(found: Matches, args: GrepInput, workspace: Workspace) -> tuple[str, str, list[str]]:
    """Return the matches by file, a summary for the screen, and the paths shown."""
    summary = f"{_matches_of(found)} in {counted(found.file_count, 'file')}"
    head = f"{summary}:"
    shown = _blocks(found, args, workspace, args.limit)
    if shown.matches < found.matches or not found.is_all_counted:
        limited = ""
        if found.file_count > 1:
            shown = _blocks(found, args, workspace, min(SHOWN_PER_FILE, args.limit))
            limited = f" At most {SHOWN_PER_FILE} per file are shown."
        head = (
            f"The first {shown.matches:,} of {summary}. Narrow the pattern, or use path, glob or type to see others.{limited}"
            f"{_by_directory(found, workspace)}"
        )
    return "\n\n".join([head, *shown.blocks]), summary, shown.paths


def _names(found: Matches, args: GrepInput, workspace: Workspace) -> tuple[str, str, list[str]]:
    """Return the files with their counts, and the same summary and paths as `_matches`."""
    files = found.sorted()[: args.limit]
    counts = (
        f"{escaped(workspace.shown(file.path))}: {file.matches}{'+' * (file.matches >= MAX_COUNTED_BY_NAME)}"
        for file in files
    )
    names = fitting(counts, MAX_BYTES)
    summary = f"{counted(found.file_count, 'file')} with {_matches_of(found)}"
    head = f"{summary}:"
    if len(names) < found.file_count:
        head = (
            f"The first {len(names):,} of {summary}. Narrow the pattern, or use path, glob or type to see others."
            f"{_by_directory(found, workspace)}"
        )
    return "\n".join([head, *names]), summary, [file.path for file in files[: len(names)]]


def _by_directory(found: Matches, workspace: Workspace) -> str:
    """Return the number of matches in each directory below their common parent; empty if there is only one."""
    top = os.path.commonpath([os.path.dirname(path) for path in found.counts])
    matches, files = Counter[str](), Counter[str]()
    for path, count in found.counts.items():
        name, is_below, _ = os.path.relpath(path, top).partition("/")
        directory = os.path.join(top, name) + "/" if is_below else top + "/"
        matches[directory] += count
        files[directory] += 1
    if len(matches) < 2:  # noqa: PLR2004 - nothing to choose from
        return ""
    most = sorted(matches, key=lambda directory: (-matches[directory], directory))
    counts = [
        f"{_directory(directory, workspace)} {matches[directory]:,} in {counted(files[directory], 'file')}"
        for directory in most[:MAX_DIRECTORIES]
    ]
    if others := most[MAX_DIRECTORIES:]:
        counts.append(
            f"{len(others):,} other directories {sum(matches[each] for each in others):,}"
        )
    return f"\nBy directory: {', '.join(counts)}"


def _directory(path: str, workspace: Workspace) -> str:
    return escaped(workspace.shown(path)) or "./"


def _matches_of(found: Matches) -> str:
    count = "1 match" if found.matches == 1 else f"{found.matches:,} matches"
    return count if found.is_all_counted else f"at least {count}"


async def _unsaved(paths: list[str], workspace: Workspace) -> str:
    """Return a note on files whose unsaved text was not searched."""
    if not workspace.editor:
        return ""
    unsaved: list[str] = []
    try:
        for path in paths[:MAX_BUFFERS]:
            identity = await identify(workspace, path)
            buffer = identity and await workspace.editor.buffer(path, identity)
            if buffer and buffer.is_modified:
                unsaved.append(escaped(workspace.shown(path)))
    except ToolError:  # the editor waits in a prompt; do not wait for it
        return ""
    names = ", ".join(unsaved)
    return f"Not searched: unsaved changes in the editor, in {names}" if names else ""
