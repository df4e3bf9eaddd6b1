"""
The process of an agent: started with what was declared for it, watched while it runs, and ended with all that it has started.

Inside, it is a server of its own (`sandbox/`): the project is its to change as far as the mode lets commands, its HOME is a private one
that lasts as long as the project's state, and of the person's it has what it declares. What it says beside the protocol is kept in
bounds. When the person changes the terms on which it runs (plan mode, the network, the sandbox off or on) it is ended; whoever drives
it sees that in `is_outdated`, and starts it anew.
"""

import os
import shlex
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
from anyio import to_thread

from sanderling.agents.declared import DeclaredAgent
from sanderling.agents.home import HomeWatch, problem_of_link
from sanderling.errors import ConfigError, SandboxError, SanderlingError
from sanderling.mcp.log import ServerLog, ending
from sanderling.paths import is_in_any, is_within, real_path
from sanderling.providers.redaction import is_secret
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.ground import Serving, end_server
from sanderling.sandbox.policy import Grant
from sanderling.sandbox.sandbox import alone

PLACE = "_agent_"
"""Begins the name of an agent's place in the sandbox: no tool server's has such a beginning (`mcp/names.py`)."""
PATIENCE_S = 1.0  # with one that is to end
LOOK_S = 5.0

NOT_CONFINED = "{title} runs outside of the sandbox, with all of your rights, as its entry or `--no-sandbox` says."
NO_LOGIN = (
    "It does not find its login: at the level landlock the sandbox cannot show it in another HOME."
)
WITHOUT_MOUNTS = (
    '[ "$SANDERLING_SANDBOX" = landlock ]'  # there these are the person's own directories
)
SANDBOX_OFF = "{title} runs outside of the sandbox, with all of your rights: you have switched the sandbox off."


class AgentError(SanderlingError):
    """An agent cannot be started, or has ended: `str(error)` says why, and what a person can do."""


class AgentProcess:
    """
    An agent that was started. `stdin` and `stdout` are for its connection, `log` has what it says beside that.

    `is_confined`: the kernel holds it. `warnings` are sentences for the person on what it was not given.
    """

    def __init__(
        self,
        declared: DeclaredAgent,
        process: Serving,
        sandbox: SessionSandbox,
        log: ServerLog,
        watch: HomeWatch,
        *,
        terms: tuple[object, ...],
        is_confined: bool,
    ) -> None:
        self.declared = declared
        self.log = log
        self.is_confined = is_confined
        self.warnings: tuple[str, ...] = ()
        assert process.stdin
        assert process.stdout
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process = process
        self._sandbox = sandbox
        self._terms = terms
        self._watch = watch

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def is_outdated(self) -> bool:
        """Say whether the person has changed the terms on which it runs: then it was ended for that, and is to be started anew."""
        return self.declared.is_confined and self._terms != self._sandbox.terms

    @property
    def has_old_login(self) -> bool:
        """Say whether its login was renewed outside, in a file that it does not see: before it is asked next, it is to be started anew."""
        return self.is_confined and self._watch.has_other_files

    @property
    def notice(self) -> str:
        """The sentence that the screen shows where nothing confines it; "" where the kernel does."""
        if self.is_confined:
            return ""
        words = SANDBOX_OFF if self.declared.is_confined else NOT_CONFINED
        return words.format(title=self.declared.title)

    async def wait(self) -> str:
        """Wait for its end; return in words how that was, with the last that it said."""
        try:
            return self._ending(await self._process.wait())
        except SandboxError as error:
            return str(error).rstrip(".")

    def look(self) -> None:
        """Have the guard look at the project, after something that the agent may have done there."""
        self._sandbox.look_after("", has_failed=False)

    def kill(self) -> None:
        self._process.kill()

    def refusal(self) -> str:
        return ""

    async def end(self) -> None:
        """End it: it sees the end of its input, then a signal, then all that it has started is killed."""
        await end_server(self._process, PATIENCE_S)

    def _ending(self, status: int) -> str:
        if self.is_outdated:
            return "what it may do was changed"
        return ending(status, self.log.last_line_about("Error"), is_confined=self.is_confined)


@asynccontextmanager
async def running(
    declared: DeclaredAgent, sandbox: SessionSandbox, project: str
) -> AsyncGenerator[AgentProcess]:
    """
    Run the agent in this context; at its end nothing of it is left, whatever happens.

    Raises:
        AgentError: it cannot be started.
    """
    try:
        agent, process, watch = await _started(declared, sandbox, project)
    except (SandboxError, ConfigError, OSError) as error:
        reason = str(error).rstrip(".")
        raise AgentError(f"{declared.title} cannot be started: {reason}.") from error
    try:
        with alone():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agent.log.read, process)
                tasks.start_soon(_watch, watch, agent.log)
                yield agent
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await agent.end()
            _note(agent.log, await to_thread.run_sync(watch.look))
            agent.look()


async def _started(
    declared: DeclaredAgent, sandbox: SessionSandbox, project: str
) -> tuple[AgentProcess, Serving, HomeWatch]:
    log = ServerLog()
    argv = _argv(declared, project)
    home, paths = _there(declared.home, is_writable=True), _there(declared.paths)
    granted = (*home.paths, *paths.paths, *sandbox.admissions.write_paths)
    shown = [real_path(each) for each in (project, *granted)]
    # Links are not made where the person's own directories are seen, and nothing is to be removed there.
    links = {**home.links, **paths.links}
    links = {path: real for path, real in links.items() if not is_in_any(path, shown)}
    watch = await to_thread.run_sync(HomeWatch, home.paths)
    is_confined = sandbox.confines(is_confined=declared.is_confined)
    variables = declared.variables(is_confined=is_confined)
    log.hide(variables.values())
    terms = sandbox.terms
    process = await sandbox.spawn_stranger(
        f"{PLACE}{declared.name}",
        _linking(links, argv) if is_confined else argv,
        env=variables if is_confined else _surroundings(os.environ) | variables,
        grant=Grant(paths.paths, home.paths, declared.hosts).identified(),
        on_denied=lambda denial: log.add(_refused(denial)),
        is_confined=declared.is_confined,
    )
    agent = AgentProcess(
        declared, process, sandbox, log, watch, terms=terms, is_confined=is_confined
    )
    if is_confined:
        has_no_mounts = sandbox.facts.level == "landlock" and (home.paths or paths.paths)
        agent.warnings = (*home.warnings, *paths.warnings, *([NO_LOGIN] if has_no_mounts else []))
    return agent, process, watch


async def _watch(watch: HomeWatch, log: ServerLog) -> None:
    while True:
        await anyio.sleep(LOOK_S)
        _note(log, await to_thread.run_sync(watch.look))


def _note(log: ServerLog, sentences: list[str]) -> None:
    for sentence in sentences:
        log.add(f"[{sentence}]\n".encode(errors="replace"))


def _refused(denial: Denial) -> bytes:
    words = f"[refused: {denial.operation} {denial.target}: {denial.reason}]\n"
    return words.encode(errors="replace")


def _argv(declared: DeclaredAgent, project: str) -> tuple[str, ...]:
    """
    Return what is started, if the person has its program.

    Raises:
        AgentError: it is not there, with how to get it.
    """
    program = os.path.expanduser(declared.argv[0])
    found = shutil.which(os.path.join(project, program) if "/" in program else program)
    if found:
        return (program, *declared.argv[1:])
    remedy = f" To install it: {declared.install}." if declared.install else ""
    raise AgentError(
        f"{declared.title} cannot be started: there is no program '{declared.argv[0]}'.{remedy}"
    )


class _There(NamedTuple):
    """The paths that are there, real ones; of those that links of the person's lead to, by which name; and sentences on the others."""

    paths: tuple[str, ...]
    links: dict[str, str]
    warnings: tuple[str, ...]


def _there(told: tuple[str, ...], *, is_writable: bool = False) -> _There:
    """Find out what the paths lead to. What can be written must be no way out by where it really is, either."""
    paths, links, warnings = list[str](), dict[str, str](), list[str]()
    home = os.path.expanduser("~")
    for each in told:
        path = os.path.normpath(os.path.expanduser(each))
        real = real_path(path)
        expected = real_path(home) + path.removeprefix(home) if is_within(path, home) else real
        if not os.path.exists(real):
            continue
        if real != expected and is_writable and (problem := problem_of_link(each, real)):
            warnings.append(f"It does not get {each}, which leads to {real}: {problem}.")
            continue
        if real != expected:
            links[expected] = real
        paths.append(real)
    return _There(tuple(paths), links, tuple(warnings))


def _linking(links: Mapping[str, str], argv: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return what is to be started, so that the links are in its HOME, too.

    They are made inside, where nothing that it has left there leads anywhere.
    """
    if not links:
        return argv
    script = f'{WITHOUT_MOUNTS} || {{\n{"".join(map(_line, links.items()))}}}\nexec "$@"'
    return ("/bin/sh", "-c", script, "sh", *argv)


def _line(link: tuple[str, str]) -> str:
    path, real, directory = map(shlex.quote, (*link, os.path.dirname(link[0])))
    return f"[ -L {directory} ] && rm -f {directory}; mkdir -p {directory}; rm -rf {path}; ln -s {real} {path}\n"


def _surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of ours without those that hold secrets: what is another's key is not its own."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}
