"""Harbor's other ways to run a trial: steps, tool servers, skills, several at a time, again after an error, too long, and stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, processes_with, wait_until
from tests.harbor.conftest import HARBOR
from tests.harbor.test_harbor import DONE, HOW, OFFLINE, TASKS, Job, job

__all__ = ["job"]  # a fixture

SERVER = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["x", "stdio"]
import tests.mcp.notes_server
open("/tmp/ready", "w").close()
runpy.run_module("tests.mcp.notes_server", run_name="__main__")
"""
PONG = {"tool_use": {"name": "mcp__notes__echo", "input": {"text": "pong"}}}
# The ACP agent's first request does not wait for tool servers.
SEE = (
    "for i in {1..100}; do [ -e /tmp/ready ] && break; sleep 0.5; done; rm /tmp/ready; sleep 2;"
    " cat ~/.agents/skills/*/SKILL.md; echo x >> count.txt"
)


def task(folder: Path, toml: str, **files: str) -> Path:
    directory = folder / "task"
    shutil.copytree(TASKS / "greet", directory)
    (directory / "task.toml").write_text(toml)
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def observed(job: Job) -> str:
    """The results of the tool calls of all trajectories."""
    found = [json.loads(path.read_text()) for path in job.folder.rglob("trajectory.json")]
    steps = [step for each in found for step in each["steps"] if step.get("observation")]
    return "\n".join(str(result) for step in steps for result in step["observation"]["results"])


@pytest.mark.parametrize("how", HOW, ids=["acp", "installed"])
def test_steps_share_the_files_and_have_the_tool_servers_and_skills(job, how, tmp_path):
    is_installed = how is Job.installed
    toml = f"""
[environment]
{'skills_dir = "/skills"' if is_installed else ""}
[[environment.mcp_servers]]
name = "notes"
transport = "stdio"
command = {json.dumps(sys.executable)}
args = ["-c", {json.dumps(SERVER)}]
[[steps]]
name = "one"
[[steps]]
name = "two"
"""
    check = "#!/bin/sh\ntest $(wc -l < /app/count.txt) = {} && echo 1 > /logs/verifier/reward.txt\n"
    job.tasks = task(
        tmp_path,
        toml,
        **{
            "environment/Dockerfile": "FROM x\nWORKDIR /app\nCOPY skills /skills\n",
            "environment/skills/greet/SKILL.md": "---\nname: greet\ndescription: Greets.\n---\nHi.\n",
            "steps/one/instruction.md": "One.\n",
            "steps/two/instruction.md": "Two.\n",
            "steps/one/tests/test.sh": check.format(1),
            "steps/two/tests/test.sh": check.format(2),
        },
    )
    use = {"tool_use": {"name": "bash", "input": {"command": SEE}}}
    [result] = job.run(*how(job, "--model", job.script({"step": [use]}, {"step": [PONG]}, DONE)))
    assert result["exception_info"] is None
    steps = [each["verifier_result"]["rewards"] for each in result["step_results"]]
    assert steps == [{"reward": 1.0}] * 2
    assert observed(job).count("pong") == 2
    assert observed(job).count("Greets.") == (2 if is_installed else 0)


def test_a_server_with_a_transport_that_we_lack_is_named(job, tmp_path):
    server = '[[environment.mcp_servers]]\nname = "old"\ntransport = "sse"\nurl = "http://127.0.0.1:1/sse"\n'
    job.tasks = task(tmp_path, server)
    [result] = job.run(*job.installed("--model", job.script(DONE)))
    assert (
        "The tool server 'old' has the transport sse"
        in result["exception_info"]["exception_message"]
    )


def test_permission_mode_deny_denies_what_asks(job):
    job.tasks = TASKS / "greet"
    options = job.through_acp("--model", job.script({"step": [PONG]}, DONE))
    [result] = job.run(*options, "--ak", "permission_mode=deny")
    assert result["exception_info"] is None


# --- several, again, and stopped ---------------------------------------------------------------------------------------


def left(tmp: Path, mark: str) -> list[Any]:
    processes = processes_with("cmdline", lambda line: mark.encode() in line)
    return [*tmp.glob("sanderling-harbor-*"), *processes]


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def test_four_trials_at_a_time_are_tried_again_and_leave_nothing(job, tmp):
    job.tasks = TASKS / "greet"
    failing = job.script({"step": [{"error": {"kind": "auth", "message": "No."}}]})
    again = ("--max-retries", "1", "--retry-include", "NonZeroAgentExitCodeError")
    results = job.run(*job.installed("--model", failing), "-k", "4", "-n", "4", *again)
    assert len(results) == 4
    for result in results:
        assert result["exception_info"]["exception_type"] == "NonZeroAgentExitCodeError"
    assert left(tmp, str(job.folder)) == []


def sleeping(job: Job) -> tuple[str, ...]:
    use = {"tool_use": {"name": "bash", "input": {"command": f"exec -a {job.folder} sleep 1000"}}}
    return job.installed("--model", job.script({"step": [use]}, DONE))


def test_an_agent_that_takes_too_long_is_ended_with_its_processes(job, tmp, tmp_path):
    job.tasks = task(tmp_path, "[agent]\ntimeout_sec = 5\n")
    [result] = job.run(*sleeping(job))
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert result["verifier_result"]["rewards"] == {"reward": 0.0}
    wait_until(lambda: left(tmp, str(job.folder)) == [], deadline_s=60)


def test_a_run_that_is_interrupted_leaves_nothing(job, tmp):
    job.tasks = TASKS / "greet"
    process = subprocess.Popen(
        [Path(HARBOR).with_name("harbor"), *job.arguments(*sleeping(job))],
        cwd=job.folder,
        env=os.environ | OFFLINE | {"PYTHONPATH": str(ROOT / "eval/harbor")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    mark = f"{job.folder}\0".encode()
    wait_until(
        lambda: processes_with("cmdline", lambda line: line.startswith(mark)), deadline_s=120
    )
    os.killpg(process.pid, signal.SIGINT)
    process.wait(120)
    wait_until(lambda: left(tmp, str(job.folder)) == [], deadline_s=60)
