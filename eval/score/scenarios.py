"""Tasks and their scenarios: what a competent model does, in actions that every agent has a tool for."""

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

Action = Literal["read", "list", "search", "edit", "write", "run"]
Spoiled = Literal["", "malformed", "names", "absent"]


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    One call, in terms of no agent's tools.

    Attributes:
        spoiled: how the clumsy model breaks it: arguments that are no JSON, wrong names of arguments, or a tool that is absent.
        timeout_s: for `run`, passed on where the tool has such an argument.
    """

    action: Action
    path: str = ""
    pattern: str = ""
    old: str = ""
    new: str = ""
    text: str = ""
    command: str = ""
    spoiled: Spoiled = ""
    timeout_s: int = 0


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the model. Its calls are parallel."""

    say: str = ""
    call: tuple[Call, ...] = ()


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    round: tuple[Round, ...]


class ScoreTask(msgspec.Struct, frozen=True):
    """A task whose files are complete, with its scenario."""

    name: str
    kind: str
    directory: Path
    instruction: str
    scenario: Scenario


class ScoreError(Exception):
    """The score cannot be measured: `str(error)` says why."""


NEEDED: dict[Action, tuple[str, ...]] = {
    "read": ("path",),
    "list": ("path",),
    "search": ("pattern",),
    "edit": ("path", "old"),
    "write": ("path",),
    "run": ("command",),
}


def read_task(directory: Path) -> ScoreTask:
    """
    Read a complete task.

    Raises:
        ScoreError: a file is missing, or wrong; the message names it.
    """
    try:
        settings: dict[str, Any] = tomllib.loads((directory / "task.toml").read_text())
        instruction = (directory / "instruction.md").read_text()
        scenario = read_scenario(directory / "scenario.toml")
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ScoreError(f"{directory}: {error}") from error
    kind = str(settings.get("metadata", {}).get("kind", ""))
    return ScoreTask(directory.name, kind, directory, instruction.strip(), scenario)


def read_scenario(path: Path) -> Scenario:
    """
    Read a scenario.

    Raises:
        ScoreError: names the file, the round and the fault.
    """
    try:
        scenario = msgspec.toml.decode(path.read_bytes(), type=Scenario)
    except msgspec.DecodeError as error:
        raise ScoreError(f"{path}: {error}") from error
    for number, each in enumerate(scenario.round, 1):
        for call in each.call:
            if missing := [name for name in NEEDED[call.action] if not getattr(call, name)]:
                raise ScoreError(f"{path}: round {number}: `{call.action}` needs `{missing[0]}`")
    return scenario
