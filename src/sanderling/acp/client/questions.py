"""Permission requests of an external agent, shown to the user like Sanderling's own questions."""

import re
from collections.abc import Sequence
from typing import Literal

from sanderling.acp.client.calls import ExternalCall, is_shown
from sanderling.acp.wire.asking import PermissionOption, PermissionOutcome, PermissionResponse
from sanderling.agents.calls import Diff, ToolCall, cwd_of
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import AnswerOption, ApprovalRequested
from sanderling.text import visible, visible_prose

MAX_OPTIONS = 20
MAX_REASON_CHARS = 1000
MAX_TITLE_CHARS = 200
_WORD = re.compile(r"\w+")
_LABELS = {"once": "allow", "always": "allow always", "deny": "no"}
_MEANING = (
    frozenset(("allow", "yes", "approve", "accept", "always", "proceed", "run", "continue", "ok")),
    frozenset(("no", "deny", "reject", "decline", "cancel", "refuse", "stop", "never", "abort")),
)
"""First words of an answer that mean allow, and first words that mean deny."""
_CHOICES: dict[str, Literal["once", "always", "deny"]] = {
    "allow_once": "once",
    "allow_always": "always",
}
_LASTING = ("always", "ask again", "session", "every", "all ", "any ")
CANCELLED = PermissionResponse(outcome=PermissionOutcome(outcome="cancelled"))


def offered(options: Sequence[PermissionOption]) -> tuple[AnswerOption, ...]:
    """
    Return the agent's answers with the choice that each one stands for. Unknown kinds count as deny.

    Of two answers with the same ID only the first counts: otherwise a "deny" could be sent as an "allow". The label of an answer never
    contradicts its kind.
    """
    found: dict[str, AnswerOption] = {}
    for each in options[:MAX_OPTIONS]:
        if each.option_id and each.option_id not in found:
            choice = _CHOICES.get(each.kind, "deny")
            found[each.option_id] = AnswerOption(each.option_id, _title(each.name, choice), choice)
    return tuple(found.values())


def _title(name: str, choice: str) -> str:
    """Return the agent's label for an answer. Sanderling's own label comes first unless both clearly mean the same."""
    words = " ".join(visible_prose(name).split())[:MAX_TITLE_CHARS]
    said = words.casefold()
    first = _WORD.search(said)
    is_meant = first is not None and first[0] in _MEANING[choice == "deny"]
    if choice == "always":
        is_meant = is_meant and any(each in said for each in _LASTING)
    return words if is_meant else f"{_LABELS[choice]}: {words}".rstrip(": ")


async def question_of(
    call: ExternalCall,
    options: tuple[AnswerOption, ...],
    question_id: str,
    agent: str,
    project: str,
) -> ApprovalRequested:
    """Return the question whether the call may run, with everything it would do. It is a snapshot: the agent may change the call later."""
    title, path, cwd = call.title, call.path, cwd_of(asked_of(call), project)
    subject, filetype = await call.preview()
    known = {each.choice for each in options}
    choices: list[Literal["once", "session", "always"]] = []
    if "once" in known:
        choices.append("once")
    if "always" in known:
        choices.append("always")
    said = call.text.removeprefix(subject).strip() if filetype in ("diff", "bash") else ""
    return ApprovalRequested(
        question_id,
        call.name,
        visible(title),
        visible(subject),
        visible_prose(" ".join((f"{agent} asks.", said)).strip())[:MAX_REASON_CHARS],
        cwd if filetype == "bash" else project,
        tuple(choices),
        filetype,
        path=path,
        options=options,
    )


def asked_of(call: ExternalCall) -> ToolCall:
    """Return the call in the form that rules and the mode judge. For a diff that is too large to show, only the path is included."""
    shown = [each for each in call.diffs if is_shown(each)]
    diffs = tuple(Diff(each.path or "", each.old_text, each.new_text or "") for each in shown)
    paths = (*call.paths, *(each.path or "" for each in call.diffs))
    return ToolCall(call.kind, call.input, diffs, tuple(dict.fromkeys(paths)))


def answered(answer: AnswerApproval, options: Sequence[AnswerOption]) -> PermissionResponse:
    """Return the user's answer as a response to the agent; "cancelled" if it offered no answer of that kind."""
    choice = "deny" if answer.answer in ("deny", "cancel", "again") else answer.answer
    fitting = [each.id for each in options if each.choice == choice]
    chosen = next((each for each in fitting if each == answer.option), "") or next(
        iter(fitting), ""
    )
    if not chosen:
        return CANCELLED
    return PermissionResponse(outcome=PermissionOutcome(outcome="selected", option_id=chosen))
