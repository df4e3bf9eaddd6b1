"""Questions to the user: what they say, and how they are asked. Each waits for its answer without a time limit."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

import anyio
import msgspec

from sanderling.permissions.rules import Rule
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, Event, Limit, Notice
from sanderling.protocol.messages import Prompt
from sanderling.protocol.modes import Mode
from sanderling.protocol.remedies import remedies
from sanderling.sandbox.names import only_instructs
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.text import hidden_note, visible, visible_prose
from sanderling.tools.base import UseRequest
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Preview
from sanderling.tools.reviewed import AcceptedPart
from sanderling.tools.workspace import Workspace

OVERLAP = "You have unsaved changes in these lines. Allowing this overwrites them in the buffer; undo restores them."
FORMS = ("form", "link")
"""Questions that can be dismissed; "cancel" denies all others."""


_PLAN_MODES: dict[str, Mode] = {"ask": "ask", "auto": "auto"}


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
        waiting = self._open.get(answer.id)
        if waiting and not waiting.answer:
            is_no = answer.answer == "cancel" and waiting.kind not in FORMS
            is_no = is_no or (answer.answer == "again" and waiting.kind != "write")
            waiting.answer = msgspec.structs.replace(answer, answer="deny") if is_no else answer
            waiting.settled.set()

    def mode_chosen(self, answer: AnswerApproval) -> Mode | None:
        """Return the mode that the user switches to by accepting a plan; None if this answer does not."""
        waiting = self._open.get(answer.id)
        is_yes = answer.answer not in ("deny", "cancel", "again")
        is_plan = waiting is not None and waiting.kind == "plan" and not waiting.answer
        return _PLAN_MODES.get(answer.values.get("plan", "")) if is_plan and is_yes else None

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


# --- questions about tool uses ---------------------------------------------------------------------------------------------


class Permit(NamedTuple):
    """
    The terms on which a tool use may run.

    `grant` is the access that it needs beyond the sandbox's; the other fields go into its `Context`, but for the `rule` that allows it.
    """

    grant: Grant = NO_GRANT
    may_read: Callable[[str], bool] | None = None
    overruled: frozenset[str] = frozenset()
    accepted: AcceptedPart | None = None
    is_seen: bool = False
    rule: Rule | None = None


class Conditions(NamedTuple):
    """The mode, and whether the sandbox is off. What the user allows for the session holds only under the same conditions."""

    mode: Mode
    is_off: bool


class Question(NamedTuple):
    """
    A tool use that the user must decide about. `permit` are its terms if they allow it, `reason` says why they are asked.

    `unseen`: what earlier commands have set, as far as the user has not seen it. `problem` is a sentence about the stored rules, or "".
    `may_be_answered_by_hook`: neither a rule nor plan mode asks, and the use needs no more access than the sandbox gives.
    `is_each_time`: the answer holds for this use only, and no earlier one for it.
    """

    request: UseRequest
    permit: Permit
    conditions: Conditions
    unseen: tuple[str, ...]
    reason: str
    problem: str
    may_be_answered_by_hook: bool = False
    is_each_time: bool = False


def about_use(question: Question, preview: Preview, workspace: Workspace) -> ApprovalRequested:
    """Return the question whether a use may run, with the rules that would answer it next time."""
    from sanderling.permissions.decide import exports_note
    from sanderling.permissions.proposing import propose, propose_wider

    effect = question.request.effect
    warnings = _sentences(
        exports_note(question.unseen),
        _leaving(question.permit.grant),
        _protected(effect, workspace),
        _link(effect, workspace) if question.conditions.is_off else "",
        visible_prose(preview.note),
        hidden_note(preview.subject)
        if not preview.proposal
        else "",  # the editor counts them in each hunk
    )
    rule, wider = propose(effect, project=workspace.project), propose_wider(effect)
    return msgspec.structs.replace(
        _about(question.request, preview, workspace),
        reason=" ".join(_sentences(*warnings, question.reason, question.problem)),
        warnings=warnings,
        choices=("once", "session", "always") if rule else ("once", "session"),
        kind="write" if preview.proposal else "use",
        proposal=preview.proposal,
        rule=str(rule) if rule else "",
        wider=str(wider) if wider else "",
    )


def about_overlap(
    request: UseRequest, preview: Preview, needed: Grant, workspace: Workspace
) -> ApprovalRequested:
    """Return the question whether a change may overwrite unsaved text."""
    warnings = _sentences(OVERLAP, _leaving(needed))
    question = _about(request, preview, workspace)
    return msgspec.structs.replace(
        question, reason=" ".join(warnings), warnings=warnings, kind="overlap"
    )


def _about(request: UseRequest, preview: Preview, workspace: Workspace) -> ApprovalRequested:
    effect = request.effect
    return ApprovalRequested(
        request.tool_use_id,
        request.tool.name,
        visible(request.title),
        visible(preview.subject),
        "",
        effect.cwd if effect.kind == "run" else workspace.project,
        ("once",),
        preview.filetype,
        path=effect.path,
        is_of_several=request.is_of_several,
    )


def _sentences(*said: str) -> tuple[str, ...]:
    return tuple(filter(None, dict.fromkeys(said)))


def _protected(effect: Effect, workspace: Workspace) -> str:
    """Return a sentence on a write to a file whose changes always ask."""
    from sanderling.permissions.use import Use  # it loads the shell's grammar

    if effect.kind != "write":
        return ""
    paths = effect.paths or (effect.path,)
    uses = [
        Use(msgspec.structs.replace(effect, path=path, paths=()), workspace.project, workspace.disk)
        for path in paths
    ]
    names = sorted({name for use in uses for name in use.protected})
    shown = ", ".join(names)
    if names and all(map(only_instructs, names)):
        return f"Agents read {shown} as instructions: they may do what it says, also outside the sandbox."
    return f"{shown} can run code or instruct an agent outside the sandbox." if names else ""


def _leaving(grant: Grant) -> str:
    if grant.hosts:
        return (
            f"{grant.hosts[0]} is blocked. Allowing opens it until this ends, for other commands too."
            f" `{remedies().network} on` opens the whole network."
        )
    if grant.write_paths:
        return f"It is outside the project. Allowing grants {grant.write_paths[0]}."
    return ""


def _link(effect: Effect, workspace: Workspace) -> str:
    """Return a sentence on where a path outside the project resolves to, if that is elsewhere."""
    if not effect.path or workspace.is_inside(effect.path):
        return ""
    target = workspace.disk.real_path(effect.path)
    return f"The path resolves to {target}." if target != effect.path else ""
