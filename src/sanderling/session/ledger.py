"""The ledger: tokens and cost of a session, by model and by turn."""

from collections import deque

from sanderling.protocol.messages import Usage
from sanderling.providers.models.known import LENGTH_STEP_TOKENS
from sanderling.session.prices import Cost, Prices, prompt_tokens

MAX_TURNS = 12  # shown in the report


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


class Ledger:
    """The tokens of all requests of a session, and of each of its last turns."""

    def __init__(self) -> None:
        self.last_model = ""
        self.turns = deque[TurnTally](maxlen=MAX_TURNS)
        self._all = Tally()
        self._turn = TurnTally(0)

    def begin_turn(self) -> None:
        self._turn = TurnTally(self._turn.number + 1)
        self.turns.append(self._turn)

    def add(self, model: str, usage: Usage) -> None:
        """Record the usage of a request; an empty `model` is unknown."""
        self.last_model = model or self.last_model
        self._all.add(model, usage)
        self._turn.add(model, usage)

    def add_aside(self, model: str, usage: Usage) -> None:
        """Record the usage of a request outside the session's turns."""
        self._all.add(model, usage)

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
        return self._all.cost(prices, model)

    def turn_cost(self, prices: Prices) -> Cost:
        return self._turn.cost(prices)
