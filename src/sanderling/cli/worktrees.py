"""`sanderling worktrees`: lists, shows, applies and removes the project's worktrees."""

import argparse
import os
import sys
import time
from typing import Any

import anyio

from sanderling.cli.alone import add_options, add_project, list_alone
from sanderling.cli.streams import say
from sanderling.config import make_private
from sanderling.config.layers import own_layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import SanderlingError, WorktreeError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.protocol.actions import ApplyWorktree
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import Event, FilesRestored, Notice
from sanderling.protocol.requests import ShownWorktree
from sanderling.session.records import new_session_id
from sanderling.text import counted, visible, visible_line
from sanderling.worktrees.changes import diff, summary
from sanderling.worktrees.shown import line_of, shown_worktree, shown_worktrees
from sanderling.worktrees.worktrees import Worktrees

EXIT_LEFT, EXIT_USAGE = 1, 2
NONE = "No worktrees: `sanderling -p --worktree` makes one."


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "worktrees",
        description="List the worktrees of a project's sessions, show, apply or remove one. Without an action, list them."
        " `:help sanderling-worktrees` describes them.",
        epilog=f"The exit status is 0; {EXIT_LEFT} if a conflict or a loss left something as it is; {EXIT_USAGE} for a mistake.",
    )
    list_alone(parser, _list)
    actions = parser.add_subparsers(metavar="{list,show,apply,remove}")
    listing = actions.add_parser("list", help="list the worktrees, with what removing would lose")
    listing.set_defaults(run=_list)
    add_options(listing)
    showing = _named(actions, "show", "show what a worktree changed", _show)
    showing.add_argument("--diff", action="store_true", help="as a diff")
    _named(actions, "apply", "make a worktree's changes in the project", _apply)
    removing = _named(
        actions, "remove", "remove a worktree in which nothing would be lost", _remove
    )
    removing.add_argument(
        "--force", action="store_true", help="also if something would be lost, which is printed"
    )


def _named(actions: Any, name: str, what: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=what, description=f"{what}.")
    parser.add_argument("name", metavar="NAME")
    parser.set_defaults(run=run)
    add_project(parser)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    try:
        found = shown_worktrees(_worktrees(arguments))
    except SanderlingError as error:
        return _fail(error)
    if arguments.json:
        sys.stdout.writelines(f"{for_terminal(each)}\n" for each in found)
    else:
        sys.stdout.writelines(f"{line}\n" for each in found or () for line in _lines(each))
        if not found:
            say(NONE)
    return 0


def _lines(worktree: ShownWorktree) -> list[str]:
    lines = [line_of(worktree, time.time()), f"  {worktree.directory or worktree.kept_ref}"]
    lines.append(
        f"  removing loses {worktree.loss}" if worktree.loss else "  removing loses nothing"
    )
    return [visible_line(line) for line in lines]


def _show(arguments: argparse.Namespace) -> int:
    try:
        record = _worktrees(arguments).find(arguments.name)
        if arguments.diff:
            text = diff(record)
            sys.stdout.write(visible(text) if os.isatty(1) else text)
            return 0
        shown = shown_worktree(record)
        sys.stdout.writelines(f"{line}\n" for line in _lines(shown))
        sys.stdout.writelines(f"  {visible_line(note)}\n" for note in record.notes)
        sys.stdout.writelines(
            f"  {letter} {visible_line(path)}\n" for letter, path in summary(record)
        )
    except SanderlingError as error:
        return _fail(error)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    try:
        worktrees = _worktrees(arguments)
        record = worktrees.find(arguments.name)
        shown = shown_worktree(record)
        if shown.loss and not arguments.force:
            say(f"{record.name} stays: removing it would lose {shown.loss}. --force removes it")
            return EXIT_LEFT
        if shown.loss:
            say(f"removing {record.name} loses {shown.loss}")
        worktrees.remove(record.name, loses=arguments.force)
        kept = next((each for each in worktrees.all() if each.name == record.name), None)
    except SanderlingError as error:
        return _fail(error)
    left = f"; {kept.kept_ref} keeps its files until you remove it again" if kept else ""
    sys.stdout.write(f"removed {record.name}{left}\n")
    return 0


def _apply(arguments: argparse.Namespace) -> int:
    try:
        return anyio.run(_apply_in_session, arguments)
    except SanderlingError as error:
        return _fail(error)


async def _apply_in_session(arguments: argparse.Namespace) -> int:
    layers = own_layers()
    own = layers.settings()
    make_private(own)
    project = project_root(arguments.project)
    face = _ApplyFrontend(arguments.name)
    # A session of its own, so that `sanderling undo` can take it back.
    options = SessionOptions(is_eager=False, face="print", mode="ask")
    opened = await open_conversation(new_session_id(), project, layers, face.take, options)
    return await face.run(opened.agent)


class _ApplyFrontend:
    """A frontend that makes one request and prints the result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._agent: Agent | None = None
        self._status = 0

    async def run(self, agent: Agent) -> int:
        self._agent = agent
        agent.act(ApplyWorktree(self._name))
        await agent.serve()
        return self._status

    def take(self, event: Event) -> None:
        if self._agent is None:  # events of opening the session
            return
        match event:
            case FilesRestored():
                self._show(event)
            case Notice(level="warning", text=text):
                say(text)
                self._status = EXIT_LEFT
            case _:
                return
        self._agent.close()

    def _show(self, done: FilesRestored) -> None:
        left = [file for file in done.files if file.how == "left"]
        sys.stdout.write(f"applied: {counted(len(done.files) - len(left), 'file')}\n")
        for file in done.files:
            how = {"left": f"conflict, left as it is: {file.why}", "merged": "merged with yours"}
            counts = f"+{file.added} −{file.removed}"
            words = (
                how.get(file.how, "")
                if file.how == "left"
                else f"{counts}  {how.get(file.how, '')}"
            )
            sys.stdout.write(f"  {visible_line(f'{file.path}  {words}').rstrip()}\n")
        if left:
            self._status = EXIT_LEFT


def say_what_is_left(worktree: str, state_dir: str, project: str) -> None:
    """Say where the work of a run in a worktree is, and what to do with it."""
    try:
        record = Worktrees(state_dir, project).find(worktree)
        changed = summary(record)
    except WorktreeError as error:
        say(str(error))
        return
    files = counted(len(changed), "changed file") if changed else "nothing changed"
    say(
        f"the worktree {worktree} has {files} in {record.work_dir}\n"
        + (f"see it:    sanderling worktrees show --diff {worktree}\n" if changed else "")
        + (f"apply it:  sanderling worktrees apply {worktree}\n" if changed else "")
        + f"remove it: sanderling worktrees remove {worktree}"
    )


def _worktrees(arguments: argparse.Namespace) -> Worktrees:
    return Worktrees(own_layers().settings().state_dir, project_root(arguments.project))


def _fail(error: SanderlingError) -> int:
    say(str(error))
    return EXIT_LEFT if isinstance(error, WorktreeError) else EXIT_USAGE
