"""`sanderling trace`: which lines of a commit the agent wrote, as an Agent Trace record, printed or kept as a git note."""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

from sanderling.blame.origins import origins_in
from sanderling.blame.trace import NOTES, add_note, repository_of, trace_of_commit
from sanderling.cli.streams import say
from sanderling.config.layers import own_settings
from sanderling.errors import SanderlingError
from sanderling.json_lines import for_terminal
from sanderling.paths import stamp_of
from sanderling.project.root import project_root
from sanderling.worktrees.git import Git

EXIT_NOTHING, EXIT_USAGE = 1, 2
AWAIT_S, POLL_S = 60.0, 0.25
MAX_MOVES = 100
_COMMITTED = r"commit|rebase( -i)? \((?!start|finish|abort)"


def add(commands: Any) -> None:
    trace = commands.add_parser(
        "trace",
        description="Print which lines of a commit the agent wrote, with session and model, as an Agent Trace record (agent-trace.dev, 0.1.0).",
        epilog=f"The exit status is 0; {EXIT_NOTHING} if the agent wrote no line that the commit adds; {EXIT_USAGE} for a mistake.",
    )
    trace.add_argument("commit", nargs="?", metavar="COMMIT", default="HEAD", help="default: HEAD")
    trace.add_argument(
        "--note",
        action="store_true",
        help=f"keep it as the commit's note in {NOTES} instead of printing it",
    )
    trace.add_argument("--after", metavar="COMMIT", help=argparse.SUPPRESS)
    trace.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        git = repository_of(project_root(""))
        commit = arguments.commit
        if arguments.after is not None and not (commit := _made_after(git, arguments.after)):
            return EXIT_NOTHING
        settings = own_settings()
        record = trace_of_commit(git, origins_in(settings, git.directory), commit)
        if record is None:
            say(f"the agent wrote no line that {commit} adds, as far as is recorded")
            return EXIT_NOTHING
        if arguments.note:
            add_note(git, record, settings.state_dir)
        else:
            sys.stdout.write(for_terminal(record, has_lines=True) + "\n")
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE
    return 0


def _made_after(git: Git, before: str) -> str | None:
    """
    Wait for the commit that HEAD moves to from the commit `before` ("": none). Return None if HEAD moves in another way, or not in time.

    The editor of a message ends before git commits, and git may run hooks first. If the user gives up the commit, HEAD never moves. Several
    processes may wait for the same commit, so they run git only when HEAD's reflog has changed, or has no file, as with git's reftables.
    """
    deadline = time.monotonic() + AWAIT_S
    reflog = Path(git.directory, git.line("rev-parse", "--git-path", "logs/HEAD"))
    seen = None
    while time.monotonic() < deadline:
        stamp = stamp_of(reflog)
        if not stamp or stamp != seen:
            seen = stamp
            if move := _move_after(git, before):
                commit, reason = move
                return commit if re.match(_COMMITTED, reason) else None
        time.sleep(POLL_S)
    return None


def _move_after(git: Git, before: str) -> tuple[str, str] | None:
    """
    Return HEAD's first move from the commit `before`: the next commit and the reason; None if it has not moved.

    HEAD itself may have moved on by then: a rebase continues, or the user checks out a branch.
    """
    log = git.maybe("reflog", f"-{MAX_MOVES}", "--no-show-signature", "--format=%H %gs", "HEAD")
    moves = [line.partition(" ") for line in (log or "").splitlines()]
    known = [commit for commit, _, _ in moves]
    since = known.index(before) if before in known else 0 if before else len(moves)
    if not since:
        return None
    commit, _, reason = moves[since - 1]
    return commit, reason
