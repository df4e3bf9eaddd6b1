"""The report of a run, as Markdown or as one HTML file without scripts. Its plots need an extra, and its tables have all of their numbers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain, repeat

from sanderling.batch import plots
from sanderling.batch.results import Result
from sanderling.batch.statistics import Rate, pass_all, pass_at, pass_rate
from sanderling.text import duration, markdown_table, visible_line

WITHOUT_PLOTS = "For plots, install the extra: pip install 'sanderling[batch]'"
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}svg{max-width:100%;height:auto}"
)


def _rates(results: Sequence[Result]) -> list[tuple[str, Rate]]:
    """Return the pass rate and, of repeated tasks, pass@k and pass^k, with their names."""
    repeats = max((result.attempt for result in results), default=1)
    named = [("Pass rate", pass_rate(results))]
    if repeats > 1:
        named.append((f"pass@{repeats}", pass_at(results, repeats)))
        named.append((f"pass^{repeats}", pass_all(results, repeats)))
    return named


def _summary(results: Sequence[Result]) -> list[tuple[str, str]]:
    states = Counter(result.state for result in results)
    costs = [result.cost for result in results]
    known = sum(cost or 0.0 for cost in costs)
    unknown = " and what has no known price" if None in costs else ""
    return [
        ("Tasks", f"{len({result.id for result in results}):,}"),
        ("Trials", f"{len(results):,}"),
        *((name, shown_rate(rate)) for name, rate in _rates(results)),
        *((f"Ended as {state}", f"{count:,}") for state, count in sorted(states.items())),
        ("Cost", f"${known:.2f}{unknown}"),
        ("Tokens", f"{sum(result.tokens for result in results):,}"),
        ("Time of agents", duration(sum(result.wall for result in results))),
        ("Model calls", f"{sum(result.calls for result in results):,}"),
        ("Questions", f"{sum(result.questions for result in results):,}"),
        ("Denials", f"{sum(result.denials for result in results):,}"),
    ]


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
    escaped = [tuple(cell.replace("|", "\\|") for cell in row) for row in _rows(results)]
    costs = _costs_by_reward(results)
    parts = (
        "# Batch",
        markdown_table([("", "Value"), *_summary(results)]),
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
    facts = _html_table([("", "Value"), *_summary(results)])
    costs = _html_table(
        [("Reward", "Trials", "Mean cost", "Mean tokens"), *_costs_by_reward(results)]
    )
    drawn = "".join(_plots(results)) if plots.can_plot() else f"<p>{escape(WITHOUT_PLOTS)}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Batch</title><style>{STYLE}</style>'
        f"<h1>Batch</h1>{facts}{drawn}"
        f"<h2>Reward and cost</h2>{costs}"
        f"<h2>Trials</h2>{_html_table([HEAD, *_rows(results)])}</html>\n"
    )


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    lines = (
        "<tr>" + "".join(f"<{tag}>{escape(cell)}" for cell in row)
        for tag, row in zip(chain(["th"], repeat("td")), rows, strict=False)
    )
    return f"<table>{''.join(lines)}</table>"


def _plots(results: Sequence[Result]) -> Iterator[str]:
    if rates := [(name, rate) for name, rate in _rates(results) if rate.tasks]:
        yield f"<h2>Pass rate, with 95 % intervals</h2>{plots.rates(rates)}"
    if points := plots.rewards_by_cost(results):
        yield f"<h2>Reward against cost</h2>{points}"
    yield f"<h2>Tokens per task</h2>{plots.tokens_by_task(results)}"
