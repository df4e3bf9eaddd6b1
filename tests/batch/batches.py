"""A user's home with projects and tasks, and the batches that run there."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.homes import Home

Steps = list[dict[str, Any]]


def bash(command: str, tool_use_id: str = "toolu_1") -> dict[str, Any]:
    return {"tool_use": {"name": "bash", "input": {"command": command}, "id": tool_use_id}}


def git(directory: Path, *arguments: str) -> str:
    names = ("-c", "user.name=Me", "-c", "user.email=me@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *names, *arguments], cwd=directory, check=True, capture_output=True, text=True
    ).stdout


class Batches(Home):
    """`folder` is where batches run. `out` is the directory of their results."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.project = folder / "here"
        self.project.mkdir()
        self.out = self.project / "out"
        self.script = folder / "script.json"
        self.tasks = self.project / "tasks.jsonl"

    def write_script(self, *replies: Steps) -> str:
        script = {"version": 1, "reply": [{"step": steps} for steps in replies]}
        self.script.write_text(json.dumps(script))
        return f"script:{self.script}"

    def write_tasks(self, *tasks: dict[str, Any]) -> str:
        self.tasks.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        return str(self.tasks)

    def directory(self, name: str, **files: str) -> Path:
        """Make a directory with files in it; a name's `__` is a dot."""
        path = self.project / name
        path.mkdir(parents=True)
        for file, content in files.items():
            (path / file.replace("__", ".")).write_text(content)
        return path

    def repository(self, name: str, **files: str) -> Path:
        path = self.directory(name, **files)
        git(path, "init", "--quiet", "--initial-branch=main")
        git(path, "add", "--all")
        git(path, "commit", "--quiet", "--allow-empty", "--message=First")
        return path

    def batch(self, *arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
        return self.run("batch", *arguments, **streams)

    def play(
        self, *replies: Steps, args: tuple[str, ...] = ()
    ) -> tuple[subprocess.CompletedProcess[str], dict[str, dict[str, Any]]]:
        """Run the tasks with a model that answers so. Return the end of the process, and the results by id."""
        model = self.write_script(*replies)
        done = self.batch(str(self.tasks), "-o", str(self.out), "--model", model, *args)
        return done, {result["id"]: result for result in self.results()}

    def results(self, out: Path | None = None) -> list[dict[str, Any]]:
        paths = sorted((out or self.out).glob("results*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def patch(self, task_id: str) -> Path:
        return self.out / f"{task_id}__1" / "changes.patch"
