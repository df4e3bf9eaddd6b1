"""Rules: what a rule says, and which tools it concerns."""

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from sanderling.errors import ConfigError
from sanderling.packages import extension, extensions
from sanderling.permissions.patterns import pattern_of
from sanderling.tools.effects import DEBUG, OUTSIDE, Effect

_NUMBER = r"-\d+$"  # added to a tool's name that is taken (`mcp/names.py`)
_TOOL = r"(?a)[\w*?\[\]!-]+"
Action = Literal["allow", "ask", "deny"]


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Examples of a rule, in its own terms (commands, paths or hosts), checked when it is loaded."""

    matches: tuple[str, ...] = ()
    does_not_match: tuple[str, ...] = ()


Text = Annotated[str, msgspec.Meta(max_length=2_000)]


class Kind(NamedTuple):
    """A kind of effect: the rule field that matches its target, and the tools that represent it in rules."""

    target: Literal["command", "path", "host", ""]
    tools: tuple[str, ...] = ()


KINDS = {
    "run": Kind("command", ("bash",)),
    "write": Kind("path", ("edit", "write", "code_refactor")),
    "read": Kind("path", ("read",)),
    "fetch": Kind("host", ("web_fetch", "web_search")),
    "call": Kind(""),
    "delegate": Kind("", ("delegate",)),
}
KIND_OF_TOOL = {tool: name for name, kind in KINDS.items() for tool in kind.tools}


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    A permission rule. At most one of `command`, `path` and `host` is set; without any, it holds for everything that the tool does.

    Attributes:
        tool: a tool of `KINDS`, which represents all tools of its kind; or the name of an MCP tool, a glob for such names, or
            `debug`, or the name of a Python package's tool.
        command: the first words of a command. Any arguments may follow (a last word `*` says so), or none if the last word is `$`. A
            command that runs another (`timeout`, `bash -c`) is allowed only by a rule with all its words and that `$`.
        path: a glob as in .gitignore: relative to the project if it contains a slash, absolute, or below `~/`. Without a slash, a name
            at any depth.
        host: a name, `*.name` for all below it, or an address; may end in `:port`.
        server: the mark of a declared server (`Effect.server`), to which the rule is limited; "always" sets it.

    An allow rule for `edit` or `write` covers only that tool, and one for a built-in tool no other tool outside the sandbox; deny and ask rules for one of them cover both. Deny and ask rules for
    `read`, `bash` or `*` are also compared to the words of commands. They ask if a match is uncertain: if options are between their words
    or elsewhere, or if a name differs only in case.
    """

    action: Action
    tool: Text = "*"
    command: Text = ""
    path: Text = ""
    host: Text = ""
    server: Text = ""
    examples: Examples = Examples()

    def __post_init__(self) -> None:
        if not _is_tool(self.tool):
            added = (each.name for each in extensions("sanderling.tools"))
            known = ", ".join((*KIND_OF_TOOL, DEBUG, *added, "*"))
            raise ValueError(
                f"there is no tool '{self.tool}'; tools: {known}, or mcp{OUTSIDE}server{OUTSIDE}*"
            )
        if self.tool != "*" and not re.fullmatch(_TOOL, self.tool):
            raise ValueError(
                f"invalid tool name '{self.tool}': use letters, digits, '-' and '_'; other characters of an MCP tool's name are written '-'"
            )
        matchers = [name for name in ("command", "path", "host") if getattr(self, name)]
        if len(matchers) > 1:
            raise ValueError(
                f"a rule has only one of command, path and host, not {' and '.join(matchers)}"
            )
        for name in matchers:
            if name not in _targets(self.tool):
                raise ValueError(f"a rule for '{self.tool}' has no {name}")
        if self.command:
            pattern_of(self.command)
        if self.path and self.tool == "bash" and self.action == "allow":
            raise ValueError("a path cannot allow a command; name the command")
        if self.path.startswith("!"):
            raise ValueError("a path cannot be negated with '!'; write a rule with another action")
        if re.search(r"[\s/@]|://", self.host):
            raise ValueError("a host is a name or an address, without scheme, user and path")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.action, self.tool, self.command, self.path, self.host)))


def _is_tool(name: str) -> bool:
    """Return True if a rule may name this tool. Packages are only looked at for a name that is nothing else."""
    is_known = name in KIND_OF_TOOL or name in (DEBUG, "*") or OUTSIDE in name
    return is_known or extension("sanderling.tools", name) is not None


def _targets(tool: str) -> tuple[str, ...]:
    """Return the fields that a rule for the tool may have, the usual one first."""
    if tool == "*":
        return ("command", "path", "host")
    kind = KIND_OF_TOOL.get(tool, "call")
    return ("command", "path") if kind == "run" else (KINDS[kind].target,)


def concerns(rule: Rule, effect: Effect) -> bool:
    """Return True if the rule is about this tool and what it does."""
    if rule.server and rule.server != effect.server:
        return False
    target = KINDS[effect.kind].target
    if (rule.command or rule.path or rule.host) and not (target and getattr(rule, target)):
        return False
    if rule.tool in ("*", effect.tool):
        return True
    if any(fnmatchcase(name, rule.tool) for name in _outside_names(rule, effect.tool)):
        return True
    is_for_one_tool = rule.action == "allow" and (effect.kind == "write" or effect.does != "")
    return not is_for_one_tool and KIND_OF_TOOL.get(rule.tool) == effect.kind


def _outside_names(rule: Rule, tool: str) -> tuple[str, ...]:
    """Return the names by which the rule may mean an MCP tool: deny and ask rules also match a name with a number added."""
    if OUTSIDE not in tool:
        return ()
    return (tool,) if rule.action == "allow" else (tool, re.sub(_NUMBER, "", tool))


def may_allow(rule: Rule, beginning: str, server: str) -> bool:
    """Return True if the rule can allow a tool of a server, given the server's mark and the prefix of its tools' names."""
    literal = re.split(r"[*?[]", rule.tool, maxsplit=1)[0]
    is_of_it = literal.startswith(beginning) or beginning.startswith(literal)
    return rule.action == "allow" and is_of_it and rule.server in ("", server)


def is_for_any_server(rule: Rule) -> bool:
    """Return True if the rule allows MCP tools by their server's name, whatever server is declared under it."""
    return rule.action == "allow" and OUTSIDE in rule.tool and not rule.server


def rule_from_text(text: str) -> Rule:
    """
    Parse a rule in the form of `str(rule)`: action, tool, and target.

    Raises:
        ConfigError: it is not a rule.
    """
    action, tool, target, *_ = (*text.split(maxsplit=2), "", "", "")
    if action not in get_args(Action):
        raise ConfigError(
            f"'{text}' is not a rule: a rule begins with {', '.join(get_args(Action))}."
        )
    fields = {"action": action, "tool": tool}
    if target:
        fields[_targets(tool)[0] or "command"] = target
    try:
        return msgspec.convert(fields, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"'{text}' is not a rule: {error}.") from error
