"""A conversation whose files and commands are the client's: only models, keys and history are here."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation, OneTurn
from sanderling.conversation.notes import Notes
from sanderling.conversation.services import SessionServices
from sanderling.conversation.turn import REQUEST_SENT_S, Turn
from sanderling.errors import ProviderError
from sanderling.project.project import Project
from sanderling.protocol.actions import (
    Action,
    RedoTurn,
    Rewind,
    RunCommand,
    SetMode,
    SetNetwork,
    SetSandbox,
    TrustFiles,
    UndoTurn,
)
from sanderling.protocol.events import CommandEnded, CommandStarted, Event
from sanderling.providers import Provider
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.session.session import Session
from sanderling.tools.base import Tool

THERE = "Only the client that runs this session's tools can do that."


class ClientTools(Protocol):
    """The tools of a session, run by its client."""

    async def tools(self) -> Sequence[Tool]: ...

    def take_notes(self) -> list[str]:
        """Return the client's notes to the model, and forget them."""
        ...

    def tell_again(self) -> None:
        """Make `take_notes` return everything again, because the model no longer sees it."""
        ...


class ClientNotes(Notes):
    """The notes of such a session come from the client, because facts about this machine would be wrong."""

    def __init__(self, tools: ClientTools, services: SessionServices) -> None:
        super().__init__(
            services.session, services.workspace, services.gate, services.project.instructions
        )
        self._tools = tools

    def forget(self) -> None:
        super().forget()
        self._tools.tell_again()

    def _news(self, paths: Sequence[str], *, is_prompt: bool) -> list[str]:  # noqa: ARG002
        reminder = self._workspace.todo.reminder(is_prompt=is_prompt)
        return [note for note in (*self._tools.take_notes(), reminder) if note]


class ClientServices(SessionServices):
    """The parts of a session whose tools run at its client."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        emit: Callable[[Event], None],
        policy: SandboxPolicy,
        settings: Settings,
        *,
        tools: ClientTools,
        project: Project,
    ) -> None:
        self._tools = tools
        super().__init__(
            session, provider, emit, policy, settings, project=project, sources=(tools,)
        )

    def _make_notes(self) -> Notes:
        return ClientNotes(self._tools, self)


class ClientTurn(Turn):
    async def _prepare(self, tasks: TaskGroup) -> None:
        await anyio.sleep(REQUEST_SENT_S)
        tasks.start_soon(self._services.memory.sync)
        with suppress(ProviderError):  # which the turn reports
            await self._services.provider.prepare()


class ClientConversation(Conversation):
    """The conversation of a session whose tools run at its client."""

    def begin_sandbox(self) -> None:
        """Start nothing: no commands run here."""

    def declare_servers(self) -> None:
        """Declare none: no servers run here."""

    def act(self, action: Action) -> None:
        match action:
            case RunCommand(command_id, command):
                self.services.emit(CommandStarted(command_id, command))
                self.services.emit(CommandEnded(command_id, THERE))
            case (
                SetMode()
                | SetNetwork()
                | SetSandbox()
                | TrustFiles()
                | UndoTurn()
                | RedoTurn()
                | Rewind()
            ):
                self.services.warn(THERE)
            case _:
                super().act(action)

    def make_turn(self) -> OneTurn:
        return ClientTurn(
            self.services, self.services.waiting.take_steering, is_eager=self._is_eager
        )
