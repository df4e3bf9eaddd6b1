"""Real repositories, and the worktrees of a project."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sanderling.worktrees.worktrees import Worktrees

ME = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always")


def run_git(directory: Path | str, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *ME, *arguments],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


@pytest.fixture
def make_repository(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "project", **files: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        run_git(path, "init", "-q", "-b", "main")
        for file, text in (files or {"a.txt": "one\ntwo\nthree\n"}).items():
            (path / file).write_text(text)
        run_git(path, "add", "-A")
        run_git(path, "commit", "-q", "-m", "first")
        return path

    return make


@pytest.fixture
def project(make_repository: Callable[..., Path]) -> Path:
    return make_repository()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def worktrees(state: Path, project: Path) -> Worktrees:
    return Worktrees(str(state), str(project))
