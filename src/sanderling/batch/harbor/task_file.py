"""The file `task.toml`: the keys that a run here needs. Unknown keys are ignored, as in Harbor."""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from sanderling.errors import ConfigError, SanderlingError
from sanderling.protocol.modes import NETWORKS_BY_STRICTNESS, NetworkMode
from sanderling.providers.redaction import is_secret

TASK_FILE = "task.toml"
TEST_TIME_S = 600.0
MAIN = "main"  # the service of the agent's container
_TEMPLATE = r"\$\{([^}:]+)(?::-([^}]*))?\}"
_VERSION = r"1(\.\d+)?"
NETWORKS: Mapping[str, NetworkMode] = {"no-network": "off", "allowlist": "proxy", "public": "on"}
_STEP_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class UnsupportedError(SanderlingError):
    """The task needs what this machine, or this program, does not have."""


class Network(msgspec.Struct, frozen=True):
    """The network of a part of the task. None: that of the environment."""

    network_mode: Literal["no-network", "public", "allowlist"] | None = None
    allowed_hosts: tuple[str, ...] | None = None


class AgentPart(Network, frozen=True):
    timeout_sec: float | None = None
    user: str | int | None = None


class Collect(msgspec.Struct, frozen=True):
    """A command that runs between the agent and the tests."""

    command: str
    service: str = MAIN
    timeout_sec: float = 60.0
    user: str | int | None = None


class VerifierPart(Network, frozen=True):
    timeout_sec: float | None = None
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: tuple[Collect, ...] = ()


class Healthcheck(msgspec.Struct, frozen=True):
    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


class McpServer(msgspec.Struct, frozen=True):
    name: str
    transport: str = "sse"
    url: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    headers: dict[str, str] = {}


class EnvironmentPart(Network, frozen=True):
    docker_image: str | None = None
    os: str = "linux"
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None
    allow_internet: bool | None = None


class Artifact(msgspec.Struct, frozen=True):
    source: str
    destination: str | None = None
    service: str | None = None
    exclude: tuple[str, ...] = ()


class StepPart(msgspec.Struct, frozen=True):
    name: str
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: tuple[str | Artifact, ...] = ()


class TaskFile(msgspec.Struct, frozen=True):
    schema_version: str = ""
    version: str = ""  # its name in earlier versions
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    environment: EnvironmentPart = EnvironmentPart()
    steps: tuple[StepPart, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] = "mean"
    artifacts: tuple[str | Artifact, ...] = ()

    @property
    def agents(self) -> tuple[AgentPart, ...]:
        return (self.agent, *(step.agent for step in self.steps))

    @property
    def verifiers(self) -> tuple[VerifierPart, ...]:
        return (self.verifier, *(step.verifier for step in self.steps))


def read_task_file(directory: Path) -> TaskFile:
    """
    Read the task's file.

    Raises:
        ConfigError: it is wrong.
        UnsupportedError: the task needs something that is missing here.
    """
    path = directory / TASK_FILE
    try:
        task = msgspec.toml.decode(path.read_bytes(), type=TaskFile)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    names = [step.name for step in task.steps]
    if len({name.casefold() for name in names}) < len(names):
        raise ConfigError(f"{path}: two steps have the same name")
    if wrong := [name for name in names if not re.fullmatch(_STEP_NAME, name)]:
        raise ConfigError(f"{path}: '{wrong[0]}' is not a name for a step")
    if reason := _why_unsupported(task):
        raise UnsupportedError(reason)
    return task


def _why_unsupported(task: TaskFile) -> str:
    """Return what the task needs and this program does not have; "" if nothing."""
    version = task.schema_version or task.version or "1"
    environment = task.environment
    users = [part.user for part in (*task.agents, *task.verifiers)]
    collects = [each for verifier in task.verifiers for each in verifier.collect]
    artifacts = [*task.artifacts, *(each for step in task.steps for each in step.artifacts)]
    services = [each.service for each in (*collects, *artifacts) if not isinstance(each, str)]
    transports = [server.transport for server in environment.mcp_servers]
    hosts = [
        host
        for part in (environment, *task.agents, *task.verifiers)
        for host in part.allowed_hosts or ()
    ]
    checks: dict[str, bool] = {
        f"version {version} of task.toml": not re.fullmatch(_VERSION, version),
        f"the system {environment.os}": environment.os.lower() != "linux",
        "a GPU": bool(environment.gpus),
        "a TPU": environment.tpu is not None,
        "a user other than this one": not all(map(_is_this_user, users)),
        "an environment of its own for the tests": any(map(_is_separate, task.verifiers)),
        "a service in another container": any(each not in (None, MAIN) for each in services),
        "an MCP server with the transport sse": "sse" in transports,
        "a range of addresses as an allowed host": any("/" in host for host in hosts),
    }
    return next((f"it needs {what}" for what, is_needed in checks.items() if is_needed), "")


def _is_this_user(user: str | int | None) -> bool:
    return user in (None, "root", 0, "0", os.geteuid(), str(os.geteuid()))


def _is_separate(verifier: VerifierPart) -> bool:
    return verifier.environment_mode == "separate" or verifier.environment is not None


def network_of(
    environment: EnvironmentPart, part: Network, limit: NetworkMode | None
) -> tuple[NetworkMode, tuple[str, ...]]:
    """Return the network of a part of the task, with the hosts that it may reach. It is never wider than `limit`, if that is given."""
    chosen = part if part.network_mode else environment
    is_closed = environment.allow_internet is False and environment.allowed_hosts is None
    network: NetworkMode = NETWORKS[
        chosen.network_mode or ("no-network" if is_closed else "public")
    ]
    if limit:
        network = (
            limit
            if NETWORKS_BY_STRICTNESS.index(limit) < NETWORKS_BY_STRICTNESS.index(network)
            else network
        )
    hosts = tuple(map(_as_host, chosen.allowed_hosts or ())) if network == "proxy" else ()
    return network, hosts


def _as_host(host: str) -> str:
    """Return the host in our spelling: an IPv6 address in brackets."""
    host = host.strip().lower().rstrip(".")
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004
    except ValueError:
        return host


def resolved(
    values: Mapping[str, str],
    host: Mapping[str, str] = os.environ,
    *,
    secrets: Collection[str] = (),
    shared: Collection[str] = (),
) -> dict[str, str]:
    """
    Return variables with `${NAME}` and `${NAME:-default}` replaced.

    A task may come from anybody, and can send what it reads to anybody. So a variable that is in `secrets`, or is named like a secret, is
    only read if it is in `shared`.

    Raises:
        UnsupportedError: a variable without a default is not set, or may be a secret.
    """

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name in host and name not in shared and (name in secrets or is_secret(name, host[name])):
            raise UnsupportedError(
                f"it needs the environment variable {name}, which may be a secret: "
                f"add --env {name} if its tasks may read it"
            )
        if name not in host and found[2] is None:  # pyright: ignore[reportUnnecessaryComparison] - a group without a match
            raise UnsupportedError(f"it needs the environment variable {name}")
        return host.get(name, found[2])

    return {name: re.sub(_TEMPLATE, value_of, value) for name, value in values.items()}
