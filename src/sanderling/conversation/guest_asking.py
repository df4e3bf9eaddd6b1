"""Questions of a guest to the person: whether it may go on, and how it is to log in."""

import shlex
from collections.abc import Callable, Sequence
from uuid import uuid4

import anyio

from sanderling.acp.asking import PermissionResponse
from sanderling.acp.setup import AuthMethod
from sanderling.acp_client.calls import Call
from sanderling.acp_client.questions import CANCELLED, answered, asked_of, question_of
from sanderling.agents.calls import ToolCall
from sanderling.agents.declared import DeclaredAgent
from sanderling.agents.permits import Verdict
from sanderling.conversation.parts import Parts
from sanderling.errors import SanderlingError
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.guests import AnswerOption
from sanderling.protocol.messages import Prompt
from sanderling.text import visible_prose

MAX_ASKING = 32


class GuestAsking:
    """
    The questions of the guest `declared` in the session of `parts`.

    `judge` gives the verdict of rules and mode, before the person is asked, and `allow` takes note of a yes; `warn` tells of a no
    that nobody was asked for.
    """

    def __init__(
        self,
        parts: Parts,
        declared: DeclaredAgent,
        judge: Callable[[ToolCall], Verdict],
        allow: Callable[[ToolCall], None],
        warn: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._declared = declared
        self._judge = judge
        self._allow = allow
        self._warn = warn
        self._scopes: set[anyio.CancelScope] = set()

    async def permission(
        self, call: Call, options: tuple[AnswerOption, ...], cwd: str
    ) -> PermissionResponse:
        """Have the person say whether it may go on, unless the mode does."""
        wanted = asked_of(call)
        verdict = self._judge(wanted)
        if verdict.action != "ask" and call.kind != "switch_mode":
            call.is_denied = verdict.action != "allow"
            if call.is_denied:
                self._warn(f"{call.name} {call.title}: {verdict.reason}")
            return answered(AnswerApproval("", "deny" if call.is_denied else "once"), options)
        question_id = f"{call.id}:{uuid4().hex[:8]}"
        question = await question_of(call, options, question_id, self._declared.title, cwd)
        if len(self._scopes) >= MAX_ASKING:
            return CANCELLED
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                answer = await self._parts.approvals.ask(question)
            finally:
                self._scopes.discard(scope)
            response = answered(answer, options)
            chosen = next((each for each in options if each.id == response.outcome.option_id), None)
            call.is_denied = chosen is None or chosen.choice == "deny"
            if not call.is_denied:
                self._allow(wanted)
            elif reason := answer.reason.strip():
                # The protocol has no place for it: it goes when the turn has ended.
                self._parts.waiting.steer(Prompt(uuid4().hex, reason))
            return response
        return CANCELLED

    def stop(self) -> None:
        """The turn is stopped: nobody waits for an answer any more."""
        for scope in tuple(self._scopes):
            scope.cancel()

    async def login(self, methods: Sequence[AuthMethod], cwd: str) -> str:
        """Have the person choose how to log in; what has to be done in a terminal is said."""
        name = self._declared.title
        own = [each for each in methods if each.type in (None, "", "agent")]
        words = "\n".join(_told_method(each, self._declared) for each in methods)
        if not own:
            how = f" It offers:\n{words}" if words else ""
            raise SanderlingError(
                f"{name} wants you to log in. Start it in a terminal, and log in there.{how}"
            )
        offers = (AnswerOption(each.id, visible_prose(each.name), "once") for each in own)
        options = (*offers, AnswerOption("", "do not", "deny"))
        question = ApprovalRequested(
            f"login:{uuid4().hex[:8]}",
            self._declared.name,
            "log in",
            visible_prose(words),
            f"{name} wants you to log in, and does so with what you choose.",
            cwd,
            ("once",),
            options=options,
        )
        answer = await self._parts.approvals.ask(question)
        return answered(answer, options).outcome.option_id or ""


def _told_method(method: AuthMethod, declared: DeclaredAgent) -> str:
    """The way to log in as a line, with the command for a terminal where that is one of a program here."""
    if method.type != "terminal" or not declared.argv:
        return f"{method.name}: {method.description or ''}".rstrip(": ")
    return f"{method.name}: {shlex.join((*declared.argv, *(method.args or ())))}"
