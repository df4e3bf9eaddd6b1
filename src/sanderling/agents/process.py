"""
The process of an external agent: started in the sandbox with the access that its settings declare, watched, and ended.

In the sandbox it is a server of its own (`sandbox/`). It may change the project as far as the mode allows commands to. Its HOME is
private and kept with the project's state; from the user's HOME it gets only what it declares. Its stderr is kept within limits. When the
user changes its conditions (plan mode, network, sandbox off or on), it is ended; the caller sees `is_outdated` and starts it again.
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
from sanderling.paths import is_in_any, is_within, real_path
from sanderling.providers.redaction import is_secret
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import RunningServer, end_server
from sanderling.sandbox.policy import UNMOUNTED, Grant
from sanderling.sandbox.sandbox import alone
from sanderling.tools.commands.server_log import ServerLog, ending
from sanderling.tools.commands.start_advice import StartedProgram

PLACE = "_agent_"
"""Prefix of the agent's name in the sandbox. Names of MCP servers never have it (`mcp/names.py`)."""
PATIENCE_S = 1.0  # for an agent to exit
LOOK_S = 5.0

NOT_CONFINED = "{title} runs outside the sandbox with all of your rights, because of `sandbox = false` or `--no-sandbox`."
NO_LOGIN = (
    "Its login is not available: at this level, the sandbox cannot map files into the agent's HOME."
)
WITHOUT_MOUNTS = "case $SANDERLING_SANDBOX in landlock|seatbelt) ;; *) false ;; esac"  # these are the user's own directories
SANDBOX_OFF = "{title} runs outside the sandbox with all of your rights, because you switched the sandbox off."


class AgentError(SanderlingError):
    """An agent cannot be started, or has ended. The message names the reason and the remedy."""


class AgentProcess:
    """
    A running agent. `stdin` and `stdout` carry its connection, `log` has its stderr.

    `is_confined`: it runs in the sandbox. `warnings` tell the user what it has no access to.
    """

    def __init__(
        self,
        declared: DeclaredAgent,
        process: RunningServer,
        sandbox: SessionSandbox,
        log: ServerLog,
        watch: HomeWatch,
        *,
        program: StartedProgram,
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
        self._program = program

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def is_outdated(self) -> bool:
        """Whether the user has changed its conditions. It was ended for that reason and must be started again."""
        return self.declared.is_confined and self._terms != self._sandbox.terms

    @property
    def has_old_login(self) -> bool:
        """Whether its login file was replaced outside of the sandbox, where it does not see that. Start it again before the next prompt."""
        return self.is_confined and self._watch.has_other_files

    @property
    def notice(self) -> str:
        """A warning for the screen if the agent runs without the sandbox, else ""."""
        if self.is_confined:
            return ""
        words = SANDBOX_OFF if self.declared.is_confined else NOT_CONFINED
        return words.format(title=self.declared.title)

    async def wait(self) -> str:
        """Wait for the agent to end; return a description with the last line of its log."""
        try:
            status = await self._process.wait()
            if self.is_outdated:
                return "its permissions changed"
            advise = self._program.advice if self.is_confined else _without_advice
            advice = await to_thread.run_sync(advise, status, self.log.text())
            return ending(status, self.log.reason(), advice)
        except SandboxError as error:
            return str(error).rstrip(".")

    def look(self) -> None:
        """Have the guard check the project, after the agent may have changed it."""
        self._sandbox.look_after("", has_failed=False)

    def kill(self) -> None:
        self._process.kill()

    def refusal(self) -> str:
        return ""

    async def end(self) -> None:
        """End the agent: close its input, then send a signal, then kill all of its processes."""
        await end_server(self._process, PATIENCE_S)


def _without_advice(_status: int, _log: str) -> str:
    return ""


@asynccontextmanager
async def running(
    declared: DeclaredAgent, sandbox: SessionSandbox, project: str
) -> AsyncGenerator[AgentProcess]:
    """
    Run the agent within this context. At its end, all processes of the agent are gone.

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
) -> tuple[AgentProcess, RunningServer, HomeWatch]:
    log = ServerLog()
    argv = _argv(declared, project)
    home, paths = _there(declared.home, is_writable=True), _there(declared.paths)
    granted = (*home.paths, *paths.paths, *sandbox.effective_policy.write_paths)
    shown = [real_path(each) for each in (project, *granted)]
    # No links where the agent sees the user's own directories: making one there would remove the user's file.
    links = {**home.links, **paths.links}
    links = {path: real for path, real in links.items() if not is_in_any(path, shown)}
    watch = await to_thread.run_sync(HomeWatch, home.paths)
    is_confined = sandbox.confines(is_confined=declared.is_confined)
    variables = declared.variables(is_confined=is_confined)
    log.hide(variables.values())
    terms = sandbox.terms
    grant = Grant(paths.paths, home.paths, declared.hosts).identified()
    program = StartedProgram(argv, ("agents", declared.name), sandbox, project, grant, variables)
    process = await sandbox.spawn_stranger(
        f"{PLACE}{declared.name}",
        _linking(links, argv) if is_confined else argv,
        env=variables if is_confined else _surroundings(os.environ) | variables,
        grant=grant,
        on_denied=lambda denial: log.add(_refused(denial)),
        is_confined=declared.is_confined,
    )
    agent = AgentProcess(
        declared,
        process,
        sandbox,
        log,
        watch,
        program=program,
        terms=terms,
        is_confined=is_confined,
    )
    if is_confined:
        has_no_mounts = sandbox.facts.level in UNMOUNTED and (home.paths or paths.paths)
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
    """Return the command line to start."""
    program = os.path.expanduser(declared.argv[0])
    found = shutil.which(os.path.join(project, program) if "/" in program else program)
    if found:
        return (program, *declared.argv[1:])
    remedy = f" To install it: {declared.install}." if declared.install else ""
    raise AgentError(
        f"{declared.title} cannot be started: there is no program '{declared.argv[0]}'.{remedy}"
    )


class _There(NamedTuple):
    """Existing paths, resolved; symlinks of the user, as a map from name to target; and warnings about paths that were left out."""

    paths: tuple[str, ...]
    links: dict[str, str]
    warnings: tuple[str, ...]


def _there(named: tuple[str, ...], *, is_writable: bool = False) -> _There:
    """Resolve the declared paths. A writable path must not be a symlink to a place that the agent may not change."""
    paths, links, warnings = list[str](), dict[str, str](), list[str]()
    home = os.path.expanduser("~")
    for each in named:
        path = os.path.normpath(os.path.expanduser(each))
        real = real_path(path)
        expected = real_path(home) + path.removeprefix(home) if is_within(path, home) else real
        if not os.path.exists(real):
            continue
        if real != expected and is_writable and (problem := problem_of_link(each, real)):
            warnings.append(f"No access to {each}, which links to {real}: {problem}.")
            continue
        if real != expected:
            links[expected] = real
        paths.append(real)
    return _There(tuple(paths), links, tuple(warnings))


def _linking(links: Mapping[str, str], argv: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return a command line that makes the user's symlinks in the agent's HOME and then runs `argv`.

    It makes them inside the sandbox, so links that the agent left there cannot lead outside.
    """
    if not links:
        return argv
    script = f'{WITHOUT_MOUNTS} || {{\n{"".join(map(_line, links.items()))}}}\nexec "$@"'
    return ("/bin/sh", "-c", script, "sh", *argv)


def _line(link: tuple[str, str]) -> str:
    path, real, directory = map(shlex.quote, (*link, os.path.dirname(link[0])))
    return f"[ -L {directory} ] && rm -f {directory}; mkdir -p {directory}; rm -rf {path}; ln -s {real} {path}\n"


def _surroundings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return Sanderling's environment without variables that hold secrets, which are not the agent's."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}
