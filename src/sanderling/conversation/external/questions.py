"""Questions of an external agent to the user: permissions and login."""

import shlex
from collections.abc import Callable, Sequence
from uuid import uuid4

import anyio

from sanderling.acp.client.calls import ExternalCall
from sanderling.acp.client.questions import CANCELLED, answered, asked_of, question_of
from sanderling.acp.wire.asking import PermissionResponse
from sanderling.acp.wire.setup import AuthMethod
from sanderling.agents.calls import ToolCall
from sanderling.agents.declared import DeclaredAgent
from sanderling.agents.permits import Verdict
from sanderling.conversation.services import SessionServices
from sanderling.errors import SanderlingError
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from sanderling.protocol.guests import AnswerOption
from sanderling.protocol.messages import Prompt
from sanderling.text import visible_prose

MAX_ASKING = 32


class ExternalQuestions:
    """
    The questions of the external agent `declared` in the session of `services`.

    Args:
        judge: return the verdict of rules and mode, before the user is asked.
        allow: note that the user allowed a call.
        warn: report a denial that the user was not asked about.
    """

    def __init__(
        self,
        services: SessionServices,
        declared: DeclaredAgent,
        judge: Callable[[ToolCall], Verdict],
        allow: Callable[[ToolCall], None],
        warn: Callable[[str], None],
    ) -> None:
        self._services = services
        self._declared = declared
        self._judge = judge
        self._allow = allow
        self._warn = warn
        self._scopes: set[anyio.CancelScope] = set()

    async def permission(
        self, call: ExternalCall, options: tuple[AnswerOption, ...], cwd: str
    ) -> PermissionResponse:
        """Ask the user whether the call may run, unless rules and mode decide."""
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
                answer = await self._services.approvals.ask(question)
            finally:
                self._scopes.discard(scope)
            response = answered(answer, options)
            chosen = next((each for each in options if each.id == response.outcome.option_id), None)
            call.is_denied = chosen is None or chosen.choice == "deny"
            if not call.is_denied:
                self._allow(wanted)
            elif reason := answer.reason.strip():
                # The protocol has no field for the reason, so it is sent as a prompt after the turn.
                self._services.waiting.steer(Prompt(uuid4().hex, reason))
            return response
        return CANCELLED

    def stop(self) -> None:
        """Cancel the open questions because the turn was stopped."""
        for scope in tuple(self._scopes):
            scope.cancel()

    async def login(self, methods: Sequence[AuthMethod], cwd: str) -> str:
        """Ask the user how to log in, and return the method's id. Login methods that need a terminal are described."""
        name = self._declared.title
        own = [each for each in methods if each.type in (None, "", "agent")]
        words = "\n".join(_described(each, self._declared) for each in methods)
        if not own:
            how = f" It offers:\n{words}" if words else ""
            raise SanderlingError(
                f"{name} needs a login. Start it in a terminal and log in there.{how}"
            )
        offers = (AnswerOption(each.id, visible_prose(each.name), "once") for each in own)
        options = (*offers, AnswerOption("", "do not", "deny"))
        question = ApprovalRequested(
            f"login:{uuid4().hex[:8]}",
            self._declared.name,
            "log in",
            visible_prose(words),
            f"{name} needs a login. Choose a method.",
            cwd,
            ("once",),
            options=options,
        )
        answer = await self._services.approvals.ask(question)
        return answered(answer, options).outcome.option_id or ""


def _described(method: AuthMethod, declared: DeclaredAgent) -> str:
    """Return one line for a login method, with its command if it runs in a terminal."""
    if method.type != "terminal" or not declared.argv:
        return f"{method.name}: {method.description or ''}".rstrip(": ")
    return f"{method.name}: {shlex.join((*declared.argv, *(method.args or ())))}"
