"""
The supervisor on macOS: it guards the project, and forks a starter for each view.

Its views differ from the Linux supervisor's (`inside/supervisor.py`). There are no namespaces and no mounts: a view is a profile, and
each of its commands is a `sandbox-exec` with it. The guard is polled, and processes are found by `ProcessTree`.
"""

import os
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from sanderling.protocol.modes import Level
from sanderling.sandbox.inside import supervisor as linux
from sanderling.sandbox.inside.supervisor import run_supervisor
from sanderling.sandbox.kernel.layout import private_directory, temporary_directory
from sanderling.sandbox.policy import SandboxPolicy, private_home
from sanderling.sandbox.seatbelt.profile import PROGRAM, compile_profile
from sanderling.sandbox.seatbelt.starter import Starter, StarterView

LOOK_MS = 100


def main(channel: int, program: str = PROGRAM) -> NoReturn:
    """Supervise. `program` is `sandbox-exec`, or a test's stand-in on another system."""
    supervisor = Supervisor(socket.socket(fileno=channel))
    supervisor.program = program
    run_supervisor(supervisor)


class Supervisor(linux.Supervisor):
    program = PROGRAM
    _look_ms = LOOK_MS

    def _prepare(self) -> None:
        self._starters = dict[int, int]()  # pids, with the descriptor whose end they notice

    def _reap(self) -> None:
        for pid, alive in list(self._starters.items()):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._starters[pid]
                    os.close(alive)

    def _kill_all(self) -> None:
        """End the starters, which kill what they have started."""
        for alive in self._starters.values():
            os.close(alive)
        for pid in self._starters:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._starters = {}

    def _start_zygote(
        self, number: int, level: Level, policy: SandboxPolicy, channel: socket.socket
    ) -> None:
        protected = self._protected(policy, level)
        private_directory(policy, private_home(policy))
        temporary_directory(policy)
        self._placeholders[number] = set()
        listener = _listener() if policy.network == "proxy" else None
        profile = compile_profile(
            policy,
            protected,
            runtime=runtime(),
            proxy_port=listener.getsockname()[1] if listener else 0,
        )
        view = StarterView(profile, policy.limits, self.program)
        alive, ours = os.pipe()
        if pid := os.fork():
            os.close(alive)
            self._starters[pid] = ours
            if listener:
                listener.close()
            return
        os.close(ours)
        for each in self._starters.values():
            os.close(each)
        try:
            self.channel.close()
            Starter(view, channel, alive).serve(listener)
        except BaseException as defect:  # noqa: BLE001 - nothing above could report it
            sys.excepthook(type(defect), defect, defect.__traceback__)
        finally:
            os._exit(0)


def _listener() -> socket.socket:
    """Return a socket on the machine's loopback for the proxy. The host listens on it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    return listener


def runtime() -> tuple[str, ...]:
    """Return the directories that the file worker needs: this Python, this package, and ripgrep."""
    python = os.path.realpath(sys.executable)
    paths = (sys.base_prefix, *sys.path, os.path.dirname(python), os.path.dirname(sys.executable))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.isdir(path)))
