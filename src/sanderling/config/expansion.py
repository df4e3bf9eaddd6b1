"""`$NAME` and `${NAME}` in settings: values of the environment, so that a settings file can be published."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from sanderling.config import KeyPath, dotted
from sanderling.errors import ConfigError

_REFERENCE = r"(?a)\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|(\{))"

_SECRETS = (
    (("providers",), ("api_key", "headers")),
    (("mcp", "servers"), ("env", "headers")),
    (("agents",), ("env", "sandboxed_env")),
)


def expand(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """
    Replace `$NAME` and `${NAME}` in `text` by values of the environment, and `$$` by `$`.

    Raises:
        ConfigError: a variable is not set, or `${` begins something else.
    """

    def value(found: re.Match[str]) -> str:
        dollar, name, braced, brace = found.groups()
        if dollar:
            return dollar
        if brace:
            raise ConfigError("only $NAME and ${NAME} are expanded")
        name = name or braced
        if name not in environment:
            raise ConfigError(f"the variable {name} is not set")
        return environment[name]

    return re.sub(_REFERENCE, value, text) if "$" in text else text


def variables_in(text: str) -> set[str]:
    return {found[2] or found[3] for found in re.finditer(_REFERENCE, text) if found[2] or found[3]}


def is_reference(text: str) -> bool:
    """Return True if `text` is a variable's name and nothing else, which reveals no secret."""
    found = re.fullmatch(_REFERENCE, text)
    return found is not None and bool(found[2] or found[3])


def is_secret(path: KeyPath) -> bool:
    """Return True if the value at `path` may be a secret: it stays as written, and is expanded where it is used."""
    if path == ("web_search", "api_key"):
        return True
    for tables, keys in _SECRETS:
        depth = len(tables)
        if path[:depth] == tables and len(path) > depth + 1 and path[depth + 1] in keys:
            return True
    return False


def expanded(
    value: Any,
    environment: Mapping[str, str],
    on_error: Callable[[ConfigError], None],
    path: KeyPath = (),
) -> Any:
    """Expand all strings in `value`, which is at `path` in a file, except secrets and rules: in a rule, `$` ends a command."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: expanded(item, environment, on_error, (*path, key)) for key, item in items}
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        return [expanded(item, environment, on_error, (*path, number)) for number, item in items]
    if not isinstance(value, str) or path[0] == "permissions" or is_secret(path):
        return value
    try:
        return expand(value, environment)
    except ConfigError as error:
        on_error(ConfigError(f"'{dotted(path)}': {error}; $$ stands for $", path))
        return value
