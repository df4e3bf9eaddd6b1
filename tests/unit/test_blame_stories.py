"""
Who wrote each line after random work on a file, against the record of who did.

Several sessions write it through real journals, some are killed while they do, the user edits it, git commits, rebases and squashes it,
and at the end a formatter breaks its lines. Each line has a number of its own, by which its author is known.
"""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.conftest import prove_rest

from sanderling.blame.origins import Origins
from sanderling.changes.journal import Journal
from sanderling.config import Settings
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.providers.models.known import load_models
from sanderling.session.ledger import Prices
from sanderling.session.records import LoggedToolStart
from sanderling.session.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.guard]

MODE, STEPS = 0o644, 24
GIT = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
USER = ""


def line(number: int) -> str:
    """A line that is too long for the formatter, each of its words with the number."""
    arguments = ", ".join(f"argument_{name}_{number}" for name in ("one", "two", "three", "four"))
    return f"result_{number} = compute_{number}({arguments})\n"


def number_of(text: str) -> int | None:
    found = re.search(r"_(\d+)", text)
    return int(found[1]) if found else None


async def change(root: Path, session: str, turn: str, new: str, *, is_killed: bool = False) -> None:
    """Change the file as a tool of the session does; with `is_killed`, end the process before that is recorded."""
    file = root / "project/a.py"
    old = file.read_bytes()
    journal = Journal(root / "changes", session, str(file.parent), print)
    await journal.records()
    journal.begin_turn(turn)
    async with journal.editing(str(file), old, MODE, new.encode(), f"use_{turn}"):
        file.write_text(new)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
    journal.close()


class Story:
    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.project, self.file = root / "project", root / "project/a.py"
        self.project.mkdir()
        self.author: dict[int, str] = {}  # by the line's number: the turn, or the user
        self.turns = 0
        self.sessions = {
            name: Session.open(root / "sessions", name, str(self.project))
            for name in ("20260101-000000-00000001", "20260101-000000-00000002")
        }
        self.file.write_text("".join(self.new(USER, 6)))
        self.git("init", "-qb", "main")
        self.commit()
        self.origins = self.fresh()

    def fresh(self) -> Origins:
        prices = Prices(load_models(Settings(str(self.root))))
        return Origins(self.root / "sessions", str(self.project), prices)

    def git(self, *arguments: str) -> None:
        done = subprocess.run(
            ["git", *GIT, *arguments], cwd=self.project, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def commit(self) -> None:
        (self.project / "other").write_text(f"{len(self.author)} {self.random.random()}")
        self.git("add", ".")
        self.git("commit", "-qm", "work")

    def new(self, author: str, count: int) -> list[str]:
        numbers = range(len(self.author), len(self.author) + count)
        self.author |= dict.fromkeys(numbers, author)
        return [line(number) for number in numbers]

    def edited(self, author: str) -> str:
        lines = self.file.read_text().splitlines(keepends=True)
        at = self.random.randrange(len(lines) + 1)
        lines[at : at + self.random.randrange(3)] = self.new(author, self.random.randrange(1, 4))
        return "".join(lines)

    def user(self) -> None:
        self.file.write_text(self.edited(USER))

    async def agent(self) -> None:
        session, turn = self.begin()
        await change(self.root, session, turn, self.edited(turn))

    async def killed(self) -> None:
        session, turn = self.begin()
        code = (
            "import anyio, sys; from pathlib import Path; from tests.unit.test_blame_stories import change\n"
            "root, session, turn, new = sys.argv[1:]\n"
            "anyio.run(lambda: change(Path(root), session, turn, new, is_killed=True))"
        )
        arguments = (str(self.root), session, turn, self.edited(turn))
        done = await anyio.run_process(
            [sys.executable, "-c", code, *arguments], check=False, cwd=Path.cwd()
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    def begin(self) -> tuple[str, str]:
        self.turns += 1
        turn = f"p{self.turns}"
        name = self.random.choice([*self.sessions])
        message = Message("user", (TextBlock("Go."),))
        self.sessions[name].append_prompt(message, Prompt(turn, "Go."))
        self.sessions[name].append(LoggedToolStart(f"use_{turn}"))
        return name, turn

    async def squashed(self) -> None:
        topic = f"topic{self.turns}"
        self.commit()
        self.git("checkout", "-qb", topic)
        await self.agent()
        self.user()
        self.commit()
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", "--squash", topic)
        self.commit()

    async def rebased(self) -> None:
        topic = f"topic{self.turns}"
        self.commit()
        self.git("checkout", "-qb", topic)
        await self.agent()
        self.git("commit", "-qam", "topic")
        self.git("checkout", "-q", "main")
        (self.project / "third").write_text(f"{self.random.random()}")
        self.git("add", "third")
        self.git("commit", "-qm", "third")
        self.git("rebase", "-q", "main", topic)
        self.git("checkout", "-q", "main")
        self.git("merge", "-q", "--ff-only", topic)

    def found(self, origins: Origins) -> dict[int, set[str]]:
        """The authors of the lines that have a number."""
        blame = origins.blame(str(self.file))
        turns = [USER] * blame.line_count
        for each in blame.lines:
            hunk = blame.hunks[each.hunk]
            assert hunk.session_id in self.sessions
            turns[each.first - 1 : each.first - 1 + each.count] = [hunk.turn] * each.count
        found: dict[int, set[str]] = {}
        for text, turn in zip(self.file.read_text().splitlines(), turns, strict=True):
            if (number := number_of(text)) is not None:
                found.setdefault(number, set()).add(turn)
        return found

    def check(self) -> None:
        found = self.found(self.fresh())
        assert found == {number: {self.author[number]} for number in found}
        assert self.found(self.origins) == found


@pytest.mark.parametrize("seed", prove_rest(range(24), (0, 1, 2)))
async def test_each_line_has_its_author_after_random_work(tmp_path: Path, seed: int):
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    story = Story(tmp_path, seed)
    elsewhere = Session.open(tmp_path / "sessions", "20260101-000000-00000003", str(tmp_path))
    steps = ["agent"] * 4 + ["user"] * 2 + ["killed", "squashed", "rebased", "check"]
    for _ in range(STEPS):
        match story.random.choice(steps):
            case "user":
                story.user()
            case "check":
                story.check()
            case other:
                await getattr(story, other)()
    story.check()
    await anyio.run_process([str(ruff), "format", "--isolated", str(story.file)])
    assert story.file.read_text().count("\n") > len(story.author) / 2
    story.check()
    for session in (elsewhere, *story.sessions.values()):
        session.close()
