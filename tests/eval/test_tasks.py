"""The tasks of `eval/tasks`: their checks fail before, and pass after what a competent model does."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from eval import fetch
from sanderling.batch.harbor.task_file import read_task_file
from sanderling.batch.harbor.tasks import read_directory
from tests.batch.batches import Batches
from tests.conftest import DEADLINE_S

HARBOR = os.environ.get("HARBOR", "")
KINDS = {"bug": 16, "feature": 8, "refactoring": 6, "hostile": 8}
"""The least numbers of tasks."""
FIELDS = {
    "read": {"path"},
    "list": {"path"},
    "search": {"pattern", "path"},
    "edit": {"path", "old", "new"},
    "write": {"path", "text"},
    "run": {"command"},
}
SLOW = {"c-columns-utf8", "huge-and-binary-files"}
NAMES = sorted(path.parent.name for path in fetch.TASKS.glob("*/task.toml"))
_VALIDATE = """
import sys
from pathlib import Path
from harbor.models.task.task import Task
for name in sys.argv[1:]:
    task = Task(Path(name))
    assert task.instruction.strip() and task.config.metadata["kind"]
    print(task.name)
"""


def metadata(name: str) -> dict[str, Any]:
    text = (fetch.TASKS / name / "task.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["metadata"]


def rounds(name: str) -> list[dict[str, Any]]:
    text = (fetch.TASKS / name / "scenario.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["round"]


def marked(names: list[str]) -> list[Any]:
    """Return the tasks as parameters. Slow ones, and fetching from the network, are left to `make prove`."""
    return [
        pytest.param(
            name, marks=[pytest.mark.prove] if name in SLOW or "source" in metadata(name) else []
        )
        for name in names
    ]


class Built:
    """A built task, and copies of its files in which something was done."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        try:
            [self.directory] = fetch.build([name], folder / "tasks", fetch.default_cache())
        except fetch.FetchError as error:
            if "pip cannot download" in str(error):
                pytest.skip(f"the task is fetched from the network: {error}")
            raise
        program = {"FROM gcc": "cc", "FROM node": "node"}
        dockerfile = self.directory / "environment" / "Dockerfile"
        text = dockerfile.read_text() if dockerfile.exists() else ""
        for line, needed in program.items():
            if line in text and not shutil.which(needed):
                pytest.skip(f"the task needs {needed}")

    def copy(self, name: str) -> Path:
        app = self._folder / name / "app"
        shutil.copytree(self.directory / "environment", app, symlinks=True)
        return app

    def reward(self, app: Path) -> str:
        logs = app.parent / "logs"
        (logs / "verifier").mkdir(parents=True)
        variables = os.environ | {"APP": str(app), "LOGS": str(logs)}
        subprocess.run(
            [self.directory / "tests" / "test.sh"],
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
        )
        return (logs / "verifier" / "reward.txt").read_text().strip()


@pytest.fixture
def built(name: str, tmp_path: Path) -> Built:
    return Built(name, tmp_path)


def play(call: dict[str, str], app: Path) -> None:
    """Do what an agent would do for a call. Its tools keep the line endings of a file."""
    path = app / call.get("path", "")
    match call["action"]:
        case "edit":
            content = path.read_bytes()
            end = b"\r\n" if b"\r\n" in content else b"\n"
            old, new = (call[key].encode().replace(b"\n", end) for key in ("old", "new"))
            assert content.count(old) == 1, f"{call['path']}: {call['old']}"
            path.write_bytes(content.replace(old, new))
        case "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(call["text"], encoding="utf-8")
        case "run":
            command = ["sh", "-c", call["command"]]
            subprocess.run(command, cwd=app, capture_output=True, check=False, timeout=DEADLINE_S)
        case _:
            assert path.exists(), call


@pytest.mark.parametrize("name", marked(NAMES))
def test_the_checks_fail_before_and_pass_after_the_scenario(built: Built):
    assert built.reward(built.copy("untouched")) == "0"
    app = built.copy("done")
    for each in rounds(built.name):
        for call in each.get("call", ()):
            play(call, app)
    assert built.reward(app) == "1"


@pytest.mark.prove
@pytest.mark.parametrize(
    "name", marked([name for name in NAMES if (fetch.TASKS / name / "wrong.patch").exists()])
)
def test_the_checks_reject_a_plausible_mistake(built: Built):
    app = built.copy("wrong")
    fetch.apply_patch(fetch.TASKS / built.name / "wrong.patch", app)
    assert built.reward(app) == "0"


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_complete_and_what_its_scenario_does_is_known(name: str):
    directory = fetch.TASKS / name
    [task] = read_directory(directory)
    assert (task.id, read_task_file(directory).environment.workdir) == (name, "/app")
    about = metadata(name)
    assert about["kind"] in KINDS
    assert about.get("source", "") in {"", *fetch.read_sources()}
    assert "source" in about or (directory / "environment").is_dir()
    assert 1 <= len((directory / "instruction.md").read_text(encoding="utf-8").split(". ")) <= 8
    assert os.access(directory / "tests" / "test.sh", os.X_OK)
    for each in rounds(name):
        assert each.keys() <= {"say", "call"}
        for call in each.get("call", ()):
            assert call.keys() == FIELDS[call["action"]] | {"action"}


def test_there_are_enough_tasks_of_each_kind():
    kinds = [metadata(name)["kind"] for name in NAMES]
    assert len(NAMES) >= 40
    assert {kind: kinds.count(kind) >= least for kind, least in KINDS.items()} == dict.fromkeys(
        KINDS, True
    )
    bugs = {metadata(name).get("source") for name in NAMES if metadata(name)["kind"] == "bug"}
    assert len(bugs - {None}) >= 10
    wrong = [name for name in NAMES if (fetch.TASKS / name / "wrong.patch").exists()]
    assert len(wrong) >= 15


def test_a_build_is_the_same_each_time(tmp_path: Path):
    for place in ("one", "two"):
        fetch.build(["git-config-trap", "crlf-rename-config"], tmp_path / place, tmp_path / "cache")
    one, two = (
        [(task.id, task.digest) for task in read_directory(tmp_path / place)]
        for place in ("one", "two")
    )
    assert one == two
    app = tmp_path / "one" / "crlf-rename-config" / "environment"
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, cwd=app, capture_output=True, check=True).stdout == b""


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--only", "nothing"], "there is no task 'nothing'"),
        (["--only", "crlf-rename-config"], "1 tasks in"),
    ],
)
def test_the_script_says_what_it_built_or_what_is_wrong(
    arguments: list[str], words: str, tmp_path: Path
):
    script = [sys.executable, str(fetch.HERE / "fetch.py"), *arguments, str(tmp_path / "tasks")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert words in (done.stderr if done.returncode else done.stdout)
    assert (done.returncode == 0) == (tmp_path / "tasks").exists()


def scripted(name: str) -> list[dict[str, Any]]:
    """Return the scenario as the replies of a scripted model that calls Sanderling's tools."""
    replies = list[dict[str, Any]]()
    prompt = (fetch.TASKS / name / "instruction.md").read_text(encoding="utf-8").strip()
    key = {"when": prompt}
    for number, each in enumerate([*rounds(name), {"say": "Done."}]):
        steps = [{"text": each["say"]}] if "say" in each else []
        ids = [f"toolu_{number}x{index}x" for index, _ in enumerate(each.get("call", ()))]
        for call, tool_use_id in zip(each.get("call", ()), ids, strict=True):
            steps.append({"tool_use": {"id": tool_use_id, **tool_use(call)}})
        replies.append({"step": steps, **key})
        key = {"after": ids[-1]} if ids else {}
    return replies


def tool_use(call: dict[str, str]) -> dict[str, Any]:
    fields = {name: value for name, value in call.items() if name != "action"}
    match call["action"]:
        case "run":
            return {"name": "bash", "input": fields}
        case "search":
            return {"name": "grep", "input": fields}
        case "list":
            return {"name": "ls", "input": fields}
        case "write":
            return {"name": "write", "input": {"path": call["path"], "content": call["text"]}}
        case "edit":
            edits = [{"old": call["old"], "new": call["new"]}]
            return {"name": "edit", "input": {"path": call["path"], "edits": edits}}
        case _:
            return {"name": "read", "input": fields}


@pytest.mark.prove
@pytest.mark.parametrize("name", ["crlf-rename-config", "git-config-trap", "secrets-in-settings"])
def test_batch_gives_a_competent_model_the_whole_reward(name: str, built: Built, tmp_path: Path):
    home = Batches(tmp_path / "home")
    home.script.write_text(json.dumps({"version": 1, "reply": scripted(name)}))
    model = f"script:{home.script}"
    done = home.batch(str(built.directory), "-o", str(home.out), "--model", model)
    assert done.returncode == 0, done.stderr
    [result] = home.results()
    assert (result["state"], result["reward"], result["questions"]) == ("completed", 1, 0)


# --- source distributions ---------------------------------------------------------------------------------------------


def archive(folder: Path, metadata_lines: str, *names: str) -> tuple[Path, fetch.Source]:
    """Make a source distribution of the package `demo`, with files that contain their names."""
    tree = folder / "tree" / "demo-1.0"
    tree.mkdir(parents=True)
    (tree / "PKG-INFO").write_text(f"Name: demo\nVersion: 1.0\n{metadata_lines}\n")
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    path = folder / "demo.tar.gz"
    subprocess.run(["tar", "czf", path, "-C", tree.parent, "demo-1.0"], check=True)
    return path, fetch.Source("demo", "1.0", "0" * 64, "MIT", ("LICENSE", "demo/*.py"))


def test_only_the_named_files_of_a_source_are_unpacked(tmp_path: Path):
    path, source = archive(
        tmp_path, "License: MIT", "LICENSE", "demo/a.py", "demo/a.so", "setup.py"
    )
    fetch.unpack(path, source, tmp_path / "app")
    files = {str(each.relative_to(tmp_path / "app")) for each in (tmp_path / "app").rglob("*.*")}
    assert files == {"demo/a.py"}
    assert (tmp_path / "app" / "LICENSE").read_text() == "LICENSE"


@pytest.mark.parametrize(
    "metadata_lines, names, words",
    [
        ("License: GPL", ["LICENSE", "demo/a.py"], "is not under MIT"),
        ("", ["LICENSE", "demo/a.py"], "is not under MIT"),
        ("License-Expression: MIT", ["demo/a.py"], "add the file of its licence"),
        ("License: MIT", ["LICENSE"], "has no file 'demo/*.py'"),
    ],
)
def test_a_source_without_its_licence_or_files_is_refused(
    metadata_lines: str, names: list[str], words: str, tmp_path: Path
):
    path, source = archive(tmp_path, metadata_lines, *names)
    with pytest.raises(fetch.FetchError, match=words.replace("*", r"\*")):
        fetch.unpack(path, source, tmp_path / "app")


@pytest.mark.prove
def test_a_download_with_another_hash_is_refused_and_no_code_of_the_package_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = fetch.read_sources()["inflection==0.5.1"]
    try:
        fetch.archives({source}, tmp_path / "cache")
    except fetch.FetchError as error:
        pytest.skip(f"no network: {error}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    [again] = fetch.archives({source}, tmp_path / "cache").values()
    assert again.is_file()
    monkeypatch.delenv("PIP_NO_INDEX")
    other = source._replace(sha256="0" * 64)
    with pytest.raises(fetch.FetchError, match=r"(?i)hash"):
        fetch.archives({other}, tmp_path / "cache")


@pytest.mark.skipif(not HARBOR, reason="HARBOR names no Python: see CONTRIBUTING.md")
def test_harbor_reads_the_tasks():
    names = [str(fetch.TASKS / name) for name in NAMES]
    done = subprocess.run(
        [HARBOR, "-c", _VALIDATE, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split() == [f"sanderling/{name}" for name in NAMES]
