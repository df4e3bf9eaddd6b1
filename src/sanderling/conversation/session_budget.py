"""The budget of one session and its children: counts all calls of the model, and asks the user at its limits."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import NamedTuple

import anyio
import msgspec

from sanderling.config import Settings, dotted
from sanderling.conversation.budget import (
    NOTHING,
    SHARE_OF_REST,
    UNLIMITED,
    Amount,
    Budget,
    BudgetError,
    BudgetSpentError,
    dollars,
    for_child,
)
from sanderling.conversation.compaction import (
    BYTES_PER_TOKEN,
    DEFAULT_MAX_OUTPUT_TOKENS,
    estimated_tokens,
)
from sanderling.conversation.prompt import prompt_blocks
from sanderling.errors import ProviderError
from sanderling.permissions.approvals import Approvals
from sanderling.protocol.events import Event, Limit, Notice
from sanderling.protocol.messages import Message, Prompt, TextBlock, Usage
from sanderling.providers import (
    ModelRequest,
    Provider,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)
from sanderling.providers.models.known import KnownModels
from sanderling.session.ledger import Prices, prompt_tokens
from sanderling.session.session import Session

FIXED_SHARE = 3  # a child's instructions may be this part of its budget
_ROUNDING_USD = 1e-9


class FixedPart(NamedTuple):
    """What each request of a session begins with: system prompt, tools, and the notes of its first message (facts, instructions, skills)."""

    size: int  # in bytes

    @property
    def tokens(self) -> int:
        return -(-self.size // BYTES_PER_TOKEN)


class Answer:
    """A streaming answer: the size of its received part, and its usage."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.received_bytes = 0
        self.has_begun = False

    def note(self, item: StreamItem) -> None:
        self.has_begun = True
        match item:
            case UsageReport(usage):
                self.usage = usage
            case TextPiece(text) | ThinkingPiece(text):
                self.received_bytes += len(text.encode(errors="replace"))
            case _:
                pass


class SessionBudget:
    """
    The budgets that hold for a session's calls, each within the one before: the session's, this run's, and its children's.

    A child's session has as its `own` the budget that its parent reserved for it.
    """

    def __init__(
        self,
        session: Session,
        provider: Provider,
        settings: Settings,
        models: KnownModels,
        *,
        approvals: Approvals,
        emit: Callable[[Event], None],
        on_used: Callable[[str, Usage], None],
        own: Budget | None = None,
    ) -> None:
        self._session, self._provider, self._settings = session, provider, settings
        self._models, self._prices = models, Prices(models)
        self._approvals, self._emit, self._on_used = approvals, emit, on_used
        self._is_child = own is not None
        before_usd, _ = session.ledger.cost(self._prices)
        limit = Amount(usd=settings.budget_usd or inf)
        self.session = own or Budget(limit, spent=NOTHING._replace(usd=before_usd))
        self._earlier_usd = before_usd if own else 0.0  # not of this budget
        self.run = Budget(UNLIMITED, self.session, name="This run")
        delegated = sum(each.usage.context_tokens for each in session.ledger.children.values())
        self.children = Budget(
            Amount(tokens=settings.delegate_tree_tokens or inf),
            self.run,
            name="The work delegated in this session",
            spent=NOTHING._replace(tokens=delegated),
        )
        if not own:
            self.session.ask_for_more = self._ask_for_dollars
        self.children.ask_for_more = self._ask_for_tokens
        self._known: _KnownPrompt | None = None
        self._asking = anyio.Lock()
        self._refusals = 0

    def limit_run(self, max_cost_usd: float, max_tokens: int) -> None:
        """Limit what is used from now on, 0: not at all. The user is not asked to extend it. A child is limited by its parent's run."""
        if self._is_child:
            return
        self.run.needs_prices = max_cost_usd > 0
        self.run.limit = Amount(tokens=max_tokens or inf, usd=max_cost_usd or inf).bounded()

    # --- calls ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def call(
        self, request: ModelRequest, provider: Provider | None = None
    ) -> AsyncGenerator[Answer]:
        """
        Count a call of the model, of `provider` or the session's. Wait as long as calls in flight decide whether it may be made.

        Raises:
            BudgetSpentError: a limit is reached.
            ProviderError: the model's price is unknown, so that the limit in dollars could not be kept.
        """
        provider = provider or self._provider
        await self._find_price(provider)
        self._catch_up()
        model, prompt = provider.model, self._most_prompt_tokens(request, provider.model)
        limits = provider.limits
        most = provider.answer_limit or (limits.max_output_tokens if limits else 0)
        bound = Usage(0, most or DEFAULT_MAX_OUTPUT_TOKENS, cache_creation_input_tokens=prompt)
        answer = Answer()
        try:
            async with self.run.call(self._amount(model, bound)) as paid:
                try:
                    yield answer
                finally:
                    paid.used = self._used(model, answer, prompt)
                    if provider is self._provider:
                        self._known = _KnownPrompt(model, request, prompt, answer.usage)
        finally:
            if answer.usage != Usage():
                self._on_used(model, answer.usage)

    async def has_more(self) -> bool:
        """Return whether a call can be made: no limit is reached, or the user extends it."""
        while True:
            self._catch_up()
            try:
                self.run.check()
            except BudgetSpentError as spent:
                if not await self.goes_on(spent):
                    return False
            else:
                return True

    async def goes_on(self, spent: BudgetSpentError) -> bool:
        """Return whether the user extends the limit that was reached, if they may."""
        if spent.budget.ask_for_more:
            return await spent.budget.ask_for_more(str(spent))
        self._emit(Notice("warning", str(spent)))
        return False

    async def _ask_for_dollars(self, reason: str) -> bool:
        more = self._settings.budget_usd
        amount = NOTHING._replace(usd=more)
        return await self._extend(
            self.session, amount, "budget", f"another {dollars(more)}", reason
        )

    async def _ask_for_tokens(self, reason: str) -> bool:
        more = self._settings.delegate_tree_tokens
        amount = NOTHING._replace(tokens=more)
        return await self._extend(
            self.children, amount, "children", f"another {more:,} tokens", reason
        )

    async def _extend(
        self, budget: Budget, more: Amount, kind: Limit, subject: str, reason: str
    ) -> bool:
        """Ask once, however many calls have reached the limit at the same time: the answer is for all of them."""
        limit, refusals = budget.limit, self._refusals
        async with self._asking:
            if budget.limit != limit:
                return True
            if self._refusals != refusals:
                return False
            if not await self._approvals.ask_to_go_on(kind, subject, reason):
                self._refusals += 1
                return False
            budget.extend(more)
            return True

    async def _find_price(self, provider: Provider) -> None:
        """
        Find out what the model costs.

        Raises:
            ProviderError: the run is limited in dollars, and the model's price is unknown.
        """
        model = provider.model
        limits_usd = [each.limit.usd for each in self.run.outwards() if each.needs_prices]
        if not limits_usd or self._prices.of(model):
            return
        if provider.limits is None:
            await provider.learn_limits()
        limits = provider.limits
        if not (limits and limits.price):
            message = f"The price of {model} is unknown, so the limit of {dollars(min(limits_usd))} cannot be kept."
            table = dotted(("prices", model))
            remedy = f"Set `input` and `output` in [{table}] of config.toml, in dollars per million tokens."
            raise ProviderError("invalid_request", message, remedy)
        self._models.learn(model, limits.price)

    def _catch_up(self) -> None:
        """Count what the ledger has and no call here: inline edits, lent keys, and earlier requests whose price was learned later."""
        usd, _ = self._session.ledger.cost(self._prices)
        missing = usd - self._earlier_usd - self.session.spent.usd
        if missing > _ROUNDING_USD:
            budget = self.run if self.run.spent.calls else self.session
            budget.charge(NOTHING._replace(usd=missing))

    def _most_prompt_tokens(self, request: ModelRequest, model: str) -> int:
        """Return an upper bound of the prompt's tokens: those known of the last request, and one for each byte that is new."""
        if self._known and self._known.begins(request, model):
            return self._known.tokens + _most_tokens(request.history[self._known.messages :])
        return fixed_bytes(request) + _most_tokens(request.history)

    def _used(self, model: str, answer: Answer, prompt: int) -> Amount:
        """Return what an answer has used. Of a server that does not report it, or not before the answer was cut off, it is estimated."""
        if answer.usage != Usage() or not answer.has_begun:
            return self._amount(model, answer.usage)
        return NOTHING._replace(tokens=(prompt + answer.received_bytes) // BYTES_PER_TOKEN)

    def _amount(self, model: str, usage: Usage) -> Amount:
        usd = self._prices.cost_usd(model, usage) or 0.0
        return NOTHING._replace(tokens=usage.context_tokens, usd=usd)

    # --- children ------------------------------------------------------------------------------------------------------

    def for_child(self, wanted: Amount) -> Amount:
        """Return what a child would get now: `wanted`, within the settings and a quarter of what is left."""
        return for_child(self.children.rest, wanted.at_most(self._most_for_child))

    @property
    def _most_for_child(self) -> Amount:
        settings = self._settings
        return Amount(
            settings.delegate_tokens, inf, settings.delegate_seconds, settings.delegate_calls
        )

    async def reserve(
        self, fixed: FixedPart, wanted: Amount = UNLIMITED, *, history_tokens: int = 0
    ) -> Budget:
        """
        Reserve the budget of a child, see `for_child`.

        `fixed` is what its requests begin with, and `history_tokens` what it has of another session. If the children of this session have
        used what the settings allow them, ask the user for as much again.

        Raises:
            BudgetError: too little is left, or the fixed part leaves too little of it.
        """
        own = "give it a larger `budget`" if wanted.tokens < self._settings.delegate_tokens else ""
        wanted = wanted.at_most(self._most_for_child)
        needed = FIXED_SHARE * (fixed.tokens + history_tokens)
        if needed > wanted.tokens:
            remedy = own or "ask the user to raise the option delegate.tokens"
            raise BudgetError(_too_fixed(fixed, history_tokens, wanted.tokens, remedy))
        if not await self.has_more():
            raise BudgetError("The budget of this session is used up.")
        part = self.for_child(wanted)
        is_limit_of_children = self.children.free.tokens <= self.run.rest.tokens
        if part.tokens < needed and is_limit_of_children and self._can_extend_to(needed):
            if not await self._ask_for_tokens(self._children_at_limit()):
                raise BudgetError(self._children_at_limit())
            part = self.for_child(wanted)
        if part.tokens < needed:
            remedy = (
                "ask the user to raise the option delegate.tree_tokens"
                if is_limit_of_children
                else ""
            )
            too_fixed = _too_fixed(fixed, history_tokens, part.tokens, remedy)
            raise BudgetError(
                f"A child gets at most a quarter of the tokens that are left. {too_fixed}"
            )
        usd = self._prices.cost_usd(self._provider.model, Usage(needed)) or 0.0
        if usd > part.usd:
            raise BudgetError(
                f"A child gets at most a quarter of the dollars that are left, {dollars(part.usd)}, and its first request alone can cost"
                f" {dollars(usd / FIXED_SHARE)}. Do the work here, or ask the user to raise the option budget_usd."
            )
        return self.children.reserve(part)

    def _can_extend_to(self, needed: float) -> bool:
        """Return whether a child gets `needed` tokens once the user has extended the limit of all children."""
        more = self._settings.delegate_tree_tokens
        return max(self.children.free.tokens, 0) + more >= SHARE_OF_REST * needed

    def _children_at_limit(self) -> str:
        limit, spent = self.children.limit.tokens, self.children.spent.tokens
        reserved = self.children.reserved.tokens
        running = f" and {reserved:,.0f} reserved for running ones" if reserved > 0 else ""
        return (
            f"Of the {limit:,.0f} tokens for child sessions (tree_tokens), {spent:,.0f} are used{running}:"
            " too few are left for another child."
        )


class _KnownPrompt:
    """The prompt of the last request, of which the tokens are known, or at least a bound."""

    def __init__(self, model: str, request: ModelRequest, bound: int, usage: Usage) -> None:
        # An answer can count more as output than it has bytes, such as thinking that is only summarized, and it is sent back.
        self.tokens = max(usage.context_tokens, 0) if prompt_tokens(usage) > 0 else bound
        self.messages = len(request.history)
        self._model, self._tools, self._system = model, request.tools, request.system
        self._last = request.history[-1] if request.history else None

    def begins(self, request: ModelRequest, model: str) -> bool:
        """Return whether `request` continues this one. Results that were cleared since only make it shorter."""
        is_same = (self._model, self._system) == (model, request.system)
        has_tools = self._tools is request.tools or self._tools == request.tools
        if not (is_same and has_tools and self.messages and len(request.history) >= self.messages):
            return False
        return request.history[self.messages - 1] is self._last


def fixed_bytes(request: ModelRequest) -> int:
    return len(request.system.encode()) + len(msgspec.json.encode(request.tools))


def fixed_part(request: ModelRequest, prompt: Prompt | None) -> FixedPart:
    """Measure what the first request of a session has apart from its `prompt`; after a summary, apart from the notes."""
    first = request.history[0].content if request.history else ()
    said = prompt_blocks(prompt) if prompt else ()
    if first[len(first) - len(said) :] != said:
        first = ()
    notes = first[: len(first) - len(said)]
    size = sum(len(block.text.encode()) for block in notes if isinstance(block, TextBlock))
    return FixedPart(fixed_bytes(request) + size)


def _most_tokens(messages: Sequence[Message]) -> int:
    """Return a bound of the tokens of `messages`, at one for each byte, plus the tokens of images and pages."""
    try:
        size = len(msgspec.json.encode(messages))
    except UnicodeEncodeError:  # half of a surrogate pair, which a result of a tool may have
        size = len(json.dumps(msgspec.to_builtins(messages)))
    return size + estimated_tokens(messages)


def _too_fixed(fixed: FixedPart, history_tokens: int, budget: float, remedy: str) -> str:
    history = f" and {history_tokens:,} tokens of history" if history_tokens else ""
    return (
        f"Each child session begins with about {fixed.tokens:,} tokens ({fixed.size:,} bytes: system prompt, tools, facts, instructions,"
        f" skills){history}, more than a third of its budget of {budget:,.0f} tokens. Do the work here{f', or {remedy}' if remedy else ''}."
    )
