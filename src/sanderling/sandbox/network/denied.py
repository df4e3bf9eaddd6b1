"""Denials of the network: what a client is told of them, and how often they are reported."""

import time
from collections.abc import Callable

from sanderling.sandbox.denials import Denial

REPEAT_S = 5.0

MAX_REPORTS = 64  # per REPEAT_S

DENIED_REASON = "Not a listed host (Sanderling sandbox, see :AgentNet)"

OnDenial = Callable[[Denial], None]


class Once:
    """Passes each denial on once in REPEAT_S, and at most MAX_REPORTS in that time: whoever makes up names floods nobody."""

    def __init__(self, report: OnDenial) -> None:
        self._report = report
        self._reported: dict[Denial, float] = {}  # oldest first

    def __call__(self, denial: Denial) -> None:
        now = time.monotonic()
        while self._reported and now - next(iter(self._reported.values())) > REPEAT_S:
            del self._reported[next(iter(self._reported))]
        if denial not in self._reported and len(self._reported) < MAX_REPORTS:
            self._reported[denial] = now
            self._report(denial)
