"""Changes that a person reviews before they are made: what is proposed, what is written of it, and what the model is told."""

import codecs
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, prove_rest
from tests.unit.test_file_tools import Desk, MemoryEditor, Place
from tests.unit.test_tool_uses import Talk, uses

from sanderling.changes.editing.lines import TextDifference, lines_of
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ToolEnded
from sanderling.protocol.reviews import Proposal, Review, ReviewedHunk
from sanderling.tools.base import Context, Tool
from sanderling.tools.edit import edit
from sanderling.tools.editor import Buffer
from sanderling.tools.outcome import UnsavedConflictError
from sanderling.tools.read import read
from sanderling.tools.reviewed import MAX_HUNK_LINES, AcceptedPart, is_reviewable, proposed
from sanderling.tools.write import write

FOUR = [{"old": f"line {n}\n", "new": f"LINE {n}\n"} for n in (2, 5, 8, 11)]
RETURN_2 = ("edit", {"path": "app.py", "edits": [{"old": "return 1", "new": "return 2"}]})
TWELVE = "".join(f"line {n}\n" for n in range(1, 13))


def reviewed(
    proposal: Proposal, text: str, *kept: int, reason: str = "", **changed: tuple[str, ...]
) -> Review:
    """The review that keeps these hunks, counted from 0; `h2=(…)` is what the person has made of hunk 2."""
    hunks = tuple(
        ReviewedHunk(
            hunk.first_line,
            hunk.old,
            changed.get(f"h{index}", hunk.new),
            hunk.new,
            is_kept=index in kept,
            reason="" if index in kept else reason,
        )
        for index, hunk in enumerate(proposal.hunks)
    )
    ends = proposal.ends_in_newline if len(hunks) - 1 in kept else text.endswith("\n")
    return Review(text, hunks, ends)


@pytest.fixture
def place(tmp_path, monkeypatch, plain_environment) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    place.project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place.home))
    return place


@pytest.fixture
def editor() -> MemoryEditor:
    editor = MemoryEditor()
    editor.has_place = True
    return editor


async def proposal_of(desk: Desk, tool: Tool, **data: object) -> Proposal:
    proposal = (await desk.preview(tool, **data)).proposal
    assert proposal
    return proposal


async def told(desk: Desk, tool: Tool, review: Review, **data: object) -> str:
    context = Context(desk.workspace, "t1", lambda _: None, accepted=AcceptedPart(review))
    content = (await tool.run(tool.parse(data), context)).content
    assert isinstance(content, str)
    return content


# --- what is proposed --------------------------------------------------------------------------------------------------


async def test_an_edit_of_a_file_that_is_not_open_is_proposed_in_its_buffer(place, editor):
    (place.project / "a").write_text(TWELVE)
    async with place.desk(editor) as desk:
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
    assert proposal.path == str(place.project / "a")
    assert proposal.buffer == editor.buffers[proposal.path].id
    assert [(hunk.first_line, hunk.old, hunk.new) for hunk in proposal.hunks] == [
        (n - 1, (f"line {n}",), (f"LINE {n}",)) for n in (2, 5, 8, 11)
    ]
    assert not proposal.is_new


async def test_a_new_file_is_proposed_as_one(place, editor):
    async with place.desk(editor) as desk:
        proposal = await proposal_of(desk, write, path="new", content="x\ny")
    assert (proposal.is_new, proposal.ends_in_newline) == (True, False)
    assert [(hunk.first_line, hunk.old, hunk.new) for hunk in proposal.hunks] == [
        (0, (), ("x", "y"))
    ]


async def test_what_the_person_has_not_saved_is_what_the_proposal_is_for(place, editor):
    path = place.project / "a"
    path.write_text(TWELVE)
    editor.open(path)
    editor.type(path, "typed\n" + TWELVE)
    async with place.desk(editor) as desk:
        await desk.use(read, path="a")
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR[:1])
    assert [hunk.first_line for hunk in proposal.hunks] == [2]


async def test_a_change_that_no_window_could_show_is_no_proposal(place, editor):
    async with place.desk(editor) as desk:
        huge = "x\n" * (MAX_HUNK_LINES + 1)
        assert (await desk.preview(write, path="new", content=huge)).proposal is None
        (place.project / "end").write_text("one")
        only_the_end = await desk.preview(edit, path="end", edits=[{"old": "one", "new": "one\n"}])
        assert only_the_end.proposal is None
    assert "newline at the end" in only_the_end.subject


async def test_without_a_place_for_it_nothing_is_proposed(place):
    (place.project / "a").write_text(TWELVE)
    async with place.desk(MemoryEditor()) as desk:
        assert (await desk.preview(edit, path="a", edits=FOUR)).proposal is None
    async with place.desk() as desk:
        assert (await desk.preview(edit, path="a", edits=FOUR)).proposal is None


# --- what is written ---------------------------------------------------------------------------------------------------

Encode = Callable[[str], bytes]
ENCODINGS: dict[str, tuple[Encode, dict[str, Any]]] = {
    "lf": (str.encode, {}),
    "crlf": (lambda text: text.replace("\n", "\r\n").encode(), {"line_ending": "dos"}),
    "utf-16": (
        lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        {"encoding": "utf-16le", "has_bom": True},
    ),
    "broken bytes": (lambda text: text.encode().replace(b"line 7", b"\xff\xfe 7"), {}),
    "mixed line endings": (lambda text: text.encode().replace(b"line 7\n", b"line 7\r\n"), {}),
}


@pytest.mark.parametrize("ends", ["\n", ""])
@pytest.mark.parametrize("name", prove_rest(ENCODINGS))
@pytest.mark.parametrize("is_open", [True, False])
async def test_of_four_hunks_the_first_and_the_third_are_written_and_no_other_byte(
    place, editor, name, ends, is_open
):
    encode, options = ENCODINGS[name]
    path = place.project / "a"
    path.write_bytes(encode(TWELVE.removesuffix("\n") + ends))
    editor.open(path, **options)
    async with place.desk(editor) as desk:
        await desk.use(read, path="a")
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
        review = reviewed(proposal, editor.text(path), 0, 2)
        if not is_open:  # the person has closed it meanwhile
            editor.buffers.clear()
        await told(desk, edit, review, path="a", edits=FOUR)
    wanted = TWELVE.replace("line 2\n", "LINE 2\n").replace("line 8\n", "LINE 8\n")
    assert path.read_bytes() == encode(wanted.removesuffix("\n") + ends)


async def test_what_the_person_types_elsewhere_after_the_answer_stays(place, editor):
    path = place.project / "a"
    path.write_text(TWELVE)
    async with place.desk(editor) as desk:
        await desk.use(read, path="a")
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
        review = reviewed(proposal, TWELVE, 0, 3)
        editor.type(path, TWELVE.replace("line 6\n", "typed\n"))
        await told(desk, edit, review, path="a", edits=FOUR)
    assert editor.text(path) == (
        TWELVE.replace("line 6\n", "typed\n")
        .replace("line 2\n", "LINE 2\n")
        .replace("line 11", "LINE 11")
    )
    assert path.read_text() == TWELVE  # it is the person's to write


async def test_what_the_person_types_into_a_hunk_after_the_answer_is_asked_about(place, editor):
    path = place.project / "a"
    path.write_text(TWELVE)
    async with place.desk(editor) as desk:
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
        editor.type(path, TWELVE.replace("line 2\n", "typed\n"))
        with pytest.raises(UnsavedConflictError):
            await told(desk, edit, reviewed(proposal, TWELVE, 0), path="a", edits=FOUR)
    assert editor.text(path) == TWELVE.replace("line 2\n", "typed\n")


async def test_a_file_that_changed_after_the_answer_keeps_that_change(place, editor):
    path = place.project / "a"
    path.write_text(TWELVE)
    async with place.desk(editor) as desk:
        await desk.use(read, path="a")
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
        path.write_text("new\n" + TWELVE)
        await told(desk, edit, reviewed(proposal, TWELVE, 0), path="a", edits=FOUR)
    assert path.read_text() == "new\n" + TWELVE.replace("line 2\n", "LINE 2\n")


# --- what the model is told ----------------------------------------------------------------------------------------------


async def test_the_model_is_told_what_was_rejected_why_and_what_was_changed(place, editor):
    path = place.project / "a"
    path.write_text(TWELVE)
    editor.format = lambda text: text.replace("LINE 11", "Line 11")
    async with place.desk(editor) as desk:
        await desk.use(read, path="a")
        proposal = await proposal_of(desk, edit, path="a", edits=FOUR)
        review = reviewed(proposal, TWELVE, 0, 2, 3, reason="keep it low", h2=("line eight",))
        said = await told(desk, edit, review, path="a", edits=FOUR)
        assert (
            "The user rejected this part, so it is not in the file. Reason: keep it low\n"
            "@@ line 5 @@\n-line 5\n+LINE 5"
        ) in said
        assert (
            "The user edited your proposal here before accepting it:\n"
            "@@ line 8 @@\n-LINE 8\n+line eight"
        ) in said
        assert "format on save" in said
        # The model knows what stands there now: it is told of no change by others.
        again = await desk.told(edit, path="a", edits=[{"old": "line eight", "new": "8"}])
    assert "has changed since" not in again
    assert path.read_text().splitlines()[7] == "8"


@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize("reason", ["use the old name", ""])
async def test_a_proposal_that_is_rejected_whole_is_denied(tmp_path, editor, reason):
    talk = Talk(tmp_path, uses(RETURN_2), editor=editor)
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert question.kind == "write"
        review = reviewed(question.proposal, "def f():\n    return 1\n", reason=reason)
        talk.conversation.services.approvals.answer(
            AnswerApproval(question.id, "once", review=review)
        )
    assert (talk.project / "app.py").read_text() == "def f():\n    return 1\n"
    assert talk.of(ToolEnded)[0].is_denied
    told_model = talk.results[0].content
    assert (reason or "without a reason") in told_model
    assert ("+    return 2" in told_model) == bool(reason)


@pytest.mark.usefixtures("plain_environment")
async def test_a_text_that_is_another_one_is_looked_at_again(tmp_path, editor):
    talk = Talk(tmp_path, uses(RETURN_2), editor=editor)
    path = talk.project / "app.py"
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        editor.type(path, "# typed\ndef f():\n    return 1\n")
        talk.answer(question, "again")
        again = await talk.until(ApprovalRequested, 2)
        assert [hunk.first_line for hunk in again.proposal.hunks] == [2]
        talk.answer(again, "once")
    assert editor.text(path) == "# typed\ndef f():\n    return 2\n"


@pytest.mark.usefixtures("plain_environment")
async def test_a_review_that_does_not_fit_changes_nothing(tmp_path, editor):
    talk = Talk(tmp_path, uses(RETURN_2), editor=editor)
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        review = reviewed(question.proposal, "another text\n", 0)
        talk.conversation.services.approvals.answer(
            AnswerApproval(question.id, "once", review=review)
        )
    assert "does not fit" in talk.results[0].content
    assert (talk.project / "app.py").read_text() == "def f():\n    return 1\n"


# --- any text, any choice --------------------------------------------------------------------------------------------------

TEXTS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=8).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "".join(f"{line}\n" for line in lines)])
)


@settings(max_examples=examples(500), deadline=None)
@given(TEXTS, TEXTS, st.data())
def test_any_choice_of_hunks_is_the_old_text_with_those(old, new, data):
    if not is_reviewable(TextDifference(old, new)):
        assert lines_of(old) == lines_of(new)
        return
    proposal = proposed("/a", Buffer(1, "/a", 1, old, is_modified=False), new, is_new=False)
    kept = data.draw(st.sets(st.sampled_from(range(len(proposal.hunks)))))
    review = reviewed(proposal, old, *kept)
    accepted = AcceptedPart(review)
    assert accepted.is_possible
    assert accepted.is_nothing == (not kept)
    if len(kept) == len(proposal.hunks):
        assert accepted.text == new
    elif not kept:
        assert accepted.text == old
    lines = lines_of(old)
    for index in sorted(kept, reverse=True):
        hunk = proposal.hunks[index]
        lines[hunk.first_line : hunk.first_line + len(hunk.old)] = hunk.new
    assert lines_of(accepted.text) == lines or (not accepted.text and lines in ([], [""]))
    assert msgspec.convert(msgspec.to_builtins(review), Review) == review
