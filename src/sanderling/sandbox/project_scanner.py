"""Finds the changes in a project's tree, and the changed content."""

import os
import sys
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from sanderling.sandbox.files import Files
from sanderling.sandbox.inside.rows import ChangedRow, FileRow


class Copied(NamedTuple):
    """
    The content of a file when it had this row: digest, size, and compressed `data`.

    For a link, `data` is its target and the digest is empty. Both are empty for other files, and for those too large or unreadable.
    """

    path: str
    row: FileRow
    digest: bytes
    size: int
    data: bytes


class ProjectScanner:
    """
    One client's looks at the tree below `root`. The state of its last look is kept in the file worker.

    The methods take the current worker's files, and raise what `Files` does.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._token = os.urandom(8).hex()
        self._has_unjudged = True

    async def look(self, files: Files) -> tuple[bool, list[ChangedRow]]:
        """
        Return whether this is the worker's first look, which reports no changes, and the changes since the last look.

        Raises:
            OSError: E2BIG: too many files; ETIME: it takes too long; ESTALE: the root was replaced.
        """
        is_first, self._has_unjudged, found = await files.ask("scan", self.root, self._token)
        return is_first, [
            ChangedRow(path, before and FileRow(*before), after and FileRow(*after), *more)
            for path, before, after, *more in found
        ]

    async def unclean(self, files: Files) -> list[tuple[str, FileRow]]:
        """Return the files that changed since the last call and whose content git does not have."""
        if not self._has_unjudged:
            return []
        found = await files.ask("unclean", self.root, self._token)
        self._has_unjudged = False
        return [(path, FileRow(*row)) for path, row in found]

    async def judged(self, files: Files, paths: Sequence[str]) -> None:
        """Mark these files as known, so that `unclean` does not return them."""
        await files.ask("judged", self.root, self._token, tuple(paths))

    async def copies(self, files: Files, paths: Sequence[str], limit: int) -> list[Copied]:
        """Copy the first of `paths`, as many as fit into one answer. Files larger than `limit` are empty."""
        found = await files.ask("copies", self.root, tuple(paths), limit)
        return [Copied(path, FileRow(*row), *content) for path, row, *content in found]

    async def objects(
        self, files: Files, repository: str, names: Sequence[str], limit: int
    ) -> dict[str, bytes]:
        """Return the content of those git objects that are held, although a command may have removed them, up to `limit` bytes each."""
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
        """Drop the state in this process, where there is no sandbox. A worker drops it when it ends."""
        if looking := sys.modules.get("sanderling.sandbox.inside.looking"):  # else no state
            looking.forget(self._token)
