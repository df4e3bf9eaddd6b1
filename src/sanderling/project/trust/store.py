"""The store of trusted files: a JSON file per project, where neither the project nor a command can write."""

from collections.abc import Callable, Mapping
from pathlib import Path

from sanderling.errors import ConfigError
from sanderling.paths import stamp_of, state_directory
from sanderling.state_file import StateFile, TooLargeError, UnreadableError, Versioned

VERSION = 1
MAX_STORE_BYTES = 1 << 20


class _Stored(Versioned):
    files: dict[str, str]


class TrustStore:
    """
    The SHA-256 of each trusted file, by its path.

    Any number of processes may hold one for the same project: each looks at the file again, and changes it under a lock.
    """

    def __init__(self, state_dir: str, project: str) -> None:
        self.path = Path(f"{state_directory(f'{state_dir}/trust', project)}.json")
        self._file = StateFile(self.path, _Stored, version=VERSION, max_bytes=MAX_STORE_BYTES)
        self._stamp: tuple[int, ...] | None = None
        self._hashes: Mapping[str, str] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """A sentence for the person when the file cannot be used; nothing is trusted then."""
        self.hashes()
        return self._problem

    def hashes(self) -> Mapping[str, str]:
        """The hashes as they are now; the file is read again only when it has changed."""
        stamp = stamp_of(self.path)
        if stamp is None or stamp != self._stamp:
            self._hashes, self._problem = self._read()
            self._stamp = stamp
        return self._hashes

    def replace(self, hashes: Mapping[str, str]) -> None:
        """
        Store these and no others.

        Raises:
            ConfigError: the file cannot be written, or would be too large to be read again.
        """
        self._change(lambda: hashes)

    def add(self, path: str, digest: str) -> None:
        """
        Store one more, next to what is stored by now.

        Raises:
            ConfigError: as `replace` does.
        """
        self._change(lambda: {**self._read()[0], path: digest})

    def _change(self, hashes: Callable[[], Mapping[str, str]]) -> None:
        try:
            self._file.change(lambda: _Stored(VERSION, dict(hashes())))
        except TooLargeError as error:
            raise ConfigError(
                "more files are to be trusted than can be remembered; trust fewer"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"what is trusted cannot be stored in {self.path}: {error.strerror}"
            ) from error
        self._stamp = None

    def _read(self) -> tuple[Mapping[str, str], str]:
        try:
            stored = self._file.read()
        except UnreadableError as error:
            return {}, self._broken(str(error))
        return (stored.files if stored else {}), ""

    def _broken(self, why: str) -> str:
        return f"The file of trusted files {self.path} {why}: nothing is trusted until you have looked at the files again."
