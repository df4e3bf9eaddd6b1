"""The key for an API: the environment's, else the keychain's; read when a client is made, and shown to nobody."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.credentials import Account, Credentials, CredentialsError, is_mangled

MIN_KEY_CHARS = 8  # what is shorter is no key, and may be a part of any word
_KEY = re.compile(r"\b(?:sk-(?:ant-|proj-|or-v1-)?|gsk_|xai-|AIza)[A-Za-z0-9_-]{8,}")


class Key:
    """The key of `account`. The one that was read last came from `variable`, or from the keychain if it `is_kept`."""

    def __init__(self, account: Account, state_dir: str | Path) -> None:
        self.account = account
        self.variable = ""
        self.is_kept = False
        self._credentials = Credentials(state_dir, account)

    @property
    def version(self) -> int | None:
        """Changes with each key that is stored."""
        return self._credentials.version()

    @property
    def costs_nothing(self) -> bool:
        """To read it asks no keychain, which might ask the person."""
        return self.account.is_set() or not self._credentials.is_known()

    def read(self) -> str:
        """
        Read the key; empty if there is none. Blocks.

        Raises:
            ProviderError: it cannot be one, or the keychain does not give it.
        """
        self.variable, self.is_kept = "", False
        told = [(name, os.environ.get(name, "")) for name in self.account.variables]
        for name, key in told:
            if is_mangled(key):
                raise ProviderError(
                    "auth",
                    "The API key holds a blank, a line break or another character that no key has.",
                    f"Set {name} anew and {remedies().restart}.",
                )
        if found := next((each for each in told if each[1]), None):
            self.variable, key = found
            return key
        try:
            key = self._credentials.read()
        except CredentialsError as error:
            raise ProviderError("auth", error.message, error.remedy) from error
        self.is_kept = bool(key)
        return key


def without_keys(words: str, keys: Iterable[str]) -> str:
    """`words` without `keys`, which a server may repeat that was sent them."""
    for key in keys:
        if len(key) >= MIN_KEY_CHARS:
            words = words.replace(key, "[the key]")
    return _KEY.sub("[a key]", words)
