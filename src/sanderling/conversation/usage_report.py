"""The report of a session's tokens and cost."""

from collections.abc import Iterator

from sanderling.protocol.messages import Usage
from sanderling.session.ledger import Cost, Ledger, Prices, prompt_tokens
from sanderling.text import counted, markdown_table


def usage_report(
    ledger: Ledger,
    prices: Prices,
    *,
    model: str,
    context_used: int,
    window: int,
    budget_usd: float = 0.0,
) -> str:
    """
    Return the tokens and dollars that a session used, as Markdown.

    `context_used` and `window` (of `model`) are in tokens. A window or budget of 0 is unknown or not set.
    """
    budget = f" of a budget of ${budget_usd:,.2f}" if budget_usd else ""
    facts = (
        f"* Model: {model or 'unknown'}",
        f"* Context: {_of_window(context_used, window)}",
        f"* Session: {shown_cost(ledger.cost(prices))}{budget}",
        *_children(ledger, prices),
    )
    sections = (
        "\n".join(facts),
        _table("model", _rows_of_models(ledger, prices)),
        _table("turn", _rows_of_turns(ledger, prices)),
        _misses(ledger),
        _unpriced(ledger, prices),
    )
    return "\n\n".join(filter(None, sections)) + "\n"


def _children(ledger: Ledger, prices: Prices) -> Iterator[str]:
    """Yield what the child sessions have used of that."""
    tallies = ledger.children.values()
    if not tallies:
        return
    tokens = sum(each.usage.context_tokens for each in tallies)
    costs = [each.cost(prices) for each in tallies]
    cost = Cost(sum(usd for usd, _ in costs), all(is_priced for _, is_priced in costs))
    yield f"* Of that, {counted(len(tallies), 'child session')}: {tokens:,} tokens, {shown_cost(cost)}"


def _of_window(used: int, window: int) -> str:
    percent = -(-100 * used // window) if window else 0  # rounded up, as in the winbar
    return f"{used:,} of {window:,} tokens ({percent}%)" if window else f"{used:,} tokens"


def _rows_of_models(ledger: Ledger, prices: Prices) -> Iterator[tuple[str, ...]]:
    by_model = ledger.by_model
    for model, usage in by_model.items():
        yield _row(model or "unknown", usage, ledger.cost(prices, model))
    if len(by_model) > 1:
        yield _row("all", ledger.total, ledger.cost(prices))


def _rows_of_turns(ledger: Ledger, prices: Prices) -> Iterator[tuple[str, ...]]:
    for turn in ledger.turns:
        if turn.requests:
            yield _row(str(turn.number), turn.usage, turn.cost(prices))


def _row(name: str, usage: Usage, cost: Cost) -> tuple[str, ...]:
    taken = prompt_tokens(usage)
    cached = f"{usage.cache_read_input_tokens / taken:.0%}" if taken else "-"
    return name, f"{taken:,}", cached, f"{usage.output_tokens:,}", shown_cost(cost)


def guest_report(
    ledger: Ledger, *, name: str, context_used: int, window: int, cost_usd: float | None
) -> str:
    """Return an external agent's tokens and cost, as it reported them, as Markdown. A cost of None is unknown."""
    usage = ledger.total
    facts = (
        f"* Agent: {name}",
        f"* Context: {_of_window(context_used, window) if context_used else 'unknown'}",
        f"* Session: ${cost_usd:,.2f}" if cost_usd is not None else "* Session: cost unknown",
        f"* Tokens in: {prompt_tokens(usage):,}, out: {usage.output_tokens:,}"
        if usage != Usage()
        else "* Tokens: unknown",
    )
    return "\n".join(facts) + "\n"


def _table(name: str, rows: Iterator[tuple[str, ...]]) -> str:
    table = [(name, "tokens in", "cached", "tokens out", "cost"), *rows]
    return markdown_table(table) if len(table) > 1 else ""


def _misses(ledger: Ledger) -> str:
    """Return the last requests that the API's cache did not have."""
    rows = [(miss.why, str(miss.turn), f"{miss.tokens:,}") for miss in ledger.misses]
    if not rows:
        return ""
    table = markdown_table([("why", "turn", "tokens"), *rows])
    return f"Sent again because the API's cache did not have it:\n\n{table}"


def _unpriced(ledger: Ledger, prices: Prices) -> str:
    models = [model for model in ledger.by_model if not prices.of(model)]
    if not models:
        return ""
    named = ", ".join(model or "an unknown model" for model in models)
    return f"No price known for {named}. Set one in `prices`."


def shown_cost(cost: Cost) -> str:
    """Return the cost in cents, with more digits below a dollar, and a question mark for unknown costs."""
    digits = 2 if cost.usd >= 1 or not cost.usd else 4
    if cost.is_priced:
        return f"${cost.usd:,.{digits}f}"
    return f"${cost.usd:,.{digits}f} + ?" if cost.usd else "?"
