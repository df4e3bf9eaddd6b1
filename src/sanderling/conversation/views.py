"""Read-only views of a conversation, as events or as a single answer."""

import codecs
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import to_thread

from sanderling.conversation.services import SessionServices
from sanderling.conversation.undo.reviewing import Reviews
from sanderling.conversation.undo.undoing import Undoer
from sanderling.errors import SanderlingError, SessionError, ToolError
from sanderling.permissions.guarding import absolute
from sanderling.project.roles import SkippedRole, by_name
from sanderling.protocol import requests
from sanderling.protocol.actions import FROM_END, Action, ShowEarlier, WatchJob
from sanderling.protocol.events import Event, JobOutput, SessionOpened, TodoChanged
from sanderling.protocol.messages import Usage, text_of
from sanderling.session.history_pager import HistoryPager
from sanderling.text import counted
from sanderling.tools.commands.jobs import Job

if TYPE_CHECKING:
    from sanderling.tools.commands.terminal import Terminal

MAX_CHUNK_BYTES = 16 * 1024  # Neovim shows 64 kB of line breaks in 90 ms
MAX_REPLAYED_BYTES = 1 << 20  # of a job's output before it was watched
WATCH_PAUSE_S = 0.01


class SessionViews:
    """
    The views of one session.

    `external` is the name of the external agent that answers, if any. `emit` gets the events that answer an action, if it is not the
    session's.
    """

    def __init__(
        self,
        services: SessionServices,
        undoer: Undoer,
        reviews: Reviews,
        external: str,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        self._services = services
        self._emit = emit or services.emit
        self._undoer = undoer
        self._reviews = reviews
        self.external = external
        self._watched: dict[str, anyio.CancelScope] = {}
        self._pages: HistoryPager | None = None
        self._paging = anyio.Lock()

    def seen_by(self, emit: Callable[[Event], None]) -> "SessionViews":
        """Return the same views for another frontend of the session."""
        return SessionViews(self._services, self._undoer, self._reviews, self.external, emit)

    def show(self, action: Action) -> None:
        """Show what `action` requests, as events; ignore other actions."""
        start = self._services.tasks.start
        match action:
            case WatchJob(job_id, is_on):
                self._stop_watching(job_id)
                if is_on:
                    self._services.workspace.jobs.note_viewer(job_id, self)
                    start(self._watch_job, job_id)
                else:
                    self._services.workspace.jobs.hand_back(job_id, self)
            case ShowEarlier(before):
                start(self._show_earlier, before)
            case _:
                pass

    async def answer(self, request: requests.SessionRequest) -> requests.Answer:  # noqa: C901, PLR0911, PLR0912 - one table
        """
        Answer `request`.

        Raises:
            SanderlingError: there is no answer.
        """
        match request:
            case requests.ListModels(_, scope):
                from sanderling.conversation import choosing  # separate, because this is used often

                return await choosing.models(self._services, scope)
            case requests.ListEfforts():
                return requests.Efforts(("default", *self._services.provider.efforts))
            case requests.ListRoles():
                return await to_thread.run_sync(self._roles)
            case requests.TestProvider() | requests.ShowUsage() | requests.ShowSettings():
                from sanderling.conversation import reports  # has imports that only reports need

                return await reports.answer(self._services, request)
            case requests.ShowTrust():
                return await to_thread.run_sync(self._services.project.trust.shown)
            case requests.ListToolServers():
                return requests.ToolServers(self._services.servers.shown())
            case requests.ShowToolServer(_, name):
                return self._services.servers.details(name)
            case requests.ListRules():
                return self._services.gate.shown_rules(self._services.settings.layers)
            case requests.ListSkills():
                return await to_thread.run_sync(self._services.project.skills.page)
            case requests.CheckMentions(_, paths):
                return self._kept(paths)
            case requests.InspectToolUse(_, tool_use_id):
                return await self._tool_use(tool_use_id)
            case requests.ListChanges(_, turn):
                return await self._undoer.changes(turn)
            case requests.ShowDifference():
                return await self._difference(request)
            case requests.ShowEdits(_, turn, paths):
                return await self._undoer.edits(turn, paths)
            case requests.PreviewRewind(_, prompt_id):
                return await self._undoer.preview(prompt_id)
            case requests.RepeatPrompt():
                from sanderling.conversation.undo import repeating  # runs git

                return await repeating.repeat(self._services, self._undoer, request)
            case requests.ShowResult():
                from sanderling.conversation.undo import repeating

                return await repeating.result(self._services, self._undoer, request)

    # --- opening -------------------------------------------------------------------------------------------------------

    async def show_opened(self, *, has_history: bool) -> None:
        """Show the session that was just opened, with its latest history if `has_history`."""
        await self.show_session(has_history=has_history)
        self.show_damage()
        self.show_state()
        self._services.tell_commands()

    async def show_session(self, *, has_history: bool) -> None:
        """Show which session it is, with the latest of what it was before it was opened if `has_history`."""
        model, session = self._services.provider.model, self._services.session
        opened = SessionOpened(
            model,
            session.title,
            session.is_resumed,
            self.external,
            session.parent,
            session.worktree,
        )
        self._emit(opened)
        if session.is_resumed and has_history:
            await self._show_earlier()

    def show_damage(self) -> None:
        """Warn of lines of the log that could not be read."""
        if count := self._services.session.log.damaged_lines:
            text = f"Skipped {counted(count, 'damaged line')} of the session's log."
            self._services.warn(text)

    def show_state(self) -> None:
        """Show the current state of everything that can change in a session."""
        services = self._services
        if problem := services.project.trust.problem:
            services.warn(problem)
        services.tell_untrusted()
        if services.waiting:
            services.emit(services.waiting.shown())
        if items := services.workspace.todo.items:
            services.emit(TodoChanged(items))
        if services.role.role:
            services.emit(services.role.shown())
        if services.calls.effort.state() != "default":
            services.emit(services.calls.effort.shown())
        if services.session.ledger.total != Usage():
            services.calls.show_usage()

    # --- details -------------------------------------------------------------------------------------------------------

    async def _show_earlier(self, before: int | None = None) -> None:
        async with self._paging:  # one at a time
            if before == FROM_END:
                self._pages = HistoryPager(
                    self._services.session, has_calls=self._services.shows_calls
                )
            elif self._pages is None:
                # with `before`, the process that showed the latest history is gone
                self._pages = HistoryPager(
                    self._services.session, before, has_calls=self._services.shows_calls
                )
            try:
                self._emit(await to_thread.run_sync(self._pages.take))
            except SanderlingError as error:
                self._services.warn(f"Cannot load earlier history: {error}")

    async def _difference(self, request: requests.ShowDifference) -> requests.FilesBefore:
        if request.what == "unreviewed":
            return await self._reviews.before(request.path)
        found = await self._undoer.before(request.what, request.path)
        found = await self._reviews.with_reviewed(found)
        if request.has_reasons:
            from sanderling.conversation.undo.reasons import with_reasons  # only a walk needs them

            log = self._services.session.log
            found = await with_reasons(found, self._services.workspace.journal, log)
        return found

    def _roles(self) -> requests.Roles:
        found = self._services.project.roles.found()
        shown = (
            requests.ShownRole(
                each.name,
                each.description,
                each.source,
                each.tools_in_words() if each.is_restricting else "",
                each.problems,
            )
            for _, each in sorted(by_name(found).items())
        )
        skipped = (each for each in found if isinstance(each, SkippedRole))
        return requests.Roles(
            tuple(shown), tuple(f"{each.origin}: {each.problem}" for each in skipped)
        )

    def _kept(self, paths: tuple[str, ...]) -> requests.KeptFiles:
        may_read, project = self._services.gate.may_read(), self._services.session.work_dir
        kept = (path for path in paths if may_read and not may_read(absolute(path, project)))
        return requests.KeptFiles(tuple(kept))

    async def _tool_use(self, tool_use_id: str) -> requests.WholeToolUse:
        find = self._services.session.log.find_tool_use
        try:
            use, result = await to_thread.run_sync(find, tool_use_id)
        except SessionError as error:
            raise SessionError(f"Cannot show the tool call: {error}") from error
        if not use:
            raise SessionError("Cannot show the tool call: the model is still writing it.")
        shown = text_of(result.content) if result else "No result yet."
        data = msgspec.json.format(msgspec.json.encode(use.input)).decode()
        return requests.WholeToolUse(use.name, data, shown)

    async def _draw_terminal(self, job: Job, terminal: "Terminal") -> None:
        from sanderling.tools.commands.drawing import FRAME_S, Drawing  # rarely needed

        drawing = Drawing(terminal)
        while True:
            if text := drawing.update():
                self._emit(JobOutput(job.id, text))
            if not job.is_running:
                return
            await terminal.next_change()
            await anyio.sleep(FRAME_S)

    def close(self) -> None:
        """Watch no job any more, because the frontend is gone."""
        for job_id in [*self._watched]:
            self._stop_watching(job_id)
            self._services.workspace.jobs.hand_back(job_id, self)

    def _stop_watching(self, job_id: str) -> None:
        if scope := self._watched.pop(job_id, None):
            scope.cancel()

    async def _watch_job(self, job_id: str) -> None:
        """Show the job's output so far, and new output as it comes."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with suppress(ToolError), anyio.CancelScope() as scope:
            job = self._services.workspace.jobs.find_shown(job_id)
            self._watched[job_id] = scope
            if job.terminal:
                await self._draw_terminal(job, job.terminal)
                return
            offset = max(0, job.log.total_bytes - MAX_REPLAYED_BYTES)
            while True:
                await job.wait_for_bytes(offset)
                if not (chunk := job.log.read(offset, MAX_CHUNK_BYTES)):
                    return
                offset += len(chunk)
                self._emit(JobOutput(job_id, decode(chunk)))
                await anyio.sleep(WATCH_PAUSE_S)
