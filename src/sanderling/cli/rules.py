"""`sanderling rules`: the permission rules in effect in a project with their origins; removing those stored by "always"."""

import argparse
import sys
from typing import Any

import msgspec

from sanderling.cli.alone import add_options, add_project, list_alone, refuse_options
from sanderling.cli.streams import say, say_untrusted
from sanderling.config.layers import own_layers
from sanderling.config.project import PROJECT_FILE
from sanderling.errors import SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.permissions.listing import lasting_rules
from sanderling.permissions.store import RuleStore, load_rules
from sanderling.project.project import own_files_in_project, with_project
from sanderling.project.root import project_root
from sanderling.project.trust.trust import Trust
from sanderling.protocol.requests import RuleKind
from sanderling.text import did_you_mean, visible_exactly, visible_line

EXIT_UNUSABLE, EXIT_USAGE = 1, 2
NONE = "No rules: everything asks that the mode does not allow."


class ListedRule(msgspec.Struct, frozen=True):
    """A rule in effect. `origin` is its place in words; `last_use` is a day in ISO format, or "". See `ShownRule`."""

    number: int
    rule: str
    origin: str
    last_use: str = ""
    kind: RuleKind = "settings"


def add(commands: Any) -> None:
    rules = commands.add_parser(
        "rules",
        description='List what is allowed, asked and denied in a project, or remove a rule that was stored by answering "always". Without an action, list them.'
        " Deny overrides ask, and ask overrides allow.",
        epilog=f"The exit status is 0; {EXIT_UNUSABLE} if stored rules cannot be used; {EXIT_USAGE} for a mistake.",
    )
    list_alone(rules, list_rules)
    actions = rules.add_subparsers(metavar="{list,remove}")
    listing = actions.add_parser(
        "list",
        help="list the rules in effect",
        description='List the rules in effect, each with its origin: a place in the settings, or "always" for a stored one.',
    )
    add_options(listing)
    listing.set_defaults(run=list_rules)
    removing = actions.add_parser(
        "remove",
        help='remove a rule that "always" has stored',
        description='Remove a rule that "always" has stored. Rules of the settings are removed in their file.',
    )
    removing.add_argument(
        "rule", nargs="+", help="its number or its text in `sanderling rules list`"
    )
    removing.set_defaults(run=remove_rule)
    add_project(removing)


def list_rules(arguments: argparse.Namespace) -> int:
    try:
        listed, store = _listed(arguments.project)
    except SanderlingError as error:
        return _fail(error)
    problem = store.load().problem
    if problem:
        say(problem)
    lines = [for_terminal(each) if arguments.json else _line(each) for each in listed]
    if not lines and not arguments.json:
        lines = [NONE]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return EXIT_UNUSABLE if problem else 0


def remove_rule(arguments: argparse.Namespace) -> int:
    wanted = " ".join(arguments.rule)
    try:
        refuse_options(arguments, "json")
        listed, store = _listed(arguments.project)
        named = [each for each in listed if wanted in (str(each.number), each.rule)]
        found = max(named, key=lambda each: each.kind == "always", default=None)
        if found is None:
            meant = did_you_mean(wanted, [each.rule for each in listed if each.kind == "always"])
            raise UsageError(
                f"there is no rule '{wanted}'{meant or ': `sanderling rules list` lists them'}"
            )
        if found.kind != "always":
            raise UsageError(f"'{found.rule}' is from {found.origin}: remove it there")
        for rule in store.load().rules:
            if str(rule) == found.rule:
                store.remove(rule)
    except SanderlingError as error:
        return _fail(error)
    sys.stdout.write(f"removed: {visible_exactly(found.rule)}\n")
    return 0


def _listed(directory: str) -> tuple[list[ListedRule], RuleStore]:
    """Return the rules in effect in a project: from the settings, then the stored ones."""
    project = project_root(directory)
    layers = own_layers()
    trust = Trust(layers.state_dir, project)
    if untrusted := trust.untrusted((PROJECT_FILE, *own_files_in_project(trust))):
        say_untrusted(untrusted)
    settings = with_project(layers, trust).settings()
    store = RuleStore(str(settings.state_dir), project)
    own = load_rules(settings.permissions, project)
    shown = lasting_rules(own, settings.layers, store.load())
    listed = [
        ListedRule(n, each.rule, each.origin, each.last_use, each.kind)
        for n, each in enumerate(shown, 1)
    ]
    return listed, store


def _line(each: ListedRule) -> str:
    use = f", last used {each.last_use}" if each.last_use else ""
    return f"{each.number:3}  {visible_exactly(each.rule)}  ({visible_line(each.origin)}{use})"


def _fail(error: SanderlingError) -> int:
    say(str(error))
    return EXIT_USAGE
