"""
Finds links below a directory that are not ignored. Runs in the sandbox next to ripgrep, which skips links.

Only standard library imports, because it starts with every search.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from sanderling.tools.inside.packages import PackageDirectories
from sanderling.tools.inside.tree import REPOSITORIES, Ignored, ignored_above

MAX_DIRECTORIES = 20_000  # a few seconds
MAX_LINKS = 2_000
FILE, DIRECTORY, MORE = "f", "d", "m"


def links(top: str) -> Iterator[str]:
    """Yield the kind and path of each link to a file or directory; `MORE` at the end if there may be others."""
    waiting = [(top, ignored_above(top))]
    packages = PackageDirectories(top)
    opened = found = 0
    while waiting:
        path, above = waiting.pop()
        opened += 1
        for entry, ignored in _entries(path, above):
            if entry.is_dir(follow_symlinks=False):
                if packages.is_skipping and packages.is_one(entry.path):
                    continue
                waiting.append((entry.path, ignored))
            elif kind := _kind(entry.path):
                found += 1
                yield kind + entry.path
            if len(waiting) + opened > MAX_DIRECTORIES or found > MAX_LINKS:
                yield MORE
                return


def _entries(path: str, above: Ignored) -> Iterator[tuple[os.DirEntry[str], Ignored]]:
    """Yield the directories and links in a directory that are not ignored, with the rules that apply there."""
    ignored = above.inside(path)
    with suppress(OSError), os.scandir(path) as entries:  # ripgrep reports errors
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if (
                (is_directory or entry.is_symlink())
                and entry.name not in REPOSITORIES
                and not ignored.hides(entry.path, is_directory=is_directory)
            ):
                yield entry, ignored


def _kind(link: str) -> str:
    if os.path.isfile(link):
        return FILE
    return DIRECTORY if os.path.isdir(link) else ""


def main(top: str) -> None:
    """Write the links, each followed by a NUL."""
    for link in links(top):
        sys.stdout.buffer.write(os.fsencode(link) + b"\0")
