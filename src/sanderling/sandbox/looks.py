"""Looks at a project's tree: what has changed in it, and the bytes of that."""

import os
import sys
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from sanderling.sandbox.files import Files
from sanderling.sandbox.inside.rows import Row, Seen


class Copied(NamedTuple):
    """
    The bytes of a file, with their digest and size, as they were when its row was that; `data` is compressed.

    Without a digest it is where a link leads, or nothing: no file, too large, or not to be read.
    """

    path: str
    row: Row
    digest: bytes
    size: int
    data: bytes


class Looks:
    """
    Somebody's looks at the tree below `root`: the file worker, asked each time for the one of then, knows what they saw last.

    Every method raises what `Files` does.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._token = os.urandom(8).hex()
        self._has_unjudged = True

    async def look(self, files: Files) -> tuple[bool, list[Seen]]:
        """
        Return whether this is the worker's first look, which knows of no change, and what has changed since the last one.

        Raises:
            OSError: E2BIG, there is too much; ETIME, it takes too long; ESTALE, the root is another directory.
        """
        is_first, self._has_unjudged, found = await files.ask("scan", self.root, self._token)
        return is_first, [
            Seen(path, before and Row(*before), after and Row(*after), *more)
            for path, before, after, *more in found
        ]

    async def unclean(self, files: Files) -> list[tuple[str, Row]]:
        """The files that have changed since this was asked last, unless git has what they hold."""
        if not self._has_unjudged:
            return []
        found = await files.ask("unclean", self.root, self._token)
        self._has_unjudged = False
        return [(path, Row(*row)) for path, row in found]

    async def judged(self, files: Files, paths: Sequence[str]) -> None:
        """Take note that these need not be told as unclean."""
        await files.ask("judged", self.root, self._token, tuple(paths))

    async def copies(self, files: Files, paths: Sequence[str], limit: int) -> list[Copied]:
        """Copy the first of `paths`, as many as one answer holds; those that are larger than `limit` are empty."""
        found = await files.ask("copies", self.root, tuple(paths), limit)
        return [Copied(path, Row(*row), *content) for path, row, *content in found]

    async def objects(
        self, files: Files, repository: str, names: Sequence[str], limit: int
    ) -> dict[str, bytes]:
        """Return what those of git's objects hold that were held before they were removed, none more than `limit` bytes."""
        found: dict[str, bytes] = {}
        while names:
            some = await files.ask(
                "objects", self.root, self._token, repository, tuple(names), limit
            )
            for name, data in some:
                if data:
                    inflate = zlib.decompressobj()
                    found[name] = inflate.decompress(data, limit + 1)
            names = names[len(some) :]
        return found

    def close(self) -> None:
        """Let go of what was seen in this process, without a sandbox; a worker lets go of it with its end."""
        if looking := sys.modules.get("sanderling.sandbox.inside.looking"):  # else none was seen
            looking.forget(self._token)
