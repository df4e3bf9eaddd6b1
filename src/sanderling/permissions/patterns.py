"""Patterns of commands, paths and hosts, as written in rules."""

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache

from sanderling.paths import is_within
from sanderling.sandbox.execution_environment import Disk
from sanderling.sandbox.names import folded


@lru_cache(maxsize=4096)
def pattern_of(command: str) -> tuple[tuple[str, ...], bool]:
    """Return the words of a rule's command, and whether nothing may follow them."""
    words = shlex.split(command)
    is_exact = words[-1:] == ["$"]
    if words[-1:] in (["*"], ["$"]):
        words.pop()
    if is_exact and not words:
        raise ValueError("'$' must follow a command's words")
    if "*" in words or any(re.search(r"[\n;|&]", word) for word in words[:1]):
        raise ValueError("a command is given by its first words; only the last can be '*'")
    return tuple(words), is_exact


@lru_cache(maxsize=4096)
def path_pattern(
    glob: str, roots: tuple[str, ...], disk: Disk, *, is_anywhere: bool, is_folded: bool = False
) -> Callable[[str], bool]:
    """
    Return the test for a path. If `is_anywhere`, a glob without a slash, or after `**/`, also matches outside the project.

    Links are resolved on the `disk`. If `is_folded`, case and Unicode normalization do not matter.
    """
    glob = f"{glob}**" if glob.endswith("/") else glob
    home = os.path.expanduser("~")  # noqa: PTH111
    if glob.startswith("/"):
        anchored = [("/", glob), ("/", _really(glob, disk))]
    elif glob.startswith("~/"):
        anchored = [(home, glob[2:]), (disk.real_path(home), glob[2:])]
    elif "/" in glob and not glob.startswith("**/"):
        anchored = [(root, glob.removeprefix("./")) for root in roots]
    else:
        anchored = [(root, f"**/{glob}") for root in (("/",) if is_anywhere else roots)]
    fold = folded if is_folded else str
    patterns = [(fold(root), tuple(filter(None, fold(rest).split("/")))) for root, rest in anchored]

    def matches(path: str) -> bool:
        path = fold(path)
        return any(
            is_within(path, root) and _match(parts, path[len(root) :].strip("/").split("/"))
            for root, parts in patterns
        )

    return matches


def _really(glob: str, disk: Disk) -> str:
    """Return an absolute glob with the links in its literal beginning resolved."""
    plain = re.match(r"(?:/[^/*?\[]*(?=/|$))*", glob)
    start = plain[0] if plain else ""
    return disk.real_path(start or "/").rstrip("/") + glob[len(start) :]


def _match(parts: tuple[str, ...], names: list[str]) -> bool:
    """Match names against the parts of a glob; `**` matches any number of names. Takes at most parts x names steps."""
    names = [name for name in names if name]
    at = number = 0
    retry: tuple[int, int] | None = None
    while number < len(names):
        if at < len(parts) and parts[at] == "**":
            retry, at = (at + 1, number), at + 1
        elif at < len(parts) and fnmatch.fnmatchcase(names[number], parts[at]):
            at, number = at + 1, number + 1
        elif retry:
            retry = (retry[0], retry[1] + 1)
            at, number = retry
        else:
            return False
    return all(part == "**" for part in parts[at:])


def globs_below(glob: str, directory: str, disk: Disk) -> tuple[str, ...]:
    """Return globs, relative to `directory`, for the paths below it that a glob from `/` or `~/` matches."""
    home = os.path.expanduser("~")  # noqa: PTH111
    if glob.startswith("~/"):
        glob = f"{home}/{glob[2:]}"
    elif not glob.startswith("/"):
        return ()
    globs = {f"{each}**" if each.endswith("/") else each for each in (glob, _really(glob, disk))}
    places = {directory, disk.real_path(directory)}
    found = (
        rest
        for each in globs
        for place in places
        for rest in _rests(tuple(filter(None, each.split("/"))), place)
    )
    return tuple(sorted({f"./{'/'.join(rest)}" for rest in found if rest}))


def _rests(parts: tuple[str, ...], directory: str) -> set[tuple[str, ...]]:
    """Return what may follow of the parts of a glob once those before it have matched all names of a directory."""
    rests = {parts}
    for name in filter(None, directory.split("/")):
        rests = {after for rest in rests for after in _rests_after(rest, name)}
    return rests


def _rests_after(parts: tuple[str, ...], name: str) -> Iterator[tuple[str, ...]]:
    while parts and parts[0] == "**":
        yield parts
        parts = parts[1:]
    if parts and fnmatch.fnmatchcase(name, parts[0]):
        yield parts[1:]


def is_host(pattern: str, host: str, *, any_port: bool) -> bool:
    """Return True if the pattern matches `host`. A pattern without a port matches 80 and 443, or every port if `any_port`."""
    name, port = _split_host(host)
    wanted, wanted_port = _split_host(pattern)
    if wanted_port and port != wanted_port:
        return False
    if not wanted_port and not any_port and port not in ("", "80", "443"):
        return False
    return name.endswith(wanted[1:]) if wanted.startswith("*.") else name == wanted


def _split_host(host: str) -> tuple[str, str]:
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d+))?", host.lower())
    return (found[1].rstrip("."), found[2] or "") if found else (host.lower(), "")
