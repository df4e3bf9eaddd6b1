"""A user, the agent's tools and its commands change files at random, and turns are undone, redone and rewound: nothing of the user's is lost."""

import random
import shutil
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import prove, prove_rest
from tests.fuzz import part
from tests.unit.test_file_tools import Desk, MemoryEditor, Place
from tests.unit.test_file_tools import place as place  # noqa: PLC0414 - a fixture
from tests.unit.test_restorer import Agent, tree

from sanderling.changes.restoring import RestorePlan
from sanderling.errors import ToolError
from sanderling.tools.read import read
from sanderling.tools.write import write

NAMES = ("one", "two", "sub/three")
OPEN = ("one", "sub/three")


class Story:
    """What happens in a directory of the project, in the order that `seed` stands for."""

    def __init__(self, desk: Desk, editor: MemoryEditor, root: Path, seed: int) -> None:
        self.desk, self.editor, self.root = desk, editor, root
        self.agent = Agent(desk)
        self.agent.undoings = 1000 * seed  # their names are those of one journal
        self.chance = random.Random(seed)
        self.count = 0
        self.turns: list[str] = []
        self.undone_at = 0
        (root / "sub").mkdir(parents=True)
        for name in NAMES[:2]:
            (root / name).write_text("".join(self.line("base") for _ in range(12)))
        self.reload()
        self.begin()

    # --- what there is -----------------------------------------------------------------------------------------------------

    def state(self, but: Collection[str] = ()) -> dict[str, object]:
        """What stands in each file and in its buffer."""
        files = {str(self.root / name): each for name, each in tree(self.root).items()}
        texts = {path: (each.text, each.is_modified) for path, each in self.editor.buffers.items()}
        paths = sorted({*files, *texts} - {*but})
        return {path: (files.get(path), texts.get(path)) for path in paths}

    def lines_of(self, whose: str) -> set[str]:
        files = [path.read_text() for path in self.root.rglob("*") if path.is_file()]
        texts = [*files, *(each.text for each in self.editor.buffers.values())]
        return {line for text in texts for line in text.splitlines() if line.startswith(whose)}

    def reload(self) -> None:
        """The editor reads again what has changed on the disk, where nothing is unsaved."""
        for name in OPEN:
            path = self.root / name
            buffer = self.editor.buffers.get(str(path))
            if not path.exists():
                if buffer and not buffer.is_modified:
                    del self.editor.buffers[str(path)]
            elif not buffer or (not buffer.is_modified and buffer.text != path.read_text()):
                self.editor.open(path)

    # --- what is done ------------------------------------------------------------------------------------------------------

    def line(self, whose: str) -> str:
        self.count += 1
        return f"{whose} {self.count}\n"

    def edited(self, text: str, whose: str) -> str:
        lines = text.splitlines(keepends=True)
        for _ in range(self.chance.randint(1, 3)):
            at = self.chance.randint(0, len(lines))
            end = min(len(lines), at + self.chance.choice((0, 0, 1, 2)))
            lines[at:end] = [self.line(whose) for _ in range(self.chance.choice((0, 1, 1, 2)))]
        return "".join(lines)

    def change(self, path: Path, whose: str) -> None:
        """A change of a file as any program makes it: an edit mostly, else it comes, goes, or gets another mode."""
        what = self.chance.random()
        if not path.exists():
            path.write_text(self.line(whose) + self.line(whose))
        elif what < 0.1:
            path.unlink()
        elif what < 0.2:
            path.chmod(self.chance.choice((0o644, 0o755, 0o600)))
        elif what < 0.3:
            other = path.with_name(f"{path.name}.new")
            other.write_text(self.edited(path.read_text(), whose))
            other.rename(path)
        else:
            path.write_text(self.edited(path.read_text(), whose))

    async def person(self) -> None:
        path = self.root / self.chance.choice(NAMES)
        buffer = self.editor.buffers.get(str(path))
        if buffer and self.chance.random() < 0.6:
            self.editor.type(path, self.edited(buffer.text, "person"))
            if self.chance.random() < 0.5:
                self.editor.save(path)
        elif not (buffer and buffer.is_modified):
            self.change(path, "person")
        self.reload()

    async def tool(self) -> None:
        path = self.root / self.chance.choice(NAMES)
        buffer = self.editor.buffers.get(str(path))
        text = buffer.text if buffer else path.read_text() if path.exists() else ""
        if path.exists():
            await self.desk.use(read, path=str(path))
        with suppress(ToolError):  # somebody has removed what is open
            await self.desk.use(write, path=str(path), content=self.edited(text, "agent"))
        self.reload()

    async def command(self) -> None:
        self.count += 1
        workspace = self.desk.workspace
        async with workspace.changes.during(workspace.environment, f"c{self.count}"):
            for name in self.chance.sample(NAMES, self.chance.randint(1, 2)):
                self.change(self.root / name, "agent")
        self.reload()

    def begin(self) -> None:
        self.turns.append(f"{self.root.name} {len(self.turns)}")
        self.agent.begin(self.turns[-1])

    async def take_back(self, *turns: str) -> RestorePlan:
        before = self.lines_of("person")
        undone = await self.agent.undo(*turns)
        assert before <= self.lines_of("person")
        self.reload()
        return undone

    async def undo(self) -> None:
        undone = (await self.agent.timeline()).undone_turns
        if turn := next((each for each in reversed(self.turns) if each not in undone), None):
            await self.take_back(turn)
            self.undone_at = self.count
        self.begin()

    async def is_undone(self) -> bool:
        last = (await self.agent.timeline()).last_undoing
        return last is not None and set(last.turns) <= set(self.turns)

    async def redo(self) -> None:
        """What the person has written since the undoing stays; what they had written before may be what the agent has removed."""
        if await self.is_undone():
            lines = self.lines_of("person")
            since = {line for line in lines if int(line.split()[1]) > self.undone_at}
            await self.agent.redo()
            assert since <= self.lines_of("person")
            self.reload()
        self.begin()

    async def undo_and_redo(self, *turns: str) -> None:
        """A file that has come back below unsaved text does not go again."""
        before, left = self.state(), set[str]()
        undone = await self.take_back(*(turns or (self.chance.choice(self.turns),)))
        if undone.steps:
            redone = await self.agent.redo()
            left = {each.path for each in redone.left}
            assert all(self.editor.is_modified(Path(path)) for path in left)
            self.reload()
        assert self.state(left) == {path: each for path, each in before.items() if path not in left}

    async def rewind(self) -> None:
        first = self.chance.randrange(len(self.turns))
        await self.undo_and_redo(*self.turns[first:])

    async def step(self) -> None:
        acts = (
            *[self.person] * 4,
            *[self.tool] * 3,
            *[self.command] * 3,
            self.undo,
            self.redo,
            self.undo_and_redo,
            self.rewind,
        )
        if self.chance.random() < 0.15:
            self.begin()
        else:
            await self.chance.choice(acts)()


async def tell_each(
    place: Place, seeds: range, tell: Callable[[Story], Awaitable[None]], *, is_on: bool
) -> None:
    for seed in seeds:
        editor = MemoryEditor()
        async with place.desk(editor, is_on=is_on) as desk:
            story = Story(desk, editor, place.project / f"s{seed}", seed)
            await tell(story)
        shutil.rmtree(story.root)


@pytest.mark.parametrize(
    "is_on, seeds",
    prove_rest(
        [
            (False, range(10)),
            # Few to a journal, of which each undoing reads all.
            *[(True, range(100 + 25 * n, 125 + 25 * n)) for n in range(part(4))],
            *[(False, range(1000 + 25 * n, 1025 + 25 * n)) for n in range(part(20))],
        ],
        keep=(0,),
    ),
)
async def test_nothing_of_the_persons_is_lost_and_undo_then_redo_is_identity(place, is_on, seeds):
    async def tell(story: Story) -> None:
        for _ in range(story.chance.randint(5, 30)):
            await story.step()

    await tell_each(place, seeds, tell, is_on=is_on)


@prove
@pytest.mark.parametrize(
    "is_on, seeds",
    [(False, range(5)), *[(True, range(100 + 10 * n, 110 + 10 * n)) for n in range(part(5))]],
)
async def test_without_the_person_each_state_that_was_accepted_comes_back(place, is_on, seeds):
    async def tell(story: Story) -> None:
        states = [story.state()]
        for _ in range(story.chance.randint(1, 6)):
            for _ in range(story.chance.randint(1, 5)):
                await story.chance.choice((story.tool, story.command))()
            states.append(story.state())
            story.begin()
        for turn, state in zip(reversed(story.turns[:-1]), reversed(states[:-1]), strict=True):
            assert (await story.take_back(turn)).left == ()
            assert story.state() == state
        while await story.is_undone():
            assert (await story.agent.redo()).left == ()
        story.reload()
        assert story.state() == states[-1]

    await tell_each(place, seeds, tell, is_on=is_on)
