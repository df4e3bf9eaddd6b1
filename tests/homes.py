"""A person's home with a project, as the program finds it that runs there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import DEADLINE_S


class Home:
    python = sys.executable
    program: tuple[str, ...] = ("-m", "sanderling")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.state = folder / "state" / "nvim" / "sanderling"
        self.config = folder / "config" / "sanderling" / "config.toml"
        (self.project / ".git").mkdir(parents=True, exist_ok=True)
        self.config.parent.mkdir(parents=True, exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "NVIM", "XDG_"))
        }
        places = {
            "HOME": folder,
            "XDG_STATE_HOME": folder / "state",
            "XDG_CONFIG_HOME": folder / "config",
        }
        self.environment = inherited | {name: str(path) for name, path in places.items()}

    def launch(self, *args: str, **streams: Any) -> subprocess.Popen[str]:
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | streams
        return subprocess.Popen(
            [self.python, *self.program, *args],
            cwd=self.project,
            env=self.environment,
            text=True,
            **streams,
        )

    def run(
        self, *args: str, stdin: str | None = None, **streams: Any
    ) -> subprocess.CompletedProcess[str]:
        if stdin is not None:
            streams["stdin"] = subprocess.PIPE
        with self.launch(*args, **streams) as process:
            try:
                out, err = process.communicate(stdin, timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
