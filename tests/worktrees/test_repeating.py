"""A prompt that is repeated in a fork on a private copy, and the choice from both results."""

import re
import signal
import sys
from pathlib import Path

import anyio
import pytest

from sanderling.errors import SessionError
from sanderling.protocol.actions import ApplyWorktree, UndoTurn
from sanderling.protocol.events import ApprovalRequested, FilesRestored, RestoredFile
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import RepeatedPrompt, RepeatPrompt, ShowResult, TurnResult
from sanderling.session.session import Session
from sanderling.worktrees.records import Record
from sanderling.worktrees.worktrees import Worktrees
from tests.conftest import happens, settings_of
from tests.unit.test_conversation import Talk
from tests.worktrees.conftest import run_git
from tests.worktrees.test_copies import KILLED

TEXT = "".join(f"line {n}\n" for n in range(1, 21))
ONE, TWO = Prompt("p1", "Change it."), Prompt("p2", "And now?")


def write(path: str, content: str) -> dict:
    return {"tool_use": {"name": "write", "input": {"path": path, "content": content}}}


def bash(command: str) -> dict:
    return {"tool_use": {"name": "bash", "input": {"command": command}}}


FIRST = TEXT.replace("line 3\n", "three\n").replace("line 18\n", "eighteen\n")
REPLIES = (
    [
        bash("sed -i -e 's/line 3$/three/' -e 's/line 18$/eighteen/' a.txt"),
        write("first.txt", "1\n"),
        write("both.txt", "first\n"),
    ],
    [{"text": "Changed by the first."}],
    [{"text": "Now this."}],
)


@pytest.fixture(params=["git", "plain"])
def base(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The directory of a project, with git or without."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text(TEXT)
    if request.param == "git":
        run_git(project, "init", "-q")
        run_git(project, "add", "-A")
        run_git(project, "commit", "-qm", "first")
    return tmp_path


def talk_in(base: Path, *replies: list) -> Talk:
    return Talk(base, *(replies or REPLIES), answer="once")


async def repeated(talk: Talk, model: str = "") -> tuple[RepeatedPrompt, Record]:
    answer = await talk.conversation.answer(RepeatPrompt("s1", "s2", model))
    assert isinstance(answer, RepeatedPrompt)
    [record] = Worktrees(talk.conversation.services.settings.state_dir, str(talk.project)).all()
    return answer, record


async def apply(talk: Talk, record: Record) -> FilesRestored:
    return await talk.act(ApplyWorktree(record.name), FilesRestored)


def names_in(record: Record) -> list[str]:
    return sorted(path.name for path in Path(record.work_dir).glob("*.txt"))


def text_in(record: Record) -> str:
    return Path(record.work_dir, "a.txt").read_text()


def leftovers(state_dir: str) -> list[str]:
    return sorted(path.name for path in Path(state_dir, "worktrees").glob("*/again-*"))


def work(record: Record, **files: str) -> None:
    for name, text in files.items():
        Path(record.work_dir, f"{name}.txt").write_text(text)


async def test_the_fork_begins_before_the_last_prompt_and_the_copy_before_its_changes(base):
    async with talk_in(base).after(ONE) as talk:
        answer, record = await repeated(talk, "a-model")
        assert (answer.prompt.text, answer.model) == ("Change it.", "a-model")
        assert answer.cost.startswith("The first result cost $")
        assert "again" not in answer.cost  # there is nothing to read
        assert names_in(record) == ["a.txt"]
        assert text_in(record) == TEXT
        assert (talk.project / "a.txt").read_text() == FIRST
        second = Session.open(talk.session.path.parent, "s2", "")
        assert second.worktree == record.name
        assert second.prompt_history.prompts == []
        second.close()


async def test_the_cost_of_reading_the_conversation_before_the_prompt_is_named(base):
    async with talk_in(base).after(ONE, TWO) as talk:
        answer, _ = await repeated(talk)
        assert answer.prompt == TWO
        assert re.search(
            r"first reads this conversation again: about [1-9][0-9,]* tok", answer.cost
        )


async def test_an_undone_turn_can_be_repeated(base):
    async with talk_in(base).after(ONE) as talk:
        await talk.act(UndoTurn(), FilesRestored)
        (talk.project / "mine.txt").write_text("mine\n")
        _, record = await repeated(talk)
        names = names_in(record)
        assert names == ["a.txt", "mine.txt"]
        assert text_in(record) == TEXT


async def test_a_turn_that_waits_for_an_answer_can_be_repeated(base):
    talk = Talk(base, [write("new.txt", "1\n")], [{"text": "Done."}])
    async with talk.begun(ONE, ApprovalRequested):
        answer, record = await repeated(talk)
        assert answer.prompt == ONE
        assert text_in(record) == TEXT


async def test_without_a_prompt_there_is_nothing_to_repeat(base):
    async with talk_in(base).served() as talk:
        with pytest.raises(SessionError, match="no prompt to repeat"):
            await repeated(talk)
        assert (
            Worktrees(talk.conversation.services.settings.state_dir, str(talk.project)).all() == []
        )


async def test_the_second_result_replaces_the_first_and_the_users_changes_stay(base):
    async with talk_in(base).after(ONE) as talk:
        _, record = await repeated(talk)
        work(record, a=TEXT.replace("line 3\n", "III\n"), second="2\n", both="second\n")
        mine = FIRST.replace("line 10\n", "ten, by me\n")
        (talk.project / "a.txt").write_text(mine)
        done = await apply(talk, record)
        assert {(each.path, each.how) for each in done.files} == {
            ("a.txt", "merged"),
            ("first.txt", "restored"),
            ("second.txt", "restored"),
            ("both.txt", "restored"),
        }
        both = TEXT.replace("line 3\n", "III\n").replace("line 10\n", "ten, by me\n")
        assert (talk.project / "a.txt").read_text() == both
        assert not (talk.project / "first.txt").exists()
        assert (talk.project / "second.txt").read_text() == "2\n"
        assert (talk.project / "both.txt").read_text() == "second\n"
        await talk.act(UndoTurn(), FilesRestored)
        assert (talk.project / "a.txt").read_text() == mine
        assert (talk.project / "first.txt").read_text() == "1\n"
        assert (talk.project / "both.txt").read_text() == "first\n"
        assert not (talk.project / "second.txt").exists()


async def test_a_rejected_change_of_the_first_result_can_be_replaced_by_the_seconds(base):
    async with talk_in(base).after(ONE) as talk:
        (talk.project / "a.txt").write_text(FIRST.replace("three\n", "line 3\n"))
        _, record = await repeated(talk)
        assert text_in(record) == TEXT
        work(record, a=TEXT.replace("line 3\n", "III\n"))
        await apply(talk, record)
        assert (talk.project / "a.txt").read_text() == TEXT.replace("line 3\n", "III\n")


async def test_lines_that_the_user_changed_as_well_stay(base):
    async with talk_in(base).after(ONE) as talk:
        _, record = await repeated(talk)
        work(record, a=TEXT.replace("line 3\n", "III\n"))
        mine = FIRST.replace("three\n", "three, by me\n")
        (talk.project / "a.txt").write_text(mine)
        done = await apply(talk, record)
        [left] = [each for each in done.files if each.how == "left"]
        assert left == RestoredFile("a.txt", "left", "the same lines were changed since")
        assert (talk.project / "a.txt").read_text() == mine


async def test_a_result_says_what_the_turn_cost_changed_and_answered(base):
    async with talk_in(base).after(ONE, TWO) as talk:
        found = await talk.conversation.answer(ShowResult("s1", "p1"))
        assert isinstance(found, TurnResult)
        assert found.answer == "Changed by the first."
        assert not found.is_running
        assert {(each.path, each.added, each.removed) for each in found.files} == {
            ("a.txt", 2, 2),
            ("first.txt", 1, 0),
            ("both.txt", 1, 0),
        }
        with pytest.raises(SessionError, match="not forked"):
            await talk.conversation.answer(ShowResult("s1"))


async def test_files_that_git_ignores_stay_as_the_first_turn_left_them(base):
    (base / "project" / ".gitignore").write_text("*.log\n")
    replies = ([bash("echo 1 > x.log; echo 1 > a.txt")], [{"text": "Done."}])
    async with talk_in(base, *replies).after(ONE) as talk:
        _, record = await repeated(talk)
        work(record, a="2\n")
        await apply(talk, record)
        assert (talk.project / "a.txt").read_text() == "2\n"
        assert (talk.project / "x.log").read_text() == "1\n"


async def test_the_next_session_removes_what_a_killed_one_has_left_of_a_copy(base):
    settings = settings_of(Session.open(base / "state/sessions", "s0", ""))
    project = str(base / "project")
    for at in (9, 15):
        arguments = (sys.executable, "-c", KILLED, settings.state_dir, project, str(at))
        done = await anyio.run_process(arguments, check=False)
        assert done.returncode == -signal.SIGKILL
    left = leftovers(settings.state_dir)
    assert left
    async with talk_in(base).after(ONE):
        await happens(lambda: leftovers(settings.state_dir) == [])
