"""One run of `sanderling -p`: the session, its core and this face put together, until the turn has ended or is stopped."""

import argparse
import errno
import gc
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from sanderling.config import make_private
from sanderling.conversation.conversation import Conversation
from sanderling.errors import ConfigError, ProviderError, SanderlingError
from sanderling.permissions.store import load_rules
from sanderling.print_mode.face import PrintFace
from sanderling.print_mode.inputs import (
    UsageError,
    new_session_id,
    newest_session,
    own_settings,
    project_root,
    read_prompt,
    rules_of,
    with_flags,
)
from sanderling.print_mode.result import EXIT_ERROR, EXIT_USAGE
from sanderling.print_mode.streams import InputError, Stdout, open_missing_streams, say
from sanderling.project.trust.settings import project_settings
from sanderling.project.trust.trust import Trust
from sanderling.protocol.events import Event, ModeChanged, TurnStarted
from sanderling.providers import Provider
from sanderling.providers.choice import DEFAULT, make_provider
from sanderling.remedies import SHELL, UNKEPT, use
from sanderling.sandbox.confinement import policy_for
from sanderling.session.records import is_session_id
from sanderling.session.session import Session

if TYPE_CHECKING:
    from sanderling.protocol.modes import Mode
    from sanderling.providers.recording import Recording

EXIT_SIGNAL = 128  # and its number, as a shell says it
LAST_WORDS_S = 1.0  # for a reader that pauses, once the turn was interrupted


def print_answer(arguments: argparse.Namespace) -> int:
    """Ask, print, and return the exit status."""
    open_missing_streams()
    try:
        return anyio.run(_answer, arguments)
    except BaseException as error:
        if not (words := _what_the_system_refuses(error)):
            raise
        say(f"{words}: end other programs, or raise the limits (ulimit -u, ulimit -v)")
        return EXIT_ERROR


async def _answer(arguments: argparse.Namespace) -> int:
    use(UNKEPT if arguments.no_session else SHELL)
    with ExitStack() as stack, anyio.open_signal_receiver(*_stopping()) as signals:
        try:
            run = _Run(arguments, stack)
        except (UsageError, ConfigError) as error:
            say(str(error))
            return EXIT_USAGE
        except SanderlingError as error:
            say(str(error))
            return EXIT_ERROR
        return await run.converse(signals)


def _what_the_system_refuses(error: BaseException) -> str:
    """In words, if that is why: threads, memory or processes, wherever they were asked for; else ""."""
    if isinstance(error, BaseExceptionGroup):
        errors: Sequence[BaseException] = cast("Any", error).exceptions
        return next((words for each in errors if (words := _what_the_system_refuses(each))), "")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "the system gives no more threads"
    is_memory = isinstance(error, MemoryError) or _is_with(error, errno.ENOMEM)
    # A library's own way to say that: OpenSSL for Python has no words for it.
    if is_memory or (isinstance(error, SystemError) and "without exception set" in str(error)):
        return "the system gives no more memory"
    return "the system gives no more processes" if _is_with(error, errno.EAGAIN) else ""


def _is_with(error: BaseException, number: int) -> bool:
    return isinstance(error, OSError) and error.errno == number


def _stopping() -> list[signal.Signals]:
    """The signals that stop the turn; under `nohup` the end of the terminal is none."""
    is_tied = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if is_tied else [])]


class _Run:
    """
    One run of the program.

    Raises:
        UsageError, ConfigError: what was asked for cannot be.
        SanderlingError: the session cannot be had.
    """

    def __init__(self, arguments: argparse.Namespace, stack: ExitStack) -> None:
        self._arguments = arguments
        self._stack = stack
        own = own_settings()
        make_private(own)
        self._session = self._open_session(own.session_dir, stack)
        project = self._session.project
        trusted = project_settings(Trust(own.state_dir, project), own)
        self._settings = with_flags(trusted, arguments)
        rules = (*load_rules(self._settings.permissions, project), *rules_of(arguments.allow))
        self._recording: Recording | None = None
        self._provider = self._make_provider()
        policy = policy_for(self._settings, project)._replace(network=arguments.net)
        self._orchestrator = Conversation(
            self._session,
            self._provider,
            self._take,
            policy,
            self._settings,
            rules=rules,
            is_eager=False,  # many a run asks one thing, and is over
        )
        self._stdout = Stdout()
        self._face = PrintFace(
            self._stdout,
            arguments.output_format,
            arguments.mode,
            is_quiet=arguments.quiet,
            answer=self._orchestrator.approvals.answer,
            on_end=self._orchestrator.close,
        )
        self._reading = anyio.CancelScope()
        self._signal = 0
        self._mode: Mode = "ask"

    def _open_session(self, session_dir: Path, stack: ExitStack) -> Session:
        arguments = self._arguments
        project = project_root(arguments.project)
        # Empty where a script's variable is: no reason to begin anew.
        session_id: str | None = arguments.resume
        if arguments.is_continued:
            session_id = newest_session(session_dir, project)
        if session_id is None:
            session_id = new_session_id()
        else:
            is_log = is_session_id(session_id) and (session_dir / f"{session_id}.jsonl").is_file()
            if not is_log:
                raise UsageError(
                    f"there is no session '{session_id}': `sanderling sessions` lists them"
                )
        if arguments.no_session:
            session_dir = Path(stack.enter_context(TemporaryDirectory(prefix="sanderling-")))
        return Session.open(session_dir, session_id, project, face="print")

    def _make_provider(self) -> Provider:
        # Where nobody looks, the demo model must not pass for an answer.
        provider = make_provider(self._settings, fallback=DEFAULT)
        if self._arguments.record is None:
            return provider
        from sanderling.providers.recording import Recording, RecordingProvider
        from sanderling.providers.redaction import Redactor

        self._recording = Recording(self._arguments.record, Redactor(self._session.project))
        return RecordingProvider(provider, self._recording)

    async def converse(self, signals: AsyncIterator[signal.Signals]) -> int:
        status = EXIT_ERROR
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_at_signal, signals)
            tasks.start_soon(self._stop_when_unread)
            tasks.start_soon(self._stdout.serve)
            tasks.start_soon(_prepare, self._provider)
            status = await self._ask()
            tasks.cancel_scope.cancel()
        return status

    async def _ask(self) -> int:
        prompt = None
        try:
            with self._reading:
                words = self._arguments.prompt
                prompt = await to_thread.run_sync(read_prompt, words, abandon_on_cancel=True)
        except (UsageError, InputError) as error:
            say(str(error))
            return EXIT_USAGE
        if prompt is None:
            return EXIT_SIGNAL + self._signal
        if self._orchestrator.waiting:  # they are the person's to send, and would go first
            say("prompts wait in this session: send or remove them in the editor first")
            return EXIT_ERROR
        model = self._arguments.model
        self._face.begin(self._session.id, model or self._provider.model)
        if model and self._session.is_resumed:
            self._orchestrator.set_model(model)
        self._orchestrator.submit(prompt)
        try:
            await self._orchestrator.serve()
        finally:
            self._session.close()
            with anyio.move_on_after(LAST_WORDS_S, shield=True):
                await self._provider.aclose()
        return await self._end()

    async def _end(self) -> int:
        result = self._face.end()
        with anyio.move_on_after(LAST_WORDS_S if self._signal else None):
            await self._stdout.drain()
        if self._recording and self._recording.problem:
            say(f"the recording is not whole: {self._recording.problem}")
        if self._signal:
            again = "" if self._arguments.no_session else f"; --resume {self._session.id} goes on"
            say(f"interrupted{again}")
            return EXIT_SIGNAL + self._signal
        if isinstance(self._stdout.problem, BrokenPipeError):
            return EXIT_SIGNAL + signal.SIGPIPE
        if self._stdout.problem:
            say(f"standard output cannot be written: {self._stdout.problem.strerror}")
            return EXIT_ERROR
        return result.exit_status

    def _take(self, event: Event) -> None:
        self._face.take(event)
        if isinstance(event, ModeChanged):
            self._mode = event.mode
        elif isinstance(event, TurnStarted) and self._mode != self._arguments.mode:
            # Of this run: a resumed session keeps its own for the editor.
            self._orchestrator.gate.set_mode(self._arguments.mode)

    async def _stop_at_signal(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if self._signal:
                self._stack.close()
                os._exit(EXIT_SIGNAL + number)  # the person does not want to wait
            self._signal = number
            self._reading.cancel()
            self._orchestrator.close()

    async def _stop_when_unread(self) -> None:
        await self._stdout.has_failed.wait()
        self._orchestrator.close()


async def _prepare(provider: Provider) -> None:
    """Beside all the rest; what goes wrong is told by the turn that needs it."""
    with suppress(ProviderError):
        await provider.prepare()
    gc.enable()  # __main__ has it off while what lives as long as the process is loaded
