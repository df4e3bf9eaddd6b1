"""
Keychains for tests, as plugins of `keyring`: the variable PYTHON_KEYRING_BACKEND names one, `tests.keychain.FileKeychain`.

They stand in for the system's own, which `test_credentials.py` uses where there is one.
"""

import json
import os
import threading
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class FileKeychain(KeyringBackend):
    """Keeps everything in the file that KEYCHAIN_FILE names."""

    priority = 5  # type: ignore[assignment]

    def _load(self) -> dict[str, str]:
        path = Path(os.environ["KEYCHAIN_FILE"])
        return json.loads(path.read_text()) if path.exists() else {}

    def _save(self, kept: dict[str, str]) -> None:
        Path(os.environ["KEYCHAIN_FILE"]).write_text(json.dumps(kept))

    def get_password(self, service: str, username: str) -> str | None:
        return self._load().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._save(self._load() | {f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        kept = self._load()
        del kept[f"{service}/{username}"]
        self._save(kept)


class SilentKeychain(FileKeychain):
    """Waits for a person who never comes."""

    def _load(self) -> dict[str, str]:
        threading.Event().wait()
        raise AssertionError


class LockedKeychain(FileKeychain):
    def _load(self) -> dict[str, str]:
        raise KeyringLocked("the person has closed the window")


class TalkativeKeychain(FileKeychain):
    """Fails, and tells everyone what it was to keep."""

    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"cannot keep {password} for {username} of {service}")


class ForgetfulKeychain(FileKeychain):
    def _save(self, kept: dict[str, str]) -> None:
        pass
