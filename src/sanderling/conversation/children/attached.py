"""A frontend's view of a child session that runs in this process, and whose log is therefore locked."""

from collections.abc import Awaitable, Callable

import anyio

from sanderling.conversation.children.running import RunningChild
from sanderling.errors import SanderlingError
from sanderling.protocol.actions import (
    Action,
    CloseSession,
    ReleaseWaiting,
    ShowEarlier,
    SteerTurn,
    SubmitPrompt,
    WatchJob,
)
from sanderling.protocol.agent import Agent, OpenedAgent
from sanderling.protocol.events import ErrorOccurred, Event, PromptsReturned, TurnEnded
from sanderling.protocol.requests import Answer, SessionRequest

_PROMPTS = SubmitPrompt | SteerTurn
REMEDY = "The next prompt tries again."


class AttachedChild:
    """
    The `Agent` of a frontend that opens a running child. Closing it leaves the child alone.

    Prompts steer the child. When the child has ended, its parent is done with it, and the session is opened like any other: from then
    on its turns are the user's own. `reopen` does that.
    """

    def __init__(
        self,
        child: RunningChild,
        emit: Callable[[Event], None],
        reopen: Callable[[], Awaitable[OpenedAgent]],
    ) -> None:
        self._child = child
        self._emit = emit
        self._reopen = reopen
        self._views = child.conversation.views.seen_by(emit)
        self._own: Agent | None = None  # once the child has ended
        self._early: list[Action] = []
        self._arrived = anyio.Event()
        self._sent: set[str] = set()
        self._attached = anyio.CancelScope()
        self._is_closed = False

    async def attach(self, *, has_history: bool) -> OpenedAgent:
        """Show the child: its earlier history, its turn so far, and from then on its events."""
        await self._views.show_session(has_history=has_history)
        self._child.attach(self._emit)
        session = self._child.conversation.services.session
        model = self._child.conversation.services.provider.model
        return OpenedAgent(
            self, model, session.is_resumed, session.prompt_history.ends, frozenset(), ()
        )

    def act(self, action: Action) -> None:
        if isinstance(action, CloseSession):
            self.close()
        elif self._own:
            self._own.act(action)
        elif self._takes(action):
            self._act_on_child(action)
        else:  # the log is about to close, or closed
            self._early.append(action)
            self._arrived.set()

    def _takes(self, action: Action) -> bool:
        """Return whether the child does `action`. It has one turn: a prompt for another begins the user's own."""
        if isinstance(action, _PROMPTS):
            return self._child.is_in_turn
        return not self._child.ended.is_set()

    def _act_on_child(self, action: Action) -> None:
        conversation = self._child.conversation
        match action:
            case SubmitPrompt(prompt) | SteerTurn(prompt):
                self._sent.add(prompt.id)
                conversation.act(SteerTurn(prompt))
            case ShowEarlier() | WatchJob():
                self._views.show(action)
            case _:
                conversation.act(action)

    async def answer(self, request: SessionRequest) -> Answer:
        return await (self._own or self._child.conversation).answer(request)

    async def serve(self) -> None:
        opened = None
        with self._attached:
            await self._child.ended.wait()
            self._child.detach(self._emit)
            opened = await self._opened_again()
        if opened:
            self._go_on(opened)
            await opened.agent.serve()

    def close(self) -> None:
        self._child.detach(self._emit)
        self._views.close()
        self._is_closed = True
        self._attached.cancel()
        if self._own:
            self._own.close()

    # --- after the child's end -----------------------------------------------------------------------------------------

    async def _opened_again(self) -> OpenedAgent:
        while True:
            try:
                return await self._reopen()
            except SanderlingError as error:
                self._emit(ErrorOccurred("internal", str(error), REMEDY))
                self._emit(TurnEnded("error"))
                prompts = [each.prompt for each in self._early if isinstance(each, _PROMPTS)]
                if prompts:
                    self._emit(PromptsReturned(tuple(prompts)))
                self._early = []
                self._arrived = anyio.Event()
                await self._arrived.wait()

    def _go_on(self, opened: OpenedAgent) -> None:
        """Take over the session with what the user has done meanwhile, and the prompts that came too late for the child."""
        self._own = opened.agent
        if self._sent & opened.waiting:
            opened.agent.act(ReleaseWaiting())
        for action in self._early:
            opened.agent.act(action)
        if self._is_closed:
            opened.agent.close()
