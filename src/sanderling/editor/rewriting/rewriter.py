"""
Inline edits: requests one after the other, or several at once, each with its cost. They belong to no conversation.

They use the settings of the project, and the model of the session that the user has open. The model gets no tools and is asked not to
reason, because its text is shown as it streams.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager

import anyio
import msgspec
from anyio import to_thread

from sanderling.config import Settings
from sanderling.config.layers import Layers
from sanderling.editor.rewriting.answer import replacement
from sanderling.editor.rewriting.prompt import SYSTEM, messages
from sanderling.errors import ConfigError, ProviderError
from sanderling.permissions.guarding import check_mentions, unguarded
from sanderling.permissions.store import RuleStore, load_rules
from sanderling.project.project import Project
from sanderling.protocol.messages import Prompt, StopReason, Usage
from sanderling.protocol.requests import (
    Draft,
    PriceRewrites,
    Rewrite,
    RewritePiece,
    RewritesPriced,
    Rewritten,
)
from sanderling.providers import ModelRequest, Provider, ReplyDone, TextPiece, UsageReport
from sanderling.providers.choice import DEFAULT, ProviderChoice, make_provider
from sanderling.providers.models.known import KnownModels, load_models
from sanderling.providers.retries import Backoff
from sanderling.sandbox.execution_environment import LOCAL_DISK
from sanderling.session.ledger import Prices, Tally
from sanderling.text import common_length, duration

SHOW_EVERY_S = 0.033  # faster than anyone reads; each one takes a diff
DEMO = "demo"  # replays a script, and cannot write anything else

Show = Callable[[RewritePiece], None]
OnUsage = Callable[[str, str, Usage], None]
"""Called for each request with its session, which may be "", its model and its usage."""


class Rewriter:
    """The inline edits of one process. Like a session's, their total cost is limited by `budget_usd`."""

    def __init__(
        self,
        backoff: Backoff = Backoff(attempts=5),  # noqa: B008 - it is frozen
        on_usage: OnUsage = lambda _session_id, _model, _usage: None,
    ) -> None:
        self._backoff = backoff
        self._on_usage = on_usage
        self._made: _Made | None = None
        self._tally = Tally()

    async def rewrite(self, request: Rewrite, layers: Layers, show: Show) -> Rewritten:
        """
        Answer `request`; `show` receives the text as it streams.

        Raises:
            ConfigError: the settings or the rules do not allow it.
            ProviderError: the model does not answer.
        """
        settings, request = await to_thread.run_sync(
            _prepared, request, layers, abandon_on_cancel=True
        )
        async with self._provider(settings, request.model) as (made, provider):
            self._check_budget(settings, made.prices)
            return await self._insist(request, provider, made, show)

    async def price(self, request: PriceRewrites, layers: Layers) -> RewritesPriced:
        """
        Return what requests with these tokens cost if the API caches nothing.

        Raises:
            ConfigError: the settings are wrong.
        """
        _, settings = await to_thread.run_sync(_project, request.project, layers)
        usage = Usage(input_tokens=request.sent_tokens, output_tokens=request.received_tokens)
        async with self._provider(settings, request.model) as (made, provider):
            price = made.prices.of(provider.model)
            usd = price.cost_usd(usage, 0) if price else None  # not one of them is a long prompt
            budget = settings.budget_usd
            left = max(0.0, budget - self._tally.cost(made.prices).usd) if budget else None
            return RewritesPriced(provider.model, usd, left)

    def _check_budget(self, settings: Settings, prices: Prices) -> None:
        spent, budget = self._tally.cost(prices).usd, settings.budget_usd
        if budget and spent >= budget:
            raise ConfigError(
                f"Edits have cost ${spent:.2f} since the agent process started, and budget_usd allows ${budget:.2f}: nothing was sent."
            )

    async def _insist(
        self, request: Rewrite, provider: ProviderChoice, made: "_Made", show: Show
    ) -> Rewritten:
        """Try until it succeeds, or trying again is useless."""
        if not provider.is_ready:
            await provider.prepare()
        paid = 0
        for number in range(1, self._backoff.attempts + 1):
            try:
                return await self._ask(request, provider, made, show)
            except ProviderError as error:
                paid += error.is_paid
                asked_s = error.retry_after_s or 0.0
                is_last = number == self._backoff.attempts or paid == Backoff.MAX_PAID
                if not error.is_temporary or is_last or asked_s > Backoff.ASKED_FROM_S:
                    raise
                delay_s = self._backoff.delay_s(number, error.retry_after_s)
                show(RewritePiece(notice=f"{error.message} Again in {duration(round(delay_s))}."))
                await anyio.sleep(delay_s)
        raise AssertionError("the last attempt returns or raises")

    async def _ask(
        self, request: Rewrite, provider: Provider, made: "_Made", show: Show
    ) -> Rewritten:
        text = _Text(request, show)
        model, usage = provider.model, Usage()
        stop_reason: StopReason | None = None
        asked = ModelRequest(SYSTEM, messages(request))
        try:
            with text.shown():
                async with aclosing(provider.stream(asked)) as items:
                    async for item in items:
                        match item:
                            case TextPiece(piece):
                                text.add(piece)
                            case UsageReport(usage):
                                pass
                            case ReplyDone(stop_reason):
                                pass
                            case _:
                                pass
        finally:
            made.learn_price(provider)
            if usage != Usage():
                self._tally.add(model, usage)
                self._on_usage(request.session_id, model, usage)
        if stop_reason is None:
            raise ProviderError("cut", "The answer was cut off.", is_paid=True)
        usd = made.prices.cost_usd(model, usage)
        total, _ = self._tally.cost(made.prices)
        return Rewritten(text.whole, model, stop_reason, usage, usd or 0.0, usd is not None, total)

    @asynccontextmanager
    async def _provider(
        self, settings: Settings, model: str
    ) -> AsyncGenerator[tuple["_Made", ProviderChoice]]:
        """Yield the provider of `model`. It is reused with its connection; other settings make a new one."""
        if self._made is None or self._made.settings != settings:
            before, self._made = self._made, _Made(settings)
            if before:
                await before.close_unused()
        made = self._made
        made.users += 1
        try:
            yield made, made.provider("" if model == DEMO else model)
        finally:
            made.users -= 1
            if made is not self._made:
                with anyio.CancelScope(shield=True):
                    await made.close_unused()


class _Made:
    """The providers made with the same settings: one for each model, because several may be in use at once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.users = 0
        self._models: KnownModels = load_models(settings)
        self.prices = Prices(self._models)
        self._by_model: dict[str, ProviderChoice] = {}

    def provider(self, model: str) -> ProviderChoice:
        if model not in self._by_model:
            made = make_provider(self.settings, fallback=DEFAULT)
            if model and model != made.model:
                made.set_model(model)
            self._by_model[model] = made
        return self._by_model[model]

    def learn_price(self, provider: Provider) -> None:
        limits = provider.limits
        if limits and limits.price:
            self._models.learn(provider.model, limits.price)

    async def close_unused(self) -> None:
        if not self.users:
            while self._by_model:
                _, provider = self._by_model.popitem()
                await provider.aclose()


class _Text:
    """The text as it streams: shown at once when it begins, then often enough to follow."""

    def __init__(self, request: Rewrite, show: Show) -> None:
        self._request = request
        self._show = show
        self._pieces: list[str] = []
        self._shown = ""
        self._shown_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due = max(self._shown_at + SHOW_EVERY_S, loop.time())
            self._timer = loop.call_at(due, self._show_now)

    @property
    def whole(self) -> str:
        request = self._request
        answer = "".join(self._pieces)
        is_whole_lines = request.kind == "lines"
        return replacement(answer, request.text, request.filetype, is_whole_lines=is_whole_lines)

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show text that is added in this context; at its end everything is shown."""
        self._show(RewritePiece())
        try:
            yield
        finally:
            if self._timer:
                self._timer.cancel()
        self._show_now()

    def _show_now(self) -> None:
        self._timer = None
        text = self.whole
        if text != self._shown:
            kept = common_length(text, self._shown)
            self._shown_at = asyncio.get_running_loop().time()
            self._show(RewritePiece(len(text[:kept].encode()), text[kept:]))
            self._shown = text


def _project(root: str, layers: Layers) -> tuple[Project, Settings]:
    """Return the project and its current settings, without reasoning."""
    layers = layers.read_again()
    project = Project(layers.settings(), root)
    return project, msgspec.structs.replace(project.settings(layers), thinking=False)


def _prepared(request: Rewrite, layers: Layers) -> tuple[Settings, Rewrite]:
    """Return the project's settings and the request with its commands expanded."""
    project, settings = _project(request.project, layers)
    stored = RuleStore(settings.state_dir, request.project).load()
    rules = (*load_rules(settings.permissions, request.project), *stored.rules)
    may_read = unguarded(rules, request.project, LOCAL_DISK)
    if request.path and may_read and not may_read(request.path):
        raise ConfigError(f"A rule keeps {request.shown_as} from the model: nothing was sent.")
    check_mentions(Prompt("", "", request.selections), request.project, may_read)
    return settings, _expanded(request, project)


def _expanded(request: Rewrite, project: Project) -> Rewrite:
    """Expand instructions that are commands from files; others may begin with a path such as `/users`."""
    names = {f"/{command.name}" for command in project.commands()}

    def words(instruction: str) -> str:
        is_command = instruction.split(None, 1)[0] in names
        return project.expand(Prompt("", instruction)).sent if is_command else instruction

    drafts = tuple(Draft(words(draft.instruction), draft.text) for draft in request.drafts)
    instruction = words(request.instruction)
    return msgspec.structs.replace(request, instruction=instruction, drafts=drafts)
