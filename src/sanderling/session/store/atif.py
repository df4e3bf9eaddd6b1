"""
Export of a session as a trajectory in the Agent Trajectory Interchange Format (ATIF) 1.8, which Harbor reads.

Source: https://www.harborframework.com/docs/agents/trajectory-format. Keys that are not in the format are invalid, and the result of a tool
call belongs to the step that has the call.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    SEARCH_TOOL,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    Prompt,
    ServerBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    WebSearch,
    kind_of,
)
from sanderling.session.ledger import Prices, Tally, prompt_tokens
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import (
    Header,
    LoggedChild,
    LoggedClearing,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedRestored,
    LoggedRewind,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
    Record,
    without_left_ends,
)
from sanderling.session.store.export import ENDINGS

ATIF_VERSION = "ATIF-v1.8"
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


class _Source(msgspec.Struct, frozen=True):
    media_type: str
    path: str


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    type: Literal["text", "image"]
    text: str | None = None
    source: _Source | None = None


Content = str | list[_Part]


class _ToolCall(msgspec.Struct, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class _Child(msgspec.Struct, frozen=True):
    """A reference to one of the embedded trajectories."""

    trajectory_id: str


class _Result(msgspec.Struct, frozen=True, omit_defaults=True):
    source_call_id: str
    content: Content
    subagent_trajectory_ref: list[_Child] | None = None
    extra: dict[str, Any] | None = None


class _Observation(msgspec.Struct):
    results: list[_Result]


class _Metrics(msgspec.Struct, frozen=True, omit_defaults=True):
    """`prompt_tokens` include those read from the cache, `cached_tokens`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    extra: dict[str, Any] | None = None


class _Step(msgspec.Struct, omit_defaults=True):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: str
    model_name: str | None = None
    reasoning_effort: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    observation: _Observation | None = None
    metrics: _Metrics | None = None
    llm_call_count: int | None = None
    is_copied_context: bool | None = None
    extra: dict[str, Any] | None = None


class _Agent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    version: str
    model_name: str | None = None


class _FinalMetrics(msgspec.Struct, frozen=True, omit_defaults=True):
    total_prompt_tokens: int
    total_completion_tokens: int
    total_cached_tokens: int
    total_steps: int
    total_cost_usd: float | None = None


class Trajectory(msgspec.Struct, frozen=True, omit_defaults=True):
    schema_version: str
    session_id: str
    trajectory_id: str
    agent: _Agent
    steps: list[_Step]
    final_metrics: _FinalMetrics
    subagent_trajectories: "list[Trajectory] | None" = None
    extra: dict[str, Any] | None = None


def export_trajectory(session_dir: Path, session_id: str, prices: Prices) -> dict[str, Any]:
    """
    Return a session's trajectory as plain data, with the trajectories of its child sessions.

    Raises:
        SessionError: the session does not exist, its log cannot be read, or nothing was said in it yet.
    """
    return msgspec.to_builtins(_trajectory(session_dir, session_id, prices))


def _trajectory(
    session_dir: Path, session_id: str, prices: Prices, parents: tuple[str, ...] = ()
) -> Trajectory:
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        header, records = records_of(log, file)
        found = list(without_left_ends(records))
    children: dict[str, Trajectory] = {}
    family = (*parents, session_id)
    for child in dict.fromkeys(each.id for each in found if isinstance(each, LoggedChild)):
        if child not in family:
            with suppress(SessionError):  # it was deleted, or its first words were not logged
                children[child] = _trajectory(session_dir, child, prices, family)
    steps = _Steps(header, prices, children)
    for record in found:
        steps.take(record)
    if not (trajectory := steps.finished()):
        raise SessionError(f"nothing was said in the session {session_id} yet")
    return trajectory


class _Steps:
    """
    Builds the steps from a log's records.

    The usage of a request is logged before its answer, or after it by an external agent, so it belongs to the next step of the agent in
    the turn, or else to the last one.
    """

    def __init__(self, header: Header, prices: Prices, children: dict[str, Trajectory]) -> None:
        self._header = header
        self._children = children
        self._delegated: dict[str, str] = {}  # children by the calls that started them
        self._prices = prices
        self._steps: list[_Step] = []
        self._callers: dict[str, _Step] = {}  # steps by their unanswered calls
        self._answer: _Step | None = None  # the last one of the turn
        self._used: list[LoggedUsage] = []  # since then
        self._tally = Tally()
        self._pieces = self._thoughts = ""
        self._effort: str | None = "default"
        self._prompt_effort: str | None = None
        self._agent = ""
        self._at = header.at
        self._models: list[str] = []
        self._ending = ""

    def take(self, record: Record) -> None:
        self._at = record.at
        match record:
            case LoggedMessage(message=Message("assistant")):
                self._take_answer(record.message.content)
            case LoggedMessage():
                self._take_prompts(record)
            case LoggedUsage():
                self._take_usage(record)
            case LoggedChild(id=child, tool_use_id=use_id) if child in self._children:
                self._delegated[use_id] = child
            case LoggedPartial(block="text", text=text):
                self._pieces += text
            case LoggedPartial(text=text):
                self._thoughts += text
            case LoggedRestart():
                self._pieces = self._thoughts = ""
            case LoggedToolEnd(result=ToolResult() as result):
                self._take_result(result)
            case LoggedTurnEnd():
                self._end_turn(record)
            case LoggedState(key="effort", value=str(effort)):
                self._effort = effort
            case LoggedState(key="agent", value={"name": str(name)}):
                self._agent = name
            case _:
                self._take_event(record)

    def finished(self) -> Trajectory | None:
        """Return the trajectory; None if it has no step."""
        if self._pieces.strip() or self._thoughts.strip():  # the session is open, or was killed
            step = self._add("agent", self._pieces, self._at)
            step.reasoning_content = self._thoughts or None
            step.extra = {"is_partial": True}
            self._answer = step
        self._settle()
        if not self._steps:
            return None
        usage, (usd, is_priced) = self._tally.usage, self._tally.cost(self._prices)
        forked_from = self._header.forked_from
        extra = {
            "project": self._header.project,
            "stop_reason": self._ending,
            "forked_from": forked_from if isinstance(forked_from, str) else "",
        }
        return Trajectory(
            schema_version=ATIF_VERSION,
            session_id=self._header.session_id,
            trajectory_id=self._header.session_id,
            agent=_Agent(
                self._agent or "sanderling",
                self._header.sanderling,
                self._models[-1] if self._models else None,
            ),
            steps=self._steps,
            final_metrics=_FinalMetrics(
                prompt_tokens(usage),
                usage.output_tokens,
                usage.cache_read_input_tokens,
                len(self._steps),
                usd if is_priced and self._tally.requests else None,
            ),
            subagent_trajectories=list(self._children.values()) or None,
            extra={key: value for key, value in extra.items() if value},
        )

    def _add(
        self, source: Literal["system", "user", "agent"], message: Content, at: datetime
    ) -> _Step:
        step = _Step(len(self._steps) + 1, source, message, at.isoformat())
        if isinstance(self._header.forked_from, str) and at < self._header.at:
            step.is_copied_context = True
        self._steps.append(step)
        return step

    def _take_prompts(self, record: LoggedMessage) -> None:
        """Add the notes as a step of the system, and each prompt as one of the user."""
        blocks = record.message.content
        for block in blocks:
            if isinstance(block, ToolResult):
                self._take_result(block)
        blocks = [each for each in blocks if not isinstance(each, ToolResult)]
        prompts = (*((record.prompt,) if record.prompt else ()), *record.steered)
        sizes = [_block_count(each) for each in prompts]
        notes = max(0, len(blocks) - sum(sizes))
        if record.prompt:
            self._settle()
            self._answer, self._ending = None, ""
            self._prompt_effort = record.prompt.effort
        if notes:
            self._add("system", _content(blocks[:notes]), self._at)
        first = notes
        for size in sizes:
            self._add("user", _content(blocks[first : first + size]), self._at)
            first += size
        self._pieces = self._thoughts = ""

    def _take_answer(self, blocks: Sequence[ContentBlock]) -> None:
        texts = [each.text for each in blocks if isinstance(each, TextBlock)]
        thoughts = [each.thinking for each in blocks if isinstance(each, ThinkingBlock)]
        uses = [each for each in blocks if isinstance(each, ToolUse)]
        searches = [each.shown for each in blocks if isinstance(each, ServerBlock) and each.shown]
        step = self._add("agent", "\n\n".join(texts), self._at)
        step.reasoning_content = "\n\n".join(thoughts) or None
        effort = self._prompt_effort or self._effort
        step.reasoning_effort = None if effort == "default" else effort
        calls = [_ToolCall(each.id, SEARCH_TOOL, {"query": each.query}) for each in searches]
        calls += [_ToolCall(each.id, each.name, each.input) for each in uses]
        step.tool_calls = calls or None
        if searches:
            step.observation = _Observation([_found(each) for each in searches])
        self._callers |= {each.id: step for each in uses}
        self._answer = step
        self._pieces = self._thoughts = ""
        if self._used:
            self._settle()

    def _take_result(self, result: ToolResult) -> None:
        step = self._callers.pop(result.tool_use_id, None)
        if step is None:  # the result was logged before
            return
        content = result.content if isinstance(result.content, str) else _content(result.content)
        extra = {"is_error": True} if result.is_error else None
        child = self._delegated.get(result.tool_use_id)
        children = [_Child(child)] if child else None
        step.observation = step.observation or _Observation([])
        step.observation.results.append(_Result(result.tool_use_id, content, children, extra))

    def _take_usage(self, record: LoggedUsage) -> None:
        self._tally.add(record.model, record.usage)
        if not (record.is_aside or record.child):
            self._used.append(record)
            if record.model and record.model not in self._models[-1:]:
                self._models.append(record.model)

    def _settle(self) -> None:
        """Give the usage since the last answer to that answer."""
        used, self._used = self._used, []
        step = self._answer
        if not used or step is None or step.metrics:
            return
        tally = Tally()
        for each in used:
            tally.add(each.model, each.usage)
        cost = tally.cost(self._prices)
        written = tally.usage.cache_creation_input_tokens
        step.model_name = used[-1].model or None
        step.llm_call_count = len(used)
        step.metrics = _Metrics(
            prompt_tokens(tally.usage),
            tally.usage.output_tokens,
            tally.usage.cache_read_input_tokens,
            cost.usd if cost.is_priced else None,
            {"cache_creation_input_tokens": written} if written else None,
        )

    def _end_turn(self, record: LoggedTurnEnd) -> None:
        self._settle()
        self._ending = record.stop_reason
        self._pieces = self._thoughts = ""
        if words := record.error or ENDINGS.get(record.stop_reason, ""):
            self._add("system", words, self._at)

    def _take_event(self, record: Record) -> None:
        match record:
            case LoggedClearing(before_tokens=before, after_tokens=after):
                words = f"Old tool results were cleared: {before:,} → {after:,} tokens."
            case LoggedSummary(before_tokens=before, after_tokens=after, summary=summary):
                self._used = []  # for the summary
                words = f"The model continues from this summary: {before:,} → {after:,} tokens.\n\n{summary}"
            case LoggedUndo():
                words = "The last compaction was undone."
            case LoggedRestored(restored=restored):
                files = ", ".join(each.path for each in restored.files)
                words = f"The user restored files ({restored.kind}): {files or 'none'}."
            case LoggedRewind(text=text):
                words = f"The user removed everything from this prompt on: {text}"
            case _:
                return
        self._add("system", words, self._at)


def _block_count(prompt: Prompt) -> int:
    """Return the number of blocks that the prompt has in a message: an image follows its name."""
    attached = sum(2 if each.media_type else 1 for each in prompt.selections)
    return attached + bool((prompt.sent or prompt.text).strip())


def _content(blocks: Iterable[ContentBlock | DocumentBlock]) -> Content:
    """Return text, or parts if there is an image."""
    parts = [
        _part(each) for each in blocks if isinstance(each, TextBlock | ImageBlock | DocumentBlock)
    ]
    if any(each.source for each in parts):
        return parts
    return "\n\n".join(each.text or "" for each in parts)


def _part(block: TextBlock | ImageBlock | DocumentBlock) -> _Part:
    if isinstance(block, TextBlock):
        return _Part("text", block.text)
    source = block.source
    if isinstance(block, ImageBlock) and source.media_type in _IMAGE_TYPES:
        url = f"data:{source.media_type};base64,{source.data}"
        return _Part("image", source=_Source(source.media_type, url))
    return _Part("text", f"[{kind_of(block)}]")


def _found(search: WebSearch) -> _Result:
    text = "\n".join(filter(None, (search.summary, search.detail)))
    return _Result(search.id, text, extra={"is_error": True} if search.is_error else None)
