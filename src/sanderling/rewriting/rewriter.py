"""
The rewriter: one request after the other, or several at once, each with what it has cost. No conversation is part of it.

It asks by the settings of the project, and the model of the session that the person has open. The model is offered no tools and is
not asked to think: what it writes is shown as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager

import anyio
import msgspec
from anyio import to_thread

from sanderling.config import Settings
from sanderling.config.layers import Layers
from sanderling.errors import ConfigError, ProviderError
from sanderling.models.known import KnownModels, load_models
from sanderling.permissions.guarding import unguarded
from sanderling.permissions.mentions import check_mentions
from sanderling.permissions.store import RuleStore, load_rules
from sanderling.project.project import Project
from sanderling.protocol.messages import Prompt, StopReason, Usage
from sanderling.protocol.rewriting import Draft, Rewrite, RewritePiece, Rewritten
from sanderling.providers import ModelRequest, Provider, ReplyDone, TextPiece, UsageReport
from sanderling.providers.choice import DEFAULT, ProviderChoice, make_provider
from sanderling.providers.retries import Backoff
from sanderling.rewriting.answer import replacement
from sanderling.rewriting.prompt import SYSTEM, messages
from sanderling.sandbox.ground import LOCAL_DISK
from sanderling.session.ledger import Tally
from sanderling.session.prices import Prices
from sanderling.text import duration

SHOW_EVERY_S = 0.033  # faster than that nobody reads, and each is a difference of lines to be made
DEMO = "demo"  # which replays a script: it cannot write anything else

Show = Callable[[RewritePiece], None]
OnUsage = Callable[[str, str, Usage], None]
"""Told of each request: the session that it counts in, which may be none, the model, and what it has used."""


class Rewriter:
    """The requests of one process. What they have cost together is held against `budget_usd`, as a session's is."""

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
        Answer `request`; `show` is given what is written, as it comes.

        Raises:
            ConfigError: the settings, or the rules, do not allow it.
            ProviderError: the model does not answer.
        """
        settings, request = await to_thread.run_sync(
            _prepared, request, layers, abandon_on_cancel=True
        )
        async with self._provider(settings, "" if request.model == DEMO else request.model) as use:
            made, provider = use
            self._check_budget(settings, made.prices)
            return await self._insist(request, provider, made, show)

    def _check_budget(self, settings: Settings, prices: Prices) -> None:
        spent, budget = self._tally.cost(prices).usd, settings.budget_usd
        if budget and spent >= budget:
            raise ConfigError(
                f"Edits have cost ${spent:.2f} since the agent process began, and budget_usd allows ${budget:.2f}: nothing was asked."
            )

    async def _insist(
        self, request: Rewrite, provider: ProviderChoice, made: "_Made", show: Show
    ) -> Rewritten:
        """Try until it succeeds, or there is no use in it."""
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
        """The provider that answers by the name `model`. One that was made before keeps its connection; others settings make another."""
        if self._made is None or self._made.settings != settings:
            before, self._made = self._made, _Made(settings)
            if before:
                await before.close_unused()
        made = self._made
        made.users += 1
        try:
            yield made, made.provider(model)
        finally:
            made.users -= 1
            if made is not self._made:
                with anyio.CancelScope(shield=True):
                    await made.close_unused()


class _Made:
    """The providers that were made by the same settings: one for each model, as several may be asked at once."""

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
    """The text as it comes: shown at once when it begins, then so often that one can follow."""

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
        """The replacement as far as it has come."""
        request = self._request
        answer = "".join(self._pieces)
        is_whole_lines = request.kind == "lines"
        return replacement(answer, request.text, request.filetype, is_whole_lines=is_whole_lines)

    @contextmanager
    def shown(self) -> Generator[None]:
        """In this context what is added is shown; after it, all of it has been."""
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
            kept = _common_chars(text, self._shown)
            self._shown_at = asyncio.get_running_loop().time()
            self._show(RewritePiece(len(text[:kept].encode()), text[kept:]))
            self._shown = text


def _common_chars(one: str, other: str) -> int:
    """The number of characters with which both begin."""
    if one.startswith(other):
        return len(other)
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _prepared(request: Rewrite, layers: Layers) -> tuple[Settings, Rewrite]:
    """
    The settings of the project, if they let the model read the file and what goes along, and the request with its whole instruction.

    Raises:
        ConfigError: they are wrong, a rule keeps something from the model, or there is no such command.
    """
    layers = layers.read_again()
    project = Project(layers.settings(), request.project)
    settings = project.settings(layers)
    stored = RuleStore(settings.state_dir, request.project).load()
    rules = (*load_rules(settings.permissions, request.project), *stored.rules)
    may_read = unguarded(rules, request.project, LOCAL_DISK)
    if request.path and may_read and not may_read(request.path):
        raise ConfigError(f"A rule keeps {request.shown_as} from the model: nothing was sent.")
    check_mentions(Prompt("", "", request.selections), request.project, may_read)
    return msgspec.structs.replace(settings, thinking=False), _expanded(request, project)


def _expanded(request: Rewrite, project: Project) -> Rewrite:
    """The request with what its instructions stand for, where they are commands of files; `/users` may be a path."""
    names = {f"/{command.name}" for command in project.commands()}

    def words(instruction: str) -> str:
        is_command = instruction.split(None, 1)[0] in names
        return project.expand(Prompt("", instruction)).sent if is_command else instruction

    drafts = tuple(Draft(words(draft.instruction), draft.text) for draft in request.drafts)
    instruction = words(request.instruction)
    return msgspec.structs.replace(request, instruction=instruction, drafts=drafts)
