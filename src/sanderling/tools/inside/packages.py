"""Directories of installed packages: they are not part of the project, even where .gitignore does not name them."""

import os
from collections.abc import Callable, Collection

MODULES, ENVIRONMENT_MARK = "node_modules", "pyvenv.cfg"


class PackageDirectories:
    """The virtual environments and node_modules below `top`, except with the names `wanted`; none if `top` is inside one."""

    def __init__(
        self,
        top: str,
        wanted: Collection[str] = (),
        exists: Callable[[str], bool] = os.path.lexists,
    ) -> None:
        self._wanted = wanted
        self._exists = exists
        self._known: dict[str, bool] = {"/": False}
        self.skipped: list[str] = []
        self.is_skipping = not self._is_inside(top)
        if not self.is_skipping:
            self.skipped.clear()

    def has(self, path: str) -> bool:
        """Return whether a directory above `path` is one of them."""
        return self.is_skipping and self._is_inside(os.path.dirname(path))

    def _is_inside(self, directory: str) -> bool:
        is_inside = self._known.get(directory)
        if is_inside is None:
            is_inside = self._is_inside(os.path.dirname(directory))
            if not is_inside and self.is_one(directory):
                self.skipped.append(directory)
                is_inside = True
            self._known[directory] = is_inside
        return is_inside

    def is_one(self, directory: str) -> bool:
        name = os.path.basename(directory)
        if name in self._wanted:
            return False
        return name == MODULES or self._exists(os.path.join(directory, ENVIRONMENT_MARK))
