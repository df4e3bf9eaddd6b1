"""The store of trusted files: a JSON file per project, where neither the project nor a command can write."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sanderling.errors import ConfigError
from sanderling.paths import open_plain, replacing, stamp_of, state_directory

VERSION = 1
MAX_STORE_BYTES = 1 << 20


class _Stored(msgspec.Struct):
    version: int
    files: dict[str, str]


class TrustStore:
    """
    The SHA-256 of each trusted file, by its path.

    Any number of processes may hold one for the same project: each looks at the file anew, and replaces all of it.
    """

    def __init__(self, state_dir: str, project: str) -> None:
        self.path = Path(f"{state_directory(f'{state_dir}/trust', project)}.json")
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
        data = msgspec.json.encode(_Stored(VERSION, dict(hashes)))
        if len(data) > MAX_STORE_BYTES:
            raise ConfigError("more files are to be trusted than can be remembered; trust fewer")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.path) as file:
                file.write(msgspec.json.format(data, indent=2) + b"\n")
        except OSError as error:
            raise ConfigError(
                f"what is trusted cannot be stored in {self.path}: {error.strerror}"
            ) from error
        self._stamp = None

    def _read(self) -> tuple[Mapping[str, str], str]:
        try:
            with open_plain(self.path) as file:
                data = file.read(2 * MAX_STORE_BYTES)
            stored = msgspec.json.decode(data, type=_Stored)
        except FileNotFoundError:
            return {}, ""
        except OSError as error:
            return {}, self._broken(f"cannot be read: {error.strerror}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}, self._broken("is damaged")
        if stored.version != VERSION:
            return {}, self._broken("was written by another version")
        return stored.files, ""

    def _broken(self, why: str) -> str:
        return f"The file of trusted files {self.path} {why}: nothing is trusted until you have looked at the files again."
