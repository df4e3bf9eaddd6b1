"""A conversation whose turns are undone: files, what the model is told, and what a session that is resumed knows of it."""

from tests.conftest import happens
from tests.unit.test_conversation import Talk

from sanderling.protocol.actions import RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import Notice, PromptsReturned, TurnEnded
from sanderling.protocol.messages import Prompt, TextBlock
from sanderling.protocol.requests import ChangedFile, Changes, ListChanges, PreviewRewind
from sanderling.protocol.restoring import ConversationRewound, FilesRestored, RestoredFile


def write(path: str, content: str) -> dict:
    return {"tool_use": {"name": "write", "input": {"path": path, "content": content}}}


def said_last(talk: Talk) -> list[str]:
    return [
        block.text for block in talk.session.history[-2].content if isinstance(block, TextBlock)
    ]


ONE, TWO, THREE = Prompt("p1", "Write one."), Prompt("p2", "Write two."), Prompt("p3", "And now?")
REPLIES = (
    [write("a", "one\n")],
    [{"text": "Done."}],
    [write("a", "one\ntwo\n"), write("b", "two\n")],
    [{"text": "Done."}],
    [{"text": "I see."}],
)


async def test_undo_and_redo_are_told_to_the_person_and_with_the_next_prompt_to_the_model(tmp_path):
    talk = Talk(tmp_path, *REPLIES, answer="once")
    async with talk.served():
        for count, prompt in enumerate((ONE, TWO), 1):
            talk.conversation.submit(prompt)
            await talk.until(TurnEnded, count)
        talk.conversation.act(UndoTurn())
        undone = await talk.until(FilesRestored)
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
        talk.conversation.act(RedoTurn())
        await talk.until(FilesRestored, 2)
        assert (talk.project / "b").read_text() == "two\n"
        talk.conversation.act(RedoTurn())
        assert "Nothing was undone" in (await talk.until(Notice)).text
        talk.conversation.submit(THREE)
        await talk.until(TurnEnded, 3)
    notes = said_last(talk)
    assert "undone what you had changed" in notes[0]
    assert "a, b" in notes[0]
    assert "done again" in notes[1]


async def test_rewinding_takes_back_the_conversation_the_files_or_both(tmp_path):
    talk = Talk(tmp_path, *REPLIES, answer="once")
    async with talk.served():
        for count, prompt in enumerate((ONE, TWO), 1):
            talk.conversation.submit(prompt)
            await talk.until(TurnEnded, count)
        preview = await talk.conversation.answer(PreviewRewind("s1", "p2"))
        assert (preview.prompt, preview.turns, len(preview.files)) == ("Write two.", 1, 2)
        assert (talk.project / "b").exists()
        talk.conversation.act(Rewind("p2", "files"))
        await talk.until(FilesRestored)
        assert not (talk.project / "b").exists()
        assert len(talk.session.asked) == 2
        talk.conversation.act(Rewind("p2", "conversation"))
        assert (await talk.until(ConversationRewound)).text == "Write two."
        assert (await talk.until(PromptsReturned)).prompts == (TWO,)
        assert [prompt.id for prompt in talk.session.asked] == ["p1"]
        talk.conversation.act(Rewind("p1", "both"))
        await talk.until(ConversationRewound, 2)
        assert talk.session.history == []
        assert not (talk.project / "a").exists()
        talk.conversation.submit(THREE)
        await talk.until(TurnEnded, 3)
    assert any("back to this point" in text for text in said_last(talk))


async def test_a_session_that_is_resumed_can_still_undo_and_finishes_what_was_interrupted(tmp_path):
    await Talk(tmp_path, *REPLIES[:2], answer="once").run(ONE)
    (tmp_path / "project" / "a").write_text("mine\none\n")
    talk = Talk(tmp_path)
    async with talk.served():
        talk.conversation.act(UndoTurn("p1"))
        left = (await talk.until(FilesRestored)).files
        assert [(file.path, file.how) for file in left] == [("a", "left")]
        talk.conversation.act(UndoTurn("p9"))
        assert "no such turn" in (await talk.until(Notice)).text
    assert (tmp_path / "project" / "a").read_text() == "mine\none\n"
    assert len(Talk(tmp_path).session.taken_back) == 1


async def test_nothing_is_undone_in_plan_mode_and_while_the_model_is_asked(tmp_path):
    talk = Talk(tmp_path, *REPLIES[:2], [{"delay_ms": 3_600_000}], answer="once")
    async with talk.served():
        talk.conversation.submit(ONE)
        await talk.until(TurnEnded)
        talk.conversation.set_mode("plan")
        talk.conversation.act(UndoTurn())
        assert "read-only" in (await talk.until(Notice)).text
        talk.conversation.set_mode("auto")
        talk.conversation.submit(TWO)
        talk.conversation.act(UndoTurn())
        assert (tmp_path / "project" / "a").exists()


async def test_what_a_job_has_changed_since_is_listed_when_its_turn_is_undone(tmp_path):
    command = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo late > late; sleep 60"
    job = {"tool_use": {"name": "bash", "input": {"command": command, "background": True}}}
    talk = Talk(tmp_path, [job], [{"text": "It runs."}], answer="once")
    async with talk.served():
        talk.conversation.submit(ONE)
        await talk.until(TurnEnded)
        (talk.project / "go").touch()
        await happens((talk.project / "late").exists)
        talk.conversation.act(UndoTurn())
        undone = await talk.until(FilesRestored)
        assert "late" in {file.path for file in undone.files if file.how == "left"}
