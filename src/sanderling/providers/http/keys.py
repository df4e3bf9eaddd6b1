"""The key for an API, from the environment or the keychain; read when a client is made, and never shown."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.credentials import Account, Credentials, CredentialsError, is_mangled

MIN_KEY_CHARS = 8  # shorter values are not keys, and may be part of any word
_KEY = re.compile(r"\b(?:sk-(?:ant-|proj-|or-v1-)?|gsk_|xai-|AIza)[A-Za-z0-9_-]{8,}")


class Key:
    """The key of `account`. The last one read came from `variable`, or from the keychain if it `is_kept`."""

    def __init__(self, account: Account, state_dir: str | Path) -> None:
        self.account = account
        self.variable = ""
        self.is_kept = False
        self._credentials = Credentials(state_dir, account)

    @property
    def version(self) -> int | None:
        """Changes whenever a key is stored."""
        return self._credentials.version()

    @property
    def costs_nothing(self) -> bool:
        """True if reading it does not use the keychain, which might ask the user."""
        return self.account.is_set() or not self._credentials.is_known()

    def read(self) -> str:
        """
        Return the key, or "" if there is no key. Blocks.

        Raises:
            ProviderError: the key is invalid, or the keychain failed.
        """
        self.variable, self.is_kept = "", False
        set_keys = [(name, os.environ.get(name, "")) for name in self.account.variables]
        for name, key in set_keys:
            if is_mangled(key):
                raise ProviderError(
                    "auth",
                    "The API key contains a space, a line break or another invalid character.",
                    f"Set {name} again and {remedies().restart}.",
                )
        if found := next((each for each in set_keys if each[1]), None):
            self.variable, key = found
            return key
        try:
            key = self._credentials.read()
        except CredentialsError as error:
            raise ProviderError("auth", error.message, error.remedy) from error
        self.is_kept = bool(key)
        return key


def without_keys(words: str, keys: Iterable[str]) -> str:
    """Remove `keys`, and anything else that looks like one, from `words`: a server may quote the key that it was sent."""
    for key in keys:
        if len(key) >= MIN_KEY_CHARS:
            words = words.replace(key, "[the key]")
    return _KEY.sub("[a key]", words)
