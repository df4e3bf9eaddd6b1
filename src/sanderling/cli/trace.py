"""`sanderling trace`: which lines of a commit the agent wrote, as an Agent Trace record, printed or kept as a git note."""

import argparse
import sys
import time
from typing import Any

from sanderling.blame.origins import origins_in
from sanderling.blame.trace import NOTES, add_note, repository_of, trace_of_commit
from sanderling.cli.streams import say
from sanderling.config.layers import own_settings
from sanderling.errors import SanderlingError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.worktrees.git import Git

EXIT_NOTHING, EXIT_USAGE = 1, 2
AWAIT_S, POLL_S = 60.0, 0.25


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
        help=f"keep it as the commit's note in refs/notes/{NOTES} instead of printing it",
    )
    trace.add_argument("--after", metavar="COMMIT", help=argparse.SUPPRESS)
    trace.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        git = repository_of(project_root(""))
        if arguments.after is not None and not _is_committed(git, arguments.after):
            return EXIT_NOTHING
        record = trace_of_commit(git, origins_in(own_settings(), git.directory), arguments.commit)
        if record is None:
            say(f"the agent wrote no line that {arguments.commit} adds, as far as is recorded")
            return EXIT_NOTHING
        if arguments.note:
            add_note(git, record)
        else:
            sys.stdout.write(for_terminal(record, has_lines=True) + "\n")
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE
    return 0


def _is_committed(git: Git, before: str) -> bool:
    """
    Wait until HEAD is no longer the commit `before`, "" for none; return whether that is due to a commit.

    An editor for a message ends before git commits, and git may run hooks first. If the user gives up the commit, nothing comes.
    """
    deadline = time.monotonic() + AWAIT_S
    while time.monotonic() < deadline:
        if (git.maybe("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or "") != before:
            reason = git.maybe("reflog", "-1", "--no-show-signature", "--format=%gs", "HEAD")
            return (reason or "").startswith(("commit", "rebase"))
        time.sleep(POLL_S)
    return False
