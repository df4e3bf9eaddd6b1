"""Denials of the network: the response to clients, and the rate of reports."""

import time
from collections.abc import Callable

from sanderling.sandbox.denials import Denial

REPEAT_S = 5.0

MAX_REPORTS = 64  # per REPEAT_S

DENIED_REASON = "Not a listed host (Sanderling sandbox, see :AgentNet)"

OnDenial = Callable[[Denial], None]


class DenialThrottle:
    """
    Forwards each denial once per REPEAT_S, at most MAX_REPORTS in total, so that invented names cannot flood the user.

    A denial without a mark repeats one with a mark: the C library asks for a marked name first, then for the plain one.
    """

    def __init__(self, report: OnDenial) -> None:
        self._report = report
        self._reported: dict[Denial, float] = {}  # oldest first
        self._marked: dict[Denial, float] = {}  # the same, without their marks

    def __call__(self, denial: Denial) -> None:
        now = time.monotonic()
        for known in (self._reported, self._marked):
            while known and now - next(iter(known.values())) > REPEAT_S:
                del known[next(iter(known))]
        if denial in self._marked:
            return
        is_new = denial not in self._reported
        if is_new and len(self._reported) >= MAX_REPORTS:
            return
        if denial.by:
            plain = denial._replace(by="")
            self._marked.pop(plain, None)
            self._marked[plain] = now
        if is_new:
            self._reported[denial] = now
            self._report(denial)
