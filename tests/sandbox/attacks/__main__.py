"""
Run attacks by id, each in a child with a deadline, and print lines of JSON; the last one for an id counts.

    python3 -B -c '...' DIRECTORY FACTS [--control] ID...
"""

import json
import os
import select
import signal
import sys
import time

from attacks import ATTACKS
from attacks.registry import Attack, World, load_world


def main(arguments: list[str]) -> None:
    facts_path, *ids = arguments
    if is_control := "--control" in ids:
        ids.remove("--control")
    for attack_id in ids:
        # An attack may end whoever runs it.
        print(json.dumps({"id": attack_id, "escaped": False, "detail": "no answer"}), flush=True)
        report = _attempt(ATTACKS[attack_id], load_world(facts_path, attack_id), is_control)
        print(json.dumps({"id": attack_id} | report), flush=True)


def _attempt(attack: Attack, world: World, is_control: bool) -> dict[str, object]:
    """Run the attack in a child of its own: it may change its namespaces, crash or hang."""
    if is_control and (reason := next(filter(None, (need(world) for need in attack.needs)), "")):
        return {"escaped": False, "detail": reason, "needs": reason}
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.write(write_end, f"{json.dumps(_run(attack, world))}\n".encode())
        os._exit(0)
    os.close(write_end)
    answer = b""
    deadline = time.monotonic() + attack.timeout_s
    while select.select([read_end], [], [], max(0, deadline - time.monotonic()))[0]:
        chunk = os.read(read_end, 1 << 16)
        answer += chunk
        if not chunk or answer.endswith(b"\n"):
            break
    os.close(read_end)
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not answer.endswith(b"\n"):
        return {"escaped": False, "detail": f"no answer in {attack.timeout_s} s, status {status}"}
    return json.loads(answer)


def _run(attack: Attack, world: World) -> dict[str, object]:
    try:
        got = attack.run(world)
    except BaseException as error:  # noqa: BLE001 - whatever stopped it is the answer
        return {"escaped": False, "detail": f"{type(error).__name__}: {error}"[:300]}
    text = got.decode(errors="replace") if isinstance(got, bytes) else str(got or "")
    return {"escaped": bool(got), "detail": text[:20000]}


if __name__ == "__main__":
    main(sys.argv[1:])
