"""Changes of two sides, put together line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, little_work, prove

from sanderling.changes.editing.merge import Conflict, LineChange, line_changes, merge

pytestmark = pytest.mark.guard

FEW = st.lists(st.sampled_from("abc"), max_size=9)
TEXTS = st.text(alphabet="ab\n", max_size=14)


def lines(text: str) -> str:
    """A text of the words of `text`, each in a line of its own."""
    return "".join(f"{word}\n" for word in text.split())


@pytest.mark.parametrize(
    "base, ours, theirs, merged",
    [
        pytest.param("a b c", "a b c", "a b c", "a b c", id="nothing changed"),
        pytest.param("a b c", "A b c", "a b c", "A b c", id="we changed something"),
        pytest.param("a b c", "a b c", "a b C", "a b C", id="they changed something"),
        pytest.param("a b c", "A b c", "a b C", "A b C", id="both did, elsewhere"),
        pytest.param("a b", "A b", "a B", "A B", id="neighbouring lines are both changed"),
        pytest.param("a b c", "A b c", "a B C", "A B C", id="more of the neighbouring lines"),
        pytest.param("a b c d", "A c d", "a b C D", "A C D", id="one of them shrank"),
        pytest.param("a b c", "A b c", "A b c", "A b c", id="both made the same change"),
        pytest.param("a b c", "x a b c", "a b c y", "x a b c y", id="both ends grew"),
        pytest.param("a b c", "b c", "a b", "b", id="both ends went"),
        pytest.param("a b c", "a c", "a c", "a c", id="both took out the same line"),
        pytest.param("a b c", "a x b c", "a x b c", "a x b c", id="both put in the same line"),
        pytest.param("", "a", "", "a", id="an empty text grew"),
    ],
)
def test_changes_are_both_made(base, ours, theirs, merged):
    assert merge(lines(base), lines(ours), lines(theirs)).text == lines(merged)


@pytest.mark.parametrize(
    "base, ours, theirs, conflict",
    [
        pytest.param(
            "a b c",
            "a B c",
            "a X c",
            Conflict(range(1, 2), range(1, 2), range(1, 2)),
            id="one line, two changes",
        ),
        pytest.param(
            "a b c",
            "a c",
            "a X c",
            Conflict(range(1, 2), range(1, 1), range(1, 2)),
            id="taken out here, changed there",
        ),
        pytest.param(
            "a b",
            "a x b",
            "a y z b",
            Conflict(range(1, 1), range(1, 2), range(1, 3)),
            id="two insertions in one place",
        ),
        pytest.param(
            "a b",
            "a x b",
            "a B",
            Conflict(range(1, 2), range(1, 3), range(1, 2)),
            id="an insertion before a changed line",
        ),
        pytest.param(
            "a b c",
            "a B c",
            "a b x c",
            Conflict(range(1, 2), range(1, 2), range(1, 3)),
            id="an insertion after a changed line",
        ),
        pytest.param(
            "z a b c d",
            "a B C d",
            "z a b X Y",
            Conflict(range(2, 5), range(1, 4), range(2, 5)),
            id="overlapping lines, moved by what comes before",
        ),
        pytest.param(
            "", "a", "b", Conflict(range(0), range(1), range(1)), id="both began the text"
        ),
    ],
)
def test_two_changes_of_one_place_conflict(base, ours, theirs, conflict):
    assert merge(lines(base), lines(ours), lines(theirs)).conflicts == (conflict,)


def test_every_conflict_is_told():
    merged = merge(lines("a b c d e"), lines("A b c d E"), lines("X b C d Y"))
    assert [conflict.base for conflict in merged.conflicts] == [range(1), range(4, 5)]
    assert merged.text == lines("X b C d Y")


def test_where_two_changes_conflict_the_merged_text_has_their_side_and_all_else_of_ours():
    merged = merge(lines("z a b c d"), lines("a B C d new"), lines("z a b X d"))
    assert merged.conflicts
    assert merged.text == lines("a b X d new")


@pytest.mark.parametrize(
    "base, ours, theirs, merged",
    [
        ("a\nb", "a\nb\n", "A\nb", "A\nb\n"),  # we ended the last line, they changed the first
        ("a\nb\n", "a\nb", "A\nb\n", "A\nb"),
        ("a\nb\nc", "a\nb\nC", "A\nb\nc", "A\nb\nC"),
        ("a\nb\n", "a\nb", "a\nb\nc\n", None),  # the last line's end goes, and a line comes after
    ],
)
def test_a_missing_final_newline_is_a_change_like_any(base, ours, theirs, merged):
    found = merge(base, ours, theirs)
    assert (None if found.conflicts else found.text) == merged


def test_no_line_is_joined_to_another():
    merged = merge("a\nb\n", "a\nb", "X\na\nb\n")
    assert merged.text == "X\na\nb"


@given(TEXTS, TEXTS)
@settings(max_examples=examples(500), deadline=None)
def test_where_one_side_did_nothing_the_other_is_the_result(base, other):
    assert merge(base, base, other).text == other
    assert merge(base, other, base).text == other
    assert merge(base, other, other).text == other


@prove
@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=examples(500), deadline=None)
def test_it_does_not_matter_who_is_we(base, ours, theirs):
    one, other = merge(base, ours, theirs), merge(base, theirs, ours)
    assert one.conflicts or one.text == other.text
    assert [conflict.base for conflict in one.conflicts] == [
        conflict.base for conflict in other.conflicts
    ]


EDITS = st.lists(
    st.sampled_from(["keep", "keep", "ours", "theirs", "same", "ours gone", "theirs gone"]),
    max_size=12,
)


@given(EDITS)
@settings(max_examples=examples(500), deadline=None)
def test_each_line_is_as_the_side_that_touched_it_left_it(edits):
    base, ours, theirs, expected = [], [], [], []
    for number, edit in enumerate(edits):
        line, changed = f"line {number}", f"changed {number}"
        base.append(line)
        ours += {"ours": [changed], "same": [changed], "ours gone": []}.get(edit, [line])
        theirs += {"theirs": [changed], "same": [changed], "theirs gone": []}.get(edit, [line])
        expected += {"keep": [line], "ours gone": [], "theirs gone": []}.get(edit, [changed])
        base.append(f"between {number}")
        for side in (ours, theirs, expected):
            side.append(f"between {number}")
    texts = ["\n".join(side) for side in (base, ours, theirs, expected)]
    assert merge(*texts[:3]).text == texts[3]


@prove
@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=examples(500), deadline=None)
def test_the_ranges_of_a_conflict_are_what_was_changed(base, ours, theirs):
    for conflict in merge(base, ours, theirs).conflicts:
        parts = [
            text.split("\n")[span.start : span.stop]
            for text, span in (
                (base, conflict.base),
                (ours, conflict.ours),
                (theirs, conflict.theirs),
            )
        ]
        assert parts[0] != parts[1] != parts[2] != parts[0]


# --- what changed ------------------------------------------------------------------------------------------------------


@prove
@given(FEW, FEW)
@settings(max_examples=examples(700), deadline=None)
def test_the_changes_make_the_new_of_the_old_with_as_few_lines_as_possible(old, new):
    changes = line_changes(old, new)
    made, done = [], 0
    for change in changes:
        made += old[done : change.old.start] + new[change.new.start : change.new.stop]
        done = change.old.stop
    assert made + old[done:] == new
    assert len(old) - sum(len(change.old) for change in changes) == longest_common(old, new)


def longest_common(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b):
            row[j + 1] = before[j] + 1 if x == y else max(before[j + 1], row[j])
    return row[-1]


@prove
@pytest.mark.parametrize(
    "old, new",
    [
        (["a"] * 100_000, ["a", "b"] * 50_000),
        (["a", "b"] * 100_000, ["b", "a", "c"] * 70_000),
        ([str(n) for n in range(100_000)], [str(-n) for n in range(100_000)]),
    ],
)
def test_texts_that_are_hard_to_compare_are_compared_roughly_and_soon(old, new):
    with little_work():
        changes = line_changes(old, new)
    assert sum(len(change.old) for change in changes) <= len(old)


@prove
def test_a_large_text_with_few_changes_is_compared_exactly():
    old = [str(n) for n in range(300_000)]
    new = [f"x{n}" if n % 1000 == 500 else str(n) for n in range(300_000)]
    assert line_changes(old, new) == [
        LineChange(range(n, n + 1), range(n, n + 1)) for n in range(500, 300_000, 1000)
    ]
