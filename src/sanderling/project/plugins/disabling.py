"""Disabling a plugin: `disabled` of `[plugins]` in the user's config.toml, whose other lines stay as they are."""

import json
import re
import tomllib

from sanderling.config.file import read_text, replace_text, shown_path, user_file
from sanderling.errors import ConfigError

TABLE, KEY = "plugins", "disabled"
_HEADER = re.compile(r"[ \t]*\[[ \t]*plugins[ \t]*\][ \t]*(#.*)?\n?")
_NEXT = re.compile(r"[ \t]*\[")
_LINE = re.compile(r"[ \t]*disabled[ \t]*=")


def disable_plugin(name: str, *, is_disabled: bool) -> None:
    """
    Disable or enable a plugin, from the next session on.

    Raises:
        ConfigError: the file is invalid, or cannot be written.
    """
    path = user_file()
    text, mistakes = read_text(path)
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
    changed = with_plugin(text or "", name, is_disabled=is_disabled)
    if changed is None:
        words = f"set `{KEY}` of `[{TABLE}]` in {shown_path(path)} yourself: its line is not a simple one"
        raise ConfigError(words)
    if changed != (text or ""):
        replace_text(path, changed)


def with_plugin(text: str, name: str, *, is_disabled: bool) -> str | None:
    """Return the text of config.toml with the plugin disabled or enabled; None if that would change anything else."""
    try:
        options = tomllib.loads(text)
        before = options.setdefault(TABLE, {}).setdefault(KEY, [])
        wanted = [each for each in before if each != name] + ([name] if is_disabled else [])
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError, TypeError):
        return None
    if wanted == before or (is_disabled and name in before):
        return text
    options[TABLE][KEY] = wanted
    line = f"{KEY} = {json.dumps(wanted)}\n"
    for changed in _candidates(text.splitlines(keepends=True), line):
        try:
            if tomllib.loads(changed) == options:
                return changed
        except tomllib.TOMLDecodeError:
            continue
    return None


def _candidates(lines: list[str], line: str) -> list[str]:
    """Return what the text may be with the new `line`: each is right only if it says so itself."""
    header = next((i for i, each in enumerate(lines) if _HEADER.fullmatch(each)), None)
    if header is None:
        text = "".join(lines)
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return [f"{text}{gap}[{TABLE}]\n{line}"]
    first = header + 1
    if not lines[header].endswith("\n"):
        lines = [*lines[:header], lines[header] + "\n"]
    end = next((i for i in range(first, len(lines)) if _NEXT.match(lines[i])), len(lines))
    start = next((i for i in range(first, end) if _LINE.match(lines[i])), None)
    if start is None:
        return ["".join([*lines[:first], line, *lines[first:]])]
    # A list may have several lines, which may begin with brackets themselves.
    ends = range(start + 1, len(lines) + 1)
    return ["".join([*lines[:start], line, *lines[each:]]) for each in ends]
