"""
`debug`: the debug sessions that the user has started in the editor.

It is offered only while one runs. The debugged program runs outside the sandbox, so whatever continues it or runs code in it is judged like
a program outside the sandbox.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec

from sanderling.errors import ToolError
from sanderling.text import counted, duration, printable, shortened, visible_line
from sanderling.tools.base import Context, Tool, tool
from sanderling.tools.bounded import bounded
from sanderling.tools.code.reach import Reach
from sanderling.tools.code.rows import Rows
from sanderling.tools.code.servers import CodeFile
from sanderling.tools.effects import DEBUG, Effect, outside_sandbox
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

Control = Literal["continue", "step_over", "step_in", "step_out", "pause"]
READING = ("stack", "variables", "breakpoints")
REPLACING = {"set_breakpoint": "replace", "clear_breakpoint": "remove"}
MAX_FRAMES = 20
MAX_VALUE_CHARS = 300
MAX_SUMMARY_CHARS = 60
MAX_WAIT_S = 600
OWNER = "nvim-dap"
STEPPING = "This moves or stops the debugged program. An answer for longer holds for all steps and for breakpoints without a condition, not for code."
EVALUATING = "This runs code in the debugged program. An answer for longer holds for all code, not for steps."
ENDED = "The program has ended, and with it debug session {id}.{code}"
STILL_RUNNING = "The program is still running after {limit}. `stack` says whether it has stopped since, `pause` stops it."


# --- what the editor knows -----------------------------------------------------------------------------------------------


class Stop(msgspec.Struct, frozen=True):
    """Why a session has stopped, in the debugger's words; each may be empty."""

    reason: str = ""
    description: str = ""
    text: str = ""

    def __str__(self) -> str:
        said = dict.fromkeys(filter(None, (self.reason, self.description, self.text)))
        return ", ".join(map(_line, said))


class Thread(msgspec.Struct, frozen=True):
    id: int
    name: str
    is_stopped: bool


class DebugSession(msgspec.Struct, frozen=True):
    """A session; `thread` is its stopped thread, and None while the program runs."""

    id: int
    name: str
    type: str
    is_ready: bool
    thread: int | None = None
    stop: Stop = Stop()
    threads: tuple[Thread, ...] = ()


class Frame(msgspec.Struct, frozen=True):
    """A frame of a stack; `line` counts from 1. Without a `path`, its source is not a file. `is_selected`: the editor shows it."""

    name: str
    line: int
    path: str = ""
    is_selected: bool = False


class Stack(msgspec.Struct, frozen=True):
    """The state of `session`: the frames of one thread from the innermost, `count` in all if that is known, and the other sessions."""

    session: DebugSession
    others: tuple[DebugSession, ...]
    thread: int | None = None
    frames: tuple[Frame, ...] = ()
    count: int = 0


class Value(msgspec.Struct, frozen=True):
    """A value as the debugger writes it. `reference` names its parts, if it has any, until the program continues."""

    name: str
    value: str
    type: str = ""
    reference: int = 0


class Values(msgspec.Struct, frozen=True):
    """A scope or the parts of a value, the first ones of `count`."""

    name: str
    values: tuple[Value, ...] = ()
    count: int = 0
    reference: int = 0


class Breakpoint(msgspec.Struct, frozen=True):
    """A breakpoint; `is_verified` is None if no session has answered. `message` is the debugger's."""

    path: str
    line: int
    condition: str = ""
    hit_condition: str = ""
    log_message: str = ""
    is_verified: bool | None = None
    message: str = ""


class Waited(msgspec.Struct, frozen=True):
    """The state of a program some time after it was continued. `exit_code` may be unknown."""

    state: Literal["running", "stopped", "ended"]
    exit_code: int | None = None


class Debugger(Protocol):
    """
    The debugger of the frontend. Session 0 is the session that the user looks at, thread 0 the stopped thread.

    Its methods raise `ToolError` if no such session or thread exists, or the debugger refuses or does not answer.
    """

    async def check(self, session: int) -> None: ...

    async def stack(self, session: int, thread: int, most: int) -> Stack: ...

    async def variables(self, session: int, thread: int, frame: int | None) -> Sequence[Values]:
        """Return the scopes of a frame, by default of the user's."""
        ...

    async def parts(self, session: int, reference: int) -> Values: ...

    async def evaluate(
        self, session: int, thread: int, frame: int | None, expression: str
    ) -> Value: ...

    async def control(self, session: int, thread: int, control: Control) -> tuple[int, int]:
        """Continue, step or pause; return the session's number and how often it had stopped before."""
        ...

    async def wait(self, session: int, stops: int, timeout_s: float) -> Waited:
        """Wait for a stop after the first `stops`, or the end of the program."""
        ...

    async def breakpoints(self) -> Sequence[Breakpoint]: ...

    async def breakpoints_at(self, file: CodeFile, line: int) -> Sequence[Breakpoint]:
        """Return the breakpoint of a line, or for line 0 all of the file."""
        ...

    async def set_breakpoint(self, file: CodeFile, line: int, condition: str) -> Breakpoint: ...

    async def clear_breakpoints(self, file: CodeFile, line: int) -> int:
        """Remove the breakpoint of a line, or for line 0 all of the file; return how many were removed."""
        ...


# --- the tool ------------------------------------------------------------------------------------------------------------


class DebugInput(msgspec.Struct, forbid_unknown_fields=True):
    op: Literal[
        "stack",
        "variables",
        "evaluate",
        Control,
        "breakpoints",
        "set_breakpoint",
        "clear_breakpoint",
    ]
    expression: Annotated[str, msgspec.Meta(description="To evaluate")] = ""
    reference: Annotated[
        int,
        msgspec.Meta(ge=0, description="`variables`: n of a value shown with #n, for its parts"),
    ] = 0
    frame: (
        Annotated[
            int,
            msgspec.Meta(
                ge=0, description="Its number in the stack; default: selected in the editor"
            ),
        ]
        | None
    ) = None
    path: Annotated[str, msgspec.Meta(description="File of a breakpoint")] = ""
    line: Annotated[
        int, msgspec.Meta(ge=0, description="Its line; clear: 0 is all of the file")
    ] = 0
    condition: Annotated[str, msgspec.Meta(description="Stop only if this is true")] = ""
    thread: Annotated[int, msgspec.Meta(ge=0, description="0: the stopped one")] = 0
    session: Annotated[int, msgspec.Meta(ge=0, description="0: the user's current one")] = 0
    timeout_s: Annotated[
        float, msgspec.Meta(ge=0, le=MAX_WAIT_S, description="How long to wait for a stop")
    ] = 10


def debug_tool(debugger: Debugger) -> Tool:
    """Return the tool for the sessions of `debugger`."""

    async def preview(args: DebugInput, context: Context) -> Preview:
        return await _Call(debugger, args, context).preview()

    @tool(DebugInput, effect=_effect, title=_title, preview=preview)
    async def debug(args: DebugInput, context: Context) -> Outcome:
        """
        Inspect and control the program that the user debugs in the editor.

        `stack` shows where it has stopped and all threads, `variables` the scopes of a frame, `evaluate` an expression in it. `continue` and the
        steps wait for the next stop and show it; `pause` stops a running program. `breakpoints` lists the user's and yours, and `set_breakpoint`
        replaces one of the same line. The program runs outside the sandbox. You cannot start or end a debug session: ask the user.
        """
        return await _Call(debugger, args, context).run()

    return debug


def _effect(args: DebugInput, _workspace: Workspace) -> Effect:
    """Return the effect. Rules name `debug`; what "always" allows holds for steps and breakpoints, or for running code."""
    effect = Effect(DEBUG, "call")
    if _runs_code(args):
        return outside_sandbox(effect, f"{OWNER}, code", "run")
    return outside_sandbox(effect, OWNER, "read" if args.op in READING else "run")


def _runs_code(args: DebugInput) -> bool:
    return args.op == "evaluate" or (args.op == "set_breakpoint" and args.condition != "")


def _subject(args: DebugInput, workspace: Workspace) -> str:
    match args.op:
        case "evaluate":
            return args.expression
        case "set_breakpoint" | "clear_breakpoint":
            place = escaped(workspace.shown(workspace.path(args.path)))
            place += f":{args.line}" if args.line else ""
            return f"{place} if {args.condition}" if args.condition else place
        case _:
            return f"#{args.reference}" if args.reference else ""


def _title(args: DebugInput, workspace: Workspace) -> str:
    where = f" ({_where(args)})" if _where(args) else ""
    return visible_line(f"{args.op} {_subject(args, workspace)[:200]}".strip() + where)


def _where(args: DebugInput) -> str:
    """Return what the call names of session, thread and frame; "" if it is about what the user has selected."""
    named = {"session": args.session, "thread": args.thread, "frame": args.frame}
    return ", ".join(
        f"{name} {number}"
        for name, number in named.items()
        if number or (name == "frame" and number is not None)
    )


class _Answer(NamedTuple):
    text: str
    summary: str


class _Call:
    def __init__(self, debugger: Debugger, args: DebugInput, context: Context) -> None:
        self._debugger = debugger
        self._args = args
        self._context = context
        self._workspace = context.workspace
        self._reach = Reach(context)
        self._rows = Rows(context, self._reach)

    async def preview(self) -> Preview:
        """
        Return what the user is asked about. Earlier calls of the message, which may still run, can change where the program is.

        Raises:
            ToolError: there is no such session.
        """
        args = self._args
        await self._debugger.check(args.session)
        subject = _subject(args, self._workspace)
        where = f"It names {_where(args)}. " if _where(args) else ""
        replaced = ""
        if args.op in REPLACING:
            with suppress(ToolError):  # of the file, which a call before this one may make
                replaced = await self._replaced(await self._file(), "s")
        note = where + replaced + (EVALUATING if _runs_code(args) else STEPPING)
        shown = subject if args.op == "evaluate" else f"{args.op} {subject}".strip()
        return Preview(shown, note=note)

    async def run(self) -> Outcome:
        """
        Return the answer to the call.

        Raises:
            ToolError: the input does not fit, or the debugger cannot do it.
        """
        args = self._args
        try:
            answer = await self._answer()
        finally:
            if args.op not in READING:
                self._workspace.sandbox.look_after("", has_failed=False)
        text = await bounded(answer.text, self._context)
        return Outcome(content=text, summary=answer.summary, detail=text)

    async def _answer(self) -> _Answer:
        args = self._args
        match args.op:
            case "stack":
                return await self._stack(args.session, args.thread)
            case "variables":
                return await self._variables()
            case "evaluate":
                return await self._evaluate()
            case "breakpoints" | "set_breakpoint" | "clear_breakpoint":
                return await self._breakpoints()
            case control:
                return await self._control(control)

    # --- values ------------------------------------------------------------------------------------------------------------

    async def _variables(self) -> _Answer:
        args = self._args
        if args.reference:
            found = [await self._debugger.parts(args.session, args.reference)]
        else:
            found = await self._debugger.variables(args.session, args.thread, args.frame)
        count = sum(len(values.values) for values in found)
        lines = (line for values in found for line in _listed(values))
        return _Answer("\n".join(lines), counted(count, "value"))

    async def _evaluate(self) -> _Answer:
        args = self._args
        if not args.expression.strip():
            raise ToolError("evaluate needs an `expression`.")
        where = args.session, args.thread, args.frame
        value = await self._debugger.evaluate(*where, args.expression)
        typed = f"{_line(value.type)} = " if value.type else ""
        parts = f"  #{value.reference}" if value.reference else ""
        text = f"{typed}{value.value}{parts}" or "(nothing)"
        return _Answer(text, shortened(_line(value.value), MAX_SUMMARY_CHARS))

    # --- where it is -------------------------------------------------------------------------------------------------------

    async def _stack(self, session: int, thread: int) -> _Answer:
        stack = await self._debugger.stack(session, thread, MAX_FRAMES)
        now = stack.session
        lines = [_state(now)]
        for number, frame in enumerate(stack.frames):
            lines.append(f"#{number} {await self._frame(frame)}")
        if (more := stack.count - len(stack.frames)) > 0:
            lines.append(f"… and {counted(more, 'more frame')}")
        others = [each for each in now.threads if each.id != stack.thread]
        if others:
            head = "Threads" if stack.thread is None else "Other threads"
            lines.append(f"{head}: {', '.join(map(_thread, others))}")
        lines += map(_state, stack.others)
        if not stack.frames:
            return _Answer("\n".join(lines), "running")
        at = self._place(stack.frames[0]) or _line(stack.frames[0].name)
        return _Answer("\n".join(lines), f"stopped at {at}")

    async def _frame(self, frame: Frame) -> str:
        source = await self._source(frame)
        shown = " ".join(filter(None, (_line(frame.name), self._place(frame))))
        selected = "  (selected in the editor)" if frame.is_selected else ""
        return (f"{shown}: {source}" if source else shown) + selected

    def _place(self, place: Frame | Breakpoint) -> str:
        return f"{self._rows.shown(place.path)}:{place.line}" if place.path else ""

    async def _source(self, place: Frame | Breakpoint) -> str:
        """Return the line of a file of the project, if the model may read it."""
        if not self._reach.is_inside(place.path) or place.line < 1:
            return ""
        try:
            if not await self._reach.file(place.path):
                return ""
            [line] = await self._reach.lines(place.path, (place.line - 1,), is_modified=False)
        except ToolError:  # gone, or too large
            return ""
        return line

    # --- going on ----------------------------------------------------------------------------------------------------------

    async def _control(self, control: Control) -> _Answer:
        args = self._args
        session, stops = await self._debugger.control(args.session, args.thread, control)
        waited = await self._debugger.wait(session, stops, args.timeout_s)
        match waited.state:
            case "stopped":
                return await self._stack(session, 0)
            case "ended":
                code = waited.exit_code
                words = "" if code is None else f" Its exit code is {code}."
                return _Answer(ENDED.format(id=session, code=words), "ended")
            case "running":
                limit = duration(args.timeout_s)
                return _Answer(STILL_RUNNING.format(limit=limit), "running")

    # --- breakpoints -------------------------------------------------------------------------------------------------------

    async def _breakpoints(self) -> _Answer:
        match self._args.op:
            case "set_breakpoint":
                return await self._set_breakpoint()
            case "clear_breakpoint":
                file = await self._file()
                replaced = await self._replaced(file, "d")
                removed = await self._debugger.clear_breakpoints(file, self._args.line)
                text = f"{counted(removed, 'breakpoint')} removed. {replaced}".rstrip()
                return _Answer(text, f"{removed} removed")
            case _:
                found = await self._debugger.breakpoints()
                lines = [await self._breakpoint(each) for each in found]
                text = "\n".join(lines) or "There are no breakpoints."
                return _Answer(text, counted(len(lines), "breakpoint"))

    async def _set_breakpoint(self) -> _Answer:
        file, line = await self._file(), self._args.line
        replaced = await self._replaced(file, "d")
        made = await self._debugger.set_breakpoint(file, line, self._args.condition)
        moved = f" The debugger moved it from line {line}." if made.line != line else ""
        text = f"Set: {await self._breakpoint(made)}{moved}\n{replaced}"
        return _Answer(text.rstrip(), "set")

    async def _replaced(self, file: CodeFile, ending: str) -> str:
        """Return a sentence, with the `ending` of its verb, about breakpoints whose condition, hits or message the call loses; "" if none."""
        args = self._args
        placed = await self._debugger.breakpoints_at(file, args.line)
        lost = [
            self._place(each) + (f" [{terms}]" if (terms := _terms(each)) else "")
            for each in placed
            if (each.condition, each.hit_condition, each.log_message) != (args.condition, "", "")
        ]
        return f"It {REPLACING[args.op]}{ending} {', '.join(lost)}. " if lost else ""

    async def _file(self) -> CodeFile:
        if not self._args.path:
            raise ToolError(f"{self._args.op} needs the `path` of a file.")
        if self._args.op == "set_breakpoint" and not self._args.line:
            raise ToolError("set_breakpoint needs a `line`.")
        return await self._reach.named(self._workspace.path(self._args.path))

    async def _breakpoint(self, each: Breakpoint) -> str:
        where, source = self._place(each), await self._source(each)
        words = [
            _terms(each),
            "rejected by the debugger" if each.is_verified is False else "",
            "not confirmed by the debugger yet" if each.is_verified is None else "",
            _line(each.message),
        ]
        said = "; ".join(filter(None, words))
        return (f"{where}: {source}" if source else where) + (f"  [{said}]" if said else "")


def _terms(each: Breakpoint) -> str:
    """Return when a breakpoint stops, or what it logs instead; "" if it always stops."""
    words = [
        each.condition and f"if {_line(each.condition)}",
        each.hit_condition and f"hits {_line(each.hit_condition)}",
        each.log_message and f"logs {_line(each.log_message)}",
    ]
    return "; ".join(filter(None, words))


def _line(text: str) -> str:
    return shortened(visible_line(" ".join(printable(text).split())), MAX_VALUE_CHARS)


def _state(session: DebugSession) -> str:
    """Return "Debug session 1 'Launch' (debugpy): stopped (breakpoint) in thread 1 (MainThread)."."""
    name = f"Debug session {session.id} '{_line(session.name)}' ({_line(session.type)})"
    if session.thread is not None:
        why = f" ({session.stop})" if str(session.stop) else ""
        named = {each.id: each.name for each in session.threads}.get(session.thread)
        of = f"{session.thread} ({_line(named)})" if named else session.thread
        return f"{name}: stopped{why} in thread {of}."
    return f"{name}: running." if session.is_ready else f"{name}: starting."


def _thread(thread: Thread) -> str:
    return f"{thread.id} ({_line(thread.name)}{', stopped' if thread.is_stopped else ''})"


def _listed(values: Values) -> list[str]:
    head = f"{_line(values.name)}:" if values.name else ""
    if values.reference:  # a scope that is slow to read
        return [f"{head} #{values.reference}"]
    rows = [_shown(each) for each in values.values] or ["(nothing)"]
    more = values.count - len(values.values)
    rest = [f"… and {more:,} more: evaluate an expression for them"] if more > 0 else []
    indent = "  " if head else ""
    return [*filter(None, [head]), *(f"{indent}{row}" for row in (*rows, *rest))]


def _shown(value: Value) -> str:
    """Return "items: list = [1, 2]  #7"."""
    typed = f"{_line(value.name)}: {_line(value.type)}" if value.type else _line(value.name)
    parts = f"  #{value.reference}" if value.reference else ""
    return f"{typed} = {_line(value.value)}{parts}"
