"""What nobody has reviewed, as the journal tells it."""

from sanderling.changes.records import (
    Changed,
    Changing,
    Restored,
    Restoring,
    Reviewed,
    TurnBegun,
    Unchanged,
)
from sanderling.changes.states import FileChange, State
from sanderling.changes.timeline import unreviewed


def state(content):
    return State("file", 0o644, 1, content)


def change(before, after, use="use", path="/a", **more):
    return FileChange(path, state(before), state(after), use, **more)


def made(*changes):
    return [record for each in changes for record in (Changing(each), Changed(each))]


def test_edits_are_left_until_they_are_reviewed_and_what_commands_did_to_their_files():
    first, other = change("0", "1"), change("0", "1", path="/b")
    by_command = change("1", "2", "bash")
    records = [*made(first, other), Changed(by_command), Changed(change("0", "1", path="/c"))]
    assert unreviewed(records) == {"/a": (first, by_command), "/b": (other,)}
    records += [Reviewed("/a"), Changed(change("2", "3", "bash"))]
    assert unreviewed(records) == {"/b": (other,)}
    again = change("3", "4")
    assert unreviewed([*records, *made(again)]) == {"/a": (again,), "/b": (other,)}


def test_what_commands_did_elsewhere_is_left_for_who_asks_for_it():
    edit, by_command = change("0", "1"), change("0", "1", "bash", path="/c")
    records = [*made(edit), Changed(by_command)]
    assert unreviewed(records, has_commands=True) == {"/a": (edit,), "/c": (by_command,)}
    records.append(Reviewed("/c"))
    assert unreviewed(records, has_commands=True) == {"/a": (edit,)}


def test_what_is_left_of_a_file_takes_the_place_of_all_before():
    records = [*made(change("0", "1"), change("1", "2")), Reviewed("/a", state("x"), state("2"))]
    assert unreviewed(records) == {"/a": (change("x", "2", ""),)}


def test_what_was_shown_before_it_was_made_what_failed_and_what_was_undone_is_not_left():
    seen, failed, undone = change("0", "1", is_seen=True), change("1", "2"), change("1", "2")
    assert unreviewed([*made(seen), Changing(failed), Unchanged("/a")]) == {}
    records = [TurnBegun("t"), *made(undone), Restoring("u", ("t",), (undone,))]
    assert unreviewed([*records, Restored("u", ("/a",))]) == {}
    assert unreviewed([*made(seen), *made(undone), Changing(seen)]) == {"/a": (undone,)}


def test_an_edit_that_was_interrupted_counts_as_made():
    first = change("0", "1")
    assert unreviewed([Changing(first)]) == {"/a": (first,)}


def test_what_is_left_of_one_turn_goes_with_it():
    records = [TurnBegun("t"), *made(change("0", "2")), Reviewed("/a", state("1"), state("2"))]
    undone = [Restoring("u", ("t",), (change("2", "0"),)), Restored("u", ("/a",))]
    assert unreviewed([*records, *undone]) == {}
    more = [TurnBegun("t2"), *made(change("2", "3")), Reviewed("/a", state("1"), state("3"))]
    assert unreviewed([*records, *more, *undone]) == {"/a": (change("1", "3", ""),)}
