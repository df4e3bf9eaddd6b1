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

    Several processes may share the store: each checks the file again, and changes it under a lock.
    """

    def __init__(self, state_dir: str, project: str) -> None:
        self.path = Path(f"{state_directory(f'{state_dir}/trust', project)}.json")
        self._file = StateFile(self.path, _Stored, version=VERSION, max_bytes=MAX_STORE_BYTES)
        self._stamp: tuple[int, ...] | None = None
        self._hashes: Mapping[str, str] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """A sentence for the user if the file cannot be used; then nothing is trusted."""
        self.hashes()
        return self._problem

    def hashes(self) -> Mapping[str, str]:
        """Return the current hashes. The file is read again only if it has changed."""
        stamp = stamp_of(self.path)
        if stamp is None or stamp != self._stamp:
            self._hashes, self._problem = self._read()
            self._stamp = stamp
        return self._hashes

    def replace(self, hashes: Mapping[str, str]) -> None:
        """
        Store these hashes and no others.

        Raises:
            ConfigError: the file cannot be written, or would be too large.
        """
        self._change(lambda: hashes)

    def add(self, path: str, digest: str) -> None:
        """
        Add a hash to the stored ones.

        Raises:
            ConfigError: as in `replace`.
        """
        self._change(lambda: {**self._read()[0], path: digest})

    def _change(self, hashes: Callable[[], Mapping[str, str]]) -> None:
        try:
            self._file.change(lambda: _Stored(VERSION, dict(hashes())))
        except TooLargeError as error:
            raise ConfigError("too many files are trusted; trust fewer") from error
        except OSError as error:
            raise ConfigError(
                f"cannot store the trusted files in {self.path}: {error.strerror}"
            ) from error
        self._stamp = None

    def _read(self) -> tuple[Mapping[str, str], str]:
        try:
            stored = self._file.read()
        except UnreadableError as error:
            return {}, self._broken(str(error))
        return (stored.files if stored else {}), ""

    def _broken(self, why: str) -> str:
        return f"The trust file {self.path} {why}. Nothing is trusted until you have reviewed the files again."
