"""The rules in effect as the user sees them, each with its origin."""

from collections.abc import Sequence

from sanderling.config import Layer
from sanderling.config.layers import place_of
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import StoredRules
from sanderling.protocol.requests import ShownRule

ALWAYS, THIS_RUN = "always", "the command line"


def lasting_rules(
    own: Sequence[Rule], layers: Sequence[Layer], stored: StoredRules
) -> tuple[ShownRule, ...]:
    """Return the user's `own` rules, which the settings of `layers` contain, then the stored ones."""
    places = (str(place_of(("permissions", number), layers)) for number in range(len(own)))
    uses = stored.last_uses
    return (
        *(ShownRule(str(rule), place or THIS_RUN) for rule, place in zip(own, places, strict=True)),
        *(ShownRule(str(rule), ALWAYS, uses.get(str(rule), "")) for rule in stored.rules),
    )
