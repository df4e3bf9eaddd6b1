"""
Five defects of real packages, fixed again: the tool calls that a model makes, played by a server that speaks the Messages API.

The versions are from before the fix. The inputs are those that cost a round when a model worked on these tasks: other agents' field
names, numbers and lists as text, a path of another layout, a broad search, line numbers of the file as it was read, the project's own
Python. A course has as few rounds as its facts allow: what is searched, what is read, then the change and its tests in one message.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.conftest import prove
from tests.homes import Home
from tests.loopback import LoopbackServer, Reply, done, message_start, text, tool_use

from sanderling.project.trust.trust import Trust

DOWNLOAD_S = 200
PYTHON = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
HELPERS = ("pytest", "freezegun")
INSTRUCTIONS = "Every change has a test.\n"
MAX_FIRST_BYTES = 11 * 1024

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """`course` has the calls of each round but the last, which answers; `check` fails before it and passes after it."""

    package: str
    prompt: str
    course: tuple[tuple[Call, ...], ...]
    check: tuple[str, ...]
    rounds_before: int  # that the model needed when these inputs failed
    max_bytes: int  # of the last request
    suggestions: tuple[str, ...] = ()  # in the results of inputs that name what is not there
    says: tuple[str, ...] = ()  # by the results


HUMANIZE = Task(
    "humanize==4.15.0",
    "naturalsize(999_999) gives '1000.0 kB' instead of '1.0 MB'. Fix it, with a test.",
    (
        (
            (
                "grep",
                {"query": "naturalsize", "path": ".", "output_mode": "content", "-n": "true"},
            ),
            ("read", {"file_path": "src/humanize/filesize.py", "limit": "5000"}),
            ("read", {"file_path": "tests/test_filesize.py", "offset": "80"}),
        ),
        (
            (
                "edit",
                {
                    "file_path": "src/humanize/filesize.py",
                    "old_string": "    ret: str = format % (bytes_ / (base**exp)) + suffix[exp - 1]\n",
                    "new_string": "    if exp < len(suffix) and abs(float(format % (bytes_ / base**exp))) >= base:\n"
                    "        exp += 1\n"
                    "    ret: str = format % (bytes_ / (base**exp)) + suffix[exp - 1]\n",
                    "replace_all": "false",
                },
            ),
            (
                "edit",
                {
                    "path": "tests/test_filesize.py",
                    "old_str": '        (["1000"], "1.0 kB"),\n',
                    "new_str": '        (["1000"], "1.0 kB"),\n        ([999_999], "1.0 MB"),\n',
                },
            ),
            (
                "bash",
                {
                    "cmd": "python -m pytest -q -p no:cacheprovider tests/test_filesize.py",
                    "description": "Run the tests",
                    "timeout": "120000",
                },
            ),
        ),
    ),
    (
        "-c",
        "import humanize as h; assert (h.naturalsize(999_999), h.naturalsize(2**20 - 1, True)) == ('1.0 MB', '1.0 MiB')",
    ),
    6,
    20_000,
    says=("71 passed",),
)
TOMLKIT = Task(
    "tomlkit==0.12.3",
    "Appending two dotted keys a.b and a.c to a parsed table that ends in a blank line raises an IndexError. Fix it, with a test.",
    (
        (
            ("grep", {"pattern": "key"}),
            ("grep", {"regex": "_table_keys", "include": "*.py", "head_limit": "100"}),
            ("read", {"path": "src/tomlkit/container.py", "offset": "215", "limit": "40"}),
        ),
        (
            ("read", {"path": "tomlkit/container.py", "offset": "215", "limit": "40"}),
            ("ls", {"dir": "tests"}),
        ),
        (
            (
                "edit",
                {
                    "path": "tomlkit/container.py",
                    "edits": [
                        {
                            "old_string": "                            self._table_keys[-1] != current_body_element[0]\n"
                            "                            or key.is_dotted()\n"
                            "                            or current_body_element[0].is_dotted()\n",
                            "new_string": "                            key.is_dotted()\n"
                            "                            or current_body_element[0].is_dotted()\n"
                            "                            or self._table_keys[-1] != current_body_element[0]\n",
                        }
                    ],
                },
            ),
            (
                "write",
                {
                    "file_path": "tests/test_dotted_keys.py",
                    "contents": dedent(
                        """\
                        import tomlkit


                        def test_two_dotted_keys_are_appended_before_a_blank_line():
                            doc = tomlkit.parse("x = 1\\n\\n")
                            doc.append(tomlkit.key(["a", "b"]), 1)
                            doc.append(tomlkit.key(["a", "c"]), 2)
                            assert doc.unwrap() == {"x": 1, "a": {"b": 1, "c": 2}}
                        """
                    ),
                },
            ),
            (
                "bash",
                {
                    "command": "python -m pytest -q -p no:cacheprovider tests/test_dotted_keys.py",
                    "timeout": "700",
                },
            ),
        ),
    ),
    (
        "-c",
        r"import tomlkit as t; d = t.parse('[t]\nx=1\n\n[u]\n'); [d['t'].append(t.key(['a', n]), 1) for n in 'bc']",
    ),
    9,
    32_000,
    suggestions=("There is tomlkit/container.py",),
    says=("1 passed",),
)
CLICK = Task(
    "click==8.4.0",
    "The order of the help option's names changes from run to run: it must be that of help_option_names. Fix it, with a test.",
    (
        (
            (
                "grep",
                {
                    "pattern": "def get_help_option_names",
                    "path": "src",
                    "-A": "8",
                    "type": "python",
                },
            ),
            ("grep", {"pattern": "help_option_names", "path": "tests", "-n": True}),
        ),
        (
            (
                "edit",
                {
                    "file_path": "src/click/core.py",
                    "old_string": "        return list(all_names)\n\n    def get_help_option(",
                    "new_string": "        return [name for name in ctx.help_option_names if name in all_names]\n\n"
                    "    def get_help_option(",
                },
            ),
            (
                "write",
                {
                    "path": "tests/test_help_names.py",
                    "content": dedent(
                        """\
                        import click


                        def test_help_names_keep_their_order():
                            names = [f"--help-{n}" for n in range(20)]
                            command = click.Command("c", context_settings={"help_option_names": names})
                            assert command.get_help_option_names(click.Context(command, **command.context_settings)) == names
                        """
                    ),
                },
            ),
            (
                "bash",
                {
                    "command": "python -m pytest -q -p no:cacheprovider tests/test_help_names.py tests/test_commands.py",
                    "run_in_background": "false",
                },
            ),
        ),
    ),
    (
        "-c",
        "import click as k; c = k.Command('c'); n = [*'abcdefghijkl']; assert c.get_help_option_names(k.Context(c, help_option_names=n)) == n",
    ),
    6,
    17_000,
    says=("83 passed",),
)
MS = Task(
    "ms@2.1.3",
    "ms(7 days) should give '1w', and '1 week' with `long`. Change it, with a test.",
    (
        (("read", {"file_path": "index.js"}), ("read", {"path": "package.json"})),
        (
            (
                "edit",
                {
                    "path": "index.js",
                    "edits": json.dumps(
                        [
                            {
                                "insert_line": "114",
                                "new_str": "  if (msAbs >= w) {\n    return Math.round(ms / w) + 'w';\n  }\n",
                            },
                            {
                                "insert_line": "139",
                                "new_str": "  if (msAbs >= w) {\n    return plural(ms, msAbs, w, 'week');\n  }\n",
                            },
                        ]
                    ),
                },
            ),
            (
                "write",
                {
                    "file_path": "weeks.test.js",
                    "file_text": dedent(
                        """\
                        const { test } = require('node:test');
                        const assert = require('node:assert');
                        const ms = require('./index');

                        test('weeks', () => {
                          assert.equal(ms(604800000), '1w');
                          assert.equal(ms(2 * 604800000, { long: true }), '2 weeks');
                          assert.equal(ms(6 * 86400000), '6d');
                        });
                        """
                    ),
                },
            ),
            ("bash", {"cmd": "node --test weeks.test.js", "timeout": "60"}),
        ),
    ),
    (
        "-e",
        "const ms = require('./index'); if (ms(6048e5) + ms(6048e5, {long: true}) != '1w1 week') process.exit(1)",
    ),
    4,
    21_000,
    says=("pass 1", "fail 0"),
)
MORE_ITERTOOLS = Task(
    "more-itertools==11.0.1",
    "numeric_range(0, 1, 1) == numeric_range(0, 1, 2) is False though both hold only 0, unlike with range. Fix == and hash, with a"
    " test, and commit it.",
    (
        (
            (
                "grep",
                {"pattern": "^class numeric_range|_get_by_index\\(-1\\)", "glob": "**/more.py"},
            ),
            ("grep", {"pattern": "hash((1.0, 1.0, 1.5))", "-F": True, "fixed_strings": "true"}),
        ),
        (
            ("read", {"path": "more_itertools/more.py", "offset": "{eq}", "limit": "40"}),
            ("bash", {"cmd": "git status --short | head -5"}),
        ),
        (
            (
                "edit",
                {
                    "path": "more_itertools/more.py",
                    "edits": [
                        {
                            "old_string": "                    and self._step == other._step\n                    and self._get_by_index(-1)"
                            " == other._get_by_index(-1)\n",
                            "new_string": "                    and self._get_by_index(-1) == other._get_by_index(-1)\n"
                            "                    and (self._len == 1 or self._step == other._step)\n",
                        },
                        {
                            "old_string": "            return hash((self._start, self._get_by_index(-1), self._step))\n",
                            "new_string": "            step = self._step if self._len > 1 else None\n"
                            "            return hash((self._start, self._get_by_index(-1), step))\n",
                        },
                    ],
                },
            ),
            (
                "edit",
                {
                    "file_path": "tests/test_more.py",
                    "old_string": "            ((1.0, 1.5, 1.5), hash((1.0, 1.0, 1.5))),\n",
                    "new_string": "            ((1.0, 1.5, 1.5), hash((1.0, 1.0, None))),\n"
                    "            ((1.0, 1.5, 2.5), hash((1.0, 1.0, None))),\n",
                },
            ),
            ("bash", {"cmd": "python -m unittest tests.test_more.NumericRangeTests"}),
            ("bash", {"command": "git add -A more_itertools tests"}),
            ("bash", {"command": "git commit -q -m 'Compare numeric ranges of one item'"}),
            ("bash", {"command": "git log --oneline && git status --short"}),
        ),
    ),
    (
        "-c",
        "from more_itertools import numeric_range as n; a, b = n(0, 1, 1), n(0, 1, 2); assert a == b and hash(a) == hash(b)",
    ),
    12,
    19_000,
    says=("OK", "Compare numeric ranges"),
)
TASKS = {"T1": HUMANIZE, "T2": TOMLKIT, "T3": CLICK, "T4": MS, "T5": MORE_ITERTOOLS}


class Work(Home):
    """A project with the package's sources, its own Python environment, and a model that plays the course."""

    def __init__(self, folder: Path, api: LoopbackServer, task: Task, cache: Path) -> None:
        super().__init__(folder)
        self.task, self.api = task, api
        self.environment |= {
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": api.url,
            "NO_PROXY": "*",
        }
        shutil.rmtree(self.project)
        unpack(archive_of(task.package, cache), self.project)
        instructions = self.project / "AGENTS.md"
        instructions.write_text(INSTRUCTIONS)
        digest = sha256(INSTRUCTIONS.encode()).hexdigest()
        Trust(str(self.state), str(self.project)).trust({instructions.name: digest})
        self.git("init", "-q")
        self.git("config", "user.name", "A")
        self.git("config", "user.email", "a@example.org")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "As released")
        if "@" not in task.package:
            self.make_environment(helpers(cache))

    def git(self, *args: str) -> str:
        return self.outcome("git", *args).stdout

    def outcome(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
        )

    def make_environment(self, packages: Path) -> None:
        """Make a `.venv` that git ignores, as a user of the package has it."""
        self.outcome(sys.executable, "-m", "venv", "--without-pip", ".venv")
        site = self.project / ".venv" / PYTHON
        shutil.copytree(packages, site, dirs_exist_ok=True)
        source = self.project / "src"
        (site / "project.pth").write_text(str(source if source.exists() else self.project))
        (self.project / ".git/info/exclude").write_text("__pycache__/\n")

    def passes_check(self) -> bool:
        program = "node" if "@" in self.task.package else ".venv/bin/python"
        return self.outcome(program, *self.task.check).returncode == 0

    def play(self) -> subprocess.CompletedProcess[str]:
        place = self.project / "more_itertools/more.py"
        line = str(place.read_text().split("def __eq__")[0].count("\n")) if place.exists() else ""
        rounds = [*self.task.course, ()]
        self.api.answer(*(answer(n, calls, line) for n, calls in enumerate(rounds)))
        return self.run("-p", self.task.prompt, "--mode", "auto", "--model", "claude-test")

    @property
    def results(self) -> list[dict[str, Any]]:
        """Every result of a tool, as the last request has it."""
        messages = self.api.prompts[-1].json()["messages"]
        return [
            block
            for message in messages
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]


def answer(n: int, calls: tuple[Call, ...], line: str) -> Reply:
    if not calls:
        return Reply(message_start(), text("Fixed: the tests pass."), done())
    uses = [
        tool_use(f"toolu_{n}_{i}", name, json.dumps(given).replace("{eq}", line), index=i)
        for i, (name, given) in enumerate(calls)
    ]
    return Reply(message_start(), *uses, done("tool_use"))


def words_of(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)


def fetched(command: list[str], place: Path, pattern: str) -> Path:
    """Return what the command puts into its directory, from an earlier run if there was one; other tests may fetch it, too."""
    if not (found := [*place.glob(pattern)]):
        if not shutil.which(command[0]):
            pytest.skip(f"there is no {command[0]}")
        with tempfile.TemporaryDirectory(dir=place) as part:
            ended = subprocess.run(
                command, cwd=part, timeout=DOWNLOAD_S, check=False, capture_output=True, text=True
            )
            if ended.returncode or not (made := [*Path(part).glob(pattern)]):
                pytest.skip(f"{' '.join(command[-2:])} cannot be downloaded: {ended.stderr[-200:]}")
            with suppress(OSError):  # another test's directory is there by now
                made[0].rename(place / made[0].name)
        found = [*place.glob(pattern)]
    return found[0]


def archive_of(package: str, cache: Path) -> Path:
    name, _, version = package.replace("==", "@").partition("@")
    place = cache / name
    place.mkdir(exist_ok=True)
    if "@" in package:
        return fetched(["npm", "pack", "-s", package], place, f"{name}-{version}.tgz")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, package]
    return fetched(pip, place, f"*-{version}.tar.gz")


def helpers(cache: Path) -> Path:
    """Return a directory of the packages that the tests of the sources need."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", "helpers", *HELPERS]
    return fetched(pip, cache, "helpers")


def unpack(archive: Path, project: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(project.parent / "unpacked", filter="data")
    [sources] = (project.parent / "unpacked").iterdir()
    sources.rename(project)


@pytest.fixture
def api() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@prove
@pytest.mark.parametrize("name", TASKS)
def test_no_round_of_a_task_is_lost_to_an_input_that_can_mean_only_one_thing(
    name: str, api: LoopbackServer, tmp_path: Path, pytestconfig: pytest.Config
):
    assert pytestconfig.cache
    task = TASKS[name]
    work = Work(tmp_path, api, task, pytestconfig.cache.mkdir("replayed-tasks"))
    assert not work.passes_check()
    ended = work.play()
    assert ended.returncode == 0, ended.stderr
    sizes = [len(request.body) for request in api.prompts]
    print(f"{name}: bytes of the requests {sizes}")  # for doc/measurements.md
    assert len(sizes) == len(task.course) + 1 < task.rounds_before
    failed = [words_of(result) for result in work.results if result.get("is_error")]
    assert len(failed) == len(task.suggestions), failed
    for words, suggestion in zip(failed, task.suggestions, strict=True):
        assert suggestion in words
    told = "\n".join(map(words_of, work.results))
    assert not re.search(r"^\.venv/", told, re.MULTILINE)
    for words in task.says:
        assert words in told, told
    assert sizes[0] <= MAX_FIRST_BYTES
    assert sizes[-1] <= task.max_bytes
    assert work.passes_check()
