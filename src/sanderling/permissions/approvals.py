"""Questions to the person: each waits for its answer, without a limit, and beside it the editor stays free."""

from collections.abc import Callable

import anyio
import msgspec

from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, Event


class _Open(msgspec.Struct):
    settled: anyio.Event = msgspec.field(default_factory=anyio.Event)
    answer: AnswerApproval | None = None


class Approvals:
    """The questions of a session that are open, in the order in which they came up."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._open: dict[str, _Open] = {}

    async def ask(self, question: ApprovalRequested) -> AnswerApproval:
        """Wait for the answer. Whoever stops waiting, because the turn was stopped, takes the question back."""
        waiting = self._open[question.id] = _Open()
        self._emit(question)
        try:
            await waiting.settled.wait()
        finally:
            del self._open[question.id]
            self._emit(ApprovalSettled(question.id))
        assert waiting.answer
        return waiting.answer

    def answer(self, answer: AnswerApproval) -> None:
        """Settle a question; one that is not open any more has been answered from somewhere else."""
        if waiting := self._open.get(answer.id):
            waiting.answer = answer
            waiting.settled.set()
