"""A workspace as a conversation makes it, for tests that have no conversation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sanderling.changes.commands import CommandChanges
from sanderling.changes.journal import Journal
from sanderling.permissions.decide import only_reads_with
from sanderling.permissions.shell.grammar import parse
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.tools.commands.jobs import Jobs
from sanderling.tools.commands.shell import Shell
from sanderling.tools.editor import Editor
from sanderling.tools.workspace import Workspace


def _never(task: object, argument: object) -> None:
    raise AssertionError(f"nobody runs {task} with {argument}")


def workspace_of(
    project: object,
    sandbox: SessionSandbox,
    editor: Editor | None = None,
    start: Callable[[Any, Any], None] = _never,
    on_change: Callable[[], None] = lambda: None,
) -> Workspace:
    """`start` runs the tasks of commands."""
    shell = Shell(str(project), sandbox, only_reads_with)
    jobs = Jobs(
        shell, sandbox, start, on_change, is_unfinished=lambda line: bool(parse(line).problem)
    )
    journal = Journal(Path(sandbox.effective_policy.policy.state_dir, "changes"), "s", str(project))
    changes = CommandChanges(journal, lambda: jobs.are_running, lambda _: None)
    return Workspace(str(project), sandbox, shell, jobs, journal, changes, editor)
