"""
Agents as settings declare them: a program, and what it may have of the person's machine.

One is a preset of `presets.toml`, or a table `[agents.NAME]` of the person's: that changes the preset of its name, begins from
another one (`preset`), or stands for itself. No project declares one: what an agent is given are the person's logins.
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
    A table as the person, or `presets.toml`, writes it.

    `command` is a program and its arguments, `args` are more of them, to add to a preset's. It runs in the project's root, in the
    sandbox. There it sees what commands see, and `paths`; of HOME it may change `home`, and it reaches `hosts`. `env` are variables for
    it, `sandboxed_env` those that it has only where the kernel holds it, `inherits` names of variables of ours that it is given where
    they are set. `servers` are names of the person's tool servers, which it is told to start. Without `sandbox` it runs with all of the
    person's rights. `title` is what a person calls it, `install` how they get it.
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
    """The agent `name`, checked: `argv` is what is started, and the rest as in its table."""

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
        The variables that it is given besides those that name no secret.

        Raises:
            ConfigError: one that `env` refers to is not set.
        """
        passed = {name: environment[name] for name in self.inherits if name in environment}
        told = self.env | (self.sandboxed_env if is_confined else {})
        return passed | {name: expand(value, environment) for name, value in told.items()}


@cache
def presets() -> Mapping[str, dict[str, Any]]:
    """The tables of `presets.toml`, by name."""
    import tomllib

    return tomllib.loads(PRESETS.read_text(encoding="utf-8"))


def agent_names(declared: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The agents that there are: the person's before the presets."""
    return tuple(dict.fromkeys((*declared, *presets())))


def load_agent(name: str, declared: Mapping[str, Mapping[str, Any]]) -> DeclaredAgent:
    """
    The agent `name`; `declared` are the person's own tables (`settings.agents`).

    Raises:
        ConfigError: there is none of that name, or its table is wrong.
    """
    own = declared.get(name)
    if own is None and name not in presets():
        names = agent_names(declared)
        raise ConfigError(
            f"there is no agent '{name}'{did_you_mean(name, names)}; there are {', '.join(names)}"
        )
    where, path = f"[agents.{name}]", ("agents", name)
    if not _NAME.fullmatch(name):
        words = "letters, digits, '-' and '_' only, and no more than 32"
        raise ConfigError(f"{where} is no name of an agent: {words}", path)
    base = base_of(own or {}, presets(), "agents", name)
    told = merged(own or {}, base, ("env", "sandboxed_env"))
    for key in told:
        if key not in AgentTable.__struct_fields__:
            hint = did_you_mean(key, AgentTable.__struct_fields__)
            raise ConfigError(f"{where}: unknown key '{key}'{hint}", (*path, key))
    try:
        table = msgspec.convert(told, AgentTable)
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
