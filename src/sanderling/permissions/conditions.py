"""Conditions of hooks: Claude's `if`, a permission rule in its syntax that a tool call must match, such as `Bash(git push *)`."""

import re
from fnmatch import fnmatchcase
from functools import cache

from sanderling.errors import ConfigError
from sanderling.permissions.decide import concerns_part
from sanderling.permissions.rules import KIND_OF_TOOL, KINDS, Rule
from sanderling.protocol.tool_names import meant_name
from sanderling.tools.effects import OUTSIDE, Effect
from sanderling.tools.workspace import Workspace

_FORM = r"(?s)([\w*.-]+)(?:\((.*)\))?"


@cache
def _parsed(condition: str) -> tuple[str, Rule | None]:
    """
    Return a condition's tool, by our name, and the rule for its target, if it has one.

    Raises:
        ConfigError: it is not a condition, or has a form that no rule of ours has.
    """
    found = re.fullmatch(_FORM, condition.strip())
    if not found:
        raise ConfigError(f"its `if` '{condition[:80]}' is not a rule such as `Bash(git push *)`")
    tool, target = meant_name(found[1]), found[2] or ""
    if target in ("", "*"):
        return tool, None
    try:
        return tool, _rule(tool, target)
    except ValueError as error:
        raise ConfigError(f"its `if` '{condition[:80]}' is not supported: {error}") from error


def _rule(tool: str, target: str) -> Rule:
    """Return Sanderling's rule for the same target; raise ValueError if no rule can express it."""
    match KINDS[KIND_OF_TOOL[tool]].target if tool in KIND_OF_TOOL else "":
        case "command":
            words = re.sub(r"(?: |:)\*\Z", "", target)
            if "*" in words:
                raise ValueError("only its last word can be `*`")
            command = words if words != target else f"{target} $"
            return Rule(action="deny", tool=tool, command=command)
        case "path":
            # Claude writes an absolute path `//etc`, and one in the project `/src`.
            path = target[1:] if target.startswith("//") else re.sub(r"\A/", "./", target)
            return Rule(action="deny", tool=tool, path=path)
        case "host" if target.startswith("domain:"):
            return Rule(action="deny", tool=tool, host=target.removeprefix("domain:"))
        case _:
            raise ValueError("a rule for this tool has no target")


def problem_of(condition: str) -> str:
    """Return why a condition cannot be used; "" if it can."""
    try:
        _parsed(condition)
    except ConfigError as error:
        return str(error)
    return ""


def is_met(condition: str, tool: str, effect: Effect, workspace: Workspace) -> bool:
    """Return whether a call matches the condition. Where a match cannot be ruled out, it does: the hook may be there to deny the call."""
    wanted, rule = _parsed(condition)
    is_of_kind = wanted in ("edit", "read") and effect.kind == KIND_OF_TOOL[wanted]
    is_of_server = OUTSIDE in wanted and tool.startswith(f"{wanted}{OUTSIDE}")
    if not (is_of_kind or is_of_server or fnmatchcase(tool, wanted)):
        return False
    if rule is None or effect.kind != KIND_OF_TOOL[rule.tool]:
        return True
    return concerns_part(rule, effect, project=workspace.project, disk=workspace.disk)
