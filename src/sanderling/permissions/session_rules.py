"""The user's permissions for the session: rules, and exactly the uses that they were asked about."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from sanderling.permissions.approvals import Conditions
from sanderling.permissions.rules import Rule
from sanderling.protocol.requests import ShownRule
from sanderling.sandbox.policy import Grant
from sanderling.tools.effects import Effect

SESSION, EXACTLY = "session", "session, exactly this"


class AllowedUse(NamedTuple):
    """A use that the user has allowed for the session, with the access that it needs."""

    conditions: Conditions
    effect: Effect
    grant: Grant

    @property
    def text(self) -> str:
        """The use in the form of a rule."""
        effect = self.effect
        paths = "" if effect.kind == "run" else " ".join(effect.paths) or effect.path
        command = effect.command or (effect.server if effect.terminal else "")
        return " ".join(filter(None, ("allow", effect.tool, command, paths, effect.host)))


class SessionRules(msgspec.Struct):
    """
    The rules by the conditions under which they hold, and the uses.

    Attributes:
        concerns: returns True if a rule may match any part of an effect.
        covers: returns True if rules allow all of a use.
    """

    concerns: Callable[[Rule, Effect], bool]
    covers: Callable[[Sequence[Rule], AllowedUse], bool]
    rules: dict[Conditions, list[Rule]] = msgspec.field(default_factory=lambda: defaultdict(list))
    uses: set[AllowedUse] = msgspec.field(default_factory=set[AllowedUse])

    def find(self, text: str) -> list[Rule]:
        return [rule for rules in self.rules.values() for rule in rules if str(rule) == text]

    def has_use(self, text: str) -> bool:
        return any(use.text == text for use in self.uses)

    def change(self, text: str, changed: Callable[[Rule], Rule | None]) -> None:
        """Delete or replace the rules with this text, and forget the uses that they concern or that have this text."""
        gone = {use for use in self.uses if use.text == text}
        for conditions, rules in self.rules.items():
            for rule in [rule for rule in rules if str(rule) == text]:
                gone |= {use for use in self._under(conditions) if self.concerns(rule, use.effect)}
            after = (changed(rule) if str(rule) == text else rule for rule in rules)
            self.rules[conditions] = [*dict.fromkeys(filter(None, after))]
        self.uses -= gone

    def revoke_hosts(self) -> None:
        for conditions, rules in self.rules.items():
            self.rules[conditions] = [rule for rule in rules if not rule.host]
        self.uses = {use for use in self.uses if not use.grant.hosts}

    def shown(self, now: Conditions) -> tuple[ShownRule, ...]:
        """Return the rules, and the uses that they do not cover. The origin names the conditions unless they equal `now`."""
        rules = [
            (str(rule), SESSION, under) for under, rules in self.rules.items() for rule in rules
        ]
        uses = [
            (use.text, EXACTLY, use.conditions)
            for use in sorted(self.uses, key=repr)
            if not self.covers(self.rules.get(use.conditions, ()), use)
        ]
        shown = (
            ShownRule(
                text, origin if under == now else f"{origin} ({_named(under)})", kind="session"
            )
            for text, origin, under in (*rules, *uses)
        )
        return tuple(dict.fromkeys(shown))

    def _under(self, conditions: Conditions) -> list[AllowedUse]:
        return [use for use in self.uses if use.conditions == conditions]


def _named(conditions: Conditions) -> str:
    return f"in mode {conditions.mode}, sandbox {'off' if conditions.is_off else 'on'}"
