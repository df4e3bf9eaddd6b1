"""The recipes of doc/clusters.md: they parse, and those that can run here do."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.batch.batches import Batches, bash
from tests.conftest import prove

PAGE = Path(__file__).resolve().parent.parent.parent / "doc" / "clusters.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE = [{"text": "Done."}]


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(PAGE.read_text()) if name == language]


def documents(kind: str) -> list[Any]:
    found = [yaml.safe_load(text) for text in blocks("yaml")]
    return [each for each in found if each.get("kind", "") == kind]


def script_with(*words: str) -> str:
    [found] = [text for text in blocks("sh") if all(word in text for word in words)]
    return found


@pytest.mark.parametrize("text", blocks("sh"))
def test_a_shell_script_parses(text: str):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_the_job_of_kubernetes_keeps_the_key_and_the_tasks_apart():
    [job] = documents("RayJob")
    assert job["apiVersion"] == "ray.io/v1"
    spec = job["spec"]["rayClusterSpec"]
    head = spec["headGroupSpec"]
    [head_container] = head["template"]["spec"]["containers"]
    [workers] = spec["workerGroupSpecs"]
    pod = workers["template"]["spec"]
    [worker] = pod["containers"]
    assert [each["name"] for each in head_container["env"]] == ["ANTHROPIC_API_KEY"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert "env" not in worker
    assert "volumeMounts" not in worker
    assert pod["automountServiceAccountToken"] is False
    # procMount: Unmasked needs hostUsers: false.
    assert pod["hostUsers"] is False
    assert worker["securityContext"]["procMount"] == "Unmasked"
    assert worker["image"] == head_container["image"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


def test_the_network_policy_lets_only_nodes_reach_nodes():
    [policy] = documents("NetworkPolicy")
    [rule] = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": policy["spec"]["podSelector"]}]


def test_the_task_of_skypilot_has_scripts_that_parse():
    [task] = documents("")
    assert task["num_nodes"] > 1
    for name in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=task[name], text=True, check=True)


@pytest.fixture
def home(tmp_path: Path) -> Batches:
    home = Batches(tmp_path)
    home.repository("project", f="x\n")
    task = {"project": "project", "prompt": "Do.", "check": "test -e made"}
    home.write_tasks(*(task | {"id": f"t{number}"} for number in range(4)))
    home.environment["MODEL"] = home.write_script([bash("touch made")], DONE)
    # The command of the recipes, with the scripted model.
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "sanderling", f'exec {sys.executable} -m sanderling "$@" --model "$MODEL"')
    home.environment["PATH"] = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return home


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(0o755)


def shell(home: Batches, text: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "-c", text],
        cwd=home.project,
        env=home.environment | variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def once(home: Batches, out: Path) -> bool:
    return Counter(result["id"] for result in home.results(out)) == {f"t{n}": 1 for n in range(4)}


@prove
def test_four_shards_in_one_directory_have_the_results_of_a_run_without_shards(home: Batches):
    [line] = [line for line in script_with("xargs").splitlines() if "xargs" in line]
    with shell(home, line) as process:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert once(home, home.out)
    assert len(list(home.out.glob("results.*-of-4.jsonl"))) == 4
    whole = home.project / "whole"
    with shell(home, f"sanderling batch tasks.jsonl -o {whole}") as process:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said

    def outcome(out: Path) -> dict[str, Any]:
        return {each["id"]: (each["state"], each["reward"]) for each in home.results(out)}

    assert outcome(home.out) == outcome(whole)


@prove
def test_the_array_of_slurm_runs_the_shard_of_its_number_and_goes_on_when_requeued(home: Batches):
    programs = home.folder / "bin"
    program(programs / "srun", 'exec "$@"')
    slurm = {"SLURM_JOB_ID": "77", "SLURM_TMPDIR": str(home.folder / "local")}
    for number in (*range(1, 9), 3):
        variables = slurm | {"SLURM_ARRAY_TASK_ID": str(number)}
        with shell(home, script_with("--array"), **variables) as process:
            said, _ = process.communicate(timeout=300)
        # A shard without a task is done.
        assert process.returncode == 0, said
    assert once(home, home.out)


@pytest.fixture
def slurm(home: Batches) -> dict[str, str]:
    """Slurm with three nodes that are this machine."""
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'sanderling[ray]'")
    address = subprocess.run(
        [sys.executable, "-c", "import ray; print(ray.util.get_node_ip_address())"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    programs = home.folder / "bin"
    program(programs / "scontrol", f"printf '{address}\\n%.0s' 1 2 3")
    program(programs / "srun", 'while [[ $1 != ray ]]; do shift; done; exec "$@"')
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_TMPDIR": "/tmp",
        "ANTHROPIC_API_KEY": "sk-ant-the-key",
    }


@prove
@pytest.mark.timeout(400)
def test_the_cluster_of_slurm_starts_and_runs_all_tasks(home: Batches, slurm: dict[str, str]):
    with shell(home, script_with("--head", "srun"), **slurm) as process:
        try:
            assert process.stdout
            said = ""
            for line in process.stdout:  # the nodes keep it open after the end of the script
                said += line
                if "of 4 done" in line:
                    break
            process.wait(60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    assert once(home, home.out)
    assert {result["reward"] for result in home.results()} == {1.0}
