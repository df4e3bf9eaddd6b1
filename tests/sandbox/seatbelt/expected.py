"""What a policy means for a file, said again without the compiler and without SBPL: the longest path that contains the file decides."""

import unicodedata
from typing import NamedTuple

from sanderling.sandbox.kernel.layout import Protection
from sanderling.sandbox.policy import SandboxPolicy


class Expected(NamedTuple):
    policy: SandboxPolicy
    protection: Protection

    @property
    def absent(self) -> tuple[tuple[str, str], ...]:
        return self.protection.absent

    def can_see(self, path: str) -> bool:
        """Whether its metadata can be read."""
        return self._is_in(path, self._roots) or any(_is_in(root, path) for root in self._roots)

    def can_read(self, path: str) -> bool:
        masked = self._longest(path, self._masked)
        return self._is_in(path, self._roots) and self._longest(path, self._roots) > masked

    def can_write(self, path: str) -> bool:
        held = max(self._longest(path, self._masked), self._longest(path, self._read_only))
        never_made = max((len(f"{at}/{name}") for at, name in self._named(path)), default=-1)
        granted = self._longest(path, self._writable)
        return self._is_in(path, self._writable) and granted > held and granted >= never_made

    def can_remove(self, path: str) -> bool:
        """Whether the entry itself can be removed or renamed."""
        around = (*self._read_only, *self._masked, *self.protection.pinned)
        return (
            self.can_write(path)
            and path not in (*self._writable, *self.protection.pinned)
            and not any(each != path and _is_in(each, path) for each in around)
            and not any(
                _same(path, f"{directory}/{name[: at or None]}")
                for directory, name in self.absent
                for at in _slashes(name)
            )
        )

    @property
    def _own(self) -> tuple[str, ...]:
        return self.policy.project, *self.protection.writable

    @property
    def _writable(self) -> tuple[str, ...]:
        policy = self.policy
        private = (f"{policy.state_dir}/home", policy.tmp_dir)
        return *private, *policy.write_paths, *(self._own if policy.mode == "rw" else ())

    @property
    def _roots(self) -> tuple[str, ...]:
        policy = self.policy
        settings = (f"{policy.state_dir}/gitconfig", f"{policy.state_dir}/gitignore")
        readable = (*policy.programs, *policy.read_paths, *self.protection.readable, *settings)
        return *readable, *self._writable, *self._own

    @property
    def _masked(self) -> set[str]:
        policy = self.policy
        granted = {*policy.read_paths, *policy.write_paths}
        return {*self.protection.masked, *policy.masked} - granted

    @property
    def _read_only(self) -> set[str]:
        granted = {*self.policy.read_paths} - {*self._own}
        return {*self.protection.read_only, *granted} - {*self.policy.write_paths}

    def _named(self, path: str) -> list[tuple[str, str]]:
        parts = path.split("/")
        return [
            (directory, name)
            for directory, name in self.absent
            if _same(
                "/".join(parts[: len(f"{directory}/{name}".split("/"))]), f"{directory}/{name}"
            )
            and path.startswith(f"{directory}/")
        ]

    @staticmethod
    def _is_in(path: str, roots: tuple[str, ...]) -> bool:
        return any(_is_in(path, root) for root in roots)

    @staticmethod
    def _longest(path: str, paths: "set[str] | tuple[str, ...]") -> int:
        return max((len(each) for each in paths if _is_in(path, each)), default=-1)


def _is_in(path: str, directory: str) -> bool:
    return [*path.split("/")][: len(directory.split("/"))] == directory.split("/")


def _same(path: str, other: str) -> bool:
    return _folded(path) == _folded(other)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _slashes(name: str) -> list[int]:
    return [at for at, char in enumerate(name) if char == "/"]
