"""
The decision what a tool use may do without asking: the mode, the rules, and what the use would do, held against each other.

Among rules, deny goes before ask, and ask before allow. A rule that forbids or asks holds as soon as anything that can be seen of a
use matches; where it cannot be ruled out, the person is asked. A rule that allows must cover all of it.
"""

from collections.abc import Sequence

import msgspec

from sanderling.hosts import is_loopback, split_authority
from sanderling.permissions.allowing import covers, uncovered
from sanderling.permissions.forbidding import forbids
from sanderling.permissions.only_reading import is_read_only
from sanderling.permissions.rules import Action, Rule, concerns
from sanderling.permissions.shell.grammar import parse
from sanderling.permissions.use import Use
from sanderling.protocol.modes import Mode
from sanderling.sandbox.ground import LOCAL_DISK, Disk
from sanderling.tools.effects import Effect


class Decision(msgspec.Struct, frozen=True):
    """`reason` is a sentence for the person, and for the model if it is denied; `rule` is what decided, if one did."""

    action: Action
    reason: str
    rule: Rule | None = None


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
    Decide whether a tool use runs at once, asks first, or is not done: of several files, each as if it were the only one.

    `project` is the absolute root; `is_confined` says that the sandbox will hold what runs; `write_paths` are what it lets in beside
    the project. Looks on the `disk` for links, and for what PATH leads to.
    """
    paths = effect.paths if len(effect.paths) > 1 else (effect.path,)
    decisions = [
        _decide(
            msgspec.structs.replace(effect, path=path, paths=()),
            mode,
            rules,
            project=project,
            is_confined=is_confined,
            write_paths=write_paths,
            disk=disk,
        )
        for path in paths
    ]
    return min(decisions, key=lambda each: _STRICTNESS.index(each.action))


_WITHOUT_QUOTING = str.maketrans("", "", "\\'\"")
_STRICTNESS: tuple[Action, ...] = ("deny", "ask", "allow")


def _decide(
    effect: Effect,
    mode: Mode,
    rules: Sequence[Rule],
    *,
    project: str,
    is_confined: bool,
    write_paths: Sequence[str],
    disk: Disk,
) -> Decision:
    if effect.kind == "none":
        return Decision("allow", "It touches nothing outside of the conversation.")
    use = Use(effect, project, disk)
    if against := _against(use, mode, rules):
        return against
    if at_once := _at_once(use, mode, is_confined=is_confined, write_paths=write_paths):
        return Decision("allow", at_once)
    if mode == "plan" and effect.kind == "run" and not is_confined:
        return Decision(
            "ask", "In plan mode it is the sandbox that keeps commands from writing, and it is off."
        )
    if mode == "plan" and effect.kind == "call":
        return Decision("ask", "In plan mode nothing is changed, and what this does is not known.")
    return _by_rules(use, rules, is_confined=is_confined)


PLAN = "The session is in plan mode: nothing is written. Say in your answer what you would change; the person can change the mode."


def _against(use: "Use", mode: Mode, rules: Sequence[Rule]) -> Decision | None:
    """The decision against a use, whatever allows it: by the rules that deny or ask, and plan mode."""
    verdicts = [(rule, forbids(rule, use)) for rule in rules if rule.action != "allow"]
    for rule, verdict in verdicts:
        if rule.action == "deny" and verdict == "yes":
            return Decision("deny", f"A rule forbids this: {rule}.", rule)
    if mode == "plan" and use.effect.kind == "write":
        return Decision("deny", PLAN)
    for rule, verdict in verdicts:
        if verdict == "yes":
            return Decision("ask", f"A rule asks about this: {rule}.", rule)
    for rule, verdict in verdicts:
        if verdict == "maybe":
            return Decision("ask", f"It cannot be ruled out that this rule holds: {rule}.", rule)
    return None


def _at_once(use: "Use", mode: Mode, *, is_confined: bool, write_paths: Sequence[str]) -> str:
    """The reason for which a use may run whatever the rules allow; "" if they have to."""
    match use.effect.kind:
        case "read" if is_confined or use.is_inside():
            return "It only reads."
        case "write" if mode == "auto" and is_confined and use.is_inside(write_paths):
            return "" if use.protected else "The sandbox confines it."
        case "run" if mode != "ask" and is_confined and not use.effect.leaves_sandbox:
            return "The sandbox confines it."
        case "fetch" if mode == "auto" and is_confined and _is_own_loopback(use.effect.host):
            return "It stays on the loopback of the session."
        case _:
            return ""


def _is_own_loopback(host: str) -> bool:
    return is_loopback(split_authority(host)[0])


def _by_rules(use: "Use", rules: Sequence[Rule], *, is_confined: bool) -> Decision:
    """The decision by the rules that allow. None lets anything leave the sandbox: that is asked each time."""
    effect = use.effect
    if effect.leaves_sandbox:
        return Decision("ask", "It asks for more than the sandbox gives.")
    if effect.exported:
        return Decision("ask", exports_told(effect.exported))
    allowing = [rule for rule in rules if rule.action == "allow"]
    if effect.kind == "run":
        problem, rule = uncovered(use, allowing, is_confined=is_confined)
        return Decision("ask", problem) if problem else Decision("allow", "It is allowed.", rule)
    for rule in allowing:
        if covers(rule, use):
            return Decision("allow", f"A rule allows it: {rule}.", rule)
    what = {
        "read": "reads outside of the project",
        "write": "changes a file",
        "fetch": "fetches a page",
        "call": "calls a tool from outside",
    }
    return Decision("ask", f"It {what[effect.kind]}, and no rule allows it.")


MAX_TOLD_CHARS = 1_000


def is_told_whole(exported: Sequence[str]) -> bool:
    """True if `exports_told` says all of it: else whoever reads that has not seen it."""
    return len(", ".join(exported)) <= MAX_TOLD_CHARS


def exports_told(exported: Sequence[str]) -> str:
    """The sentence about what earlier commands have set; "" for nothing."""
    told = ", ".join(exported)
    if not is_told_whole(exported):
        told = f"{told[:MAX_TOLD_CHARS]} … ({len(told):,} characters)"
    return f"An earlier command has set {told}, which can change what runs." if told else ""


def get_ready() -> None:
    """Load the shell's grammar, ahead of the first command."""
    parse("")


def only_reads_with(name: str, command: str, *, cwd: str, project: str, is_confined: bool) -> bool:
    """True if a program stands in a line, and all that it does there is to look."""
    if name not in command.translate(_WITHOUT_QUOTING):
        return False
    use = Use(Effect("bash", "run", command=command, cwd=cwd), project)
    found = [each.words for each in use.parsed.commands if each.words[:1] == (name,)]
    looks = all(is_read_only(words, use, is_confined=is_confined) for words in found)
    return bool(found) and looks and not use.parsed.problem


def applies(rule: Rule, effect: Effect, *, project: str) -> bool:
    """True if `rule` by itself holds for `effect`: all of it if it allows, any of it otherwise. Its examples are held against this."""
    use = Use(effect, project)
    if rule.action != "allow":
        return forbids(rule, use) == "yes"
    if effect.kind == "run":
        return concerns(rule, effect) and not uncovered(use, [rule], only_rules=True)[0]
    return covers(rule, use)
