"""Tokens and cost: of a request, and of a session by model and by turn."""

from collections import deque
from datetime import datetime
from typing import NamedTuple

from sanderling.protocol.messages import Usage
from sanderling.providers.models.known import LENGTH_STEP_TOKENS, KnownModels, Price

MAX_TURNS = 12  # shown in the report


class Prices:
    """The known prices of models."""

    def __init__(self, known: KnownModels) -> None:
        self._known = known

    def of(self, model: str) -> Price | None:
        return self._known.of(model).price

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """Return the cost of one request, or None if its model's price is unknown."""
        price = self.of(model)
        return price.cost_usd(usage, prompt_tokens(usage)) if price else None


def prompt_tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class Last(NamedTuple):
    """The last request of a session, and when it ended."""

    model: str
    usage: Usage
    at: datetime


class CacheMiss(NamedTuple):
    """Tokens that a request sent again although the API's cache could have had them, and why; `turn` counts from 1."""

    turn: int
    tokens: int
    why: str


class Cost(NamedTuple):
    """An amount in dollars. Unless it `is_priced`, some prices are unknown and their cost is missing."""

    usd: float
    is_priced: bool


class Tally:
    """
    The tokens that some requests used.

    They are summed by model and prompt length, in steps of thousands of tokens. A request's price depends on nothing else, so the sum is
    exact for any price list, and a thousand requests are as fast to add up as one.
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
        """Return the cost of all models, or of `model`."""
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


class TurnTally(Tally):
    """The requests of one turn; `number` counts from 1."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Ledger(Tally):
    """The tokens of all requests of a session and its children, and of each of its last turns. `own` are without the children's."""

    def __init__(self) -> None:
        super().__init__()
        self.own = Tally()
        self.children = dict[str, Tally]()  # by session
        self.last_model = ""
        self.last: Last | None = None
        self.misses = deque[CacheMiss](maxlen=MAX_TURNS)
        self.turns = deque[TurnTally](maxlen=MAX_TURNS)
        self._turn = TurnTally(0)

    def begin_turn(self) -> None:
        self._turn = TurnTally(self._turn.number + 1)
        self.turns.append(self._turn)

    def add(self, model: str, usage: Usage) -> None:
        """Record the usage of a request; an empty `model` is unknown."""
        self.last_model = model or self.last_model
        self.add_aside(model, usage)
        self._turn.add(model, usage)

    def end_request(self, last: Last, missed_tokens: int = 0, why: str = "") -> None:
        """Record when the request that was added last ended, and what it missed of the cache."""
        self.last = last
        if why:
            self.misses.append(CacheMiss(self._turn.number, missed_tokens, why))

    def add_aside(self, model: str, usage: Usage) -> None:
        """Record the usage of a request outside the session's turns."""
        super().add(model, usage)
        self.own.add(model, usage)

    def add_child(self, child: str, model: str, usage: Usage) -> None:
        """Record the usage of a request of the session `child`, which works for the current turn."""
        super().add(model, usage)
        self._turn.add(model, usage)
        self.children.setdefault(child, Tally()).add(model, usage)

    @property
    def total(self) -> Usage:
        return self.usage

    @property
    def turn(self) -> Usage:
        return self._turn.usage

    def turn_cost(self, prices: Prices) -> Cost:
        return self._turn.cost(prices)
