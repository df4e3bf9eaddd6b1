"""The names that files of Claude Code use for tools. Hooks match by them, and roles restrict by them."""

from collections.abc import Mapping

CLAUDES: Mapping[str, str] = {
    "bash": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "grep": "Grep",
    "glob": "Glob",
    "ls": "LS",
    "todo": "TodoWrite",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "ask_user": "AskUserQuestion",
    "jobs": "BashOutput",
    "delegate": "Task",
}
"""Claude's names by our own."""

NAMES = (*CLAUDES, "code_nav", "code_refactor", "diagnostics", "debug", "mcp_search")
"""Our names of all built-in tools, including tools that need a setting."""

_OTHERS = {
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "NotebookRead": "read",
    "KillShell": "jobs",
    "KillBash": "jobs",
    "LSP": "code_nav",
    "Agent": "delegate",
}
_ABSENT = frozenset(("EnterPlanMode", "ExitPlanMode", "Skill", "SlashCommand"))
"""Tools of Claude's that Sanderling does without: files of Claude Code name them without a mistake."""
_OWN = {**{claudes: own for own, claudes in CLAUDES.items()}, **_OTHERS}


def own_name(name: str) -> str:
    """Return our name for a tool of Claude's; any other name is returned as it is."""
    return _OWN.get(name, name)


KNOWN = frozenset({*_OWN, *CLAUDES, *_OTHERS.values()})
"""All of these names, Claude's and our own."""


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


_MEANT = {_folded(name): own for name, own in (*_OWN.items(), *zip(CLAUDES, CLAUDES, strict=True))}


def meant_name(name: str) -> str:
    """Return our name for a tool that the user names in any case: "BASH", "web-fetch"."""
    return _OWN.get(name) or _MEANT.get(_folded(name), name)


def known_names() -> tuple[str, ...]:
    """Return all names of tools that files may use: Claude's and our own."""
    return (*NAMES, *_OWN, *_ABSENT)
