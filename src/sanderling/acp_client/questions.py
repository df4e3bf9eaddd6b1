"""Questions of a guest: it asks for permission in its own words, and the person answers in the float, as they answer ours."""

from collections.abc import Sequence
from typing import Literal

from sanderling.acp.asking import Outcome, PermissionOption, PermissionResponse
from sanderling.acp_client.calls import Call
from sanderling.agents.calls import Diff, ToolCall
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.guests import AnswerOption
from sanderling.text import visible, visible_prose

MAX_OPTIONS = 20
MAX_REASON_CHARS = 1000
CANCELLED = PermissionResponse(outcome=Outcome(outcome="cancelled"))


def offered(options: Sequence[PermissionOption]) -> tuple[AnswerOption, ...]:
    """The answers that the guest offers, by the keys of ours that give them; what it calls otherwise is a no."""
    return tuple(
        AnswerOption(each.option_id, visible_prose(each.name)[:200], _choice(each.kind))
        for each in options[:MAX_OPTIONS]
    )


def _choice(kind: str) -> Literal["once", "always", "deny"]:
    match kind:
        case "allow_once":
            return "once"
        case "allow_always":
            return "always"
        case _:
            return "deny"


async def question_of(
    call: Call, options: tuple[AnswerOption, ...], question_id: str, agent: str, project: str
) -> ApprovalRequested:
    """The question whether the call may go on, with all of what it would do."""
    subject, filetype = await call.preview()
    known = {each.choice for each in options}
    choices: list[Literal["once", "session", "always"]] = []
    if "once" in known:
        choices.append("once")
    if "always" in known:
        choices.append("always")
    said = call.text if filetype in ("diff", "bash") else ""
    return ApprovalRequested(
        question_id,
        call.name,
        visible(call.title),
        visible(subject),
        visible_prose(" ".join((f"{agent} asks.", said)).strip())[:MAX_REASON_CHARS],
        project,
        tuple(choices),
        filetype,
        path=call.path,
        options=options,
    )


def asked_of(call: Call) -> ToolCall:
    """The call as rules and mode judge it."""
    diffs = tuple(Diff(each.path or "", each.old_text, each.new_text or "") for each in call.diffs)
    return ToolCall(call.kind, call.input, diffs, call.paths)


def answered(answer: AnswerApproval, options: Sequence[AnswerOption]) -> PermissionResponse:
    """The answer as the guest knows it; where it has none of that kind, that it was cancelled."""
    choice = "deny" if answer.answer in ("deny", "cancel", "again") else answer.answer
    chosen = next((each.id for each in options if each.id == answer.option), "")
    if not chosen:
        chosen = next((each.id for each in options if each.choice == choice), "")
    if not chosen:
        return CANCELLED
    return PermissionResponse(outcome=Outcome(outcome="selected", option_id=chosen))
