"""Who wrote each line, from recorded contents: against an oracle under random edits, and after what is done to code."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from sanderling.blame.lines import (
    COPIED_CHARS,
    MOVED_CHARS,
    ORIGINAL,
    UNKNOWN,
    Step,
    StepKind,
    Walk,
    Walked,
    found_again,
    gone_lines,
    is_edited,
    text_of,
    walk,
)
from sanderling.changes.states import ABSENT, TOO_LARGE, State
from sanderling.changes.store import name_of


class Story:
    """Contents of a file, written by the agent and by others in turn."""

    def __init__(self, first: str | None = None) -> None:
        self.steps: list[Step] = []
        self.contents: dict[str, bytes] = {}
        self.now = first
        self.lost: set[str] = set()

    def state(self, text: str | None) -> State:
        if text is None:
            return ABSENT
        data = text.encode()
        self.contents[name_of(data)] = data
        return State("file", 0o644, len(data), name_of(data))

    def agent(self, text: str | None, kind: StepKind = "edit") -> "Story":
        self.steps.append(Step(self.state(self.now), self.state(text), kind))
        self.now = text
        return self

    def user(self, text: str | None) -> "Story":
        self.now = text
        return self

    def walked(self) -> Walked:
        return walk(self.steps, self.content, self.now or "")

    def content(self, state: State) -> bytes | None:
        return self.contents.get(state.content)

    def authors(self) -> list[int]:
        """The steps that wrote the lines."""
        walked = self.walked()
        return [each if each < 0 else walked.hunks[each].step for each in walked.authors]


def text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


EDIT = st.tuples(
    st.sampled_from(["agent", "command", "user", "back"]),
    st.integers(0, 12),  # the first line
    st.integers(0, 4),  # lines removed
    st.integers(0, 4),  # lines added
)


@given(st.integers(0, 8), st.lists(EDIT, max_size=12), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_each_line_has_the_author_that_wrote_it_under_random_edits(size, edits, has_end):
    number = 0

    def new(author, count):
        nonlocal number
        lines = [(f"word{number + n}", author) for n in range(count)]
        number += count
        return lines

    def joined(lines):
        whole = text(*(line for line, _ in lines))
        return whole if has_end else whole.removesuffix("\n")

    lines = new(ORIGINAL, size)
    story = Story(joined(lines))
    story.agent(joined(lines))  # the content is known from here on
    known = [lines]
    for who, place, removed, added in edits:
        first = min(place, len(lines))
        if who == "back":
            lines = known[first % len(known)]
            story.user(joined(lines)).agent(joined(lines))  # it is recorded
            continue
        author = UNKNOWN if who == "user" else len(story.steps)
        lines = [*lines[:first], *new(author, added), *lines[first + removed :]]
        if who == "user":
            story.user(joined(lines))
        else:
            story.agent(joined(lines), "edit" if who == "agent" else "command")
            known.append(lines)
    assert story.authors() == [author for _, author in lines]


STEPS = st.lists(
    st.tuples(st.sampled_from(["edit", "command", "bring", "user"]), st.integers(0, 5)), max_size=30
)
CONTENTS = [
    text(*(f"line {n // 2} of {n}" for n in range(3 * k, 4 * k + 3)), "the end") for k in range(6)
]


@given(STEPS, st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_walk_that_is_continued_finds_what_a_new_one_finds(steps, data):
    story, kept = Story(CONTENTS[0]), Walk()
    for kind, which in steps:
        if kind == "user":
            story.user(CONTENTS[which])
        else:
            story.agent(CONTENTS[which], kind)
        if data.draw(st.booleans()):
            assert kept.to(story.steps, story.content, story.now) == story.walked()


def test_a_continued_walk_reads_only_new_contents():
    story, kept, read = Story("a\n"), Walk(), []

    def content(state):
        read.append(state.content)
        return story.content(state)

    for number in range(40):
        story.agent(f"a\nline {number}\n")
        kept.to(story.steps, content, story.now)
    assert len(read) == 41
    undone = story.contents[story.steps[-3].after.content].decode()
    assert kept.to(story.steps, content, undone).authors == [ORIGINAL, 37]
    assert len(read) == 41


def test_a_line_that_the_user_edits_stays_the_agents_and_counts_as_edited():
    story = Story("").agent(text("total = price * count", "return total"))
    walked = story.user(text("total = price * amount", "return total")).walked()
    [hunk] = walked.hunks
    assert walked.authors == [0, 0]
    assert [is_edited(line, hunk) for line in story.now.splitlines()] == [True, False]


def test_a_line_that_the_user_writes_anew_is_not_the_agents():
    story = Story(text("a")).agent(text("a", "self.limit = compute(limit)"))
    assert story.user(text("a", "raise ValueError(name)")).authors() == [ORIGINAL, UNKNOWN]


def test_reindented_lines_keep_their_author():
    story = Story(text("def f():", "    pass")).agent(text("def f():", "    first()", "    pass"))
    story.user(text("class A:", "    def f():", "        first()", "        pass"))
    assert story.authors() == [UNKNOWN, ORIGINAL, 0, ORIGINAL]


LONG = "result = compute(first_argument, second_argument, {'name': other_value}, third_argument, fourth_argument, 'last one')"


@pytest.mark.parametrize("by_agent", [False, True])
def test_a_formatter_that_breaks_lines_takes_no_line_from_its_author(tmp_path: Path, by_agent):
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    before = text("import os", "", "", "def g( ):", "    return os.getcwd( )")
    story = Story(before).agent(text("import os", LONG, "def g( ):", "    return os.getcwd( )"))
    file = tmp_path / "a.py"
    file.write_text(story.now)
    subprocess.run([ruff, "format", "--isolated", file], check=True, capture_output=True)
    formatted = file.read_text()
    assert formatted.count("\n") > 8
    if by_agent:
        story.agent(formatted, "command")
    else:
        story.user(formatted)
    authors = dict(zip(formatted.splitlines(), story.authors(), strict=True))
    assert authors["    first_argument,"] == 0
    assert authors["result = compute("] == 0
    assert authors[")"] == 0
    assert authors["import os"] == ORIGINAL
    assert authors["def g():"] == ORIGINAL


def test_an_undone_change_leaves_the_authors_from_before():
    one, two = text("a", "one is here"), text("a", "two is there")
    story = Story(text("a")).agent(one).agent(two).user(one)
    assert story.authors() == [ORIGINAL, 0]
    assert story.walked().taken_back == set()


def test_a_hunk_that_the_user_rejects_is_taken_back_and_its_lines_are_those_before():
    story = Story(text("a", "b")).agent(text("a", "old line of mine", "b"))
    story.agent(text("a", "new line of yours", "b"))
    walked = story.user(text("a", "old line of mine", "b", "and more")).walked()
    assert walked.taken_back == {1}
    assert walked.authors == [ORIGINAL, 0, ORIGINAL, UNKNOWN]


def test_a_branch_that_is_checked_out_has_the_authors_that_it_had():
    main, branch = text("a", "on main"), text("a", "on the branch")
    story = Story(text("a")).agent(main).user(text("a")).agent(branch).user(main)
    assert story.authors() == [ORIGINAL, 0]


def test_lines_that_were_brought_from_a_worktree_are_those_of_the_turn_that_wrote_them():
    work = text("a", "made in the worktree")
    story = Story(text("a")).agent(work).user(text("a")).agent(work, "bring")
    assert story.authors() == [ORIGINAL, 0]


def test_a_change_whose_former_content_is_lost_gives_no_line_to_the_agent():
    story = Story("").agent(text("mine"))
    known = story.steps[0]
    lost = State("file", 0o644, 5, lost=TOO_LARGE)
    story.steps = [Step(lost, known.after)]
    assert story.authors() == [ORIGINAL]


def test_line_endings_and_a_byte_order_mark_change_no_author():
    assert text_of(b"\xef\xbb\xbfa\r\nb\r\n") == "a\nb\n"
    assert text_of("ä\n".encode("latin-1")) == "ä\n"


def test_a_created_file_is_the_agents_and_an_emptied_one_nobodys():
    story = Story(None).agent(text("a", "b"))
    assert story.authors() == [0, 0]
    assert story.user("").authors() == []


MOVED = ("    total = sum(prices)", "    if total > limit:", "        raise TooMuchError(total)")


def found(lines, least=MOVED_CHARS, *, author=UNKNOWN, is_still_there=False):
    """The authors of `lines`, where hunk 0 has the lines above."""
    story = Story(text("a")).agent(text("a", *MOVED))
    story.user(text("a", *MOVED) if is_still_there else text("a"))
    gone = gone_lines(story.walked(), story.now.splitlines())
    authors = [author] * len(lines)
    found_again(lines, authors, dict(enumerate(gone)), least)
    return authors


def test_moved_lines_are_found_again_with_another_indentation():
    lines = ["mine", *(line[4:] for line in MOVED), "mine"]
    assert found(lines, COPIED_CHARS) == [UNKNOWN, 0, 0, 0, UNKNOWN]


def test_lines_that_are_still_in_their_file_were_copied_and_are_not_found_again():
    assert found([*MOVED], is_still_there=True) == [UNKNOWN] * 3


def test_a_short_line_that_anyone_writes_is_not_found_again():
    assert found([MOVED[1]]) == [UNKNOWN]


def test_lines_with_an_author_are_not_looked_for():
    assert found([*MOVED], author=ORIGINAL) == [ORIGINAL] * 3


def test_the_walk_needs_no_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert shutil.which("git") is None
    assert Story("").agent(text("a")).authors() == [0]
