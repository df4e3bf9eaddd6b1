"""The lines on which the keys of a TOML or JSON file begin. The parsers do not report them, so they are searched once something is wrong."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, cast

from sanderling.config import KeyPath, Table

_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*|"
    r"""[^"'#\[\]{}\n]+|.|\n""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the number, from 1, of the line on which each key or table of a TOML file begins."""
    lines = dict[KeyPath, int]()
    items = Counter[KeyPath]()  # of arrays of tables
    table: KeyPath = ()
    for number, statement in _statements(text):
        parsed: Table = tomllib.loads(statement)
        if statement.startswith("["):
            table = _table_of(parsed, items, is_item=statement.startswith("[["))
            for end in range(len(table)):
                lines.setdefault(table[: end + 1], number)
        else:
            for path in _paths(parsed):
                lines.setdefault((*table, *path), number)
    return lines


@lru_cache(maxsize=4)
def line_finder(text: str) -> Callable[[KeyPath], int]:
    """Return a function from a key to its line, or to that of the nearest table around it; 0 if there is no such line, or for invalid TOML."""
    try:
        lines = (
            json_lines(text) if text.lstrip("\ufeff \t\r\n").startswith("{") else key_lines(text)
        )
    except (ValueError, RecursionError):
        lines = {}
    return lambda path: next(
        (lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0
    )


_JSON_PIECE = re.compile(r'("(?:\\.|[^"\\])*")(\s*:)?|[\[\]{},\n]')


def json_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each key in a JSON file of servers, with the keys that settings have for them."""
    lines, number = dict[KeyPath, int](), 1
    path: list[str] = []
    key = ""
    for found in _JSON_PIECE.finditer(text):
        piece = found[0]
        if found[2]:
            key = str(json.loads(found[1]))
            whole = (*filter(None, path), key)
            if whole[0] == "mcpServers":
                lines.setdefault(("mcp", "servers", *whole[1:]), number)
        elif piece in ("{", "["):
            path.append(key)
            key = ""
        elif piece in ("}", "]") and path:
            path.pop()
        number += piece.count("\n")
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the headers, and the keys with their values, each with the number of its first line."""
    number, depth, statement = 1, 0, ""
    for found in _PIECE.finditer(f"{text}\n"):
        piece = found[0]
        depth += (piece in ("[", "{")) - (piece in ("]", "}"))
        if piece == "\n" and depth <= 0:
            if (bare := statement.strip()) and not bare.startswith("#"):
                yield number, bare
            number += statement.count("\n") + 1
            statement = ""
        else:
            statement += piece


def _table_of(header: Table, items: Counter[KeyPath], *, is_item: bool) -> KeyPath:
    """Return the path of a header; for an array of tables, that of its newest item."""
    *_, keys = _paths(header)
    path: KeyPath = ()
    names = [key for key in keys if isinstance(key, str)]
    for number, name in enumerate(names, 1):
        path = (*path, name)
        items[path] += is_item and number == len(names)
        if items[path]:
            path = (*path, items[path] - 1)
    return path


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield from _paths(item, (*path, number))
