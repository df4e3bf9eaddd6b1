"""Rules: what one of them says, and which tools it concerns."""

import re
from typing import Annotated, Literal, get_args

import msgspec

from sanderling.errors import ConfigError
from sanderling.permissions.patterns import pattern_of
from sanderling.tools.effects import Effect

Action = Literal["allow", "ask", "deny"]


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a rule is for, in the rule's own terms (commands, paths or hosts): checked when it is loaded."""

    matches: tuple[str, ...] = ()
    does_not_match: tuple[str, ...] = ()


Text = Annotated[str, msgspec.Meta(max_length=2_000)]

RuleTool = Literal["bash", "edit", "write", "read", "web_fetch", "*"]


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    A standing answer. Of `command`, `path` and `host` one at most is set; without any, it holds for all that the tool does.

    `command`: the words that a command begins with. Any arguments may follow (a last word `*` says so), or none if the last word is
    `$`; a command that runs another (`timeout`, `bash -c`) is allowed only by a rule with all its words and that `$`. `path`: a glob
    as in .gitignore, relative to the project if it has a slash, absolute, or below `~/`; without a slash a name at any depth. `host`:
    a name, `*.name` for all below it, or an address; it may end in `:port`.

    An allow rule for `edit` or `write` is for that tool; other rules for one of them hold for both. Those that do not allow and are
    for `read`, `bash` or `*` are also held against the words of commands. They ask where it is not sure that they hold: where options
    stand between their words or at another place, and where a name differs in upper and lower case only.
    """

    action: Action
    tool: RuleTool = "*"
    command: Text = ""
    path: Text = ""
    host: Text = ""
    examples: Examples = Examples()

    def __post_init__(self) -> None:
        matchers = [name for name in ("command", "path", "host") if getattr(self, name)]
        if len(matchers) > 1:
            raise ValueError(
                f"a rule has one of command, path and host, not {' and '.join(matchers)}"
            )
        for name in matchers:
            if self.tool not in _TOOLS_OF[name]:
                raise ValueError(f"a rule for '{self.tool}' has no {name}")
        if self.command:
            pattern_of(self.command)
        if self.path and self.tool == "bash" and self.action == "allow":
            raise ValueError("a path cannot allow a command; name the command")
        if self.path.startswith("!"):
            raise ValueError(
                "a path that is negated with '!' is not possible; write a rule with another action"
            )
        if re.search(r"[\s/@]|://", self.host):
            raise ValueError("a host is a name or an address, without scheme, user and path")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.action, self.tool, self.command, self.path, self.host)))


_KIND_OF = {"bash": "run", "read": "read", "web_fetch": "fetch", "edit": "write", "write": "write"}

_TOOLS_OF = {
    "command": ("bash", "*"),
    "path": ("bash", "read", "edit", "write", "*"),
    "host": ("web_fetch", "*"),
}


def concerns(rule: Rule, effect: Effect) -> bool:
    """Whether the rule is about what this tool does at all."""
    matcher = {"run": "command", "fetch": "host"}.get(effect.kind, "path")
    if (rule.command or rule.path or rule.host) and not getattr(rule, matcher):
        return False
    if rule.tool == "*":
        return True
    if rule.action == "allow" and effect.kind == "write":
        return rule.tool == effect.tool
    return _KIND_OF[rule.tool] == effect.kind


TARGET_OF_TOOL = {
    "bash": "command",
    "read": "path",
    "edit": "path",
    "write": "path",
    "web_fetch": "host",
}


def rule_from_text(text: str) -> Rule:
    """
    The rule that `text` says in the words of `str(rule)`: action, tool, and what it is about.

    Raises:
        ConfigError: it is none.
    """
    action, tool, target, *_ = (*text.split(maxsplit=2), "", "", "")
    if action not in get_args(Action):
        raise ConfigError(f"'{text}' is no rule: it begins with {_listed(Action)}.")
    if tool not in get_args(RuleTool):
        raise ConfigError(f"'{text}' is no rule: no tool '{tool}'; tools: {_listed(RuleTool)}.")
    fields = {"action": action, "tool": tool}
    if target:
        fields[TARGET_OF_TOOL.get(tool, "command")] = target
    try:
        return msgspec.convert(fields, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"'{text}' is no rule: {error}.") from error


def _listed(words: object) -> str:
    return ", ".join(get_args(words))
