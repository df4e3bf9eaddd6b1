"""Session options that a client can show: mode, model, network, sandbox. The mode is also sent as a legacy ACP session mode."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sanderling.acp.agent import model_names
from sanderling.acp.wire.errors import RpcError, invalid
from sanderling.acp.wire.sessions import ConfigChoice, ConfigOption, SessionMode, SessionModes
from sanderling.protocol.actions import (
    Action,
    SetEffort,
    SetMode,
    SetModel,
    SetNetwork,
    SetRole,
    SetSandbox,
)
from sanderling.protocol.events import (
    EffortChanged,
    Event,
    ModeChanged,
    ModelChanged,
    RoleChanged,
    SandboxChanged,
)
from sanderling.protocol.modes import Effort, Mode, NetworkMode, SandboxLevel

MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Reading is free; changes and commands ask"),
    "auto": ("Auto", "Whatever the sandbox confines runs without asking"),
    "plan": ("Plan", "Read-only: the project cannot be changed"),
}
NETWORKS: dict[NetworkMode, tuple[str, str]] = {
    "off": ("Off", "Commands have no network access"),
    "proxy": ("Listed hosts", "Commands can reach the hosts in your settings"),
    "on": ("On", "Commands can reach whatever this machine can"),
}
EFFORTS: dict[Effort, tuple[str, str]] = {
    "default": ("Default", "What the API chooses"),
    "low": ("Low", "The fewest tokens"),
    "medium": ("Medium", "Fewer tokens"),
    "high": ("High", "For hard tasks"),
    "xhigh": ("Extra high", "For long and hard tasks"),
    "max": ("Max", "No limit on tokens"),
}
NO_ROLE = "none"
"""The value of the option without a role; a role of that name cannot be chosen here."""
LEVELS: dict[SandboxLevel, str] = {
    "": "Sandbox: not started yet",
    "full": "Sandbox: full",
    "full-bwrap": "Sandbox: full, with bubblewrap",
    "namespaces": "Sandbox: namespaces only",
    "seatbelt": "Sandbox: Seatbelt, verified on this Mac",
    "landlock": "Sandbox: Landlock only",
    "none": "No sandbox: commands are blocked",
    "outer": "Sandbox: the container around the agent",
    "off": "Sandbox: off",
}


class ConfigOptions:
    """
    The options of a session, kept up to date by events. `has_switch`: the client may switch the sandbox off.

    `is_ours`: the client knows our names of models.
    """

    def __init__(self, model: str, *, has_switch: bool = False, is_ours: bool = False) -> None:
        self.model = model
        self._is_ours = is_ours
        self._has_switch = has_switch
        self.mode: Mode = "ask"
        self.sandbox = SandboxChanged("", "off")
        self.models: Sequence[str] = (model,)
        self.effort: Effort = "default"
        self.efforts: Sequence[Effort] = ()  # that the model takes
        self.role = ""
        self.roles: Mapping[str, str] = {}  # their descriptions, by name
        self.title = ""
        self.has_jobs = False  # whether commands run in the background

    def take(self, event: Event) -> bool:
        """Update the options; return whether `event` changed one."""
        match event:
            case ModeChanged(mode):
                self.mode = mode
            case ModelChanged(model):
                self.model = model
            case EffortChanged(effort):
                self.effort = effort
            case RoleChanged(name):
                self.role = name
            case SandboxChanged():
                self.sandbox = event
            case _:
                return False
        return True

    def action(self, option: str, value: str | bool) -> Action:
        """
        Return the action that sets an option.

        Raises:
            RpcError: unknown option or invalid value.
        """
        match option, value:
            case "mode", _ if value in MODES:
                return SetMode(msgspec.convert(value, Mode))
            case "network", _ if value in NETWORKS:
                return SetNetwork(msgspec.convert(value, NetworkMode))
            case "model", str() if value:
                return SetModel(self._model_of(value))
            case "effort", _ if value in EFFORTS:
                return SetEffort(msgspec.convert(value, Effort))
            case "role", str() if value in ("", NO_ROLE, *self.roles):
                return SetRole("" if value == NO_ROLE else value)
            case "sandbox", bool() if self._has_switch:
                return SetSandbox(value)
            case (("mode" | "network" | "model" | "effort" | "role" | "sandbox"), _):
                raise invalid(f"the option {option!r} has no value {value!r}")
            case _:
                raise invalid(f"there is no option {option!r}")

    def shown_modes(self) -> SessionModes:
        modes = [
            SessionMode(id=mode, name=name, description=description)
            for mode, (name, description) in MODES.items()
        ]
        return SessionModes(current_mode_id=self.mode, available_modes=modes)

    @property
    def _names(self) -> list[str]:
        """The models that can be chosen."""
        return [*filter(None, dict.fromkeys((*self.models, self.model)))]

    def _model_of(self, value: str) -> str:
        return value if self._is_ours else model_names.meant(value, self._names)

    def _value_of(self, model: str) -> str:
        return model if self._is_ours else model_names.with_slash(model)

    def shown(self) -> list[ConfigOption]:
        options = [
            ConfigOption(
                id="mode",
                name="Mode",
                description="What the agent may do without asking",
                category="mode",
                type="select",
                current_value=self.mode,
                options=_choices(MODES),
            ),
            ConfigOption(
                id="model",
                name="Model",
                description="The model that answers",
                category="model",
                type="select",
                current_value=self._value_of(self.model),
                options=[
                    ConfigChoice(value=self._value_of(each), name=each) for each in self._names
                ],
            ),
            ConfigOption(
                id="network",
                name="Network",
                description=self.told_sandbox(),
                type="select",
                current_value=self.sandbox.network,
                options=_choices(NETWORKS),
            ),
        ]
        if len(self.efforts) > 1 or self.effort != "default":
            options.insert(2, self._effort())
        if self.roles or self.role:
            options.append(self._role())
        return [*options, self._switch()] if self._has_switch else options

    def _effort(self) -> ConfigOption:
        shown = {each: EFFORTS[each] for each in EFFORTS if each in (*self.efforts, self.effort)}
        return ConfigOption(
            id="effort",
            name="Effort",
            description="How much the model thinks and writes",
            category="thought_level",
            type="select",
            current_value=self.effort,
            options=_choices(shown),
        )

    def _role(self) -> ConfigOption:
        known = {**self.roles, **({} if self.role in self.roles else {self.role: ""})}
        choices = [
            ConfigChoice(value=name, name=name, description=description or None)
            for name, description in known.items()
            if name
        ]
        return ConfigOption(
            id="role",
            name="Role",
            description="Instructions, tools, model and mode together",
            type="select",
            current_value=self.role or NO_ROLE,
            options=[ConfigChoice(value=NO_ROLE, name="None"), *choices],
        )

    def _switch(self) -> ConfigOption:
        return ConfigOption(
            id="sandbox",
            name="Sandbox",
            description="Off: commands run with all of your rights, and each one asks",
            type="boolean",
            current_value=self.sandbox.level != "off",
        )

    def now(self, option: str) -> str | bool:
        """Return the current value of an option."""
        return {
            "mode": self.mode,
            "model": self.model,
            "effort": self.effort,
            "network": self.sandbox.network,
            "role": self.role or NO_ROLE,
            "sandbox": self.sandbox.level != "off",
        }[option]

    def told_sandbox(self) -> str:
        """Return the sandbox's level in words, and what it does not confine."""
        return ". ".join((LEVELS[self.sandbox.level], *self.sandbox.missing))

    def check(self, option: str, value: str | bool) -> None:
        """
        Check that an option has its new value.

        Raises:
            RpcError: it has another one. A notice has explained why.
        """
        now = self.now(option)
        value = value or NO_ROLE if option == "role" else value
        is_it = now == value
        if option == "model":
            is_it = model_names.is_same(self._model_of(str(value)), self.model)
        if not is_it:
            raise RpcError(-32602, f"the {option} is still {now}")


def _choices(table: Mapping[Any, tuple[str, str]]) -> list[ConfigChoice]:
    return [
        ConfigChoice(value=value, name=name, description=description)
        for value, (name, description) in table.items()
    ]
