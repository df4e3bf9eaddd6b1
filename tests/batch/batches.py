"""A user's home with projects and tasks, and the batches that run there."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.homes import Home

Steps = list[dict[str, Any]]
TIMES = ("wall", "setup", "checking")


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


def write_many_tasks(home: Batches, count: int) -> str:
    """Write tasks with a check, of which three give no reward. Return the name of the model."""
    home.repository("p", f="old\n")
    home.write_tasks(
        *(
            {
                "id": f"t{number}",
                "project": "p",
                "prompt": f"Do {number}.",
                "check": f"echo {number}; test {number} -gt 2",
            }
            for number in range(count)
        )
    )
    usage = {"input_tokens": 20, "output_tokens": 5}  # else estimated, and paths have random parts
    steps = ([bash("echo new >> f; date +%N > /tmp/x; touch made")], [{"text": "Done."}])
    script = {"version": 1, "reply": [{"step": step, "usage": usage} for step in steps]}
    home.script.write_text(json.dumps(script))
    return f"script:{home.script}"


def trial_of(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Return a trial without times: its result, the names of its files, its patch, and the output of its check."""
    directory = out / result["trial"]
    patch = (directory / "changes.patch").read_text()
    return {
        "result": {name: result[name] for name in result if name not in TIMES},
        "patch": re.sub(r"^Date: .*$", "", patch, flags=re.MULTILINE),
        "files": sorted(str(path.relative_to(directory)) for path in directory.rglob("*")),
        "output": (directory / "verifier" / "test-stdout.txt").read_text(),
    }


def comparable(home: Batches, out: Path) -> dict[str, Any]:
    """Return the trials of the results by their names. The last line of a trial counts."""
    results = {result["trial"]: result for result in home.results(out)}
    assert {path.name for path in out.glob("*__*")} == set(results), "half a directory is left"
    return {name: trial_of(out, result) for name, result in results.items()}
