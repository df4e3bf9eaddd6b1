"""Prices: what requests cost."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import msgspec

from sanderling.errors import ConfigError
from sanderling.protocol.messages import Usage

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
        """The cost of `usage` if it is of requests with prompts of this length."""
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
        """The cost of one request; None if the price of its model is not known."""
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
    return tomllib.loads(
        files("sanderling.session").joinpath("prices.toml").read_text(encoding="utf-8")
    )


def _price(model: str, price: Mapping[str, Any]) -> Price:
    try:
        return msgspec.convert(price, Price)
    except msgspec.ValidationError as error:
        raise ConfigError(f"wrong price of '{model}' in 'prices': {error}") from error


def prompt_tokens(usage: Usage) -> int:
    """All tokens that went in, cached or not."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


class Cost(NamedTuple):
    """Dollars; `is_priced`: for all of it the price is known, else the dollars leave something out."""

    usd: float
    is_priced: bool


# --- the report --------------------------------------------------------------------------------------------------------
