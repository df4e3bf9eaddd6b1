"""Budgets: what a tree of sessions may use, whoever uses it and in whatever order."""

import random
from contextlib import suppress
from math import inf

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.conftest import prove_rest

from sanderling.conversation.budget import (
    NOTHING,
    Amount,
    Budget,
    BudgetError,
    BudgetSpentError,
    for_child,
)

CHILDREN = 20
LIMIT = Amount(tokens=40_000, usd=4.0)
LARGEST_CALL = Amount(tokens=5_000, usd=0.5, seconds=0, calls=1)
CENT = 1 / 128  # sums of these are exact


def bound_of(tokens: float, usd: float = 0.0) -> Amount:
    return NOTHING._replace(tokens=tokens, usd=usd)


class CrashError(Exception):
    """A child that ends with a defect."""


class Storm:
    """Children that use one tree of budgets at the same time, as the seed decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.session = Budget(LIMIT._replace(tokens=inf))
        self.run = Budget(Amount(tokens=LIMIT.tokens), self.session, name="This run")
        self.pool = Budget(Amount(tokens=LIMIT.tokens * self.chance.choice((0.5, 2))), self.run)
        self.used, self.calls = NOTHING, 0
        self.hanging: list[anyio.CancelScope] = []
        self.running = CHILDREN + 1

    async def rest(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await checkpoint()

    async def hang(self) -> None:
        with anyio.CancelScope() as scope:
            self.hanging.append(scope)
            await anyio.sleep_forever()

    async def call(self, budget: Budget) -> None:
        chance = self.chance
        bound = bound_of(chance.randrange(1, 5_001), chance.randrange(65) * CENT)
        async with budget.call(bound) as paid:
            self.calls += 1
            try:
                await self.rest()
                if chance.random() < 0.1:
                    raise CrashError
                if chance.random() < 0.1:
                    await self.hang()
            finally:
                share = chance.choice((0, 0.25, 1))
                paid.used = Amount(int(bound.tokens * share), bound.usd * share, 0, 0)
                self.used = self.used.plus(paid.used)
        self.check()

    async def child(self) -> None:
        chance = self.chance
        await self.rest()
        wanted = Amount(tokens=chance.choice((inf, 2_000, 8_000)), usd=chance.choice((inf, 0.5)))
        if chance.random() < 0.7:
            wanted = for_child(self.pool.rest, wanted)
        try:
            budget = self.pool.reserve(wanted)
        except BudgetError:
            return
        try:
            with suppress(BudgetSpentError, CrashError):
                while True:
                    await self.call(budget)
                    await self.rest()
        finally:
            budget.close()
            budget.close()  # as when a stopped child ends
            self.check()

    async def parent(self) -> None:
        with suppress(BudgetSpentError):
            while True:
                with suppress(CrashError):
                    await self.call(self.run)
                await self.rest()

    def check(self) -> None:
        """No limit is exceeded by more than one answer, and nothing counts twice."""
        for budget in (self.session, self.run, self.pool):
            for spent, limit, most in zip(budget.spent, budget.limit, LARGEST_CALL, strict=True):
                assert spent <= limit + most
        assert self.session.spent[:2] == self.run.spent[:2] == self.used[:2]

    async def blow(self) -> None:
        scopes = [anyio.CancelScope() for _ in range(self.running)]

        async def within(scope: anyio.CancelScope, number: int) -> None:
            with scope:
                await (self.child() if number else self.parent())
            self.running -= 1

        async with anyio.create_task_group() as tasks:
            for number, scope in enumerate(scopes):
                tasks.start_soon(within, scope, number)
            for scope in self.chance.sample(scopes, len(scopes)):
                await checkpoint()
                if self.chance.random() < 0.3:
                    scope.cancel()
            while self.running:
                await checkpoint()
                if self.hanging and self.chance.random() < 0.1:
                    self.hanging.pop().cancel()


@pytest.mark.parametrize("seed", prove_rest(range(200), keep=range(0, 200, 10), is_one=True))
async def test_a_storm_of_children_exceeds_no_limit_by_more_than_one_answer(seed: int) -> None:
    storm = Storm(seed)
    with anyio.fail_after(20):
        await storm.blow()
    storm.check()
    for budget in (storm.session, storm.run, storm.pool):
        assert budget.reserved == NOTHING
        assert budget.in_flight == 0
    assert storm.session.spent.calls == storm.calls > 0


# --- one budget ------------------------------------------------------------------------------------------------------------


async def test_a_call_whose_bound_does_not_fit_is_made_alone_and_is_the_last() -> None:
    budget = Budget(Amount(tokens=100))
    order: list[str] = []

    async def ask(name: str) -> None:
        try:
            async with budget.call(bound_of(150)) as paid:
                order.append(f"{name} begins")
                await anyio.wait_all_tasks_blocked()
                paid.used = bound_of(150)
                order.append(f"{name} ends")
        except BudgetSpentError as error:
            order.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "one")
        tasks.start_soon(ask, "two")
    spent = "This session has used 150 tokens; its limit is 100 tokens."
    assert order == ["one begins", "one ends", spent]


async def test_a_stopped_call_frees_the_overdraft() -> None:
    budget = Budget(Amount(tokens=100))
    with anyio.CancelScope() as scope:
        async with budget.call(bound_of(150)):
            scope.cancel()
            await anyio.sleep_forever()
    async with budget.call(bound_of(150)) as paid:
        paid.used = bound_of(20)
    assert budget.rest.tokens == 80


async def test_a_small_call_goes_along_with_others_that_fit() -> None:
    budget = Budget(Amount(tokens=100))
    async with budget.call(bound_of(60)), budget.call(bound_of(40)):
        assert budget.rest.tokens == 0
    assert budget.rest.tokens == 100


async def test_what_a_child_does_not_use_returns_to_its_parent_once() -> None:
    parent = Budget(Amount(tokens=1_000))
    child = parent.reserve(Amount(tokens=400))
    assert parent.rest.tokens == 600
    async with child.call(bound_of(300)) as paid:
        paid.used = bound_of(250)
    assert (child.rest.tokens, parent.rest.tokens) == (150, 600)
    child.close()
    child.close()
    assert parent.rest.tokens == 750
    assert parent.spent.tokens == 250


async def test_a_call_in_flight_counts_after_its_budget_has_closed() -> None:
    parent = Budget(Amount(tokens=1_000))
    child = parent.reserve(Amount(tokens=400))
    async with child.call(bound_of(300)) as paid:
        child.close()
        assert parent.rest.tokens == 700
        paid.used = bound_of(250)
    assert parent.rest.tokens == 750
    with pytest.raises(BudgetSpentError, match="has ended"):
        async with child.call(bound_of(1)):
            pass


async def test_a_child_uses_its_part_though_the_rest_of_the_parent_is_used_up() -> None:
    parent = Budget(Amount(tokens=1_000))
    child = parent.reserve(Amount(tokens=400))
    async with parent.call(bound_of(900)) as paid:
        paid.used = bound_of(900)
    assert parent.rest.tokens == -300
    async with child.call(bound_of(400)) as paid:
        paid.used = bound_of(400)
    with pytest.raises(BudgetSpentError, match=r"^This task has used 400 tokens"):
        async with child.call(bound_of(1)):
            pass


def test_a_child_that_needs_more_than_is_left_is_refused_in_words() -> None:
    parent = Budget(Amount(tokens=1_000, usd=1.5))
    parent.reserve(Amount(tokens=900))
    with pytest.raises(BudgetError) as caught:
        parent.reserve(Amount(tokens=200))
    assert str(caught.value) == "The task needs 200 tokens, and only 100 tokens are left."
    with pytest.raises(BudgetError, match=r"needs \$2\.00, and only \$1\.50 are left"):
        parent.reserve(Amount(usd=2))
    assert parent.rest == (100, 1.5, inf, inf)  # nothing was taken


def test_a_child_gets_a_quarter_of_what_is_left_at_most() -> None:
    rest = Amount(tokens=400_000, usd=2.0)
    wanted = Amount(tokens=200_000, seconds=60, calls=9)
    assert for_child(rest, wanted) == (100_000, 0.5, 60, 9)
    assert for_child(Amount(), wanted) == wanted
    assert for_child(Amount(tokens=-5), wanted).tokens == 0


async def test_dollars_are_shared_with_children_that_have_no_part_of_them() -> None:
    parent = Budget(Amount(usd=1.0))
    child = parent.reserve(Amount(tokens=100))
    async with child.call(bound_of(10, 0.75)) as paid:
        paid.used = bound_of(10, 0.75)
    assert (parent.rest.usd, child.rest.usd) == (0.25, 0.25)


async def test_an_extended_budget_lets_waiting_calls_through() -> None:
    budget = Budget(Amount(tokens=100))
    async with anyio.create_task_group() as tasks, budget.call(bound_of(100)):
        waiting = anyio.Event()

        async def ask() -> None:
            waiting.set()
            async with budget.call(bound_of(50)) as paid:
                paid.used = bound_of(50)

        tasks.start_soon(ask)
        await waiting.wait()
        await anyio.wait_all_tasks_blocked()
        assert budget.spent.calls == 0
        budget.extend(NOTHING._replace(tokens=100))
        await anyio.wait_all_tasks_blocked()
        assert budget.spent == (50, 0, 0, 1)


@pytest.mark.parametrize("count", [-5, -inf, float("nan")])
async def test_a_count_that_is_none_adds_nothing(count: float) -> None:
    budget = Budget(Amount(tokens=100, usd=1.0))
    async with budget.call(bound_of(50)) as paid:
        paid.used = Amount(count, count, 0, 0)
    assert budget.spent == (0, 0, 0, 1)
    assert budget.reserved == NOTHING


async def test_an_infinite_count_ends_the_budget_and_leaves_sums_intact() -> None:
    budget = Budget(Amount(tokens=100))
    async with budget.call(Amount()) as paid:
        paid.used = Amount()
    assert budget.reserved == NOTHING
    assert budget.rest.tokens < 0
    with pytest.raises(BudgetSpentError):
        async with budget.call(NOTHING):
            pass


# --- seconds ---------------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_seconds_count_while_the_child_runs_and_the_user_is_not_asked() -> None:
    clock = Clock()
    child = Budget(Amount(seconds=60), clock=clock)
    clock.now += 100  # it waits for its turn
    with child.running():
        clock.now += 20
        with child.paused():
            clock.now += 500
            with child.paused():
                clock.now += 500
            clock.now += 500
        clock.now += 10
        assert child.rest.seconds == 30
        assert child.share == 0.5
        clock.now -= 5_000  # no clock of the system does that, but it must not give time back
        assert child.spent.seconds == 20
    clock.now += 100
    assert child.spent.seconds == 20


async def test_a_child_whose_time_is_up_makes_no_call() -> None:
    clock = Clock()
    child = Budget(Amount(seconds=60), clock=clock)
    with child.running():
        clock.now += 90
        await child.time_is_up()
        with pytest.raises(BudgetSpentError, match=r"has run for 90 s; its limit is 60 s"):
            async with child.call(NOTHING):
                pass


def test_the_share_is_the_largest_used_part_of_a_limit() -> None:
    assert Budget(spent=Amount(5, 5, 5, 5)).share == 0
    assert Budget(Amount(tokens=100, calls=10), spent=Amount(50, 9, 0, 8)).share == 0.8
    assert Budget(Amount(tokens=100), spent=Amount(500, 0, 0, 0)).share == 1
    assert Budget(Amount(tokens=0)).share == 1
