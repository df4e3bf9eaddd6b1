"""
Tests whether a provider can do what a conversation needs, with real requests and all tools.

The columns: it responds; it streams; it calls a tool and uses the result; the cache serves the repeated prefix; and the model's chat
template takes the turns of our histories: parallel calls, a prompt next to results, and prompts in a row.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from sanderling.config import DEFAULT_MODEL, Settings
from sanderling.conversation.model_calls import cut_off
from sanderling.conversation.prompt import system_prompt
from sanderling.errors import ProviderError
from sanderling.protocol.messages import (
    ContentBlock,
    Message,
    NoteBlock,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.protocol.remedies import remedies
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    ReplyDone,
    UsageReport,
)
from sanderling.providers.choice import DEFAULT, full_name, make_at, search_warning_on
from sanderling.providers.endpoint import Endpoint, load_endpoint
from sanderling.providers.models.known import KnownModels, Price, load_models
from sanderling.session.history import History
from sanderling.session.ledger import prompt_tokens
from sanderling.text import duration, markdown_table
from sanderling.tools.catalog import TOOLS, specs_of

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider
    from sanderling.providers.packaged import PackagedProvider

DEADLINE_S = 300.0  # per column: a slow machine takes a while to read the tools
PING = "Answer with one word: pong"
USE = (
    "Use the tool `read` once, with the path `.`, then tell me the name of the file that it shows."
)
FILE = "kittiwake.txt"
HEAD = ("model", "window", "$ in", "$ out", "ping", "stream", "tools", "cache", "turns")
FLOAT_COLUMNS = 76  # for a screen of 80
SIGNS = {"passed": "✓ ", "failed": "✗ ", "skipped": ""}


class Column(msgspec.Struct):
    """
    The result of one check. `text` is the text to show; a `failed` check has a `problem` and perhaps a `remedy`.

    "skipped" means not tried, or without a result that can be judged.
    """

    state: Literal["passed", "failed", "skipped"] = "skipped"
    text: str = "-"
    problem: str = ""
    remedy: str = ""


class Trial(msgspec.Struct):
    """The row of one model. A window or price of None is unknown."""

    model: str
    window_tokens: int | None = None
    price: Price | None = None
    ping: Column = msgspec.field(default_factory=Column)
    stream: Column = msgspec.field(default_factory=Column)
    tools: Column = msgspec.field(default_factory=Column)
    cache: Column = msgspec.field(default_factory=Column)
    turns: Column = msgspec.field(default_factory=Column)
    warning: str = ""

    @property
    def columns(self) -> dict[str, Column]:
        return {name: getattr(self, name) for name in HEAD[4:]}

    @property
    def is_passed(self) -> bool:
        return not any(column.state == "failed" for column in self.columns.values())


async def try_all(names: Sequence[str], model: str, settings: Settings) -> list[Trial]:
    """
    Test the providers `names`, `PROVIDER` or `PROVIDER:MODEL`, in parallel. `model` is for names without a model.

    Without any model, it is the provider's default, else the first known, else the first that it lists.

    Raises:
        ConfigError: there is no such provider.
    """
    models = load_models(settings)
    trials: list[tuple[Endpoint, HttpProvider | PackagedProvider]] = []
    for name, _, own in (name.partition(":") for name in names):
        endpoint = load_endpoint(name, settings.providers)
        known = (DEFAULT_MODEL,) if name == DEFAULT else models.names(name)
        usual = endpoint.model or next(iter(known), "")
        trials.append((endpoint, make_at(endpoint, own or model or usual, settings)))
    tried = (_try_out(endpoint, provider, settings, models) for endpoint, provider in trials)
    return list(await anyio.gather(*tried))


async def _try_out(
    endpoint: Endpoint,
    provider: "HttpProvider | PackagedProvider",
    settings: Settings,
    models: KnownModels,
) -> Trial:
    """Run the checks until one fails."""
    talk, trial = _Talk(provider), Trial("")
    try:
        for name, attempt in (("ping", talk.ping), ("stream", talk.stream), ("tools", talk.tools)):
            if not await _attempt(trial.columns[name], attempt):
                break
        else:
            talk.judge_cache(trial.cache)
            await _attempt(trial.turns, talk.turns)
    finally:
        with anyio.CancelScope(shield=True):
            await provider.aclose()
    trial.model = full_name(endpoint.name, provider.model or "?", settings)
    trial.warning = search_warning_on(endpoint, provider.model, settings)
    limits = provider.limits or ModelLimits()
    if limits.price:
        models.learn(trial.model, limits.price)
    known = models.of(trial.model)
    trial.window_tokens = limits.context_window_tokens or known.window_tokens or None
    trial.price = known.price
    return trial


async def _attempt(column: Column, attempt: Callable[[], Awaitable[str]]) -> bool:
    try:
        with anyio.fail_after(DEADLINE_S):
            column.text = await attempt()
            column.state = "passed"
    except TimeoutError:
        column.state, column.text = "failed", "late"
        column.problem = f"It took more than {duration(DEADLINE_S)}."
    except ProviderError as error:
        kind = "failed" if error.kind == "invalid_request" else error.kind  # the problem says why
        column.state, column.text = "failed", kind.replace("_", " ")
        column.problem, column.remedy = error.message, error.remedy
    return column.state == "passed"


class _Talk:
    """The test conversation with `provider`."""

    def __init__(self, provider: "HttpProvider | PackagedProvider") -> None:
        self._provider = provider
        self._history = History()
        self._usage = Usage()

    async def ping(self) -> str:
        began = time.monotonic()
        await self._provider.prepare()
        models: tuple[str, ...] = ()
        try:
            models = await self._provider.list_models()
        except ProviderError as error:
            if error.kind != "invalid_request":
                raise  # then it has no list
        took = _seconds_since(began)
        if not self._provider.model:
            if not models:
                raise _failed("It lists no model.", f"Name one: {remedies().model}.")
            self._provider.set_model(models[0])
        await self._provider.learn_limits()
        return took

    async def stream(self) -> str:
        began = time.monotonic()
        self._say(TextBlock(PING))
        first, blocks = await self._ask()
        if not any(isinstance(block, TextBlock) and block.text.strip() for block in blocks):
            raise _failed("The answer has no text.", _another())
        return _seconds_since(began, first)

    async def tools(self) -> str:
        began = time.monotonic()
        self._say(TextBlock(USE))
        _, blocks = await self._ask()
        uses = [block for block in blocks if isinstance(block, ToolUse)]
        if [use.name for use in uses[:1]] != ["read"]:
            used = f"called '{uses[0].name}'" if uses else "called none"
            raise _failed(f"The model was asked to call the tool 'read', but {used}.", _another())
        self._say(*(ToolResult(use.id, FILE) for use in uses))
        _, blocks = await self._ask()
        text = " ".join(block.text for block in blocks if isinstance(block, TextBlock))
        if FILE not in text:
            problem = f"The tool result named the file {FILE}, but the answer does not mention it."
            raise _failed(problem, _another())
        return _seconds_since(began)

    async def turns(self) -> str:
        """Send a history with each of the turns that templates reject; return what had to be repaired."""
        calls = (
            ToolUse("turn_1", "read", {"path": "."}),
            ToolUse("turn_2", "read", {"path": "src"}),
        )
        results = (ToolResult(call.id, FILE) for call in calls)
        self._say(TextBlock("Look again."))
        self._history.add(Message("assistant", calls))
        self._say(*results, NoteBlock("[Ask mode.]"), TextBlock(PING))
        self._say(TextBlock(PING))
        await self._ask()
        return ", ".join(self._provider.learned) or "all"

    def judge_cache(self, column: Column) -> None:
        """Show how much of the last request came from the cache. Not every API reports it."""
        taken, kept = prompt_tokens(self._usage), self._usage.cache_read_input_tokens
        column.state = "passed" if kept else "skipped"
        column.text = f"{kept / taken:.0%}" if kept else "none"

    def _say(self, *blocks: ContentBlock) -> None:
        self._history.add(Message("user", blocks))

    async def _ask(self) -> tuple[float, Sequence[ContentBlock]]:
        """Return when the first piece came, and the blocks of the answer, which is then in the history."""
        request = ModelRequest(
            system_prompt(), tuple(self._history.messages), specs_of(TOOLS.values())
        )
        first, blocks = 0.0, list[ContentBlock]()
        async with aclosing(self._provider.stream(request)) as items:
            async for item in items:
                first = first or time.monotonic()
                match item:
                    case BlockDone(_, problem) if problem:
                        raise _failed(problem, _another())
                    case BlockDone(ToolUse(id="") as use, _):
                        blocks.append(msgspec.structs.replace(use, id=f"use_{len(blocks)}"))
                    case BlockDone(block, _):
                        blocks.append(block)
                    case UsageReport(usage):
                        self._usage = usage
                    case ReplyDone():
                        self._history.add(Message("assistant", tuple(blocks)))
                        return first, blocks
                    case _:
                        pass
        raise cut_off()


def _failed(problem: str, remedy: str) -> ProviderError:
    return ProviderError("invalid_request", problem, remedy)


def _another() -> str:
    return f"Another model may do better: {remedies().model}."


def _seconds_since(began: float, ended: float = 0.0) -> str:
    seconds = (ended or time.monotonic()) - began
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(round(seconds, 1))


# --- output ------------------------------------------------------------------------------------------------------------


def shown(trials: Sequence[Trial], columns: int = FLOAT_COLUMNS) -> str:
    """Return a table with a row for each model, split in two if wider than `columns`, followed by the failures."""
    lines = (
        f"* {trial.model}, {name}: {column.problem} {column.remedy}".rstrip()
        for trial in trials
        for name, column in trial.columns.items()
        if column.problem
    )
    warnings = (f"* {trial.model}: {trial.warning}" for trial in trials if trial.warning)
    rows = [HEAD, *map(_row, trials)]
    table = markdown_table(rows)
    if table.index("\n") > columns:
        tried = markdown_table([(row[0], *row[4:]) for row in rows])
        table = f"{tried}\n\n{markdown_table([row[:4] for row in rows])}"
    return "\n".join((table, "", *lines, *warnings)).rstrip() + "\n"


def _row(trial: Trial) -> tuple[str, ...]:
    window = f"{trial.window_tokens:,}" if trial.window_tokens else "?"
    price = trial.price
    dollars = (f"{price.input:g}", f"{price.output:g}") if price else ("?", "?")
    text = (SIGNS[column.state] + column.text for column in trial.columns.values())
    return trial.model, window, *dollars, *text
