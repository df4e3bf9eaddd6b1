"""A conversation in this process, and all that it emitted."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.actions import Action
from sanderling.protocol.events import Event, TurnEnded
from sanderling.protocol.messages import Prompt, ToolResult
from sanderling.providers import Provider
from sanderling.providers.retries import Backoff
from sanderling.providers.scripted import Script, ScriptedProvider
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.session.session import Session
from tests.conftest import DEADLINE_S, happens, policy_of, settings_of

Steps = list[dict[str, Any]]


def scripted(
    *replies: Steps | dict[str, Any], is_repeating: bool = False, model: str = "scripted"
) -> ScriptedProvider:
    """A model whose replies are these steps; if it `is_repeating`, the last one is for all that is asked thereafter."""
    script = [dict(each) if isinstance(each, dict) else {"step": each} for each in replies]
    if is_repeating:
        script[-1]["repeat"] = True
    return ScriptedProvider(msgspec.convert({"version": 1, "reply": script}, Script), model)


class Emitted:
    """What was emitted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.on_event: Callable[[Event], object] = lambda _event: None

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    async def until(self, kind: type, count: int = 1) -> Any:
        """The event of this kind that is the `count`th, as soon as there are so many."""
        await happens(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1] if count else None


class BaseTalk(Emitted):
    """A conversation with `provider`. `parts` are what else the parts of one may be given."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        *,
        settings: Settings | None = None,
        policy: SandboxPolicy | None = None,
        backoff: Backoff | None = None,
        is_eager: bool = True,
        **parts: Any,
    ) -> None:
        super().__init__()
        self.session, self.provider = session, provider
        self.policy = policy or policy_of(session)
        settings = settings or settings_of(session)
        self.conversation = Conversation(
            SessionServices(session, provider, self.emit, self.policy, settings, **parts),
            is_eager=is_eager,
        )
        if backoff:
            self.services.calls.backoff = backoff

    @property
    def services(self) -> SessionServices:
        return self.conversation.services

    @property
    def history(self) -> list[Any]:
        return self.session.history

    @property
    def blocks(self) -> list[Any]:
        return [block for message in self.history for block in message.content]

    @property
    def results(self) -> list[ToolResult]:
        return [block for block in self.blocks if isinstance(block, ToolResult)]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Self]:
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.conversation.serve)
                yield self
                tasks.cancel_scope.cancel()
        self.session.close()

    @asynccontextmanager
    async def begun(self, prompt: Prompt, kind: type) -> AsyncIterator[Self]:
        """While the conversation is served, when `prompt` was submitted and an event of this kind has come."""
        async with self.served():
            self.conversation.submit(prompt)
            await self.until(kind)
            yield self

    async def run_turns(self, *prompts: Prompt) -> None:
        """Submit each prompt once the turn of the one before it has ended, and wait for the end of the last."""
        for prompt in prompts:
            await self._next(TurnEnded, lambda: self.conversation.submit(prompt))  # noqa: B023

    async def act(self, action: Action, kind: type) -> Any:
        """Act, and return the next event of this kind."""
        return await self._next(kind, lambda: self.conversation.act(action))

    async def _next(self, kind: type, cause: Callable[[], object]) -> Any:
        count = len(self.of(kind))
        cause()
        return await self.until(kind, count + 1)

    async def say(self, words: str) -> None:
        with anyio.fail_after(DEADLINE_S):
            await self.conversation.run_turn(Prompt(words, words))

    async def aclose(self) -> None:
        self.session.close()
        await self.provider.aclose()
