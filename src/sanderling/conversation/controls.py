"""The user's controls of an open session: model, mode, network, title, trusted files, jobs."""

from collections.abc import Callable
from contextlib import suppress

from sanderling.conversation.services import SessionServices
from sanderling.conversation.undo.reviewing import Reviews
from sanderling.errors import ConfigError, ProviderError, SandboxError, ToolError
from sanderling.protocol.actions import (
    AnswerApproval,
    NoteReviewed,
    NoteUsage,
    RejectChanges,
)
from sanderling.protocol.events import ModelChanged, Notice, TitleChanged
from sanderling.protocol.modes import Effort, Mode, NetworkMode


class Controls:
    """The controls of one session. A setting that fails keeps its value, and the user gets a warning."""

    def __init__(
        self, services: SessionServices, reviews: Reviews, declare_servers: Callable[[], None]
    ) -> None:
        self._services = services
        self._reviews = reviews
        self._declare_servers = declare_servers

    def set_model(self, model: str) -> None:
        """Use `model` from the next request on."""
        provider, before = self._services.provider, self._services.provider.model
        if model != before:
            try:
                provider.set_model(model)
            except ConfigError as error:
                self._services.warn(f"Keeping {before}: {error}")
                return
        if provider.model != before:
            self._services.session.switch_model(provider.model)
            self._services.tasks.start(self._learn_limits)
            if before == "demo":  # otherwise the transcript ends with the notice of a missing key
                text = f"{provider.model} answers from now on, not the demo model."
                self._services.emit(Notice("info", text))
        self._services.emit(ModelChanged(provider.model))

    def set_effort(self, effort: Effort, *, is_once: bool) -> None:
        """Use `effort` from the next request on, or in the next turn only."""
        try:
            self._services.calls.effort.choose(effort, is_once=is_once)
        except ConfigError as error:
            self._services.warn(str(error))
        else:
            self._services.memory.keep()

    async def _learn_limits(self) -> None:
        with suppress(ProviderError):
            await self._services.provider.prepare()
            await self._services.provider.learn_limits()

    def set_mode(self, mode: Mode) -> None:
        self._services.gate.set_mode(mode)
        self._services.memory.keep()
        jobs = [job.id for job in self._services.workspace.jobs.all() if job.is_running]
        if mode == "plan" and jobs:
            text = f"Jobs started earlier can still write to the project: {', '.join(jobs)}."
            self._services.warn(text)

    def set_role(self, name: str) -> None:
        try:
            self._services.role.choose(name)
        except ConfigError as error:
            self._services.warn(str(error))
        self._services.memory.keep()

    def answer(self, answer: AnswerApproval) -> None:
        """Settle a question, or pass the answer on to the child that asks. Accepting a plan switches the mode."""
        if "/" in answer.id and (children := self._services.workspace.children):
            children().answer(answer)
        approvals = self._services.approvals
        if mode := approvals.mode_chosen(answer):
            self.set_mode(mode)
        approvals.answer(answer)

    def note_done(self, action: RejectChanges | NoteReviewed | NoteUsage) -> None:
        """Record what happened in the editor: rejected or reviewed changes, and tokens used by an inline edit."""
        match action:
            case RejectChanges():
                self._services.notes.add_rejected(action)
                self._services.memory.keep()
            case NoteReviewed():
                self._services.tasks.start(self._reviews.note, action)
            case NoteUsage(model, usage):
                self._services.calls.note_aside(model, usage)
                if not self._services.waiting.is_in_turn:  # a turn reports it with its own usage
                    self._services.calls.show_usage()

    async def set_network(self, mode: NetworkMode) -> None:
        try:
            await self._services.gate.set_network(mode)
        except SandboxError as error:
            self._services.warn(
                f"The network stays {self._services.sandbox.facts.network}. {error}"
            )

    def set_title(self, title: str) -> None:
        session = self._services.session
        session.keep_state("title", title)
        self._services.emit(TitleChanged(session.title))

    def trust_files(self, hashes: dict[str, str]) -> None:
        try:
            self._services.project.trust.trust(hashes)
        except ConfigError as error:
            self._services.warn(str(error))
        else:
            self._declare_servers()
            self._services.tell_commands()

    def change_rule(self, rule: str, new: str) -> None:
        try:
            self._services.gate.change_rule(rule, new)
        except ConfigError as error:
            self._services.warn(f"Nothing changed: {error}")

    def stop_child(self, child_id: str) -> None:
        if children := self._services.workspace.children:
            children().stop(child_id)

    async def stop_job(self, job_id: str) -> None:
        with suppress(ToolError):
            await self._services.workspace.jobs.find_shown(job_id).stop()
