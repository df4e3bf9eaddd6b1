"""
A project's settings file: the keys it may set, and how it may restrict the agent beyond the user's settings.

A user may trust a file without understanding it. So it cannot redirect the user's keys, money or files: it sets no provider, URL or
price, no host, path or variable for the sandbox, no environment, and no server with any of these. Its model is from one of the user's own
providers, and never a script. Limits only become stricter (`layers.py`). An allow rule must name commands, or files of the project.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, cast

import msgspec

from sanderling.config import FIELDS, Layer, Settings, Table, dotted, key_of
from sanderling.config.file import Mistake, file_type, parse, placed, refusal
from sanderling.errors import ConfigError
from sanderling.protocol.modes import ConfiningLevel, Effort, Mode, NetworkMode

PROJECT_FILE = ".sanderling.toml"
_SCRIPT = "script:"


class ProjectServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A project's tool server. The user must declare one that needs paths, hosts, variables or headers."""

    command: tuple[str, ...] = ()
    url: str = ""
    enabled: bool = True
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None


_Limit = Annotated[int, msgspec.Meta(gt=0)]

KINDS: Mapping[str, Any] = {
    "model": Annotated[str, msgspec.Meta(min_length=1)],
    "thinking": bool,
    "effort": Effort,
    "mode": Mode,
    "network": NetworkMode,
    "max_tokens": _Limit,
    "max_calls": _Limit,
    "budget_usd": Annotated[float, msgspec.Meta(gt=0)],
    "delegate_tokens": _Limit,
    "delegate_tree_tokens": _Limit,
    "delegate_seconds": _Limit,
    "delegate_calls": _Limit,
    "delegate_running": _Limit,
    "permissions": tuple[Table, ...],
    "tools_disabled": tuple[str, ...],
    "mcp_servers": dict[str, ProjectServer],
    "sandbox_min_level": ConfiningLevel,
}
"""The fields of `Settings` that a project may set."""


def parse_project_file(
    text: str, kinds: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Layer, list[Mistake]]:
    """Parse a project's file into a layer and its mistakes. `kinds` as for `mistakes_of`."""
    layer, mistakes = parse(PROJECT_FILE, text, None)
    return layer, mistakes + placed(layer, _errors_in(layer.options, kinds))


def read_project_file(text: str) -> Layer:
    """
    Parse a project's file into a layer.

    Raises:
        ConfigError: names every mistake with its line.
    """
    layer, mistakes = parse_project_file(text)
    if mistakes:
        raise refusal(mistakes)
    return layer


def ignored_servers(project: Layer, settings: Settings) -> list[str]:
    servers = project.options.get("mcp", {}).get("servers", {})
    return [name for name in servers if name in settings.mcp_servers]


def project_file_type(kinds: Mapping[str, Any] = MappingProxyType({})) -> type[msgspec.Struct]:
    rules = {"permissions": kinds["permissions"]} if "permissions" in kinds else {}
    return file_type({**KINDS, **rules}, tuple(KINDS))


def _errors_in(options: Table, kinds: Mapping[str, Any]) -> Iterator[ConfigError]:
    from sanderling.config.mistakes import mistakes_in  # only needed if there is a file

    yield from map(_explained, mistakes_in(options, project_file_type(kinds)))
    if str(options.get("model", "")).startswith(_SCRIPT):
        yield ConfigError("a project may not choose a script as its model", ("model",))
    for number, rule in _allowing(options):
        if not _is_narrow(rule):
            words = (
                "a project may only allow `bash` with a `command`, and `edit` or `write` with a `path` below its root: "
                "put broader rules in your own settings"
            )
            yield ConfigError(words, ("permissions", number))


def allowed_by(text: str) -> tuple[str, ...]:
    """Return a phrase for each thing that a project's file lets the model do without asking."""
    layer, _ = parse(PROJECT_FILE, text, None)
    return tuple(map(_sentence, (rule for _, rule in _allowing(layer.options))))


def _allowing(options: Table) -> Iterator[tuple[int, Table]]:
    rules = options.get("permissions")
    for number, rule in enumerate(cast("list[Any]", rules) if isinstance(rules, list) else ()):
        if isinstance(rule, dict) and cast("Table", rule).get("action") == "allow":
            yield number, cast("Table", rule)


def _is_narrow(rule: Table) -> bool:
    match rule:
        case {"tool": "bash", "command": str(command)}:
            try:
                return not {*shlex.split(command)} <= {"*", "$"}
            except ValueError:  # reported as a mistake of its own
                return True
        case {"tool": "edit" | "write", "path": str(path)}:
            is_inside = not path.startswith(("/", "~")) and ".." not in path.split("/")
            # Without the wildcards something must be left: `[!x]*` names no files either.
            return is_inside and bool(re.sub(r"\[[^/]*?\]|[*?./]", "", path))
        case _:
            return False


def _sentence(rule: Table) -> str:
    match rule:
        case {"tool": "bash", "command": str(command)} if _is_narrow(rule):
            words = command.removesuffix(" $").removesuffix(" *")
            return f"run `{words}`" + ("" if command.endswith(" $") else " with any arguments")
        case {"tool": "edit" | "write" as tool, "path": str(path)} if _is_narrow(rule):
            return f"{tool} files like `{path}`"
        case _:
            return f"use `{rule.get('tool', '*')}` for anything: such a rule is refused"


def _explained(error: ConfigError) -> ConfigError:
    """Return the error, reworded if it is about something that only the user may set."""
    path, allowed = error.path, [key_of(field) for field in KINDS]
    if path not in allowed and path in {key_of(field) for field in FIELDS}:
        names = ", ".join(map(dotted, allowed))
        return ConfigError(f"a project may not set '{dotted(path)}', only {names}", path)
    match path:
        case ("mcp", "servers", _, str() as key) if key not in ProjectServer.__struct_fields__:
            words = f"a project's server has no '{key}': declare it in your own settings"
            return ConfigError(words, path)
        case _:
            return error
