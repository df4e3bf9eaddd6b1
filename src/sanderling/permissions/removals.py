"""Removals: names what a command deletes, so that the user sees it before allowing it."""

import os
from collections.abc import Iterator

from sanderling.errors import SandboxError, ToolError
from sanderling.permissions.shell.grammar import Words, literals
from sanderling.permissions.shell.programs import core_words
from sanderling.permissions.use import Use
from sanderling.sandbox.files import Files, Inspection
from sanderling.text import counted, visible
from sanderling.tools.effects import Effect
from sanderling.tools.workspace import Workspace

MAX_NAMED, MAX_COUNTED, MAX_DIRECTORIES = 3, 2_000, 500
MAX_BYTES = 1 << 20
"""The lines of larger files are not counted."""


async def removals_note(effect: Effect, workspace: Workspace) -> str:
    """Return a sentence on the existing files and directories that a command removes by name, or ""."""
    paths = list(dict.fromkeys(_removed(Use(effect, workspace.project, workspace.disk))))
    try:
        files = await workspace.files() if paths else None
        shown = [await _described(path, files, workspace) for path in paths[:MAX_NAMED] if files]
    except (OSError, SandboxError, ToolError):
        return ""
    if len(paths) > MAX_NAMED:
        shown.append(f"{len(paths) - MAX_NAMED:,} more")
    *first, last = shown or [""]
    return f"It removes {', '.join(first)}{' and ' * bool(first)}{last}." if last else ""


def _removed(use: Use) -> Iterator[str]:
    """Yield the existing paths that `rm` is given, where it is known in which directory it runs."""
    if use.effect.kind != "run" or "rm" not in use.effect.command or use.parsed.problem:
        return
    for command in use.parsed.commands:
        for word in _operands(command.words):
            places = [os.path.join(place, word) for place in use.directories or ()]  # noqa: PTH118 - as text
            there = [os.path.normpath(place) for place in places if use.disk.exists(place)]
            yield from there if len(there) == 1 else ()


def _operands(words: Words) -> Iterator[str]:
    words, moves = core_words(words)
    match literals(words):
        case ["git", "rm", *rest] if "--cached" not in rest and not moves:
            pass
        case ["rm" | "/bin/rm" | "/usr/bin/rm", *rest]:
            pass
        case _:
            return
    is_over = False
    for word in rest:
        if is_over or not word.startswith("-"):
            yield word
        is_over = is_over or word == "--"


async def _described(path: str, files: Files, workspace: Workspace) -> str:
    look = await files.look(path, MAX_BYTES)
    name = visible(workspace.shown(path))
    if look.kind == "directory":
        count, is_all = await _count(path, files)
        return f"{name}/ ({'' if is_all else 'more than '}{counted(count, 'file')})"
    return f"{name} ({_size(look)})" if look.kind == "file" else name


def _size(look: Inspection) -> str:
    if look.data is None or b"\0" in look.data:
        return f"{look.size:,} bytes"
    return counted(look.data.count(b"\n") + (look.data[-1:] not in (b"", b"\n")), "line")


async def _count(path: str, files: Files) -> tuple[int, bool]:
    """Return the number of files below a directory, and whether all were counted."""
    count, waiting, looked_at = 0, [path], 0
    while waiting and count <= MAX_COUNTED and looked_at < MAX_DIRECTORIES:
        directory, looked_at = waiting.pop(), looked_at + 1
        for name, kind in await files.list(directory):
            if kind == "directory":
                waiting.append(os.path.join(directory, name))  # noqa: PTH118 - a name as text
            count += kind != "directory"
    return min(count, MAX_COUNTED), not waiting and count <= MAX_COUNTED
