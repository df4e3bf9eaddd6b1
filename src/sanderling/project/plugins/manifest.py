"""A plugin's `plugin.json`, and what it shares with `mcp.json`: files inside the plugin, JSON, the version of the specification."""

import os
import re
from pathlib import Path
from typing import Any, cast

import msgspec

from sanderling.errors import ConfigError
from sanderling.paths import is_within, open_plain
from sanderling.text import visible_line

MANIFEST = "plugin.json"
VERSION = "1.0.0"
MAX_BYTES = 256 * 1024
MAX_NAME_CHARS = 64
NAME_PATTERN = r"^(?!.*(--|\.\.))[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z"
_SCHEMA = "https://agent-plugins.org/schemas/{version}/{kind}.schema.json"


class Author(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    email: str = ""
    url: str = ""


class Manifest(msgspec.Struct, frozen=True):
    """The portable fields of `plugin.json`; `problems` are sentences about fields that are ignored."""

    name: str
    version: str = ""
    description: str = ""
    author: Author = Author()
    homepage: str = ""
    repository: str = ""
    license: str = ""
    keywords: tuple[str, ...] = ()
    extensions: dict[str, dict[str, Any]] = {}
    problems: tuple[str, ...] = ()


_FIELDS = frozenset({"$schema", *Manifest.__struct_fields__} - {"problems"})


def read_manifest(root: str) -> Manifest:
    """
    Return the manifest of the plugin in `root`, a resolved path.

    Raises:
        ConfigError: there is no plugin in `root`, or it must be rejected; the reason is a sentence about the file.
    """
    data = read_inside(root, MANIFEST)
    if data is None:
        raise ConfigError(f"there is no {MANIFEST} in {root}")
    try:
        return _manifest(object_in(data))
    except ConfigError as error:
        raise ConfigError(f"{MANIFEST}: {error}") from error


def _manifest(fields: dict[str, Any]) -> Manifest:
    check_version(fields, "plugin")
    if "name" not in fields:
        raise ConfigError("it has no `name`")
    name = fields["name"]
    is_name = isinstance(name, str) and re.match(NAME_PATTERN, name)
    if not is_name or len(cast("str", name)) > MAX_NAME_CHARS:
        raise ConfigError(
            "its `name` must have 1 to 64 lowercase letters, digits, single - and single . in between"
        )
    problems = [f"it has the unknown field `{key}`" for key in fields if key not in _FIELDS]
    known = {key: value for key, value in fields.items() if key in _FIELDS}
    if "extensions" in known and not isinstance(known["extensions"], dict):
        problems.append("its `extensions` is not an object")
        del known["extensions"]
    try:
        manifest = msgspec.convert(known, Manifest)
    except msgspec.ValidationError as error:
        raise ConfigError(visible_line(str(error))) from error
    said = tuple(f"{MANIFEST}: {visible_line(each)}, which is ignored" for each in problems)
    return msgspec.structs.replace(manifest, problems=said)


def check_version(fields: dict[str, Any], kind: str) -> None:
    """
    Check that `$schema` names the supported version of the specification. Nothing is fetched.

    Raises:
        ConfigError: it does not.
    """
    named = fields.get("$schema")
    if named == _SCHEMA.format(version=VERSION, kind=kind):
        return
    pattern = re.escape(_SCHEMA).replace(r"\{version\}", "([^/]+)").replace(r"\{kind\}", kind)
    if isinstance(named, str) and (other := re.fullmatch(pattern, named)):
        words = f"it needs version {visible_line(other[1])} of Agent Plugins; Sanderling supports {VERSION}"
        raise ConfigError(words)
    raise ConfigError(f'it must have "$schema": "{_SCHEMA.format(version=VERSION, kind=kind)}"')


def object_in(data: bytes) -> dict[str, Any]:
    """
    Return the JSON object in `data`.

    Raises:
        ConfigError: it is not one.
    """
    try:
        decoded: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"it is not valid JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError("it is nested too deeply") from error
    if not isinstance(decoded, dict):
        raise ConfigError("it is not a JSON object")
    return cast("dict[str, Any]", decoded)


def read_inside(root: str, name: str) -> bytes | None:
    """
    Return the content of a file of the plugin in `root`; None without one.

    Raises:
        ConfigError: it leads out of the plugin, is not a regular file, is too large, or cannot be read.
    """
    if not os.path.lexists(f"{root}/{name}"):
        return None
    try:
        real = os.path.realpath(f"{root}/{name}")
        if not is_within(real, root):
            raise ConfigError(f"{name} is a link that leads out of the plugin")
        if not Path(real).is_file():  # checked before opening, which may have effects on devices
            raise ConfigError(f"{name} is not a regular file")
        with open_plain(Path(real)) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name} has more than {MAX_BYTES:,} bytes")
    return data
