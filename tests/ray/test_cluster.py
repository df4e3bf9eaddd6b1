"""
`sanderling batch --engine ray` as a process, on a cluster of three nodes on this machine.

`make ray` runs 1,000 tasks.
"""

import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, bash, git
from tests.batch.test_display import Terminal, needs_extra
from tests.batch.test_harbor_tasks import harbor_task
from tests.conftest import is_alive, processes_with, wait_until
from tests.loopback import (
    Answer,
    LoopbackServer,
    Reply,
    Request,
    Until,
    done,
    message_start,
    text,
    tool_use,
)
from tests.ray.conftest import Cluster
from tests.ray.memory import has_in_memory

TASKS = int(os.environ.get("SANDERLING_RAY_TASKS", "60"))
LIMIT_S = 120 + 15 * TASKS
KEY = "sk-ant-this-is-the-secret-of-the-driver"
PRICES = '[prices."*"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n'
DONE = [{"text": "Done."}]
GRADE = """\
#!/bin/sh
if cmp -s /app/answer /tests/expected; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
Start = Callable[..., Cluster]

pytestmark = pytest.mark.timeout(LIMIT_S)


class Model(LoopbackServer):
    """Makes a file in the project, then ends. It remembers with which keys it was called."""

    def answer_to(self, request: Request) -> Answer:
        if request.path != self.prompt_path:
            return super().answer_to(request)
        if "tool_result" in request.body.decode():
            return Reply(message_start(), text("Done."), done())
        call = tool_use("toolu_1", "bash", json.dumps({"command": "echo new > made"}))
        return Reply(message_start(), call, done("tool_use"))


class WaitingModel(Model):
    """Ends no task before `may_end`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def answer_to(self, request: Request) -> Answer:
        if request.path == self.prompt_path and "tool_result" in request.body.decode():
            return Reply(Until(self.may_end), message_start(), text("Done."), done())
        return super().answer_to(request)


def engine(cluster: Cluster) -> str:
    return f"ray:{cluster.address}"


def run(home: Batches, cluster: Cluster, model: str, *more: str) -> Any:
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model)
    return home.launch("batch", *arguments, "--engine", engine(cluster), *more)


def many(home: Batches, count: int, **fields: Any) -> None:
    home.repository("project", f="x\n")
    task = {"project": "project", "prompt": "Do.", **fields}
    home.write_tasks(*(task | {"id": f"t{number}"} for number in range(count)))


def files_below(*roots: Path) -> Any:
    for root in roots:
        for directory, _, names in os.walk(root):
            yield from (Path(directory, name) for name in names)


def ray_processes_that_know(secret: str, home: Batches, driver: int) -> set[str]:
    """The names of the processes that have the secret in their memory, without the driver and its children."""
    names = set()
    for pid, parent in parents_of_those_with(f"HOME={home.folder}").items():
        if driver not in (pid, parent) and has_in_memory(pid, secret.encode()):
            name = words_of(pid).split(b"\0")[0].decode()
            names.add(name.partition(".")[0])  # without the method that an actor runs
    return names


def parents_of_those_with(text: str) -> dict[int, int]:
    """The processes that have the text in their environment, each with its parent."""
    found = {}
    for pid in processes_with("environ", lambda environment: text.encode() in environment):
        with suppress(OSError):
            status = Path(f"/proc/{pid}/stat").read_text()
            found[pid] = int(status.rpartition(")")[2].split()[1])
    return found


@pytest.mark.prove
def test_each_result_arrives_once_though_a_node_dies_midway_and_the_key_stays_with_the_driver(
    home: Batches, start_cluster: Start
):
    cluster = start_cluster()
    many(home, TASKS, check="test -e made")
    leaks: set[int] = set()
    knowing: set[str] = set()
    with Model() as server:
        home.config.write_text(f'base_url = "{server.url}"\n{PRICES}')
        home.environment["ANTHROPIC_API_KEY"] = KEY
        with run(home, cluster, "claude-test", "--max-cost", "1000") as driver:
            has_killed = threading.Event()

            def is_over() -> bool:
                """Watch the processes until the driver ends, and kill a node midway."""
                found = parents_of_those_with(KEY)
                # git, for a copy of the project, is a child of the driver
                leaks.update(
                    pid
                    for pid, parent in found.items()
                    if parent not in found and pid != driver.pid
                )
                lines = (home.out / "results.jsonl").read_bytes() if home.out.exists() else b""
                if not has_killed.is_set() and lines.count(b"\n") >= TASKS // 3:
                    knowing.update(ray_processes_that_know(KEY, home, driver.pid))
                    cluster.tell("kill")
                    has_killed.set()
                return driver.poll() is not None

            wait_until(is_over, deadline_s=LIMIT_S)
            _, said = driver.communicate()
        assert driver.returncode == 0, said
        assert has_killed.is_set()
        assert {request.headers["x-api-key"] for request in server.prompts} == {KEY}
    # What a task has cost on the dead node has a line of its own.
    results = [result for result in home.results() if result["state"] != "stopped"]
    assert Counter(result["id"] for result in results) == {f"t{n}": 1 for n in range(TASKS)}
    assert {(result["state"], result["reward"]) for result in results} == {("completed", 1)}
    for result in results:
        trial = home.out / result["trial"]
        assert "+new" in (trial / "changes.patch").read_text()
        assert json.loads((trial / "agent" / "trajectory.json").read_text())["steps"]
        config = json.loads((trial / "config.json").read_text())
        assert config["task"]["path"] == str(home.project / "project")
    assert leaks == set()
    assert knowing == {"ray::Gateway"}
    with_key = [
        path
        for path in files_below(home.out, cluster.session)
        if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert with_key == []


def test_a_repository_of_which_a_package_is_the_project_arrives_with_uncommitted_changes(
    home: Batches, start_cluster: Start
):
    cluster = start_cluster(nodes=2)
    repository = home.repository("mono", __gitignore="ignored\n")
    package = repository / "packages" / "one"
    package.mkdir(parents=True)
    (package / "f").write_text("committed\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=Package")
    (package / "f").write_text("uncommitted\n")
    (package / "new").write_text("new\n")
    (package / "ignored").write_text("ignored\n")
    plain = home.directory("plain", f="plain\n")
    (plain / "link").symlink_to("f")
    task = {"prompt": "Do.", "check": "cat f; ls"}
    home.write_tasks(
        task | {"id": "package", "project": "mono/packages/one"},
        task | {"id": "plain", "project": "plain"},
        task | {"id": "revision", "repository": "mono", "check": "cat packages/one/f"},
        task | {"id": "url", "repository": repository.as_uri(), "check": "cat packages/one/f"},
        task | {"id": "missing", "project": "nowhere"},
    )
    model = home.write_script([bash("echo more >> f")], DONE)
    with run(home, cluster, model) as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 3, said
    results = {result["id"]: result for result in home.results()}

    def output(name: str) -> list[str]:
        path = home.out / f"{name}__1" / "verifier" / "test-stdout.txt"
        return path.read_text().split()

    assert output("package") == ["uncommitted", "more", "f", "new"]
    assert output("plain") == ["plain", "more", "f", "link"]
    assert output("revision") == output("url") == ["committed"]
    assert results["missing"]["state"] == "setup_error"
    assert "there is no directory" in results["missing"]["reason"]
    patch = home.patch("package").read_text()
    assert "+more" in patch
    assert "uncommitted" not in patch.replace(" uncommitted", "")
    home.batch("apply", str(home.out), "--yes")
    assert (package / "f").read_text() == "uncommitted\nmore\n"


def test_a_signal_ends_the_processes_on_the_nodes_and_resume_goes_on(
    home: Batches, start_cluster: Start
):
    cluster = start_cluster(nodes=2)
    many(home, 3)
    model = home.write_script([{"delay_ms": 600_000}, *DONE])
    with run(home, cluster, model) as driver:
        wait_until(lambda: len(agents_of(home)) == 3, deadline_s=LIMIT_S)
        running = agents_of(home)
        driver.send_signal(signal.SIGINT)
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 128 + signal.SIGINT, said
    wait_until(lambda: not any(map(is_alive, running)), deadline_s=LIMIT_S)
    assert home.results() == []
    home.write_script(DONE)
    with run(home, cluster, model, "--resume") as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, said
    assert Counter(result["id"] for result in home.results()) == {f"t{n}": 1 for n in range(3)}


def agents_of(home: Batches) -> list[int]:
    """The processes of agents on the nodes: the home of the cluster's processes is that of the test."""
    here = processes_with("environ", lambda line: f"HOME={home.folder}\0".encode() in line)
    agents = processes_with("cmdline", lambda line: b"sanderling\0-p\0" in line)
    return sorted({*here} & {*agents})


def test_after_the_death_of_the_head_the_results_stay_and_resume_goes_on_elsewhere(
    home: Batches, start_cluster: Start
):
    first = start_cluster(nodes=2, cpus=1)
    many(home, 4)
    model = home.write_script([{"delay_ms": 500}, *DONE])
    home.environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "3"
    with run(home, first, model) as driver:
        wait_until(lambda: len(home.results()) >= 1, deadline_s=LIMIT_S)
        first.tell("kill-head")
        driver.communicate(timeout=LIMIT_S)
    assert driver.returncode != 0
    before = len(home.results())
    assert 1 <= before <= 4
    second = start_cluster(nodes=2, cpus=3)
    with run(home, second, model, "--resume") as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, said
    assert Counter(result["id"] for result in home.results()) == {f"t{n}": 1 for n in range(4)}


def test_tasks_that_no_node_can_run_are_unsupported_and_no_failure_of_the_agent(
    home: Batches, start_cluster: Start
):
    cluster = start_cluster()
    many(home, 5)
    # The driver has another version than the nodes.
    site = home.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sanderling\nsanderling.__version__ = '9.9.9'\n")
    home.environment["PYTHONPATH"] = str(site)
    with run(home, cluster, home.write_script(DONE)) as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 3, said
    results = home.results()
    assert [result["state"] for result in results] == ["unsupported"] * 5
    assert all("and the driver 9.9.9" in result["reason"] for result in results)
    assert all(result["exit"] is None for result in results)


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_node_without_the_sandbox_gets_no_task_twice_and_the_others_run_all(
    home: Batches, start_cluster: Start
):
    cluster = start_cluster(nodes=1)
    cluster.tell("add-weak")
    many(home, 5, check="test -e made")
    home.config.write_text('[sandbox]\nmin_level = "namespaces"\n')
    model = home.write_script([bash("touch made")], DONE)
    with run(home, cluster, model) as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 3, said
    assert {result["state"] for result in home.results()} == {"unsupported"}
    assert all("no sandbox of the level namespaces" in each["reason"] for each in home.results())
    cluster.tell("add")
    home.out = home.project / "out-of-both"
    with run(home, cluster, model) as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, said
    assert Counter(result["id"] for result in home.results()) == {f"t{n}": 1 for n in range(5)}
    assert {(result["state"], result["reward"]) for result in home.results()} == {("completed", 1)}


def test_tasks_of_harbor_run_on_the_nodes(home: Batches, start_cluster: Start):
    cluster = start_cluster(nodes=2)
    for name, answer in (("right", "42\n"), ("wrong", "43\n")):
        harbor_task(home, name, **{"tests/test.sh": GRADE, "tests/expected": answer})
    home.tasks = home.project / "tasks"
    with run(home, cluster, home.write_script([bash("cp /data/data.txt answer")], DONE)) as driver:
        _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, said
    rewards = {result["id"]: (result["state"], result["reward"]) for result in home.results()}
    assert rewards == {"right": ("completed", 1), "wrong": ("completed", 0)}
    for name, reward in (("right", "1\n"), ("wrong", "0\n")):
        trial = home.out / f"{name}__1"
        assert (trial / "verifier" / "reward.txt").read_text() == reward
        assert "+42" in (trial / "changes.patch").read_text()
        config = json.loads((trial / "config.json").read_text())
        assert config["task"]["path"] == str(home.tasks / name)


@needs_extra
def test_what_a_task_has_cost_on_a_node_that_died_counts(home: Batches, start_cluster: Start):
    cluster = start_cluster(nodes=2, cpus=1)
    many(home, 1, check="test -e made")
    with WaitingModel() as server:
        home.config.write_text(f'base_url = "{server.url}"\n{PRICES.replace("1000.0", "10000.0")}')
        home.environment["ANTHROPIC_API_KEY"] = KEY
        arguments = (str(home.tasks), "-o", str(home.out), "--model", "claude-test")
        with Terminal(home, *arguments, "--engine", engine(cluster)) as terminal:
            terminal.read_until(r"\$0\.15")  # of one answer
            cluster.tell("kill")
            cluster.tell("add")
            server.may_end.set()
            assert terminal.read_all() == 0, terminal.output
    lost, done_again = home.results()
    assert (lost["state"], done_again["state"]) == ("stopped", "completed")
    assert lost["cost"] == pytest.approx(0.15)
    assert done_again["cost"] == pytest.approx(0.30)


def test_a_cluster_of_the_run_has_no_key_and_ends_with_it(home: Batches, start_cluster: Start):
    del start_cluster  # only for its skip without Ray
    many(home, 1)
    home.environment["ANTHROPIC_API_KEY"] = KEY
    model = home.write_script([{"delay_ms": 2_000}, *DONE])
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model)
    leaks: set[bytes] = set()
    seen: set[int] = set()
    with home.launch("batch", *arguments, "--engine", "ray") as driver:

        def is_over() -> bool:
            found = parents_of_those_with(KEY)
            leaks.update(words_of(pid) for pid in found)
            seen.update(parents_of_those_with(f"HOME={home.folder}").keys() - {driver.pid})
            return driver.poll() is not None

        wait_until(is_over, deadline_s=LIMIT_S)
        _, said = driver.communicate()
    assert driver.returncode == 0, said
    assert seen
    # The driver, which becomes git for a copy of the project. A process that has ended has no words.
    assert {words for words in leaks if words and not is_of_driver(words)} == set()
    wait_until(lambda: not any(map(is_alive, seen)), deadline_s=LIMIT_S)


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_of_driver(words: bytes) -> bool:
    return words.startswith((b"git\0", b"git-")) or any(
        each in words for each in (b"/git\0", b"git-upload-pack", b"sanderling\0batch\0")
    )


def test_without_ray_the_error_names_the_extra(home: Batches):
    many(home, 1)
    (home.folder / "ray.py").write_text("raise ImportError('No module named ray')\n")
    home.environment["PYTHONPATH"] = str(home.folder)
    arguments = (str(home.tasks), "-o", str(home.out), "--model", "demo", "--engine", "ray")
    done = home.batch(*arguments)
    assert done.returncode == 2
    assert "pip install 'sanderling[ray]'" in done.stderr
    assert not (home.out / "batch.json").exists()


def test_a_cluster_that_is_not_there_and_an_open_network_are_refused(
    home: Batches, start_cluster: Start
):
    del start_cluster  # only for its skip without Ray
    many(home, 1)
    model = home.write_script(DONE)
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model)
    done = home.batch(*arguments, "--engine", "ray", "--net", "on")
    assert done.returncode == 2
    assert "--net proxy" in done.stderr
    done = home.batch(*arguments, "--engine", "raven")
    assert done.returncode == 2
    assert "'raven' is not local, ray or ray:ADDRESS" in done.stderr
    done = home.batch(*arguments, "--engine", "ray:127.0.0.1:1")
    assert done.returncode == 2
    assert "there is no Ray cluster at 127.0.0.1:1" in done.stderr


def test_max_cost_stops_the_agents_of_all_nodes(home: Batches, start_cluster: Start):
    cluster = start_cluster()
    many(home, 6)
    with Model() as server:
        home.config.write_text(f'base_url = "{server.url}"\n{PRICES}')
        home.environment["ANTHROPIC_API_KEY"] = KEY
        with run(home, cluster, "claude-test", "--max-cost", "0.04", "-j", "2") as driver:
            _, said = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 4, said
    assert "--max-cost is reached" in said
    assert len(home.results()) < 6
