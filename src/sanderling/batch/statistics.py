"""What results say in numbers: rates with their uncertainty, and differences between two runs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, mean
from typing import NamedTuple

from sanderling.batch.results import Result

Z_95 = 1.959964
PASS = 1.0


class Rate(NamedTuple):
    """A share, with the ends of its 95 % interval."""

    share: float
    low: float
    high: float
    tasks: int


class TaskMeans(NamedTuple):
    """The means of a task's repetitions. The reward is None if it is missing in all of them."""

    hash: str
    reward: float | None
    passed: float
    cost: float
    tokens: float
    wall: float


def wilson(successes: float, count: int) -> Rate:
    """
    Return the share of successes with Wilson's score interval, which is usable for few tasks and for shares of 0 and 1.

    Source: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
    """
    if not count:
        return Rate(math.nan, 0.0, 1.0, 0)
    share, square = successes / count, Z_95**2
    center = (share + square / (2 * count)) / (1 + square / count)
    spread = math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    half = Z_95 * spread / (1 + square / count)
    return Rate(share, max(0.0, center - half), min(1.0, center + half), count)


def pass_rate(results: Iterable[Result]) -> Rate:
    """
    Return the share of tasks that passed, of those with a reward.

    Repetitions of a task are not independent, so each task counts once, with its mean.
    """
    means = [task for task in task_means(results).values() if task.reward is not None]
    return wilson(sum(task.passed for task in means), len(means))


def pass_at(results: Iterable[Result], count: int) -> Rate:
    """
    Return pass@k: how probable it is that one of `count` repetitions passes, as a mean of the tasks with so many rewards.

    Source of the estimate without bias: M. Chen et al., "Evaluating Large Language Models Trained on Code", 2021.
    """
    shares = [
        1 - math.comb(repeats - passed, count) / math.comb(repeats, count)
        for passed, repeats in _passes(results, count)
    ]
    return wilson(sum(shares), len(shares))


def pass_all(results: Iterable[Result], count: int) -> Rate:
    """
    Return pass^k: how probable it is that each of `count` repetitions passes, as a mean of the tasks with so many rewards.

    Source: S. Yao et al., "τ-bench", 2024.
    """
    shares = [
        math.comb(passed, count) / math.comb(repeats, count)
        for passed, repeats in _passes(results, count)
    ]
    return wilson(sum(shares), len(shares))


def _passes(results: Iterable[Result], least: int) -> Iterator[tuple[int, int]]:
    """Yield how many repetitions of a task passed, and how many have a reward, if these are at `least` so many."""
    rewards: dict[str, list[float]] = {}
    for result in results:
        if result.reward is not None:
            rewards.setdefault(result.id, []).append(result.reward)
    for found in rewards.values():
        if len(found) >= least:
            yield sum(reward >= PASS for reward in found), len(found)


def task_means(results: Iterable[Result]) -> dict[str, TaskMeans]:
    """Return the means of each task, by its id."""
    by_id: dict[str, list[Result]] = {}
    for result in results:
        by_id.setdefault(result.id, []).append(result)
    return {task_id: _means_of(repeats) for task_id, repeats in by_id.items()}


def _means_of(repeats: Sequence[Result]) -> TaskMeans:
    rewards = [result.reward for result in repeats if result.reward is not None]
    return TaskMeans(
        repeats[-1].hash,
        # Exact: else the same rewards in another order, or more often, are another mean, and a tie counts as a difference.
        mean(rewards) if rewards else None,
        sum(reward >= PASS for reward in rewards) / max(len(rewards), 1),
        fmean(result.cost or 0.0 for result in repeats),
        fmean(result.tokens for result in repeats),
        fmean(result.wall for result in repeats),
    )


class Comparison(NamedTuple):
    """
    Two runs of the same tasks. `pairs` are the tasks that have a reward in both, by id.

    `better`, `worse` and `same` count them, for the second run. `p_value` is of the exact sign test: how probable it is that so many, or
    more, differ in one direction if the runs are equally good.
    """

    pairs: Mapping[str, tuple[TaskMeans, TaskMeans]]
    better: int
    worse: int
    same: int
    p_value: float
    left_out: int


def compared(first: Iterable[Result], second: Iterable[Result]) -> Comparison:
    """Compare runs by the tasks that both have, unchanged and with a reward."""
    ones, others = task_means(first), task_means(second)
    pairs: dict[str, tuple[TaskMeans, TaskMeans]] = {}
    better = worse = 0
    for name in ones.keys() & others.keys():
        one, other = ones[name], others[name]
        if one.hash == other.hash and one.reward is not None and other.reward is not None:
            pairs[name] = one, other
            better += other.reward > one.reward
            worse += other.reward < one.reward
    left_out = len(ones.keys() | others.keys()) - len(pairs)
    same = len(pairs) - better - worse
    ordered = dict(sorted(pairs.items()))
    return Comparison(ordered, better, worse, same, sign_test(better, worse), left_out)


def sign_test(better: int, worse: int) -> float:
    """Return the two-sided p-value of the exact sign test. Ties do not count."""
    count = better + worse
    tail = sum(math.comb(count, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**count)
