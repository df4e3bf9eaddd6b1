"""The tokens and cost of an external agent, where it reports them."""

from collections.abc import Callable
from typing import Any

import msgspec

from sanderling.acp.wire.updates import UsageUpdate
from sanderling.protocol.events import Event, UsageUpdated
from sanderling.protocol.messages import Usage
from sanderling.session.ledger import Prices
from sanderling.session.records import LoggedUsage
from sanderling.session.session import Session

# Implausible values are capped, because the screen gets 64-bit integers.
MAX_TOKENS = 1_000_000_000_000
MAX_USD = 1e9


def _count(reported: int) -> int:
    return min(max(0, reported), MAX_TOKENS)


class TokenUsage(msgspec.Struct, frozen=True, rename="camel"):
    """
    The tokens of a turn, as some agents report them with the answer.

    The protocol leaves open whether `input_tokens` contain the cached ones; the total shows it.
    """

    input_tokens: int
    output_tokens: int
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    total_tokens: int | None = None

    @property
    def uncached_tokens(self) -> int:
        has_cached = self.total_tokens == self.input_tokens + self.output_tokens
        cached = (self.cached_read_tokens or 0) + (self.cached_write_tokens or 0)
        return self.input_tokens - cached * has_cached


class ExternalUsage:
    """The usage of a session with an external agent. `window` is its model's context window in tokens; 0 is unknown."""

    def __init__(self, session: Session, emit: Callable[[Event], None], name: str) -> None:
        self.window = 0
        self.used = 0
        self.cost_usd = 0.0
        self.is_priced = False
        self._session = session
        self._emit = emit
        self._name = name
        self._before_usd = 0.0  # at the start of the turn
        self._is_lent = False

    def begin_turn(self) -> None:
        self._before_usd = self.cost_usd

    def take(self, reported: UsageUpdate) -> None:
        self.used, self.window = _count(reported.used), _count(reported.size)
        if not self._is_lent and reported.cost and reported.cost.currency.upper() == "USD":
            self.cost_usd, self.is_priced = min(max(0.0, reported.cost.amount), MAX_USD), True
        self.show()

    def take_turn(self, reported: Any) -> None:
        """Record the tokens of a turn, if its answer has them."""
        try:
            usage = msgspec.convert(reported, TokenUsage)
        except msgspec.ValidationError:
            return
        told_tokens = (
            usage.uncached_tokens,
            usage.output_tokens,
            usage.cached_write_tokens or 0,
            usage.cached_read_tokens or 0,
        )
        self._session.append(LoggedUsage(self._name, Usage(*map(_count, told_tokens))))
        self.show()

    def add_lent(self, model: str, usage: Usage, prices: Prices) -> None:
        """Log what a request with a key of this machine has used. Its cost is known here, so what the agent says of it is not shown."""
        self._session.append(LoggedUsage(model, usage))
        self.cost_usd, self.is_priced = self._session.ledger.cost(prices)
        self._is_lent = True
        self.show()

    def show(self) -> None:
        ledger = self._session.ledger
        self._emit(
            UsageUpdated(
                Usage(self.used),
                ledger.total,
                self.window,
                ledger.turn,
                self.cost_usd - self._before_usd,
                self.cost_usd,
                self.is_priced,
            )
        )
