"""
Authors of lines, without I/O: a walk through the recorded contents of one file, oldest first, to its current text.

Each change brings hunks, and the lines of a hunk are followed by content. So a repository is not needed, and commits, rebases and
squashes make no difference. Between two recorded contents others have changed the file. There a line keeps its author if most of its
words remain, which follows code through a formatter that breaks lines, and a content that the file had before brings its authors back:
after an undo, or when a branch is checked out. Lines whose author is still unknown may have moved; then `found_again` looks for them in
the hunks, from the same file or from another.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, pairwise
from typing import Literal, NamedTuple

import msgspec

from sanderling.changes.editing.lines import lines_of
from sanderling.changes.editing.merge import line_changes
from sanderling.changes.editing.text import decode
from sanderling.changes.states import State
from sanderling.changes.store import name_of
from sanderling.text import common_length

ORIGINAL, UNKNOWN = -1, -2
"""Instead of a hunk's index: the line is older than the first recorded change; it came later, and not in a change of the agent's."""
MOVED_CHARS, COPIED_CHARS = 20, 40
"""Letters and digits that lines must share with a hunk to count as moved in the file, or from another: the numbers of git blame -M -C."""
MAX_PLACES = 20
"""At most so many hunks, the latest, are compared with a line that many have."""
MAX_LATEST = 16
"""The authors of so many latest contents are kept, because an undo, or another buffer, returns to them."""

_WORD = r"\w+"
_FORMAT = r"[\s,;'\"()]+"
"""The characters that formatters add and remove."""

StepKind = Literal["edit", "command", "bring"]
Content = Callable[[State], bytes | None]


class Step(NamedTuple):
    """A recorded change: an edit, a command, which may only have formatted the file, or lines brought from a worktree."""

    before: State
    after: State
    kind: StepKind = "edit"


class Hunk(msgspec.Struct, frozen=True):
    """
    Lines that the step `step` wrote, from `first_line` (from 0) of its result on.

    `old` are the lines that they replaced, and `replaced` the authors of these.
    """

    step: int
    first_line: int
    lines: tuple[str, ...]
    old: tuple[str, ...] = ()
    replaced: tuple[int, ...] = ()


class Walked(NamedTuple):
    """The hunks, the author of each current line, and the hunks that the user took back whole."""

    hunks: list[Hunk]
    authors: list[int]
    taken_back: set[int]


def text_of(data: bytes) -> str:
    """Return a file's text as it is compared: lines end in a newline only."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return decode(data).text
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def walk(steps: Sequence[Step], content: Content, now: str) -> Walked:
    """Return the authors of the lines of `now`, the text that the file has after `steps`; without any, they are unknown."""
    return Walk().to(steps, content, now)


def _text(state: State, content: Content) -> str | None:
    if state.kind == "absent":
        return ""
    data = content(state) if state.kind == "file" else None
    return None if data is None else text_of(data)


def _name_of(text: str) -> str:
    return name_of(text.encode(errors="surrogatepass"))


def _returning(names: Iterable[str]) -> set[str]:
    """Return the contents that the file had more than once."""
    count = Counter(name for name, _ in groupby(names))
    return {name for name, times in count.items() if name and times > 1}


class Walk:
    """
    A walk that can be continued when steps were added: only their contents are read then.

    It begins again if the earlier steps have changed, or if a content returns whose authors were not kept.
    """

    def __init__(self) -> None:
        self._begin(set())

    def _begin(self, returning: set[str]) -> None:
        self.hunks: list[Hunk] = []
        self.authors: list[int] = []
        self.taken_back: set[int] = set()
        self.text: str | None = None
        self._name = ""
        self._steps: list[Step] = []
        self._passed: set[str] = set()
        self._returning = returning
        self._seen: dict[str, list[int]] = {}
        self._latest: deque[str] = deque()

    @property
    def size(self) -> int:
        """About how many characters it keeps."""
        kept = sum(len(line) for hunk in self.hunks for line in hunk.lines)
        return len(self.text or "") + kept + 8 * sum(map(len, self._seen.values()))

    def to(self, steps: Sequence[Step], content: Content, now: str) -> Walked:
        """Continue to the end of `steps`, then to `now`; return who wrote its lines."""
        if not steps:
            return Walked([], [UNKNOWN] * len(lines_of(now)), set())
        name = _name_of(now)
        names = [state.content for step in steps for state in (step.before, step.after)]
        returning = _returning((*names, name))
        is_known = returning & self._passed <= self._seen.keys()
        if self._steps != [*steps[: len(self._steps)]] or not is_known:
            self._begin(returning)
        self._returning |= returning
        for number in range(len(self._steps), len(steps)):
            self._step(number, steps[number], content)
            self._steps.append(steps[number])
        return self._ended(now, name)

    def _step(self, number: int, step: Step, content: Content) -> None:
        before = self.text
        if not self._is_at(step.before):
            before = _text(step.before, content)
            if before is not None:
                self._follow(before, step.before.content)
        after = _text(step.after, content)
        if after is None:
            return
        if before is None or step.kind == "bring":  # what the step itself wrote is unknown
            self._follow(after, step.after.content)
        else:
            self._take(number, after, step.after.content, is_edit=step.kind == "edit")

    def _ended(self, now: str, name: str) -> Walked:
        """Follow the lines to `now`, and return to where the walk was, because the next step may begin elsewhere."""
        kept = ([*self.authors], {*self.taken_back}, self.text, self._name)
        self._follow_to(now, name)
        walked = Walked([*self.hunks], self.authors, self.taken_back)
        self.authors, self.taken_back, self.text, self._name = kept
        return walked

    def _is_at(self, state: State) -> bool:
        """Return whether `text` is the content of `state`, so that it need not be read again."""
        return bool(self._name) and state.content == self._name

    def _follow(self, new: str, name: str) -> None:
        """Follow the lines to `new`, a content that others wrote."""
        self._follow_to(new, name)
        self._remember(new, name)

    def _follow_to(self, new: str, name: str) -> None:
        if self.text is None:
            self.authors = [ORIGINAL] * len(lines_of(new))
        elif new == self.text:
            pass
        elif name in self._seen:
            self.authors = [*self._seen[name]]
        else:
            for first, old, lines in _regions(self.text, new):
                there = self.authors[first : first + len(old)]
                self.authors[first : first + len(old)] = self._followed(old, there, lines)

    def _take(self, step: int, new: str, name: str, *, is_edit: bool) -> None:
        """Follow the lines to `new`, which the agent wrote in `step`."""
        assert self.text is not None
        if not is_edit and name in self._seen:
            self.authors = [*self._seen[name]]
        else:
            for first, old, lines in _regions(self.text, new):
                there = self.authors[first : first + len(old)]
                if not is_edit and _shape(old) == _shape(lines) != "":
                    found = _carried(old, there, lines)
                else:
                    found = [len(self.hunks)] * len(lines)
                    self.hunks.append(Hunk(step, first, tuple(lines), tuple(old), tuple(there)))
                self.authors[first : first + len(old)] = found
        self._remember(new, name)

    def _remember(self, text: str, name: str) -> None:
        self.text, self._name = text, name
        self._passed.add(name)
        if name not in self._seen:
            self._latest.append(name)
        self._seen[name] = [*self.authors]
        if (
            len(self._latest) > MAX_LATEST
            and (oldest := self._latest.popleft()) not in self._returning
        ):
            del self._seen[oldest]

    def _followed(self, old: list[str], authors: list[int], new: list[str]) -> list[int]:
        if len(whose := set(authors)) == 1 and (author := whose.pop()) >= 0:
            hunk = self.hunks[author]
            if hunk.lines == tuple(old) and hunk.old == tuple(new):
                self.taken_back.add(author)
                return [*hunk.replaced]
        return _carried(old, authors, new)


def _regions(old: str, new: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """
    Yield the changed regions from the last to the first: the first line, and the old and the new lines.

    Lines that both texts begin and end with are cut off as text, because a file can be large and most changes are small.
    """
    if old == new:
        return
    start = old.rfind("\n", 0, common_length(old, new)) + 1
    rest = min(len(old), len(new)) - start
    end = min(_common_end(old, new), rest)
    tail = old[len(old) - end :]
    cut = tail.find("\n") + 1  # the tail may begin within a line
    end = end - cut if cut else 0
    lines, new_lines = lines_of(old[start : len(old) - end]), lines_of(new[start : len(new) - end])
    first = old.count("\n", 0, start)
    for change in reversed(line_changes(lines, new_lines)):
        was = lines[change.old.start : change.old.stop]
        yield first + change.old.start, was, new_lines[change.new.start : change.new.stop]


def _common_end(one: str, other: str) -> int:
    """Return how many characters both texts end with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _shape(lines: Iterable[str]) -> str:
    return re.sub(_FORMAT, "", "".join(lines))


def words_of(line: str) -> list[str]:
    return re.findall(_WORD, line)


def _carried(old: Sequence[str], authors: Sequence[int], new: Sequence[str]) -> list[int]:
    """Return the authors of `new`, which replaced `old`: whoever wrote at least half of a line."""
    words, of = _words(old)
    new_words, line_of_word = _words(new)
    votes = [Counter[int]() for _ in new]
    for at, new_at in _kept(words, new_words):
        votes[line_of_word[new_at]][authors[of[at]]] += len(words[at])
    total = [sum(map(len, words_of(line))) for line in new]
    found: list[int] = []
    for vote, chars in zip(votes, total, strict=True):
        author, most = vote.most_common(1)[0] if vote else (UNKNOWN, 0)
        if not chars:  # a bracket belongs to the line before it
            author = found[-1] if found else UNKNOWN
        elif 2 * most < chars:
            author = UNKNOWN
        found.append(author)
    return found


def _words(lines: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return the words of `lines`, and the line of each."""
    found = [(word, number) for number, line in enumerate(lines) for word in words_of(line)]
    return [word for word, _ in found], [number for _, number in found]


def _kept(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    changes = line_changes(old, new)
    begin = (0, 0)
    for change in changes:
        yield from zip(
            range(begin[0], change.old.start), range(begin[1], change.new.start), strict=True
        )
        begin = (change.old.stop, change.new.stop)
    yield from zip(range(begin[0], len(old)), range(begin[1], len(new)), strict=True)


def is_edited(line: str, hunk: Hunk) -> bool:
    """Return whether the user has changed a line of the hunk since: it has words that the hunk lacks."""
    if line in hunk.lines:
        return False
    known = {word for each in hunk.lines for word in words_of(each)}
    return not known.issuperset(words_of(line)) or not words_of(line)


def gone_lines(walked: Walked, lines: Iterable[str]) -> list[tuple[str, ...]]:
    """
    Return the lines of each hunk; a line that is still in the file is "".

    A line that is in its file and in another one was copied, and whoever copied it wrote the copy.
    """
    living: list[Counter[str]] = [Counter() for _ in walked.hunks]
    for line, author in zip(lines, walked.authors, strict=True):
        if author >= 0:
            living[author][line] += 1

    def gone(hunk: Hunk, left: Counter[str]) -> Iterator[str]:
        for line in hunk.lines:
            if left[line]:
                left[line] -= 1
                yield ""
            else:
                yield line

    return [tuple(gone(*each)) for each in zip(walked.hunks, living, strict=True)]


def found_again(
    lines: Sequence[str],
    authors: list[int],
    gone: Mapping[int, Sequence[str]],
    min_chars: int,
    wanted: Collection[int] = (UNKNOWN,),
) -> None:
    """
    Set the authors of lines that are in one of the hunks `gone`, given oldest first, apart from indentation.

    Only lines whose author so far is in `wanted` are looked for.
    """
    runs = {author: [line.strip() for line in run] for author, run in gone.items()}
    places: dict[str, list[tuple[int, int]]] = {}
    for author, run in runs.items():
        for at, line in enumerate(run):
            if line:
                places.setdefault(line, []).append((author, at))
    bare = [
        line.strip() if author in wanted else ""
        for line, author in zip(lines, authors, strict=True)
    ]
    at = 0
    while at < len(lines):
        best, best_author = 0, UNKNOWN
        for author, place in reversed(places.get(bare[at], [])[-MAX_PLACES:]):
            length = _same(bare, at, runs[author], place)
            if length > best:
                best, best_author = length, author
        if sum(map(_weight, bare[at : at + best])) >= min_chars:
            authors[at : at + best] = [best_author] * best
            at += best
        else:
            at += 1


def _same(lines: Sequence[str], at: int, run: Sequence[str], place: int) -> int:
    """Return how many lines from `at` on equal the run's from `place` on; empty lines end both."""
    length = 0
    for line, other in zip(islice(lines, at, None), islice(run, place, None), strict=False):
        if line != other or not line:
            break
        length += 1
    return length


def _weight(line: str) -> int:
    return sum(map(len, words_of(line)))


def runs_of(authors: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of lines with one author: the first line, the number of lines, the author."""
    borders = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(authors)) if a != b), len(authors)]
    for first, end in pairwise(borders):
        if end > first:
            yield first, end - first, authors[first]
