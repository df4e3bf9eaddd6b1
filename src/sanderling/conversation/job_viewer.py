"""What one frontend watches of a session's jobs, and which of their terminals its user has."""

import codecs
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from sanderling.conversation.services import SessionServices
from sanderling.errors import ToolError
from sanderling.protocol.actions import ResizeTerminal, TypeInTerminal, UseTerminal, WatchJob
from sanderling.protocol.events import Event, JobOutput
from sanderling.tools.commands.jobs import Job

if TYPE_CHECKING:
    from sanderling.tools.commands.terminal import Terminal

MAX_CHUNK_BYTES = 16 * 1024  # Neovim shows 64 kB of line breaks in 90 ms
MAX_REPLAYED_BYTES = 1 << 20  # of a job's output before it was watched
WATCH_PAUSE_S = 0.01


class JobViewer:
    """The jobs as one frontend shows them. Its user hands back a terminal that the frontend shows no longer."""

    def __init__(self, services: SessionServices, emit: Callable[[Event], None]) -> None:
        self._services = services
        self._emit = emit
        self._watched: dict[str, anyio.CancelScope] = {}

    def watch(self, action: WatchJob) -> None:
        self._stop_watching(action.id)
        if action.is_on:
            scope = self._watched[action.id] = anyio.CancelScope()
            self._services.tasks.start(self._show, action.id, scope)
        else:
            self._hand_back(action.id)

    def use(self, action: UseTerminal | TypeInTerminal | ResizeTerminal) -> None:
        with suppress(ToolError):  # it has ended meanwhile
            terminal = self._services.workspace.jobs.find_terminal(action.id)
            match action:
                case UseTerminal(_, "take"):
                    terminal.take(self)
                case UseTerminal(_, "hand_back"):
                    terminal.hand_back(self)
                case UseTerminal():
                    terminal.reveal()
                case TypeInTerminal(_, data):
                    terminal.type(data)
                case ResizeTerminal(_, rows, columns):
                    terminal.resize(rows, columns)

    def close(self) -> None:
        """Note that the frontend is gone."""
        for job_id in tuple(self._watched):
            self._stop_watching(job_id)
        for job in self._services.workspace.jobs.all():
            self._hand_back(job.id)

    def _hand_back(self, job_id: str) -> None:
        with suppress(ToolError):
            self._services.workspace.jobs.find_terminal(job_id).hand_back(self)

    def _stop_watching(self, job_id: str) -> None:
        if scope := self._watched.pop(job_id, None):
            scope.cancel()

    async def _show(self, job_id: str, scope: anyio.CancelScope) -> None:
        """Show the job's output so far, and new output as it comes."""
        with suppress(ToolError), scope:
            job = self._services.workspace.jobs.find_shown(job_id)
            if job.terminal:
                await self._draw(job, job.terminal)
            else:
                await self._replay(job, job_id)

    async def _draw(self, job: Job, terminal: "Terminal") -> None:
        from sanderling.tools.commands.drawing import FRAME_S, Drawing  # rarely needed

        drawing = Drawing(terminal)
        while True:
            if text := drawing.update():
                self._emit(JobOutput(job.id, text))
            if not job.is_running:
                return
            await terminal.next_change()
            await anyio.sleep(FRAME_S)

    async def _replay(self, job: Job, shown_id: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        offset = max(0, job.log.total_bytes - MAX_REPLAYED_BYTES)
        while True:
            await job.wait_for_bytes(offset)
            if not (chunk := job.log.read(offset, MAX_CHUNK_BYTES)):
                return
            offset += len(chunk)
            self._emit(JobOutput(shown_id, decode(chunk)))
            await anyio.sleep(WATCH_PAUSE_S)
