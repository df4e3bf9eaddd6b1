"""
Converts conversation events to ACP session updates.

Tool output arrives in small pieces. `EventTranslator.rolling` names the calls with unsent output; the caller sends it periodically with `rolled`
instead of once per line. Clients that stream command output get only the new part.
"""

import os
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, cast
from uuid import uuid4

import msgspec

from sanderling.acp.agent.clients import Client
from sanderling.acp.agent.notices import sentence_of
from sanderling.acp.wire.content import (
    Location,
    ToolContent,
    shown_diff,
    shown_terminal,
    shown_text,
    text_block,
)
from sanderling.acp.wire.ours import meta_of
from sanderling.acp.wire.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommand,
    AvailableCommandsUpdate,
    CommandInput,
    CompactionUpdate,
    Cost,
    Notice,
    Plan,
    PlanEntry,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCall,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from sanderling.protocol import events
from sanderling.protocol.events import Event, TodoItem
from sanderling.text import counted, fence_around, visible_line, with_printable
from sanderling.tools.commands.shell import first_line as first_line_of

KINDS = {
    "read": "read",
    "ls": "search",
    "glob": "search",
    "grep": "search",
    "edit": "edit",
    "write": "edit",
    "bash": "execute",
    "jobs": "execute",
    "web_fetch": "fetch",
    "web_search": "fetch",
    "todo": "think",
    "delegate": "think",
}
ABOUT_FILES = frozenset(("read", "edit", "write", "ls"))
HUNK_HEAD = "@@ -"
LEFT_OUT = "… and more"
CUT = "[… and {:,} more characters]"
SHOWN_CHARS = 32_768  # the last part of a command's output
RAW_CHARS = 4096  # of each string in a long input
SHOWN_ACTIVITIES = 8  # the newest of a child session
OWN_COMMANDS = (
    AvailableCommand(
        name="compact",
        description="Summarize the conversation to free context",
        input=CommandInput(hint="what matters"),
    ),
    AvailableCommand(name="undo", description="Undo the last turn's file changes"),
    AvailableCommand(name="redo", description="Redo the file changes that were undone last"),
    AvailableCommand(name="usage", description="Show the tokens and cost of this session"),
    AvailableCommand(
        name="trust", description="Review and trust the project's instructions and settings"
    ),
)


class _RunningCall:
    """A running tool call."""

    def __init__(self, started: events.ToolStarted) -> None:
        self.tool = started.tool
        self.title = started.title
        self.path = ""
        self.output = ""
        self.unsent = ""  # output that was not sent yet
        self.terminal = ""  # the client's terminal that shows the output itself
        self.child = ""  # the session that the call has started
        self.activities = deque[str](maxlen=SHOWN_ACTIVITIES)

    def show_child(self, child: events.ChildChanged) -> None:
        """Replace the output by the state of the `child` and its newest activities."""
        self.child = child.id
        if child.activity and child.activity not in self.activities:
            self.activities.append(child.activity)
        cost = f" · ${child.cost_usd:.4f}" if child.cost_usd else ""
        counts = f"{counted(child.calls, 'model call')} · {child.tokens:,} tokens{cost}"
        lines = [f"{child.name} · {child.state} · {counts}", *self.activities]
        self.output = "\n".join(map(visible_line, lines))


class EventTranslator:
    """Converts the events of the session in `project` to updates for `client`."""

    def __init__(self, project: str, client: Client) -> None:
        self._project = project
        self._client = client
        self._prefix = uuid4().hex[:8]
        self._restarts = 0
        self._calls: dict[str, _RunningCall] = {}
        self._compaction = ""
        self._failed: set[str] = set()  # servers
        self.rolling: set[str] = set()
        """IDs of calls with unsent output."""

    def updates(self, event: Event) -> Iterator[SessionUpdate]:  # noqa: C901, PLR0912 - one table
        match event:
            case events.TextDelta(block_id, text):
                chunk = text_block(text)
                yield AgentMessageChunk(content=chunk, message_id=self._message_id(block_id))
            case events.ThinkingDelta(block_id, text):
                chunk = text_block(text)
                yield AgentThoughtChunk(content=chunk, message_id=self._message_id(block_id))
            case events.AnswerRestarted():
                self._restarts += 1
                yield from self.say("info", "The answer was cut off and starts again.")
            case events.ToolStarted():
                yield self._started(event)
            case events.ToolOutput(call_id, text):
                self._add_output(call_id, text)
            case events.ToolEnded():
                yield self._ended(event)
            case events.CommandStarted() | events.CommandOutput() | events.CommandEnded():
                yield from self._command(event)
            case events.ChildChanged(tool_id=call_id):
                if call := self._calls.get(call_id):
                    call.show_child(event)
                    self.rolling.add(call_id)
            case events.TodoChanged(items):
                yield Plan(entries=list(map(_entry, items)))
            case events.SlashCommandsChanged(commands):
                yield self._commands(commands)
            case events.TitleChanged(title):
                yield SessionInfoUpdate(title=title or None)
            case events.UsageUpdated():
                yield from self._usage(event)
            case events.ToolServersChanged(servers):
                yield from self._servers(servers)
            case events.CompactionStarted() | events.Compacted():
                yield from self._compacted(event)
            case _:
                if said := sentence_of(event):
                    yield from self.say(*said)

    def prompt(self, prompt: events.Prompt) -> SessionUpdate:
        """Return the user's prompt as an update, for a client that did not send it."""
        return UserMessageChunk(content=text_block(prompt.text), message_id=prompt.id)

    def say(
        self, severity: Literal["info", "warning", "error"], text: str
    ) -> Iterator[SessionUpdate]:
        """Yield a message to the user: a notice, or a thought if the client does not support notices."""
        if self._client.takes_notices:
            title, _, more = text.partition("\n")
            yield Notice(severity=severity, title=title, description=more or None)
        else:
            words = text_block(f"{text}\n")
            yield AgentThoughtChunk(content=words, message_id=f"{self._prefix}-{uuid4().hex[:8]}")

    def answer(self, text: str) -> SessionUpdate:
        """Return the output of one of Sanderling's own slash commands."""
        message_id = f"{self._prefix}-{uuid4().hex[:8]}"
        return AgentMessageChunk(content=text_block(text), message_id=message_id)

    def _message_id(self, block_id: int) -> str:
        return f"{self._prefix}-{self._restarts}-{block_id}"

    # --- tool calls ----------------------------------------------------------------------------------------------------

    def _started(self, event: events.ToolStarted) -> ToolCall:
        call = self._calls[event.id] = _RunningCall(event)
        call.path, line = self._place(event.tool, event.title)
        is_command = event.tool == "bash"
        terminal: dict[str, Any] | None = None
        if is_command and self._client.shows_output:
            terminal = {"terminal_info": {"terminal_id": event.id, "cwd": self._project}}
        return ToolCall(
            tool_call_id=event.id,
            title=(is_command and event.title) or f"{event.tool} {event.title}".strip(),
            kind=KINDS.get(event.tool, "other"),
            status="in_progress",
            name=event.tool,
            content=[shown_terminal(event.id)] if terminal else None,
            locations=[Location(path=call.path, line=line)] if call.path else None,
            raw_input=_raw_input(event.input) if event.input else None,
            meta=terminal,
        )

    def _place(self, tool: str, title: str) -> tuple[str, int | None]:
        """Return the path and line that a call's title names; ("", None) for tools that take no path."""
        if tool not in ABOUT_FILES or not title:
            return "", None
        path, colon, line = title.rpartition(":")
        if tool != "read" or not colon or not line.isdigit():
            path, line = title, ""
        return os.path.normpath(os.path.join(self._project, path)), int(line) if line else None

    def _add_output(self, call_id: str, text: str) -> None:
        if call := self._calls.get(call_id):
            call.output = (call.output + text)[-SHOWN_CHARS:]
            call.unsent += text
            self.rolling.add(call_id)

    def rolled(self) -> Iterator[SessionUpdate]:
        """Yield the output since the last call of this method."""
        rolling, self.rolling = self.rolling, set()
        for call_id in sorted(rolling & self._calls.keys()):
            if self._calls[call_id].terminal:
                continue
            yield self._rolled(call_id, self._calls[call_id])

    def _rolled(self, call_id: str, call: _RunningCall) -> ToolCallUpdate:
        unsent, call.unsent = call.unsent, ""
        if self._is_shown_as_it_comes(call):
            data = unsent.replace("\n", "\r\n")
            meta = {"terminal_output": {"terminal_id": call_id, "data": data}}
            return ToolCallUpdate(tool_call_id=call_id, meta=meta)
        return ToolCallUpdate(
            tool_call_id=call_id,
            content=[fenced(call.output.removesuffix("\n"))],
            meta=meta_of(child=call.child) if call.child else None,
        )

    def _is_shown_as_it_comes(self, call: _RunningCall) -> bool:
        return call.tool == "bash" and self._client.shows_output and not call.terminal

    def terminal(self, line: str, terminal_id: str) -> Iterator[SessionUpdate]:
        """Yield the terminal ID for the first call that runs the command `line` and has no terminal yet."""
        for call_id, call in self._calls.items():
            if call.title == first_line_of(line) and not call.terminal:
                call.terminal = terminal_id
                shown = [shown_terminal(terminal_id)]
                yield ToolCallUpdate(tool_call_id=call_id, content=shown)
                return

    def asked(self, call_id: str, *, is_open: bool) -> Iterator[SessionUpdate]:
        """Yield the status of a call whose permission question was opened or closed."""
        if call_id in self._calls:
            yield ToolCallUpdate(
                tool_call_id=call_id, status="pending" if is_open else "in_progress"
            )

    def _ended(self, event: events.ToolEnded) -> ToolCallUpdate:
        call = self._calls.pop(event.id, None) or _RunningCall(events.ToolStarted(event.id, "", ""))
        self.rolling.discard(event.id)
        meta: dict[str, Any] | None = None
        content: list[ToolContent] | None = None
        if call.terminal:
            content = [shown_terminal(call.terminal)]
        elif self._is_shown_as_it_comes(call):
            said = "\n".join(filter(None, (call.unsent, event.detail))).replace("\n", "\r\n")
            meta = {
                "terminal_output": {"terminal_id": event.id, "data": said},
                "terminal_exit": {"terminal_id": event.id, "exit_code": int(event.is_error)},
            }
        else:
            content = list(_result(call, event))
            meta = meta_of(child=call.child) if call.child else None
        line = first_line(event.detail) if event.filetype == "diff" else None
        return ToolCallUpdate(
            tool_call_id=event.id,
            status="failed" if event.is_error or event.is_denied else "completed",
            content=content or None,
            locations=[Location(path=call.path, line=line)] if call.path and line else None,
            raw_output=self._raw_output(event),
            meta=meta,
        )

    def _raw_output(self, event: events.ToolEnded) -> Any:
        if not self._client.reads_calls:
            return event.summary or None
        output, left_out = event.result[:SHOWN_CHARS], len(event.result) - SHOWN_CHARS
        said = {
            "output": f"{output}\n{CUT.format(left_out)}" if left_out > 0 else output,
            "summary": event.summary,
        }
        return {name: text for name, text in said.items() if text} or None

    def _command(
        self, event: events.CommandStarted | events.CommandOutput | events.CommandEnded
    ) -> Iterator[SessionUpdate]:
        """Yield updates for a command that the user runs: it is shown as a tool call."""
        match event:
            case events.CommandStarted(command_id, command):
                given = {"command": command} if self._client.reads_calls else None
                yield self._started(events.ToolStarted(command_id, "bash", command, given))
            case events.CommandOutput(command_id, text):
                self._add_output(command_id, text)
            case events.CommandEnded(command_id, outcome, is_success):
                yield self._ended(
                    events.ToolEnded(command_id, outcome, "", "", is_error=not is_success)
                )

    # --- the rest ------------------------------------------------------------------------------------------------------

    def _commands(self, commands: tuple[events.SlashCommand, ...]) -> AvailableCommandsUpdate:
        own = {each.name: each for each in OWN_COMMANDS}
        theirs = {
            each.name: AvailableCommand(
                name=each.name,
                description=each.description or f"Command from {each.source}",
                input=CommandInput(hint=each.arguments) if each.arguments else None,
            )
            for each in commands
        }
        return AvailableCommandsUpdate(available_commands=list((theirs | own).values()))

    def _servers(self, servers: tuple[events.ToolServer, ...]) -> Iterator[SessionUpdate]:
        """Yield a warning, once per failure, for each server that failed."""
        failed = {each.name: each.why for each in servers if each.state == "failed"}
        for name in failed.keys() - self._failed:
            yield from self.say("warning", f"MCP server {name} is unavailable: {failed[name]}")
        self._failed = set(failed)

    def _usage(self, event: events.UsageUpdated) -> Iterator[SessionUpdate]:
        if event.context_window_tokens:
            yield UsageUpdate(
                used=event.last_request.context_tokens,
                size=event.context_window_tokens,
                cost=Cost(amount=event.cost_usd, currency="USD") if event.is_priced else None,
            )

    def _compacted(
        self, event: events.CompactionStarted | events.Compacted
    ) -> Iterator[SessionUpdate]:
        if not self._client.takes_compaction:
            if said := sentence_of(event):
                yield from self.say(*said)
            return
        self._compaction = self._compaction or uuid4().hex
        if isinstance(event, events.CompactionStarted):
            yield CompactionUpdate(compaction_id=self._compaction, status="in_progress")
            return
        summary = [text_block(event.summary)] if event.summary else None
        yield CompactionUpdate(compaction_id=self._compaction, status="completed", summary=summary)
        self._compaction = ""

    def end_compaction(self, status: Literal["failed", "cancelled"]) -> Iterator[SessionUpdate]:
        if self._compaction:
            compaction, self._compaction = self._compaction, ""
            yield CompactionUpdate(compaction_id=compaction, status=status)


def _raw_input(given: dict[str, Any]) -> Any:
    """Return the input; of a long one, the beginning of each string."""
    return given if len(msgspec.json.encode(with_printable(given))) <= SHOWN_CHARS else _cut(given)


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > RAW_CHARS:
            return value[:RAW_CHARS] + CUT.format(len(value) - RAW_CHARS)
        case dict():
            return {name: _cut(item) for name, item in cast("dict[str, Any]", value).items()}
        case list():
            return list(map(_cut, cast("list[Any]", value)))
        case _:
            return value


def _result(call: _RunningCall, event: events.ToolEnded) -> Iterator[ToolContent]:
    if event.filetype == "diff" and call.path and not event.is_error:
        parts = shown_parts(call.path, event.detail)
        yield from parts or [shown_text(event.detail)]
        return
    if call.child:
        yield shown_text("\n\n".join(filter(None, (event.summary, event.detail))))
        return
    if call.output:
        yield fenced(call.output.removesuffix("\n"))
    if event.detail:
        yield (
            shown_text(event.detail)
            if event.is_error or event.is_denied
            else fenced(event.detail[:SHOWN_CHARS].removesuffix("\n"), event.filetype)
        )
    elif not call.output and event.summary:
        yield shown_text(event.summary)


def fenced(text: str, filetype: str = "") -> ToolContent:
    fence = fence_around(text)
    return shown_text(f"{fence}{filetype}\n{text}\n{fence}")


def _entry(item: TodoItem) -> PlanEntry:
    return PlanEntry(content=item.content, priority="medium", status=item.status)


# --- diffs --------------------------------------------------------------------------------------------------------------


def shown_parts(path: str, difference: str) -> list[ToolContent]:
    """Return the hunks of a unified `difference` of the file `path`; empty if it is not a diff."""
    parts = list(_parts(difference.split("\n")))
    is_new = len(parts) == 1 and difference.startswith("@@ -0,0 ")
    return [shown_diff(path, None if is_new else _text(old), _text(new)) for old, new in parts]


def first_line(difference: str) -> int | None:
    """Return the new file's line number at which a unified `difference` begins."""
    head = difference.partition("\n")[0]
    if not head.startswith(HUNK_HEAD) or "+" not in head:
        return None
    number = head.partition("+")[2].split(",")[0].split()[0]
    return max(1, int(number)) if number.isdigit() else None


def _parts(lines: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    old: list[str] = []
    new: list[str] = []
    for line in lines:
        if line.startswith(HUNK_HEAD):
            if old or new:
                yield old, new
            old, new = [], []
        elif line != LEFT_OUT:
            sign, text = line[:1], line[1:]
            if sign in {" ", "-"}:
                old.append(text)
            if sign in {" ", "+"}:
                new.append(text)
    if old or new:
        yield old, new


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
