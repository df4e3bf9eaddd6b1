"""One run of `sanderling -p`: connects the agent to the print frontend until the turn has ended or is stopped."""

import argparse
import errno
import gc
import math
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from anyio import to_thread

from sanderling.cli.print_mode.frontend import PrintFrontend
from sanderling.cli.print_mode.inputs import read_given_settings, read_prompt, rules_of, with_flags
from sanderling.cli.print_mode.result import EXIT_ERROR, EXIT_LIMIT, EXIT_USAGE
from sanderling.cli.print_mode.schema import load_schema
from sanderling.cli.streams import (
    InputError,
    ThreadedStdout,
    say,
    stopping_signals,
)
from sanderling.config import make_private
from sanderling.config.layers import own_layers
from sanderling.errors import ConfigError, ProviderError, SanderlingError, UsageError
from sanderling.json_lines import encoded
from sanderling.paths import replacing
from sanderling.project.root import project_root
from sanderling.protocol.actions import Action, SetEffort, SetModel, SetRole, SubmitPrompt
from sanderling.protocol.remedies import SHELL, UNKEPT, use
from sanderling.providers import Provider, not_taken
from sanderling.providers.choice import load_ahead
from sanderling.sandbox.outer import VARIABLE as OUTER_VARIABLE
from sanderling.session.records import is_session_id, new_session_id
from sanderling.text import shortened, visible

if TYPE_CHECKING:
    from sanderling.providers.recording import Recording

EXIT_SIGNAL = 128  # plus the signal's number, as in a shell
SHOWN_CHARS = 60  # of a waiting prompt
LAST_WORDS_S = 1.0  # for a slow reader, after an interrupted turn


def print_answer(arguments: argparse.Namespace) -> int:
    """Send the prompt, print the answer, and return the exit status."""
    try:
        return anyio.run(_answer, arguments)
    except BaseException as error:
        if not (words := _what_the_system_refuses(error)):
            raise
        say(f"{words}: end other programs, or raise the limits (ulimit -u, ulimit -v)")
        return EXIT_ERROR


async def _answer(arguments: argparse.Namespace) -> int:
    use(UNKEPT if arguments.no_session else SHELL)
    if arguments.die_with_parent:
        from sanderling.batch.parent import end_with_parent

        end_with_parent()
    with ExitStack() as stack, anyio.open_signal_receiver(*stopping_signals()) as signals:
        try:
            run = _PrintRun(arguments, stack)
            await run.open()
        except (UsageError, ConfigError) as error:
            say(str(error))
            return EXIT_USAGE
        except SanderlingError as error:
            say(str(error))
            return EXIT_ERROR
        return await run.converse(signals)


def _what_the_system_refuses(error: BaseException) -> str:
    """Return what the system refuses, if that is the error: threads, memory or processes, wherever it was raised; else ""."""
    if isinstance(error, BaseExceptionGroup):
        errors: Sequence[BaseException] = cast("Any", error).exceptions
        return next((words for each in errors if (words := _what_the_system_refuses(each))), "")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "the system allows no more threads"
    is_memory = isinstance(error, MemoryError) or _is_with(error, errno.ENOMEM)
    # Some libraries fail without an exception when memory runs out, like Python's bindings of OpenSSL.
    if is_memory or (isinstance(error, SystemError) and "without exception set" in str(error)):
        return "the system allows no more memory"
    return "the system allows no more processes" if _is_with(error, errno.EAGAIN) else ""


def _is_with(error: BaseException, number: int) -> bool:
    return isinstance(error, OSError) and error.errno == number


class _PrintRun:
    """One run of the program."""

    def __init__(self, arguments: argparse.Namespace, stack: ExitStack) -> None:
        self._arguments = arguments
        self._stack = stack
        self._stdout = ThreadedStdout()
        self._provider: Provider | None = None
        self._recording: Recording | None = None
        self._reading = anyio.CancelScope()
        self._signal = 0

    async def open(self) -> None:
        """
        Open the session.

        Raises:
            UsageError, ConfigError: the arguments or the settings are wrong.
            SanderlingError: the session cannot be opened.
        """
        arguments = self._arguments
        if arguments.sandbox:
            os.environ[OUTER_VARIABLE] = arguments.sandbox
        schema = load_schema(arguments.json_schema) if arguments.json_schema else None
        given = read_given_settings(arguments.settings)
        layers = with_flags(own_layers(), arguments, given)
        self._settings = own = layers.settings()
        make_private(own)
        self._state_dir = own.state_dir
        load_ahead(own)
        if arguments.trajectory:
            _check_writable(arguments.trajectory)
        # While the provider loads.
        from sanderling.conversation.opening import SessionOptions, open_conversation

        self._project = project_root(arguments.project)
        worktree = self._ref_of_worktree()
        self._session_id = self._find_session(own.session_dir)
        self._log_dir = self._find_log_dir()
        is_new = not (arguments.is_continued or arguments.resume)
        options = SessionOptions(
            # The mode of an editor's session is for a user who watches.
            mode=arguments.mode if is_new else arguments.mode or own.mode,
            role=arguments.role,
            network=arguments.net,
            rules=rules_of(arguments.allow),
            is_eager=False,  # many runs send one request and end
            wrap=self._wrap,
            variables=given.variables,
            has_credentials=given.has_credentials,
            log_dir=self._log_dir,
            face="print",
            has_user=False,
            waiting="dropped" if arguments.drop_waiting else "aside",
            max_cost_usd=arguments.max_cost,
            max_tokens=arguments.max_tokens,
            fallback_model=arguments.fallback_model,
            worktree=worktree,
            answer_note=schema.asked if schema else "",
            patience_s=math.inf,  # wait for tool servers: a late tool is of no use, nor is one that would ask
        )
        self._face = PrintFrontend(
            self._stdout,
            arguments.output_format,
            arguments.mode or own.mode,
            is_quiet=arguments.quiet,
            act=self._act,
            schema=schema,
        )
        self._opened = await open_conversation(
            self._session_id, self._project, layers, self._face.take, options
        )
        self._agent = self._opened.agent

    def _find_session(self, session_dir: Path) -> str:
        # An empty ID, as from an unset variable in a script, must not start a new session.
        session_id: str | None = self._arguments.resume
        if self._arguments.is_continued:
            from sanderling.session.store import newest_session  # not needed for a new session

            session_id = newest_session(session_dir, self._project)
        if session_id is None:
            return new_session_id()
        if is_session_id(session_id) and (session_dir / f"{session_id}.jsonl").is_file():
            return session_id
        raise UsageError(f"there is no session '{session_id}': `sanderling sessions` lists them")

    def _ref_of_worktree(self) -> str | None:
        """
        Return where a new worktree starts; None without --worktree.

        `-p --worktree "fix it"` gives the flag the prompt: it has blanks, which no name of a branch has.
        """
        arguments = self._arguments
        ref: str | None = arguments.worktree
        if ref is None:
            return None
        if arguments.is_continued or arguments.resume:
            raise UsageError(
                "--worktree is for a new session: a session keeps the place in which it works"
            )
        if arguments.prompt is None and any(map(str.isspace, ref)):
            arguments.prompt, ref = ref, ""
        return ref

    def _find_log_dir(self) -> Path | None:
        if not self._arguments.no_session:
            return None
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="sanderling-")))

    def _wrap(self, provider: Provider, project: str) -> Provider:
        self._provider = provider
        arguments, effort = self._arguments, self._arguments.effort
        is_new = not (arguments.is_continued or arguments.resume)  # a session has its own model
        if is_new and effort not in (None, "default", *provider.efforts):
            raise ConfigError(not_taken(provider, effort), ("effort",))
        if fallback := arguments.fallback_model:
            model = provider.model
            provider.set_model(fallback)  # an unknown provider is an error now
            provider.set_model(model)
        if self._arguments.record is None:
            return provider
        from sanderling.providers.recording import Recording, RecordingProvider
        from sanderling.providers.redaction import Redactor

        self._recording = Recording(self._arguments.record, Redactor(project))
        return RecordingProvider(provider, self._recording)

    async def converse(self, signals: AsyncIterator[signal.Signals]) -> int:
        status = EXIT_ERROR
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_at_signal, signals)
            tasks.start_soon(self._stop_when_unread)
            tasks.start_soon(self._stop_in_time)
            tasks.start_soon(self._stdout.serve)
            tasks.start_soon(self._prepare)
            status = await self._ask()
            tasks.cancel_scope.cancel()
        return status

    async def _ask(self) -> int:
        arguments, prompt = self._arguments, None
        try:
            with self._reading:
                words = arguments.prompt
                prompt = await to_thread.run_sync(read_prompt, words, abandon_on_cancel=True)
        except (UsageError, InputError) as error:
            say(str(error))
            return EXIT_USAGE
        if prompt is None:
            return EXIT_SIGNAL + self._signal if self._signal else EXIT_LIMIT
        if aside := self._opened.aside:
            say(_about_waiting([each.text for each in aside], is_dropped=arguments.drop_waiting))
        model = arguments.model
        self._face.begin(self._session_id, model or self._opened.model, self._opened.worktree)
        if model and self._opened.is_resumed:
            self._agent.act(SetModel(model))
        if arguments.role and self._opened.is_resumed:
            self._agent.act(SetRole(arguments.role))
        if arguments.effort and self._opened.is_resumed:
            self._agent.act(SetEffort(arguments.effort))
        self._agent.act(SubmitPrompt(prompt))
        await self._agent.serve()
        return await self._end()

    async def _end(self) -> int:
        result = self._face.end()
        if self._opened.worktree and not self._arguments.quiet:
            from sanderling.cli.worktrees import say_what_is_left  # only with a worktree

            await to_thread.run_sync(
                say_what_is_left, self._opened.worktree, self._state_dir, self._project
            )
        with anyio.move_on_after(LAST_WORDS_S if self._signal else None):
            await self._stdout.drain()
        if self._recording and self._recording.problem:
            say(f"the recording is incomplete: {self._recording.problem}")
        if path := self._arguments.trajectory:
            self._write_trajectory(path)
        if self._signal:
            again = "" if self._arguments.no_session else f"; --resume {self._session_id} continues"
            say(f"interrupted{again}")
            return EXIT_SIGNAL + self._signal
        if result.stop_reason == "max_time":
            say(f"stopped after {self._arguments.max_time:g} s, the limit of --max-time")
        if isinstance(self._stdout.problem, BrokenPipeError):
            return EXIT_SIGNAL + signal.SIGPIPE
        if self._stdout.problem:
            say(f"standard output cannot be written: {self._stdout.problem.strerror}")
            return EXIT_ERROR
        return result.exit_status

    def _write_trajectory(self, path: Path) -> None:
        """Write the session's trajectory. A failure is only reported: the turn is paid for."""
        from sanderling.providers.models.known import load_models
        from sanderling.session.ledger import Prices
        from sanderling.session.store.atif import export_trajectory

        directory = self._log_dir or self._settings.session_dir
        try:
            prices = Prices(load_models(self._settings))
            trajectory = export_trajectory(directory, self._session_id, prices)
            with replacing(path) as file:
                file.write(msgspec.json.format(encoded(trajectory)))
        except SanderlingError as error:
            say(f"no trajectory was written: {error}")
        except OSError as error:
            say(f"cannot write {path}: {error.strerror}")

    def _act(self, action: Action) -> None:
        self._agent.act(action)

    async def _stop_at_signal(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            if self._signal:
                self._stack.close()
                os._exit(EXIT_SIGNAL + number)  # a second signal: do not wait
            self._signal = number
            self._reading.cancel()
            self._agent.close()

    async def _stop_in_time(self) -> None:
        if limit_s := self._arguments.max_time:
            await anyio.sleep(limit_s)
            self._face.is_over_time = True
            self._reading.cancel()
            self._agent.close()

    async def _stop_when_unread(self) -> None:
        await self._stdout.has_failed.wait()
        self._agent.close()

    async def _prepare(self) -> None:
        """Prepare the provider while the rest starts. A failure is reported by the turn that needs it."""
        with suppress(ProviderError):
            if self._provider:
                await self._provider.prepare()
        gc.freeze()  # `__main__` disables it while the permanent objects are loaded
        gc.enable()


def _check_writable(path: Path) -> None:
    """
    Check that a run can write the file `path` at its end.

    Raises:
        UsageError: it cannot.
    """
    is_other = path.exists() and not path.is_file()  # a device would be replaced by a file
    if is_other or not os.access(path.parent, os.W_OK):
        raise UsageError(f"cannot write the trajectory {path}: it is not a writable file")


def _about_waiting(texts: Sequence[str], *, is_dropped: bool) -> str:
    """
    Return the notice that prompts of an earlier run were not sent, so that no prompt is lost unseen.

    We refused to run until the user had sent or removed them in the editor. A run that was killed between its prompt in the log and the
    start of its turn then blocked the session forever on machines without an editor, as in CI.
    """
    shown = ", ".join(
        f'"{shortened(visible(" ".join(text.split())), SHOWN_CHARS)}"' for text in texts
    )
    if is_dropped:
        return f"dropped without being sent: {shown}"
    return f"not sent, and still waiting in this session: {shown}; --drop-waiting removes them"
