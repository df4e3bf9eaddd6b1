"""A settings file: read, expanded and checked. Mistakes are reported with their lines. Its JSON Schema."""

import os
import re
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, cast, get_type_hints

import msgspec
from msgspec.structs import replace

from sanderling.config import FIELDS, GROUPS, KeyPath, Layer, Settings, Table, config_dir, key_of
from sanderling.config.commands import with_joined_commands
from sanderling.config.expansion import expanded
from sanderling.errors import ConfigError
from sanderling.paths import open_plain, replacing

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_SHOWN = 10
MAX_FOUND = 500  # looking for the key that was meant is slow
_TOP_KEYS = frozenset(field for field in FIELDS if len(key_of(field)) == 1)
PASTED_JSON = "mcp.json in the same directory"
_PLACE = r" \(at (?:line (\d+), column \d+|end of document)\)$"  # as tomllib writes it
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SettingLocation(NamedTuple):
    """A position in the settings. `line` is 0 if unknown, `origin` empty if no layer sets the value."""

    origin: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.origin}:{self.line}" if self.line else self.origin


class Mistake(NamedTuple):
    """A mistake in the settings. `path` leads to the wrong value; it is empty if the whole file is wrong."""

    location: SettingLocation
    message: str
    path: KeyPath = ()

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location.origin else self.message


def user_file(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(config_dir(environment), "config.toml")


def user_servers_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's MCP servers in JSON (`servers_file.py`)."""
    return Path(config_dir(environment), "mcp.json")


def read_user_file(environment: Mapping[str, str] = os.environ) -> Layer:
    """
    Read the user's settings file; return an empty layer if it does not exist.

    Raises:
        ConfigError: names every mistake with file and line.
    """
    return sound(*parse_user_file(environment))


def parse_user_file(environment: Mapping[str, str] = os.environ) -> tuple[Layer, list[Mistake]]:
    return parse_file(user_file(environment), environment)


def parse_file(
    path: Path, environment: Mapping[str, str] | None = os.environ
) -> tuple[Layer, list[Mistake]]:
    """Read the file at `path` and find its mistakes; return an empty layer if it does not exist. `environment` as for `parse`."""
    text, mistakes = read_text(path)
    if text is None:
        return Layer(shown_path(path)), mistakes
    return parse(shown_path(path), text, environment)


def replace_text(path: Path, text: str) -> None:
    """
    Write a settings file.

    Raises:
        ConfigError: it cannot be written.
    """
    real = path.resolve()  # a link, as in a repository of dotfiles, stays one
    try:
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(real) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), mode)
    except OSError as error:
        raise ConfigError(f"{shown_path(path)} cannot be written: {error.strerror}") from error


def read_text(path: Path) -> tuple[str | None, list[Mistake]]:
    """Return the text of the settings file at `path`, None without it, and why it cannot be read."""
    origin = shown_path(path)
    try:
        with open_plain(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None, []
    except OSError as error:
        return None, [Mistake(SettingLocation(origin), f"cannot be read: {error.strerror}")]
    if len(data) > MAX_FILE_BYTES:
        return None, [Mistake(SettingLocation(origin), f"more than {MAX_FILE_BYTES:,} bytes")]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, [Mistake(SettingLocation(origin, line), "not UTF-8")]


def setup_layer(options: Table) -> Layer:
    """
    Return the options that Neovim passes from setup() and vim.g.sanderling.

    Raises:
        ConfigError: names what is wrong in them.
    """
    return sound(*parse_setup(options))


def parse_setup(options: Table) -> tuple[Layer, list[Mistake]]:
    errors = list[ConfigError]()
    options = with_joined_commands(_spelled_out(options), errors.append)
    layer = Layer("setup()", expanded(options, os.environ, errors.append), written=options)
    return layer, placed(layer, errors)


def parse(
    origin: str, text: str, environment: Mapping[str, str] | None = os.environ
) -> tuple[Layer, list[Mistake]]:
    """Return the text of a file as a layer, and its mistakes. Without an `environment`, variables are not expanded."""
    import tomllib  # only needed if there is a file

    try:
        options = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = re.search(_PLACE, str(error))
        line = int(found[1] or text.count("\n") + 1) if found else 0
        words = f"not valid TOML: {re.sub(_PLACE, '', str(error))}{_hint_for_json(text, line)}"
        return Layer(origin), [Mistake(SettingLocation(origin, line), words)]
    options = _spelled_out(options)
    errors, written = list[ConfigError](), Table()
    if _depth(options) > MAX_DEPTH:
        return Layer(origin), [Mistake(SettingLocation(origin, 0), "tables are nested too deeply")]
    options = with_joined_commands(options, errors.append)
    if environment is not None and "$" in text:
        written, options = options, expanded(options, environment, errors.append)
    layer = Layer(origin, options, text, written)
    return layer, placed(layer, errors)


def _hint_for_json(text: str, line: int) -> str:
    """Return where JSON pasted into a settings file belongs; "" without one on this line."""
    wrong = "".join(text.splitlines(keepends=True)[line - 1 : line]).lstrip()
    if not (wrong.startswith("{") or re.match(r'"[^"]*"\s*:', wrong)):
        return ""
    return f": JSON of MCP servers belongs in {PASTED_JSON}"


def _spelled_out(options: Table) -> Table:
    """Return the options with the short form `tools = "small"` as the table that it stands for."""
    tools = options.get("tools")
    return {**options, "tools": {"set": tools}} if isinstance(tools, str) else options


def _depth(options: Table) -> int:
    """Return how deeply tables and lists are nested."""
    depth, level = 0, list[object]([options])
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [each for item in level for each in _items(item)]
    return depth


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("Table", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def sound(layer: Layer, mistakes: Iterable[Mistake] = ()) -> Layer:
    """
    Return the layer if nothing is wrong in it.

    Raises:
        ConfigError: names every mistake.
    """
    found = [*mistakes]
    if found or _is_refused(layer.options):
        raise refusal([*found, *mistakes_of(layer)])
    return layer


def refusal(mistakes: Iterable[Mistake]) -> ConfigError:
    lines = [str(mistake) for mistake in in_order(mistakes)]
    more = [f"and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
    return ConfigError("\n".join((*lines[:MAX_SHOWN], *more)))


def in_order(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return each mistake once, in the order of the files."""
    once = {mistake[:2]: mistake for mistake in mistakes}
    return [once[key] for key in sorted(once)]


def mistakes_of(layer: Layer, kinds: Mapping[str, Any] = MappingProxyType({})) -> list[Mistake]:
    """
    Return the unknown keys of the layer, and the values of a wrong type.

    `kinds`: more specific types for fields of `Settings`, from the packages that use these fields.
    """
    from sanderling.config.mistakes import mistakes_in  # rarely needed at startup

    return placed(layer, mistakes_in(layer.options, file_type(kinds), (), _elsewhere))


def placed(layer: Layer, errors: Iterable[ConfigError]) -> list[Mistake]:
    """Return the errors with the lines of their paths in the layer."""
    if not (found := [*islice(errors, MAX_FOUND)]):
        return []
    from sanderling.config.lines import line_finder

    line_of = line_finder(layer.text)
    return [
        Mistake(SettingLocation(layer.origin, line_of(error.path)), str(error), error.path)
        for error in found
    ]


def without(layer: Layer, mistakes: Iterable[Mistake]) -> Layer:
    """Return the layer without its mistakes, so that the rest can be checked."""
    options = deepcopy(layer.options)
    for mistake in mistakes:
        _remove(options, mistake.path)
    return replace(layer, options=options)


def _remove(options: Any, path: KeyPath) -> None:
    """Remove the value at `path`. A list is emptied and a rule cleared, because numbers in other paths must stay valid."""
    if not path:
        return
    *above, last = path
    with suppress(KeyError, IndexError, TypeError):  # removed with another mistake
        for key in above:
            options = options[key]
        if above == ["permissions"]:
            options[last] = {}
        elif isinstance(last, int):
            options.clear()
        else:
            del options[last]


def fields_of(options: Table) -> Table:
    """Return the options by the fields of `Settings`; unknown keys get a name that no field has."""
    fields = Table()
    for key, value in options.items():
        if key in GROUPS and isinstance(value, dict):
            group = cast("Table", value)
            fields |= {f"{key}_{name}": item for name, item in group.items()}
        else:
            fields[key if key in _TOP_KEYS else f"?{key}"] = value
    return fields


def file_type(
    kinds: Mapping[str, Any] = MappingProxyType({}), fields: Iterable[str] = FIELDS
) -> type[msgspec.Struct]:
    """Return the type of a whole file with these fields of `Settings`; `kinds` as for `mistakes_of`."""
    hints, defaults = get_type_hints(Settings, include_extras=True), Settings("")
    top, groups = list[Any](), {group: list[Any]() for group in GROUPS}
    for field in fields:
        kind = hints[field]
        if field in kinds:
            kind = Annotated[
                kinds[field], msgspec.Meta(description=kind.__metadata__[0].description)
            ]
        *group, name = key_of(field)
        members = groups[group[0]] if group else top
        members.append((name, kind, getattr(defaults, field)))
    for group, members in groups.items():
        if not members:
            continue  # a project may set none of them
        table = msgspec.defstruct(group.capitalize(), members, forbid_unknown_fields=True)
        top.append((group, table, msgspec.field(default_factory=table)))
    return msgspec.defstruct("File", top, forbid_unknown_fields=True)


def shown_path(path: Path) -> str:
    """Return `path` with `~` for HOME: short, and editors can open it."""
    with suppress(RuntimeError, ValueError):  # no HOME, or not inside it
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def _is_refused(options: Table) -> bool:
    try:
        msgspec.convert({"state_dir": "", **fields_of(options)}, Settings)
    except msgspec.ValidationError:
        return True
    return False


def _elsewhere(name: str) -> str:
    """Return the key in another table that `name` probably means, or ""."""
    last = name.rpartition(".")[2]
    for field in FIELDS:
        key = ".".join(key_of(field))
        if name == field or last in (key.rpartition(".")[2], field):
            return key
    return ""


def json_schema(kind: type[msgspec.Struct], title: str, whole: Container[str]) -> dict[str, Any]:
    """
    Return the schema of a file of this type.

    `whole` names the structs that must be complete; other tables may leave keys to other sources.
    """
    schema = msgspec.json.schema(kind)
    for name, definition in schema["$defs"].items():
        definition.pop("description", None)  # a docstring for developers
        if name not in whole:
            definition.pop("required", None)
    return {"$schema": DIALECT, "title": title, **schema}
