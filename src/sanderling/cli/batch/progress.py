"""The progress of a batch on standard error: a display on a terminal, if rich is installed, and otherwise a line for each result."""

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec

from sanderling.batch.results import Result
from sanderling.batch.run import Budget, Plan
from sanderling.cli.streams import say
from sanderling.text import duration, visible_line

MAX_SHOWN = 10
"""Of the trials that run, so many have a line."""


class BatchProgress:
    """Shows results as they come, and how far the run is. `running` are the trials that run, with the times when they began."""

    def __init__(
        self, plan: Plan, budget: Budget, running: Mapping[str, float], *, is_quiet: bool
    ) -> None:
        self._plan = plan
        self._budget = budget
        self._running = running
        self._is_quiet = is_quiet
        self._began = time.monotonic()
        self._done = len(plan.results)
        self._done_now = 0
        self._failed = sum(is_failed(result) for result in plan.results)
        self._display = None
        if not is_quiet and sys.stderr.isatty() and find_spec("rich"):
            from sanderling.cli.batch.display import Display  # rich takes 60 ms

            self._display = Display(self.lines)

    def __enter__(self) -> None:
        if self._display:
            self._display.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the display from the terminal."""
        if self._display:
            self._display.stop()

    def note(self, result: Result) -> None:
        self._done += 1
        self._done_now += 1
        self._failed += is_failed(result)
        if self._display and is_failed(result):
            self._display.say(result_line(result))
        elif not self._display and not self._is_quiet:
            say(result_line(result))

    def lines(self) -> tuple[int, int, list[str]]:
        """Return how many trials are done, of how many, and the facts about the run and about what runs, as lines."""
        now = time.monotonic()
        facts = [f"{self._done:,} of {len(self._plan):,} done", f"{len(self._running)} running"]
        if self._failed:
            facts.append(f"{self._failed:,} failed")
        facts.append(f"${self._budget.total_usd:.2f}")
        if self._done_now:
            each_s = (now - self._began) / self._done_now
            left = len(self._plan) - self._done
            facts += [f"{60 / each_s:.1f}/min", f"{duration(left * each_s)} left"]
        oldest = sorted(self._running.items(), key=lambda item: item[1])
        trials = [
            f"{duration(now - began):>8}  {visible_line(name)}"
            for name, began in oldest[:MAX_SHOWN]
        ]
        more = [f"{'':8}  and {len(oldest) - MAX_SHOWN} more"] if oldest[MAX_SHOWN:] else []
        return self._done, len(self._plan), [" · ".join(facts), *trials, *more]

    def end(self) -> None:
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
