"""Reports of the sandbox: how much the kernel enforces here, what the guard has done, what has become of the project."""

from typing import Literal, NamedTuple

from sanderling.protocol.modes import Level
from sanderling.sandbox.policy import LEVELS

ROUTINE_SHARE = 10
"""At most one part in so many of the time goes into audits that nobody waits for."""
EXIT_REFUSED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
"""Exit statuses as env(1) and a shell have them: the sandbox refused, the command cannot be executed, there is none."""

NOT_STARTED = "One more process cannot be started: {reason}."

LAYERS = ("namespaces", "landlock", "seccomp", "bubblewrap")
NEEDS: dict[Level, tuple[str, ...]] = {
    "full": ("namespaces", "landlock", "seccomp"),
    "full-bwrap": ("bubblewrap", "landlock", "seccomp"),
    "namespaces": ("namespaces", "seccomp"),
    "landlock": ("landlock", "seccomp"),
    "none": (),
}


class Report(NamedTuple):
    """The reasons why layers do not work here, empty where one does; and Landlock's ABI version, 0 without it."""

    reasons: dict[str, str]
    landlock_abi: int

    @property
    def level(self) -> Level:
        """The strongest level that works."""
        return next(level for level in LEVELS if not self.why_not(level))

    def why_not(self, level: Level) -> str:
        """Return what keeps `level` from working, empty when it works."""
        needs = ((layer, self.reasons[layer]) for layer in NEEDS[level])
        return "; ".join(f"{layer}: {reason}" for layer, reason in needs if reason)


class GuardEvent(NamedTuple):
    """
    An act of the guard. `path` is relative to the project where it lies inside, and any bytes (surrogates stand for what is no text).

    `kept_at` says where a quarantined thing is.

    `replaced`: the host itself put another file in the place of a mounted one, as `git config` does. That takes the mount off in
    every namespace, so whoever owns the mounts must mount it again. `noticed`: nothing holds it, and nothing was undone. `warned`: it was so
    already when the guard began, and a command may change it.
    """

    kind: Literal["quarantined", "restored", "replaced", "noticed", "warned", "failed"]
    path: str
    reason: str
    kept_at: str = ""


class ProjectReplaced(NamedTuple):
    """Another directory is where `project` was; the sandbox is opened anew for that."""

    project: str
