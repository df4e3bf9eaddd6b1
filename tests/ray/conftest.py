"""What the tests of the engine `ray` share. Without Ray (the extra `ray`), those that need a cluster skip."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.batch.batches import Batches

END_S = 20.0
ROOT = Path(__file__).resolve().parent.parent.parent


class Cluster:
    """`python -m tests.ray.nodes` as a process. `session` is Ray's directory for logs and sockets."""

    def __init__(self, nodes: int, cpus: int, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.ray.nodes", str(nodes), str(cpus)],
            cwd=ROOT,
            env=environment | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._line()
        self.session = Path(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the cluster did not start"
        return line.strip()

    def tell(self, order: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def end(self) -> None:
        with self._process as process:  # closes its input, and waits
            assert process.stdin
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # without its head it does not end
                process.wait(END_S)
            process.kill()


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'sanderling[ray]'")
    started: list[Cluster] = []
    # Short, because Ray has sockets there; its own, because one directory has a file for the latest cluster.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "XDG_"))
    }

    def start(nodes: int = 3, cpus: int = 3) -> Cluster:
        started.append(Cluster(nodes, cpus, environment | {"HOME": str(tmp_path)}))
        return started[-1]

    yield start
    for cluster in started:
        cluster.end()


@pytest.fixture
def home(tmp_path: Path) -> Batches:
    return Batches(tmp_path)
