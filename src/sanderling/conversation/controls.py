"""The user's controls of an open session: model, mode, network, title, trusted files, jobs."""

from collections.abc import Callable
from contextlib import suppress

from sanderling.conversation.parts import Parts
from sanderling.conversation.reviewing import Reviews
from sanderling.errors import ConfigError, ProviderError, SandboxError, ToolError
from sanderling.protocol.actions import NoteReviewed, NoteUsage, RejectChanges
from sanderling.protocol.events import ModelChanged, TitleChanged
from sanderling.protocol.modes import Mode, NetworkMode


class Controls:
    """The controls of one session. A setting that fails keeps its value, and the user gets a warning."""

    def __init__(self, parts: Parts, reviews: Reviews, declare_servers: Callable[[], None]) -> None:
        self._parts = parts
        self._reviews = reviews
        self._declare_servers = declare_servers

    def set_model(self, model: str) -> None:
        """Use `model` from the next request on."""
        provider, before = self._parts.provider, self._parts.provider.model
        if model != before:
            try:
                provider.set_model(model)
            except ConfigError as error:
                self._parts.warn(f"Keeping {before}: {error}")
                return
        if provider.model != before:
            self._parts.session.switch_model(provider.model)
            self._parts.tasks.start(self._learn_limits)
        self._parts.emit(ModelChanged(provider.model))

    async def _learn_limits(self) -> None:
        with suppress(ProviderError):
            await self._parts.provider.prepare()
            await self._parts.provider.learn_limits()

    def set_mode(self, mode: Mode) -> None:
        self._parts.gate.set_mode(mode)
        self._parts.memory.keep()
        jobs = [job.id for job in self._parts.workspace.jobs.all() if job.is_running]
        if mode == "plan" and jobs:
            text = f"Jobs started earlier can still write to the project: {', '.join(jobs)}."
            self._parts.warn(text)

    def note_done(self, action: RejectChanges | NoteReviewed | NoteUsage) -> None:
        """Record what happened in the editor: rejected or reviewed changes, and tokens used by an inline edit."""
        match action:
            case RejectChanges():
                self._parts.notes.add_rejected(action)
                self._parts.memory.keep()
            case NoteReviewed():
                self._parts.tasks.start(self._reviews.note, action)
            case NoteUsage(model, usage):
                self._parts.calls.note_aside(model, usage)
                if not self._parts.waiting.is_in_turn:  # a turn reports it with its own usage
                    self._parts.calls.show_usage()

    def set_network(self, mode: NetworkMode) -> None:
        self._parts.tasks.start(self._set_network, mode)

    async def _set_network(self, mode: NetworkMode) -> None:
        try:
            await self._parts.gate.set_network(mode)
        except SandboxError as error:
            self._parts.warn(f"The network stays {self._parts.sandbox.facts.network}. {error}")

    def set_title(self, title: str) -> None:
        session = self._parts.session
        session.keep_state("title", title)
        self._parts.emit(TitleChanged(session.title))

    def trust_files(self, hashes: dict[str, str]) -> None:
        try:
            self._parts.project.trust_files(hashes)
        except ConfigError as error:
            self._parts.warn(str(error))
        else:
            self._declare_servers()
            self._parts.tell_commands()

    def stop_job(self, job_id: str) -> None:
        self._parts.tasks.start(self._stop_job, job_id)

    async def _stop_job(self, job_id: str) -> None:
        with suppress(ToolError):
            await self._parts.workspace.jobs.find(job_id).stop()
