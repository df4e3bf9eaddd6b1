"""
Translates an external agent's updates to events for the screen and records for the session's log.

The screen shows tool calls one after the other, each followed by its output, as for Sanderling's own tools: events of a later call are
held back until the current call ends. Text does not wait. A call that is still running when text arrives is ended later by its summary
line alone. A message is logged as soon as none of its calls is running, so little is lost if the host is killed.
"""

from collections.abc import Callable
from time import monotonic
from typing import Literal

import anyio

from sanderling.acp.client.calls import AnyToolCall, CallEnding, ExternalCall, text_of
from sanderling.acp.wire import updates
from sanderling.protocol.events import (
    BlockEnded,
    Event,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
)
from sanderling.protocol.messages import ContentBlock, Message, TextBlock, ToolResult, ToolUse
from sanderling.session.history import (
    MAX_NAME_CHARS,
    NOT_RUN,
    UNKNOWN_OUTCOME,
    fit_name,
    plain,
)
from sanderling.session.records import LoggedPartial, LoggedToolEnd, LoggedToolStart
from sanderling.session.session import Session

UNTIL_SHOWN_S = 0.15  # for a call to describe itself
TICK_S = 0.1
MAX_CALLS = 5_000  # per turn


class _InLine:
    """Orders the events of concurrent calls, so that each call's events reach `emit` in one piece."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._front = ""
        self._held: dict[str, list[Event]] = {}
        self._passed: set[str] = set()

    def show(self, call_id: str, event: Event) -> None:
        if call_id in self._passed:
            self._emit(_without_detail(event))
        elif call_id == self._front or not self._front:
            self._front = call_id
            self._emit(event)
            if isinstance(event, ToolEnded):
                self._go_on()
        else:
            self._held.setdefault(call_id, []).append(event)

    def pass_all(self) -> None:
        """Stop waiting for running calls and emit all held events, because text is about to be shown."""
        while self._front:
            self._passed.add(self._front)
            self._go_on()

    def _go_on(self) -> None:
        self._front = next(iter(self._held), "")
        for event in self._held.pop(self._front, ()):
            self.show(self._front or event_id(event), event)


class _TurnText:
    """The text of a turn. Agents may send it again from the beginning."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}
        self._known: dict[str, str] = {}

    def begin_again(self) -> None:
        self._known = {kind: "".join(pieces) for kind, pieces in self._pieces.items()}

    def add_before(self, kind: str, text: str) -> None:
        self._pieces.setdefault(kind, []).insert(0, text)

    def new_in(self, kind: str, text: str) -> str:
        """Return the part of `text` that was not shown before."""
        known = self._known.pop(kind, "")
        if known.startswith(text):
            self._known[kind] = known[len(text) :]
            return ""
        new = text.removeprefix(known)  # a different text is new
        self._pieces.setdefault(kind, []).append(new)
        return new


def event_id(event: Event) -> str:
    assert isinstance(event, ToolStarted | ToolOutput | ToolEnded)
    return event.id


def _without_detail(event: Event) -> Event:
    """Drop the detail from the event of a call that is no longer last on the screen: nothing can be inserted there."""
    match event:
        case ToolEnded(id=call_id, summary=summary, is_error=is_error, is_denied=is_denied):
            return ToolEnded(call_id, summary, is_error=is_error, is_denied=is_denied)
        case _:
            return event


class Presenter:
    """
    Shows and logs the updates of one session's agent.

    Args:
        shown: returns how a path is displayed.
        on_ended: called with each call that has ended.
        output_of: returns the output of a client terminal so far.
    """

    def __init__(
        self,
        session: Session,
        emit: Callable[[Event], None],
        shown: Callable[[str], str],
        on_ended: Callable[[ExternalCall], None],
        output_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._session = session
        self._emit = emit
        self._shown = shown
        self._on_ended = on_ended
        self._output_of = output_of
        self._line = _InLine(emit)
        self._calls: dict[str, ExternalCall] = {}
        self._block_id = 0
        self._open: Literal["", "text", "thinking"] = ""
        self._message_id = ""
        self._pieces: list[str] = []
        self._logged_pieces = 0
        self._blocks: list[ContentBlock] = []
        self._endings: dict[str, tuple[ExternalCall, CallEnding]] = {}
        self._said = _TurnText()

    def go_on(self) -> None:
        """Prepare for a replay of the current turn, of which the log's part has already been shown."""
        results: dict[str, ToolResult] = {}
        for message in reversed(self._session.history):
            results |= {
                each.tool_use_id: each for each in message.content if isinstance(each, ToolResult)
            }
            if message.role == "user" and not any(
                isinstance(block, ToolResult) for block in message.content
            ):
                break
            for block in reversed(message.content):
                if isinstance(block, TextBlock):
                    self._said.add_before("text", block.text)
                elif isinstance(block, ToolUse):
                    self._note_shown(block.id, results.get(block.id))
        self._said.begin_again()

    def _note_shown(self, call_id: str, result: ToolResult | None) -> None:
        """Note that the call was shown. A call without a known outcome may still be running."""
        if result and result.content not in (NOT_RUN, UNKNOWN_OUTCOME):
            call = self._calls[call_id] = ExternalCall(call_id, self._shown)
            call.is_started = call.is_ended = True

    def begin_again(self) -> None:
        """Prepare for a replay of the turn: do not show again what was shown."""
        self._said.begin_again()

    async def take(
        self, update: updates.AgentMessageChunk | updates.AgentThoughtChunk | AnyToolCall
    ) -> None:
        """Show a message chunk, a thought chunk or a tool call."""
        match update:
            case updates.AgentMessageChunk():
                self._say("text", text_of(update.content), update.message_id or "")
            case updates.AgentThoughtChunk():
                self._say("thinking", text_of(update.content), update.message_id or "")
            case _:
                await self._take_call(update)

    # --- words -------------------------------------------------------------------------------------------------------------

    def _say(self, kind: Literal["text", "thinking"], text: str, message_id: str) -> None:
        """Show a chunk of text; a new message ID begins a new block."""
        text = self._said.new_in(kind, text)
        if not text:
            return
        is_other = bool(message_id and self._message_id and message_id != self._message_id)
        if self._open != kind or is_other:
            self._end_block()
            self._start_waiting(monotonic())
            self._line.pass_all()
            self._open = kind
        self._message_id = message_id or self._message_id
        self._pieces.append(text)
        piece = TextDelta if kind == "text" else ThinkingDelta
        self._emit(piece(self._block_id, text))

    def _end_block(self) -> None:
        if not self._open:
            return
        self.log_what_grows()
        text = "".join(self._pieces)
        if self._open == "text" and text.strip():
            self._blocks.append(TextBlock(text))
        self._emit(BlockEnded(self._block_id))
        self._block_id += 1
        self._pieces, self._logged_pieces = [], 0
        self._open, self._message_id = "", ""

    def log_what_grows(self) -> None:
        """Log the text since the last call of this method. Call it regularly."""
        new = "".join(self._pieces[self._logged_pieces :])
        self._logged_pieces = len(self._pieces)
        if new and self._open:
            self._session.append(LoggedPartial(self._open, new))

    # --- calls -------------------------------------------------------------------------------------------------------------

    def call_of(self, update: AnyToolCall) -> ExternalCall | None:
        """Return the call that `update` belongs to, updated by it; None if the turn has too many calls."""
        call = self._calls.get(update.tool_call_id)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                return None
            call = self._calls[update.tool_call_id] = ExternalCall(
                self._own_id(update.tool_call_id), self._shown
            )
        if not call.is_ended:
            call.take(update)
        return call

    def title_of(self, told_id: str) -> str:
        """Return the displayed line of the call with the agent's ID `told_id`; empty if it is not on the screen."""
        call = self._calls.get(told_id)
        return f"{call.name} {call.title}" if call and call.is_started else ""

    async def _take_call(self, update: AnyToolCall) -> None:
        """Show an update of a call; the first one creates the call."""
        call = self.call_of(update)
        if call is None or call.is_ended:
            return
        if call.is_telling:
            self.start(call)
        if call.has_ended:
            await self._end(call)
        elif call.is_started:
            self._put_out(call)

    def start(self, call: ExternalCall) -> None:
        """Show the start of the call, once."""
        if not call.is_started:
            call.is_started = True
            self._end_block()
            name = fit_name(call.name)
            self._blocks.append(ToolUse(call.id, name, call.input or {"title": call.title}))
            self._line.show(call.id, ToolStarted(call.id, name, call.title))

    def put_out(self, terminal_id: str) -> None:
        """Show new output of a client terminal in the call that it belongs to."""
        for call in self._calls.values():
            if terminal_id in call.terminals and call.is_started and not call.is_ended:
                self._put_out(call)
                return

    def _put_out(self, call: ExternalCall) -> None:
        if text := call.news(self._output_in(call)):
            self._line.show(call.id, ToolOutput(call.id, text))

    def _output_in(self, call: ExternalCall) -> str:
        return "\n".join(filter(None, map(self._output_of, call.terminals)))

    async def _end(self, call: ExternalCall, how: Literal["", "stopped"] = "") -> None:
        call.is_ended = True
        self.start(call)
        ending = await call.ending(how, self._output_in(call))
        self._line.show(
            call.id,
            ToolEnded(
                call.id,
                ending.summary,
                ending.detail,
                ending.filetype,
                ending.is_error,
                ending.is_denied,
                changed=ending.changed,
            ),
        )
        self._endings[call.id] = (call, ending)
        if all(each.is_ended for each in self._calls.values() if each.is_started):
            self._keep()
        self._on_ended(call)

    def _own_id(self, their_id: str) -> str:
        """Return an ID that is unique in the log. An agent may start counting again with each process."""
        fit = plain(their_id, MAX_NAME_CHARS - len("_9999")) or "call"
        taken = {call.id for call in self._calls.values()} | self._session.tool_use_ids
        own, number = fit, 1
        while own in taken:
            number += 1
            own = f"{fit}_{number}"
        return own

    def _start_waiting(self, now: float) -> None:
        """Show calls that have not described themselves in time."""
        for call in self._calls.values():
            if not call.is_started and now - call.begun_at >= UNTIL_SHOWN_S:
                self.start(call)

    # --- the log -----------------------------------------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """Show delayed calls and log text regularly, until cancelled."""
        while True:
            await anyio.sleep(TICK_S)
            self._start_waiting(monotonic())
            self.log_what_grows()

    async def end_turn(self, how: Literal["", "stopped"]) -> None:
        """End all running calls as `how`, and log the rest of the turn."""
        for call in self._calls.values():
            if not call.is_ended and (call.is_started or call.is_telling):
                await self._end(call, how)
        self._end_block()
        self._line.pass_all()
        self._keep()
        self._calls, self._line = {}, _InLine(self._emit)
        self._said = _TurnText()

    def _keep(self) -> None:
        """Log the finished message, with the results of its calls."""
        self._end_block()
        blocks, self._blocks = self._blocks, []
        endings, self._endings = self._endings, {}
        uses = self._session.append_reply(Message("assistant", tuple(blocks)))
        for use in uses:
            if ended := endings.get(use.id):
                self._session.append(LoggedToolStart(use.id))
                self._session.append(_logged(*ended))
        results = tuple(_result(use.id, endings.get(use.id)) for use in uses)
        if results:
            self._session.append_message(Message("user", results))


def _logged(call: ExternalCall, ending: CallEnding) -> LoggedToolEnd:
    return LoggedToolEnd(
        call.id,
        call.title,
        ending.summary,
        ending.detail,
        ending.filetype,
        ending.is_error,
        ending.is_denied,
        output_chars=ending.output_chars,
    )


def _result(use_id: str, ended: tuple[ExternalCall, CallEnding] | None) -> ToolResult:
    if ended is None:
        return ToolResult(use_id, "The agent did not report how this ended.")
    _, ending = ended
    return ToolResult(use_id, ending.text, ending.is_error)
