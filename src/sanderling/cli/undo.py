"""`sanderling changes`, `undo` and `redo`: the agent's changes in a session that is not open, and undoing them."""

import argparse
import sys
from typing import Any

import anyio

from sanderling.cli import COMMANDS
from sanderling.config import make_private
from sanderling.config.layers import own_layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import ConfigError, SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.protocol.actions import RedoTurn, UndoTurn
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import Event, FilesRestored, Notice, RestoredFile
from sanderling.protocol.requests import ChangedFile, Changes, ListChanges, TurnShown
from sanderling.session.log import SessionInUseError
from sanderling.session.records import is_session_id
from sanderling.session.store import newest_session
from sanderling.text import counted, visible
from sanderling.tools.paths import escaped

EXIT_LEFT, EXIT_USAGE = 1, 2
EXIT_STATUS = "The exit status is 0, 1 if something was kept or failed, 2 if the command line or the session is invalid."
IN_USE = "if it is open in Neovim, review and undo there (:help sanderling-undo), or close it first"
NOTHING_LEFT = "no file, all are already as before"
REST = "run `sanderling {verb} --turn {number}` for the rest, once the problem is solved"
INTERRUPTED = "a command was interrupted: its changes are not recorded"
DID = {
    "undo": "undone",
    "redo": "redone",
    "rewind": "reverted",
    "finish": "finished after an interruption",
    "worktree": "applied",
}


def add(commands: Any) -> None:
    for name in ("changes", "undo", "redo"):
        _, what = COMMANDS[name]
        command = commands.add_parser(name, description=f"{what.capitalize()}. {EXIT_STATUS}")
        command.add_argument(
            "--session", metavar="ID", help="the session (default: the newest of this project)"
        )
        command.add_argument(
            "--turn", metavar="N", type=int, help="the turn, numbered as in `sanderling changes`"
        )
        if name == "changes":
            command.add_argument(
                "--line",
                metavar="FILE:LINE",
                help="the changes of all sessions that led to this line, the latest first",
            )
        command.add_argument("--json", action="store_true")
        command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.command == "changes" and arguments.line is not None:
            from sanderling.cli.blame import show_changes_of_line

            return show_changes_of_line(arguments)
        return anyio.run(_run, arguments)
    except SessionInUseError as error:
        sys.stderr.write(f"sanderling: {error}: {IN_USE}\n")
        return EXIT_LEFT
    except SanderlingError as error:
        sys.stderr.write(f"sanderling: {error}\n")
        return EXIT_USAGE if isinstance(error, ConfigError | UsageError) else EXIT_LEFT


async def _run(arguments: argparse.Namespace) -> int:
    layers = own_layers()
    own = layers.settings()
    make_private(own)
    project = project_root("")
    session_id = arguments.session
    if session_id is None:
        session_id = newest_session(own.session_dir, project)
    if not is_session_id(session_id) or not (own.session_dir / f"{session_id}.jsonl").is_file():
        raise UsageError(f"there is no session '{session_id}': `sanderling sessions` lists them")
    face = _UndoFrontend(arguments)
    opened = await open_conversation(
        session_id, project, layers, face.take, SessionOptions(is_eager=False, face="print")
    )
    return await face.run(opened.agent, session_id)


class _UndoFrontend:
    """A frontend that makes one request and prints the result."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._agent: Agent | None = None
        self._status = 0
        self._shown: list[str] = []  # printed at the end: its reader may exit early, as `head` does

    async def run(self, agent: Agent, session_id: str) -> int:
        try:
            answer = await agent.answer(ListChanges(session_id))
            assert isinstance(answer, Changes)
            turn = _turn(answer, self._arguments.turn)
            for problem in answer.problems:
                self._warn(problem)
        except BaseException:
            agent.close()
            await agent.serve()
            raise
        if self._arguments.command == "changes":
            agent.close()
            self._show_changes(answer, turn)
        else:
            is_undo = self._arguments.command == "undo"
            self._agent = agent
            agent.act(UndoTurn(turn) if is_undo else RedoTurn(turn))
        await agent.serve()
        sys.stdout.writelines(self._shown)
        return self._status

    def take(self, event: Event) -> None:
        if self._agent is None:  # events of opening the session
            return
        match event:
            case FilesRestored():
                self._show_restored(event)
            case Notice(text=text):
                self._warn(text)
            case _:
                return
        if not isinstance(event, FilesRestored) or event.kind != "finish":
            self._agent.close()

    def _warn(self, text: str) -> None:
        sys.stderr.write(f"sanderling: {visible(text)}\n")
        self._status = EXIT_LEFT

    def _show_restored(self, restored: FilesRestored) -> None:
        if any(file.how == "left" for file in restored.files):
            self._status = EXIT_LEFT
        if self._arguments.json:
            self._shown.append(for_terminal(restored) + "\n")
            return
        left = sum(file.how == "left" for file in restored.files)
        count = len(restored.files) - left
        stays = f", {left} kept" if left else ""
        files = f"{counted(count, 'file')}{stays}" if restored.files else NOTHING_LEFT
        self._shown.append(f"{DID[restored.kind]}: {files}\n")
        for file in restored.files:
            self._shown.append(f"  {_line(file)}\n")
        if restored.rest_of:
            verb = "redo" if restored.kind == "redo" else "undo"
            self._shown.append(f"  {REST.format(verb=verb, number=restored.rest_of)}\n")

    def _show_changes(self, changes: Changes, turn: str) -> None:
        shown = [each for each in changes.turns if turn in ("", each.turn)]
        if self._arguments.json:
            self._shown.append(for_terminal(Changes(tuple(shown))) + "\n")
            return
        for each in shown:
            self._shown.append(_turn_line(each))
            for file in each.files:
                self._shown.append(f"  {_changed_line(file)}\n")


def _turn(changes: Changes, number: int | None) -> str:
    if number is None:
        return ""
    found = next((each.turn for each in changes.turns if each.number == number), None)
    if found is None:
        raise UsageError(f"there is no turn {number} in this session")
    return found


def _turn_line(turn: TurnShown) -> str:
    undone = " (undone)" if turn.is_undone else ""
    interrupted = f" ({INTERRUPTED})" if turn.is_interrupted else ""
    text = f"{turn.number} {turn.text}{undone}{interrupted}"
    return visible(text).replace("\n", " ") + "\n"


def _changed_line(file: ChangedFile) -> str:
    why = f"  {file.why}" if file.why else ""
    return visible(f"{escaped(file.path)}  {file.what}  +{file.added} −{file.removed}{why}")


def _line(file: RestoredFile) -> str:
    if file.how == "left":
        return visible(f"{escaped(file.path)}  kept: {file.why}")
    merged = "  merged with your changes" if file.how == "merged" else ""
    return visible(f"{escaped(file.path)}  +{file.added} −{file.removed}{merged}")
