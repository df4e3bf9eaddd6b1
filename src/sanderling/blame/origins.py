"""
The origins of a file's lines: joins its history in the journals of all sessions with their logs.

A journal has no times. So the changes of one session keep their order, and sessions are merged by the times of the tool calls in their
logs. Only logs of sessions that changed the file, or that have the hunks of moved lines, are read.

What was read and computed is kept, within limits, so that the next answer costs what has changed since.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from sanderling.blame.lines import (
    COPIED_CHARS,
    MOVED_CHARS,
    ORIGINAL,
    UNKNOWN,
    Hunk,
    Step,
    StepKind,
    Walk,
    Walked,
    found_again,
    gone_lines,
    is_edited,
    runs_of,
    text_of,
    words_of,
)
from sanderling.blame.turns import SessionTurns, read_turns
from sanderling.changes.editing.lines import lines_of
from sanderling.changes.records import (
    NAME,
    OWN_NAME,
    Changed,
    Changing,
    JournalHeader,
    Record,
    TurnBegun,
    Unchanged,
    decoded,
    read_journal,
)
from sanderling.changes.states import BRINGING, REMEMBERING, FileChange, State
from sanderling.changes.store import MAX_FILE_BYTES, Store
from sanderling.changes.timeline import Timeline, unreviewed
from sanderling.config import Settings
from sanderling.errors import SessionError, UsageError
from sanderling.paths import open_plain, real_path, stamp_of
from sanderling.protocol.blame import Blame, BlamedHunk, BlamedLines, Outcome
from sanderling.providers.models.known import load_models
from sanderling.session.ledger import Prices
from sanderling.session.log import header_of, log_path
from sanderling.session.titles import prompt_title

MAX_SEARCHED_BYTES = 64 << 20
"""Of recorded contents of other files, for lines that may have moved from there."""
MAX_TEXT_LINES = 40
MAX_KEPT_PROJECTS = 2
MAX_KEPT_CHARS, MAX_KEPT_CHANGES, MAX_KEPT_USES = 32 << 20, 50_000, 50_000
"""For each project: in walks, in journals, in logs."""
_NEVER = datetime.min.replace(tzinfo=UTC)


class Made(NamedTuple):
    """A recorded change, and its turn."""

    session_id: str
    turn: str
    change: FileChange
    kind: StepKind


class Origin(NamedTuple):
    """A hunk, and the change that it is part of."""

    hunk: Hunk
    made: Made


class _Journal:
    """The journal of a session: all changes to regular files, by the path in the project."""

    def __init__(self, directory: Path, root: Path, project: str, work_dir: str) -> None:
        self.session_id = directory.name
        self.stamp = _stamp_of_journal(directory)  # from before it is read
        self.project, self.work_dir = project, work_dir
        self.store = Store(directory, root)
        records = read_journal(directory / NAME).records
        self.undone = Timeline(records).undone_changes
        self.unreviewed = frozenset(unreviewed(records, has_commands=True))
        self.by_path: dict[str, list[Made]] = {}
        self.brought: list[str] = []  # the turns that applied the work of a worktree
        for made in _all_made(self.session_id, records):
            if made.kind == "bring" and made.turn not in self.brought:
                self.brought.append(made.turn)
            self.by_path.setdefault(self.in_project(made.change.path), []).append(made)

    @property
    def size(self) -> int:
        return sum(map(len, self.by_path.values()))

    def in_project(self, path: str) -> str:
        """Return the project's path of a file in the session's worktree; other paths as they are."""
        if path.startswith(f"{self.work_dir}/"):
            return f"{self.project}{path.removeprefix(self.work_dir)}"
        return path


def _stamp_of_journal(directory: Path) -> tuple[tuple[int, ...] | None, ...]:
    return stamp_of(directory / NAME), stamp_of(directory / OWN_NAME)


def _all_made(session_id: str, records: Sequence[Record]) -> list[Made]:
    """
    Return the certain changes to regular files, in their order.

    An announced change without an end, for example after kill -9, counts as made: the contents after it show whether it was.
    """
    turn, announced, found = "", dict[str, int](), list[Made | None]()
    for record in records:
        match record:
            case TurnBegun(id):
                turn = id
            case Changing(change):
                announced[change.path] = len(found)
                found.append(Made(session_id, turn, change, _kind(turn, is_edit=True)))
            case Changed(change) if (at := announced.pop(change.path, None)) is not None:
                found[at] = Made(session_id, turn, change, _kind(turn, is_edit=True))
            case Changed(change):
                found.append(Made(session_id, turn, change, _kind(turn, is_edit=False)))
            case Unchanged(path) if (at := announced.pop(path, None)) is not None:
                found[at] = None
            case _:
                pass
    return [each for each in found if each and _is_of_file(each.change) and not each.change.doubt]


def _kind(turn: str, *, is_edit: bool) -> StepKind:
    if turn.startswith(BRINGING):
        return "bring"
    return "edit" if is_edit else "command"


def _prompt_of(turn: str) -> str:
    """Return the id of the turn's prompt; of what :AgentRemember has added, that of the prompt before."""
    if turn.startswith(REMEMBERING):
        return turn.removeprefix(REMEMBERING).rpartition(":")[0]
    return turn


def _is_of_file(change: FileChange) -> bool:
    return {change.before.kind, change.after.kind} <= {"file", "absent"}


class Origins:
    """The recorded origins of lines in one project, or in none if `project` is empty. Every method blocks; any thread may call it."""

    def __init__(self, session_dir: Path, project: str, prices: Prices) -> None:
        self._session_dir = session_dir
        self._root = session_dir.parent / "changes"
        self._project = real_path(project) if project else ""
        self.prices = prices
        self._lock = Lock()
        # Only for the current answer:
        self._journals: dict[str, _Journal] = {}
        self._turns: dict[str, SessionTurns | None] = {}
        # For the next ones, too; the latest used come last:
        self._kept_journals: dict[str, _Journal] = {}
        self._kept_turns: dict[str, SessionTurns] = {}
        self._kept_walks: dict[str, Walk] = {}

    def blame(self, path: str, text: str | None = None) -> Blame:
        """
        Return the origin of each line of the file `path`, or of `text`, its content in an editor.

        Raises:
            UsageError: the file cannot be read.
        """
        path = real_path(path)
        now = self._current(path) if text is None else text_of(text.encode(errors="surrogatepass"))
        with self._lock:
            try:
                return self._blame(path, now)
            finally:
                self._journals, self._turns = {}, {}
                _drop(self._kept_walks, lambda walk: walk.size, MAX_KEPT_CHARS)
                _drop(self._kept_journals, lambda journal: journal.size, MAX_KEPT_CHANGES)
                _drop(self._kept_turns, lambda turns: 1 + len(turns.uses), MAX_KEPT_USES)

    def _blame(self, path: str, now: str) -> Blame:
        lines, project = lines_of(now), self._project
        self._open_journals(path, project)
        for journal in self._journals.values():
            if (in_project := journal.in_project(path)) != path:
                path, project = in_project, journal.project
                self._open_journals(path, project)
                break
        history = self._history(path)
        walked = self._walk(path, history, now)
        origins = [Origin(hunk, history[hunk.step]) for hunk in walked.hunks]
        authors = [*walked.authors]
        own = gone_lines(walked, lines)
        found_again(
            lines,
            authors,
            {at: run for at, run in enumerate(own) if at not in walked.taken_back},
            MOVED_CHARS,
        )
        self._find_elsewhere(path, project, lines, authors, origins)
        return self._shown(lines, authors, origins, walked.taken_back)

    def _find_elsewhere(
        self,
        path: str,
        project: str,
        lines: Sequence[str],
        authors: list[int],
        origins: list[Origin],
    ) -> None:
        """Look for lines that came from other files: all that are older than its changes only in files that are gone, as after a rename."""
        unknown = {
            author
            for author, line in zip(authors, lines, strict=True)
            if author < 0 and words_of(line)
        }
        for wanted, is_gone in ((ORIGINAL, True), (UNKNOWN, False)):
            if wanted not in unknown:
                continue
            found = self._others(path, project, is_gone=is_gone)
            count = len(origins)
            origins += (origin for origin, _ in found)
            gone = {count + at: run for at, (_, run) in enumerate(found)}
            found_again(lines, authors, gone, COPIED_CHARS, (wanted,))

    def _current(self, path: str) -> str:
        try:
            with open_plain(Path(path)) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} is larger than {MAX_FILE_BYTES >> 20} MB, so its changes are not recorded"
            )
        return text_of(data)

    def _walk(self, path: str, history: Sequence[Made], now: str) -> Walked:
        stores = {
            state.content: self._journals[made.session_id].store
            for made in history
            for state in (made.change.before, made.change.after)
            if state.content
        }

        def content(state: State) -> bytes | None:
            with suppress(OSError, KeyError):
                return stores[state.content].get(state.content, is_checked=False)
            return None

        steps = [Step(each.change.before, each.change.after, each.kind) for each in history]
        walk = self._kept_walks.pop(path, None) or Walk()
        walked = walk.to(steps, content, now)
        self._kept_walks[path] = walk
        return walked

    # --- journals ----------------------------------------------------------------------------------------------------------

    def _open_journals(self, path: str, project: str) -> None:
        """Read the journals of the project's sessions, and of others that changed `path`."""
        with suppress(OSError):
            for directory in sorted(self._root.iterdir()):
                if directory.name in self._journals or directory.name.startswith("."):
                    continue
                with suppress(OSError):
                    self._open_journal(directory, path, project)

    def _open_journal(self, directory: Path, path: str, project: str) -> None:
        journal = self._kept_journals.pop(directory.name, None)
        if journal is None or journal.stamp != _stamp_of_journal(directory):
            needle = json.dumps(path)[1:-1].encode()
            with open_plain(directory / NAME) as file:
                header = decoded(first := file.readline())
                is_named = needle in first or needle in file.read()
            if not isinstance(header, JournalHeader):
                return
            work_dir = real_path(header.project)
            its_project = real_path(self._project_of(directory.name) or work_dir)
            if not is_named and project not in (its_project, work_dir):
                return
            journal = _Journal(directory, self._root, its_project, work_dir)
        self._kept_journals[directory.name] = journal
        if (
            project in (journal.project, journal.work_dir)
            or journal.in_project(path) in journal.by_path
        ):
            self._journals[directory.name] = journal

    def _project_of(self, session_id: str) -> str:
        """Return the project of a session, which works there or in a worktree; "" if its log is gone."""
        with suppress(OSError, SessionError):
            log = log_path(self._session_dir, session_id)
            with open_plain(log) as file:
                return header_of(log, file.readline(1 << 16)).project
        return ""

    def _history(self, path: str) -> list[Made]:
        """Return the changes to `path` of all sessions in their order; a fork's copies of its source's changes are left out."""
        by_session = [
            made for journal in self._journals.values() if (made := journal.by_path.get(path))
        ]
        if len(by_session) == 1:  # its log need not be read
            return by_session[0]
        found: list[tuple[datetime, Made]] = []
        for changes in by_session:
            latest = _NEVER
            for made in changes:
                latest = max(latest, self._time(made))
                found.append((latest, made))
        found.sort(key=lambda each: each[0])
        seen = set[tuple[str, str, str, str]]()
        history: list[Made] = []
        for _, made in found:
            change = made.change
            key = (made.turn, change.tool_use_id, change.before.content, change.after.content)
            if key not in seen or not change.tool_use_id:
                history.append(made)
            seen.add(key)
        return history

    def _others(
        self, path: str, project: str, *, is_gone: bool
    ) -> list[tuple[Origin, tuple[str, ...]]]:
        """
        Return the hunks of other files, oldest first, with the lines that are no longer there, up to `MAX_SEARCHED_BYTES`.

        With `is_gone`, only hunks of files that no longer exist.
        """
        paths = {
            other: journal.session_id
            for journal in self._journals.values()
            if project in ("", journal.project)
            for other in journal.by_path
            if other != path and not (is_gone and Path(other).exists())
        }
        room, found = MAX_SEARCHED_BYTES, list[tuple[Origin, tuple[str, ...]]]()
        for other in sorted(paths, key=lambda each: paths[each], reverse=True):
            history = self._history(other)
            room -= sum(each.change.before.size + each.change.after.size for each in history)
            if room < 0:
                break
            try:
                now = self._current(other)
            except UsageError:
                now = ""
            walked = self._walk(other, history, now)
            runs = gone_lines(walked, lines_of(now))
            found += (
                (Origin(hunk, history[hunk.step]), run)
                for hunk, run in zip(walked.hunks, runs, strict=True)
                if any(run)
            )
        found.sort(key=lambda each: each[0].made.session_id)  # an id begins with the time
        return found

    # --- logs --------------------------------------------------------------------------------------------------------------

    def _turns_of(self, session_id: str) -> SessionTurns | None:
        if session_id not in self._turns:
            turns = self._kept_turns.pop(session_id, None)
            if turns is None or not turns.is_current():
                turns = None
                with suppress(SessionError):
                    turns = read_turns(self._session_dir, session_id)
            self._turns[session_id] = turns
            if turns:
                self._kept_turns[session_id] = turns
        return self._turns[session_id]

    def _time(self, made: Made) -> datetime:
        turns = self._turns_of(made.session_id)
        if turns is None:
            return _NEVER
        if made.kind == "bring" and turns.brought:
            number = self._journals[made.session_id].brought.index(made.turn)
            return turns.brought[min(number, len(turns.brought) - 1)]
        use, turn = turns.uses.get(made.change.tool_use_id), turns.turns.get(_prompt_of(made.turn))
        return use.at if use else turn.at if turn else _NEVER

    # --- answers -----------------------------------------------------------------------------------------------------------

    def _shown(
        self,
        lines: Sequence[str],
        authors: Sequence[int],
        origins: Sequence[Origin],
        taken_back: set[int],
    ) -> Blame:
        living: dict[int, list[str]] = {}
        for line, author in zip(lines, authors, strict=True):
            if author >= 0:
                living.setdefault(author, []).append(line)
        wanted = _with_earlier(living, origins)
        numbers = {author: number for number, author in enumerate(wanted)}
        hunks = tuple(
            self._shown_hunk(
                origins[author],
                living.get(author, []),
                is_taken_back=author in taken_back,
                earlier=tuple(
                    numbers[each]
                    for each in dict.fromkeys(origins[author].hunk.replaced)
                    if each in numbers
                ),
            )
            for author in wanted
        )
        return Blame(
            len(lines),
            tuple(
                BlamedLines(first + 1, count, numbers[author])
                for first, count, author in runs_of(authors)
                if author >= 0
            ),
            hunks,
        )

    def _shown_hunk(
        self,
        origin: Origin,
        living: Sequence[str],
        *,
        is_taken_back: bool,
        earlier: tuple[int, ...],
    ) -> BlamedHunk:
        hunk, made = origin
        journal, turns = self._journals[made.session_id], self._turns_of(made.session_id)
        turn = turns.turns.get(_prompt_of(made.turn)) if turns else None
        use = turns.uses.get(made.change.tool_use_id) if turns else None
        shown = BlamedHunk(
            made.session_id,
            _prompt_of(made.turn),
            made.change.path,
            journal.project,
            self._outcome(origin, living, journal, is_taken_back=is_taken_back),
            tuple(hunk.lines[:MAX_TEXT_LINES]),
            tuple(hunk.old[:MAX_TEXT_LINES]),
            len(hunk.lines),
            len(hunk.old),
            earlier=earlier,
        )
        if use:
            shown = replace(shown, model=use.model, child=use.child, child_id=use.child_id)
        if turn and turns:
            cost = turn.tally.cost(self.prices)
            models = [model for model in turn.tally.by_model if model]
            shown = replace(
                shown,
                number=turn.number,
                title="/remember"
                if made.turn.startswith(REMEMBERING)
                else prompt_title(turn.prompt.text),
                prompt=turn.prompt.text,
                at=(use.at if use else turn.at).timestamp(),
                model=shown.model or (models[0] if len(models) == 1 else ""),
                usd=cost.usd,
                is_priced=cost.is_priced and turn.tally.requests > 0,
                agent=turns.agent,
            )
        return shown

    def _outcome(
        self, origin: Origin, living: Sequence[str], journal: _Journal, *, is_taken_back: bool
    ) -> Outcome:
        hunk, made = origin
        if living:
            is_whole = len(living) >= len(hunk.lines) and not any(
                is_edited(line, hunk) for line in living
            )
            if not is_whole:
                return "edited"
            return "unreviewed" if made.change.path in journal.unreviewed else "kept"
        if (made.turn, made.change.path) in journal.undone:
            return "undone"
        if is_taken_back:
            return "rejected"
        return "removed" if hunk.lines else "kept"


def _with_earlier(living: Mapping[int, object], origins: Sequence[Origin]) -> list[int]:
    """Return the authors of living lines, and the authors of the lines that their hunks replaced, and so on."""
    found = dict.fromkeys(sorted(living))
    queue = list(found)
    while queue:
        for author in origins[queue.pop()].hunk.replaced:
            if author >= 0 and author not in found:
                found[author] = None
                queue.append(author)
    return list(found)


K = TypeVar("K")
T = TypeVar("T")


def _drop(kept: dict[K, T], size_of: Callable[[T], int], limit: int) -> None:
    """Remove the least recently used until the rest is at most `limit` large."""
    sizes = {key: size_of(each) for key, each in kept.items()}
    total = sum(sizes.values())
    for key, size in sizes.items():
        if total <= limit:
            break
        del kept[key]
        total -= size


_kept: dict[tuple[Path, str], Origins] = {}
_keeping = Lock()


def origins_in(settings: Settings, project: str) -> Origins:
    """
    Return the origins of lines in `project`.

    Raises:
        ConfigError: the user's own prices are wrong.
    """
    prices = Prices(load_models(settings))
    key = (settings.session_dir, project)
    with _keeping:
        _kept[key] = _kept.pop(key, None) or Origins(*key, prices)
        _kept[key].prices = prices
        _drop(_kept, lambda _: 1, MAX_KEPT_PROJECTS)
        return _kept[key]
