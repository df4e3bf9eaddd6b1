"""Mistakes in settings. One conversion detects them; if it fails, each is reported with its path and the nearest key."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec

from sanderling.config import NEOVIM_KEYS, KeyPath, dotted
from sanderling.errors import ConfigError
from sanderling.text import did_you_mean

_NAMES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_PLACE = re.compile(r" - at `(key in )?\$.*`$")
_OF_OTHERS = {"mcpServers": "mcp.servers", "mcp_servers": "mcp.servers"}
LIKE = 0.75  # similarity above which a key is a misspelt neighbour rather than one of another table

NearestElsewhere = Callable[[str], str]


def mistakes_in(
    value: object, kind: Any, path: KeyPath = (), elsewhere: NearestElsewhere = lambda _: ""
) -> Iterator[ConfigError]:
    """
    Yield an error for each key in `value` that the type `kind` does not have, and for each value of another type.

    A missing key is not a mistake: another layer may have it. `elsewhere` finds the place of a key that belongs in another table.
    """
    items = _items(value, kind)
    for key, item, item_kind in items or ():
        if item_kind is None:
            yield _unknown(str(key), list(_fields(_fitting(kind, value))), path, elsewhere)
        else:
            yield from mistakes_in(item, item_kind, (*path, key), elsewhere)
    if items is None:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            hint = f": write [[{dotted(path)}]]" if _is_single(kind, value) else ""
            yield ConfigError(f"'{dotted(path)}': {_expected(kind, value, error)}{hint}", path)


def _items(value: Any, kind: Any) -> list[tuple[str | int, Any, Any]] | None:
    """Return the contents of a table or list as key, item and its type, None for an unknown key; None if it is checked as a whole."""
    kind = _fitting(kind, value)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        if _is_struct(kind):
            known = _fields(kind)
            return [(key, item, known.get(key)) for key, item in table.items()]
        if get_origin(kind) is dict:
            return [(key, item, get_args(kind)[1]) for key, item in table.items()]
    if isinstance(value, list | tuple) and get_origin(kind) in (list, tuple):
        items = enumerate(cast("list[Any]", value))
        return [(number, item, get_args(kind)[0]) for number, item in items]
    return None


def _fitting(kind: Any, value: Any) -> Any:
    """Return the alternative of `kind` that is about tables or lists, if `value` is one."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else ():
        is_for_tables = _is_struct(each) or get_origin(each) is dict
        is_for_lists = get_origin(each) in (list, tuple)
        if (isinstance(value, Mapping) and is_for_tables) or (
            isinstance(value, list | tuple) and is_for_lists
        ):
            return each
    return kind


def _is_single(kind: Any, value: object) -> bool:
    """Return whether a table was written where a list of tables is expected."""
    plain = _fitting(kind, ())
    is_list = get_origin(plain) in (list, tuple)
    return is_list and _is_struct(get_args(plain)[0]) and isinstance(value, Mapping)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _fields(struct: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}


def _expected(kind: Any, value: object, error: msgspec.ValidationError) -> str:
    plain = _fitting(kind, None)
    if get_origin(plain) in (Union, UnionType):
        plain = next((each for each in get_args(plain) if get_origin(each) is Literal), plain)
    if get_origin(plain) is Literal:
        words = [str(each) for each in get_args(plain)]
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        return f"must be one of {', '.join(words)}{hint}"
    metas = cast("tuple[Any, ...]", getattr(kind, "__metadata__", ()))
    if "matching regex" in str(error) and (titles := [meta.title for meta in metas if meta.title]):
        return f"must be {titles[0]}"
    return _said(error)


def _said(error: msgspec.ValidationError) -> str:
    """Return the library's message in terms of TOML."""
    words = _PLACE.sub("", str(error))
    if not words.startswith("Expected"):
        return words
    words = words.replace("Expected", "must be").replace(", got", ", not")
    return _TYPES.sub(
        lambda found: " or ".join(_NAMES.get(kind, kind) for kind in found[1].split(" | ")), words
    )


def _unknown(
    key: str, known: Sequence[str], path: KeyPath, elsewhere: NearestElsewhere
) -> ConfigError:
    import difflib  # slow to load and rarely needed

    location = (*path, key)
    if not path and key in NEOVIM_KEYS:
        return ConfigError(
            f"'{key}' is an option of Neovim: set it in setup() or vim.g.sanderling", location
        )
    if not path and key in _OF_OTHERS:
        words = f"unknown key '{key}'; did you mean '{_OF_OTHERS[key]}'?"
        return ConfigError(words, location)
    swapped = [each for each in known if sorted(each) == sorted(key)]  # "modle" is not "mode"
    near = swapped or difflib.get_close_matches(key, known, n=1)
    name = elsewhere(dotted(location))
    if near and not (name and difflib.SequenceMatcher(None, key, near[0]).ratio() < LIKE):
        name = dotted((*path, near[0]))
    hint = f"; did you mean '{name}'?" if name else f"; known here: {', '.join(known)}"
    return ConfigError(f"unknown key '{dotted(location)}'{hint}", location)
