"""The rules in effect as the user sees them, each with its origin."""

from collections.abc import Sequence

from sanderling.config import Layer
from sanderling.config.file import SettingLocation
from sanderling.config.layers import place_of
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import StoredRules
from sanderling.protocol.requests import ShownRule

ALWAYS, THIS_RUN = "always", "the command line"


def lasting_rules(
    own: Sequence[Rule], layers: Sequence[Layer], stored: StoredRules
) -> tuple[ShownRule, ...]:
    """Return the user's `own` rules, which the settings of `layers` contain, then the stored ones."""
    places = (place_of(("permissions", number), layers) for number in range(len(own)))
    uses = stored.last_uses
    return (
        *(_of_settings(rule, place) for rule, place in zip(own, places, strict=True)),
        *(ShownRule(str(rule), ALWAYS, uses.get(str(rule), ""), "always") for rule in stored.rules),
    )


def _of_settings(rule: Rule, place: SettingLocation) -> ShownRule:
    file = place.origin if place.line else ""
    return ShownRule(str(rule), str(place) or THIS_RUN, file=file, line=place.line)
