"""The host is killed while children run: their work is in the parent's history, nothing runs twice, no process remains."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from sanderling.protocol.events import ChildChanged, ToolStarted
from sanderling.session.log import log_path
from sanderling.session.store import list_sessions
from tests.children import tree
from tests.conftest import happens, running
from tests.worktrees.conftest import run_git

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("One", "Two", "Three", "Four")
HOST = """
import sys
from pathlib import Path
import anyio
from tests.children import delegate, said, tree, use

def replies(name):
    command = f"echo {name} >> ran; sleep 7654.{len(name)}"
    return [
        [said(f"{name} has begun."), use("write", path=name, content="x")],
        [said("So far so good."), use("bash", command=command, timeout_s=600)],
    ]

async def main(base):
    tasks = sys.argv[2:]
    children = {task: replies(task) for task in tasks}
    isolation = "worktree" if (base / "project/.git").exists() else "none"
    calls = [delegate(task, isolation=isolation) for task in tasks]
    async with tree(base, calls, children=children) as it:
        await it.run()

anyio.run(main, Path(sys.argv[1]))
"""


def start(base: Path, *tasks: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", HOST, base, *(tasks or TASKS)], cwd=ROOT)


async def test_the_report_of_a_killed_child_names_its_worktree(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("one\n")
    run_git(project, "init", "-q", "-b", "main")
    run_git(project, "add", ".")
    run_git(project, "commit", "-qm", "first")
    host = start(tmp_path, "One")
    await happens(lambda: any(tmp_path.glob("state/worktrees/*/*/ran")))
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    async with tree(tmp_path) as it:
        [result] = it.results
        [child] = [each for each in list_sessions(it.logs, str(project), "") if each.parent]
        worktree = it.read(child.id)[0].worktree
        assert f"worktree: {worktree}: the files were changed there" in result
        assert not (project / "One").exists()


async def test_four_children_of_a_killed_host_are_answered_from_their_logs(tmp_path):
    host = start(tmp_path)
    ran = tmp_path / "project/ran"
    await happens(lambda: ran.exists() and len(ran.read_text().split()) == len(TASKS))
    os.kill(host.pid, signal.SIGKILL)
    host.wait()
    await happens(lambda: not running("sleep 7654."))
    before = sorted(ran.read_text().split())
    async with tree(tmp_path) as it:
        assert len(it.results) == len(TASKS)
        for task, result in zip(TASKS, it.results, strict=True):
            assert result.startswith("state: partial\n")
            assert f"files changed: {task}\n" in result
            assert f"{task} has begun.\n\nSo far so good." in result
        await it.run("Go on.")
        assert it.of(ChildChanged) == []
        assert it.of(ToolStarted) == []
        ids = [result.partition("session: ")[2].partition("\n")[0] for result in it.results]
        assert all(log_path(it.logs, each).exists() for each in ids)
    assert sorted(ran.read_text().split()) == before
    # A child is an ordinary session: it goes on where it was.
    async with tree(tmp_path, session_id=ids[0]) as it:
        await it.run("What have you done?")
        assert "The outcome is unknown" in it.results[-1]
