"""Reports of the sandbox: what the kernel enforces, what the guard did, and whether the project was replaced."""

from typing import Literal, NamedTuple

from sanderling.protocol.modes import Level
from sanderling.sandbox.policy import LEVELS

ROUTINE_SHARE = 10
"""Routine audits take at most one part in this many of the time."""
EXIT_REFUSED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
"""Exit statuses as of env(1) and shells: refused by the sandbox, not executable, not found."""

NOT_HERE = "it belongs to another system"
NOT_STARTED = "Cannot start another process: {reason}."

LAYERS = ("namespaces", "landlock", "seccomp", "bubblewrap")
"""The layers of Linux; macOS has only Seatbelt."""
SEATBELT = "seatbelt"
SELF_TEST_FAILED = "the self-test failed"
"""How the reason of the level seatbelt begins, if an escape succeeded or a task did not."""
NEEDS: dict[Level, tuple[str, ...]] = {
    "full": ("namespaces", "landlock", "seccomp"),
    "full-bwrap": ("bubblewrap", "landlock", "seccomp"),
    "namespaces": ("namespaces", "seccomp"),
    "seatbelt": (SEATBELT,),
    "landlock": ("landlock", "seccomp"),
    "none": (),
}


class LayerReport(NamedTuple):
    """For each layer why it does not work here, empty if it does; and Landlock's ABI version, or 0."""

    reasons: dict[str, str]
    landlock_abi: int

    @property
    def level(self) -> Level:
        """The strongest level that works."""
        return next(level for level in LEVELS if not self.why_not(level))

    def why_not(self, level: Level) -> str:
        """Return why `level` does not work, or ""."""
        needs = ((layer, self.reasons.get(layer, NOT_HERE)) for layer in NEEDS[level])
        return "; ".join(f"{layer}: {reason}" for layer, reason in needs if reason)


class GuardEvent(NamedTuple):
    """
    An action or observation of the guard. `path` is relative to the project if inside; non-UTF-8 bytes are surrogates.

    `kept_at` is the path of a quarantined file.

    `replaced`: the host replaced a mounted file, as `git config` does. That removes the mount in every namespace, so it must be mounted
    again. `noticed`: an unprotected file changed, and nothing was undone. `warned`: it was there at the start, and a command may change
    it.
    """

    kind: Literal["quarantined", "restored", "replaced", "noticed", "warned", "failed"]
    path: str
    reason: str
    kept_at: str = ""


class ProjectReplaced(NamedTuple):
    """The directory of `project` was replaced, so the sandbox is opened again."""

    project: str
