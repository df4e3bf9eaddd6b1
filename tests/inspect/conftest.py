"""Tests with Inspect, of which `INSPECT` names the Python: `pip install inspect_ai inspect_swe anthropic` in an environment of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

INSPECT = os.environ.get("INSPECT", "")
HERE = Path(__file__).parent
OFFLINE = {"INSPECT_DISPLAY": "plain"}


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed as users do it."""
    target = tmp_path_factory.mktemp("package")
    pip = (INSPECT, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target))
    subprocess.run([*pip, str(ROOT / "eval/inspect")], check=True)
    return target


class Inspect:
    """Runs of Inspect, with a state and temporary files of their own in `folder`."""

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        self.home.mkdir()
        self.temporary.mkdir()
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(package),
            "PATH": f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}",
            "OPENAI_API_KEY": "sk-secret",
        }
        self.environment = os.environ | OFFLINE | own

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [INSPECT, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def command(self, task: str, *options: str) -> list[str]:
        program = str(Path(INSPECT).with_name("inspect"))
        named = f"{HERE / 'tasks.py'}@{task}"
        return [program, "eval", named, "--log-dir", "logs", "--log-format", "json", *options]

    def eval(self, task: str, *options: str) -> dict[str, Any]:
        """Run a task, and return its log."""
        done = subprocess.run(
            self.command(task, *options),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
        (path,) = self.folder.glob("logs/*.json")
        return json.loads(path.read_text())

    def left(self) -> list[str]:
        """What is left of the samples."""
        return [path.name for path in self.temporary.glob("sanderling-inspect-*")]


@pytest.fixture
def inspect(tmp_path: Path, package: Path) -> Inspect:
    return Inspect(tmp_path, package)
