"""
A host that is killed with SIGKILL while it edits, undoes, redoes or rewinds, again and again, also while it finishes that.

Whatever was begun is finished when the session is opened again, or was not begun: files, the session's log and the conversation tell
the same, and nothing is lost.
"""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanderling.changes.records import NAME, Restoring, read_journal
from sanderling.sandbox.inside.writing import TEMPORARY
from sanderling.session.log import changes_dir
from sanderling.session.session import Session
from tests.chaos.forks import Forks
from tests.chaos.undoing_host import Act
from tests.conftest import prove
from tests.fuzz import part
from tests.nvim.replies import use
from tests.unit import test_restorer

pytestmark = pytest.mark.guard

EDITED = [f"edited{number}" for number in range(6)]
COMMAND = """
for each in of*; do echo changed > $each; done
rm gone; mv old new; mkdir -p made/deep; echo x > made/deep/file; ln -sfn other link; chmod 711 directory
echo more >> directory/file; echo both >> hard1; rm -r removed; chmod 755 of1
"""


def tree(project: Path) -> dict[str, tuple[int, bytes | str]]:
    """All that stands in the project, but for files half written: a process that is killed while it names one leaves it to a later write."""
    found = test_restorer.tree(project)
    return {path: each for path, each in found.items() if TEMPORARY not in path}


class Hosts(Forks):
    def do(self, act: Act, kill_after_s: float | None = None) -> float | None:
        """Do it; return how long it took, None if it was killed."""
        pid = self.begin(act)
        line = self.line()
        assert not line.strip(), f"it has ended with {line} before it began"
        began = time.monotonic()
        status = self.end(pid, kill_after_s)
        assert status in (0, -signal.SIGKILL)
        return None if status else time.monotonic() - began


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    hosts = Hosts("tests.chaos.undoing_host", tmp_path_factory.mktemp("home"))
    yield hosts
    hosts.close()


class Story:
    """A session in which the same things happen again and again, and its host is killed."""

    def __init__(self, hosts: Hosts, folder: Path, seed: int, *, is_confined: bool) -> None:
        self.hosts, self.folder, self.is_confined = hosts, folder, is_confined
        self.chance = random.Random(seed)
        self.project = folder / "project"
        self.longest_s: dict[str, float] = {}
        self.restored = 0
        self.fill()
        self.before = tree(self.project)

    def fill(self) -> None:
        for directory in ("directory", "removed/deep"):
            (self.project / directory).mkdir(parents=True)
        names = [*EDITED, *(f"of{number}" for number in range(40)), "gone", "old", "hard1"]
        for name in (*names, "directory/file", "removed/deep/file"):
            (self.project / name).write_text(f"before\n{name}\n" * 200)
        (self.project / "link").symlink_to("gone")
        os.link(self.project / "hard1", self.project / "hard2")

    def act(self, what: str, prompt_id: str = "", *, is_killed: bool = False) -> bool:
        """Do it, or be killed meanwhile: False."""
        replies = self.replies() if what == "apply" else []
        act = Act(str(self.folder), what, prompt_id, replies, self.is_confined)  # type: ignore[arg-type]
        kill_after_s = None
        if is_killed:
            kill_after_s = self.chance.uniform(0, self.longest_s.get(what, 0.2))
        took_s = self.hosts.do(act, kill_after_s)
        if took_s and not is_killed:
            self.longest_s[what] = took_s
        return took_s is not None

    def replies(self) -> list[list[dict[str, object]]]:
        edits = [
            use("edit", path=name, edits=[{"old": f"before\n{name}\n" * 200, "new": "after\n"}])
            for name in EDITED
        ]
        made = [use("write", path=f"written/{number}", content="new\n") for number in range(3)]
        reads = [use("read", path=name) for name in EDITED]
        return [reads, [*edits, *made], [use("bash", command=COMMAND)], [{"text": "Done."}]]

    def be_killed_in(self, what: str, prompt_id: str = "") -> None:
        """Be killed in it, and perhaps while that is finished; then be opened again."""
        if not self.act(what, prompt_id, is_killed=True):
            while self.chance.random() < 0.5 and not self.act("resume", is_killed=True):
                pass
        self.act("resume")

    def session(self) -> Session:
        session = Session.open(self.folder / "state" / "sessions", "s1", str(self.project))
        session.close()
        return session

    def told(self) -> list[str]:
        """What the log says of undoings, in order."""
        lines = self.session().path.read_bytes().splitlines()
        return [
            record["undoing_id"]
            for record in map(json.loads, lines)
            if record["type"] == "restored"
        ]

    def require_told(self) -> None:
        """Each undoing that the journal knows is told in the log, once. A line that was torn is none, and is cut off by the next one."""
        records = read_journal(changes_dir(self.session().path) / NAME).records
        assert self.told() == [each.id for each in records if isinstance(each, Restoring)]


@prove
@pytest.mark.parametrize(
    "seed, rounds, is_confined",
    [(1, 1, False), (2, part(12), False), (3, part(12), False), (4, part(6), True)],
)
def test_undoing_may_be_killed_at_any_moment(hosts, tmp_path, seed, rounds, is_confined):
    story = Story(hosts, tmp_path, seed, is_confined=is_confined)
    for number in range(rounds):
        turn = f"p{number}"
        assert story.act("apply", turn)
        after = tree(story.project)
        assert after != story.before
        acts = (("undo", story.before, after), ("redo", after, story.before))
        for what, target, other in acts * (1 if rounds == 1 else 2):
            story.be_killed_in(what)
            found = tree(story.project)
            assert found in (target, other)
            story.require_told()
            if found != target:
                story.act(what)
            assert tree(story.project) == target
        story.be_killed_in("rewind", turn)
        asked = [prompt.id for prompt in story.session().prompt_history.prompts]
        story.require_told()
        assert (tree(story.project), turn in asked) in ((story.before, False), (after, True))
        if turn in asked:
            story.act("rewind", turn)
        assert tree(story.project) == story.before
        assert turn not in [prompt.id for prompt in story.session().prompt_history.prompts]


@prove
@pytest.mark.parametrize("seed", range(3))
def test_editing_may_be_killed_at_any_moment(hosts, tmp_path, seed):
    """Each file holds what it held or what it was given, and what was changed is taken back."""
    story = Story(hosts, tmp_path, seed, is_confined=False)
    story.act("apply", "p")
    story.act("undo")
    assert tree(story.project) == story.before
    story.longest_s["apply"] = 0.3
    story.replies = lambda: Story.replies(story)[:2]  # type: ignore[method-assign]
    for number in range(15):
        story.act("apply", f"p{number}", is_killed=True)
        for name in EDITED:
            text = (story.project / name).read_text()
            assert text in ("after\n", f"before\n{name}\n" * 200)
        for path in story.project.rglob(f"{TEMPORARY}*"):  # as a later write does, after a minute
            path.unlink()
        story.act("undo")
        assert tree(story.project) == story.before
