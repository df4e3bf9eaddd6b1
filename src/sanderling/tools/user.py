"""The user of a session as tools know them: someone to ask."""

from typing import Protocol

from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.modes import Mode


class User(Protocol):
    @property
    def mode(self) -> Mode:
        """The mode, which only the user changes."""
        ...

    async def ask_user(self, question: ApprovalRequested) -> AnswerApproval:
        """Show a question, and wait for the answer without a time limit."""
        ...
