"""The files that rules hide from the model: in every tool, and in what a prompt mentions (the editor has attached it)."""

import os
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sanderling.errors import ConfigError
from sanderling.permissions.patterns import globs_below, path_pattern
from sanderling.permissions.rules import Rule
from sanderling.protocol.messages import Prompt, Selection
from sanderling.sandbox.execution_environment import Disk

# The files in a diff, and in a list of locations.
_IN_DIFFERENCE = (
    r'(?m)^(?:---|\+\+\+|rename from|rename to|copy from|diff --git) "?(?:[ab]/)?(.+?)"?$'
)
_IN_LIST = r"(?m)^(.+?):\d+"


def unguarded(rules: Sequence[Rule], project: str, disk: Disk) -> Callable[[str], bool] | None:
    """Return a test that is true for paths without a deny or ask rule for reading; None if there is no such rule at all."""
    roots = (project, disk.real_path(project))
    guards = [
        path_pattern(rule.path, roots, disk, is_anywhere=True, is_folded=True)
        for rule in rules
        if rule.action != "allow" and rule.path and rule.tool in ("read", "*")
    ]
    if not guards:
        return None
    return lambda path: (
        not any(guard(name) for name in (path, disk.real_path(path)) for guard in guards)
    )


def in_worktree(rules: Sequence[Rule], project: str, work_dir: str, disk: Disk) -> tuple[Rule, ...]:
    """Return the rules of a project for work in `work_dir`: what they deny or ask about in the project, they do in its worktree."""
    if work_dir == project:
        return tuple(rules)
    moved = (
        msgspec.structs.replace(rule, path=glob)
        for rule in rules
        if rule.action != "allow" and rule.path
        for glob in globs_below(rule.path, project, disk)
    )
    return (*rules, *moved)


def check_mentions(prompt: Prompt, project: str, may_read: Callable[[str], bool] | None) -> None:
    """
    Check that the model may see all that `prompt` mentions. Lines that the user has selected may always be sent.

    Raises:
        ConfigError: a rule hides some of it from the model.
    """
    for selection in prompt.selections if may_read else ():
        for path in _paths(selection):
            if may_read and not may_read(absolute(path, project)):
                contained = f"{selection.path} contains {path}, which a rule keeps"
                problem = f"A rule keeps {path}" if path == selection.path else contained
                raise ConfigError(f"{problem} from the model: nothing was sent.")


def absolute(path: str, project: str) -> str:
    return os.path.normpath(os.path.join(project, os.path.expanduser(path)))  # noqa: PTH111, PTH118 - a name as text


def _paths(selection: Selection) -> Iterator[str]:
    if not selection.origin:
        return
    if selection.path in ("@diff", "@staged"):
        for found in re.finditer(_IN_DIFFERENCE, selection.text):
            yield from found[1].split(" b/") if found[0].startswith("diff --git") else (found[1],)
        return
    if selection.path.startswith("@"):
        yield from (found[1] for found in re.finditer(_IN_LIST, selection.text))
    if "://" not in selection.path:  # files may begin with "@", too
        yield selection.path
