"""Questions to the user. Each waits for its answer without a time limit, and does not block the editor."""

from collections.abc import Callable
from uuid import uuid4

import anyio
import msgspec

from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, Event, Limit, Notice
from sanderling.protocol.messages import Prompt
from sanderling.text import visible

FORMS = ("form", "link")
"""Questions that can be dismissed; "cancel" denies all others."""


class _OpenQuestion(msgspec.Struct):
    kind: str
    settled: anyio.Event = msgspec.field(default_factory=anyio.Event)
    answer: AnswerApproval | None = None


class Approvals:
    """The open questions of a session, in the order in which they were asked."""

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
        self._open: dict[str, _OpenQuestion] = {}

    async def ask(self, question: ApprovalRequested) -> AnswerApproval:
        """Emit a question and wait for its answer. Cancelling the wait, as when the turn is stopped, withdraws the question."""
        waiting = self._open[question.id] = _OpenQuestion(question.kind)
        self._emit(question)
        try:
            await waiting.settled.wait()
        finally:
            del self._open[question.id]
            self._emit(ApprovalSettled(question.id))
        assert waiting.answer
        return waiting.answer

    def answer(self, answer: AnswerApproval) -> None:
        """Settle a question. Does nothing if another client has settled it."""
        if waiting := self._open.get(answer.id):
            is_no = answer.answer == "cancel" and waiting.kind not in FORMS
            is_no = is_no or (answer.answer == "again" and waiting.kind != "write")
            waiting.answer = msgspec.structs.replace(answer, answer="deny") if is_no else answer
            waiting.settled.set()

    async def ask_to_go_on(self, kind: Limit, subject: str, reason: str) -> bool:
        """
        Ask whether the turn may continue although it has reached a limit. `subject` is what it would continue with.

        Text that the user adds to the answer is passed to `on_said`.
        """
        self._limits_asked += 1  # an answer must not settle the next question of its kind
        question_id = f"{kind}:{self._limits_asked}"
        question = ApprovalRequested(
            question_id,
            kind,
            "Continue?",
            visible(subject),
            reason,
            self._project,
            ("once",),
            kind="limit",
        )
        if kind != "retry":  # a retry is reported by the error or attempt that follows
            self._emit(Notice("warning", reason))
        answer = await self.ask(question)
        if said := answer.reason.strip():
            self._on_said(Prompt(uuid4().hex, said))
        return answer.answer != "deny"
