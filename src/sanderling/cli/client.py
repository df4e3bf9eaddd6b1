"""
`sanderling client`: a conversation with another agent on the command line. `sanderling remote`: one with Sanderling on another machine.

Its words go to standard output, everything else to standard error. A line is a prompt, an answer to the open question, or one of `:ping`,
`:cancel` and `:quit`.
"""

import argparse
import os
import secrets
import shlex
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
from anyio import to_thread
from msgspec.structs import replace

from sanderling.acp.remote.address import is_address, parse_address, ssh_address, via_address
from sanderling.agents.declared import agent_names
from sanderling.cli.streams import ThreadedStdout, as_said, say
from sanderling.config import Layer, make_private
from sanderling.config.layers import Layers, own_layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import ConfigError, SanderlingError, UsageError
from sanderling.project.root import project_root
from sanderling.protocol.actions import AnswerApproval, CancelTurn, CloseSession, SubmitPrompt
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    ConnectionChanged,
    ErrorOccurred,
    Event,
    GuestOptionsChanged,
    Notice,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt
from sanderling.session.records import new_session_id
from sanderling.text import printable

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
TYPED = "typed"
"""The name of an agent that is given as a command line."""
HELP = ":ping measures the round trip, :cancel stops the turn, :quit leaves"
UNANSWERED = "questions cannot be answered with -p"


def add(commands: Any) -> None:
    client = commands.add_parser("client", epilog=HELP)
    client.add_argument(
        "--agent",
        default="",
        metavar="NAME|COMMAND",
        help="a known agent, one from your settings, or a command line (default: Sanderling itself)",
    )
    client.add_argument(
        "--connect",
        default="",
        metavar="ADDRESS",
        help="a remote agent: ws://HOST:PORT or unix:/PATH of `sanderling serve`, or ssh://HOST/PATH",
    )
    client.add_argument("--cwd", default="", metavar="DIR", help="project directory")
    client.add_argument("-p", dest="prompt", metavar="TEXT", help="send one prompt, then exit")
    client.add_argument(
        "--no-sandbox", action="store_true", help="run the agent with all your rights"
    )
    client.set_defaults(run=talk)
    remote = commands.add_parser(
        "remote", epilog=f"{HELP}. Files, commands and the sandbox are on the other machine."
    )
    remote.add_argument(
        "place", metavar="HOST:PATH", help="over ssh; ssh://HOST/PATH is the same. With --via: PATH"
    )
    remote.add_argument(
        "--via",
        default="",
        metavar="COMMAND",
        help="command to reach the machine instead of ssh, e.g. 'docker exec -i NAME'",
    )
    remote.add_argument(
        "--remote-keys",
        action="store_true",
        help="call models from the other machine, with its API keys",
    )
    remote.add_argument("-p", dest="prompt", metavar="TEXT", help="send one prompt, then exit")
    remote.set_defaults(run=talk_there, agent="", cwd="", no_sandbox=False)


def talk(arguments: argparse.Namespace) -> int:
    try:
        return anyio.run(_talk, arguments)
    except (UsageError, ConfigError) as error:
        say(str(error))
        return EXIT_USAGE
    except SanderlingError as error:
        say(str(error))
        return EXIT_ERROR


def talk_there(arguments: argparse.Namespace) -> int:
    try:
        arguments.connect = _address(arguments)
    except ConfigError as error:
        say(str(error))
        return EXIT_USAGE
    return talk(arguments)


def _address(arguments: argparse.Namespace) -> str:
    place, via, has_own_keys = printable(arguments.place), arguments.via, arguments.remote_keys
    if via:
        return via_address(printable(via), place, has_own_keys=has_own_keys)
    return ssh_address(place, has_own_keys=has_own_keys)


async def _talk(arguments: argparse.Namespace) -> int:
    layers, name = _with_agent(own_layers(), arguments)
    make_private(layers.settings())
    face = _TerminalFrontend(arguments.prompt)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        opened = await open_conversation(
            new_session_id(),
            project_root(arguments.cwd),
            layers,
            face.take,
            SessionOptions(agent=name, is_shown=not name, face="print" if arguments.prompt else ""),
        )
        return await face.run(opened.agent, signals)


def _with_agent(layers: Layers, arguments: argparse.Namespace) -> tuple[Layers, str]:
    """Return the settings with the agent from the command line, and the agent's name in them."""
    if address := printable(arguments.connect):
        return layers, parse_address(address).text
    given = printable(arguments.agent)
    if not given:
        return layers, ""
    tables: dict[str, Any] = {}
    name = given
    if is_address(given):
        return layers, parse_address(given).text
    if given not in agent_names(layers.settings().agents):
        words = _words_of(given)
        if len(words) == 1 and not _is_program(words[0]):
            return layers, given  # opening it fails and lists the known agents
        name = TYPED
        tables[name] = {"command": words, "title": os.path.basename(words[0])}
    if arguments.no_sandbox:
        tables.setdefault(name, dict(layers.settings().agents.get(name, {})))["sandbox"] = False
    if tables:
        layers = replace(layers, command_line=Layer("the command line", {"agents": tables}))
    return layers, name


def _words_of(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--agent cannot be read: {error}") from error
    if not words:
        raise UsageError("--agent is empty")
    return words


def _is_program(word: str) -> bool:
    import shutil

    return shutil.which(os.path.expanduser(word)) is not None


class _TerminalFrontend:
    """The frontend of a terminal, or of `prompt` alone."""

    def __init__(self, prompt: str | None) -> None:
        self._prompt = prompt
        self._stdout = ThreadedStdout()
        self._is_terminal = os.isatty(1) and os.isatty(2)
        self._agent: Agent | None = None
        self._status = 0
        self._open_turns = 0
        self._is_running = self._is_known = self._is_leaving = self._is_lost = False
        self._has_not_begun, self._is_here = False, True
        self._questions = deque[ApprovalRequested]()
        self._pinged_at = 0.0
        self._is_at_line_start = True
        self._held = ""  # words of the agent that wait for an answer

    async def run(self, agent: Agent, signals: AsyncIterator[signal.Signals]) -> int:
        self._agent = agent
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_at_signal, signals)
            tasks.start_soon(self._stdout.serve)
            if self._prompt is None:
                tasks.start_soon(self._read_lines)
            else:
                self._is_leaving = True
                self._ask(self._prompt)
            await agent.serve()
            with anyio.move_on_after(1):
                await self._stdout.drain()
            tasks.cancel_scope.cancel()
        return self._status

    # --- input -------------------------------------------------------------------------------------------------------------

    async def _read_lines(self) -> None:
        if sys.stdin.isatty():
            say(HELP)
        while line := await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            self._take_line(line.strip())
        self._is_leaving = True
        self._leave_if_done()

    def _take_line(self, line: str) -> None:
        assert self._agent
        match line:
            case "":
                pass
            case ":quit":
                self._agent.act(CloseSession())
            case ":cancel":
                self._agent.act(CancelTurn())
            case ":ping":
                self._pinged_at = time.monotonic()
                self._ask("ping")
            case _ if line.startswith(":"):
                say(f"unknown command {line.split(maxsplit=1)[0]}: {HELP}")
            case _ if self._questions:
                self._answer(line)
            case _:
                self._ask(line)

    def _ask(self, text: str) -> None:
        assert self._agent
        self._open_turns += 1
        self._agent.act(SubmitPrompt(Prompt(secrets.token_hex(8), printable(text))))

    def _answer(self, line: str) -> None:
        assert self._agent
        question, number = self._questions[0], int(line) if line.isdigit() else 0
        answers = _answers_to(question)
        if not 1 <= number <= len(answers):
            say(f"answer with a number from 1 to {len(answers)}")
            return
        self._agent.act(answers[number - 1][1])

    async def _stop_at_signal(self, signals: AsyncIterator[signal.Signals]) -> None:
        assert self._agent
        async for number in signals:
            is_again = self._status == EXIT_INTERRUPTED
            if self._prompt is not None or not self._is_running or number == signal.SIGTERM:
                self._status = EXIT_INTERRUPTED
            if is_again:
                os._exit(EXIT_INTERRUPTED)  # a second signal: do not wait
            if self._is_running:
                self._agent.act(CancelTurn())
            if self._status == EXIT_INTERRUPTED and not self._is_running:
                self._agent.act(CloseSession())
            self._is_leaving = self._is_leaving or self._status == EXIT_INTERRUPTED

    # --- output ------------------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._say_ping()
                self._say(text)
            case ToolStarted(tool=tool, title=title):
                self._report(f"{tool} {title}".rstrip())
            case ToolEnded(summary=summary, is_error=is_error):
                self._report(f"  {'✗ ' if is_error else ''}{summary}".rstrip())
            case ApprovalRequested():
                self._take_question(event)
            case ApprovalSettled(id=question_id):
                self._questions = deque(q for q in self._questions if q.id != question_id)
                self._show_question()
                self._say("")
            case Notice(text=text):
                self._report(text)
            case ErrorOccurred(message=message, remedy=remedy):
                self._report(f"{message} {remedy}".rstrip())
                self._has_not_begun = not self._is_known
                self._status = EXIT_USAGE if self._has_not_begun and self._is_here else EXIT_ERROR
            case GuestOptionsChanged():
                self._is_known = True
            case ConnectionChanged():
                self._is_here = False
                self._report_connection(event)
            case TurnStarted():
                self._is_running = True
                self._status = 0
            case TurnEnded():
                self._end_turn(event)
            case _:
                pass

    def _report_connection(self, event: ConnectionChanged) -> None:
        """Report the loss of a connection, and its return. A refusal is reported as an error."""
        if event.state == "waiting" and event.attempt == 1:
            why = event.why.rstrip(".")
            self._report(f"Cannot connect to {event.name}: {why}. Retrying every 2 s.")
        if event.state == "connected" and self._is_lost:
            self._report(f"Reconnected to {event.name}.")
        self._is_lost = event.state == "waiting" or (self._is_lost and event.state == "connecting")

    def _end_turn(self, ended: TurnEnded) -> None:
        self._is_running = False
        self._open_turns = max(0, self._open_turns - 1)
        self._pinged_at = 0.0
        if not self._is_at_line_start:
            self._write("\n")
        if ended.stop_reason not in ("end_turn", "error"):
            self._report(f"the turn ended: {ended.stop_reason}")
        if self._has_not_begun and self._agent:
            self._agent.act(CloseSession())
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._open_turns and self._agent:
            self._agent.act(CloseSession())

    def _take_question(self, question: ApprovalRequested) -> None:
        if self._prompt is not None:
            assert self._agent
            self._report(f"denied: {question.tool} {question.title}: {UNANSWERED}")
            self._agent.act(AnswerApproval(question.id, "deny"))
            return
        self._questions.append(question)
        if len(self._questions) == 1:
            self._show_question()

    def _show_question(self) -> None:
        if not self._questions:
            return
        question = self._questions[0]
        answers = "\n".join(
            f"{number}. {words}" for number, (words, _) in enumerate(_answers_to(question), 1)
        )
        said = (f"{question.tool} {question.title}? {question.reason}", question.subject, answers)
        self._report("\n".join(filter(None, said)))

    def _say_ping(self) -> None:
        if self._pinged_at:
            took_ms = (time.monotonic() - self._pinged_at) * 1000
            self._pinged_at = 0.0
            self._report(f"the first word took {took_ms:.0f} ms")

    def _say(self, text: str) -> None:
        """Write the agent's words, but not while a question is open: they could pass for another question."""
        self._held += text
        if not self._questions:
            held, self._held = self._held, ""
            self._write(held)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._is_at_line_start = text.endswith("\n")
        self._stdout.write(text)

    def _report(self, text: str) -> None:
        if not self._is_at_line_start:
            self._write("\n")
        if self._is_terminal:  # words of the agent may still be in the queue for it
            self._write(as_said(text))
        else:
            say(text)


def _answers_to(question: ApprovalRequested) -> list[tuple[str, AnswerApproval]]:
    """Return the possible answers, in words and as they are sent."""
    if question.options:
        return [
            (option.title, AnswerApproval(question.id, option.choice, option=option.id))
            for option in question.options
        ]
    words = {
        "once": "allow once",
        "session": "allow for this session",
        "always": f"always: {question.rule}" if question.rule else "always",
    }
    allowed = [
        (words[choice], AnswerApproval(question.id, choice, rule=question.rule))
        for choice in question.choices
    ]
    denied = [("deny", AnswerApproval(question.id, "deny", is_alone=question.is_of_several))]
    if question.is_of_several:
        denied.append(("deny all", AnswerApproval(question.id, "deny")))
    return [*allowed, *denied]
