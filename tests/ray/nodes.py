"""
A Ray cluster on this machine, in a process of its own, which warns and starts threads as it likes.

`python -m tests.ray.nodes NODES CPUS` starts it, and prints its address, and the directory of its session. The lines of standard input are the
names of orders. Each is answered with a line when it is carried out. The end of the input ends the cluster.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ATTEMPTS = 4
JOIN_S = 120.0
POLL_S = 0.1
WITHOUT_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'


class Nodes:
    """A head without processors, which has the gateway and runs no jobs, and nodes that run them."""

    def __init__(self, count: int, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster: Any = _started(lambda: Cluster(initialize_head=True, head_node_args=head))
        self._cpus = cpus
        self._nodes: list[Any] = []
        self._weak: list[subprocess.Popen[bytes]] = []
        for _ in range(count - 1):
            self.add()

    def add(self) -> None:
        self._nodes.append(_started(lambda: self.cluster.add_node(num_cpus=self._cpus)))

    def add_weak(self) -> None:
        """Add a node on which no process can make namespaces."""
        before = self._alive()
        ray = (sys.executable, "-W", "ignore", "-m", "ray.scripts.scripts", "start", "--block")
        options = (f"--address={self.cluster.address}", f"--num-cpus={self._cpus}")
        command = ("unshare", "-Ur", "sh", "-c", WITHOUT_NAMESPACES, "sh", *ray, *options)
        self._weak.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        ends_at = time.monotonic() + JOIN_S
        while self._alive() == before and time.monotonic() < ends_at:
            time.sleep(POLL_S)

    def _alive(self) -> int:
        return len(self.cluster.global_state._live_node_ids())

    def kill(self) -> None:
        self.cluster.remove_node(self._nodes.pop(), allow_graceful=False)

    def kill_head(self) -> None:
        self.cluster.remove_node(self.cluster.head_node, allow_graceful=False)

    def end(self) -> None:
        for process in self._weak:
            process.terminate()
        for process in self._weak:
            process.wait()
        self.cluster.shutdown()


def main() -> None:
    nodes = Nodes(*map(int, sys.argv[1:]))
    print(nodes.cluster.address, flush=True)
    print(nodes.cluster.head_node.get_session_dir_path(), flush=True)
    orders = {
        "add": nodes.add,
        "add-weak": nodes.add_weak,
        "kill": nodes.kill,
        "kill-head": nodes.kill_head,
    }
    for line in sys.stdin:
        orders[line.strip()]()
        print("done", flush=True)
    nodes.end()


def _started(start: Callable[[], Any]) -> Any:
    """Start a part of the cluster. Ray gives it 30 s, which may be too short on a busy machine."""
    for _ in range(ATTEMPTS - 1):
        try:
            return start()
        except Exception as error:  # noqa: BLE001 - Ray raises it plain
            print(error, file=sys.stderr)
    return start()


if __name__ == "__main__":
    main()
