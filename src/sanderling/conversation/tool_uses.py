"""
The tool calls of one message: checked against permissions, run in parallel, answered in order.

A call that depends on an earlier call of the same message waits for it: a command for the edits and commands before it, an edit for the
command before it, an edit for another edit of the same file. All others run at the same time, among them commands that only read. The
screen shows them one after the other.

A command does not wait with its question, so that the user can answer all questions of a message at once. When its turn has come, it is
judged again: earlier commands may have changed the directory, variables or files.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from hashlib import blake2b

import anyio
import msgspec
from anyio import to_thread

from sanderling.changes.states import FileChange
from sanderling.conversation.hooked import SessionHooks
from sanderling.errors import SandboxError, ToolError
from sanderling.hooks.hooks import NOTHING as NOT_HOOKED
from sanderling.hooks.hooks import Verdict, quoted
from sanderling.hosts import is_loopback, split_authority
from sanderling.paths import is_within
from sanderling.permissions.approvals import Permit
from sanderling.permissions.gate import (
    DENIED_BY_HOOK,
    DeniedError,
    ForbiddenError,
    Gate,
    NotAskedError,
)
from sanderling.protocol.events import Event, ToolEnded, ToolOutput, ToolStarted
from sanderling.protocol.in_line import InLine
from sanderling.protocol.messages import TextBlock, ToolResult, ToolUse, text_of
from sanderling.protocol.tool_names import own_name
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.session.records import LoggedToolEnd, LoggedToolStart
from sanderling.session.session import Session
from sanderling.text import printable, shortened
from sanderling.tools.base import Context, Tool, UseRequest
from sanderling.tools.catalog import UNLISTED
from sanderling.tools.diagnostics import diagnostic_report
from sanderling.tools.effects import DEBUG, Effect
from sanderling.tools.outcome import AccessRefusedError, Content, Outcome, UnsavedConflictError
from sanderling.tools.unsaved import offer_to_save
from sanderling.tools.workspace import Workspace

MAX_PARALLEL = 8
WARN_AT, PAUSE_AT = 3, 5
MAX_TITLE_CHARS = 200
INTERRUPTED = "Interrupted by the user."
DENIED_WITH_ANOTHER = "Not run: the user denied another tool call of the same message."
NOTHING = Effect("", "none")
CUT_INPUT = "Your answer reached its limit{limit} inside this input, so {name} did not run and nothing was changed. {remedy}"
_REMEDIES = {
    "write": "Write the file in parts: `write` the first part, then add the others with `edit` and insert_at_line.",
    "edit": "Send fewer or smaller edits per call.",
    "bash": "Use a shorter command; put long text into a file, in parts, with `write` and `edit`.",
}


class _Use(msgspec.Struct):
    """A tool call in progress. It runs unless it has a `problem`. `effect` decides which other calls it waits for."""

    requested: ToolUse
    tool: Tool | None = None
    args: msgspec.Struct | None = None
    problem: str = ""
    effect: Effect = NOTHING
    only_reads: bool = False  # a command that changes neither files nor the shell
    title: str = ""
    note: str = ""  # about its input, for the model
    hooked: Verdict = NOT_HOOKED
    outcome: Outcome | None = None
    ended: anyio.Event = msgspec.field(default_factory=anyio.Event)


class Asking:
    """
    The permission questions for the tool calls of one message. A denial also denies the calls that have not started, unless it is alone.

    `is_shared`: more than one `ToolUses` runs the calls of the message.
    """

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self.is_denied = False
        self._open: set[anyio.CancelScope] = set()

    async def permit(self, gate: Gate, request: UseRequest) -> Permit:
        """
        Return when the call may run.

        Raises:
            DeniedError, ToolError, SandboxError: it may not run.
        """
        with anyio.CancelScope() as scope:
            if self.is_denied:
                raise NotAskedError(DENIED_WITH_ANOTHER)
            self._open.add(scope)
            try:
                return await gate.permit(request)
            except DeniedError as denied:
                if not denied.is_alone:
                    self.is_denied = True
                    for other in self._open - {scope}:
                        other.cancel()
                raise
            finally:
                self._open.discard(scope)
        raise NotAskedError(DENIED_WITH_ANOTHER)


class ToolUses:
    """Runs the tool calls of one turn. `emit` receives the events."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        workspace: Workspace,
        session: Session,
        gate: Gate,
        emit: Callable[[Event], None],
        *,
        hooks: SessionHooks | None = None,
        shows_calls: bool = False,
    ) -> None:
        self._tools = tools
        self._hooks = hooks
        self._shows_calls = shows_calls
        self._workspace = workspace
        self._session = session
        self._gate = gate
        self._emit = emit
        self._limiter = anyio.CapacityLimiter(MAX_PARALLEL)
        self._repeats = Counter[bytes]()
        self._repeated = ""
        self._paths: set[str] = set()
        self._uses: list[_Use] = []
        self._notes: dict[str, str] = {}  # by call id: ignored fields of its input
        self._asking = Asking()

    def repaired(self, use: ToolUse) -> ToolUse:
        """Return the call as it will run, and remember a note on what is ignored; unchanged if its input is invalid."""
        names = (use.name, use.name.lower(), own_name(use.name), own_name(use.name.capitalize()))
        name = next((each for each in names if each in self._tools), use.name.lower())
        if not (tool := self._tools.get(name)):
            return use
        try:
            repaired = msgspec.structs.replace(use, name=name, input=tool.repaired(use.input))
        except ToolError:
            return use
        if note := tool.note_on(use.input):
            self._notes[use.id] = note
        return repaired

    async def run(
        self, uses: Sequence[ToolUse], problems: Mapping[str, str], asking: Asking | None = None
    ) -> None:
        """
        Run `uses`; `results` returns their results, even after a cancellation.

        `problems` says, by id, why the input of a call could not be parsed. `asking` is passed if `uses` are only some of a message's calls.
        """
        self._asking = asking or Asking()
        self._uses = [_Use(use) for use in uses]  # each gets its result, whatever happens
        self._uses = [self._prepare(use, problems.get(use.id, "")) for use in uses]
        await self._run_hooks_before()
        self._find_what_only_reads()
        children = {use.requested.id for use in self._uses if use.effect.kind == "delegate"}
        screen = InLine(self._emit, aside=children)
        async with anyio.create_task_group() as tasks:
            for index, use in enumerate(self._uses):
                before = [earlier for earlier in self._uses[:index] if _depends(use, earlier)]
                tasks.start_soon(self._run_one, use, before, screen)

    def results(self) -> tuple[ToolResult, ...]:
        """Return the results in the order of the calls. The API rejects a history that lacks one."""
        return tuple(map(_result, self._uses, self.outcomes()))

    def outcomes(self) -> list[Outcome]:
        return [each.outcome or self._interrupted(each) for each in self._uses]

    def _interrupted(self, use: _Use) -> Outcome:
        so_far = self._workspace.take_interrupted(use.requested.id)
        return so_far or Outcome(content=INTERRUPTED, summary="stopped", is_error=True)

    def _prepare(self, requested: ToolUse, problem: str) -> _Use:
        requested = self.repaired(requested)
        tool = self._tools.get(requested.name)
        if tool is None:
            names = ", ".join(sorted(self._tools.keys() - UNLISTED))
            problem = f"There is no tool '{requested.name}'. There are: {names}."
        if tool is None or problem:
            return _Use(requested, problem=problem)
        try:
            args = tool.parse(requested.input)
            effect = tool.effect(args, self._workspace)
            title = _one_line(tool.title(args, self._workspace))
        except ToolError as error:
            return _Use(requested, problem=str(error))
        note = self._notes.pop(requested.id, "")
        return _Use(requested, tool, args, effect=effect, title=title, note=note)

    async def _run_hooks_before(self) -> None:
        """
        Run the hooks before the calls of the message, all at the same time; a hook may change a call's input.

        They run before any call does, because the order of the calls depends on what they are about.
        """
        if not (hooks := self._hooks):
            return

        before = (
            partial(hooks.before_use, "project"),
            hooks.call_before_use,
            partial(hooks.before_use, "user"),
        )

        async def run(index: int, use: _Use) -> None:
            for judge in before:
                called = use.requested
                if use.tool and not use.hooked.is_denied:
                    verdict = await judge(called.name, called.id, called.input, use.effect)
                    use = self._hooked(use, verdict)
            self._uses[index] = use

        async with anyio.create_task_group() as tasks:
            for index, use in enumerate(self._uses):
                if use.tool and not use.tool.is_elsewhere:
                    tasks.start_soon(run, index, use)

    def _hooked(self, use: _Use, verdict: Verdict) -> _Use:
        """Return the call with the verdict, and with the input that it gives."""
        both = use.hooked.and_also(verdict)
        if verdict.input is not None:
            use = self._prepare(msgspec.structs.replace(use.requested, input=verdict.input), "")
            text = msgspec.json.encode(use.requested.input).decode()
            note = f"[A hook changed the input of this call to {text}]"
            use.note = "\n".join(filter(None, (use.note, note)))
        use.hooked = both
        return use

    async def _run_hooks_after(self, use: _Use, outcome: Outcome) -> Outcome:
        """Return the outcome with what the hooks say to the model."""
        if not (self._hooks and use.tool) or use.tool.is_elsewhere or outcome.is_denied:
            return outcome
        requested = use.requested
        verdict = await self._hooks.after_use(
            requested.name, requested.id, requested.input, outcome, effect=use.effect
        )
        reason = verdict.reason if verdict.is_denied else ""
        said = [text for text in (use.hooked.context, reason, verdict.context) if text]
        if not said:
            return outcome
        text = "[From a hook:\n" + quoted("\n".join(said)) + "]"
        return msgspec.structs.replace(outcome, content=_with_text(outcome.content, text))

    def _find_what_only_reads(self) -> None:
        """Find the commands of the message that may run at the same time; one alone need not be looked at."""
        commands = [use for use in self._uses if use.effect.kind == "run"]
        if len(self._uses) == 1 or not commands:
            return
        for use in commands:
            use.only_reads = self._gate.only_reads(use.effect)

    async def _run_one(self, use: _Use, before: list[_Use], screen: InLine) -> None:
        requested = use.requested
        given = requested.input if self._shows_calls else None
        screen.show(ToolStarted(requested.id, requested.name, use.title, given))
        is_run = _is_command(use)
        in_order = [earlier for earlier in before if is_run and _is_command(earlier)]
        try:
            await _all_ended([earlier for earlier in before if earlier not in in_order])
            outcome = await self._outcome(use, in_order, screen)
            use.outcome = self._note_repeats(use, outcome)
            use.outcome = await self._run_hooks_after(use, use.outcome)
            use.outcome = await self._with_diagnostics(use, use.outcome)
            if use.note:
                content = _with_text(use.outcome.content, use.note)
                use.outcome = msgspec.structs.replace(use.outcome, content=content)
        finally:
            use.ended.set()
            use.outcome = outcome = use.outcome or self._interrupted(use)
            self._paths.add(use.effect.path)
            ending = _ending(requested.id, outcome, shows_result=self._shows_calls)
            is_last = all(other.ended.is_set() for other in self._uses)
            self._session.append(self._logged_ending(use, outcome, has_result=not is_last))
            screen.show(ending)
        if not is_last:  # then it may be long before the message is logged
            await self._session.log.synced()

    def _logged_ending(self, use: _Use, outcome: Outcome, *, has_result: bool) -> LoggedToolEnd:
        changed = outcome.changed if self._session.parent else ()
        return LoggedToolEnd(
            use.requested.id,
            use.title,
            outcome.summary,
            outcome.detail,
            outcome.filetype,
            outcome.is_error,
            outcome.is_denied,
            _result(use, outcome) if has_result else None,
            output_chars=outcome.output_chars,
            changed=tuple(each.path for each in changed),
        )

    async def _outcome(self, use: _Use, in_order: Sequence[_Use], screen: InLine) -> Outcome:
        if use.problem or use.tool is None:
            return _failure(use.problem)
        if use.hooked.is_denied:
            return _failure(DENIED_BY_HOOK.format(reason=use.hooked.reason), is_denied=True)
        try:
            request, permit = await self._permitted(use, use.tool, in_order)
            if _is_command(use) and not use.tool.is_elsewhere:
                mode = self._gate.mode
                await offer_to_save(self._workspace, use.requested.id)
                if self._gate.mode != mode and not permit.is_seen:  # the mode has allowed it
                    request, permit = await self._permitted(use, use.tool, in_order)
        except DeniedError as denied:
            return _denial(denied)
        except (ToolError, SandboxError) as error:
            return _failure(str(error), is_denied=isinstance(error, ForbiddenError))
        outcome, permit = await self._run_reviewed(request, permit, screen)
        granted = {*permit.grant.read_paths, *permit.grant.write_paths, *permit.grant.hosts}
        denials = [denial for denial in outcome.denials if denial.target not in granted]
        if not (outcome.is_error and denials):
            return outcome
        more, reasons = await self._gate.grant_prompts.offer(
            use.title, use.requested.id, use.tool.name, denials, request.effect.cwd
        )
        if more != NO_GRANT:
            permit = permit._replace(grant=permit.grant.and_also(more))
            outcome, _ = await self._run_reviewed(request, permit, screen)
            if request.effect.may_change_anything:
                outcome = _run_again(outcome, more)
        return _with_reasons(outcome, reasons)

    async def _with_diagnostics(self, use: _Use, outcome: Outcome) -> Outcome:
        """
        Return the outcome, with new diagnostics from language servers for the edits so far.

        Only the last edit of a message waits for diagnostics. Later ones are added to the last call that ends.
        """
        others = [other for other in self._uses if other is not use and not other.ended.is_set()]
        is_edit = use.effect.kind == "write"
        if any(not is_edit or other.effect.kind == "write" for other in others):
            return outcome
        if is_edit and outcome.is_error:
            await self._add_diagnostics_to_last_edit()
            return outcome
        found = await self._workspace.watches.take(self._workspace.editor, waits=is_edit)
        if not found:
            return outcome
        report = await diagnostic_report(found, self._workspace, self._gate.may_read())
        if not report.text:
            return outcome
        return msgspec.structs.replace(
            outcome,
            content=_with_text(outcome.content, report.text),
            summary=f"{outcome.summary} · {report.summary}" if is_edit else outcome.summary,
        )

    async def _add_diagnostics_to_last_edit(self) -> None:
        """Add new diagnostics to the last edit of the message that was made, because the last one was not."""
        made = (each for each in reversed(self._uses) if each.effect.kind == "write")
        for each in made:
            if each.outcome and not each.outcome.is_error:
                found = await self._workspace.watches.take(self._workspace.editor, waits=True)
                report = await diagnostic_report(found, self._workspace, self._gate.may_read())
                if report.text:
                    content = _with_text(each.outcome.content, report.text)
                    each.outcome = msgspec.structs.replace(each.outcome, content=content)
                return

    async def _request(self, use: _Use, tool: Tool) -> UseRequest:
        """Return the request for the current state: the shell's may have changed since the message arrived."""
        workspace, args = self._workspace, use.args
        if tool.plan and (self._gate.mode != "plan" or use.effect.kind != "write"):
            context = Context(
                workspace, use.requested.id, lambda _: None, may_read=self._gate.may_read()
            )
            args = await tool.plan(args, context)
        return UseRequest(
            use.requested.id,
            tool,
            args,
            tool.effect(args, workspace),
            tool.title(args, workspace),
            workspace.shell.now,
            workspace.sandbox.environment,
            is_of_several=self._asking.is_shared
            or any(other is not use and not other.ended.is_set() for other in self._uses),
            hooked=use.hooked.decision,
            hook_reason=use.hooked.reason,
            input=use.requested.input,
        )

    async def _permitted(
        self, use: _Use, tool: Tool, in_order: Sequence[_Use]
    ) -> tuple[UseRequest, Permit]:
        """
        Return the request and its permit when all commands `in_order` have ended.

        Raises:
            DeniedError, ToolError, SandboxError: it may not run.
        """
        if tool.is_elsewhere or any(map(_may_turn_the_shell, in_order)):
            await _all_ended(in_order)
        waits = any(not earlier.ended.is_set() for earlier in in_order)
        request = await self._request(use, tool)
        permit = await self._ask(request)
        if not waits:
            return request, permit
        await _all_ended(in_order)
        now = await self._request(use, tool)
        if self._asking.is_denied and not permit.is_seen:
            raise NotAskedError(DENIED_WITH_ANOTHER)
        is_same = now.effect == request.effect and now.environment is request.environment
        if not (is_same and permit.is_seen):
            return now, await self._ask(now)
        self._gate.judge(now)  # a rule or mode may deny it by now
        return now, permit

    async def _run_reviewed(
        self, request: UseRequest, permit: Permit, screen: InLine
    ) -> tuple[Outcome, Permit]:
        """Run the call. If it would overwrite unsaved changes, ask the user, as often as that happens."""
        while True:
            try:
                return await self._run_tool(request, permit, screen), permit
            except UnsavedConflictError as overlap:
                try:
                    permit = await self._gate.review(request, overlap, permit)
                except DeniedError as denied:
                    self._asking.is_denied = self._asking.is_denied or not denied.is_alone
                    content = f"{denied}\n{overlap}"
                    return msgspec.structs.replace(_denial(denied), content=content), permit

    async def _run_tool(self, request: UseRequest, permit: Permit, screen: InLine) -> Outcome:
        tool_use_id, workspace = request.tool_use_id, self._workspace
        made: Sequence[FileChange] = ()
        try:
            is_long = request.tool.waits_for_user or request.effect.kind == "delegate"
            limiter = nullcontext() if is_long else self._limiter
            async with limiter, workspace.sandbox.environment.lending(permit.grant):
                request.check_ground(workspace)
                if not request.tool.waits_for_user:
                    self._session.append(LoggedToolStart(tool_use_id))
                context = Context(
                    workspace.granted(permit.grant),
                    tool_use_id,
                    lambda text: screen.show(ToolOutput(tool_use_id, text)),
                    shell=request.shell,
                    may_read=permit.may_read,
                    overruled=permit.overruled,
                    accepted=permit.accepted,
                    is_seen=permit.is_seen,
                    together=self._uses[0].requested.id if len(self._uses) > 1 else "",
                )
                async with AsyncExitStack() as running:
                    # Syncing the log takes as long as scanning the project, so do both at once.
                    async with anyio.create_task_group() as beginning:
                        # These two may safely run twice.
                        if request.effect.kind not in ("none", "read"):
                            beginning.start_soon(self._session.log.synced)
                        made = await running.enter_async_context(self._journaled(request))
                    request.check_ground(workspace)  # both may have taken a while
                    outcome = await request.tool.run(request.args, context)
            if request.effect.may_change_anything and workspace.editor:
                await workspace.editor.files_changed(())
        except AccessRefusedError as refused:
            return msgspec.structs.replace(_failure(str(refused)), denials=(refused.denial,))
        except UnsavedConflictError:
            raise
        except (ToolError, SandboxError) as error:
            return _failure(str(error))
        else:
            return await self._with_changed(outcome, made)

    async def _with_changed(self, outcome: Outcome, made: Sequence[FileChange]) -> Outcome:
        """Return the outcome with the lines that a command changed."""
        if not made:
            return outcome
        from sanderling.conversation.undo.counting import changed_lines

        changed = await to_thread.run_sync(changed_lines, made, self._workspace)
        return msgspec.structs.replace(outcome, changed=(*outcome.changed, *changed))

    def _journaled(self, request: UseRequest) -> AbstractAsyncContextManager[Sequence[FileChange]]:
        """Return the context to run the call in. It records which files a command changes, and their previous content."""
        workspace = self._workspace
        is_command = request.effect.may_change_anything and not request.tool.is_elsewhere
        if not is_command or not workspace.sandbox.can_write:
            return nullcontext(())
        return workspace.changes.during(workspace.environment, request.tool_use_id)

    async def _ask(self, request: UseRequest) -> Permit:
        if request.tool.is_elsewhere:
            self._gate.check_role(request.tool.name)
            return Permit()
        return await self._asking.permit(self._gate, request)

    def _note_repeats(self, use: _Use, outcome: Outcome) -> Outcome:
        """Add a warning to the result if the model repeats the same call with the same result."""
        made = msgspec.json.encode((use.requested.name, use.requested.input, outcome.content))
        key = blake2b(made).digest()
        self._repeats[key] += 1
        count = self._repeats[key]
        if count >= PAUSE_AT:
            self._repeated = f"{use.requested.name} {use.title}"
            del self._repeats[key]
        if count < WARN_AT:
            return outcome
        warning = (
            f"You have made this identical call {count} times this turn with the same result."
            " Try something else, or explain what blocks you."
        )
        return msgspec.structs.replace(outcome, content=_with_text(outcome.content, warning))

    def take_paths(self) -> set[str]:
        """Return the files and directories of the tool calls since the last time."""
        paths, self._paths = self._paths - {""}, set()
        return paths

    def take_repeated(self) -> str:
        """Return, in one line, the call that the model has kept repeating since the last time, or ""."""
        repeated, self._repeated = self._repeated, ""
        return repeated


_WAITING = {
    "write": ("run", "look", "call", "delegate"),
    "read": ("run", "call"),
    "run": ("write", "read", "run", "look", "call", "jobs", "stop", "delegate"),
    "look": ("write", "run", "call", "stop"),
    "call": ("write", "read", "run", "look", "stop", "delegate"),
    "stop": ("run", "look", "call"),
}
"""For each kind of call, the kinds that wait for it if they come later in the message."""


def _depends(use: _Use, earlier: _Use) -> bool:
    """Return whether `use` may see or undo the effects of `earlier`."""
    if use.effect.tool == earlier.effect.tool == DEBUG:  # one program
        return True
    if use.effect.terminal and earlier.effect.terminal:  # maybe parts of one line
        return True
    match _kind(earlier), _kind(use):
        case ("write", "write") | ("write", "read") | ("read", "write"):
            paths = earlier.effect.path, use.effect.path  # searches include everything below
            return is_within(*paths) or is_within(*reversed(paths))
        case "run", "fetch":  # from a server that the command starts or stops
            return is_loopback(split_authority(use.effect.host)[0])
        case before, now:
            return now in _WAITING.get(before, ())


def _kind(use: _Use) -> str:
    """Return the kind of effect. A third-party tool may read and write anything; a command may "look" only."""
    if use.requested.name == "jobs":
        return "stop" if getattr(use.args, "action", "") == "stop" else "jobs"
    reads = use.only_reads or use.effect.does == "read"
    return "look" if reads else use.effect.kind


def _is_command(use: _Use) -> bool:
    return use.effect.may_change_anything


def _may_turn_the_shell(use: _Use) -> bool:
    """Return whether a command may change the directory or variables of those after it, and so the question about them."""
    return (
        re.search(r"\b(cd|pushd|popd|export|declare|unset|source)\b", use.effect.command)
        is not None
    )


async def _all_ended(uses: Sequence[_Use]) -> None:
    for use in uses:
        await use.ended.wait()


def cut_input(use: ToolUse, tokens: int) -> str:
    """Describe an input that ends where the answer reached its limit of `tokens`; 0: the context window is full."""
    limit = f" of {tokens:,} tokens" if tokens else ": the context window is full"
    remedy = _REMEDIES.get(use.name, "Send a shorter input, in several calls if needed.")
    return CUT_INPUT.format(limit=limit, name=use.name, remedy=remedy)


def _failure(message: str, *, is_denied: bool = False) -> Outcome:
    summary = "denied" if is_denied else "failed"
    return Outcome(
        content=message, summary=summary, detail=message, is_error=True, is_denied=is_denied
    )


def _denial(denied: DeniedError) -> Outcome:
    is_denied = not isinstance(denied, NotAskedError)
    return Outcome(
        content=str(denied),
        summary="denied" if is_denied else "not run",
        detail=denied.reason,
        is_error=True,
        is_denied=is_denied,
    )


def _ending(use_id: str, outcome: Outcome, *, shows_result: bool) -> ToolEnded:
    return ToolEnded(
        use_id,
        outcome.summary,
        outcome.detail,
        outcome.filetype,
        outcome.is_error,
        outcome.is_denied,
        outcome.job,
        outcome.changed,
        text_of(outcome.content) if shows_result else "",
    )


def _result(use: _Use, outcome: Outcome) -> ToolResult:
    return ToolResult(use.requested.id, outcome.content, outcome.is_error)


def _run_again(outcome: Outcome, grant: Grant) -> Outcome:
    allowed = ", ".join((*grant.read_paths, *grant.write_paths, *grant.hosts))
    note = (
        f"[Run again with {printable(allowed)} allowed; the output of the first run is left out.]"
    )
    return msgspec.structs.replace(outcome, content=_with_text(outcome.content, note))


def _with_reasons(outcome: Outcome, reasons: Sequence[str]) -> Outcome:
    """Add why what the sandbox blocked was not allowed, for the model and the screen."""
    if not reasons:
        return outcome
    text = "\n".join(f"[{reason}]" for reason in reasons)
    return msgspec.structs.replace(
        outcome,
        content=_with_text(outcome.content, text),
        detail=f"{outcome.detail.rstrip()}\n{text}".lstrip("\n"),
    )


def _with_text(content: Content, text: str) -> Content:
    return f"{content}\n\n{text}" if isinstance(content, str) else (*content, TextBlock(text))


def _one_line(text: str) -> str:
    line = " ".join(printable(text).split())
    return shortened(line, MAX_TITLE_CHARS)
