"""
The report of a run, as Markdown or as one HTML file without scripts.

The plots are SVG of a few lines, written here: a library that draws would be larger than the rest of this package.
"""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from sanderling.batch.results import Result
from sanderling.batch.statistics import Rate, pass_rate, task_means
from sanderling.text import duration, markdown_table, visible_line

WIDTH, HEIGHT, MARGIN = 640, 320, 48
BAR_HEIGHT, MAX_BARS, LABEL_WIDTH = 18, 200, 220
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}svg{max-width:100%;height:auto}"
    "text{font:11px system-ui,sans-serif;fill:#444}"
)


class _Summary(NamedTuple):
    rate: Rate
    rows: list[tuple[str, str]]


def _summary(results: Sequence[Result]) -> _Summary:
    rate = pass_rate(results)
    states = Counter(result.state for result in results)
    costs = [result.cost for result in results]
    known = sum(cost or 0.0 for cost in costs)
    unknown = " and what has no known price" if None in costs else ""
    rows = [
        ("Tasks", f"{len({result.id for result in results}):,}"),
        ("Trials", f"{len(results):,}"),
        ("Pass rate", shown_rate(rate)),
        *((f"Ended as {state}", f"{count:,}") for state, count in sorted(states.items())),
        ("Cost", f"${known:.2f}{unknown}"),
        ("Tokens", f"{sum(result.tokens for result in results):,}"),
        ("Time of agents", duration(sum(result.wall for result in results))),
        ("Model calls", f"{sum(result.calls for result in results):,}"),
        ("Questions", f"{sum(result.questions for result in results):,}"),
        ("Denials", f"{sum(result.denials for result in results):,}"),
    ]
    return _Summary(rate, rows)


def shown_rate(rate: Rate) -> str:
    if not rate.tasks:
        return "no rewards"
    return f"{rate.share:.1%} of {rate.tasks:,} (95 % interval {rate.low:.1%} to {rate.high:.1%})"


HEAD = ("Task", "Reward", "Cost", "Tokens", "Seconds", "State")


def _rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return a row for each trial, the worst first."""
    ordered = sorted(results, key=lambda each: (_reward(each), each.id, each.attempt))
    return [
        (
            visible_line(result.id if result.attempt == 1 else f"{result.id} #{result.attempt}"),
            "" if result.reward is None else f"{result.reward:g}",
            "?" if result.cost is None else f"{result.cost:.4f}",
            f"{result.tokens:,}",
            f"{result.wall:.1f}",
            visible_line(": ".join(filter(None, (result.state, result.reason)))),
        )
        for result in ordered
    ]


def _reward(result: Result) -> float:
    return -1.0 if result.reward is None else result.reward


def as_markdown(results: Sequence[Result]) -> str:
    summary = _summary(results)
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in _rows(results)]
    costs = _costs_by_reward(results)
    parts = (
        "# Batch",
        markdown_table([("", "Value"), *summary.rows]),
        "## Reward against cost",
        markdown_table([("Reward", "Trials", "Mean cost", "Mean tokens"), *costs]),
        "## Trials",
        markdown_table([HEAD, *escaped]),
    )
    return "\n\n".join(parts) + "\n"


def _costs_by_reward(results: Sequence[Result]) -> list[tuple[str, str, str, str]]:
    groups: dict[float | None, list[Result]] = {}
    for result in results:
        groups.setdefault(result.reward, []).append(result)
    ordered = sorted(groups.items(), key=lambda group: -1.0 if group[0] is None else group[0])
    return [
        (
            "none" if reward is None else f"{reward:g}",
            f"{len(group):,}",
            f"{sum(result.cost or 0.0 for result in group) / len(group):.4f}",
            f"{sum(result.tokens for result in group) / len(group):,.0f}",
        )
        for reward, group in ordered
    ]


def as_html(results: Sequence[Result]) -> str:
    summary = _summary(results)
    facts = "".join(f"<tr><td>{escape(name)}<td>{escape(value)}" for name, value in summary.rows)
    head = "".join(f"<th>{name}" for name in HEAD)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in _rows(results)
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Batch</title><style>{STYLE}</style>'
        f"<h1>Batch</h1><table>{facts}</table>"
        f"<h2>Pass rate</h2>{_interval(summary.rate)}"
        f"<h2>Reward against cost</h2>{_scatter(results)}"
        f"<h2>Tokens per task</h2>{_bars(results)}"
        f"<h2>Trials</h2><table><tr>{head}{rows}</table></html>\n"
    )


def _svg(height: float, content: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}">{content}</svg>'


def _interval(rate: Rate) -> str:
    if not rate.tasks:
        return "<p>no rewards"
    low, high, share = (
        MARGIN + (WIDTH - 2 * MARGIN) * each for each in (rate.low, rate.high, rate.share)
    )
    return _svg(
        48,
        f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="16" y2="16" stroke="#ddd"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="16" y2="16" stroke="#36c" stroke-width="4"/>'
        f'<circle cx="{share:.1f}" cy="16" r="6" fill="#36c"/>'
        f'<text x="{MARGIN}" y="40">0 %</text><text x="{WIDTH - MARGIN}" y="40" text-anchor="end">100 %</text>',
    )


def _scatter(results: Sequence[Result]) -> str:
    points = [
        (result.cost, result.reward, result.id)
        for result in results
        if result.cost is not None and result.reward is not None
    ]
    if not points:
        return "<p>no rewards with a known cost"
    most = max(cost for cost, _, _ in points) or 1.0
    rewards = [reward for _, reward, _ in points]
    low, high = min(0.0, *rewards), max(1.0, *rewards)

    def circle(cost: float, reward: float, name: str) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * cost / most
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (reward - low) / (high - low)
        title = escape(visible_line(name))
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#36c" fill-opacity=".4"><title>{title}</title></circle>'

    axes = (
        f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="#999"/>'
        f'<text x="{MARGIN - 6}" y="{MARGIN + 4}" text-anchor="end">{high:g}</text>'
        f'<text x="{MARGIN - 6}" y="{HEIGHT - MARGIN}" text-anchor="end">{low:g}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 18}" text-anchor="end">${most:.4g}</text>'
    )
    return _svg(HEIGHT, axes + "".join(circle(*point) for point in points))


def _bars(results: Sequence[Result]) -> str:
    tokens = {name: means.tokens for name, means in task_means(results).items()}
    ordered = sorted(tokens.items(), key=lambda item: -item[1])
    most = ordered[0][1] or 1
    bars = "".join(
        f'<text x="{LABEL_WIDTH - 6}" y="{number * BAR_HEIGHT + 13}" text-anchor="end">{escape(visible_line(name)[-36:])}</text>'
        f'<rect x="{LABEL_WIDTH}" y="{number * BAR_HEIGHT + 3}" height="12" fill="#36c"'
        f' width="{(WIDTH - LABEL_WIDTH - 80) * count / most:.1f}"/>'
        f'<text x="{LABEL_WIDTH + 4 + (WIDTH - LABEL_WIDTH - 80) * count / most:.1f}" y="{number * BAR_HEIGHT + 13}">{count:,.0f}</text>'
        for number, (name, count) in enumerate(ordered[:MAX_BARS])
    )
    more = f"<p>and {len(ordered) - MAX_BARS:,} more" if len(ordered) > MAX_BARS else ""
    return _svg(BAR_HEIGHT * min(len(ordered), MAX_BARS), bars) + more
