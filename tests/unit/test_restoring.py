"""Taking changes back: what stands there before and after, whatever the person has done before, meanwhile and since."""

import random
from collections.abc import Iterable

import pytest
from tests.conftest import prove

from sanderling.changes.restoring import (
    CHANGED_NEW_FILE,
    GONE,
    NOT_TEXT,
    OTHER_THING,
    SAME_LINES,
    PresentState,
    RestorePlan,
    file_state,
    plan,
    states_needed,
)
from sanderling.changes.states import ABSENT, TOO_LARGE, FileChange, State

pytestmark = pytest.mark.guard

PATH = "/p/file"
LINK = State("link", target="elsewhere")
DIRECTORY = State("directory", 0o755)


class Disk(dict[str, PresentState]):
    """Files in memory, and all bytes that were ever in them."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def file(self, path: str, data: bytes, mode: int = 0o644) -> State:
        state = file_state(data, mode)
        self.kept[state.content] = data
        self[path] = PresentState(state, data)
        return state

    def state(self, path: str) -> State:
        return self.get(path, PresentState(ABSENT)).state

    def content(self, state: State) -> bytes | None:
        return self.kept.get(state.content)

    def plan(self, changes: Iterable[FileChange]) -> RestorePlan:
        changes = list(changes)
        present = {each.path: self.get(each.path, PresentState(ABSENT)) for each in changes}
        return plan(changes, present, self.content)

    def restore(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """Take `changes` back; return what that has changed."""
        made = []
        for path, now, then, _ in self.plan(changes).steps:
            assert self.get(path, PresentState(ABSENT)) == now
            self.put(path, then)
            made.append(FileChange(path, now.state, then.state, "restoring"))
        return made

    def put(self, path: str, then: PresentState) -> None:
        if then.state.kind == "absent":
            self.pop(path, None)
        elif then.data is not None:
            self.file(path, then.data, then.state.mode)
        else:
            self[path] = then


@pytest.fixture
def disk() -> Disk:
    return Disk()


def change(disk: Disk, before: bytes | State, after: bytes | State) -> FileChange:
    """A change that the agent has made; `after` stands there now."""
    states = [
        disk.file(PATH, each) if isinstance(each, bytes) else each for each in (before, after)
    ]
    if not isinstance(after, bytes):
        disk.put(PATH, PresentState(after))
    return FileChange(PATH, states[0], states[1], "use")


def text(words: str) -> bytes:
    return "".join(f"{word}\n" for word in words.split()).encode()


@pytest.mark.parametrize(
    "before, after",
    [
        (text("a b"), text("a c")),
        (ABSENT, text("a")),
        (text("a"), ABSENT),
        (b"\0\xff", b"\0\xfe"),
        (LINK, text("a")),
        (text("a"), LINK),
        (ABSENT, DIRECTORY),
        (DIRECTORY, ABSENT),
        (DIRECTORY, State("directory", 0o700)),
        (b"caf\xe9\r\nend", b"th\xe9\r\n"),
    ],
)
def test_what_nobody_has_touched_is_as_it_was_and_back(before, after, disk):
    made = change(disk, before, after)
    undone = disk.restore([made])
    assert disk.state(PATH) == made.before
    disk.restore(undone)
    assert disk.state(PATH) == made.after


def test_a_mode_is_set_again_and_the_persons_mode_stays(disk):
    plain, executable = disk.file(PATH, b"x", 0o644), disk.file(PATH, b"x", 0o755)
    made = FileChange(PATH, plain, executable, "use")
    assert disk.plan([made]).steps[0].then.state == plain
    disk.file(PATH, b"x", 0o700)
    assert disk.plan([made]).steps == ()
    disk.file(PATH, b"x\ny\n", 0o755)
    assert disk.plan([made]).steps[0].then == PresentState(file_state(b"x\ny\n", 0o644), b"x\ny\n")


@pytest.mark.parametrize(
    "before, after, now, then",
    [
        ("a b c", "a B c", "a B c mine", "a b c mine"),
        ("a b c", "a B c", "mine B c", "mine b c"),
        ("a b c", "a b c d e", "a b mine c d e", "a b mine c"),
        ("a b c", "a c", "a c mine", "a b c mine"),
    ],
)
def test_what_the_person_has_changed_elsewhere_stays(before, after, now, then, disk):
    made = change(disk, text(before), text(after))
    disk.file(PATH, text(now))
    [step] = disk.plan([made]).steps
    assert step.is_merged
    assert step.then.data == text(then)


@pytest.mark.parametrize("ending", [b"\r\n", b"\r\n\xe9\r\n", b""])
def test_line_endings_encodings_and_the_end_of_a_merged_file_stay(ending, disk):
    made = change(disk, b"one\r\ntwo\xe9\r\nthree\r\nfour", b"one\r\nTWO\r\nthree\r\nfour")
    disk.file(PATH, b"one\r\nTWO\r\nthree\r\nfour" + ending)
    [step] = disk.plan([made]).steps or [None]
    if ending:
        assert step.then.data == b"one\r\ntwo\xe9\r\nthree\r\nfour" + ending


def test_what_the_person_did_between_two_changes_of_a_turn_stays(disk):
    first = change(disk, text("a b c d"), text("A b c d"))
    second = change(disk, text("A b mine c d"), text("A b mine c D"))
    [step] = disk.plan([first, second]).steps
    assert step.then.data == text("a b mine c d")


@pytest.mark.parametrize(
    "before, after, now, why",
    [
        (text("a"), text("b"), text("mine"), SAME_LINES),
        (text("a"), text("b"), ABSENT, GONE),
        (text("a"), text("b"), LINK, OTHER_THING),
        (text("a"), text("b"), DIRECTORY, OTHER_THING),
        (text("a"), ABSENT, text("mine"), OTHER_THING),
        (ABSENT, text("a"), text("a mine"), CHANGED_NEW_FILE),
        (ABSENT, LINK, State("link", target="mine"), CHANGED_NEW_FILE),
        (b"\0a\nb\n", b"\0a\nB\n", b"\0mine\nB\n", NOT_TEXT),
    ],
)
def test_what_cannot_be_taken_back_without_loss_is_left_and_named(before, after, now, why, disk):
    made = change(disk, before, after)
    disk.put(
        PATH,
        PresentState(file_state(now, 0o644), now) if isinstance(now, bytes) else PresentState(now),
    )
    assert disk.plan([made]) == RestorePlan((), ((PATH, why),))


@pytest.mark.parametrize("lost", ["before", "after"])
def test_what_was_not_kept_is_left_and_named(lost, disk):
    made = change(disk, text("a"), text("b"))
    gone = State("file", 0o644, 9_000_000, lost=TOO_LARGE)
    made = FileChange(
        PATH,
        gone if lost == "before" else made.before,
        gone if lost == "after" else made.after,
        "use",
    )
    [left] = disk.plan([made]).left
    assert TOO_LARGE in left.why


def test_what_was_dropped_from_the_store_is_left_and_named(disk):
    made = change(disk, text("a"), text("b"))
    del disk.kept[made.before.content]
    [left] = disk.plan([made]).left
    assert "not kept" in left.why


def test_what_is_as_it_was_already_needs_nothing(disk):
    made = change(disk, text("a"), text("b"))
    disk.file(PATH, text("a"))
    assert disk.plan([made]) == RestorePlan(())


def test_directories_come_before_what_is_in_them_and_go_after_it(disk):
    inner = FileChange("/p/new/deep", ABSENT, DIRECTORY, "use")
    outer = FileChange("/p/new", ABSENT, DIRECTORY, "use")
    disk["/p/new"] = disk["/p/new/deep"] = PresentState(DIRECTORY)
    made = FileChange("/p/new/deep/file", ABSENT, disk.file("/p/new/deep/file", b"x"), "use")
    changes = [outer, inner, made]
    paths = [step.path for step in disk.plan(changes).steps]
    assert paths == ["/p/new/deep/file", "/p/new/deep", "/p/new"]
    undone = disk.restore(changes)
    assert not disk
    paths = [step.path for step in disk.plan(undone).steps]
    assert paths == ["/p/new", "/p/new/deep", "/p/new/deep/file"]


def test_only_the_bytes_that_are_needed_are_read(disk):
    made = change(disk, text("a"), text("b"))
    assert list(states_needed([made], made.after)) == [made.before]
    assert list(states_needed([made], file_state(b"c", 0o644))) == [made.before, made.after]


# --- a person, an agent and commands, in any order ---------------------------------------------------------------------


class World:
    """
    Somebody edits, the agent edits and runs commands in turns, and turns are undone, redone and rewound: at random.

    Each line that somebody writes is one that there never was before, and says whose it is.
    """

    PATHS = ("/p/one", "/p/two", "/p/sub/three")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = Disk()
        self.count = 0
        for path in self.PATHS[:2]:
            self.disk.file(path, b"".join(self.line("base") for _ in range(12)))
        self.turns: list[list[FileChange]] = [[]]
        self.undone: list[tuple[int, list[FileChange]]] = []  # turns, and what undoing them changed
        self.live: list[bool] = [True]

    def line(self, whose: str) -> bytes:
        self.count += 1
        return f"{whose} {self.count}\n".encode()

    def lines_of(self, whose: bytes) -> set[bytes]:
        files = (each.data or b"" for each in self.disk.values())
        return {line for data in files for line in data.splitlines() if line.startswith(whose)}

    def edited(self, data: bytes, whose: str) -> bytes:
        lines = data.splitlines(keepends=True)
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(lines))
            end = min(len(lines), at + self.random.choice((0, 0, 1, 2)))
            lines[at:end] = [self.line(whose) for _ in range(self.random.choice((0, 1, 1, 2)))]
        return b"".join(lines)

    def act(self, whose: str) -> None:
        """A change of one path: an edit mostly, else a file comes, goes, or gets another mode."""
        path = self.random.choice(self.PATHS)
        now = self.disk.get(path)
        before = self.disk.state(path)
        what = self.random.random()
        if now is None:
            self.disk.file(path, self.line(whose) + self.line(whose))
        elif what < 0.1:
            del self.disk[path]
        elif what < 0.2:
            self.disk.file(path, now.data or b"", self.random.choice((0o644, 0o755, 0o600)))
        else:
            self.disk.file(path, self.edited(now.data or b"", whose), now.state.mode)
        if whose == "agent" and self.disk.state(path) != before:
            self.turns[-1].append(FileChange(path, before, self.disk.state(path), "use"))

    def undo(self) -> None:
        turn = max((n for n, is_live in enumerate(self.live) if is_live), default=None)
        if turn is not None:
            before = self.lines_of(b"person")
            self.undone.append((turn, self.disk.restore(self.turns[turn])))
            self.live[turn] = False
            assert before <= self.lines_of(b"person")
        self.begin()

    def redo(self) -> None:
        if self.undone:
            turn, changes = self.undone.pop()
            self.disk.restore(changes)
            self.live[turn] = True
        self.begin()

    def undo_and_redo(self) -> None:
        before = dict(self.disk)
        turn = self.random.randrange(len(self.turns))
        self.disk.restore(self.disk.restore(self.turns[turn]))
        assert dict(self.disk) == before

    def rewind(self) -> None:
        first = self.random.randrange(len(self.turns))
        changes = [
            each for n in range(first, len(self.turns)) if self.live[n] for each in self.turns[n]
        ]
        before, everything = self.lines_of(b"person"), dict(self.disk)
        made = self.disk.restore(changes)
        assert before <= self.lines_of(b"person")
        self.disk.restore(made)
        assert dict(self.disk) == everything

    def begin(self) -> None:
        self.turns.append([])
        self.live.append(True)

    def step(self) -> None:
        actions = (
            *[lambda: self.act("person")] * 4,
            *[lambda: self.act("agent")] * 6,
            *[self.begin] * 2,
            self.undo,
            self.redo,
            self.undo_and_redo,
            self.rewind,
        )
        self.random.choice(actions)()


def interleave(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        for _ in range(world.random.randint(5, 40)):
            world.step()


def test_nothing_of_the_persons_is_lost_and_undo_then_redo_is_identity():
    interleave(range(60))


@prove
def test_nothing_of_the_persons_is_lost_in_ten_thousand_interleavings():
    interleave(range(1000, 11_000))


def test_without_the_person_undoing_all_turns_leads_back_to_the_beginning():
    for seed in range(30):
        world = World(seed)
        before = dict(world.disk)
        for _ in range(30):
            world.act("agent") if world.random.random() < 0.8 else world.begin()
        for changes in reversed(world.turns):
            world.disk.restore(changes)
        assert dict(world.disk) == before
