"""The patterns of .gitignore, held against git's own reading of them."""

import os
import random
import subprocess
from pathlib import Path

import pytest
from tests.conftest import little_work, prove, prove_rest

from sanderling.sandbox.inside.ignoring import IgnoreFile, is_ignored

NAMES = ["a", "b", "ab", "abc", "a.py", "b.o", "x-y", "[z]", "A1", ".h", "a b", "build"]
PARTS = [
    *NAMES,
    "*",
    "**",
    "*.py",
    "a*",
    "*b",
    "?",
    "??",
    "[ab]",
    "[!a]",
    "[a-c]*",
    "*a*b*",
    "\\[z\\]",
]
PARTS += ["[[:alpha:]]*", "[]a]", "[^]]", "[a-]", "***", "a\\b", "[a", "x-?", ".*"]


def pattern(some: random.Random) -> str:
    parts = "/".join(some.choice(PARTS) for _ in range(some.randint(1, 3)))
    if "[a/" in parts:  # a class over a slash: git has its own view of that
        parts = parts.replace("[a/", "a/")
    return (
        some.choice(["", "", "!"])
        + some.choice(["", "", "/"])
        + parts
        + some.choice(["", "/", "  "])
    )


def fill(some: random.Random, project: Path) -> dict[str, str]:
    """Make directories and files with such names; return the rules of each directory that has some."""
    directories = [project]
    for _ in range(6):
        path = project.joinpath(*(some.choice(NAMES) for _ in range(some.randint(1, 3))))
        path.mkdir(parents=True, exist_ok=True)
        directories.append(path)
    for _ in range(25):
        path = some.choice(directories) / some.choice(NAMES)
        if not path.exists():
            path.touch()
    rules: dict[str, str] = {}
    for path in {project, some.choice(directories)}:
        text = "\n".join(pattern(some) for _ in range(some.randint(1, 6)))
        (path / ".gitignore").write_text(f"# rules\n\n{text}\n")
        rules[str(path)] = text
    return rules


def listed(project: Path, rules: dict[str, str]) -> set[str]:
    found: set[str] = set()
    waiting: list[tuple[str, tuple[IgnoreFile, ...]]] = [(str(project), ())]
    while waiting:
        path, chain = waiting.pop()
        if path in rules:
            chain = (IgnoreFile(path, rules[path]), *chain)
        for entry in os.scandir(path):
            if entry.name == ".git":
                continue
            end = "/" * entry.is_dir()
            if is_ignored(chain, entry.path + end, entry.name + end):
                continue
            if end:
                waiting.append((entry.path, chain))
            else:
                found.add(entry.path.removeprefix(f"{project}/"))
    return found


@pytest.mark.parametrize("seed", prove_rest(range(300), keep=range(20)))
def test_what_is_ignored_is_what_git_ignores(tmp_path, plain_environment, seed):  # noqa: ARG001
    some = random.Random(seed)
    rules = fill(some, tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    command = ["git", "-C", str(tmp_path), "ls-files", "-o", "--exclude-standard", "-z"]
    output = subprocess.run(command, capture_output=True, check=True).stdout
    assert listed(tmp_path, rules) == {os.fsdecode(name) for name in output.split(b"\0") if name}


@prove
@pytest.mark.parametrize(
    "text",
    [
        "*a*a*a*a*a*a*a*a*a*a*a*a*b",
        "**/a/**/a/**/a/**/a/**/a/**/a/**/b",
        "[" * 1000,
        "?" * 5000,
        " " * 100_000 + "x",
    ],
)
def test_no_pattern_takes_long(text):
    name = "a" * 250
    path = "/p/" + "a/" * 1000 + name
    with little_work():
        rules = IgnoreFile("/p", text)
        for _ in range(10):
            rules.judge(path, name)


@pytest.mark.parametrize(
    "line, name",
    [
        ("a  ", "a"),
        ("a\\ ", "a "),
        ("a\\   ", "a "),
        ("a\\\\ ", "a\\"),
        ("a b ", "a b"),
        ("   ", ""),
    ],
)
def test_blanks_at_the_end_of_a_line_count_behind_a_backslash_only(line, name):
    rules = IgnoreFile("/p", line)
    assert bool(rules) == bool(name)
    assert not name or rules.judge(f"/p/{name}", name)
    assert not rules.judge(f"/p/{name} ", f"{name} ")
