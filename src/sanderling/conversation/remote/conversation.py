"""A conversation with a remote agent: turns and queue work as in any other, and everything else is done remotely."""

from contextlib import AsyncExitStack, suppress
from uuid import uuid4

import anyio

from sanderling.acp.client.provider import ExternalProvider
from sanderling.acp.remote.address import Address
from sanderling.agents.declared import DeclaredAgent
from sanderling.conversation.conversation import OneTurn
from sanderling.conversation.external.conversation import ExternalConversation
from sanderling.conversation.remote.agent import RemoteAgent
from sanderling.conversation.remote.turn import RemoteTurn
from sanderling.conversation.services import SessionServices
from sanderling.errors import SanderlingError, SessionError
from sanderling.protocol import actions
from sanderling.protocol.events import CommandEnded, CommandStarted
from sanderling.protocol.messages import Prompt
from sanderling.protocol.requests import Answer, ListRules, SessionRequest, ShowEdits

NOT_HERE = "Did not start: this session runs on {name}, but your command would run here. Ask the agent to run it, or use a terminal."
NOT_FROM_HERE = "{what} is not possible from here: this session runs on {name}."


class RemoteConversation(ExternalConversation):
    """The conversation of a session with the agent at `address`."""

    external: RemoteAgent
    is_project_here = False

    def __init__(
        self,
        services: SessionServices,
        address: Address,
        provider: ExternalProvider,
        resources: AsyncExitStack,
        *,
        is_eager: bool = True,
    ) -> None:
        self._address = address
        self._resumed: list[Prompt] = []
        declared = DeclaredAgent(address.text, address.title, ())
        mode = None if services.session.is_resumed else "ask"  # until the other side says its own
        super().__init__(services, declared, provider, resources, is_eager=is_eager, mode=mode)
        resources.push_async_callback(self.external.aclose)

    def make_external(
        self, services: SessionServices, declared: DeclaredAgent, provider: ExternalProvider
    ) -> RemoteAgent:
        return RemoteAgent(services, self._address, declared, provider, self._resume_left_turn)

    def begin_sandbox(self) -> None:
        """Start nothing: the sandbox is on the remote side."""

    def act(self, action: actions.Action) -> None:
        warn, name = self.services.warn, self.external.name
        match action:
            case actions.RetryNow():
                self.external.reconnecting.connect_now()
                self.services.tasks.start(self._prepare)
            case _ if self.external.tools.are_wanted:
                super().act(action)
            case actions.SetMode(mode):
                self.services.tasks.start(self._set, action, "mode", mode)
            case actions.SetRole(name):
                self.services.tasks.start(self._set, action, "role", name)
            case actions.SetNetwork(mode):
                self.services.tasks.start(self._set, action, "network", mode)
            case actions.SetSandbox():
                warn(NOT_FROM_HERE.format(what="Switching the sandbox", name=name))
            case actions.RunCommand(command_id, command):
                self.services.emit(CommandStarted(command_id, command))
                self.services.emit(CommandEnded(command_id, NOT_HERE.format(name=name)))
            case actions.UndoTurn() | actions.RedoTurn() | actions.TrustFiles():
                word = {
                    actions.UndoTurn: "/undo",
                    actions.RedoTurn: "/redo",
                    actions.TrustFiles: "/trust",
                }[type(action)]
                self.submit(Prompt(uuid4().hex, word))
            case actions.Rewind() | actions.ApplyWorktree():
                is_rewind = isinstance(action, actions.Rewind)
                what = "Rewinding" if is_rewind else "Applying a worktree"
                warn(NOT_FROM_HERE.format(what=what, name=name))
            case actions.ChangeRule(rule, new):
                self.external.change_rule(rule, new)
            case actions.RejectChanges() | actions.NoteSaved():
                pass  # local files
            case _:
                super().act(action)
        self._arrived.set()

    async def _set(self, action: actions.Action, option: str, value: str) -> None:
        """Set an option remotely; locally, if the server leaves its tools to this client, which is known once it is connected."""
        with suppress(SanderlingError):  # which `_set_option` reports
            await self.external.link.ready()
        if self.external.tools.are_wanted:
            self.act(action)
        else:
            await self._set_option(option, value)

    async def answer(self, request: SessionRequest) -> Answer:
        if isinstance(request, ListRules) and not self.external.tools.are_wanted:
            return await self.external.rules()
        if isinstance(request, ShowEdits) and not self.external.tools.are_wanted:
            raise SessionError("The record of these changes is where the session runs.")
        return await super().answer(request)

    def close(self) -> None:
        """Detach: a running turn continues remotely, if possible."""
        if isinstance(self._turn, RemoteTurn) and self.external.goes_on_alone:
            self.external.reconnecting.end()
            self._turn.leave()
            self._is_closed = True
            self._arrived.set()
        else:
            super().close()

    # --- turns ---------------------------------------------------------------------------------------------------------------

    def next_prompt(self) -> Prompt | None:
        return self._resumed[0] if self._resumed else super().next_prompt()

    def make_turn(self) -> OneTurn:
        is_known = bool(self._resumed)
        self._resumed.clear()
        return RemoteTurn(self.external, is_known=is_known)

    def _resume_left_turn(self) -> None:
        """Resume after reconnecting: a turn that was left continues remotely or has ended meanwhile; show it from here on."""
        external, prompts = self.external, self.services.session.prompts
        left, external.left_turn = external.left_turn, ""
        if left and external.goes_on_alone and prompts and prompts[-1].id == left:
            external.may_show = anyio.Event()
            self._resumed.append(prompts[-1])
            self._arrived.set()
