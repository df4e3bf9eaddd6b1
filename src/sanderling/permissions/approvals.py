"""Questions to the person: each waits for its answer, without a limit, and beside it the editor stays free."""

from collections.abc import Callable
from uuid import uuid4

import anyio
import msgspec

from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, Event, Limit, Notice
from sanderling.protocol.messages import Prompt
from sanderling.text import visible

FORMS = ("form", "link")
"""The kinds of questions that can be left without a yes or no; of any other, "cancel" is a no."""


class _Open(msgspec.Struct):
    kind: str
    settled: anyio.Event = msgspec.field(default_factory=anyio.Event)
    answer: AnswerApproval | None = None


class Approvals:
    """The questions of a session that are open, in the order in which they came up."""

    def __init__(
        self,
        project: str,
        emit: Callable[[Event], None],
        on_said: Callable[[Prompt], None] = lambda _: None,
    ) -> None:
        self._project = project
        self._emit = emit
        self._on_said = on_said
        self._limits_asked = 0
        self._open: dict[str, _Open] = {}

    async def ask(self, question: ApprovalRequested) -> AnswerApproval:
        """Wait for the answer. Whoever stops waiting, because the turn was stopped, takes the question back."""
        waiting = self._open[question.id] = _Open(question.kind)
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
            is_no = answer.answer == "cancel" and waiting.kind not in FORMS
            is_no = is_no or (answer.answer == "again" and waiting.kind != "write")
            waiting.answer = msgspec.structs.replace(answer, answer="deny") if is_no else answer
            waiting.settled.set()

    async def ask_to_go_on(self, kind: Limit, subject: str, reason: str) -> bool:
        """
        Ask whether the turn may go on though it has reached a limit. `subject` is what it would go on with.

        What the person says to that goes to `on_said`.
        """
        self._limits_asked += 1  # an answer is to one question, not to the next of its kind
        question_id = f"{kind}:{self._limits_asked}"
        question = ApprovalRequested(
            question_id,
            kind,
            "Go on?",
            visible(subject),
            reason,
            self._project,
            ("once",),
            kind="limit",
        )
        if kind != "retry":  # which is told by what follows, the error or the next attempt
            self._emit(Notice("warning", reason))
        answer = await self.ask(question)
        if said := answer.reason.strip():
            self._on_said(Prompt(uuid4().hex, said))
        return answer.answer != "deny"
