"""The agent as frontends see it: they send actions and receive events."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from sanderling.protocol.actions import Action
from sanderling.protocol.messages import Prompt, StopReason
from sanderling.protocol.requests import Answer, SessionRequest


class Agent(Protocol):
    """An open session. Its events go to the `emit` that was passed when it was opened."""

    def act(self, action: Action) -> None:
        """Start `action` and return at once. Events report the results."""
        ...

    async def answer(self, request: SessionRequest) -> Answer:
        """
        Answer `request`, which changes nothing.

        Raises:
            SanderlingError: there is no answer.
        """
        ...

    async def serve(self) -> None:
        """Process actions until the session is closed, then release its resources. Call this once."""
        ...

    def close(self) -> None:
        """Stop everything that is running; `serve` returns when it has ended."""
        ...


class OpenedAgent(NamedTuple):
    """
    An open agent, to be served by the caller, and what the frontend needs first.

    `ends` maps prompt ids to the reasons why their turns ended, including the last. `waiting` has the ids of pending prompts; `aside` are
    the prompts that were set aside or dropped, see `SessionOptions.waiting` of the conversation. `worktree` is the name of the worktree in
    which the session works, if it has one.
    """

    agent: Agent
    model: str
    is_resumed: bool
    ends: Mapping[str, StopReason]
    waiting: frozenset[str]
    aside: tuple[Prompt, ...]
    worktree: str = ""
