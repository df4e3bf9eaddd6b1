"""A session's log as history events, page by page from its end, because drawing a long log at once takes too long."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from sanderling.protocol.events import (
    BlockEnded,
    ChildChanged,
    CommandEnded,
    CommandOutput,
    CommandStarted,
    Compacted,
    CompactionUndone,
    ConversationRewound,
    ErrorOccurred,
    HistoryEvent,
    HistoryShown,
    PromptSteered,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    TurnTimes,
)
from sanderling.protocol.messages import (
    SEARCH_TOOL,
    CommandRecord,
    ContentBlock,
    ServerBlock,
    TextBlock,
    ThinkingBlock,
    ToolUse,
    WebSearch,
    text_of,
)
from sanderling.session.records import (
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedRestored,
    LoggedRewind,
    LoggedSummary,
    LoggedToolEnd,
    LoggedTurnEnd,
    LoggedUndo,
    Record,
    ToolRecords,
    without_left_ends,
)
from sanderling.session.session import Session, kept_agent
from sanderling.text import printable, shortened, visible

PAGE_BYTES, PAGE_PARTS = 64 * 1024, 60
MAX_TITLE_CHARS = 80
NAMING = ("command", "url", "pattern", "query", "path", "name", "task")
"""Arguments that name a tool use without a title, the first that it has."""
MAX_DETAIL_CHARS = 32_768  # at least as much as the model gets of a command


class HistoryPager:
    """The pages of a resumed session's history, the last one first; with `end`, of what is before that byte of the log."""

    def __init__(
        self, session: Session, end: int | None = None, *, has_calls: bool = False
    ) -> None:
        self._session = session
        self._has_calls = has_calls
        self._end = (
            session.log.resumed_bytes if end is None else min(end, session.log.resumed_bytes)
        )
        # Number of parts that no page has shown yet.
        self._earlier = bisect_left(session.log.page_offsets, self._end)
        self._next_id = 0
        # Whether the last turn before the end continues, remotely or on the page after it.
        self._goes_on = bool(kept_agent(session).turn)

    def take(self) -> HistoryShown:
        """
        Return the next earlier page. Reads the log, so call it in a thread.

        Raises:
            SessionError: the log cannot be read.
        """
        offsets = self._session.log.page_offsets
        first = self._earlier
        while first and self._is_small(first):
            first -= 1
        start = offsets[first] if first < len(offsets) else self._end
        records = self._session.log.records(start, self._end)
        events = tuple(self._events(without_left_ends(records, goes_on=self._goes_on)))
        times = _times(records)
        self._earlier, self._end = first, start
        self._goes_on = bool(records) and not _begins_turn(records[0])
        return HistoryShown(events, has_earlier=first > 0, start=start, times=times)

    def _is_small(self, first: int) -> bool:
        """Return whether the page that begins with part `first` has room for one more."""
        if first == self._earlier:
            return True
        size = self._end - self._session.log.page_offsets[first]
        return size < PAGE_BYTES and self._earlier - first < PAGE_PARTS

    def _events(self, records: Iterable[Record]) -> Iterator[HistoryEvent]:
        records = tuple(records)
        tools = ToolRecords(records)
        for record in records:
            match record:
                case LoggedMessage(message=message, prompt=prompt, steered=steered):
                    if prompt:
                        yield TurnStarted(prompt)
                    yield from map(PromptSteered, steered)
                    if message.role == "assistant":
                        for block in _joined(message.content):
                            yield from self._block(block, tools)
                case LoggedCommand(record=command):
                    yield from self._command(command)
                case LoggedTurnEnd(stop_reason=stop_reason, error=error):
                    if error:
                        yield ErrorOccurred("internal", error, "")
                    yield TurnEnded(stop_reason)
                case _:
                    yield from _memory_changes(record)

    def _block(self, block: ContentBlock, tools: ToolRecords) -> Iterator[HistoryEvent]:
        match block:
            case TextBlock(text):
                block_id = self._new_id()
                yield TextDelta(block_id, text)
                yield BlockEnded(block_id)
            case ThinkingBlock(thinking=text) if text:
                block_id = self._new_id()
                yield ThinkingDelta(block_id, text)
                yield BlockEnded(block_id)
            case ToolUse():
                begun, ended = _shown_use(block, tools)
                if self._has_calls:
                    result = tools.results.get(block.id)
                    begun = replace(begun, input=block.input)
                    ended = replace(ended, result=text_of(result.content) if result else "")
                yield begun
                if child := self._session.children.get(block.id):
                    state = child.state or "partial"
                    yield ChildChanged(child.id, block.id, child.name, child.task, state)
                yield ended
            case ServerBlock(shown=search) if search:
                yield from shown_search(search)
            case _:
                pass

    def _command(self, record: CommandRecord) -> Iterator[HistoryEvent]:
        command_id = f"earlier{self._new_id()}"
        yield CommandStarted(command_id, record.command)
        yield CommandOutput(command_id, record.output[:MAX_DETAIL_CHARS])
        yield CommandEnded(command_id, record.ending.shown, record.ending.is_success)

    def _new_id(self) -> int:
        """Return a new id for a block or command. It is negative, because new output counts up from 0."""
        self._next_id -= 1
        return self._next_id


def _times(records: Iterable[Record]) -> dict[str, TurnTimes]:
    """Return when prompts were sent and their turns ended, by the prompts' ids."""
    times: dict[str, TurnTimes] = {}
    last = ""
    for record in records:
        match record:
            case LoggedMessage(prompt=prompt, at=at, steered=steered):
                for each in (prompt, *steered):
                    if each:
                        times[each.id] = TurnTimes(at.timestamp())
                last = prompt.id if prompt else last
            case LoggedTurnEnd(at=at) if last in times:
                times[last] = replace(times[last], ended=at.timestamp())
            case _:
                pass
    return times


def _begins_turn(record: Record) -> bool:
    return isinstance(record, LoggedMessage) and record.prompt is not None


def _joined(blocks: Sequence[ContentBlock]) -> Iterator[ContentBlock]:
    """Join the texts into which an API cuts what it writes after a search."""
    has_search = any(isinstance(block, ServerBlock) for block in blocks)
    for is_text, group in groupby(blocks, lambda block: isinstance(block, TextBlock)):
        if is_text and has_search:
            yield TextBlock("".join(block.text for block in group if isinstance(block, TextBlock)))
        else:
            yield from group


def _shown_use(use: ToolUse, tools: ToolRecords) -> tuple[ToolStarted, ToolEnded]:
    """Return the start and end of `use`. Its detail is what its block showed, or else the result that the model got."""
    end = tools.ended.get(use.id) or LoggedToolEnd(use.id)
    result = tools.results.get(use.id)
    result_text = result.content if result and isinstance(result.content, str) else ""
    # Older logs do not say how much of the result is output, so all of it is shown.
    is_command = use.name == "bash" and use.id in tools.begun
    if end.output_chars is None and (is_command or not end.detail):
        end = replace(end, detail=result_text)
    is_error = end.is_error or bool(result and result.is_error)
    detail = end.block(result_text)[:MAX_DETAIL_CHARS]
    title = end.title if use.id in tools.ended else _title_of(use)
    ended = ToolEnded(use.id, end.summary, detail, end.filetype, is_error, end.is_denied)
    return ToolStarted(use.id, use.name, title), ended


def shown_search(search: WebSearch) -> Iterator[ToolStarted | ToolEnded]:
    yield ToolStarted(search.id, SEARCH_TOOL, search.query)
    yield ToolEnded(search.id, search.summary, search.detail, is_error=search.is_error)


def _title_of(use: ToolUse) -> str:
    """Return a title for a use whose own was not logged, because the session was interrupted: its main argument."""
    texts = {
        name: value.strip()
        for name, value in use.input.items()
        if isinstance(value, str) and value.strip()
    }
    name = next((each for each in NAMING if each in texts), next(iter(texts), ""))
    line, _, more = texts.get(name, "").partition("\n")
    if use.name == "delegate" and name == "task" and "role" in texts:
        line = f"{texts['role']}: {line}"
    shown = shortened(visible(printable(line)), MAX_TITLE_CHARS)
    return f"{shown} …" if more and not shown.endswith("…") else shown


def _memory_changes(record: Record) -> Iterator[HistoryEvent]:
    """Yield the event for a compaction, an undo or a rewind."""
    match record:
        case LoggedClearing(before_tokens=before, after_tokens=after):
            yield Compacted("cleared", before, after)
        case LoggedSummary(before_tokens=before, after_tokens=after, summary=summary):
            yield Compacted("summary", before, after, summary)
        case LoggedUndo():
            yield CompactionUndone()
        case LoggedRestored(restored=restored):
            yield restored
        case LoggedRewind(prompt_id=prompt_id, text=text):
            yield ConversationRewound(text, prompt_id)
        case _:
            pass
