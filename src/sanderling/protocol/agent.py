"""The agent that a face talks to. The face gives actions and is given events; how the agent behind that works is not its business."""

from typing import Protocol

from sanderling.protocol.actions import Action
from sanderling.protocol.requests import Answer, SessionRequest


class Agent(Protocol):
    """One session, open. Its events go to the `emit` that it was opened with."""

    def act(self, action: Action) -> None:
        """Begin what `action` asks for, at once; events tell what comes of it."""
        ...

    async def answer(self, request: SessionRequest) -> Answer:
        """
        Answer `request`, which changes nothing.

        Raises:
            SanderlingError: it has no answer.
        """
        ...

    async def serve(self) -> None:
        """Do what was asked for until the session is closed, then give back what it holds. Call it once."""
        ...

    def close(self) -> None:
        """Stop what is going on; `serve` returns when that has ended."""
        ...
