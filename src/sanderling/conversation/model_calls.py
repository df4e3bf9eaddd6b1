"""Requests to the model: retries them, counts their tokens and enforces the user's limits."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.conversation.budget import (
    UNLIMITED,
    Amount,
    Budget,
    BudgetSpentError,
    dollars,
)
from sanderling.conversation.cache_misses import CacheWatch, Miss
from sanderling.conversation.compaction import BYTES_PER_TOKEN
from sanderling.conversation.effort import ChosenEffort
from sanderling.conversation.reply import Reply
from sanderling.conversation.session_budget import Answer, SessionBudget, fixed_part
from sanderling.errors import ProviderError
from sanderling.permissions.approvals import Approvals
from sanderling.protocol import events
from sanderling.protocol.messages import Message, ServerBlock, StopReason, Usage
from sanderling.protocol.modes import Effort
from sanderling.providers import (
    BlockDone,
    CacheMissed,
    ModelRequest,
    Provider,
    ReplyDone,
    TextGoesOn,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.idle import keeps_what_came
from sanderling.providers.models.known import load_models
from sanderling.providers.retries import Backoff
from sanderling.session.history_pager import shown_search
from sanderling.session.ledger import Prices
from sanderling.session.records import LoggedUsage
from sanderling.session.session import Session
from sanderling.text import duration, name_set
from sanderling.tools.catalog import Catalog

T = TypeVar("T")

log = logging.getLogger(__name__)

SMALL_WINDOW_TOKENS = 16_384
WINDOW_S = 2.0
ANSWER_TOKENS = 512
FALLBACK_AFTER = 3  # failed attempts
UNAVAILABLE = name_set("overloaded server rate_limited network stalled")


class ModelCalls:
    """Makes all requests of a session. `emit` receives the events."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        settings: Settings,
        approvals: Approvals,
        emit: Callable[[events.Event], None],
        *,
        catalog: Catalog,
        system: str,
        small_system: str = "",
        may_search: Callable[[], bool] = lambda: False,
        own_budget: Budget | None = None,
    ) -> None:
        self.on_booked: Callable[[str, Usage], None] = lambda _model, _usage: None
        """Is called with the model and the tokens of each request, when its budget has counted them."""
        self.models = load_models(settings)
        self.prices = Prices(self.models)
        self.budget = SessionBudget(
            session,
            provider,
            settings,
            self.models,
            approvals=approvals,
            emit=emit,
            on_used=self._report_booked,
            own=own_budget,
        )
        self._session = session
        self._provider = provider
        self._settings = settings
        self._approvals = approvals
        self.catalog = catalog
        self._emit = emit
        self.effort = ChosenEffort(provider, settings.effort, emit)
        self.backoff = Backoff()
        self.cache = CacheWatch(session.ledger.last)
        self._small_system = small_system or system
        self._system = self._small_system if catalog.is_small else system
        self._may_search = may_search
        self._block_id = 0
        self._left = 0  # calls left in this turn
        self.fallback = ""
        """The model to use if the current one is unavailable."""
        self._measured = ""  # the model whose window was asked for
        self._go_now = anyio.Event()
        self.tool_use_begun = anyio.Event()  # the first of the turn

    def begin_turn(self, effort: Effort | None = None) -> None:
        """Begin a turn; `effort` is that of its prompt, if not the session's."""
        self.effort.begin_turn(effort)
        self._left = self._settings.max_calls
        self.tool_use_begun = anyio.Event()

    def retry_now(self) -> None:
        self._go_now.set()

    async def stop_at_limit(self) -> StopReason | None:
        """Return why the turn ends here, if a limit is reached and the user does not extend it."""
        limit = self._settings.max_calls
        if limit and not self._left:
            reason = f"The model was called {limit} times in this turn, the limit set by max_calls."
            if not await self._approvals.ask_to_go_on("calls", f"{limit} more calls", reason):
                return "max_calls"
            self._left = limit
        if not await self.budget.has_more():
            return "budget"
        self._left -= 1
        return None

    async def fit_window(self) -> None:
        """
        Offer fewer tools to a model with a small context window, before the first request.

        Only servers on this machine are queried for the window first: they answer at once, and often have small windows.

        Raises:
            ProviderError: instructions and tools do not fit.
        """
        provider, model = self._provider, self._provider.model
        if provider.limits is None and provider.is_local and model != self._measured:
            self._measured = model
            await self._get_ready()
            with anyio.move_on_after(WINDOW_S):
                await provider.learn_limits()
        limits = provider.limits
        window = limits.context_window_tokens if limits else 0
        tools = self._settings.tools_set
        is_small = tools == "small" or (tools == "auto" and 0 < window < SMALL_WINDOW_TOKENS)
        if is_small and self.catalog.make_small():
            self._system = self._small_system
        if not window:
            return
        specs = (await self.catalog.so_far()).specs
        size = len(self._system) + len(msgspec.json.encode(specs))
        needed = size // BYTES_PER_TOKEN + ANSWER_TOKENS
        if needed > window:
            remedy = "Start the server with a larger one (llama.cpp: -c 16384; vLLM: --max-model-len 16384)"
            if not is_small:
                remedy += ', or set tools = "small"'
            message = f"The model's context window ({window:,} tokens) is smaller than instructions, tools and a short answer (about {needed:,})."
            raise ProviderError("invalid_request", message, f"{remedy}.")

    async def ask(self, reply: Reply) -> StopReason:
        """
        Call the model with the history; `reply` collects its answer.

        Raises:
            ProviderError: retrying is no use, or did not help.
        """
        return await self._insist(partial(self._stream, reply, self._block_id))

    async def ask_aside(self, request: Message, start: int) -> tuple[str, StopReason]:
        """
        Return the model's answer to `request` after the history from `start` on. The history does not change.

        Tool calls are ignored.

        Raises:
            ProviderError: retrying is no use, or did not help.
        """
        return await self._text_of(partial(self._request, start, request), self._book)

    async def ask_alone(self, system: str, request: Message) -> tuple[str, StopReason]:
        """
        Return the model's answer to `request` without the history, instructions and tools.

        Raises:
            ProviderError: retrying is no use, or did not help.
        """

        async def alone() -> ModelRequest:
            return ModelRequest(system, (request,))

        return await self._text_of(alone, self.note_aside)

    async def _text_of(
        self,
        make_request: Callable[[], Awaitable[ModelRequest]],
        book: Callable[[str, Usage], None],
    ) -> tuple[str, StopReason]:
        async def stream() -> tuple[str, StopReason]:
            pieces: list[str] = []
            model = self._provider.model
            model_request = await make_request()
            async with self.budget.call(model_request) as answer:
                try:
                    async with aclosing(self._provider.stream(model_request)) as items:
                        async for item in items:
                            answer.note(item)
                            match item:
                                case TextPiece(text):
                                    pieces.append(text)
                                case ReplyDone(stop_reason):
                                    return "".join(pieces), stop_reason
                                case _:
                                    pass
                finally:
                    book(model, answer.usage)
            raise cut_off()

        return await self._insist(stream)

    async def prewarm(self) -> None:
        """Have the API cache what the session's first request begins with, if the user wants that."""
        if not self._settings.prewarm or self._session.history:
            return
        model, request = self._provider.model, await self._request()
        try:
            async with self.budget.call(request) as answer:
                answer.usage = await self._provider.prewarm(request)
                self.note_aside(model, answer.usage)
        except (BudgetSpentError, ProviderError) as error:
            log.info("the API's cache could not be filled: %s", error)

    async def _request(self, start: int = 0, *more: Message) -> ModelRequest:
        tools = await self.catalog.so_far()
        history = [*self._session.history[start:], *more]
        return ModelRequest(
            self._system,
            history,
            tools.specs,
            self._session.id,
            self.effort.of_request(),
            self._may_search(),
        )

    async def _get_ready(self) -> None:
        if not self._provider.is_ready:
            self._emit(events.ProviderStarting())
            await self._provider.prepare()

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make the attempt until it succeeds or retrying is no use."""
        await self._get_ready()
        number, paid = 1, 0
        while True:
            try:
                return await attempt()
            except BudgetSpentError as spent:
                if not await self.budget.goes_on(spent):
                    raise
                continue
            except ProviderError as error:
                paid += error.is_paid
                if self._falls_back(error, number):
                    number, paid = 1, 0
                    continue
                is_last = number >= self.backoff.attempts or paid >= self.backoff.MAX_PAID
                if not error.is_temporary or is_last:
                    raise
                await self._wait(error, number)
            number += 1

    def _falls_back(self, error: ProviderError, failed: int) -> bool:
        """Switch to the fallback model if the current one is unavailable. It gets a few attempts, because most overloads are short."""
        before = self._provider.model
        is_long = (error.retry_after_s or 0.0) > Backoff.ASKED_FROM_S
        is_out = error.kind in UNAVAILABLE and (failed >= FALLBACK_AFTER or is_long)
        if not (self.fallback and (is_out or error.lacks_model)):
            return False
        fallback, self.fallback = self.fallback, ""
        self._provider.set_model(fallback)
        if self._provider.model == before:
            return False
        self._session.switch_model(self._provider.model)
        text = f"{error.message} Continuing with {self._provider.model}."
        self._emit(events.Notice("warning", text))
        self._emit(events.ModelChanged(self._provider.model))
        return True

    async def _wait(self, error: ProviderError, failed: int) -> None:
        asked_s = error.retry_after_s or 0.0
        if asked_s > Backoff.ASKED_FROM_S:
            subject = f"wait {duration(asked_s)}, then retry"
            if not await self._approvals.ask_to_go_on("retry", subject, error.message):
                raise error
        delay_s = self.backoff.delay_s(failed, error.retry_after_s)
        self._go_now = anyio.Event()
        self._emit(
            events.RetryScheduled(
                failed + 1, self.backoff.attempts, round(delay_s, 3), error.message
            )
        )
        with anyio.move_on_after(delay_s):
            await self._go_now.wait()
        self._emit(events.RetryStarted())

    async def _stream(self, reply: Reply, first_block_id: int) -> StopReason:
        request = await self._request()
        async with self.budget.call(request) as answer:
            return await self._receive(request, reply, first_block_id, answer)

    async def _receive(
        self, request: ModelRequest, reply: Reply, first_block_id: int, answer: Answer
    ) -> StopReason:
        is_again = reply.has_begun
        model, api_reason = self._provider.model, ""
        if not is_again:
            reply.model = model
        self.cache.sends(request, model, self._session.history)
        try:
            async with aclosing(self._provider.stream(request)) as items:
                async for item in items:
                    answer.note(item)
                    if is_again and isinstance(
                        item, TextPiece | ThinkingPiece | BlockDone | ReplyDone
                    ):
                        reply.restart(model)
                        self._emit(events.AnswerRestarted(first_block_id))
                        is_again = False
                    match item:
                        case TextPiece(text):
                            reply.add("text", text)
                            self._emit(events.TextDelta(self._block_id, text))
                        case ThinkingPiece(text):
                            reply.add("thinking", text)
                            self._emit(events.ThinkingDelta(self._block_id, text))
                        case ToolUseBegun():
                            self.tool_use_begun.set()
                        case BlockDone():
                            self._finish_block(reply, item)
                        case UsageReport(usage):
                            self._emit_usage(usage, model, usage)
                        case CacheMissed(api_reason):
                            pass
                        case ReplyDone(stop_reason):
                            return stop_reason
        finally:
            self._block_id += reply.has_open_block  # a block that was cut off keeps its id
            self._book(model, answer.usage, self.cache.miss(answer.usage, api_reason))
        raise cut_off()

    def _finish_block(self, reply: Reply, done: BlockDone) -> None:
        reply.finish_block(done.block, done.problem)
        if isinstance(done.block, ServerBlock):
            for event in shown_search(done.block.shown) if done.block.shown else ():
                self._emit(event)
        elif not isinstance(done, TextGoesOn):
            self._emit(events.BlockEnded(self._block_id))
            self._block_id += 1

    def _book(self, model: str, usage: Usage, miss: Miss | None = None) -> None:
        if usage != Usage():
            tokens, why = miss or (0, "")
            self._session.append(LoggedUsage(model, usage, missed_tokens=tokens, missed_why=why))

    def _report_booked(self, model: str, usage: Usage) -> None:
        self.on_booked(model, usage)

    def note_aside(self, model: str, usage: Usage) -> None:
        """Count the usage of a request outside the session's turns. A session without prompts has no log yet, so it is only counted in memory."""
        if usage == Usage():
            return
        record = LoggedUsage(model, usage, is_aside=True)
        if self._session.prompts:
            self._session.append(record)
        else:
            self._session.apply(record)

    def note_child(self, child_id: str, model: str, usage: Usage) -> None:
        """Count the usage of a request of a child session, whose own log has it, too."""
        self._session.append(LoggedUsage(model, usage, is_aside=True, child=child_id))

    async def reserve_child(self, wanted: Amount = UNLIMITED, *, is_fork: bool = False) -> Budget:
        """
        Reserve the budget of a child, which begins with the history if it `is_fork`; see `SessionBudget.reserve`.

        Raises:
            BudgetError: too little is left.
        """
        session = self._session
        fixed = fixed_part(await self._request(), session.prompts[0] if session.prompts else None)
        history_tokens = session.last_usage.context_tokens if is_fork else 0
        return await self.budget.reserve(fixed, wanted, history_tokens=history_tokens)

    def reading_cost(self, model: str, tokens: int) -> str:
        """Return a sentence about what it costs that a fork reads `tokens` of this conversation again."""
        new = self.prices.cost_usd(model, Usage(input_tokens=tokens))
        cached = self.prices.cost_usd(model, Usage(cache_read_input_tokens=tokens))
        if new is None or cached is None:
            return f"It first reads this conversation again: about {tokens:,} tokens."
        return (
            f"It first reads this conversation again: about {tokens:,} tokens, {dollars(cached)} from the API's cache,"
            f" {dollars(new)} without it."
        )

    def show_usage(self) -> None:
        self._emit_usage(self._session.last_usage, self._provider.model, Usage())

    def _emit_usage(self, last: Usage, model: str, usage: Usage) -> None:
        """Emit the session's usage plus `usage`, of the current request to `model`; `last` fills the context window."""
        ledger, limits = self._session.ledger, self._provider.limits
        if limits and limits.price:
            self.models.learn(self._provider.model, limits.price)
        going_on = self.prices.cost_usd(model, usage) if usage != Usage() else 0.0
        total_usd, is_priced = ledger.cost(self.prices)
        turn_usd, _ = ledger.turn_cost(self.prices)
        self._emit(
            events.UsageUpdated(
                last,
                ledger.total + usage,
                limits.context_window_tokens if limits else 0,
                ledger.turn + usage,
                turn_usd + (going_on or 0.0),
                total_usd + (going_on or 0.0),
                is_priced and going_on is not None,
            )
        )


def cut_off() -> ProviderError:
    """Return the error for a stream that ends without a stop reason although the connection did not break."""
    return ProviderError(
        "cut",
        "The answer was cut off before the model had finished.",
        keeps_what_came(),
        is_paid=True,
    )
