"""
Probes what this kernel can enforce, by trying each layer in its own child process.

The caller waits for this, and most of the time goes into imports. So the modules of one layer are imported while the previous ones are
being tried.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from sanderling.errors import SandboxError
from sanderling.sandbox.inside import bubblewrap
from sanderling.sandbox.kernel import namespaces
from sanderling.sandbox.kernel.syscalls import syscall

MAX_REASON_BYTES = 4096
KEYCTL_GET_KEYRING_ID = 0


def main(channel: int) -> None:
    """Try every layer, in parallel, and send the report over `channel`. The calling process must have no other threads."""
    trials = {
        "namespaces": _Trial(_try_namespaces),
        "bubblewrap": _Trial(bubblewrap.try_it),
        "seccomp": _Trial(_try_seccomp),
    }
    from sanderling.sandbox.kernel import landlock

    trials["landlock"] = _Trial(_try_landlock)
    import socket

    from sanderling.sandbox import wire

    reasons = {layer: trial.reason() for layer, trial in trials.items()}
    with socket.socket(fileno=channel) as host, suppress(OSError):  # the host may be gone
        wire.send(host, ("report", reasons, landlock.abi()))


class _Trial:
    """A child process that tries something and reports what failed."""

    def __init__(self, attempt: Callable[[], None]) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            reason = "exited without a result"
            try:
                attempt()
                reason = ""
            except (OSError, SandboxError) as error:
                reason = str(error)
            finally:
                os.write(writer, reason.encode()[:MAX_REASON_BYTES])
                os._exit(0)
        os.close(writer)

    def reason(self) -> str:
        with os.fdopen(self._reader, "rb") as pipe:
            said = pipe.read().decode()
        _, status = os.waitpid(self._pid, 0)
        if os.WIFSIGNALED(status):
            import signal

            return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return said


def _try_namespaces() -> None:
    """Try all namespaces, with each kind of mount that a root needs; /proc in a child, which is in the new pid namespace."""
    namespaces.enter_new_user_namespace(
        namespaces.CLONE_NEWNS
        | namespaces.CLONE_NEWPID
        | namespaces.CLONE_NEWIPC
        | namespaces.CLONE_NEWUTS
        | namespaces.CLONE_NEWNET
    )
    namespaces.bring_up_loopback()
    namespaces.try_mounts()
    if reason := _Trial(namespaces.mount_own_proc).reason():
        raise SandboxError(reason)


def _try_landlock() -> None:
    from sanderling.sandbox.kernel import landlock

    rules = landlock.Ruleset(read=["/"], write=[], devices=[], deny_tcp=True)
    rules.restrict_self()
    try:
        os.close(os.open(os.devnull, os.O_WRONLY))
    except PermissionError:
        return
    raise SandboxError("Landlock is available but does not prevent writing")


def _try_seccomp() -> None:
    from sanderling.sandbox.kernel import seccomp

    seccomp.install(seccomp.program(has_namespaces=True, has_host_network=False))
    try:
        syscall("keyctl", KEYCTL_GET_KEYRING_ID, 0)
    except PermissionError:
        return
    except OSError as error:
        raise SandboxError(f"a forbidden call fails with {error.strerror}") from error
    raise SandboxError("a forbidden call succeeds")
