"""verifiers runs Sanderling on a taskset over a loopback model, and records trajectories with rewards."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, running
from tests.loopback import LoopbackServer, Reply, done, message_start, text, tool_use
from tests.verifiers.conftest import HERE, VERIFIERS


class Rollouts:
    """Runs of verifiers, with a HOME and temporary files of their own in `folder`."""

    def __init__(self, folder: Path, api: LoopbackServer) -> None:
        self.folder = folder
        self.api = api
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        self.home.mkdir()
        self.temporary.mkdir()

    def answer(self, *commands: str) -> None:
        """Have the model run the commands, then end."""
        calls = [
            Reply(
                message_start(),
                tool_use(f"toolu_{i}", "bash", json.dumps({"command": command})),
                done("tool_use"),
            )
            for i, command in enumerate(commands)
        ]
        self.api.answer(*calls, Reply(message_start(), text("Done."), done()))

    def run(self, *options: str) -> list[dict[str, Any]]:
        """Run the taskset; return the episodes."""
        programs = f"{Path(sys.prefix, 'bin')}:{Path(VERIFIERS).parent}:{os.environ['PATH']}"
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PATH": programs,
            "PYTHONPATH": f"{ROOT / 'eval/verifiers'}:{HERE / 'tasksets'}",
            "MODEL_KEY": "k",
        }
        agent = ("harness.id=sanderling-verifiers", "runtime.type=subprocess")
        words = [word for each in agent for word in f"--env.agent.{each}".split("=")]
        model = ("--model", "claude-haiku-5-5", "--client.base_url", f"{self.api.url}/v1")
        finished = subprocess.run(
            [
                *(str(Path(VERIFIERS).with_name("vf-eval")), "--env.taskset.id", "tiny-taskset"),
                *(*words, *model, "--client.api_key_var", "MODEL_KEY", "--push", "false"),
                *("--output_dir", str(self.folder / "out"), *options),
            ],
            env=os.environ | own,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout[-3_000:] + finished.stderr[-3_000:]
        (path,) = self.folder.glob("out/*/traces.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rollouts(tmp_path: Path) -> Iterator[Rollouts]:
    with LoopbackServer() as api:
        yield Rollouts(tmp_path, api)


def test_a_rollout_leaves_a_trajectory_with_its_reward(rollouts: Rollouts):
    rollouts.answer("echo hello > hello.txt")
    (episode,) = rollouts.run("--num_rollouts", "1")
    assert (episode["ok"], episode["errors"]) == (True, [])
    (trace,) = episode["traces"]
    assert trace["rewards"]["solved"]["score"] == 1.0
    assert trace["stop_condition"] == "agent_completed"
    assert trace["root_reply"] == "Done."
    assert [call["finish_reason"] for call in trace["calls"]] == ["tool_calls", "stop"]
    assert {"bash", "edit"} <= {tool["name"] for tool in trace["tools"]}
    assert "exit status 0" in json.dumps(trace["nodes"])
    assert [json.loads(each.body)["model"] for each in rollouts.api.prompts] == [
        "claude-haiku-5-5"
    ] * 2
    assert [*rollouts.temporary.glob("sanderling-*")] == []


def test_a_rollout_that_does_not_solve_the_task_has_no_reward(rollouts: Rollouts):
    rollouts.answer("true")
    (episode,) = rollouts.run("--num_rollouts", "1")
    assert episode["traces"][0]["rewards"]["solved"]["score"] == 0.0


def test_a_rollout_on_this_machine_reaches_nothing_else_of_it(rollouts: Rollouts):
    (rollouts.home / "secret").write_text("planted")
    (outside := rollouts.folder / "outside").mkdir()
    heard: list[bool] = []
    mark = f"left_{os.getpid()}"

    def listen(listener: socket.socket) -> None:
        while True:
            try:
                listener.accept()
            except OSError:
                return
            heard.append(True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        rollouts.answer(
            f"cat {rollouts.home}/secret ~/secret; touch {outside}/x;"
            f" python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)';"
            f" (setsid sh -c 'sleep 600; : {mark}' &) ; echo hello > hello.txt"
        )
        (episode,) = rollouts.run("--num_rollouts", "1")
        listener.shutdown(socket.SHUT_RDWR)
    (trace,) = episode["traces"]
    assert trace["rewards"]["solved"]["score"] == 1.0
    assert "planted" not in json.dumps(trace["nodes"])
    assert [*outside.iterdir()] == []
    assert heard == []
    assert not running(mark)


def test_the_secret_of_a_rollout_is_not_in_a_command_line(rollouts: Rollouts):
    rollouts.answer("sleep 1")
    seen: set[bytes] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for pid in running("outer-unchecked"):
                with suppress(OSError):  # it has ended
                    seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        rollouts.run()
    finally:
        over.set()
        watcher.join()
    assert seen
    assert not [words for words in seen if b"API_KEY=" in words]
