"""
The versions of tools that the user has chosen with asdf or mise, copied into the sandbox.

Their shims on PATH are one program under many names. It reads `~/.tool-versions`, or mise's own settings, to find the tool to start, and
without them fails with "No version is set". Only names and versions are copied: mise's settings also contain variables, among them tokens,
hooks, tasks, and options of tools that run commands.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from sanderling.paths import open_plain
from sanderling.sandbox.kernel.layout import ASDF_VERSIONS, MISE_VERSIONS
from sanderling.sandbox.policy import SandboxPolicy

MAX_BYTES = 1 << 16
_WORD = r"(?a)(?!.*://)[\w@./:+-]{1,100}"
"""A tool's name, or a version: `20.1`, `lts`, `ref:main`. An address can contain a password, and `{{…}}` is a template of mise."""


def write_versions(policy: SandboxPolicy) -> None:
    """Write the copies into the policy's `state_dir`. A copy without any tool is removed."""
    home = policy.home
    tools = dict[str, list[str]]()
    for path in _mise_settings(home, os.environ):
        tools |= _mise_tools(_text(path))
    copies = {
        ASDF_VERSIONS: "".join(
            f"{line}\n" for line in _asdf_lines(_text(f"{home}/.tool-versions"))
        ),
        MISE_VERSIONS: "[tools]\n" * bool(tools) + "".join(map(_mise_line, tools, tools.values())),
    }
    for name, text in copies.items():
        path = Path(policy.state_dir, name)
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text, encoding="utf-8")


def _mise_settings(home: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the user's settings of mise. Later ones override earlier ones."""
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    directory = environment.get("MISE_CONFIG_DIR") or f"{config}/mise"
    yield from sorted(map(str, Path(directory, "conf.d").glob("*.toml")))
    yield environment.get("MISE_GLOBAL_CONFIG_FILE") or f"{directory}/config.toml"
    yield f"{directory}/config.local.toml"


def _text(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError), open_plain(Path(path)) as file:
        return file.read(MAX_BYTES).decode()
    return ""


def _asdf_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and all(map(_is_word, words)):
            yield " ".join(words)


def _is_word(text: str) -> bool:
    return re.fullmatch(_WORD, text) is not None


def _mise_tools(text: str) -> dict[str, list[str]]:
    if not text:
        return {}
    import tomllib  # not loaded for users without mise

    try:
        table = tomllib.loads(text).get("tools")
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    found = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    tools = {name: list(_versions(value)) for name, value in found.items()}
    return {
        name: versions
        for name, versions in tools.items()
        if versions and all(map(_is_word, (name, *versions)))
    }


def _versions(value: object) -> Iterator[str]:
    """Yield the versions in `"20"`, `{ version = "20", … }` or a list of these."""
    match value:
        case str():
            yield value
        case {"version": str(version)}:
            yield version
        case list():
            for each in cast("list[object]", value):
                yield from _versions(each)
        case _:
            pass


def _mise_line(name: str, versions: list[str]) -> str:
    quoted = ", ".join(f'"{each}"' for each in versions)
    return f'"{name}" = [{quoted}]\n'
