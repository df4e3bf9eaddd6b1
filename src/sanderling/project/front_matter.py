"""
Markdown files with a header of YAML between two lines `---`: skills, commands and roles.

They are shared with other tools, whose parsers differ, so reading is lenient: what can be repaired is a problem for `check`, not an error.
Every scalar is a string, as in the reference parser of Agent Skills: `version: 1.0` stays "1.0", and `name: on` does not become true.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from sanderling.errors import ConfigError
from sanderling.text import nearest, printable, visible_prose

MAX_HEADER_CHARS = 32 * 1024
_MIN_LIKENESS = 0.85

_HEADER = r"(?s)---[ \t]*\n(.*?)(?:^|(?<=\n))---[ \t]*(?:\n|$)"
_TWO_FLOWS = r"[\[{][^\[\]{}\n]*[\]}][ \t]*[^\s\]}]"  # as in `[a] [b]`
# Not slower on many blanks or empty lines than on others.
_PLAIN_VALUE = (
    rf"(?m)^([ \t]*(?:- )?[\w.-]+:[ \t]+)(?:(?={_TWO_FLOWS})|(?![\"'|>\[{{#]))(.*[^ \t\n]|)[ \t]*$"
)

_KEY = r"([a-z][\w-]*):(?=\s|$)"
_IN_YAML = r"[\[{].*|\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'"


class Document(NamedTuple):
    """A file's header by key, the text after it, and a sentence for each mistake that was repaired."""

    header: Mapping[str, Any]
    body: str
    problems: tuple[str, ...] = ()


def read_document(text: str) -> Document:
    """
    Split a file into its header and its text. A file without a header has an empty one.

    Raises:
        ConfigError: the header is not closed, or no YAML mapping even after repair.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not re.match(r"---[ \t]*(\n|$)", text):
        return Document({}, text.strip())
    found = re.match(_HEADER, text)
    if not found:
        raise ConfigError("its header is not closed by a line `---`")
    header, body = found[1], text[found.end() :].strip()
    if len(header) > MAX_HEADER_CHARS:
        raise ConfigError(f"its header has more than {MAX_HEADER_CHARS:,} characters")
    try:
        return Document(_mapping(header), body)
    except ConfigError as error:
        for how, repair in _REPAIRS.items():
            try:
                fields = _mapping(repair(header))
            except ConfigError:
                continue
            return Document(fields, body, (f"{error}; read as if {how}",))
        raise


def one_line(value: Any) -> str:
    """Return a text of a header in one line, "" for a mapping or no value. A hint `[what]` without quotes is a list to the parser."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, cast('list[Any]', value)))}]"
    return " ".join(value.split()) if isinstance(value, str) else ""


def unused(
    header: Mapping[str, Any], known: Collection[str], others: Collection[str] = ()
) -> Iterator[str]:
    """
    Yield a sentence for each key that is like one of `known`, but is not one: its value is not used.

    Keys that are like none are other agents', whose headers have more; `others` are those that are like one of ours.
    """
    for key in header:
        if key not in known and key not in others and (near := nearest(key, known, _MIN_LIKENESS)):
            yield f"it has `{key[:40]}` instead of `{near[0]}`"


def not_texts(header: Mapping[str, Any], keys: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each of the keys whose value is a list or a mapping."""
    for key in keys:
        if key in header and not isinstance(header[key], str):
            yield f"its `{key}` is not a text"


def _mapping(header: str) -> Mapping[str, Any]:
    import yaml  # only needed if there is such a file

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        loaded: object = yaml.load(header, loader)  # noqa: S506 - a base loader makes only strings, lists and mappings
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise ConfigError(f"its header is not valid YAML{line}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"its header is not valid YAML: {error}") from error
    if not loaded:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError("its header is not made of lines `key: value`")
    fields = cast("dict[Any, Any]", loaded).items()
    return {key: _readable(value) for key, value in fields if isinstance(key, str)}


def _readable(value: Any) -> Any:
    """
    Return a text, or the texts of a list, without characters that a reader could not see, which YAML can write as escapes.

    A list holds only texts and `key: text`, because aliases can make what is nested deeper as large as they want.
    """
    if isinstance(value, str):
        return visible_prose(printable(value))
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    return [visible_prose(printable(text)) for item in items for text in _texts(item)]


def _texts(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    elif isinstance(item, dict):
        for key, value in cast("dict[Any, Any]", item).items():
            if isinstance(key, str) and isinstance(value, str):
                yield f"{key}: {value}"


def _quoted(found: re.Match[str]) -> str:
    return f"{found[1]}{_in_quotes(found[2])}"


def _in_quotes(value: str) -> str:
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _with_quotes(header: str) -> str:
    return re.sub(_PLAIN_VALUE, _quoted, header)


def _with_longer_values(header: str) -> str:
    """Join lines that begin no value to the value before them. Of two with one key, the first is used."""
    values = dict[str, str]()
    key = ""
    for line in header.splitlines():
        if found := re.match(_KEY, line):
            key = found[1] if found[1] not in values else ""
            line = line[found.end() :]  # noqa: PLW2901
        if key:
            values[key] = f"{values.get(key, '')} {line.strip()}".strip()
    if not values:
        raise ConfigError("it has no value")
    return "\n".join(
        f"{key}: {value if re.fullmatch(_IN_YAML, value) else _in_quotes(value)}"
        for key, value in values.items()
    )


_REPAIRS = {
    "its values were quoted": _with_quotes,
    "its values went on in the next lines": _with_longer_values,
}
