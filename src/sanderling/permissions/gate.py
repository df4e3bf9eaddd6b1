"""The gate in front of every tool use: rules and the mode allow it, deny it, or leave it to the user."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import anyio
import msgspec
from anyio import to_thread

from sanderling.config import Layer
from sanderling.errors import ConfigError, SandboxError, ToolError
from sanderling.permissions.approvals import (
    Approvals,
    Conditions,
    Permit,
    Question,
    about_overlap,
    about_use,
)
from sanderling.permissions.grant_prompts import GrantPrompts
from sanderling.permissions.guarding import in_worktree, unguarded
from sanderling.permissions.rules import (
    Rule,
    concerns,
    is_for_any_server,
    may_allow,
    rule_from_text,
)
from sanderling.permissions.session_rules import AllowedUse, SessionRules
from sanderling.permissions.store import RuleStore, StoredRules
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, Event, ModeChanged
from sanderling.protocol.messages import SEARCH_TOOL
from sanderling.protocol.modes import MODES_BY_STRICTNESS, Mode, NetworkMode
from sanderling.protocol.requests import RulesPage, ShownRule
from sanderling.sandbox.execution_environment import ExecutionEnvironment
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.text import visible_line
from sanderling.tools.base import UseRequest
from sanderling.tools.effects import OUTSIDE, Effect
from sanderling.tools.outcome import Preview, UnsavedConflictError
from sanderling.tools.reviewed import AcceptedPart
from sanderling.tools.workspace import Workspace

if TYPE_CHECKING:
    from sanderling.hooks.hooks import Verdict
    from sanderling.permissions.decide import Decision  # with tables that only a tool use needs

DENIED = "The user denied this without a reason. Ask what they want; do not try it another way."
KEPT = "The user keeps their own unsaved text."
UNFIT = (
    "The user's review does not fit the proposed change, so nothing was changed. Propose it again."
)
DENIED_WITH_REASON = "The user denied this: {reason}"
UNATTENDED = "Denied: {reason}"
DENIED_BY_HOOK = "A hook denied this: {reason}"
ASKED_BY_HOOK = "A hook asks about this: {reason}"
OF_CHILD = "A child session cannot change instructions: put the lines into your answer."
READ_ONLY = "This session only reads, whatever the user or a rule allows: describe the change in your answer."


class DeniedError(Exception):
    """
    The user denied a tool use. `str` is the message for the model, `reason` the user's own words.

    `is_alone`: other tool uses of the same message may still run.
    """

    def __init__(self, message: str, reason: str = "", *, is_alone: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_alone = is_alone


class ForbiddenError(ToolError):
    """A rule or the mode denies the use; the user is not asked."""


class NotAskedError(DeniedError):
    """The user denied another tool use of the same message, so this one is not asked about."""


class _AllowedUse(msgspec.Struct):
    rules: list[tuple[Conditions, list[Rule]]] = []
    effects: list[AllowedUse] = []
    granted: Grant = NO_GRANT
    seen_exports: list[str] = []


class Gate:
    """
    The permission gate of a session. `own_rules` come from the user's settings, `store` holds the rules that "always" added.

    Only the user changes `mode`: no tool can reach it. `on_allowed` is called when `state` has changed.

    The gate of a child session has its parent's `above` it: what that denies is denied, and what the user allows there for the session is
    allowed here, but not the reverse, unless the user says so.
    """

    def __init__(
        self,
        workspace: Workspace,
        approvals: Approvals,
        store: RuleStore,
        own_rules: tuple[Rule, ...],
        emit: Callable[[Event], None],
        *,
        on_allowed: Callable[[], None] = lambda: None,
        above: "Gate | None" = None,
    ) -> None:
        self._mode: Mode = "ask"
        self._above = above
        self.below = WeakSet[Gate]()
        if above:
            above.below.add(self)
        prompts_above = above.grant_prompts if above else None
        self.grant_prompts = GrantPrompts(workspace, approvals, on_allowed, prompts_above)
        self._workspace = workspace
        self.approvals = approvals
        self._store = store
        self._own_rules = own_rules
        self._emit = emit
        self._session = SessionRules(self._concerns, self._covers)
        self._granted_before = above.grant_prompts.granted if above else NO_GRANT
        self._seen_exports: set[str] = set()
        self._on_allowed = on_allowed
        self.hooks_before_question: Callable[[UseRequest], Awaitable[Verdict]] | None = None
        self.forbids: Callable[[str], str] = lambda _tool: ""
        """Returns why the session's role does not allow a tool, if so."""
        self.instructions_note: Callable[[Effect], str] = lambda _effect: ""
        """Returns where a change of instructions comes from, and what it would mean, for the user."""
        self._in_order = anyio.Lock()
        self._changing_network = anyio.Lock()
        self._delegating = anyio.Lock()

    @property
    def mode(self) -> Mode:
        """The session's mode; of a child, the stricter one of its own and its parent's."""
        modes = (self._mode, self._above.mode if self._above else self._mode)
        return next(mode for mode in MODES_BY_STRICTNESS if mode in modes)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode. Plan mode makes the project read-only for everything that starts from now on."""
        self.restore_mode(mode)
        self._emit(ModeChanged(self.mode))

    def restore_mode(self, mode: object) -> None:
        before = {gate: gate.mode for gate in self.below}
        self._mode = msgspec.convert(mode, Mode)
        self._apply_mode()
        for gate, its_mode in before.items():
            if gate.mode != its_mode:
                gate.follow_mode()

    def follow_mode(self) -> None:
        """Apply the mode that the parent's has changed."""
        self._apply_mode()
        self._emit(ModeChanged(self.mode))

    def _apply_mode(self) -> None:
        self._workspace.sandbox.set_mode("ro" if self.mode == "plan" else "rw")

    @property
    def is_confined(self) -> bool:
        return self._workspace.sandbox.environment.is_confined

    @property
    def is_read_only(self) -> bool:
        """True if nothing may ever be written in this session."""
        return self._workspace.sandbox.effective_policy.is_always_read_only

    def get_ready(self) -> None:
        """Load the modules that judge tool uses, ahead of the first one. Blocks."""
        from sanderling.permissions import decide

        decide.get_ready()

    def may_read(self) -> Callable[[str], bool] | None:
        """Return a test whether the model may read a path; None if no rule restricts reading."""
        rules = self._in_worktree((*self._own_rules, *self._store.load().rules))
        return unguarded(rules, self._workspace.project, self._workspace.disk)

    async def ask_user(self, question: ApprovalRequested) -> AnswerApproval:
        """Show a question of the model's."""
        return await self.approvals.ask(question)

    async def permit(self, request: UseRequest, *, is_answered: bool = False) -> Permit:
        """
        Return the terms on which the use may run. Asks the user if needed, unless it `is_answered`: they have allowed exactly this.

        Raises:
            DeniedError, ForbiddenError, ToolError: see `judge` and `ask`.
        """
        # One question is for all child sessions, so the second call of a message waits for the answer to the first.
        async with self._delegating if request.effect.kind == "delegate" else nullcontext():
            judged = self.judge(request)
            if isinstance(judged, Permit):
                await self._note_use(judged.rule)
                return judged
            if is_answered or await self._is_allowed_by_hook(judged):
                return judged.permit
            return await self.ask(judged)

    async def _is_allowed_by_hook(self, question: Question) -> bool:
        """
        Run the hooks before a question. Return whether they allow the use.

        Raises:
            DeniedError: they deny it.
        """
        if not self.hooks_before_question:
            return False
        verdict = await self.hooks_before_question(question.request)
        if verdict.is_denied:
            message = DENIED_BY_HOOK.format(reason=verdict.reason)
            raise DeniedError(message, verdict.reason, is_alone=True)
        return verdict.decision == "allow" and question.may_be_answered_by_hook

    async def _note_use(self, rule: Rule | None) -> None:
        """Remember the day of a stored rule's last use, which helps the user to decide which rules to remove."""
        if rule and rule in self._store.load().rules:
            with suppress(ConfigError):  # the day of the last use is not worth an error
                await to_thread.run_sync(self._store.note_use, rule)

    def check_role(self, tool: str) -> None:
        """
        Check that the session's role has the tool. This is all that is checked here of a tool that a client runs.

        Raises:
            ForbiddenError: it does not.
        """
        if reason := self.forbids(tool):
            raise ForbiddenError(reason)
        if self._above:
            self._above.check_role(tool)

    def judge(self, request: UseRequest) -> Permit | Question:
        """
        Return the terms on which the use may run, or the question that the rules and the mode leave to the user. Changes nothing.

        Raises:
            ForbiddenError: a rule, the mode or the role denies it.
            SandboxError: the sandbox cannot give it the access that it needs.
        """
        workspace, effect = self._workspace, request.effect
        self.check_role(request.tool.name)
        conditions = self._conditions(request.environment)
        stored = self._store.load()
        rules = self._rules(stored, conditions)
        unseen = tuple(setting for setting in effect.exported if setting not in self._seen_exports)
        seen = msgspec.structs.replace(effect, exported=unseen)
        decision = self._decide(seen, rules, conditions)
        if decision.action == "deny":
            raise ForbiddenError(decision.reason)
        grant = _needed(request)
        workspace.sandbox.confined.check_grant(grant)
        permit = Permit(grant, unguarded(rules, workspace.project, workspace.disk))
        is_asked_by_hook = request.hooked == "ask"
        is_each_time = is_asked_by_hook or decision.is_each_time
        is_allowed = decision.action == "allow" and _is_named(grant, decision.rule)
        if is_allowed and not is_asked_by_hook:
            return permit._replace(rule=decision.rule)
        is_allowed_before = self.has_allowed(AllowedUse(conditions, effect, grant))
        if is_allowed_before and not is_each_time:
            return permit
        reason = decision.reason
        if decision.is_each_time:
            reason = self.instructions_note(effect) or reason
        if is_asked_by_hook:
            reason = ASKED_BY_HOOK.format(reason=request.hook_reason)
        is_plain = grant == NO_GRANT and not effect.leaves_sandbox and not unseen
        question = Question(
            request,
            permit,
            conditions,
            unseen,
            reason,
            stored.problem,
            may_be_answered_by_hook=is_plain and not decision.is_for_user,
            is_each_time=is_each_time,
        )
        is_allowed_by_hook = request.hooked == "allow" and question.may_be_answered_by_hook
        return permit if is_allowed_by_hook else question

    async def ask(self, question: Question) -> Permit:
        """
        Ask the user whether the use may run, and do what the answer says about later uses.

        Raises:
            DeniedError: the user denied it.
            ToolError: it would fail anyway, or the user's review does not fit it.
        """
        from sanderling.permissions.decide import is_shown_whole

        request, permit, unseen = question.request, question.permit, question.unseen
        while True:
            try:
                # In the order of the calls, however long a preview takes.
                async with self._in_order:
                    preview = await self._preview(request, permit.grant)
            except UnsavedConflictError as overlap:
                return await self.review(request, overlap, permit)
            shown = self._offering(about_use(question, preview, self._workspace), question)
            answer = await self._answer(shown, question)
            if answer.answer != "again":
                break
        permit = permit._replace(accepted=_accepted(shown, answer), is_seen=True)
        if unseen and is_shown_whole(unseen):
            self._seen_exports |= {*unseen}
            self._on_allowed()
        return permit

    def _conditions(self, environment: ExecutionEnvironment) -> Conditions:
        return Conditions(self.mode, not self._workspace.sandbox.is_bounded(environment, self.mode))

    def decide(self, effect: Effect, *, is_confined: bool) -> "Decision":
        """Decide by rules and mode alone, as `judge` does, without a request. "ask" leaves the use to the user."""
        conditions = Conditions(self.mode, not is_confined)
        return self._decide(effect, self._rules(self._store.load(), conditions), conditions)

    def only_reads(self, effect: Effect) -> bool:
        """Return whether a command visibly changes nothing, not even the shell: it may run at the same time as others of its kind."""
        from sanderling.permissions.decide import only_reads

        workspace = self._workspace
        is_confined = workspace.sandbox.environment.is_confined
        return only_reads(
            effect, project=workspace.project, is_confined=is_confined, disk=workspace.disk
        )

    def restricts(self, effect: Effect) -> bool:
        """Return whether a rule denies or asks about the tool of `effect`, wherever it leads."""
        rules = self._rules(self._store.load(), Conditions(self.mode, is_off=False))
        return any(
            rule.action != "allow"
            and (rule.tool == effect.tool or (not rule.host and concerns(rule, effect)))
            for rule in rules
        )

    def _rules(self, stored: StoredRules, conditions: Conditions) -> tuple[Rule, ...]:
        session = self._session.rules.get(conditions, ())
        above = self._above.rules_below(conditions) if self._above else ()
        return self._in_worktree((*self._own_rules, *stored.rules, *session, *above))

    def _in_worktree(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        workspace = self._workspace
        return in_worktree(rules, self._store.project, workspace.project, workspace.disk)

    def rules_below(self, conditions: Conditions) -> tuple[Rule, ...]:
        """Return the session's rules for a child under these conditions, and what is denied or asked about here, whatever these are."""
        now = Conditions(self.mode, not self.is_confined)
        stricter = (rule for rule in self._session.rules.get(now, ()) if rule.action != "allow")
        return (*self._session.rules.get(conditions, ()), *stricter)

    def has_allowed(self, use: AllowedUse) -> bool:
        return use in self._session.uses or (
            self._above is not None and self._above.has_allowed(use)
        )

    def _decide(self, effect: Effect, rules: Sequence[Rule], conditions: Conditions) -> "Decision":
        from sanderling.permissions.decide import Decision, decide

        if self.is_read_only and not _only_reads(effect, is_off=conditions.is_off):
            return Decision("deny", READ_ONLY)
        workspace = self._workspace
        write_paths = workspace.sandbox.effective_policy.write_paths
        if effect.kind == "write" and workspace.environment.is_scratch(effect.path):
            write_paths = (*write_paths, effect.path)
        decision = decide(
            effect,
            conditions.mode,
            rules,
            project=workspace.project,
            is_confined=not conditions.is_off,
            write_paths=write_paths,
            disk=workspace.disk,
        )
        return Decision("deny", OF_CHILD) if decision.is_each_time and self._above else decision

    def may_allow(self, beginning: str, server: str) -> bool:
        """Return True if some rule can allow this server's tools without a question."""
        session = (rule for rules in self._session.rules.values() for rule in rules)
        rules = (*self._own_rules, *self._store.load().rules, *session)
        return any(may_allow(rule, beginning, server) for rule in rules)

    async def review(
        self, request: UseRequest, overlap: UnsavedConflictError, permit: Permit
    ) -> Permit:
        """
        Ask whether to overwrite unsaved changes; return a permit that allows it for exactly these changes.

        Raises:
            DeniedError: the user keeps them.
        """
        question = about_overlap(request, overlap.preview, _needed(request), self._workspace)
        answer = await self.approvals.ask(question)
        if answer.answer == "deny":
            raise _denied(answer, KEPT)
        return permit._replace(overruled=permit.overruled | {overlap.text})

    async def _preview(self, request: UseRequest, grant: Grant) -> Preview:
        """Return the preview for the user, even of a file that is hidden from the model."""
        from sanderling.permissions.removals import removals_note

        paths = grant._replace(hosts=())
        async with self._workspace.sandbox.environment.lending(paths):
            workspace = self._workspace.granted(paths)
            preview = await request.preview(workspace)
            removed = await removals_note(request.effect, workspace)
        return msgspec.structs.replace(preview, note=preview.note or removed)

    async def _answer(self, shown: ApprovalRequested, question: Question) -> AnswerApproval:
        """Ask until the answer can be applied: a rule that the user has typed may be invalid, or not cover the use."""
        first = shown
        while True:
            answer = await self.approvals.ask(shown)
            try:
                self._follow(answer, question)
            except ConfigError as error:
                reason = f"{error} {first.reason}".rstrip()
                shown = msgspec.structs.replace(first, reason=reason, rule=answer.rule)
            else:
                return answer

    def _offering(self, shown: ApprovalRequested, question: Question) -> ApprovalRequested:
        """
        Do not offer an answer after which the next such use would ask again: a client that always gives it would not end.

        "Always" does not overrule an ask rule. Nothing overrules a hook that asks, which runs again before the next use, nor the question
        about a file of instructions.
        """
        if question.is_each_time:
            return msgspec.structs.replace(shown, choices=("once",), rule="", wider="")
        try:
            if shown.rule:
                self._chosen_rule(shown.rule, question)
        except ConfigError:
            return msgspec.structs.replace(shown, choices=("once", "session"), rule="", wider="")
        return shown

    def _follow(self, answer: AnswerApproval, question: Question) -> None:
        from sanderling.permissions.proposing import propose

        effect, conditions = question.request.effect, question.conditions
        match answer.answer:
            case "again":
                pass
            case "once" if effect.kind != "delegate":
                pass
            case "once" | "session":  # whether to delegate is asked once in a session
                if answer.rule:
                    rule = self._chosen_rule(answer.rule, question)
                elif rule := propose(effect, project=self._workspace.project):
                    rule = _marked(rule, effect)
                for gate in (self, *([self._above] if answer.for_tree and self._above else ())):
                    gate.allow(AllowedUse(conditions, effect, question.permit.grant), rule)
            case "always":
                self._store.add(self._chosen_rule(answer.rule, question))
            case "deny" | "cancel":
                raise _denied(answer, DENIED)

    def allow(self, use: AllowedUse, rule: Rule | None) -> None:
        """Allow the use for the session, and others as the rule says."""
        if rule:
            self._session.rules[use.conditions].append(rule)
        self._session.uses.add(use)
        self._on_allowed()

    def _chosen_rule(self, text: str, question: Question) -> Rule:
        """
        Return the rule that the user has chosen or typed for this question and those like it.

        Raises:
            ConfigError: it is not a rule, or would not allow this use.
        """
        from sanderling.permissions.decide import why_not_allowed_by

        effect, workspace = question.request.effect, self._workspace
        rule = _marked(rule_from_text(text), effect)
        rules = self._rules(self._store.load(), question.conditions)
        why = why_not_allowed_by(
            rule, effect, rules, project=workspace.project, disk=workspace.disk
        )
        if not why and not _is_named(question.permit.grant, rule):
            why = f"it does not name the host {question.permit.grant.hosts[0]}"
        if why:
            raise ConfigError(f"'{visible_line(text)}' was not added: {why.rstrip('.')}.")
        return rule

    # --- the user's view of the rules ------------------------------------------------------------------------------------

    def shown_rules(self, layers: Sequence[Layer]) -> RulesPage:
        """Return the rules in effect; `layers` are those of the session's settings."""
        from sanderling.permissions.listing import lasting_rules

        stored = self._store.load()
        lasting = lasting_rules(self._own_rules, layers, stored)
        return RulesPage((*lasting, *self.session_rules()), stored.problem)

    def session_rules(self) -> tuple[ShownRule, ...]:
        """Return what the user has allowed for the session: rules, and exact uses that these rules do not cover."""
        return self._session.shown(self._conditions(self._workspace.sandbox.environment))

    def change_rule(self, text: str, new: str = "") -> None:
        """
        Delete what the user has allowed for the session or always with this text, or replace the rule by `new`.

        A rule for tools of a server stays bound to that server as declared. Uses of the session that the rule concerns ask again.

        Raises:
            ConfigError: there is no such rule, `new` is not a rule, or the rules cannot be stored.
        """
        replacement = rule_from_text(new.strip()) if new.strip() else None

        def changed(rule: Rule) -> Rule | None:
            return replacement and _in_place_of(rule, replacement)

        stored = [rule for rule in self._store.load().rules if str(rule) == text]
        session = self._session.find(text)
        if not stored and not session and (replacement or not self._session.has_use(text)):
            raise ConfigError(self._why_fixed(text))
        for rule in session:
            changed(rule)  # before anything is stored
        for rule in stored:
            if after := changed(rule):
                self._store.replace(rule, after)
            else:
                self._store.remove(rule)
        self._session.change(text, changed)
        self._on_allowed()

    def _why_fixed(self, text: str) -> str:
        shown = visible_line(text)
        if self._session.has_use(text):
            return f"'{shown}' allows exactly one use: delete it instead."
        if any(str(rule) == text for rule in self._own_rules):
            return f"'{shown}' is from the settings: change it there."
        return f"there is no rule '{shown}' any more."

    def _concerns(self, rule: Rule, effect: Effect) -> bool:
        from sanderling.permissions.decide import concerns_part

        workspace = self._workspace
        return concerns_part(rule, effect, project=workspace.project, disk=workspace.disk)

    def _covers(self, rules: Sequence[Rule], use: AllowedUse) -> bool:
        effect = msgspec.structs.replace(use.effect, exported=())  # a rule is about the command
        conditions = use.conditions._replace(mode="ask")
        return self._decide(effect, rules, conditions).action == "allow"

    # --- resumed sessions ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what was allowed for the session, as plain data, for `restore`."""
        return msgspec.to_builtins(
            {
                "rules": [(c, rules) for c, rules in self._session.rules.items() if rules],
                "effects": sorted(self._session.uses, key=repr),
                "granted": self.grant_prompts.granted
                if self.grant_prompts.granted != NO_GRANT
                else self._granted_before,
                "seen_exports": sorted(self._seen_exports),
            }
        )

    def restore(self, state: object) -> None:
        allowed = msgspec.convert(state, _AllowedUse)
        for conditions, rules in allowed.rules:
            self._session.rules[conditions] += rules
        self._session.uses |= set(allowed.effects)
        self._seen_exports |= set(allowed.seen_exports)
        self._granted_before = allowed.granted

    async def grant_again(self) -> None:
        """Grant again what was granted before the session was resumed, where it still exists."""
        async with self._changing_network:
            await self.grant_prompts.restore(self._granted_before)
            self._granted_before = NO_GRANT  # what no longer exists is asked about again

    async def set_network(self, mode: NetworkMode) -> None:
        """
        Change the network for what starts from now on; "off" also revokes the hosts allowed for the session.

        Raises:
            SandboxError: this sandbox level cannot do it, or the sandbox is off.
        """
        async with self._changing_network:
            if mode == "off":  # first, so that a session that ends meanwhile does not keep them
                self._take_back_hosts()
            await self._workspace.sandbox.set_network(mode)
        for gate in list(self.below):
            with suppress(SandboxError):  # a child whose sandbox is off has none
                await gate.set_network(mode)

    def switch_sandbox(self, *, is_on: bool) -> None:
        """Confine what starts from now on, or not. The user must have typed the second."""
        self._workspace.sandbox.switch(is_on=is_on)
        for gate in self.below:
            gate.switch_sandbox(is_on=is_on)

    def follow_sandbox(self) -> None:
        """Switch the sandbox off if the parent's is."""
        if self._above and not self._above.is_confined:
            self._workspace.sandbox.switch(is_on=False)

    def _take_back_hosts(self) -> None:
        self._session.revoke_hosts()
        self._granted_before = self._granted_before._replace(hosts=())
        self.grant_prompts.revoke_hosts()


def _marked(rule: Rule, effect: Effect) -> Rule:
    """Bind the rule to the server of `effect` as it is declared now: a later server of the same name inherits nothing."""
    is_for_it = rule.action == "allow" and rule.tool == effect.tool  # of a Python package
    is_to_bind = is_for_it or is_for_any_server(rule)
    return msgspec.structs.replace(rule, server=effect.server) if is_to_bind else rule


def _in_place_of(rule: Rule, new: Rule) -> Rule:
    """
    Return `new`, bound to the server of `rule` if it allows tools of a server.

    Raises:
        ConfigError: it allows tools of another server.
    """
    if not is_for_any_server(new):
        return new
    if not rule.server or _server_of(new) != _server_of(rule):
        raise ConfigError(
            f"'{visible_line(str(new))}' is for another server: answer \"always\" when one of its tools asks."
        )
    return msgspec.structs.replace(new, server=rule.server)


def _server_of(rule: Rule) -> str:
    return rule.tool.rpartition(OUTSIDE)[0]


def _accepted(question: ApprovalRequested, answer: AnswerApproval) -> AcceptedPart | None:
    """Return the part of the proposal that the user accepts; None if they accept all of it unchanged."""
    review = answer.review
    if question.proposal is None or review is None:
        return None
    accepted = AcceptedPart(review)
    if not accepted.is_possible:
        raise ToolError(UNFIT)
    if accepted.is_nothing:
        raise _denied(answer, DENIED)
    return accepted


def _denied(answer: AnswerApproval, without_reason: str) -> DeniedError:
    reason, message = answer.reason.strip(), without_reason
    if reason:
        words = UNATTENDED if answer.is_unattended else DENIED_WITH_REASON
        message = words.format(reason=reason)
    elif answer.review and (reason := (accepted := AcceptedPart(answer.review)).reason):
        message = "\n".join(accepted.review_notes().notes)
    return DeniedError(message, reason, is_alone=answer.is_alone)


def _needed(request: UseRequest) -> Grant:
    """Return the grant that the use needs beyond what the sandbox already allows."""
    effect, environment = request.effect, request.environment
    if effect.does:  # outside the sandbox, where a grant means nothing
        return NO_GRANT
    match effect.kind:
        case "fetch" if not environment.leads_to(effect.host) or (
            # A search endpoint on loopback is on the user's machine, not in the session's network.
            effect.tool == SEARCH_TOOL and environment.network == "off"
        ):
            return Grant(hosts=(effect.host,))
        case "write":
            return environment.needed_to_write(effect.path)
        case _:
            return NO_GRANT


def _only_reads(effect: Effect, *, is_off: bool) -> bool:
    """Return whether a use writes nothing, provided that the sandbox, if it is on, is read-only."""
    match effect.kind:
        case "write":
            return False
        case "run":
            return not (is_off or effect.leaves_sandbox)
        case "call":
            return effect.does == "read"
        case _:
            return True


def _is_named(grant: Grant, rule: Rule | None) -> bool:
    """Return True if the rule names what the grant needs: a rule for all hosts does not open the network to each of them."""
    return not grant.hosts or bool(rule and rule.host)
