"""
Decides whether a tool use runs, asks first or is denied, from the mode, the rules and the effect of the use.

Deny rules override ask rules, and ask rules override allow rules. A deny or ask rule holds as soon as any visible part of a use matches;
where a match cannot be ruled out, the user is asked. An allow rule must cover the whole use.
"""

from collections.abc import Mapping, Sequence

import msgspec

from sanderling.hosts import is_loopback, split_authority
from sanderling.permissions.allowing import covers, covers_part, uncovered
from sanderling.permissions.forbidding import forbids
from sanderling.permissions.only_reading import is_read_only
from sanderling.permissions.rules import KINDS, Action, Examples, Rule, concerns
from sanderling.permissions.shell.grammar import parse
from sanderling.permissions.use import Use
from sanderling.protocol.modes import Mode
from sanderling.sandbox.execution_environment import LOCAL_DISK, Disk
from sanderling.text import visible_line
from sanderling.tools.effects import Effect


class Decision(msgspec.Struct, frozen=True):
    """
    A decision.

    Attributes:
        reason: a sentence for the user, and for the model if denied.
        rule: the rule that decided, if any.
        is_for_user: of "ask", that no hook may answer: a rule or plan mode asks, the sandbox would not confine it, or the file is protected.
        is_each_time: of "ask", that no rule and no earlier answer may answer either.
    """

    action: Action
    reason: str
    rule: Rule | None = None
    is_for_user: bool = False
    is_each_time: bool = False


def decide(
    effect: Effect,
    mode: Mode,
    rules: Sequence[Rule],
    *,
    project: str,
    is_confined: bool,
    write_paths: Sequence[str] = (),
    disk: Disk = LOCAL_DISK,
) -> Decision:
    """
    Return whether a tool use runs, asks first or is denied. Several files are decided one by one; the strictest decision wins.

    `project` is the absolute root. `is_confined`: the sandbox will confine what runs. `write_paths` are what it may write outside the
    project. Links and programs on PATH are looked up on `disk`.
    """
    decisions = [
        _decide(use, mode, rules, is_confined=is_confined, write_paths=write_paths)
        for use in _uses(effect, project, disk)
    ]
    return min(decisions, key=_leniency)


def _leniency(decision: Decision) -> tuple[int, bool, bool]:
    return _STRICTNESS.index(decision.action), not decision.is_each_time, not decision.is_for_user


def _uses(effect: Effect, project: str, disk: Disk) -> list[Use]:
    """Return a use for each file of `effect`."""
    paths = effect.paths if len(effect.paths) > 1 else (effect.path,)
    parts = (msgspec.structs.replace(effect, path=path, paths=()) for path in paths)
    return [Use(part, project, disk) for part in parts]


_WITHOUT_QUOTING = str.maketrans("", "", "\\'\"")
_STRICTNESS: tuple[Action, ...] = ("deny", "ask", "allow")


def _decide(
    use: Use, mode: Mode, rules: Sequence[Rule], *, is_confined: bool, write_paths: Sequence[str]
) -> Decision:
    kind, does = use.effect.kind, use.effect.does
    if kind == "none":
        return Decision("allow", "It only affects the conversation.")
    if against := _against(use, mode, rules):
        return against
    if at_once := _at_once(use, mode, is_confined=is_confined, write_paths=write_paths):
        return Decision("allow", at_once)
    if mode == "plan" and (does == "run" or (kind == "call" and does != "network")):
        reason = "Plan mode is read-only, and this tool may change things."
        return Decision("ask", reason, is_for_user=True)
    if mode == "plan" and kind == "run" and not is_confined:
        return Decision(
            "ask",
            "Plan mode relies on the sandbox to keep commands from writing, and the sandbox is off.",
            is_for_user=True,
        )
    return _by_rules(use, rules, is_confined=is_confined)


PLAN = "The session is in plan mode: nothing is written. Describe the change in your answer; the user can change the mode."


INSTRUCTIONS = "Sanderling sends it to the model in later sessions, so every change asks."


def _against(use: Use, mode: Mode, rules: Sequence[Rule]) -> Decision | None:
    """Return the decision against a use, which overrides allow rules: by a deny or ask rule, by plan mode, or because it writes instructions."""
    verdicts = [(rule, forbids(rule, use)) for rule in rules if rule.action != "allow"]
    for rule, verdict in verdicts:
        if rule.action == "deny" and verdict == "yes":
            return Decision("deny", f"A rule forbids this: {rule}.", rule)
    if mode == "plan" and "write" in (use.effect.kind, use.effect.does):
        return Decision("deny", PLAN)
    if use.instructs:
        return Decision("ask", INSTRUCTIONS, is_for_user=True, is_each_time=True)
    for rule, verdict in verdicts:
        if verdict == "yes":
            return Decision("ask", f"A rule asks about this: {rule}.", rule, is_for_user=True)
    for rule, verdict in verdicts:
        if verdict == "maybe":
            return Decision("ask", f"This rule may apply: {rule}.", rule, is_for_user=True)
    return None


def _at_once(use: Use, mode: Mode, *, is_confined: bool, write_paths: Sequence[str]) -> str:
    """Return why a use may run without an allow rule; "" if it needs one."""
    if does := use.effect.does:  # outside the sandbox
        names_outside = use.effect.path and not use.is_inside()
        return "It declares that it only reads." if does == "read" and not names_outside else ""
    match use.effect.kind:
        case "read" if is_confined or use.is_inside():
            return "It only reads."
        case "write" if mode == "auto" and is_confined and use.is_inside(write_paths):
            return "" if use.protected else "The sandbox confines it."
        case "run" if mode != "ask" and is_confined and not use.effect.leaves_sandbox:
            return "The sandbox confines it."
        case "fetch" if (
            mode == "auto"
            and is_confined
            and use.effect.tool == "web_fetch"  # a search is not made from the session's network
            and _is_own_loopback(use.effect.host)
        ):
            return "It stays on the session's own loopback."
        case _:
            return ""


def _is_own_loopback(host: str) -> bool:
    return is_loopback(split_authority(host)[0])


UNDECLARED = "It does not declare what it does, and the sandbox does not confine it."


IN_TERMINAL = "Its effect depends on the program in the terminal."


def _by_rules(use: Use, rules: Sequence[Rule], *, is_confined: bool) -> Decision:
    """Decide by the allow rules. Leaving the sandbox always asks, whatever they allow."""
    effect = use.effect
    if effect.leaves_sandbox:
        reason = (
            UNDECLARED if effect.kind == "call" else "It needs more access than the sandbox gives."
        )
        return Decision("ask", reason, is_for_user=True)
    if effect.exported or effect.terminal == "program":
        return Decision("ask", exports_note(effect.exported) or IN_TERMINAL)
    allowing = [rule for rule in rules if rule.action == "allow"]
    if effect.is_line:
        only_rules = (
            effect.terminal != ""
        )  # what reads in a shell, such as `cat ZZ`, may write in vim
        problem, rule = uncovered(use, allowing, is_confined=is_confined, only_rules=only_rules)
        if problem:
            return Decision("ask", problem, is_for_user=not is_confined)
        return Decision("allow", "It is allowed.", rule)
    for rule in allowing:
        if covers(rule, use):
            return Decision("allow", f"A rule allows it: {rule}.", rule)
    missing = {
        "read": "No rule allows reading outside the project.",
        "write": "No rule allows this change.",
        "fetch": "No rule allows this host.",
        "call": "No rule allows this tool.",
        "delegate": "No rule allows child sessions.",
    }
    reason = f"{_DOES[effect.does]}{missing['call']}" if effect.does else missing[effect.kind]
    is_for_user = effect.does != "" or (effect.kind == "write" and bool(use.protected))
    return Decision("ask", reason, is_for_user=is_for_user)


_DOES: Mapping[str, str] = {
    "read": "It reads outside the project and the sandbox. ",
    "write": "It changes files, and the sandbox does not confine it. ",
    "run": "It runs programs outside the sandbox. ",
    "network": "It uses the network outside the sandbox. ",
}


MAX_SHOWN_CHARS = 1_000


def is_shown_whole(exported: Sequence[str]) -> bool:
    """Return True if `exports_note` does not shorten the list: only then has its reader seen all of it."""
    return len(", ".join(exported)) <= MAX_SHOWN_CHARS


def exports_note(exported: Sequence[str]) -> str:
    """Return the sentence about what earlier commands have set; "" for nothing."""
    shown = ", ".join(exported)
    if not is_shown_whole(exported):
        shown = f"{shown[:MAX_SHOWN_CHARS]} … ({len(shown):,} characters)"
    return f"An earlier command set {shown}, which can change what runs." if shown else ""


def get_ready() -> None:
    """Load the shell grammar ahead of the first command."""
    parse("")


def only_reads_with(name: str, command: str, *, cwd: str, project: str, is_confined: bool) -> bool:
    """Return True if a line runs the program `name`, and only to read."""
    if name not in command.translate(_WITHOUT_QUOTING):
        return False
    use = Use(Effect("bash", "run", command=command, cwd=cwd), project)
    found = [each.words for each in use.parsed.commands if each.words[:1] == (name,)]
    looks = all(is_read_only(words, use, is_confined=is_confined) for words in found)
    return bool(found) and looks and not use.parsed.problem


def only_reads(effect: Effect, *, project: str, is_confined: bool, disk: Disk = LOCAL_DISK) -> bool:
    """Return True if a command line visibly changes nothing, not even the shell: it may run beside others of its kind."""
    if effect.terminal:
        return False
    use = Use(effect, project, disk)
    commands = use.parsed.commands
    changes_shell = any(
        not command.words or command.words[0] in _CHANGING_THE_SHELL for command in commands
    )
    return not changes_shell and not uncovered(use, (), is_confined=is_confined)[0]


_CHANGING_THE_SHELL = ("cd", "read", "printf")
"""Programs that only read files, but can change the directory or variables of the shell."""


def why_not_allowed_by(
    rule: Rule, effect: Effect, rules: Sequence[Rule], *, project: str, disk: Disk
) -> str:
    """Return why `rule`, added to `rules`, would not allow this use without a question in the mode "ask"; "" if it would."""
    if rule.action != "allow":
        return "only a rule that begins with `allow` allows something"
    effect = msgspec.structs.replace(effect, exported=())  # a rule is about the command
    if not any(covers_part(rule, use) for use in _uses(effect, project, disk)):
        return f"it does not cover {_named(effect)}"
    added = decide(effect, "ask", (*rules, rule), project=project, is_confined=True, disk=disk)
    if added.action == "allow":
        return ""
    return f"{_named(effect)} would ask again. {added.reason}"


def concerns_part(rule: Rule, effect: Effect, *, project: str, disk: Disk) -> bool:
    """Return True if the rule may match any part of `effect`."""
    strict = msgspec.structs.replace(rule, action="deny", examples=Examples())
    return any(forbids(strict, use) != "no" for use in _uses(effect, project, disk))


def _named(effect: Effect) -> str:
    target = KINDS[effect.kind].target
    return f"'{visible_line((getattr(effect, target) if target else '') or effect.tool)[:80]}'"


def applies(rule: Rule, effect: Effect, *, project: str) -> bool:
    """Return True if `rule` alone applies to `effect`: to all of it if it allows, else to any of it. Rules' examples are checked with it."""
    use = Use(effect, project)
    if rule.action != "allow":
        return forbids(rule, use) == "yes"
    if effect.is_line:
        return concerns(rule, effect) and not uncovered(use, [rule], only_rules=True)[0]
    return covers(rule, use)
