"""
A Ray cluster on this machine, in a process of its own, which warns and starts threads as it likes.

`python -m tests.ray.nodes NODES CPUS` starts it, and prints its address. `kill` on standard input kills a node that is not the head, `kill-head`
the head; each is answered with a line. The end of the input ends the cluster.
"""

import sys
from collections.abc import Callable
from typing import Any

ATTEMPTS = 4


def main() -> None:
    from ray.cluster_utils import Cluster

    count, cpus = map(int, sys.argv[1:])
    # The head has no processors, so it runs no jobs, but it has the gateway.
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster: Any = _started(lambda: Cluster(initialize_head=True, head_node_args=head))
    nodes = [_started(lambda: cluster.add_node(num_cpus=cpus)) for _ in range(count - 1)]
    print(cluster.address, flush=True)
    for line in sys.stdin:
        node = nodes.pop() if line.strip() == "kill" else cluster.head_node
        cluster.remove_node(node, allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()


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
