"""
Logins at servers over HTTP, stored in the keychain by the server's URL, so that no other server gets them.

What the SDK forgets between two processes is stored with them: when a token ends, and where it is renewed. Otherwise a token would be
sent until the server rejects it, and never be renewed.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from sanderling.providers.credentials import Account, Credentials


class LoginAccount(Account, frozen=True):
    """The login at one server."""

    def use_the_environment(self) -> str:
        return 'Give the server a token instead: headers = { Authorization = "Bearer $TOKEN" }.'

    def unlock_it(self) -> str:
        return "Unlock it and try again."


class StoredLogin(msgspec.Struct, frozen=True):
    """A login, with each part in the form of the SDK's types. `ends_at` is in seconds since 1970."""

    tokens: dict[str, Any]
    client: dict[str, Any]
    ends_at: float | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None


class ServerLogin:
    """
    The login at the server `url`, which the user calls `name`.

    All methods except `is_known` and `version` block: call them in a thread.
    """

    def __init__(self, state_dir: str | Path, name: str, url: str) -> None:
        marker = f"mcp-login-{sha256(url.encode()).hexdigest()[:16]}"
        self._credentials = Credentials(state_dir, LoginAccount(f"mcp {url}", (), marker))
        self.is_known = self._credentials.is_known
        self.version = self._credentials.version
        self.backend = self._credentials.backend
        self.remove = self._credentials.remove
        self.name = name
        self.url = url
        self.refused = ""  # rejected by the server, although it should still be valid

    def read(self) -> StoredLogin | None:
        """
        Return the login; None if it is missing or cannot be used.

        Raises:
            CredentialsError: the keychain failed.
        """
        try:
            return msgspec.json.decode(self._credentials.read() or "null", type=StoredLogin | None)
        except msgspec.DecodeError:  # of another version
            return None

    def store(self, kept: StoredLogin) -> None:
        """
        Store the login, replacing any other.

        Raises:
            CredentialsError: the keychain failed.
        """
        self._credentials.store(json.dumps(msgspec.to_builtins(kept), separators=(",", ":")))
