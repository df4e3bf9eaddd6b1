"""`sanderling batch compare OUT1 OUT2`: the same tasks in two runs."""

import sys
from pathlib import Path

from sanderling.batch.report import shown_rate
from sanderling.batch.results import read_results
from sanderling.batch.statistics import compared, pass_rate
from sanderling.errors import UsageError
from sanderling.text import counted, markdown_table, visible_line

SIGNIFICANT = 0.05


def compare(first: Path, second: Path) -> int:
    """
    Print what differs between two runs.

    Raises:
        UsageError: one has no results, or no task has a reward in both.
    """
    one, other = read_results(first), read_results(second)
    found = compared(one, other)
    if not found.pairs:
        raise UsageError(
            "no task has a reward in both runs: both need the same tasks, with the same prompts and checks"
        )
    rows = [
        (
            visible_line(name),
            f"{before.reward:g}",
            f"{after.reward:g}",
            f"{(after.reward or 0.0) - (before.reward or 0.0):+g}",
            f"{after.cost - before.cost:+.4f}",
            f"{after.tokens - before.tokens:+,.0f}",
            f"{after.wall - before.wall:+.1f}",
        )
        for name, (before, after) in found.pairs.items()
        if before.reward != after.reward
    ]
    names = found.pairs.keys()
    lines = [
        f"1: {first}: {shown_rate(pass_rate(result for result in one if result.id in names))}",
        f"2: {second}: {shown_rate(pass_rate(result for result in other if result.id in names))}",
        f"{counted(len(found.pairs), 'task')} in both: {found.better} better in 2, {found.worse} worse, {found.same} the same",
    ]
    if found.left_out:
        lines.append(
            f"{counted(found.left_out, 'task')} left out: changed, in one run only, or without a reward"
        )
    count = len(found.pairs)
    cost, tokens, wall = (
        sum(getattr(after, name) - getattr(before, name) for before, after in found.pairs.values())
        for name in ("cost", "tokens", "wall")
    )
    lines.append(
        f"per task: {cost / count:+.4f} dollars, {tokens / count:+,.0f} tokens, {wall / count:+.1f} s"
    )
    verdict = (
        "a difference" if found.p_value < SIGNIFICANT else "no difference that this could show"
    )
    lines.append(f"sign test: p = {found.p_value:.3g}: {verdict}")
    head = ("Task", "1", "2", "Difference", "Dollars", "Tokens", "Seconds")
    table = f"{markdown_table([head, *rows])}\n\n" if rows else ""
    sys.stdout.write(table + "\n".join(map(visible_line, lines)) + "\n")
    return 0
