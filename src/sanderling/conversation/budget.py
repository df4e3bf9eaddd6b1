"""
Budgets of sessions and their children: limits, use and reserves.

A budget is a limit, and may lie within another. All use of it counts in the outer ones as well, so a limit holds for all budgets within it.
A child's part is reserved: set aside in the outer budgets before the child's first request, and returned when it ends.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf, isfinite, isnan
from time import monotonic
from typing import NamedTuple

import anyio

from sanderling.errors import SanderlingError
from sanderling.text import duration

CHECKED_EACH_S = 0.1  # while the clock may stand still
SHARE_OF_REST = 4  # a child gets at most this part of what is left
LARGEST = 1e15  # of anything: keeps infinity out of sums, from which it could not be taken again


class Amount(NamedTuple):
    """Tokens (all that the API reports), dollars, seconds and model calls. `inf` is unlimited."""

    tokens: float = inf
    usd: float = inf
    seconds: float = inf
    calls: float = inf

    def plus(self, other: "Amount") -> "Amount":
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Amount") -> "Amount":
        return Amount(*(a - b for a, b in zip(self, other, strict=True)))

    def at_most(self, other: "Amount") -> "Amount":
        return Amount(*map(min, self, other))

    def at_least(self, other: "Amount") -> "Amount":
        return Amount(*map(max, self, other))

    def bounded(self) -> "Amount":
        """Return the amount as a limit: settings and flags take whole numbers of any length."""
        return Amount(*(each if each == inf else min(each, LARGEST) for each in self))

    def counted(self) -> "Amount":
        """Return the amount as it is added: a server may report negative counts, or invalid numbers."""
        return Amount(*(min(max(each, 0.0), LARGEST) if not isnan(each) else 0.0 for each in self))


UNLIMITED = Amount()
NOTHING = Amount(0, 0, 0, 0)
_COVERED = -inf  # an amount that was set aside before, so that it fits into any rest
_SECONDS = Amount._fields.index("seconds")


def dollars(usd: float) -> str:
    """Format with cents, or below a dollar with as many digits as distinguish a spent amount from its limit."""
    cents, exact = f"{usd:.2f}", f"{usd:.4f}"
    return f"${cents if usd >= 1 or float(cents) == float(exact) else exact.rstrip('0')}"


_FORMATS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("has used", lambda tokens: f"{tokens:,.0f} tokens"),
    ("has cost", dollars),
    ("has run for", duration),
    ("has made", lambda calls: f"{calls:,.0f} model calls"),
)


class BudgetError(SanderlingError):
    """There is not enough left for the work to begin."""


class BudgetSpentError(BudgetError):
    """The limit of `budget` is reached, so the model is not called."""

    def __init__(self, budget: "Budget", message: str) -> None:
        super().__init__(message)
        self.budget = budget


class PaidCall:
    """A call of the model that may be made. `used` is what it has used; without a report, the call alone."""

    def __init__(self) -> None:
        self.used = NOTHING


class Budget:
    """
    A limit, within `outer` if that is given.

    A call in flight counts with its upper bound, and a reserve counts as used. A call is made while something is left, even less than its
    bound: then nothing is left until it ends, so this happens to one call at a time, and no limit is exceeded by more than one answer.
    Calls could be made only if their bounds fit, but bounds are many times the actual use, so the last part of each budget would be lost.

    Args:
        name: the subject of the sentence that reports the limit.
        reserved_part: what is set aside for this budget in the outer ones.
        spent: what was used before, and counts in this budget alone.
        clock: seconds that jump with no clock of the system.

    Attributes:
        ask_for_more: asks the user to extend the limit, for a reason, and returns whether it was. Without it the limit is final.
        needs_prices: no model may be called whose price is unknown.
    """

    ask_for_more: "Callable[[str], Awaitable[bool]] | None" = None
    needs_prices = False

    def __init__(
        self,
        limit: Amount = UNLIMITED,
        outer: "Budget | None" = None,
        *,
        name: str = "This session",
        reserved_part: Amount = NOTHING,
        spent: Amount = NOTHING,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.limit = limit.bounded()
        self.outer = outer
        self.name = name
        self.reserved = NOTHING
        self.is_closed = False
        self._spent = spent
        self._part = NOTHING
        self.in_flight = 0
        self._clock = clock
        self._since: float | None = None  # while the seconds are counted
        self._is_running, self._pauses = False, 0
        self.changes: _Changes = outer.changes if outer else _Changes()
        self._set_aside(reserved_part)

    @property
    def spent(self) -> Amount:
        running = self._clock() - self._since if self._since is not None else 0.0
        return self._spent._replace(seconds=self._spent.seconds + max(running, 0.0))

    @property
    def rest(self) -> Amount:
        """What neither this budget nor an outer one has used or set aside."""
        free = self.free
        if not self.outer:
            return free
        outer = (
            inf if own else rest for own, rest in zip(self._part, self.outer.rest, strict=True)
        )
        return free.at_most(Amount(*outer)._replace(seconds=inf))

    @property
    def share(self) -> float:
        """The largest part of a limit that was used, from 0 to 1."""
        parts = (
            min(spent / limit, 1.0) if limit > 0 else 1.0
            for spent, limit in zip(self.spent, self.limit, strict=True)
            if isfinite(limit)
        )
        return max(parts, default=0.0)

    # --- parts ---------------------------------------------------------------------------------------------------------

    def reserve(self, wanted: Amount, name: str = "This task") -> "Budget":
        """
        Set `wanted` aside for a child, and return the child's budget.

        Seconds are not set aside, because children run at the same time.

        Raises:
            BudgetError: less is left.
        """
        if self.is_closed:
            raise BudgetError(f"{self.name} has ended: nothing can be started for it.")
        wanted, rest = wanted.bounded().at_least(NOTHING), self.rest
        for wish, left, (_, shown) in zip(
            wanted, rest._replace(seconds=inf), _FORMATS, strict=True
        ):
            if isfinite(wish) and wish > left:
                raise BudgetError(
                    f"The task needs {shown(wish)}, and only {shown(max(left, 0))} are left."
                )
        part = (wish if isfinite(wish) else 0.0 for wish in wanted._replace(seconds=0))
        return Budget(wanted, self, name=name, reserved_part=Amount(*part), clock=self._clock)

    def close(self) -> None:
        """Return what was set aside for this budget and is not used. Calls in flight are still counted."""
        self.is_closed = True
        self._set_aside(NOTHING)
        self.changes.note()

    def extend(self, more: Amount) -> None:
        """Allow `more`, in addition to the limit and to what was used beyond it, of whatever is limited."""
        used = self.spent.plus(self.reserved)
        extended = self.limit.at_least(used).plus(more)
        self.limit = Amount(
            *(new if isfinite(old) else inf for old, new in zip(self.limit, extended, strict=True))
        )
        self.changes.note()

    # --- use -----------------------------------------------------------------------------------------------------------

    def charge(self, used: Amount) -> None:
        """Count what was used without a call of this budget's."""
        self.add(used.counted()._replace(seconds=0), NOTHING)
        self.changes.note()

    def check(self) -> None:
        """
        Check that a call can be made now.

        Raises:
            BudgetSpentError: a limit is reached.
        """
        self._admits(NOTHING)

    @asynccontextmanager
    async def call(self, bound: Amount) -> AsyncGenerator[PaidCall]:
        """
        Let one call of the model through, which uses at most `bound`, and count what it has used.

        The call waits as long as others in flight decide whether it may be made.

        Raises:
            BudgetSpentError: a limit is reached.
        """
        bound = bound.counted()._replace(seconds=0, calls=1)
        while not self._admits(bound):
            await self.changes.wait()
        paid = PaidCall()
        self.add(NOTHING, bound)
        for budget in self.outwards():
            budget.in_flight += 1
        try:
            yield paid
        finally:
            for budget in self.outwards():
                budget.in_flight -= 1
            used = paid.used.counted()._replace(seconds=0, calls=1)
            self.add(used, NOTHING.minus(bound))
            self.changes.note()

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the seconds in this context."""
        self._is_running = True
        self._turn_clock()
        try:
            yield
        finally:
            self._is_running = False
            self._turn_clock()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Do not count the seconds in this context, in which the user thinks."""
        self._pauses += 1
        self._turn_clock()
        try:
            yield
        finally:
            self._pauses -= 1
            self._turn_clock()

    async def time_is_up(self) -> None:
        """Return when the seconds are used up."""
        # A clock that stands still while the user thinks sets no event.
        while (left := self.rest.seconds) > 0:  # noqa: ASYNC110
            await anyio.sleep(max(left, CHECKED_EACH_S))

    def _turn_clock(self) -> None:
        self._spent = self.spent
        self._since = self._clock() if self._is_running and not self._pauses else None

    # --- sums ----------------------------------------------------------------------------------------------------------

    @property
    def free(self) -> Amount:
        return self.limit.minus(self.spent).minus(self.reserved)

    @property
    def _claim(self) -> Amount:
        """What counts in the outer budget: all that was set aside, or more if more is used."""
        return self._part.at_least(self._spent.plus(self.reserved))._replace(seconds=0)

    def outwards(self) -> "Iterator[Budget]":
        budget: Budget | None = self
        while budget:
            yield budget
            budget = budget.outer

    def _set_aside(self, part: Amount) -> None:
        before, self._part = self._claim, part
        if self.outer:
            self.outer.add(NOTHING, self._claim.minus(before))

    def add(self, spent: Amount, reserved: Amount) -> None:
        """Add to the sums of this budget and the outer ones."""
        before = self._claim
        self._spent, self.reserved = self._spent.plus(spent), self.reserved.plus(reserved)
        if self.outer:
            self.outer.add(spent, self._claim.minus(before).minus(spent))

    def _admits(self, bound: Amount) -> bool:
        """
        Return whether a call may be made now, in this budget and the outer ones; False if it has to wait for others.

        Raises:
            BudgetSpentError: a limit is reached, and nothing in flight can change that.
        """
        must_wait, part = False, bound
        for budget in self.outwards():
            must_wait |= budget.is_blocked(part)
            part = budget.uncovered(part)
        return not must_wait

    def is_blocked(self, part: Amount) -> bool:
        """
        Return whether calls in flight have set aside all of this budget, of which a call needs `part`.

        Raises:
            BudgetSpentError: a limit is reached without them, too.
        """
        needs = enumerate(zip(part, self.free, strict=True))
        spent = [number for number, (needed, left) in needs if left <= 0 and needed > _COVERED]
        if self.is_closed or (spent and not self.in_flight) or _SECONDS in spent:
            raise BudgetSpentError(self, self._ending(spent))
        return bool(spent)

    def uncovered(self, part: Amount) -> Amount:
        """Return how much of `part` the outer budget must have, beyond what it has set aside."""
        used = self._spent.plus(self.reserved)
        more = self._part.at_least(used.plus(part)).minus(self._part.at_least(used))
        beyond = (
            _COVERED if needed == _COVERED or (own and not each) else each
            for own, needed, each in zip(self._part, part, more, strict=True)
        )
        return Amount(*beyond)._replace(seconds=_COVERED)

    def _ending(self, spent: list[int]) -> str:
        if not spent:
            return f"{self.name} has ended."
        number = spent[0]
        words, shown = _FORMATS[number]
        return f"{self.name} {words} {shown(self.spent[number])}; its limit is {shown(self.limit[number])}."


class _Changes:
    """Wakes the calls that wait, in all budgets of a tree."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()


def for_child(rest: Amount, wanted: Amount) -> Amount:
    """Return what a child gets of `rest`: as much as is wanted, but at most a quarter of the tokens, dollars and calls."""
    quarter = Amount(*(max(left, 0.0) / SHARE_OF_REST for left in rest))._replace(seconds=inf)
    return wanted.at_most(quarter)
