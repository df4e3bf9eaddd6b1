"""Harbor itself runs Sanderling on tasks, in an environment without Docker, and reads its results."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sanderling import __version__
from tests import loopback
from tests.conftest import ROOT, wait_until
from tests.harbor.conftest import HARBOR, run_harbor
from tests.loopback import LoopbackServer, Reply, message_start, text

TASKS = Path(__file__).parent / "tasks"
SANDERLING = Path(sys.prefix, "bin", "sanderling")
BOTH = (
    "test ! -e /tests/test.sh && echo hello > hello.txt; wc -l < ${LINES_IN:-/dev/null} > count.txt"
)
USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 70}
SOLVE = {"usage": USAGE, "step": [{"tool_use": {"name": "bash", "input": {"command": BOTH}}}]}
DONE = {"usage": USAGE, "step": [{"text": "Done."}]}
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}


class Job:
    """A run of Harbor in `folder`, with what this machine has for its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks = TASKS
        python = subprocess.run(
            [HARBOR, "-c", "import sys; print(sys.prefix, sys.base_prefix, sep=':')"],
            capture_output=True,
            text=True,
            check=True,
        )
        self._shown = f"{ROOT}:{sys.base_prefix}:{sys.prefix}:{folder}:{python.stdout.strip()}"
        self._venv = python.stdout.partition(":")[0]

    def script(self, *replies: Any) -> str:
        path = self.folder / "script.json"
        path.write_text(json.dumps({"version": 1, "reply": list(replies)}))
        return f"script:{path}"

    def arguments(self, *arguments: str, skip_install: bool = True) -> tuple[str, ...]:
        environment = ("--env", "sanderling_harbor:NamespaceEnvironment")
        shown = ("--ek", f"read_paths={self._shown}", "--ek", f"acp_venv={self._venv}")
        skip = ("--ak", "skip_install=true") if skip_install else ()
        options = (*skip, "--jobs-dir", "jobs", "--job-name", "job", "--path", str(self.tasks))
        return ("run", "--yes", "--quiet", *environment, *shown, *options, *arguments)

    def run(self, *arguments: str, skip_install: bool = True) -> list[dict[str, Any]]:
        """Run all tasks; return the results of the trials."""
        done = subprocess.run(
            [
                str(Path(HARBOR).with_name("harbor")),
                *self.arguments(*arguments, skip_install=skip_install),
            ],
            cwd=self.folder,
            env=os.environ | OFFLINE | {"PYTHONPATH": str(ROOT / "eval/harbor")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
        return [json.loads(path.read_text()) for path in self.found("result.json")]

    def found(self, name: str) -> list[Path]:
        """The files of this name in the trials."""
        return sorted(self.folder.glob(f"jobs/job/*/{name}"))

    def through_acp(self, *flags: str) -> tuple[str, ...]:
        """Harbor's own agent for the protocol, with an entry of the registry for what is installed here."""
        entry = json.loads((ROOT / "agent.json").read_text())
        local = {"cmd": str(SANDERLING), "args": ["acp", "--sandbox", "outer", *flags]}
        entry["distribution"] = {"local": local}
        path = self.folder / "entry.json"
        path.write_text(json.dumps(entry))
        return ("--agent", "acp", "--ak", f"registry_entry_path={path}")

    def installed(self, *flags: str) -> tuple[str, ...]:
        options = ("--ak", f"command={SANDERLING}", "--ak", f"flags={' '.join(flags)}")
        return ("--agent", "sanderling_harbor:Sanderling", *options)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    if not shutil.which("bwrap"):
        pytest.skip("the environment needs bubblewrap")
    return Job(tmp_path)


HOW: list[Callable[..., tuple[str, ...]]] = [Job.through_acp, Job.installed]


@pytest.mark.parametrize("how", HOW, ids=["acp", "installed"])
def test_tasks_are_solved_and_their_tokens_counted(job, how, validate):
    results = job.run(*how(job, "--model", job.script(SOLVE, DONE)))
    assert len(results) == 2
    for result in results:
        assert result["exception_info"] is None
        assert result["verifier_result"]["rewards"] == {"reward": 1.0}
        used = result["agent_result"]
        assert (used["n_input_tokens"], used["n_cache_tokens"]) == (160, 140)
        assert used["n_output_tokens"] == 10
    trajectories = [json.loads(path.read_text()) for path in job.found("agent/trajectory.json")]
    assert all(steps >= 3 for steps in validate(trajectories))
    for trajectory in trajectories:
        [step] = [each for each in trajectory["steps"] if each.get("tool_calls")]
        [call], [result] = step["tool_calls"], step["observation"]["results"]
        assert call["arguments"] == {"command": BOTH}
        assert "exit status 0" in result["content"] or "no output" in result["content"]


def test_its_own_sandbox_works_in_the_environment_as_well(job):
    model = ("--model", job.script(SOLVE, DONE))
    results = job.run(*job.installed(*model), "--ak", "sandbox=")
    assert [each["exception_info"] for each in results] == [None, None]
    logs = [path.read_text() for path in job.found("agent/sanderling.jsonl")]
    assert all('"type":"tool_ended"' in log and '"level":"outer"' not in log for log in logs)
    assert (job.found("verifier/reward.txt")[0]).read_text() == "1\n"


def test_a_task_that_is_not_solved_gets_no_reward(job):
    results = job.run(*job.installed("--model", job.script(DONE)))
    assert [each["verifier_result"]["rewards"] for each in results] == [{"reward": 0.0}] * 2
    assert [each["exception_info"] for each in results] == [None, None]


def test_a_model_that_fails_is_an_exception_with_a_trajectory(job):
    script = job.script({"step": [{"error": {"kind": "auth", "message": "No."}}]})
    for result in job.run(*job.installed("--model", script)):
        assert result["exception_info"]["exception_type"] == "NonZeroAgentExitCodeError"
    for path in job.found("agent/trajectory.json"):
        assert json.loads(path.read_text())["extra"]["stop_reason"] == "error"


def test_nothing_else_of_this_machine_is_seen_or_reached(job, tmp_path_factory):
    secret = tmp_path_factory.mktemp("other") / "secret"
    secret.write_text("secret")
    command = (
        f"cat {secret} /etc/shadow ~/.ssh/* > seen.txt; cp seen.txt /logs/agent; ls / > /logs/agent/ls.txt;"
        f" ln -s {secret} /logs/agent/link; ln -s {secret.parent} /logs/verifier/up; touch /usr/x /etc/x; {BOTH}"
    )
    use = {"tool_use": {"name": "bash", "input": {"command": command}}}
    results = job.run(*job.installed("--model", job.script({"step": [use]}, DONE)))
    assert [each["verifier_result"]["rewards"] for each in results] == [{"reward": 1.0}] * 2
    assert [path.read_text() for path in job.found("agent/seen.txt")] == ["", ""]
    for path in job.found("agent/ls.txt"):
        assert {"app", "logs", "tests", "usr"} <= {*path.read_text().split()}
    assert job.found("agent/link") == job.found("verifier/up") == []
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]
    assert not Path("/usr/x").exists()


@pytest.fixture
def api() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@pytest.mark.parametrize("how", HOW, ids=["acp", "installed"])
def test_the_model_that_harbor_names_is_asked(job, api, how):
    job.tasks = TASKS / "count"  # with a network
    api.answer(Reply(message_start(), text("Done."), loopback.done()))
    variables = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": api.url, "NO_PROXY": "*"}
    passed = [each for pair in variables.items() for each in ("--ae", "=".join(pair))]
    (result,) = job.run(*how(job), "--model", "anthropic/claude-haiku-5-5", *passed)
    assert result["exception_info"] is None
    asked = [json.loads(request.body)["model"] for request in api.prompts]
    assert asked == ["claude-haiku-5-5"]


def test_an_image_that_would_have_to_be_built_is_named(job, tmp_path):
    job.tasks = tmp_path / "task"
    shutil.copytree(TASKS / "greet", job.tasks)
    with (job.tasks / "environment/Dockerfile").open("a") as file:
        file.write("RUN apt-get update && \\\n  apt-get install -y gcc\n")
    (result,) = job.run(*job.installed("--model", job.script(SOLVE, DONE)))
    assert "builds no images" in result["exception_info"]["exception_message"]
    assert "RUN apt-get update" in result["exception_info"]["exception_message"]


def test_the_viewer_shows_the_trajectory(job):
    job.run(*job.installed("--model", job.script(SOLVE, DONE)))
    (trial, *_) = job.found("agent/trajectory.json")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [str(Path(HARBOR).with_name("harbor")), "view", "jobs", "--no-build", "--port", port]
    with (job.folder / "view.log").open("wb") as log:
        viewer = subprocess.Popen(
            command, cwd=job.folder, env=os.environ | OFFLINE, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}/api/jobs/job/trials/{trial.parent.parent.name}/trajectory"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        shown: list[Any] = []

        def has_answered() -> bool:
            try:
                shown.append(json.load(direct.open(url, timeout=5)))
            except (urllib.error.URLError, OSError):
                assert viewer.poll() is None, (job.folder / "view.log").read_text()
            return bool(shown)

        wait_until(has_answered, deadline_s=60)
        assert shown == [json.loads(trial.read_text())]
    finally:
        viewer.terminate()
        viewer.wait()


# --- without a run -----------------------------------------------------------------------------------------------------


def test_the_registry_entry_is_one_for_harbor():
    code = """
import sys
from harbor.agents.installed.acp import AcpAgent, _load_registry_entry
from pathlib import Path
entry = _load_registry_entry(None, sys.argv[1])
agent = AcpAgent(registry_entry_path=sys.argv[1], logs_dir=Path("/tmp"))
kind, target = agent._select_distribution("linux-x86_64")
print(entry.id, entry.version, kind, target.package, *target.args)
"""
    done = run_harbor("-c", code, str(ROOT / "agent.json"))
    words = f"sanderling {__version__} uvx sanderling=={__version__} acp"
    assert done.stdout.split("\n")[-2] == words, done.stderr


def test_harbor_finds_the_model_among_the_values_of_the_option(start):
    agent = start(environment={"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    agent.initialize()
    said = agent.request("session/new", cwd=str(agent.home.project), mcpServers=[])
    option = next(each for each in said["configOptions"] if each["id"] == "model")
    values = [each["value"] for each in option["options"]]
    openai = next(each for each in values if each.startswith("openai/"))
    claude = next(each for each in values if each.startswith("claude"))
    code = """
import json, sys
from types import SimpleNamespace
from harbor.agents.installed.acp_runner import _resolve_config_model_candidates as candidates
values, wanted = json.load(sys.stdin)
option = SimpleNamespace(options=[SimpleNamespace(value=each) for each in values])
print(json.dumps([candidates(each, option)[0] for each in wanted]))
"""
    wanted = [openai, claude, f"anthropic/{claude}"]
    done = run_harbor("-c", code, input=json.dumps([values, wanted]))
    assert json.loads(done.stdout) == [openai, claude, claude], done.stderr
