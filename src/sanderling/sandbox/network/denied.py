"""Denials of the network: the response to clients, and the rate of reports."""

import time
from collections.abc import Callable

from sanderling.sandbox.denials import Denial

REPEAT_S = 5.0

MAX_REPORTS = 64  # per REPEAT_S

DENIED_REASON = "Not a listed host (Sanderling sandbox, see :AgentNet)"

OnDenial = Callable[[Denial], None]


class DenialThrottle:
    """Forwards each denial once per REPEAT_S, at most MAX_REPORTS in total, so that invented names cannot flood the user."""

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
