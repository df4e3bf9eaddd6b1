"""The run of a task in Harbor's format: its steps, each with an agent and tests, in a root with the directories that it expects."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from sanderling.batch.agent import AgentEnd, AgentRun, run_agent
from sanderling.batch.checks import (
    CheckError,
    CheckTimeoutError,
    Command,
    read_rewards,
    run_command,
)
from sanderling.batch.copies import Copy
from sanderling.batch.git import GitError
from sanderling.batch.harbor.artifacts import keep_artifacts
from sanderling.batch.harbor.environment import (
    LOG_DIRECTORIES,
    Environment,
    check_links,
    check_places,
    copy_into,
    fill,
    keep,
    plan_environment,
)
from sanderling.batch.harbor.task_file import (
    TEST_TIME_S,
    Healthcheck,
    Network,
    StepPart,
    TaskFile,
    UnsupportedError,
    VerifierPart,
    network_of,
    read_task_file,
    resolved,
)
from sanderling.batch.jobs import Job
from sanderling.batch.patches import Baseline
from sanderling.batch.results import Result, State
from sanderling.batch.root import enter_root_with
from sanderling.batch.trial import GRADED, Trial, agent_result, exception_info
from sanderling.config import config_dir, state_dir
from sanderling.config.layers import own_settings, upon
from sanderling.config.server_names import fitted_server
from sanderling.errors import ConfigError, SandboxError
from sanderling.providers.endpoint import keys_of_providers
from sanderling.sandbox.credentials import secret_variables
from sanderling.sandbox.kernel.layout import remove_tree

LOGS, TESTS = Path("/logs"), Path("/tests")
KEPT_IN = {"agent": "agent/logs", "verifier": "verifier"}
"""Where directories in /logs are kept; artifacts have a list. Next to the agent's own logs are no files that its commands wrote."""


def run_harbor_task(job: Job, on_cost: Callable[[float], None]) -> Result:
    """Run the task. Must be called before the process has other threads, because it changes its root directory."""
    trial = Trial(job)
    directory = Path(job.task.harbor)
    try:
        with trial.timed("environment_setup"):
            task = read_task_file(directory)
            check_links(directory, [step.name for step in task.steps])
            _check_network(task, job)
            variables = _checked_variables(task, job)
            environment, image = plan_environment(task, directory, job.work / "places", variables)
            check_places(environment, job.out, job.work, directory)
            fill(environment, image)
            _enter(environment, job)
    except UnsupportedError as error:
        return trial.end("unsupported", str(error))
    except (ConfigError, OSError, UnicodeDecodeError, shutil.Error) as error:
        return trial.end("setup_error", str(error))
    return anyio.run(_HarborRun(job, trial, task, environment, on_cost).run)


def _enter(environment: Environment, job: Job) -> None:
    try:
        enter_root_with(environment.places, job.work / "root")
    except OSError as error:
        raise UnsupportedError(f"it needs namespaces: {error.strerror}") from error


class _HarborRun:
    """One trial of a task, in its root directory."""

    def __init__(
        self,
        job: Job,
        trial: Trial,
        task: TaskFile,
        environment: Environment,
        on_cost: Callable[[float], None],
    ) -> None:
        self._job = job
        self._trial = trial
        self._task = task
        self._directory = Path(job.task.harbor)
        self._workdir = Path(environment.workdir)
        self._env = environment.env
        self._places = tuple(f"/{name}" for name in sorted(environment.places))
        self._outside = tuple(
            place
            for place in self._places
            if place != str(TESTS) and not self._workdir.is_relative_to(place)
        )
        self._on_cost = on_cost
        self._rewards: list[dict[str, float]] = []
        self._spent_usd = 0.0

    async def run(self) -> Result:
        trial, parts = self._trial, self._workdir.parts
        root = self._workdir if len(parts) == 2 else Path("/", parts[1])  # noqa: PLR2004
        try:
            with trial.timed("environment_setup"):
                baseline = Baseline(Copy(root, self._workdir), self._job.work / "base.git")
                await self._check_health(self._task.environment.healthcheck)
            state, reason = await self._run_steps()
            trial.write_patch(baseline, self._instruction(self._directory))
        except (GitError, CheckError, SandboxError, ConfigError, OSError) as error:
            return trial.end("setup_error", str(error))
        trial.rewards = self._final_rewards()
        return trial.end(state, reason)

    async def _run_steps(self) -> tuple[State, str]:
        """Run all steps, and return the first state that is not "completed", with its reason."""
        whole = StepPart("", self._task.agent, self._task.verifier)
        found: tuple[State, str] = "completed", ""
        for step in self._task.steps or (whole,):
            agent, (state, reason), rewards = await self._run_step(step)
            if found[0] == "completed":
                found = state, f"{step.name}: {reason}" if step.name and reason else reason
            if step.name:
                self._trial.step_results.append(
                    {
                        "step_name": step.name,
                        "agent_result": agent_result(agent),
                        "verifier_result": {"rewards": rewards} if rewards else None,
                        "exception_info": exception_info(state, reason),
                    }
                )
            if rewards:
                self._rewards.append(rewards)
            if (state != "completed" and not rewards) or _misses(step.min_reward, rewards):
                break
        return found

    async def _run_step(
        self, step: StepPart
    ) -> tuple[AgentEnd, tuple[State, str], dict[str, float]]:
        files = self._directory / "steps" / step.name if step.name else self._directory
        into = self._job.trial / "steps" / step.name if step.name else self._job.trial
        if step.name:
            with self._trial.timed("environment_setup"):
                await self._prepare_step(step, files)
        with self._trial.timed("agent_execution"):
            agent = await run_agent(self._agent_run(step, files, into), self._note_cost)
        self._spent_usd += agent.cost or 0.0
        self._trial.agent = _sum_of(self._trial.agent, agent) if step.name else agent
        self._trial.keep_session(agent, into / "agent")
        rewards: dict[str, float] = {}
        ended: tuple[State, str] = agent.state, agent.reason
        if agent.state in GRADED:
            try:
                with self._trial.timed("verifier"):
                    rewards = await self._verify(step, files)
            except CheckTimeoutError as error:
                ended = "check_timeout", str(error)
            except (CheckError, SandboxError) as error:
                ended = "check_error", str(error)
        self._keep_logs(step, into)
        return agent, ended, rewards

    async def _prepare_step(self, step: StepPart, files: Path) -> None:
        workdir = files / "workdir"
        if workdir.is_dir():
            copy_into(workdir, self._workdir)
        if (workdir / "setup.sh").is_file():
            command = self._command(("bash", "setup.sh"), self._job.trial / "setup.txt")
            if status := await run_command(command, self._test_time_s(step.verifier)):
                raise CheckError(f"setup.sh of step {step.name} ended with status {status}")
        await self._check_health(step.healthcheck)

    def _instruction(self, files: Path) -> str:
        path = files / "instruction.md"
        if not path.is_file() and self._task.steps:  # the whole task, for the subject of its patch
            path = self._directory / "steps" / self._task.steps[0].name / "instruction.md"
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error

    def _agent_run(self, step: StepPart, files: Path, into: Path) -> AgentRun:
        job, task = self._job, self._task
        own = step.agent if step.agent.network_mode else task.agent
        network, hosts = network_of(task.environment, own, job.settings.net or None)
        time_s = step.agent.timeout_sec or task.agent.timeout_sec or 0.0
        limit_s = job.task.limits.time_s
        servers = servers_of(task, lambda values: _resolved(values, job))
        return AgentRun(
            project=self._workdir,
            prompt=self._instruction(files),
            settings=job.settings,
            role="",
            options=upon(
                job.options,
                {
                    "sandbox": {
                        "write": list(self._outside),
                        "read": list(job.readable),
                        "hosts": list(hosts),
                    },
                },
            ),
            log=into / "agent",
            state=job.work,
            net=network,
            time_s=min(time_s, limit_s) if time_s and limit_s else time_s or limit_s,
            cost_usd=max(job.cost_usd - self._spent_usd, 0.000_001) if job.cost_usd else 0.0,
            calls=job.task.limits.calls,
            variables=self._env,
            config=self._config_with_skills(),
            # Without a rule, a server's tools would ask, and so are not offered. It has a sandbox of its own.
            servers=servers,
            allow=tuple(f"mcp__{fitted_server(name)}__*" for name in servers),
        )

    def _config_with_skills(self) -> Path | None:
        """Return the directory of a copy of the user's settings with the task's skills, if it has any."""
        if not (skills := self._task.environment.skills_dir):
            return None
        directory = (self._workdir / skills).resolve()
        if not self._is_own(directory):
            raise ConfigError(f"skills_dir {skills} is not in a directory of the task")
        config = self._job.work / "config" / "sanderling"
        if not config.exists():
            if (own := Path(config_dir())).is_dir():
                shutil.copytree(own, config, ignore_dangling_symlinks=True)
            if directory.is_dir():
                # A link out of it could make a file of the user's the text of a skill.
                copy_into(
                    directory,
                    config / "skills",
                    lambda path: path.resolve().is_relative_to(directory),
                )
        return config.parent

    def _is_own(self, path: Path) -> bool:
        return any(path.is_relative_to(place) for place in self._places)

    def _note_cost(self, cost_usd: float) -> None:
        self._on_cost(self._spent_usd + cost_usd)

    def _command(
        self,
        argv: tuple[str, ...],
        output: Path,
        *,
        part: Network | None = None,
        env: Mapping[str, str] | None = None,
        is_test: bool = False,
    ) -> Command:
        """Return a command of the task. It has the HOME of the agent's commands."""
        limit = self._job.settings.net or None
        network, hosts = network_of(self._task.environment, part or Network(), limit)
        agent = os.environ | {"XDG_STATE_HOME": str(self._job.work / "state")}
        return Command(
            argv=argv,
            cwd=self._workdir,
            project=self._workdir,
            state=state_dir(agent) / "sandbox",
            output=output,
            env=self._env | dict(env or {}),
            write_paths=(*self._outside, *([str(TESTS)] if is_test else [])),
            network=network,
            hosts=hosts,
            shows_env_files=is_test,
        )

    async def _check_health(self, check: Healthcheck | None) -> None:
        if check is None:
            return
        command = self._command(("sh", "-c", check.command), self._job.trial / "healthcheck.txt")
        start_ends = anyio.current_time() + check.start_period_sec
        failures = 0
        while failures < max(check.retries, 1):
            try:
                if await run_command(command, check.timeout_sec) == 0:
                    return
            except CheckTimeoutError:
                pass
            is_starting = anyio.current_time() < start_ends
            failures += not is_starting
            await anyio.sleep(check.start_interval_sec if is_starting else check.interval_sec)
        raise CheckError(f"the environment is not healthy: {check.command}")

    async def _verify(self, step: StepPart, files: Path) -> dict[str, float]:
        """
        Run the tests, which come to /tests only now, and return the rewards.

        Raises:
            CheckError, SandboxError: the tests give no reward.
        """
        verifier = step.verifier
        for collect in verifier.collect or self._task.verifier.collect:
            command = self._command(("sh", "-c", collect.command), self._job.trial / "collect.txt")
            await run_command(command, collect.timeout_sec)
        _clean(LOGS / "verifier", ("reward.json", "reward.txt"))
        _empty(TESTS)
        for source in dict.fromkeys((self._directory / "tests", files / "tests")):
            if source.is_dir():
                copy_into(source, TESTS)
        script = TESTS / "test.sh"
        if not script.is_file():
            raise CheckError("there is no tests/test.sh")
        if not script.resolve().is_relative_to(TESTS):
            raise CheckError("tests/test.sh is a link that leads out of tests/")
        script.chmod(script.stat().st_mode | 0o111)
        own = verifier if verifier.network_mode else self._task.verifier
        variables = _resolved(self._task.verifier.env | verifier.env, self._job)
        # The tests' log is made outside of /logs: a link that the agent left there must lead nowhere.
        output = self._job.work / "test-stdout.txt"
        output.unlink(missing_ok=True)
        argv = (str(script),)
        command = self._command(argv, output, part=own, env=variables, is_test=True)
        try:
            await run_command(command, self._test_time_s(verifier))
        finally:
            _empty(TESTS)
        _check_no_link(LOGS / "verifier")
        return read_rewards(LOGS / "verifier")

    def _test_time_s(self, own: VerifierPart) -> float:
        return own.timeout_sec or self._task.verifier.timeout_sec or TEST_TIME_S

    def _keep_logs(self, step: StepPart, into: Path) -> None:
        """Move what the agent and the tests wrote to the trial's directory, where the next step cannot see it."""
        artifacts = (*self._task.artifacts, *step.artifacts)
        keep_artifacts(artifacts, self._workdir, self._is_own, into / "artifacts")
        for name in LOG_DIRECTORIES:
            if name in KEPT_IN:
                keep(LOGS / name, into / KEPT_IN[name])
            _empty(LOGS / name)
        output = self._job.work / "test-stdout.txt"
        if output.exists():
            target = into / "verifier" / output.name
            if target.is_symlink() or target.exists():
                target.unlink()
            shutil.move(output, target)

    def _final_rewards(self) -> dict[str, float]:
        """Return the rewards of the last step, or the means of all; a missing one counts as 0."""
        if not self._rewards or self._task.multi_step_reward_strategy == "final":
            return self._rewards[-1] if self._rewards else {}
        names = dict.fromkeys(name for rewards in self._rewards for name in rewards)
        count = len(self._rewards)
        return {
            name: sum(rewards.get(name, 0.0) for rewards in self._rewards) / count for name in names
        }


def _misses(min_reward: float | dict[str, float] | None, rewards: Mapping[str, float]) -> bool:
    if min_reward is None:
        return False
    least = min_reward if isinstance(min_reward, dict) else {"reward": min_reward}
    return any(rewards.get(name, float("-inf")) < least[name] for name in least)


def _resolved(values: Mapping[str, str], job: Job) -> dict[str, str]:
    """
    Return the task's variables, with this machine's filled in.

    Raises:
        UnsupportedError: one is missing, or may be a secret of the user's.
    """
    own = own_settings()
    keys = keys_of_providers(own.providers) | secret_variables(own.sandbox_credentials)
    return resolved(values, secrets=keys, shared=job.variables)


def _check_network(task: TaskFile, job: Job) -> None:
    """
    Check that no part of a task on a cluster has an open network, by which its commands could reach the cluster's ports.

    Raises:
        UnsupportedError: one has.
    """
    limit = job.settings.net or None
    parts = (*task.agents, *task.verifiers)
    is_open = any(network_of(task.environment, part, limit)[0] == "on" for part in parts)
    if job.is_on_cluster and is_open:
        raise UnsupportedError(
            "it needs an open network, which no task on a cluster gets: --net proxy or --net off runs it without"
        )


def _checked_variables(task: TaskFile, job: Job) -> dict[str, str]:
    """
    Return the variables of the environment. The variables of later parts are checked as well, before anything is spent.

    Raises:
        UnsupportedError: one is missing, or may be a secret of the user's.
    """
    servers_of(task, lambda values: _resolved(values, job))
    for verifier in task.verifiers:
        _resolved(verifier.env, job)
    return _resolved(task.environment.env, job)


def servers_of(
    task: TaskFile, resolve: Callable[[Mapping[str, str]], dict[str, str]]
) -> dict[str, dict[str, Any]]:
    """Return the task's MCP servers as tables of the settings, where `$` would begin the name of a variable of the user's."""
    servers: dict[str, dict[str, Any]] = {}
    for server in task.environment.mcp_servers:
        if server.command:
            servers[server.name] = {"command": [server.command, *server.args]}
        else:
            headers = resolve(server.headers)
            escaped = {name: value.replace("$", "$$") for name, value in headers.items()}
            servers[server.name] = {"url": server.url, "headers": escaped}
    return servers


def _sum_of(one: AgentEnd, other: AgentEnd) -> AgentEnd:
    """Return the sum of what two agents used, with the end of the second."""
    names = dict.fromkeys((*one.usage, *other.usage))
    costs = (one.cost, other.cost)
    return msgspec.structs.replace(
        other,
        usage={name: one.usage.get(name, 0) + other.usage.get(name, 0) for name in names},
        cost=None if None in costs else sum(filter(None, costs)),
        calls=one.calls + other.calls,
        questions=one.questions + other.questions,
        denials=one.denials + other.denials,
    )


def _clean(directory: Path, names: Sequence[str]) -> None:
    """Remove files that were left in a directory, which the agent may have replaced."""
    if directory.is_symlink() or not directory.is_dir():
        remove_tree(str(directory))
        directory.mkdir()
    for name in names:
        remove_tree(str(directory / name))


def _empty(directory: Path) -> None:
    """Remove everything in a directory, which may be a mount and so must stay."""
    if directory.is_symlink() or not directory.is_dir():
        remove_tree(str(directory))
        directory.mkdir()
    for path in directory.iterdir():
        remove_tree(str(path))


def _check_no_link(directory: Path) -> None:
    for path in (directory, directory / "reward.json", directory / "reward.txt"):
        if path.is_symlink():
            raise CheckError(f"{path} is a link")
