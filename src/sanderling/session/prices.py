"""The cost of requests, where the prices of their models are known."""

from typing import NamedTuple

from sanderling.models.known import KnownModels, Price
from sanderling.protocol.messages import Usage


class Prices:
    """The prices of the models that are known."""

    def __init__(self, known: KnownModels) -> None:
        self._known = known

    def of(self, model: str) -> Price | None:
        """The price of `model`; None if it is not known."""
        return self._known.of(model).price

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """The cost of one request; None if the price of its model is not known."""
        price = self.of(model)
        return price.cost_usd(usage, prompt_tokens(usage)) if price else None


def prompt_tokens(usage: Usage) -> int:
    """All tokens that went in, cached or not."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class Cost(NamedTuple):
    """Dollars; `is_priced`: for all of it the price is known, else the dollars leave something out."""

    usd: float
    is_priced: bool
