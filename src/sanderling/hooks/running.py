"""Runs a hook's command: in the sandbox, or with the user's rights if their settings say so. It is killed with all of its processes."""

import signal
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream

from sanderling.errors import SandboxError
from sanderling.hooks.declared import Hook
from sanderling.hooks.messages import Answer, answer_of
from sanderling.paths import path_outside
from sanderling.sandbox.execution_environment import ExecutionEnvironment, RunningServer
from sanderling.sandbox.policy import NO_GRANT
from sanderling.sandbox.processes import PIPE, PipeReader, PipeWriter
from sanderling.sandbox.unconfined import spawn_unconfined

MAX_OUTPUT_BYTES = 256 * 1024
KILL_S = 2.0
LAST_WORDS_S = 0.2  # to read the rest of the pipes
_RUN = 'export CLAUDE_PROJECT_DIR="$1" SANDERLING_PROJECT_DIR="$1"; eval "$2"'


async def run_hook(
    hook: Hook, message: bytes, confined: ExecutionEnvironment, project: str
) -> Answer:
    """
    Return the hook's answer to `message`. Its `failure` says why it has no answer.

    A hook that does not end in time, or that writes more than anyone reads, is killed, and so is one whose turn is stopped.
    """
    argv = ("/bin/sh", "-c", _RUN, "hook", project, hook.command)
    try:
        if hook.is_confined:
            process = await confined.spawn_server(
                "hook", argv, env={}, grant=NO_GRANT, on_denied=lambda _denial: None
            )
        else:
            # With an active environment, .venv/bin is on PATH, where the agent's commands can write.
            env = {"PATH": path_outside(project)}
            process = await spawn_unconfined(argv, cwd=project, env=env, stdin=PIPE, stderr=PIPE)
    except (
        OSError,
        ValueError,
        SandboxError,
    ) as error:  # ValueError: a NUL, or half of a character
        return Answer(failure=f"it cannot be started: {error}", is_late=True)
    try:
        with anyio.move_on_after(hook.timeout_s):
            return await _talk(hook, process, message)
        return Answer(failure=f"it did not end within {hook.timeout_s:g} s", is_late=True)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                process.kill()
                with anyio.move_on_after(KILL_S), suppress(SandboxError):
                    await process.wait()
            process.close()


async def _talk(hook: Hook, process: RunningServer, message: bytes) -> Answer:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    output, errors = bytearray(), bytearray()
    status, problem = 0, ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send, process.stdin, message)
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read, process.stdout, output, process.kill)
            reading.start_soon(_read, process.stderr, errors, process.kill)
            try:
                status = await process.wait()
            except SandboxError as error:
                problem = str(error)
            reading.cancel_scope.deadline = anyio.current_time() + LAST_WORDS_S
        tasks.cancel_scope.cancel()  # it need not read its message
    if problem:
        return Answer(failure=f"it cannot be run: {problem}", is_late=True)
    if max(len(output), len(errors)) > MAX_OUTPUT_BYTES:
        return Answer(failure=f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes", is_late=True)
    if status < 0:
        return Answer(failure=f"it was killed by signal {-status}", is_late=True)
    texts = (text.decode(errors="replace") for text in (output, errors))
    return answer_of(hook, status, *texts)


async def _send(stdin: PipeWriter, message: bytes) -> None:
    with suppress(BrokenResourceError, ClosedResourceError, OSError):
        await stdin.send(message)
    stdin.close()


async def _read(stream: PipeReader, data: bytearray, kill: Callable[[], None]) -> None:
    """Read to the end, which may be long after that of the command: a process that it left behind may keep the pipe."""
    with suppress(EndOfStream):
        while len(data) <= MAX_OUTPUT_BYTES:
            data += await stream.receive()
        kill()
