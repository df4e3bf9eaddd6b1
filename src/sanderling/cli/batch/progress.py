"""
The progress of a batch on standard error: one line that changes on a terminal, and otherwise a line for each result.

Plain text is enough for one line, so there is no dependency on a library that draws.
"""

import shutil
import sys
import time

from sanderling.batch.results import Result
from sanderling.batch.run import Budget, Plan
from sanderling.cli.streams import say
from sanderling.text import duration, shortened, visible_line

REDRAW_S = 0.1
CLEAR = "\r\x1b[K"


class ProgressLine:
    def __init__(self, plan: Plan, budget: Budget, *, is_quiet: bool) -> None:
        self._plan = plan
        self._budget = budget
        self._is_quiet = is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._began = self._drawn_at = time.monotonic()
        self._done = len(plan.results)
        self._done_now = 0
        self._failed = sum(is_failed(result) for result in plan.results)

    def show(self, result: Result | None, running: int) -> None:
        if result:
            self._done += 1
            self._done_now += 1
            self._failed += is_failed(result)
        if self._is_quiet:
            return
        if not self._is_terminal:
            if result:
                say(result_line(result))
            return
        if result and is_failed(result):
            sys.stderr.write(f"{CLEAR}{result_line(result)}\n")
        if result or time.monotonic() >= self._drawn_at + REDRAW_S:
            self._drawn_at = time.monotonic()
            width = shutil.get_terminal_size((80, 0)).columns - 1
            sys.stderr.write(CLEAR + shortened(self._line(running), width))
            sys.stderr.flush()

    def _line(self, running: int) -> str:
        elapsed_s = time.monotonic() - self._began
        left = len(self._plan) - self._done
        parts = [f"{self._done}/{len(self._plan)} done", f"{running} running"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts.append(f"${self._budget.total_usd:.2f}")
        if self._done_now:
            parts.append(f"{60 * self._done_now / elapsed_s:.1f}/min")
            parts.append(f"{duration(left * elapsed_s / self._done_now)} left")
        return " · ".join(parts)

    def end(self) -> None:
        if self._is_terminal and not self._is_quiet:
            sys.stderr.write(CLEAR)
        if not self._is_quiet:
            failed = f", {self._failed} failed" if self._failed else ""
            say(f"{self._done} of {len(self._plan)} done{failed}, ${self._budget.total_usd:.2f}")


def is_failed(result: Result) -> bool:
    return result.state != "completed" or (result.reward is not None and result.reward <= 0)


def result_line(result: Result) -> str:
    """Return the result in one line."""
    reward = "" if result.reward is None else f", reward {result.reward:g}"
    cost = "" if not result.cost else f", ${result.cost:.4f}"
    reason = f": {result.reason}" if result.reason else ""
    line = (
        f"{result.id} #{result.attempt} {result.state}{reward}, {result.wall:.1f} s{cost}{reason}"
    )
    return visible_line(line)
