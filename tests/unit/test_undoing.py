"""A conversation whose turns are undone: files, what the model is told, and what a session that is resumed knows of it."""

import errno
import os

import pytest
from msgspec.structs import replace
from tests.conftest import happens, prove, prove_rest
from tests.unit.test_conversation import Talk

from sanderling.changes.records import CommandBegun, Restoring
from sanderling.protocol.actions import RedoTurn, RejectChanges, RejectedHunk, Rewind, UndoTurn
from sanderling.protocol.events import (
    ConversationRewound,
    FilesRestored,
    Notice,
    PromptsReturned,
    RestoredFile,
    TurnEnded,
)
from sanderling.protocol.messages import Prompt, TextBlock
from sanderling.protocol.requests import ChangedFile, Changes, ListChanges, PreviewRewind
from sanderling.session.store import fork
from sanderling.tools.restoring import FileRestorer

pytestmark = pytest.mark.guard


def write(path: str, content: str) -> dict:
    return {"tool_use": {"name": "write", "input": {"path": path, "content": content}}}


def remove(path: str) -> dict:
    return {"tool_use": {"name": "bash", "input": {"command": f"rm {path}"}}}


def said_last(talk: Talk) -> list[str]:
    return [block.text for block in talk.history[-2].content if isinstance(block, TextBlock)]


ONE, TWO, THREE = Prompt("p1", "Write one."), Prompt("p2", "Write two."), Prompt("p3", "And now?")
REPLIES = (
    [write("a", "one\n")],
    [{"text": "Done."}],
    [write("a", "one\ntwo\n"), write("b", "two\n")],
    [{"text": "Done."}],
    [{"text": "I see."}],
)


async def test_undo_and_redo_are_told_to_the_person_and_with_the_next_prompt_to_the_model(tmp_path):
    async with Talk(tmp_path, *REPLIES, answer="once").after(ONE, TWO) as talk:
        undone = await talk.act(UndoTurn(), FilesRestored)
        assert (undone.kind, undone.turns) == ("undo", ("p2",))
        assert set(undone.files) == {RestoredFile("a", removed=1), RestoredFile("b", removed=1)}
        assert (talk.project / "a").read_text() == "one\n"
        assert not (talk.project / "b").exists()
        changes = await talk.conversation.answer(ListChanges("s1"))
        assert isinstance(changes, Changes)
        assert [(turn.number, turn.text, turn.is_undone) for turn in changes.turns] == [
            (1, "Write one.", False),
            (2, "Write two.", True),
        ]
        assert changes.turns[0].files == (ChangedFile("a", "created", 1),)
        await talk.act(RedoTurn(), FilesRestored)
        assert (talk.project / "b").read_text() == "two\n"
        assert "Nothing to redo" in (await talk.act(RedoTurn(), Notice)).text
        await talk.run_turns(THREE)
    notes = said_last(talk)
    assert "undid your file changes of an earlier turn. Restored: a. Removed: b. Read" in notes[0]
    assert "redid what was undone before. Changed again: a, b. Read" in notes[1]


async def test_redo_that_removes_a_file_says_so(tmp_path):
    replies = (
        [write("a", "one\n")],
        [{"text": "Done."}],
        [remove("a")],
        [{"text": "Done."}],
        [{"text": "Yes."}],
    )
    async with Talk(tmp_path, *replies, answer="once").after(ONE, TWO) as talk:
        await talk.act(UndoTurn(), FilesRestored)
        assert (talk.project / "a").read_text() == "one\n"
        await talk.act(RedoTurn(), FilesRestored)
        assert not (talk.project / "a").exists()
        await talk.run_turns(THREE)
    notes = said_last(talk)
    assert "Restored: a. Read" in notes[0]
    assert "redid what was undone before. Removed: a. Read" in notes[1]


async def test_rewinding_takes_back_the_conversation_the_files_or_both(tmp_path):
    async with Talk(tmp_path, *REPLIES, answer="once").after(ONE, TWO) as talk:
        preview = await talk.conversation.answer(PreviewRewind("s1", "p2"))
        assert (preview.prompt, preview.turns, len(preview.files)) == ("Write two.", 1, 2)
        assert (talk.project / "b").exists()
        await talk.act(Rewind("p2", "files"), FilesRestored)
        assert not (talk.project / "b").exists()
        assert len(talk.session.prompt_history.prompts) == 2
        assert (
            await talk.act(Rewind("p2", "conversation"), ConversationRewound)
        ).text == "Write two."
        assert (await talk.until(PromptsReturned)).prompts == (TWO,)
        assert [prompt.id for prompt in talk.session.prompt_history.prompts] == ["p1"]
        await talk.act(Rewind("p1", "both"), ConversationRewound)
        assert talk.history == []
        assert not (talk.project / "a").exists()
        await talk.run_turns(THREE)
    assert any("back to this point" in text for text in said_last(talk))


async def test_a_session_that_is_resumed_can_still_undo_and_finishes_what_was_interrupted(tmp_path):
    await Talk(tmp_path, *REPLIES[:2], answer="once").run(ONE)
    (tmp_path / "project" / "a").write_text("mine\none\n")
    async with Talk(tmp_path).served() as talk:
        left = (await talk.act(UndoTurn("p1"), FilesRestored)).files
        assert [(file.path, file.how) for file in left] == [("a", "left")]
        assert "no such turn" in (await talk.act(UndoTurn("p9"), Notice)).text
    assert (tmp_path / "project" / "a").read_text() == "mine\none\n"
    assert len(Talk(tmp_path).session.taken_back) == 1


async def test_nothing_is_undone_in_plan_mode_and_while_the_model_is_asked(tmp_path):
    talk = Talk(tmp_path, *REPLIES[:2], [{"delay_ms": 3_600_000}], answer="once")
    async with talk.after(ONE):
        talk.conversation.controls.set_mode("plan")
        assert "read-only" in (await talk.act(UndoTurn(), Notice)).text
        talk.conversation.controls.set_mode("auto")
        talk.conversation.submit(TWO)
        talk.conversation.act(UndoTurn())
        assert (tmp_path / "project" / "a").exists()


@prove
async def test_what_a_job_has_changed_since_is_listed_when_its_turn_is_undone(tmp_path):
    command = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo late > late; sleep 60"
    job = {"tool_use": {"name": "bash", "input": {"command": command, "background": True}}}
    async with Talk(tmp_path, [job], [{"text": "It runs."}], answer="once").after(ONE) as talk:
        (talk.project / "go").touch()
        await happens((talk.project / "late").exists)
        undone = await talk.act(UndoTurn(), FilesRestored)
        assert "late" in {file.path for file in undone.files if file.how == "left"}


async def test_what_the_person_rejected_is_told_though_the_process_was_killed_in_between(tmp_path):
    async with Talk(tmp_path, *REPLIES[:2], answer="once").after(ONE) as talk:
        hunk = RejectedHunk(1, ("one",), ())
        talk.conversation.act(RejectChanges("a", (hunk,), "Two is better."))
    again = await Talk(tmp_path, [{"text": "I see."}]).run(THREE)
    (told,) = [text for text in said_last(again) if "rejected these" in text]
    assert "-one" in told
    assert "Two is better." in told
    once_more = await Talk(tmp_path, [{"text": "I know."}]).run(Prompt("p4", "And?"))
    assert not any("rejected these" in text for text in said_last(once_more))


@prove
async def test_a_turn_of_which_nothing_could_be_undone_can_be_undone_later(tmp_path):
    async with Talk(tmp_path, *REPLIES[:2], answer="once").after(ONE) as talk:
        (talk.project / "a").write_text("mine\none\n")
        assert [file.how for file in (await talk.act(UndoTurn(), FilesRestored)).files] == ["left"]
        changes = await talk.conversation.answer(ListChanges("s1"))
        assert isinstance(changes, Changes)
        assert not changes.turns[0].is_undone
        assert "Nothing to redo" in (await talk.act(RedoTurn(), Notice)).text
        (talk.project / "a").write_text("one\n")
        assert [file.how for file in (await talk.act(UndoTurn(), FilesRestored)).files] == [
            "restored"
        ]
    assert not (talk.project / "a").exists()


@prove
async def test_what_was_undone_while_a_job_runs_is_not_taken_for_its_work(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "old").write_text("old\n")
    (tmp_path / "project" / "shut").mkdir()
    command = "rm old; mkdir made; echo x > made/in; ln -s a link; chmod 700 shut; echo a > new"
    job = {"tool_use": {"name": "bash", "input": {"command": "sleep 60", "background": True}}}
    act = {"tool_use": {"name": "bash", "input": {"command": command}}}
    talk = Talk(tmp_path, [act], [job], [{"text": "It runs."}], answer="once")
    async with talk.after(ONE):
        assert (talk.project / "made" / "in").exists()
        for action in (UndoTurn(), RedoTurn(), UndoTurn()):
            talk.conversation.act(action)
        restored = [await talk.until(FilesRestored, count) for count in (1, 2, 3)]
        assert [file for each in restored for file in each.files if file.how == "left"] == []
        await talk.conversation.services.workspace.changes.look_at_jobs(
            talk.conversation.services.sandbox.environment
        )
        (turn,) = await talk.conversation.services.workspace.journal.turns()
        assert turn.doubtful == ()
    assert (talk.project / "old").read_text() == "old\n"
    assert not (talk.project / "made").exists()


async def test_an_undoing_that_cannot_be_recorded_does_nothing(tmp_path, monkeypatch):
    async with Talk(tmp_path, *REPLIES[:2], answer="once").after(ONE) as talk:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("sanderling.changes.records.write_all", full)
        text = (await talk.act(UndoTurn(), Notice)).text
        assert text.startswith("Nothing was changed")
        assert "No space left" in text
        assert (talk.project / "a").read_text() == "one\n"
        monkeypatch.undo()
        await talk.act(UndoTurn(), FilesRestored)
        assert not (talk.project / "a").exists()


@prove
async def test_a_fork_undoes_what_was_done_before_it(tmp_path):
    talk = await Talk(tmp_path, *REPLIES[:4], answer="once").run(ONE, TWO)
    directory = talk.session.path.parent
    fork(directory, "s1", "s2", "p1")
    async with Talk(tmp_path, session_id="s2").served() as other:
        changes = await other.conversation.answer(ListChanges("s2"))
        assert isinstance(changes, Changes)
        assert [turn.turn for turn in changes.turns] == ["p1"]
        undone = await other.act(UndoTurn(), FilesRestored)
        # What came after the fork is nobody's whose work may go.
        assert [(file.path, file.how) for file in undone.files] == [("a", "left")]
        (other.project / "a").write_text("one\n")
        assert (await other.act(UndoTurn(), FilesRestored)).files[0].how == "restored"
    assert not (talk.project / "a").exists()
    async with Talk(tmp_path).served() as source:
        undone = await source.act(UndoTurn(), FilesRestored)
        assert {file.path for file in undone.files if file.how == "restored"} == {"b"}


@prove
async def test_an_interrupted_undoing_waits_for_a_mode_that_may_write(tmp_path):
    talk = await Talk(tmp_path, *REPLIES[:2], answer="once").run(ONE)
    journal = talk.conversation.services.workspace.journal
    (turn,) = await journal.turns()
    (change,) = turn.changes
    step = replace(change, before=change.after, after=change.before)
    await journal.append(Restoring("u1", ("p1",), (step,), kind="rewind", prompt_id="p1"))
    again = Talk(tmp_path)
    again.conversation.controls.set_mode("plan")
    async with again.served():
        assert "In plan mode" in (await again.until(Notice)).text
        assert (again.project / "a").exists()
        again.conversation.controls.set_mode("auto")
        assert (await again.act(RedoTurn("p1"), FilesRestored)).kind == "finish"
        await again.until(ConversationRewound)
        assert [prompt.id for prompt in again.session.prompt_history.prompts] == []


@prove
async def test_a_list_ends_however_long_its_lines_take_to_be_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("sanderling.conversation.undo.undoing.MAX_COUNTED_S", 0)
    async with Talk(tmp_path, *REPLIES[:4], answer="once").after(ONE, TWO) as talk:
        changes = await talk.conversation.answer(ListChanges("s1", "p2"))
        assert isinstance(changes, Changes)
        assert changes.turns[0].files == (ChangedFile("a", "changed"), ChangedFile("b", "created"))
        assert {file.path for file in (await talk.act(UndoTurn(), FilesRestored)).files} == {
            "a",
            "b",
        }


@prove
async def test_what_an_interrupted_command_has_changed_is_said_to_be_unknown(tmp_path):
    talk = await Talk(tmp_path, *REPLIES[:2], answer="once").run(ONE)
    journal = talk.conversation.services.workspace.journal
    await journal.append(CommandBegun("c1"))  # and then the process was killed
    async with Talk(tmp_path).served() as again:
        await again.act(UndoTurn(), FilesRestored)
    assert ["stopped while a command" in notice.text for notice in again.of(Notice)] == [True]
    assert not (talk.project / "a").exists()


@prove
async def test_a_command_that_was_stopped_is_not_said_to_be_unknown(tmp_path):
    act = {"tool_use": {"name": "bash", "input": {"command": "echo x > made; sleep 60"}}}
    async with Talk(tmp_path, [act], answer="once").served() as talk:
        talk.conversation.submit(ONE)
        await happens((talk.project / "made").exists)
        talk.conversation.cancel()
        await talk.until(TurnEnded)
        await talk.act(UndoTurn(), FilesRestored)
        assert talk.of(Notice) == []
    assert not (talk.project / "made").exists()


async def interrupted(tmp_path, kind: str) -> Talk:
    """Two turns that made `a` and `b`, and a process that was killed when it had announced to undo, or redo, the last one."""
    one, two = [write("a", "one\n")], [write("b", "two\n")]
    done = [{"text": "Done."}]
    async with Talk(tmp_path, one, done, two, done, answer="once").after(ONE, TWO) as talk:
        if kind == "redo":
            await talk.act(UndoTurn(), FilesRestored)
    journal = talk.conversation.services.workspace.journal
    made = (await journal.turns())[-1].changes
    undoes = [each.id for each in await journal.records() if isinstance(each, Restoring)]
    undone = tuple(replace(each, before=each.after, after=each.before) for each in made)
    steps = made if kind == "redo" else undone
    prompt_id = "p2" if kind == "rewind" else ""
    await journal.append(Restoring("u1", ("p2",), steps, *undoes, kind=kind, prompt_id=prompt_id))
    return talk


@pytest.mark.parametrize(
    "kind, again, has_b",
    prove_rest(
        [
            ("undo", UndoTurn(), False),
            ("undo", UndoTurn("p2"), False),
            ("redo", RedoTurn(), True),
            ("rewind", Rewind("p2"), False),
            ("rewind", Rewind("p2", "both"), False),
        ]
    ),
)
async def test_what_was_interrupted_is_finished_alone_by_asking_again(tmp_path, kind, again, has_b):
    await interrupted(tmp_path, kind)
    talk = Talk(tmp_path)
    talk.conversation.act(again)
    async with talk.served():
        answer = await talk.until(FilesRestored)
        assert (answer.kind, [file.path for file in answer.files]) == (kind, ["b"])
        talk.conversation.act(UndoTurn("p9"))  # whose answer comes after all that was asked before
        assert "no such turn" in (await talk.until(Notice)).text
        assert len(talk.of(FilesRestored)) == 1
    assert (talk.project / "a").exists()
    assert (talk.project / "b").exists() == has_b
    assert ("p2" in [each.id for each in talk.session.prompt_history.prompts]) == (kind != "rewind")


async def test_another_turn_is_undone_after_what_was_interrupted(tmp_path):
    await interrupted(tmp_path, "undo")
    talk = Talk(tmp_path)
    talk.conversation.act(UndoTurn("p1"))
    async with talk.served():
        assert (await talk.until(FilesRestored, 2)).kind == "undo"
        assert [each.kind for each in talk.of(FilesRestored)] == ["finish", "undo"]
    assert not (talk.project / "a").exists()
    assert not (talk.project / "b").exists()


async def test_nothing_is_undone_while_what_was_interrupted_cannot_be_finished(tmp_path):
    await interrupted(tmp_path, "undo")
    talk = Talk(tmp_path)
    talk.conversation.controls.set_mode("plan")
    async with talk.served():
        talk.conversation.act(UndoTurn("p1"))
        assert "plan mode" in (await talk.until(Notice, 2)).text
        assert talk.of(FilesRestored) == []
    assert (talk.project / "a").exists()
    assert (talk.project / "b").exists()


async def test_the_rest_of_a_turn_is_undone_before_the_turn_before_it(tmp_path):
    replies = ([write("a", "1\n")], [{"text": "."}], [write("b", "2\n"), write("d/c", "2\n")])
    async with Talk(tmp_path, *replies, [{"text": "."}], answer="once").after(ONE, TWO) as talk:
        restorer = "sanderling.tools.restoring.FileRestorer._step"
        step = FileRestorer._step

        async def refuses(self, files, modes, undoing_id, step_of_it):
            if step_of_it.path.endswith("/b"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            await step(self, files, modes, undoing_id, step_of_it)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(restorer, refuses)
            partly = await talk.act(UndoTurn(), FilesRestored)
        assert {file.path: file.how for file in partly.files} == {"b": "left", "d/c": "restored"}
        assert partly.rest_of == 2
        rest = await talk.act(UndoTurn(), FilesRestored)
        assert (rest.turns, [file.path for file in rest.files]) == (("p2",), ["b"])
        assert rest.rest_of == 0
        assert (await talk.act(UndoTurn(), FilesRestored)).turns == ("p1",)


async def test_what_the_user_keeps_does_not_block_the_way_to_earlier_turns(tmp_path):
    async with Talk(tmp_path, *REPLIES[:4], answer="once").after(ONE, TWO) as talk:
        (talk.project / "b").write_text("mine\n")
        partly = await talk.act(UndoTurn(), FilesRestored)
        assert {file.path: file.how for file in partly.files} == {"a": "restored", "b": "left"}
        assert (await talk.act(UndoTurn(), FilesRestored)).turns == ("p1",)
    assert (talk.project / "b").read_text() == "mine\n"


async def test_a_turn_whose_command_was_interrupted_is_the_last_one(
    tmp_path,
):
    talk = await Talk(tmp_path, *REPLIES[:2], [{"text": "Done."}], answer="once").run(ONE, TWO)
    journal = talk.conversation.services.workspace.journal
    await journal.append(CommandBegun("c1"))
    async with Talk(tmp_path).served() as again:
        changes = await again.conversation.answer(ListChanges("s1"))
        assert [(each.number, each.is_interrupted) for each in changes.turns] == [
            (1, False),
            (2, True),
        ]
        undone = await again.act(UndoTurn(), FilesRestored)
        assert (undone.turns, undone.files) == (("p2",), ())
        assert "stopped while a command" in again.of(Notice)[-1].text
        assert (talk.project / "a").exists()
        await again.act(UndoTurn(), FilesRestored)
    assert not (talk.project / "a").exists()


async def test_a_directory_is_listed_where_nothing_in_it_is(tmp_path):
    (tmp_path / "project" / "shut").mkdir(parents=True)
    (tmp_path / "project" / "shut").chmod(0o755)
    command = "mkdir -p empty full; echo x > full/in; chmod 700 shut"
    act = {"tool_use": {"name": "bash", "input": {"command": command}}}
    async with Talk(tmp_path, [act], [{"text": "Done."}], answer="once").after(ONE) as talk:
        changes = await talk.conversation.answer(ListChanges("s1"))
        undone = await talk.act(UndoTurn(), FilesRestored)
        names = {"empty/", "full/in", "shut/"}
        assert {file.path for file in undone.files} == names
        assert {file.path for file in changes.turns[0].files} == names
