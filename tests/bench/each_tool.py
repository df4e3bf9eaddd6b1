"""What each tool costs by itself, next to the bare operation in the same run; what the model is told of them; what they add to the start."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import anyio
import msgspec

from sanderling.conversation.prompt import system_prompt
from sanderling.permissions.decide import Effect, decide
from sanderling.permissions.rules import rule_from_text
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.tools.base import Context
from sanderling.tools.catalog import TOOLS, specs_of
from sanderling.tools.outcome import Outcome
from sanderling.tools.ripgrep import find_ripgrep
from tests.bench.shared import Bench, Row, median_row, ms_of, plain_ms, timed
from tests.conftest import ROOT
from tests.workspaces import workspace_of

FILES, FILES_IN_DIRECTORY = 20_000, 100
LINE = "a line of about forty characters or so.\n"
SPARSE_BYTES = 5 << 30
MILLION = 1_000_000
EDITED_BYTES = 10 << 20
SETTLED_S = 0.02  # a file that was written in this moment is looked at twice
HEAVY = ("tree_sitter", "html_to_markdown", "httpcore", "anthropic")
LOADED = "import sys, sanderling.editor.host; print(*sys.modules)"
BARE = "import anyio, asyncio, logging.handlers, msgspec, pynvim, shutil"
OURS = f"{BARE}; import sanderling.editor.host"
FIRST_USE = """
import time
from sanderling.tools.catalog import TOOLS
from sanderling.permissions.decide import Effect, decide
begin = time.perf_counter()
decide(Effect("bash", "run", command="git status && ls -la", cwd="/p"), "ask", (), project="/p", is_confined=True, write_paths=())
print(1000 * (time.perf_counter() - begin))
"""
RULES = ("allow bash npm test", "deny read .env", "deny bash rm", "ask bash git push")
TYPICAL = "git status --short && npm test 2>&1 | tail -30"


class Desk:
    """A project, and the tools on it as the conversation uses them."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        (self.project / ".git").mkdir(parents=True)
        policy = SandboxPolicy(
            project=str(self.project), home=str(folder), state_dir=str(folder / "state")
        )
        self._sandbox = SessionSandbox(policy, lambda _: None, lambda: None)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sandbox.manager.serve)
            self._workspace = workspace_of(self.project, self._sandbox, start=tasks.start_soon)
            yield
            tasks.cancel_scope.cancel()

    async def use(self, name: str, **data: object) -> Outcome:
        tool = TOOLS[name]
        outcome = await tool.run(
            tool.parse(data), Context(self._workspace, "t1", lambda _text: None)
        )
        assert not outcome.is_error, outcome.content
        return outcome

    async def ms(self, bench: Bench, count: int, name: str, **data: object) -> list[float]:
        """How long `count` uses take, after one that does not count."""
        await self.use(name, **data)
        return [await ms_of(lambda: self.use(name, **data)) for _ in bench.times(count)]


def _plain_ms(bench: Bench, count: int, argv: list[str]) -> list[float]:
    return [plain_ms(argv) for _ in bench.times(count)]


def _ratio(what: str, values: list[float], plain: list[float]) -> Row:
    return Row(f"{what}: ours / bare", median(values) / median(plain), "times")


def each_tool(bench: Bench) -> Iterator[Row]:
    for measure in (_words, _imports):
        yield from measure(bench)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        desk = Desk(Path(folder))
        yield from asyncio.run(_on_a_project(bench, desk))


async def _on_a_project(bench: Bench, desk: Desk) -> list[Row]:
    rows: list[Row] = []
    async with desk.served():
        for measure in (_shell, _files, _edits, _searches):
            rows += await measure(bench, desk)
    return rows


def _words(_bench: Bench) -> Iterator[Row]:
    sizes = {spec.name: len(msgspec.json.encode(spec)) for spec in specs_of(TOOLS.values())}
    prompt = len(system_prompt().encode())
    largest = max(sizes, key=sizes.__getitem__)
    note = f"prompt {prompt:,}, tools {sum(sizes.values()):,}, most of them {largest} {sizes[largest]:,}"
    total = prompt + sum(sizes.values())
    yield Row("tools: bytes of schemas and system prompt", total, "", 16 * 1024, note)


def _imports(bench: Bench) -> Iterator[Row]:
    loaded = subprocess.check_output([sys.executable, "-c", LOADED], cwd=ROOT, text=True).split()
    heavy = sorted({name.partition(".")[0] for name in loaded} & {*HEAVY})
    yield Row("host's imports: heavy ones among them", len(heavy), "", 0, " ".join(heavy))
    bare = _plain_ms(bench, 10, [sys.executable, "-c", BARE])
    ours = _plain_ms(bench, 10, [sys.executable, "-c", OURS])
    yield median_row("host's imports: without ours, a whole Python", bare, "ms")
    yield median_row("host's imports: with ours, a whole Python", ours, "ms")
    argv = [sys.executable, "-c", FIRST_USE]
    first = [float(subprocess.check_output(argv, cwd=ROOT)) for _ in bench.times(10)]
    yield median_row("the first command that is held against the rules", first, "ms", 20)
    rules = [rule_from_text(text) for text in RULES]
    effect = Effect("bash", "run", command=TYPICAL, cwd="/p")
    later = []
    for _ in bench.times(200):
        with timed(later):
            decide(effect, "ask", rules, project="/p", is_confined=True, write_paths=())
    yield median_row("a later command that is held against the rules", later, "ms", 5)


async def _shell(bench: Bench, desk: Desk) -> list[Row]:
    ours = await desk.ms(bench, 50, "bash", command="true")
    plain = _plain_ms(bench, 50, ["bash", "-c", "true"])
    return [
        median_row("bash: true", ours, "ms"),
        median_row("bash: true, plain subprocess.run", plain, "ms"),
        _ratio("bash: true", ours, plain),
    ]


async def _files(bench: Bench, desk: Desk) -> list[Row]:
    small, large = desk.project / "small.txt", desk.project / "large.txt"
    small.write_text(LINE * 200)
    with large.open("w") as file:
        file.write(LINE * (2 * MILLION))
        file.truncate(SPARSE_BYTES)
    cat = _plain_ms(bench, 20, ["cat", str(small)])
    read = await desk.ms(bench, 20, "read", path="small.txt")
    first = await desk.ms(bench, 10, "read", path="large.txt")
    far = await desk.ms(bench, 5, "read", path="large.txt", offset=MILLION, limit=100)
    sed = _plain_ms(bench, 5, ["sed", "-n", f"{MILLION}{{p;q}}", str(large)])
    large.unlink()
    return [
        median_row("read: 200 lines", read, "ms"),
        _ratio("read: 200 lines, cat", read, cat),
        median_row("read: first page of 5 GB", first, "ms", 50),
        median_row("read: line 1,000,000 of 5 GB", far, "ms"),
        _ratio("read: line 1,000,000, sed", far, sed),
    ]


async def _edits(bench: Bench, desk: Desk) -> list[Row]:
    rows = []
    for what, size in (("8 KB", 8 << 10), ("10 MB", EDITED_BYTES)):
        path = desk.project / "edited.txt"
        lines = [f"line {number} of the file that is edited\n" for number in range(size // 40)]
        path.write_text("".join(lines))
        await desk.use("read", path="edited.txt")
        values, bare = [], []
        words = [f"line {size // 80} of the file", "another line of the file"]
        for _ in bench.times(10):
            old, new = words
            await anyio.sleep(SETTLED_S)
            values.append(
                await ms_of(
                    lambda old=old, new=new: desk.use(
                        "edit", path="edited.txt", edits=[{"old": old, "new": new}]
                    )
                )
            )
            with timed(bare):
                text = path.read_text().replace(old, new)
                _replace(path.with_suffix(".bare"), text)
            words.reverse()
        name = f"edit: one line of {what}"
        rows += [median_row(name, values, "ms"), _ratio(f"{name}, bare replacement", values, bare)]
    return rows


async def _searches(bench: Bench, desk: Desk) -> list[Row]:
    tree = desk.project / "tree"
    for number in range(FILES):
        directory = tree / f"d{number // FILES_IN_DIRECTORY:03}"
        if number % FILES_IN_DIRECTORY == 0:
            directory.mkdir(parents=True)
        name = "rare.py" if number == FILES // 2 else f"f{number}.{'py' if number % 2 else 'txt'}"
        (directory / name).write_text(f"def function_{number}():\n" + LINE * 20)
    rg = [find_ripgrep(str(desk.project)), "--no-config"]
    rows: list[Row] = []
    for what, tool, data, bare in (
        ("one match", "grep", {"pattern": "function_777\\("}, ["function_777\\("]),
        ("20,000 matches", "grep", {"pattern": "^def "}, ["^def "]),
        ("one file", "glob", {"pattern": "**/rare.py"}, ["--files", "--glob=**/rare.py"]),
        ("10,000 files", "glob", {"pattern": "*.py"}, ["--files", "--sortr=modified", "-g*.py"]),
    ):
        ours = await desk.ms(bench, 10, tool, path="tree", **data)
        plain = _plain_ms(bench, 10, [*rg, *bare, str(tree)])
        name = f"{tool} in {FILES:,} files: {what}"
        rows += [median_row(name, ours, "ms"), _ratio(f"{name}, rg", ours, plain)]
    ls = await desk.ms(bench, 10, "ls", path="tree")
    return [*rows, median_row(f"ls in {FILES:,} files", ls, "ms")]


def _replace(path: Path, text: str) -> None:
    """The least that is safe: whoever reads it, or finds it after a crash, has the old text or the new one."""
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
