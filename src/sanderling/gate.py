"""The gate before every tool use: rules and mode say whether it may run, must not, or is the person's to decide."""

from collections.abc import Callable

import msgspec

from sanderling.approvals import Approvals
from sanderling.errors import ConfigError, ToolError
from sanderling.events import AnswerApproval, ApprovalRequested, Event, Mode, ModeChanged
from sanderling.permissions import Effect, Rule, decide
from sanderling.rules import RuleStore, propose
from sanderling.tool_uses import DeniedError
from sanderling.tools.base import Context, Tool
from sanderling.tools.workspace import Workspace

DENIED = "The person denied this, and gave no reason. Ask what they want instead of trying it another way."
DENIED_WITH_REASON = "The person denied this: {reason}"
TARGET_OF_TOOL = {
    "bash": "command",
    "read": "path",
    "edit": "path",
    "write": "path",
    "web_fetch": "host",
}
MODE_NEWS: dict[Mode, str] = {
    "ask": "[The person has switched to ask mode: changes, commands and fetches ask them first.]",
    "auto": "[The person has switched to auto mode: what the sandbox confines runs without asking them.]",
    "plan": "[The person has switched to plan mode: the kernel keeps the project read-only, for commands, too. Look and plan;"
    " do not try to change anything. Say what you would do.]",
}
# They show as nothing, though Unicode counts them as letters and symbols.
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")


class Gate:
    """
    What a session allows. `own_rules` are the person's settings, `store` holds what "always" has made.

    `mode` is the person's alone: no tool can reach it.
    """

    def __init__(
        self,
        workspace: Workspace,
        approvals: Approvals,
        store: RuleStore,
        own_rules: tuple[Rule, ...],
        emit: Callable[[Event], None],
    ) -> None:
        self.mode: Mode = "ask"
        self._workspace = workspace
        self._approvals = approvals
        self._store = store
        self._own_rules = own_rules
        self._emit = emit
        self._session_rules: list[Rule] = []
        self._session_effects: set[Effect] = set()
        self._is_told = True  # the model, of the mode

    def news(self) -> str:
        """What the model has to know of a mode that has changed; once."""
        news = "" if self._is_told else MODE_NEWS[self.mode]
        self._is_told = True
        return news

    def set_mode(self, mode: Mode) -> None:
        """From now on; in plan mode the kernel keeps the project as it is for what is started from now on."""
        self.mode = mode
        self._is_told = False
        self._workspace.sandbox.set_mode("ro" if mode == "plan" else "rw")
        self._emit(ModeChanged(mode))

    async def permit(self, tool: Tool, args: msgspec.Struct, context: Context) -> None:
        """
        Return when the tool use may run.

        Raises:
            DeniedError: the person said no.
            ToolError: a rule or the mode says no, or it could not be done anyway.
        """
        workspace = self._workspace
        effect = tool.effect(args, workspace)
        stored = self._store.load()
        decision = decide(
            effect,
            self.mode,
            (*self._own_rules, *stored.rules, *self._session_rules),
            project=workspace.project,
            is_confined=not workspace.sandbox.is_off,
            write_paths=workspace.sandbox.write_paths,
        )
        if decision.action == "deny":
            raise ToolError(decision.reason)
        if decision.action == "allow" or effect in self._session_effects:
            return
        reason = " ".join(filter(None, (decision.reason, stored.problem)))
        question = await self._question(tool, args, context, effect, reason)
        await self._ask(question, effect)

    async def _question(
        self, tool: Tool, args: msgspec.Struct, context: Context, effect: Effect, reason: str
    ) -> ApprovalRequested:
        preview = await tool.preview(args, context)
        rule = propose(effect, project=self._workspace.project)
        return ApprovalRequested(
            context.tool_use_id,
            tool.name,
            visible(tool.title(args, self._workspace)),
            visible(preview.subject),
            reason,
            self._workspace.shell.cwd if effect.kind == "run" else self._workspace.project,
            ("once", "session", "always") if rule else ("once", "session"),
            preview.filetype,
            str(rule) if rule else "",
            effect.path,
        )

    async def _ask(self, question: ApprovalRequested, effect: Effect) -> None:
        """Until there is an answer that can be followed: a rule that the person has written may be none."""
        while True:
            answer = await self._approvals.ask(question)
            try:
                self._follow(answer, effect)
            except ConfigError as error:
                question = msgspec.structs.replace(question, reason=str(error), rule=answer.rule)
            else:
                return

    def _follow(self, answer: AnswerApproval, effect: Effect) -> None:
        match answer.answer:
            case "once":
                pass
            case "session":
                rule = propose(effect, project=self._workspace.project)
                if rule:
                    self._session_rules.append(rule)
                self._session_effects.add(effect)
            case "always":
                self._store.add(rule_from_text(answer.rule))
            case "deny":
                reason = answer.reason.strip()
                raise DeniedError(DENIED_WITH_REASON.format(reason=reason) if reason else DENIED)

    async def ask_to_go_on(self, repeated: str) -> bool:
        """The model goes in circles: whether it may go on."""
        question = ApprovalRequested(
            "again",
            "again",
            "Go on?",
            visible(repeated),
            "The model has made the same call again and again, and its result was the same each time.",
            self._workspace.project,
            ("once",),
        )
        return (await self._approvals.ask(question)).answer != "deny"


def rule_from_text(text: str) -> Rule:
    """
    The rule that `text` says in the words of `str(rule)`: action, tool, and what it is about.

    Raises:
        ConfigError: it is none.
    """
    action, tool, target, *_ = (*text.split(maxsplit=2), "", "", "")
    fields = {"action": action, "tool": tool}
    if target:
        fields[TARGET_OF_TOOL.get(tool, "command")] = target
    try:
        return msgspec.convert(fields, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"'{text}' is no rule: {error}.") from error


def visible(text: str) -> str:
    """What is approved must be what is read: what shows as nothing, or turns the direction of reading, shows as its code point."""
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    is_seen = character in "\n\t" or (character.isprintable() and character not in BLANK)
    return character if is_seen else f"<U+{ord(character):04X}>"
