"""grep, glob and ls: with the real ripgrep, in the real sandbox, on a real repository."""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conftest import happens, little_work, processes_with, prove, prove_rest
from tests.sandbox.child import in_child
from tests.sandboxes import in_own_task, kept, policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.errors import ToolError
from sanderling.sandbox.files import Identity
from sanderling.sandbox.sandbox import Sandbox, alone
from sanderling.tools import ripgrep
from sanderling.tools.base import Context, Tool
from sanderling.tools.edit import edit
from sanderling.tools.editor import Buffer
from sanderling.tools.glob import glob
from sanderling.tools.grep import GrepInput, grep
from sanderling.tools.inside import tree
from sanderling.tools.ls import ls
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import MAX_ALTERNATIVES, Glob, GlobError, escaped, rooted
from sanderling.tools.read import read
from sanderling.tools.workspace import Workspace

OURS = Path(sys.executable).parent / "rg"
RIPGREP = str(OURS) if OURS.exists() else shutil.which("rg")
FILES = {
    ".gitignore": "*.log\n/build/\n!keep.log\nsecret.py\n",
    ".github/workflow.yml": "run: needle\n",
    "README.md": "No such thing here.\n",
    "build/out.py": "needle = 'built'\n",
    "debug.log": "needle in a log\n",
    "keep.log": "needle in a log that is kept\n",
    "src/.gitignore": "generated/\n",
    "src/app.py": "import os\n\n\ndef needle():\n    return 1\n\n\nneedle()\n",
    "src/generated/code.py": "needle = 2\n",
    "src/deep/er/util.ts": "export const needle = 3;\n",
    "src/secret.py": "needle = 'secret'\n",
    "src/view.tsx": "const Needle = () => needle;\n",
}


class Tools:
    """The tools, as the conversation uses them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    async def use(self, tool: Tool, **data: Any) -> Outcome:
        context = Context(self.workspace, "t1", lambda _: None)
        return await tool.run(tool.parse(data), context)

    async def text(self, tool: Tool, **data: Any) -> str:
        outcome = await self.use(tool, **data)
        assert not outcome.is_error
        assert isinstance(outcome.content, str)
        outcome.content.encode()  # the API takes only what is text
        assert len(outcome.content.encode()) <= 30_000
        return outcome.content

    async def refusal(self, tool: Tool, **data: Any) -> str:
        with pytest.raises(ToolError) as refused:
            await self.use(tool, **data)
        return str(refused.value)

    async def grep(self, pattern: str, **data: Any) -> str:
        return await self.text(grep, pattern=pattern, **data)

    async def names(self, pattern: str, **data: Any) -> list[str]:
        return sorted((await self.text(glob, pattern=pattern, **data)).split("\n")[1:])


class Place:
    """A repository in a person's home, and a way to search it."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.project = base, base / "home", base / "home/project"
        self.project.mkdir(parents=True)
        self.git("init", "-q")

    def git(self, *arguments: str, given: bytes = b"") -> bytes:
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.project, env=env, input=given, check=True, capture_output=True
        ).stdout

    def write(self, files: dict[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    @asynccontextmanager
    async def tools(self, **changes: Any) -> AsyncIterator[Tools]:
        """`read_paths` shows the program, whether the sandbox's layout does or not: that is a test of its own."""
        sandbox = sandbox_of(policy_below(self.base, **{"read_paths": (RIPGREP,), **changes}))
        with alone():
            async with kept(sandbox):
                yield Tools(workspace_of(self.project, sandbox))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_")):
            monkeypatch.delenv(name)
    return Place(tmp_path)


@pytest.fixture
def repository(place: Place) -> Place:
    place.write(FILES)
    return place


@pytest.fixture
async def tools(place: Place) -> AsyncIterator[Tools]:
    async for tools in in_own_task(place.tools()):
        yield tools


def running_with(argument: str) -> list[int]:
    """The processes that were started with `argument` as the last one."""
    return processes_with("cmdline", lambda line: line.endswith(argument.encode() + b"\0"))


def files_in(text: str) -> list[str]:
    """The headings of grep's output."""
    return [block.split("\n")[0] for block in text.split("\n\n")[1:]]


# --- grep: what is found -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("repository")
async def test_matches_are_grouped_by_file_in_the_order_of_paths(tools):
    outcome = await tools.use(grep, pattern=r"needle\b")
    assert outcome.summary == "6 matches in 5 files"
    assert outcome.content == (
        "6 matches in 5 files:\n\n"
        ".github/workflow.yml\n1: run: needle\n\n"
        "keep.log\n1: needle in a log that is kept\n\n"
        "src/app.py\n4: def needle():\n8: needle()\n\n"
        "src/deep/er/util.ts\n1: export const needle = 3;\n\n"
        "src/view.tsx\n1: const Needle = () => needle;"
    )


@pytest.mark.parametrize(
    "options, files",
    prove_rest(
        [
            ({"path": "src"}, ["src/app.py", "src/deep/er/util.ts", "src/view.tsx"]),
            ({"path": "src/app.py"}, ["src/app.py"]),
            ({"path": "./src/../src/deep"}, ["src/deep/er/util.ts"]),
            ({"glob": "*.py"}, ["src/app.py"]),
            ({"glob": "*.{ts,tsx}"}, ["src/deep/er/util.ts", "src/view.tsx"]),
            ({"glob": "src/*.{py,tsx}"}, ["src/app.py", "src/view.tsx"]),
            ({"glob": "src/**/*.ts"}, ["src/deep/er/util.ts"]),
            ({"glob": "**/er/*"}, ["src/deep/er/util.ts"]),
            ({"glob": "{src,lib}/**/u?il.t[a-s]"}, ["src/deep/er/util.ts"]),
            ({"glob": "*.py", "path": "src/view.tsx"}, ["src/view.tsx"]),
            ({"type": "py"}, ["src/app.py"]),
            ({"type": "ts", "glob": "view.*"}, ["src/view.tsx"]),
            ({"type": "py", "glob": "*.ts"}, []),
            # What is ignored is found where it is named itself, and nowhere else.
            ({"glob": "secret.py"}, []),
            ({"glob": "*.log"}, ["keep.log"]),
            ({"path": "build"}, ["build/out.py"]),
            ({"path": "src/generated"}, ["src/generated/code.py"]),
            ({"path": "src/secret.py"}, ["src/secret.py"]),
        ],
        keep=(0, 13),
    ),
)
@pytest.mark.usefixtures("repository")
async def test_filters_choose_files_and_never_bring_back_what_is_ignored(tools, options, files):
    text = await tools.grep(r"needle\b", **options)
    assert files_in(text) == files


async def test_pattern_is_a_regular_expression_unless_it_is_literal(place, tools):
    place.write({"a.txt": "a.b(c)\naxb\nAXB\n"})
    assert "2 matches" in await tools.grep("a.b")
    assert "3 matches" in await tools.grep("a.b", ignore_case=True)
    assert "\n1: a.b(c)" in await tools.grep("b(c)", literal=True)
    assert "1 match in" in await tools.grep("a.b", literal=True)


@prove
async def test_context_lines_are_told_apart_and_gaps_are_marked(place, tools):
    place.write({"a.txt": "".join(f"line {n}\n" for n in range(1, 31))})
    text = await tools.grep(r"line (5|6|20)$", context=1)
    assert text.split("\n\n")[1] == (
        "a.txt\n4- line 4\n5: line 5\n6: line 6\n7- line 7\n--\n19- line 19\n20: line 20\n21- line 21"
    )


@prove
async def test_files_only_counts_matching_lines(repository, tools):
    repository.write({"many.txt": "needle\n" * 1000})
    text = await tools.grep("needle", files_only=True, glob="*.{py,txt}")
    cut = await tools.grep("needle", files_only=True, limit=2)
    assert text == "2 files with at least 102 matches:\nmany.txt: 100+\nsrc/app.py: 2"
    assert cut.startswith("The first 2 of 6 files with at least 106 matches. Narrow")
    assert len(cut.split("\n")) == 4


@prove
async def test_pattern_with_a_newline_matches_across_lines(place, tools):
    place.write({"a.c": "int main(\n    int argc)\n{\n}\n", "b.c": r"a \n b"})
    text = await tools.grep(r"main\(\n\s+int argc")
    assert text.split("\n\n")[1] == "a.c\n1: int main(\n2:     int argc)"
    assert files_in(await tools.grep(r"\\n", files_only=False)) == ["b.c"]
    assert files_in(await tools.grep(r"\n", literal=True)) == ["b.c"]


@prove
async def test_end_of_line_is_found_before_a_carriage_return(place, tools):
    place.write({"dos.txt": "one\r\ntwo\r\n"})
    assert (await tools.grep("one$")).endswith("dos.txt\n1: one")


@prove
async def test_no_match_says_how_many_files_were_searched(repository, tools):
    outcome = await tools.use(grep, pattern="no such text", path="src")
    assert outcome.content == "No matches for no such text in 4 files."
    assert outcome.summary == "no matches"
    assert await tools.grep("x{50}", glob="src/**/*.ts") == "No matches for x{50} in 1 file."
    assert await tools.grep("x", glob="*.rs") == (
        f"No files were searched: none in {repository.project} match *.rs."
    )


@prove
async def test_input_with_a_pattern_that_is_an_option_is_searched_for(place, tools):
    place.write({"-n.txt": "--files\n-e\n--pre=touch x\n", "b": "--files\n"})
    for pattern in ("--files", "-e", "--pre=touch x"):
        assert f": {pattern}" in await tools.grep(pattern)
    assert files_in(await tools.grep("--files", path="-n.txt")) == ["-n.txt"]
    assert files_in(await tools.grep("--files", glob="-*")) == ["-n.txt"]
    assert await tools.names("-n*") == ["-n.txt"]
    assert await tools.names("--files") == []
    for value in ("--pre=touch pwned", "-z", "py --search-zip", "--type-add=a:b"):
        assert "type" in await tools.refusal(grep, pattern="x", type=value)
    assert not (place.project / "pwned").exists()


@prove
async def test_configuration_of_ripgrep_is_not_read(place, monkeypatch):
    place.write({"a.txt": "needle\n", "rc": "--invert-match\n"})
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(place.project / "rc"))
    async with place.tools(env_pass=("RIPGREP_CONFIG_PATH",)) as tools:
        assert files_in(await tools.grep("needle")) == ["a.txt"]


# --- grep: bounds ------------------------------------------------------------------------------------------------------


async def test_more_matches_than_the_limit_are_counted_by_directory(place, tools):
    place.write({f"{name}.txt": "needle\n" * 150 for name in ("d", "b/d/x", "b/a", "c/c")})
    text = await tools.grep("needle")
    assert text.startswith(
        "The first 20 of 600 matches in 4 files. Narrow the pattern, or use path, glob or type to see others."
        " At most 5 per file are shown.\n"
        "By directory: b/ 300 in 2 files, ./ 150 in 1 file, c/ 150 in 1 file\n\n"
        "b/a.txt\n1: needle\n2: needle\n3: needle\n4: needle\n5: needle\n(145 more)\n\n"
        "b/d/x.txt\n1: needle\n"
    )
    assert files_in(text) == ["b/a.txt", "b/d/x.txt", "c/c.txt", "d.txt"]
    below = await tools.grep("needle", path="b", limit=7)
    assert below.startswith("The first 7 of 300 matches in 2 files. ")
    assert "By directory: b/ 150 in 1 file, b/d/ 150 in 1 file\n" in below
    exact = await tools.grep("needle", limit=600)
    assert exact.startswith("600 matches in 4 files:\n")


async def test_matches_of_one_file_beyond_the_limit_are_shown_up_to_it(place, tools):
    place.write({"only.txt": "needle\n" * 3000})
    text = await tools.grep("needle")
    assert text.startswith("The first 200 of 3,000 matches in 1 file. Narrow the pattern")
    assert len(re.findall(r"^\d+:", text, re.MULTILINE)) == 200
    assert "By directory" not in text


async def test_files_beyond_the_limit_are_counted_by_directory(place, tools):
    place.write({f"{name}/{n}.txt": "needle\n" for name in "ab" for n in range(5)})
    text = await tools.grep("needle", files_only=True, limit=3)
    assert text.startswith("The first 3 of 10 files with 10 matches. ")
    assert "\nBy directory: a/ 5 in 5 files, b/ 5 in 5 files\na/0.txt: 1\n" in text


PACKAGES: dict[str, str | bytes] = {
    "app.py": "needle\n",
    "env-of-mine/pyvenv.cfg": "home = /usr/bin\n",
    "env-of-mine/lib/site.py": "needle\n",
    "env/settings.py": "needle\n",
    "web/node_modules/ms/index.js": "needle\n",
    "web/node_modules/ms/node_modules/deep/index.js": "needle\n",
}


async def test_installed_packages_are_searched_only_where_they_are_named(place, tools):
    place.write(PACKAGES)
    (place.project / "env-of-mine/lib64").symlink_to("lib")
    text = await tools.grep("needle")
    assert files_in(text) == ["app.py", "env/settings.py"]
    assert "lib64" not in text
    for path, options in (
        ("env-of-mine/lib/site.py", {"path": "env-of-mine"}),
        ("env-of-mine/lib/site.py", {"path": "env-of-mine/lib/site.py"}),
        ("env-of-mine/lib/site.py", {"glob": "env-of-mine/**"}),
        ("env-of-mine/lib/site.py", {"glob": "**/env-of-mine/**/*.py"}),
        ("web/node_modules/ms/index.js", {"path": "web/node_modules"}),
        ("web/node_modules/ms/index.js", {"path": "web/node_modules/ms"}),
        ("web/node_modules/ms/index.js", {"glob": "**/node_modules/*/*.js"}),
    ):
        assert path in files_in(await tools.grep("needle", **options)), options
    assert await tools.names("*.py") == ["app.py", "env/settings.py"]
    assert await tools.names("*.js") == []
    assert await tools.names("**/node_modules/ms/*.js") == ["web/node_modules/ms/index.js"]
    assert await tools.names("*.py", path="env-of-mine") == ["env-of-mine/lib/site.py"]


async def test_virtual_environment_with_the_only_match_is_named(place, tools):
    place.write(PACKAGES | {"env-of-mine/lib/site.py": "other\n"})
    text = await tools.grep("other")
    assert text == (
        "No matches for other in 2 files. Not searched: env-of-mine. Pass one as path to search it."
    )


@prove
async def test_which_matches_are_shown_does_not_depend_on_the_order_they_are_found_in(place, tools):
    place.write({f"{n:03}/file.txt": f"needle {'x' * 300}\n" * 5 for n in range(400)})
    texts = {await tools.grep("needle") for _ in range(5)}
    (text,) = texts
    assert re.match(r"The first \d+ of 2,000 matches in 400 files\.", text)
    shown = files_in(text)
    assert shown == [f"{n:03}/file.txt" for n in range(len(shown))]


@prove
async def test_long_line_is_cut_around_its_match(place, tools):
    line = "é" * 5000 + "needle" + "ü" * 5000
    place.write({"min.js": line + "\n", "short.js": "a needle\n", "start.js": f"needle{line}"})
    blocks = (await tools.grep("needle")).split("\n\n")
    assert blocks[1] == f"min.js\n1: …{'é' * 200}needle{'ü' * 294}…"
    assert blocks[2] == "short.js\n1: a needle"
    assert blocks[3] == f"start.js\n1: needle{'é' * 494}…"


async def test_output_stays_below_30_kb_and_says_so(place, tools):
    place.write({f"{n}.txt": f"needle {'ü' * 480}\n" * 20 for n in range(10)})
    text = await tools.grep("needle", context=3)
    assert re.match(r"The first \d\d of 200 matches in 10 files\.", text)
    assert 20_000 < len(text.encode()) <= 30_000


@prove
async def test_line_longer_than_memory_does_not_keep_the_rest_from_being_searched(
    place, monkeypatch, tools
):
    monkeypatch.setattr(ripgrep, "MAX_MEMORY_KIB", 64 * 1024)
    place.write({"a.txt": "needle\n", "big.json": b"abcdefg " * (20 << 20) + b"needle\n"})
    text = await tools.grep("needle")
    assert text.startswith("1 match in 1 file:\n\na.txt\n1: needle")
    assert "Files of more than 64 MB were left out" in text


@prove
async def test_too_many_matches_for_memory_are_an_error_beside_what_was_found(
    place, monkeypatch, tools
):
    monkeypatch.setattr(ripgrep, "MAX_MEMORY_KIB", 64 * 1024)
    place.write({"big.txt": "A" * 7_000_000})
    assert "ran out of memory" in await tools.refusal(grep, pattern="A")


@prove
async def test_match_in_a_line_of_many_megabytes_is_told_but_not_read(place, tools):
    place.write({"a.txt": "needle\n", "big.json": b"abcdefg " * (4 << 20) + b"needle\nneedle\n"})
    text = await tools.grep("needle")
    assert text.startswith("3 matches in 2 files:")
    assert "big.json\n?: [a match in a line too long to show]\n2: needle" in text


def peak_rise_kib(function: Callable[[], None]) -> int:
    """How far our own memory rises while `function` runs; in a child, so that nothing else has raised it before."""

    def measured() -> int:
        status = Path("/proc/self/status")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak until now

        def kib(key: str) -> int:
            found = re.search(rf"{key}:\s+(\d+)", status.read_text())
            assert found
            return int(found[1])

        before = kib("VmRSS")
        function()
        return kib("VmHWM") - before

    return in_child(measured)


@prove
def test_line_of_256_mb_takes_little_memory_of_ours(place):
    with (place.project / "big.json").open("wb") as file:
        for _ in range(32):
            file.write(b"abcdefg " * (1 << 20))
        file.write(b"needle\n")

    async def search() -> None:
        async with place.tools() as tools:
            text = await tools.grep("needle", path="big.json")
            assert "?: [a match in a line too long to show]" in text

    assert peak_rise_kib(lambda: anyio.run(search)) < 64 * 1024


@prove
async def test_search_that_takes_too_long_is_stopped_and_tells_what_it_found(
    place, monkeypatch, tools
):
    """Each match of this pattern looks through all of the line, and each letter is one."""
    place.write({"a.txt": "needle\n", "slow.txt": "A" * 1_000_000})
    await tools.grep("needle")  # the sandbox has started
    monkeypatch.setattr(ripgrep, "TIMEOUT_S", 3.0)
    text = await tools.grep("needle|.*[^A-Z]|[A-Z]")
    assert await tools.grep("needle", path="a.txt")  # the sandbox goes on
    assert text.startswith("The first 1 of at least 1 match in 1 file.")
    assert text.endswith("Stopped after 3 s, so this is incomplete: search a smaller directory.")


def cut_off(place: Place, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Let each search be one that writes `after`, and is killed then."""
    program = place.project / "rg"
    # By another process: a program that one of ours has open for writing, a fork for instance, cannot be run.
    text = f"#!/bin/sh\n{after}\nkill -9 $$\n"
    subprocess.run(
        ["sh", "-c", 'cat >"$0"; chmod 755 "$0"', program], input=text, text=True, check=True
    )
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda _: str(program))


@pytest.mark.parametrize("after", prove_rest(["", "echo torn | tr -d '\\n'"], keep=(-1,)))
async def test_search_that_was_killed_before_it_found_something_has_failed(
    repository, monkeypatch, tools, after
):
    cut_off(repository, monkeypatch, after)
    for tool in (glob, grep):
        told = await tools.refusal(tool, pattern="needle")
        assert "ended by SIGKILL before it searched all of" in told
        assert "Killed" not in told


async def test_search_that_was_killed_later_tells_what_it_found_and_that_it_is_not_complete(
    repository, monkeypatch, tools
):
    root = repository.project
    cut_off(repository, monkeypatch, f"printf '{root}/README.md\\0{root}/src/a'")
    told = await tools.text(glob, pattern="**/*")
    assert told.startswith("1 file, newest first:\nREADME.md\n\n")
    assert told.endswith(
        "ripgrep was ended by SIGKILL, so this is incomplete: search a smaller directory."
    )


@prove
async def test_matches_of_a_search_that_was_killed_are_not_all_of_them(
    repository, monkeypatch, tools
):
    found = await anyio.run_process(
        [RIPGREP, "--json", "needle", str(repository.project / "src/app.py")]
    )
    records = repository.project / "records"
    records.write_bytes(
        b"".join(found.stdout.splitlines(keepends=True)[:-1]) + b'{"type":"match","da'
    )
    cut_off(repository, monkeypatch, f"cat {records}")
    told = await tools.grep("needle")
    assert "The first 2 of at least 2 matches in 1 file" in told
    assert "too long to show" not in told
    assert "incomplete" in told


@prove
async def test_search_whose_shell_was_killed_has_failed(repository, monkeypatch, tools):
    cut_off(repository, monkeypatch, "kill -9 $PPID")
    assert "before it searched all of" in await tools.refusal(glob, pattern="*")
    assert "before it searched all of" in await tools.refusal(grep, pattern="needle")


@prove
async def test_files_are_not_counted_by_a_search_that_was_killed(repository, monkeypatch, tools):
    """What grep has not found in files of a glob, it says with their number."""
    cut_off(repository, monkeypatch, f"""case "$*" in *--json*) exec '{RIPGREP}' "$@";; esac""")
    assert "before it searched all of" in await tools.refusal(grep, pattern="nowhere", glob="*.py")


@prove
@pytest.mark.usefixtures("repository")
async def test_listing_that_was_killed_has_failed(monkeypatch, tools):
    program = "import os, sys; print('src/'); sys.stdout.flush(); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(ripgrep, "PROGRAM", program)
    told = await tools.refusal(ls, path="src")
    assert told == "src cannot be listed: the listing was ended by SIGKILL"


@prove
async def test_search_that_waits_for_ever_is_stopped_as_an_error(place, monkeypatch, tools):
    monkeypatch.setattr(ripgrep, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(ripgrep, "SLOW_S", 1000)
    os.mkfifo(place.project / ".ignore")
    words = await tools.refusal(grep, pattern="needle")
    assert words.startswith("Nothing was found in 0 s. Stopped after 0 s")


@pytest.mark.parametrize(
    "name",
    prove_rest([".gitignore", ".ignore", ".rgignore", ".git/info/exclude", "link"], keep=(0,)),
)
async def test_pipe_in_the_place_of_ignore_rules_holds_up_no_search(place, tools, name):
    place.write(
        {"sub/deep/a.txt": "needle\n", "sub/.gitignore": "b.txt\n", "sub/b.txt": "needle\n"}
    )
    pipe = place.project / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)  # git makes one
    os.mkfifo(pipe)
    if name == "link":
        (place.project / ".gitignore").symlink_to("link")
    else:
        os.mkfifo(place.project / "sub/deep/.ignore")
    for path in ("", "sub/deep"):
        told = await tools.grep("needle", path=path)
        assert "1 match" in told
        assert "Stopped" not in told
    assert await tools.names("**/a.txt") == ["sub/deep/a.txt"]


@prove
async def test_pipe_in_the_place_of_ignore_rules_holds_up_no_search_of_a_project_that_is_only_read(
    place, tools
):
    place.write({"a.txt": "needle\n"})
    os.mkfifo(place.project / ".gitignore")
    tools.workspace.sandbox.set_mode("ro")
    assert "1 match" in await tools.grep("needle")


async def test_cancelled_search_leaves_no_process(place, monkeypatch, tools):
    monkeypatch.setattr(ripgrep, "SLOW_S", 1000)
    place.write({"waits/a.txt": "needle\n"})
    # Ripgrep waits for somebody to write what it is to ignore.
    os.mkfifo(place.project / "waits/.ignore")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(tools.grep, "needle", path="waits"))
        await happens(lambda: running_with(str(place.project / "waits")))
        tasks.cancel_scope.cancel()
    await happens(lambda: not running_with(str(place.project / "waits")))


@prove
async def test_hostile_pattern_is_refused_or_found_nowhere(place, tools):
    """In a time that is known, that is: `tools` waits for a minute, where others would need years."""
    place.write({"a.txt": "a" * 20_000 + "\n"})
    assert "No matches" in await tools.grep("(a+)+b")
    assert "No matches" in await tools.grep("(a|a)*b" * 50)
    assert "size limit" in await tools.refusal(grep, pattern="((a{500}){500}){500}")
    assert "exceeds 100,000 bytes" in await tools.refusal(grep, pattern="a" * 200_000)
    assert "surrogate" in await tools.refusal(grep, pattern="a\ud800")
    assert "NUL" in await tools.refusal(grep, pattern="a\0b")
    assert "NUL" in await tools.refusal(grep, pattern="a", path="a\0b")


# --- grep: errors never look like "no matches" -------------------------------------------------------------------------


@pytest.mark.usefixtures("repository")
async def test_broken_pattern_is_explained(tools):
    for files_only in (False, True):
        words = await tools.refusal(grep, pattern="needle(", files_only=files_only)
        assert words.startswith("Invalid regular expression")
        assert "unclosed group" in words
    assert "2 matches" in await tools.grep("needle()", literal=True, path="src/app.py")


@pytest.mark.parametrize(
    "pattern, words",
    prove_rest(
        [
            ("(?<=a)b", "`grep -P` in bash"),
            (r"(a)\1", "`grep -P` in bash"),
            (r"a\x0ab", r"write a line break as \n"),
        ]
    ),
)
@pytest.mark.usefixtures("repository")
async def test_no_option_is_recommended_that_the_tool_does_not_have(tools, pattern, words):
    told = await tools.refusal(grep, pattern=pattern)
    assert words in told
    assert "--" not in told


async def test_socket_is_neither_searched_nor_read(repository, monkeypatch, tools):
    monkeypatch.chdir(repository.project)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
    assert "neither a file" in await tools.refusal(grep, pattern="x", path="sock")
    assert await tools.refusal(read, path="sock") == "sock is not a regular file."


@pytest.mark.usefixtures("repository")
async def test_what_the_kernel_says_of_itself_is_not_told_as_covered(tools):
    assert "cover" not in await tools.text(read, path="/proc/cpuinfo", limit=5)


@pytest.mark.parametrize("files_only", prove_rest([False, True], keep=(0,)))
@pytest.mark.usefixtures("repository")
async def test_missing_path_is_an_error(tools, files_only):
    for options in ({"path": "nowhere"}, {"glob": "nowhere/**/*.py"}):
        words = await tools.refusal(grep, pattern="x", files_only=files_only, **options)
        assert words == ("nowhere does not exist, or the sandbox hides it.")


@pytest.mark.parametrize(
    "path, advice",
    prove_rest(
        [
            ("source/deep/er/util.ts", " There is src/deep/er/util.ts."),
            ("lib/src/app.py", " There is src/app.py."),
            ("/repo/src/deep/er", " There is src/deep/er/."),
            ("python/src/ap.py", " There is src/app.py."),
            ("src/viw.tsx", " Did you mean src/view.tsx?"),
            ("lib/APP.PY", " There is src/app.py."),
            ("lib/secret.py", ""),
            ("lib/code.py", ""),
            ("lib/nothing.txt", ""),
        ]
    ),
)
@pytest.mark.usefixtures("repository")
async def test_missing_path_names_where_it_is_instead(tools, path, advice):
    """What is ignored is not named."""
    expected = f"{path} does not exist, or the sandbox hides it.{advice}"
    edits = [{"old": "a", "new": "b"}]
    assert await tools.refusal(read, path=path) == expected
    assert await tools.refusal(edit, path=path, edits=edits) == expected
    assert await tools.refusal(grep, path=path, pattern="x") == expected
    assert await tools.refusal(glob, path=path, pattern="*") == expected


async def test_missing_path_with_many_namesakes_names_only_those_with_more_in_common(place, tools):
    place.write({f"pkg{n}/sub/__init__.py": "" for n in range(9)} | {"x/deep/__init__.py": ""})
    assert (await tools.refusal(read, path="lib/__init__.py")).endswith("hides it.")
    said = await tools.refusal(read, path="src/deep/__init__.py")
    assert said.endswith("hides it. There is x/deep/__init__.py.")
    said = await tools.refusal(read, path="src/sub/__init__.py")
    assert said.endswith(
        " There are pkg0/sub/__init__.py and pkg1/sub/__init__.py and pkg2/sub/__init__.py."
    )


@pytest.mark.usefixtures("repository")
async def test_path_that_a_rule_denies_is_not_suggested(tools):
    def may_read(path: str) -> bool:
        return "util" not in path

    context = Context(tools.workspace, "t1", lambda _: None, may_read=may_read)
    for path in ("er/util.ts", "src/deep/er/utl.ts"):
        with pytest.raises(ToolError) as refused:
            await read.run(read.parse({"path": path}), context)
        assert "util.ts" not in str(refused.value).removeprefix(path)


async def test_what_would_never_end_is_not_searched(repository, tools):
    os.mkfifo(repository.project / "pipe")
    (repository.project / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        words = await tools.refusal(grep, pattern="x", path=name)
        assert words == f"Search failed: {name} is neither a file nor a directory."


async def test_what_the_sandbox_hides_is_not_found(repository, tools):
    secret = repository.base / "secret"
    secret.mkdir()
    (secret / "key").write_text("needle\n")
    assert "sandbox hides it" in await tools.refusal(grep, pattern="needle", path=str(secret))
    assert "sandbox hides it" in await tools.refusal(glob, pattern="*", path=str(secret))
    assert "sandbox hides it" in await tools.refusal(glob, pattern=f"{secret}/*")
    assert "sandbox hides it" in await tools.refusal(ls, path=str(secret))


@prove
@pytest.mark.usefixtures("repository")
async def test_unknown_type_and_broken_glob_are_errors(tools):
    words = await tools.refusal(grep, pattern="x", type="pyhton")
    assert words == "unrecognized file type: pyhton: use glob instead of type, as in glob='*.ext'."
    words = await tools.refusal(grep, pattern="x", glob="src/[ab.py")
    assert words == "'/[ab.py' is not a valid glob: it has a `[` without a `]`."
    assert "alternatives" in await tools.refusal(glob, pattern="{a,b}" * 20)


@pytest.mark.usefixtures("repository")
async def test_missing_ripgrep_names_what_to_install(monkeypatch, tmp_path, tools):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for tool in (grep, glob):
        words = await tools.refusal(tool, pattern="x")
        assert words.startswith("ripgrep (rg) is not installed")
        assert ":AgentInstall" in words


@pytest.mark.usefixtures("repository")
async def test_ripgrep_that_the_sandbox_hides_is_an_error(monkeypatch, tmp_path, tools):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    shutil.copy(RIPGREP, hidden / "rg")
    await tools.grep("needle")  # the sandbox has started, with what it shows
    monkeypatch.setattr(sys, "executable", str(hidden / "python"))
    words = await tools.refusal(grep, pattern="x")
    assert words.startswith(f"The sandbox cannot run ripgrep at {hidden}/rg")


def test_program_in_the_project_is_not_trusted(place, monkeypatch):
    place.write({"bin/rg": "#!/bin/sh\necho pwned\n"})
    (place.project / "bin/rg").chmod(0o755)
    (place.base / "link").symlink_to(place.project / "bin")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", f"{place.project}/bin:{place.base}/link:bin:.")
    monkeypatch.chdir(place.project)
    with pytest.raises(ToolError, match="not installed"):
        ripgrep.find_ripgrep(str(place.project))


@prove
async def test_program_installed_with_us_is_seen_in_every_view(repository):
    """It needs no grant, which would cost another view."""
    async with repository.tools(read_paths=()) as tools:
        assert "6 matches" in await tools.grep(r"needle\b")
        views = tools.workspace.sandbox.manager.sandbox._views._views
        assert len(views) == 1


def lock(place: Place) -> None:
    """Nobody may open these, not even root: in the sandbox it has no power over files."""
    place.write({"a.txt": "needle\n", "locked/b.txt": "needle\n", "closed.txt": "needle\n"})
    (place.project / "locked").chmod(0)
    (place.project / "closed.txt").chmod(0)


async def test_what_cannot_be_read_is_told_beside_what_was_found(place, tools):
    lock(place)
    found, nothing = await tools.grep("needle"), await tools.grep("nothing")
    names = await tools.text(glob, pattern="*")
    listed = await tools.text(ls)
    assert found.startswith("1 match in 1 file:\n\na.txt\n1: needle\n\n")
    assert nothing.startswith("No matches for nothing in 1 file.\n\n")
    assert names.startswith("2 files, newest first:\n")
    for text in (found, nothing, names):
        assert "Some files could not be searched:\n" in text
        assert "locked: Permission denied" in text
        assert ("closed.txt: Permission denied" in text) is (text is not names)
    assert "locked/  (cannot be read: Permission denied)" in listed
    assert "closed.txt  7B" in listed


@prove
async def test_path_that_cannot_be_read_is_an_error(place, tools):
    lock(place)
    for words in (
        await tools.refusal(grep, pattern="needle", path="closed.txt"),
        await tools.refusal(grep, pattern="needle", path="locked"),
        await tools.refusal(glob, pattern="*", path="locked"),
        await tools.refusal(ls, path="locked"),
    ):
        assert "Permission denied" in words


# --- links -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(repository: Place) -> Place:
    """
    A repository with links: to files inside, ignored, outside and nowhere, to directories inside and outside, and to themselves.

    One directory holds nothing but a link.
    """
    (repository.base / "outside").mkdir()
    (repository.base / "outside/far.md").write_text("needle far\n")
    (repository.project / "only").mkdir()
    for link, target in {
        "CLAUDE.md": "AGENTS.md",
        "only/link.md": "../AGENTS.md",
        "made.py": "build/out.py",
        "far.md": f"{repository.base}/outside/far.md",
        "broken.md": "nowhere.md",
        "loop.md": "loop.md",
        "ignored.log": "AGENTS.md",
        "pk": "src",
        "src/alias": "deep",
        "src/up": "..",
        "beyond": f"{repository.base}/outside",
    }.items():
        (repository.project / link).symlink_to(target)
    repository.write({"AGENTS.md": "needle of agents\n"})
    return repository


@pytest.mark.parametrize(
    "pattern, path, names",
    prove_rest(
        [
            ("CLAUDE.md", ".", ["CLAUDE.md"]),
            ("*.md", ".", ["AGENTS.md", "CLAUDE.md", "README.md", "far.md", "only/link.md"]),
            ("only/*", ".", ["only/link.md"]),
            ("*", "only", ["only/link.md"]),
            ("*.log", ".", ["keep.log"]),
            ("made.*", ".", ["made.py"]),
            ("src/alias/**/*.ts", ".", ["src/alias/er/util.ts"]),
        ]
    ),
)
async def test_glob_finds_links_to_files(linked, pattern, path, names):
    async with linked.tools(read_paths=(RIPGREP, str(linked.base / "outside"))) as tools:
        text = await tools.text(glob, pattern=pattern, path=path)
    assert sorted(text.partition("\n\n")[0].split("\n")[1:]) == names


async def test_links_are_as_new_as_what_they_lead_to(place, tools):
    place.write({"old.md": "", "new.md": "", "mid.md": ""})
    for number, name in enumerate(("old.md", "mid.md", "new.md")):
        os.utime(place.project / name, (1_000_000 + number, 1_000_000 + number))
    (place.project / "link.md").symlink_to("mid.md")
    lines = (await tools.text(glob, pattern="*.md")).split("\n")
    assert lines[0] == "4 files, newest first:"
    assert (lines[1], sorted(lines[2:4]), lines[4]) == ("new.md", ["link.md", "mid.md"], "old.md")


@pytest.mark.usefixtures("linked")
async def test_directories_behind_links_are_named_where_nothing_was_searched_in_their_place(tools):
    nothing = await tools.text(glob, pattern="**/al*/*.ts")
    found = await tools.text(glob, pattern="*.ts")
    searched = await tools.grep("no such text", path="src")
    assert nothing.startswith("No files match **/al*/*.ts in ")
    for name in ("pk", "src/alias", "src/up"):
        assert name in nothing
    assert "not followed" not in found
    assert "Links to directories were not followed: src/alias, src/up." in searched


async def test_directory_behind_a_link_out_of_the_project_is_named_in_any_case(linked):
    async with linked.tools(read_paths=(RIPGREP, str(linked.base / "outside"))) as tools:
        found = await tools.text(glob, pattern="*.ts")
        searched = await tools.grep("needle", glob="*.ts")
    assert found.endswith(
        "\n\nLinks to directories were not followed: beyond. Pass one as path to search it."
    )
    assert "Links to directories were not followed: beyond." in searched


@pytest.mark.parametrize(
    "options, files",
    prove_rest(
        [
            ({"glob": "CLAUDE.md"}, ["CLAUDE.md"]),
            ({"glob": "*.md"}, ["AGENTS.md"]),
            ({"path": "only"}, ["only/link.md"]),
            ({"path": "only", "type": "md"}, ["only/link.md"]),
            ({"path": "only", "type": "py"}, []),
            ({"path": "CLAUDE.md"}, ["CLAUDE.md"]),
            ({"glob": "made.py"}, ["made.py"]),
            ({"type": "py"}, ["made.py", "src/app.py"]),
            ({"glob": "{broken,loop}.md"}, []),
            ({"glob": "ignored.log"}, []),
        ]
    ),
)
@pytest.mark.usefixtures("linked")
async def test_grep_searches_what_links_to_files_lead_to_once(tools, options, files):
    text = await tools.grep("needle", **options)
    found = [name for name in files_in(text) if not name.startswith("Links ")]
    assert found == files
    assert ("No files were searched" in text) == (not files)


@pytest.mark.parametrize("is_confined", [True, False])
async def test_grep_follows_no_link_out_of_the_project(linked, is_confined):
    async with linked.tools(read_paths=(RIPGREP, str(linked.base / "outside"))) as tools:
        tools.workspace.sandbox.switch(is_on=is_confined)
        text = await tools.grep("needle", glob="*.md")
        named = await tools.grep("needle", glob="far.md")
    assert "needle far" not in text
    assert text.endswith("Links out of the project were not followed: far.md.")
    assert "needle far" not in named
    assert "far.md" in named


@pytest.mark.usefixtures("linked")
async def test_link_to_what_a_rule_keeps_is_not_searched(tools):
    def may_read(path: str) -> bool:
        return not os.path.realpath(path).endswith("AGENTS.md")

    context = Context(tools.workspace, "t1", lambda _: None, may_read=may_read)
    outcome = await grep.run(grep.parse({"pattern": "needle", "glob": "*.md"}), context)
    assert "needle of agents" not in outcome.content


@prove
async def test_many_links_are_bounded(place, tools):
    place.write({"a.md": "needle\n"})
    for number in range(2_100):
        (place.project / f"{number}.txt").symlink_to("a.md")
    text = await tools.text(glob, pattern="*.txt")
    searched = await tools.grep("needle", glob="*.txt")
    assert "not all links were checked" in text
    assert searched.startswith("1 match in 1 file:")


# --- brackets and braces in names --------------------------------------------------------------------------------------


NEXT = (
    *("app/[id]/page.tsx", "app/[...slug]/page.tsx", "app/{a,b}/x.ts", "[user-id].ts", "x.{ts,md}"),
)


@pytest.mark.parametrize(
    "pattern, names",
    prove_rest(
        [
            *((name, [name]) for name in NEXT[:-1]),
            ("app/[id]/*", ["app/[id]/page.tsx"]),
            ("app/[[.]*/*", ["app/[...slug]/page.tsx", "app/[id]/page.tsx"]),
            ("app/{a,b}/*.{ts,tsx}", ["app/{a,b}/x.ts"]),
            (r"app/\[id\]/*", ["app/[id]/page.tsx"]),
            ("x.{ts,md}", ["app/{a,b}/x.ts", "x.{ts,md}"]),
        ]
    ),
)
async def test_brackets_and_braces_of_a_pattern_are_also_meant_literally(
    place, tools, pattern, names
):
    place.write(dict.fromkeys(NEXT, "needle\n"))
    assert await tools.names(pattern) == names
    assert files_in(await tools.grep("needle", glob=pattern)) == names
    if pattern in NEXT[:-1]:
        assert files_in(await tools.grep("needle", path=pattern)) == names


# --- grep: content and names are hostile -------------------------------------------------------------------------------


@prove
async def test_binary_files_are_skipped_in_directories_and_marked_when_named(place, tools):
    place.write({"a.bin": b"\x7fELF\0\0needle\0\n", "b.txt": "needle\n"})
    assert files_in(await tools.grep("needle")) == ["b.txt"]
    text = await tools.grep("needle", path="a.bin")
    assert text.endswith("a.bin (binary)\n1: \\x7fELF\\x00\\x00needle\\x00")


@prove
async def test_bytes_that_are_not_utf_8_are_shown_as_escapes(place, tools):
    place.write(
        {
            "latin.txt": "caf\xe9 needle\n".encode("latin-1"),
            "utf16.txt": "needle é\n".encode("utf-16"),
        }
    )
    text = await tools.grep("needle")
    assert "latin.txt\n1: caf\\xe9 needle" in text
    assert "utf16.txt\n1: needle é" in text


async def test_escape_sequences_are_made_visible(place, tools):
    place.write({"a.txt": "needle \x1b[2Jgone\x07\n"})
    assert "1: needle \\x1b[2Jgone\\x07" in await tools.grep("needle")


@prove
async def test_strange_names_stay_on_one_line_and_are_text(place, tools):
    names = [
        *(b"new\nline.txt", b"caf\xe9.txt", b"-dash.txt", b"tab\t.txt", b"\xe2\x80\xaebidi.txt"),
        b"sp ace.txt",
    ]
    for name in names:
        (place.project / os.fsdecode(name)).write_text("needle\n")
    shown = [
        *("-dash.txt", "\\u202ebidi.txt", "caf\\xe9.txt", "new\\x0aline.txt", "sp ace.txt"),
        "tab\\x09.txt",
    ]
    assert sorted(files_in(await tools.grep("needle"))) == sorted(shown)
    assert await tools.names("*.txt") == sorted(shown)
    listed = await tools.text(ls)
    assert sorted(line.removesuffix("  7B") for line in listed.split("\n")[1:]) == sorted(shown)


async def test_content_cannot_pretend_to_be_a_record_or_an_error(place, tools):
    fake = json.dumps({"type": "match", "data": {"path": {"text": "/etc/x"}, "line_number": 1}})
    evil = f"evil\n{fake}\n".replace("/", "_")
    place.write({"a.txt": f"needle {fake}\nrg: needle: Permission denied\n"})
    (place.project / evil).write_text("needle\n")
    text = await tools.grep("needle")
    assert text.startswith("3 matches in 2 files:")
    assert "Some files could not" not in text


@prove
async def test_records_survive_many_errors_written_at_the_same_time(place, tools):
    """Both come through one pipe: an error in the middle of a record would make it unreadable."""
    place.write({f"{n:03}.txt": f"needle {'x' * 400}\n" * 40 for n in range(200)})
    for n in range(200):
        closed = place.project / f"{n:03}-closed.txt"
        closed.touch()
        closed.chmod(0)
    for _ in range(3):
        text = await tools.grep("needle", limit=40)
        assert re.match(r"The first 40 of 8,000 matches in 200 files\.", text)
        errors = text.partition("Some files could not be searched:\n")[2].split("\n")
        assert all("closed.txt: Permission denied" in line for line in errors[:20])
        assert len(errors) < 60


# --- grep: unsaved text ------------------------------------------------------------------------------------------------


class Buffers:
    """A face with buffers, in memory; it answers nothing while it `is_stuck`."""

    def __init__(self, *modified: str) -> None:
        self.modified = modified
        self.is_stuck = False

    async def buffer(self, path: str, _: Identity) -> Buffer | None:
        if self.is_stuck:
            raise ToolError("The editor does not answer.")
        return Buffer(1, path, 1, "", is_modified=True) if path in self.modified else None


async def test_unsaved_changes_in_what_was_searched_are_told(repository, tools):
    app = str(repository.project / "src/app.py")
    tools.workspace.editor = Buffers(app)  # type: ignore[assignment]
    note = "Not searched: unsaved changes in the editor, in src/app.py"
    assert (await tools.grep("needle")).endswith(note)
    assert (await tools.grep("nothing", path="src/app.py")).endswith(note)
    assert "unsaved" not in await tools.grep("needle", path="src/view.tsx")
    tools.workspace.editor.is_stuck = True  # type: ignore[attr-defined]
    assert "needle" in await tools.grep("needle")


# --- glob --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, path, names",
    prove_rest(
        [
            ("**/*.py", ".", ["src/app.py"]),
            ("*.py", ".", ["src/app.py"]),
            ("/*.py", "src", ["src/app.py"]),
            ("./*.py", ".", []),
            ("*.log", ".", ["keep.log"]),
            ("*.{ts,tsx}", ".", ["src/deep/er/util.ts", "src/view.tsx"]),
            ("**/{app,util}.{py,ts}", ".", ["src/app.py", "src/deep/er/util.ts"]),
            (
                "src/**",
                ".",
                ["src/.gitignore", "src/app.py", "src/deep/er/util.ts", "src/view.tsx"],
            ),
            ("src/*/", ".", ["src/deep/er/util.ts"]),
            ("deep/**/*.ts", "src", ["src/deep/er/util.ts"]),
            ("../src/app.*", "src", ["src/app.py"]),
            ("src/app.py", ".", ["src/app.py"]),
            ("build/*", ".", ["build/out.py"]),
            ("**/.git*", ".", [".gitignore", "src/.gitignore"]),
            (".git/HEAD", ".", [".git/HEAD"]),
            ("[R]EADM?.md", ".", ["README.md"]),
            ("**/[!a]*.{py,tsx}", ".", ["src/view.tsx"]),
            ("readme.md", ".", []),
        ],
        keep=(0, -2),
    ),
)
async def test_glob_finds(repository, tools, pattern, path, names):
    if pattern.startswith("/"):
        pattern = f"{repository.project}/{path}{pattern}"
    assert await tools.names(pattern, path=path) == names


@prove
async def test_newest_files_come_first_and_the_rest_is_counted(place, tools):
    place.write({f"{n:04}.txt": "" for n in range(1234)})
    for n in range(1234):
        os.utime(place.project / f"{n:04}.txt", (1_000_000 + n, 1_000_000 + n))
    lines = (await tools.text(glob, pattern="*.txt")).split("\n")
    assert (
        lines[0] == "The newest 200 of 1,234 files. Narrow the pattern or use path to see others:"
    )
    assert lines[1:] == [f"{n:04}.txt" for n in range(1233, 1033, -1)]
    outcome = await tools.use(glob, pattern="00*.txt")
    assert outcome.summary == "100 files"
    assert outcome.content.startswith("100 files, newest first:\n0099.txt\n")


@prove
@pytest.mark.usefixtures("repository")
async def test_no_file_is_a_success_that_says_so(tools):
    outcome = await tools.use(glob, pattern="*.rs", path="src")
    assert (outcome.content, outcome.summary) == ("No files match *.rs in src.", "no files")


@prove
async def test_long_names_stay_below_30_kb(place, tools):
    for n in range(300):
        (place.project / (f"{n:03}" + "\x01" * 200)).touch()
    text = await tools.text(glob, pattern="*")
    assert re.match(r"The newest \d\d of 300 files\.", text)


# --- ls ----------------------------------------------------------------------------------------------------------------


async def test_tree_of_the_project(repository, tools):
    (repository.project / "empty").mkdir()
    (repository.project / "only").mkdir()
    repository.write({"only/x.log": "x", "big.bin": b"x" * 1536, "src/deep/er/far/away.txt": ""})
    (repository.project / "link").symlink_to("src/app.py")
    (repository.project / "broken").symlink_to("no\nwhere")
    os.mkfifo(repository.project / "pipe")
    text = await tools.text(ls)
    assert (
        text
        == f"""{repository.project}/
.github/
  workflow.yml  12B
empty/  (empty)
only/  (only ignored entries)
src/
  deep/
  .gitignore  11B
  app.py  50B
  view.tsx  29B
.gitignore  34B
README.md  20B
big.bin  1.5K
broken -> no\\x0awhere  (broken link)
keep.log  29B
link -> src/app.py
pipe  (FIFO)"""
    )


@prove
@pytest.mark.usefixtures("repository")
async def test_depth_is_how_many_levels_are_opened(tools):
    assert await tools.text(ls, path="src", depth=1) == (
        "src/\ndeep/\n.gitignore  11B\napp.py  50B\nview.tsx  29B"
    )
    assert "    util.ts  25B" in await tools.text(ls, path="src", depth=10)
    assert "depth" in await tools.refusal(ls, depth=0)


@prove
@pytest.mark.usefixtures("repository")
async def test_ignored_directory_is_listed_when_it_is_named(tools):
    assert await tools.text(ls, path="build") == "build/\nout.py  17B"


@prove
async def test_directories_that_are_too_full_are_cut_and_counted(place, tools):
    place.write({f"full/{n:03}.txt": "" for n in range(234)} | {"near.txt": ""})
    lines = (await tools.text(ls)).split("\n")
    assert lines[1:4] == ["full/", "  000.txt  0B", "  001.txt  0B"]
    assert lines[101:] == ["  099.txt  0B", "  … 134 more", "near.txt  0B"]


@prove
async def test_what_is_near_comes_before_what_is_deep(place, tools):
    place.write({f"{n:02}/{k:02}/file.txt": "" for n in range(20) for k in range(30)})
    place.write({"zz.txt": ""})
    lines = (await tools.text(ls, depth=3)).split("\n")[1:]
    assert len(lines) <= 500
    assert lines[-1] == "zz.txt  0B"
    assert [line for line in lines if not line.startswith(" ")][:20] == [
        *(f"{n:02}/" for n in range(15)),
        *(f"{n:02}/  …" for n in range(15, 20)),
    ]


@prove
async def test_tree_of_long_names_stays_below_30_kb(place, tools):
    for n in range(400):
        (place.project / f"{n // 90}").mkdir(exist_ok=True)
        (place.project / f"{n // 90}" / (f"{n:03}" + "\x01" * 200)).touch()
    assert (await tools.text(ls)).endswith("[cut here: list a subdirectory]")


@prove
@pytest.mark.usefixtures("repository")
async def test_file_and_missing_directory_are_errors(tools):
    assert await tools.refusal(ls, path="README.md") == (
        "README.md is a file, not a directory: read it instead."
    )
    assert await tools.refusal(ls, path="nowhere") == (
        "nowhere does not exist, or the sandbox hides it."
    )


# --- everywhere --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["full", "landlock"])
async def test_tools_work_at_each_level(repository, level):
    report = await Sandbox.probe()
    if reason := report.why_not(level):
        pytest.skip(f"no level {level} here: {reason}")
    async with repository.tools(level=level) as tools:
        await works(tools)


async def works(tools: Tools) -> None:
    assert (await tools.use(grep, pattern=r"needle\b")).summary == "6 matches in 5 files"
    assert await tools.names("*.py") == ["src/app.py"]
    assert "  app.py  50B" in await tools.text(ls)


@prove
async def test_tools_work_in_a_project_that_cannot_be_written(repository):
    async with repository.tools(mode="ro") as tools:
        await works(tools)


@pytest.mark.usefixtures("repository")
async def test_tools_work_without_a_sandbox(tools):
    tools.workspace.sandbox.switch(is_on=False)
    await works(tools)
    assert "does not exist" in await tools.refusal(grep, pattern="x", path="nowhere")


@prove
async def test_ignore_files_count_outside_of_repositories(place, tools):
    shutil.rmtree(place.project / ".git")
    place.write({".gitignore": "*.log\n", "a.log": "needle\n", "a.txt": "needle\n"})
    assert files_in(await tools.grep("needle")) == ["a.txt"]
    assert "a.log" not in await tools.text(ls)


@prove
@pytest.mark.usefixtures("repository")
async def test_uses_side_by_side_do_not_disturb_each_other(tools):
    found: list[str] = []

    async def one() -> None:
        found.append(await tools.grep(r"needle\b"))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(one)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_what_permissions_and_screen_are_told(tmp_path):
    workspace = workspace_of(tmp_path, sandbox_of(policy_below(tmp_path, ".")))
    for tool, data, path, title in [
        (grep, {"pattern": "a\nb", "path": "src"}, f"{tmp_path}/src", r"'a\x0ab' in src"),
        (grep, {"pattern": "a", "glob": "../x/*.py"}, f"{tmp_path.parent}/x", "'a' (../x/*.py)"),
        (glob, {"pattern": "/etc/**/*.conf"}, "/etc", "/etc/**/*.conf"),
        (glob, {"pattern": "*.py", "path": "src"}, f"{tmp_path}/src", "*.py in src"),
        (ls, {"path": "/etc"}, "/etc", "/etc"),
    ]:
        args = tool.parse(data)
        effect = tool.effect(args, workspace)
        assert (effect.tool, effect.kind, effect.path) == (tool.name, "read", path)
        assert tool.title(args, workspace) == title
        assert len(tool.description) <= 900


# --- globs and ignore files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, path, is_match",
    [
        ("*.py", "a.py", True),
        ("*.py", "deep/er/a.py", True),
        ("/*.py", "deep/a.py", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("**/a/*/c", "x/a/b/c", True),
        ("**/a/*/c", "a/a/b/c", True),
        ("a*b*c", "aXbXbXc", True),
        ("a*b*c", "aXbXbX", False),
        ("*a", "a/b", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[]]x", "]x", True),
        ("[a\\]", "\\", True),
        ("[[]", "[", True),
        ("[--0]", "/", False),
        (r"\*", "*", True),
        (r"\*", "a", False),
        ("{a,b{c,d}}", "bd", True),
        ("{a,b{c,d}}", "b", False),
        (r"\{a,b}", "{a,b}", True),
        ("a.c", "abc", False),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[id]/page.tsx", "app/i/page.tsx", True),
        ("app/[id]/page.tsx", "app/id/page.tsx", False),
        ("[...slug]/**/[a-c]*.ts", "[...slug]/x/b1.ts", True),
        ("[[...slug]]", "[[...slug]]", True),
        ("[id].[jt]s", "[id].ts", True),
        ("[a][b][c][d]", "[a][b][c][d]", True),
        ("[a][b][c][d]", "abcd", True),
        ("x*[id]*y", "x-[id]-y", True),
        ("[a*]", "[a*]", True),
        ("[a*]", "[abc]", False),
        ("app/{a,b}/*", "app/{a,b}/x", True),
        ("app/{a,b}/*.{ts,tsx}", "app/{a,b}/x.tsx", True),
        ("app/{a,b}/*", "app/b/x", True),
        ("{a,b{c,d}}", "{a,b{c,d}}", True),
    ],
)
def test_glob_matches(pattern, path, is_match):
    assert Glob(pattern, has_braces=True).matches(path) is is_match


@pytest.mark.parametrize("pattern", ["[", "a[b", "{a,b}" * 9, "a" * 5000])
def test_glob_that_cannot_be_understood_is_refused(pattern):
    with pytest.raises(GlobError):
        Glob(pattern, has_braces=True)


def test_brackets_that_are_no_set_are_themselves_but_in_an_ignore_file():
    assert Glob("[user-id]", has_braces=True).matches("[user-id]")
    with pytest.raises(GlobError):
        Glob("[user-id]", has_braces=False)


@pytest.mark.parametrize(
    "pattern, path",
    prove_rest(
        [
            ("*a" * 2000 + "b", "a" * 4000),
            ("**/a/" * 400 + "b", "a/" * 2000 + "a"),
            ("{" * 4000, "a"),
            ("?*" * 2000, "a" * 250),
            ("[a][b][c]/" * 350 + "{a,b}" * 7, "a/b"),
            ("".join(f"[{n}x][{n}y][{n}z]/" for n in range(200)) + "{a,b}" * 5, "a/b"),
            ("[" + "a" * 4000 + "]*b", "a" * 4000),
            ("{" + ",".join("ab"[n % 2] * n for n in range(1, 80)) + "}", "c"),
        ]
    ),
)
def test_hostile_glob_takes_no_time(pattern, path):
    with little_work():
        assert not Glob(pattern, has_braces=True).matches(path)


def test_braces_are_bounded():
    Glob("{" + ",".join(map(str, range(MAX_ALTERNATIVES - 1))) + "}", has_braces=True)
    with pytest.raises(GlobError):
        Glob("{" + ",".join(map(str, range(MAX_ALTERNATIVES + 1))) + "}", has_braces=True)


def test_literal_beginning_of_a_glob_becomes_the_directory():
    assert rooted("*.py", "/p") == ("/p", "*.py")
    assert rooted("src/*.py", "/p") == ("/p/src", "/*.py")
    assert rooted("/etc/*.d/x", "/p") == ("/etc", "/*.d/x")
    assert rooted("../q/{a,b}/c", "/p") == ("/q", "/{a,b}/c")
    assert rooted("/", "/p") == ("/", "/**")
    assert rooted("~/x/*", "/p") == (str(Path("~/x").expanduser()), "/*")


def test_escaped_leaves_what_can_be_read():
    assert escaped("ünïcode 日本.py") == "ünïcode 日本.py"
    assert escaped(os.fsdecode(b"\xff\x1b\n")) == "\\xff\\x1b\\x0a"


NAMES = ("a", "b", "foo", "foo.py", "x.log", "A b", "build")
PARTS = (*NAMES, "*", "*.py", "f*", "?", "[ab]", "**", "fo?", "*o*", "[!a]", r"\a")


def random_rules(chance: random.Random) -> str:
    lines = []
    for _ in range(chance.randint(0, 5)):
        line = "/".join(chance.choices(PARTS, k=chance.choice([1, 1, 1, 2, 3])))
        line = chance.choice(["", "", "", "!", "/", "!/"]) + line + chance.choice(["", "", "/"])
        lines.append(line + chance.choice(["", "", " ", "\r"]))
    return "\n".join(lines)


def visible(directory: str, ignored: tree.Ignored) -> set[str]:
    """The files that `ls` would show at any depth."""
    found: set[str] = set()
    ignored = ignored.inside(directory)
    for entry in os.scandir(directory):
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.name in tree.REPOSITORIES or ignored.hides(entry.path, is_directory=is_directory):
            continue
        found |= visible(entry.path, ignored) if is_directory else {entry.path}
    return found


@prove
def test_what_is_ignored_is_what_git_ignores(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place.home))
    chance = random.Random(4)
    hidden = 0
    for _ in range(150):
        for entry in os.scandir(place.project):
            if entry.name != ".git":
                shutil.rmtree(entry) if entry.is_dir() else Path(entry).unlink()
        for _ in range(25):
            path = place.project.joinpath(*chance.choices(NAMES, k=chance.randint(1, 4)))
            if not path.exists() and all(not up.is_file() for up in path.parents):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        rules = random_rules(chance)
        place.write({".gitignore": rules, ".git/info/exclude": random_rules(chance)})
        for name in ("a", "foo"):
            if (place.project / name).is_dir():
                place.write({f"{name}/.gitignore": random_rules(chance)})
        expected = place.git("ls-files", "--others", "--exclude-standard", "-z")
        names = {f"{place.project}/{name}" for name in os.fsdecode(expected).split("\0") if name}
        assert visible(str(place.project), tree.ignored_above(str(place.project))) == names, rules
        hidden += sum(len(files) for _, _, files in os.walk(place.project)) - len(names)
    assert hidden > 500


@prove
def test_ignore_files_that_are_no_files_or_huge_are_no_trouble(place):
    os.mkfifo(place.project / ".gitignore")
    (place.project / "sub").mkdir()
    (place.project / "sub/.gitignore").write_bytes(b"*a*a*a*a*a*b\n" * 100_000)
    (place.project / "sub/file").touch()
    with little_work():
        assert tree.tree(str(place.project), 2) == [
            "sub/",
            "  .gitignore  1.2M",
            "  file  0B",
            ".gitignore  (FIFO)",
        ]


def test_grep_input_is_checked():
    with pytest.raises(ToolError, match="limit"):
        grep.parse({"pattern": "x", "limit": 0})
    with pytest.raises(ToolError, match="pattern"):
        grep.parse({"pattern": ""})
    assert grep.parse({"pattern": "x", "pre": "touch x"}) == GrepInput("x")
    assert "grep has no `pre`." in grep.note_on({"pattern": "x", "pre": "touch x"})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_utf_16_without_a_mark_is_binary_to_each_tool_and_each_says_what_it_looks_like(
    repository, tools, encoding
):
    (repository.project / "wide.txt").write_bytes("needle\n".encode(encoding) * 20)
    words = f"It looks like UTF-16 {encoding[-2:].upper()} without a byte order mark"
    assert words in await tools.text(grep, pattern="needle", path="wide.txt")
    assert words in await tools.text(read, path="wide.txt")
    edits = [{"old": "needle", "new": "x"}]
    assert words in await tools.refusal(edit, path="wide.txt", edits=edits)
    assert "It looks" not in await tools.text(grep, pattern="no such word", path="src/app.py")
