"""A conversation whose files and commands are the client's: only models, keys and history are here."""

from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from sanderling.conversation.conversation import Conversation, OneTurn
from sanderling.conversation.turn import REQUEST_SENT_S, Turn
from sanderling.errors import ProviderError
from sanderling.protocol import actions
from sanderling.protocol.events import CommandEnded, CommandStarted

THERE = "Only the client that runs this session's tools can do that."


class ClientTurn(Turn):
    async def _prepare(self, tasks: TaskGroup) -> None:
        await anyio.sleep(REQUEST_SENT_S)
        tasks.start_soon(self._services.memory.sync)
        with suppress(ProviderError):  # which the turn reports
            await self._services.provider.prepare()


class ClientConversation(Conversation):
    """The conversation of a session whose tools run at its client."""

    is_project_here = False

    def begin_sandbox(self) -> None:
        """Start nothing: no commands run here."""

    def declare_servers(self) -> None:
        """Declare none: no servers run here."""

    def act(self, action: actions.Action) -> None:
        match action:
            case actions.RunCommand(command_id, command):
                self.services.emit(CommandStarted(command_id, command))
                self.services.emit(CommandEnded(command_id, THERE))
            case (
                actions.SetMode()
                | actions.SetNetwork()
                | actions.SetSandbox()
                | actions.TrustFiles()
                | actions.ChangeRule()
                | actions.UndoTurn()
                | actions.RedoTurn()
                | actions.Rewind()
                | actions.ApplyWorktree()
                | actions.Remember()
            ):
                self.services.warn(THERE)
            case _:
                super().act(action)

    def make_turn(self) -> OneTurn:
        return ClientTurn(self.services, is_eager=self._is_eager)
