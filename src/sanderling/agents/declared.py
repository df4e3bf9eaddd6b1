"""
External agents as declared in settings: a program, and its access to the user's machine.

An agent is a preset of `presets.toml` or a table `[agents.NAME]` of the user's. A table changes the preset of the same name, extends
another one (`preset`) or is complete. A project cannot declare agents, because they get the user's logins.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sanderling.agents.home import problem_of
from sanderling.config import HostText, PathText, VariableText
from sanderling.config.expansion import expand
from sanderling.config.presets import base_of, merged
from sanderling.errors import ConfigError, SandboxError
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.text import did_you_mean

PRESETS = Path(__file__).with_name("presets.toml")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,30}[A-Za-z0-9])?")


class AgentTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    An `[agents.NAME]` table from user settings or `presets.toml`.

    Attributes:
        command: program and arguments, run in the project's root.
        args: arguments to add to a preset's.
        env: variables for the agent.
        sandboxed_env: variables that it gets only inside the sandbox.
        inherits: names of Sanderling's own variables to pass on, if set.
        hosts: hosts that it can reach.
        home: paths in HOME that it may change.
        paths: paths that it can read, besides what commands can.
        servers: names of the user's MCP servers for it to start.
        sandbox: False to run it with all of the user's rights.
        title: its name on the screen.
        install: how to install it.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[VariableText, str] = {}
    sandboxed_env: dict[VariableText, str] = {}
    inherits: tuple[VariableText, ...] = ()
    hosts: tuple[HostText, ...] = ()
    home: tuple[PathText, ...] = ()
    paths: tuple[PathText, ...] = ()
    servers: tuple[str, ...] = ()
    sandbox: bool = True
    title: str = ""
    install: str = ""
    preset: str = ""


class DeclaredAgent(msgspec.Struct, frozen=True):
    """A validated `[agents.NAME]` table; `argv` is the command line to run."""

    name: str
    title: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    sandboxed_env: dict[str, str] = {}
    inherits: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    is_confined: bool = True
    install: str = ""

    def variables(
        self, environment: Mapping[str, str] = os.environ, *, is_confined: bool = True
    ) -> dict[str, str]:
        """
        Return the variables to set for the agent.

        Raises:
            ConfigError: `env` refers to a variable that is not set.
        """
        passed = {name: environment[name] for name in self.inherits if name in environment}
        values = self.env | (self.sandboxed_env if is_confined else {})
        return passed | {name: expand(value, environment) for name, value in values.items()}


@cache
def presets() -> Mapping[str, dict[str, Any]]:
    import tomllib

    return tomllib.loads(PRESETS.read_text(encoding="utf-8"))


def agent_names(declared: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of all agents, the user's first."""
    return tuple(dict.fromkeys((*declared, *presets())))


def load_agent(name: str, declared: Mapping[str, Mapping[str, Any]]) -> DeclaredAgent:
    """
    Return the agent `name`; `declared` are the user's tables (`settings.agents`).

    Raises:
        ConfigError: unknown name, or its table is invalid.
    """
    own = declared.get(name)
    if own is None and name not in presets():
        names = agent_names(declared)
        raise ConfigError(
            f"there is no agent '{name}'{did_you_mean(name, names)}; agents: {', '.join(names)}"
        )
    where, path = f"[agents.{name}]", ("agents", name)
    if not _NAME.fullmatch(name):
        words = "use at most 32 letters, digits, '-' and '_'"
        raise ConfigError(f"{where} is not a valid agent name: {words}", path)
    base = base_of(own or {}, presets(), "agents", name)
    values = merged(own or {}, base, ("env", "sandboxed_env"))
    for key in values:
        if key not in AgentTable.__struct_fields__:
            hint = did_you_mean(key, AgentTable.__struct_fields__)
            raise ConfigError(f"{where}: unknown key '{key}'{hint}", (*path, key))
    try:
        table = msgspec.convert(values, AgentTable)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} is wrong: {error}", path) from error
    _check(table, where, path)
    return DeclaredAgent(
        name=name,
        title=table.title or name,
        argv=(*table.command, *table.args),
        env=table.env,
        sandboxed_env=table.sandboxed_env,
        inherits=table.inherits,
        hosts=table.hosts,
        home=table.home,
        paths=table.paths,
        servers=table.servers,
        is_confined=table.sandbox,
        install=table.install,
    )


def _check(table: AgentTable, where: str, path: tuple[str, ...]) -> None:
    if not (table.command and table.command[0]):
        names = ", ".join(presets())
        raise ConfigError(f"{where} needs a command, or preset = one of: {names}", path)
    try:
        HostRules(table.hosts)
    except SandboxError as error:
        raise ConfigError(f"{where}: in its hosts, {error}", (*path, "hosts")) from error
    for number, each in enumerate(table.home):
        if problem := problem_of(each):
            raise ConfigError(f"{where}: {problem}", (*path, "home", number))
