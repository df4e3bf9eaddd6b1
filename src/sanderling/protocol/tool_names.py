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

_OTHERS = {
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "NotebookRead": "read",
    "KillShell": "jobs",
    "KillBash": "jobs",
    "LSP": "code_nav",
    "Agent": "delegate",
}
_OWN = {**{claudes: own for own, claudes in CLAUDES.items()}, **_OTHERS}


def own_name(name: str) -> str:
    """Return our name for a tool of Claude's; any other name is returned as it is."""
    return _OWN.get(name, name)


def _folded(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


_MEANT = {_folded(name): own for name, own in (*_OWN.items(), *zip(CLAUDES, CLAUDES, strict=True))}


def meant_name(name: str) -> str:
    """Return our name for a tool that the user names in any case: "BASH", "web-fetch"."""
    return _OWN.get(name) or _MEANT.get(_folded(name), name)
