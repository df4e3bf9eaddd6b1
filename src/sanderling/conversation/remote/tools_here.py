"""
Tools that run here for a remote conversation: the remote side calls the model, and files and commands are local.

Sandbox, rules, mode, questions and journal are local, too. Tools run only within a turn, which a prompt of the user started. Whatever the
remote side does not report correctly is reported here. Each request runs once: its answer is kept until the turn has ended, and if
another process continues the session, the log knows what was started.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import msgspec

from sanderling.acp.client.local_turn import LocalTurn
from sanderling.acp.wire.client_tools import OUTPUT, RUN, ToolAnswer, ToolOutput, ToolRequest
from sanderling.acp.wire.connection import Method
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import INTERNAL_ERROR, RpcError, invalid
from sanderling.conversation.sandbox_news import shown_sandbox
from sanderling.conversation.services import SessionServices
from sanderling.conversation.tool_uses import Asking, ToolUses
from sanderling.project.project import Project
from sanderling.protocol import events
from sanderling.protocol.messages import Prompt, ToolResult, ToolUse
from sanderling.session.records import LoggedToolEnd, is_session_id
from sanderling.tools.catalog import Catalog, OwnTools
from sanderling.tools.outcome import Outcome

MAX_RUNNING = 32
MAX_USES = 5_000  # in one turn: each is kept and logged
NO_TURN = "no tool runs here: no turn has started"
NO_SERVERS = "Its model does not know your tool servers, only the built-in tools."
HERE = "{name} keeps the conversation and asks the model. Its tools run here: in this project, by your rules, in this machine's sandbox."


class _RemoteUse:
    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answer: ToolAnswer | None = None
        self.ended = anyio.Event()
        self.output = ""  # the output shown so far


ShowStarted = Callable[[str, events.ToolStarted], Coroutine[Any, Any, None]]
"""Makes sure that the user is shown a call that starts; its id is the remote side's."""


class LocalTools:
    """The tools of the session of `services`. `notify` sends a notification to the remote side."""

    def __init__(
        self,
        services: SessionServices,
        notify: Callable[[str, object], None],
        show_started: ShowStarted,
        turn: LocalTurn,
    ) -> None:
        self.are_wanted = False
        self._services = services
        self._notify = notify
        self._show_started = show_started
        self._turn = turn
        self._uses: dict[str, _RemoteUse] = {}
        self._asking: dict[str, Asking] = {}
        self._life = ""
        self._catalog = Catalog(OwnTools(), disabled=services.settings.tools_disabled)

    @property
    def name(self) -> str:
        """The id by which the remote side recognizes this client."""
        return self._services.session.id

    def begin(self) -> None:
        """Run tools here from now on, as the remote side requested."""
        if self.are_wanted:
            return
        self.are_wanted = True
        services = self._services
        services.project = Project(services.settings, services.session.project)
        services.notes.read(services.project.instructions, has_todo=False)
        services.tasks.start(services.sandbox.manager.serve)
        services.tasks.start(services.sandbox.manager.find_level)
        services.emit(shown_sandbox(services.sandbox))

    def notes_with(self, prompt: Prompt, life: str) -> tuple[str, ...]:
        """Return the notes to send with a prompt. In another `life` of the session everything is sent again."""
        if not self.are_wanted:
            return ()
        if life != self._life:
            self._life = life
            self.forget()
        return tuple(self._services.notes.with_prompt(prompt))

    def forget(self) -> None:
        """Send everything again with the next prompt, because the last notes may not have arrived."""
        self._services.notes.forget()

    def begin_turn(self, prompt_id: str) -> None:
        if self.are_wanted:
            self._services.workspace.journal.begin_turn(prompt_id)

    async def end_turn(self) -> None:
        """Cancel the calls that are still running."""
        for use in tuple(self._uses.values()):
            use.scope.cancel()
        for use in tuple(self._uses.values()):
            await use.ended.wait()
        self._uses.clear()
        self._asking.clear()
        if self.are_wanted:
            self._services.sandbox.look_after("", has_failed=False)

    # --- requests ----------------------------------------------------------------------------------------------------------

    def methods(self) -> Mapping[str, Method]:
        return {RUN: Method(self._run, on_cancel=self._cancel)}

    def _cancel(self, params: msgspec.Raw) -> None:
        if use := self._uses.get(decoded(params, ToolRequest).id):
            use.scope.cancel()

    async def _run(self, params: msgspec.Raw) -> ToolAnswer:
        request = decoded(params, ToolRequest)
        if not self.are_wanted or not is_session_id(request.id):
            raise invalid("no tool runs here")
        if not await self._turn.is_running():
            raise invalid(NO_TURN)
        if use := self._uses.get(
            request.id
        ):  # requested again, after a disconnect that may have lost output
            self._notify(OUTPUT, ToolOutput(request.session_id, request.id, use.output, start=0))
        else:
            use = self._begin(request)
        await use.ended.wait()
        if use.answer is None:
            raise RpcError(INTERNAL_ERROR, "it failed")
        return use.answer

    def _begin(self, request: ToolRequest) -> _RemoteUse:
        if sum(not use.ended.is_set() for use in self._uses.values()) >= MAX_RUNNING:
            raise invalid(f"{MAX_RUNNING} tools are running already")
        if len(self._uses) >= MAX_USES:
            raise invalid(f"{MAX_USES:,} tools ran in this turn")
        use = self._uses[request.id] = _RemoteUse()
        if known := self._services.session.ran.begun(request.id):
            use.answer = ToolAnswer(content=known.content, is_error=known.is_error)
            use.ended.set()
        else:
            self._services.tasks.start(self._use, request, use)
        return use

    async def _use(self, request: ToolRequest, use: _RemoteUse) -> None:
        services = self._services
        reports = anyio.create_task_group()

        def show(event: events.Event) -> None:
            match event:
                case events.ToolStarted():
                    reports.start_soon(self._show_started, request.tool_use_id, event)
                case events.ToolOutput(text=text):
                    piece = ToolOutput(request.session_id, request.id, text, start=len(use.output))
                    use.output += text
                    self._notify(OUTPUT, piece)
                case _:
                    pass

        try:
            tools = (await self._catalog.so_far()).by_name
            tool_uses = ToolUses(tools, services.workspace, services.session, services.gate, show)
            asking = self._asking_of(request.together)
            async with reports:  # finishes even if the call is cancelled
                with use.scope:
                    if services.sandbox.can_write:
                        await services.workspace.changes.look_ahead(services.sandbox.environment)
                    use_here = ToolUse(request.id, request.name, request.input)
                    await tool_uses.run([use_here], {}, asking)
            [outcome] = tool_uses.outcomes() or [Outcome(content="", is_error=True)]
            notes = services.notes.with_results(tool_uses.take_paths())
            use.answer = _answer(outcome, notes)
            result = ToolResult(request.id, outcome.content, outcome.is_error)
            services.session.append(LoggedToolEnd(request.id, result=result))
        finally:
            use.ended.set()

    def _asking_of(self, together: str) -> Asking:
        """Return the questions of a message; its calls arrive one by one."""
        shared = Asking(is_shared=together != "")
        return self._asking.setdefault(together, shared) if together else shared


def _answer(outcome: Outcome, notes: list[str]) -> ToolAnswer:
    return ToolAnswer(
        content=outcome.content,
        summary=outcome.summary,
        detail=outcome.detail,
        filetype=outcome.filetype,
        is_error=outcome.is_error,
        is_denied=outcome.is_denied,
        notes=notes or None,
        output_chars=outcome.output_chars,
    )
