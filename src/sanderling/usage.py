"""What requests use and what that costs: the price table, a session's ledger, and the report of `:AgentUsage`."""

import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import msgspec

from sanderling.errors import ConfigError
from sanderling.messages import Usage

MAX_TURNS = 12  # that the report shows
PER_TOKENS = 1_000_000
LENGTH_STEP_TOKENS = 1_000
_SNAPSHOT = re.compile(r"(?:[-@]\d{8}|-latest|:.*)$")  # and the file of a `script:FILE`

Dollars = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Factor = Annotated[float, msgspec.Meta(ge=0, le=1_000)]
LengthTokens = Annotated[float, msgspec.Meta(ge=0, multiple_of=LENGTH_STEP_TOKENS)]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Dollars per million tokens.

    A request with a prompt of more than `long_prompt_tokens` (0: no such limit), cached or not, costs the factors times as much,
    all of it. What the cache takes or gives costs what other input does if nothing else is said.
    """

    input: Dollars
    output: Dollars
    cache_write: Dollars | None = None
    cache_read: Dollars | None = None
    long_prompt_tokens: LengthTokens = 0
    long_input_factor: Factor = 1
    long_output_factor: Factor = 1

    def cost_usd(self, usage: Usage, request_prompt_tokens: int) -> float:
        """What `usage` costs if it is of requests with prompts of this length."""
        cache_write = self.input if self.cache_write is None else self.cache_write
        cache_read = self.input if self.cache_read is None else self.cache_read
        taken = (
            usage.input_tokens * self.input
            + usage.cache_creation_input_tokens * cache_write
            + usage.cache_read_input_tokens * cache_read
        )
        given = usage.output_tokens * self.output
        if 0 < self.long_prompt_tokens < request_prompt_tokens:
            taken, given = taken * self.long_input_factor, given * self.long_output_factor
        return (taken + given) / PER_TOKENS


class Prices:
    """The prices of the models that are known."""

    def __init__(self, by_model: Mapping[str, Price]) -> None:
        self._by_model = by_model

    def of(self, model: str) -> Price | None:
        """
        The price of `model`; None if it is not known.

        A dated snapshot costs what its model does. Another release does not: the price of `claude-opus-5-6` is not guessed.
        """
        return self._by_model.get(model) or self._by_model.get(_SNAPSHOT.sub("", model))

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """What one request costs; None if the price of its model is not known."""
        price = self.of(model)
        return price.cost_usd(usage, prompt_tokens(usage)) if price else None


def load_prices(overrides: Mapping[str, Mapping[str, float]]) -> Prices:
    """
    The prices that Sanderling comes with; what `overrides` says of a model goes before them.

    Raises:
        ConfigError: naming the model and the key that is unknown, missing or wrong.
    """
    table = _shipped_prices()
    changed = {model: {**table.get(model, {}), **price} for model, price in overrides.items()}
    return Prices({model: _price(model, price) for model, price in {**table, **changed}.items()})


@cache
def _shipped_prices() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("sanderling").joinpath("prices.toml").read_text(encoding="utf-8"))


def _price(model: str, price: Mapping[str, Any]) -> Price:
    try:
        return msgspec.convert(price, Price)
    except msgspec.ValidationError as error:
        raise ConfigError(f"wrong price of '{model}' in 'prices': {error}") from error


def prompt_tokens(usage: Usage) -> int:
    """All that went in, cached or not."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class Cost(NamedTuple):
    """Dollars; `is_priced`: for all of it the price is known, else the dollars leave something out."""

    usd: float
    is_priced: bool


class Tally:
    """
    What some requests have used.

    It is kept by model and by the length of the prompts, in thousands of tokens: a request's price depends on no more than that,
    so that the sum is exact with every price list, and no longer to add up after a thousand requests.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.requests = 0
        self._by_length: dict[tuple[str, int], Usage] = {}

    def add(self, model: str, usage: Usage) -> None:
        self.usage += usage
        self.requests += 1
        steps = -(-prompt_tokens(usage) // LENGTH_STEP_TOKENS)
        key = model, steps * LENGTH_STEP_TOKENS
        self._by_length[key] = self._by_length.get(key, Usage()) + usage

    def cost(self, prices: Prices, model: str | None = None) -> Cost:
        """Of all models, or of one."""
        usd, is_priced = 0.0, True
        for (used_model, length), usage in self._by_length.items():
            if model not in (None, used_model):
                continue
            if price := prices.of(used_model):
                usd += price.cost_usd(usage, length)
            else:
                is_priced = False
        return Cost(usd, is_priced)

    @property
    def by_model(self) -> dict[str, Usage]:
        used: dict[str, Usage] = {}
        for (model, _), usage in self._by_length.items():
            used[model] = used.get(model, Usage()) + usage
        return used


class Turn(Tally):
    """The requests of one turn; `number` counts from 1."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Ledger:
    """What the requests of a session have used, and the last turns of it."""

    def __init__(self) -> None:
        self.last_model = ""
        self.turns = deque[Turn](maxlen=MAX_TURNS)
        self._all = Tally()
        self._turn = Turn(0)

    def begin_turn(self) -> None:
        self._turn = Turn(self._turn.number + 1)
        self.turns.append(self._turn)

    def add(self, model: str, usage: Usage) -> None:
        """Put down what one request has used; an empty `model` is not known."""
        self.last_model = model or self.last_model
        self._all.add(model, usage)
        self._turn.add(model, usage)

    @property
    def total(self) -> Usage:
        return self._all.usage

    @property
    def turn(self) -> Usage:
        return self._turn.usage

    @property
    def by_model(self) -> dict[str, Usage]:
        return self._all.by_model

    def cost(self, prices: Prices, model: str | None = None) -> Cost:
        """Of the session, or of what one model did in it."""
        return self._all.cost(prices, model)

    def turn_cost(self, prices: Prices) -> Cost:
        return self._turn.cost(prices)


# --- the report --------------------------------------------------------------------------------------------------------


def report(
    ledger: Ledger,
    prices: Prices,
    *,
    model: str,
    context_used: int,
    window: int,
    budget_usd: float = 0.0,
) -> str:
    """
    What a session has used, as Markdown.

    `context_used` of the `window` of `model` are filled, in tokens; a window or a budget of 0 is none that is known.
    """
    percent = -(-100 * context_used // window) if window else 0  # rounded up, as in the winbar
    share = f" of {window:,} tokens ({percent}%)" if window else " tokens"
    budget = f" of a budget of ${budget_usd:,.2f}" if budget_usd else ""
    facts = (
        f"* Model: {model or 'not known'}",
        f"* Context: {context_used:,}{share}",
        f"* Session: {shown_cost(ledger.cost(prices))}{budget}",
    )
    sections = (
        "\n".join(facts),
        _table("model", _rows_of_models(ledger, prices)),
        _table("turn", _rows_of_turns(ledger, prices)),
        _unpriced(ledger, prices),
    )
    return "\n\n".join(filter(None, sections)) + "\n"


def _rows_of_models(ledger: Ledger, prices: Prices) -> Iterator[tuple[str, ...]]:
    by_model = ledger.by_model
    for model, usage in by_model.items():
        yield _row(model or "not known", usage, ledger.cost(prices, model))
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


def _table(name: str, rows: Iterator[tuple[str, ...]]) -> str:
    """A Markdown table that can be read as it stands: columns of numbers are flush right."""
    table = [(name, "tokens in", "cached", "tokens out", "cost"), *rows]
    if len(table) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        " | ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in table
    ]
    rule = " | ".join(("-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])))
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def _unpriced(ledger: Ledger, prices: Prices) -> str:
    models = [model for model in ledger.by_model if not prices.of(model)]
    if not models:
        return ""
    named = ", ".join(model or "a model that is not known" for model in models)
    return f"Without a price: {named}. The setting `prices` can give one."


def shown_cost(cost: Cost) -> str:
    """Cents, and smaller parts of a dollar where there is nothing else to see."""
    digits = 2 if cost.usd >= 1 or not cost.usd else 4
    if cost.is_priced:
        return f"${cost.usd:,.{digits}f}"
    return f"${cost.usd:,.{digits}f} and more" if cost.usd else "not known"
