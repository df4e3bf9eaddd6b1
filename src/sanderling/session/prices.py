"""The cost of requests, for models with a known price."""

from typing import NamedTuple

from sanderling.protocol.messages import Usage
from sanderling.providers.models.known import KnownModels, Price


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
    """Return the number of input tokens, cached or not."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class Cost(NamedTuple):
    """An amount in dollars. Unless it `is_priced`, some prices are unknown and their cost is missing."""

    usd: float
    is_priced: bool
