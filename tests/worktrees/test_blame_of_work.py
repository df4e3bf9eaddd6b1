"""Who wrote a line, if a session did in a worktree: there, and in the project once the work is applied."""

import json
from pathlib import Path

from tests.unit.test_print_mode import Shell
from tests.worktrees.test_print_mode import listed, work
from tests.worktrees.test_print_mode import shell as shell  # noqa: PLC0414 - a fixture

LINE = "the_second_line = of(the_worktree, not_of(the_project))"


def blamed(shell: Shell, path: Path | str) -> list[tuple[int, str]]:
    done = shell.run("blame", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    return [
        (each["first"], found["hunks"][each["hunk"]]["prompt"]) for each in found.get("lines", ())
    ]


def test_a_line_is_found_in_the_worktree_and_after_applying_in_the_project(shell: Shell):
    name = work(shell, f"sed -i 's/two/{LINE}/' a.txt")
    [only] = listed(shell)
    assert blamed(shell, Path(only["directory"]) / "a.txt") == [(2, "Do it.")]
    assert blamed(shell, "a.txt") == []
    done = shell.run("worktrees", "apply", name)
    assert done.returncode == 0, done.stderr
    assert (2, "Do it.") in blamed(shell, "a.txt")
