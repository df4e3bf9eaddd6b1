"""Guarding: the files that rules hide from the model, in every tool."""

from collections.abc import Callable, Sequence

from sanderling.permissions.patterns import path_pattern
from sanderling.permissions.rules import Rule
from sanderling.sandbox.execution_environment import Disk


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
