"""
Logins at servers over HTTP, kept in the keychain under the server's URL: no other server is sent them.

What the SDK forgets between two processes is kept along: when a token ends and where it is renewed; or it would be sent until the
server refuses it, and renewed nowhere.
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


class Kept(msgspec.Struct, frozen=True):
    """A login, each part as the SDK's own types read it. `ends_at` is in seconds since 1970."""

    tokens: dict[str, Any]
    client: dict[str, Any]
    ends_at: float | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None


class Login:
    """The login at the server `url`; `name` is what the person calls it. All but `is_known` and `version` block: call them in a thread."""

    def __init__(self, state_dir: str | Path, name: str, url: str) -> None:
        marker = f"mcp-login-{sha256(url.encode()).hexdigest()[:16]}"
        self._credentials = Credentials(state_dir, LoginAccount(f"mcp {url}", (), marker))
        self.is_known = self._credentials.is_known
        self.version = self._credentials.version
        self.backend = self._credentials.backend
        self.remove = self._credentials.remove
        self.name = name
        self.url = url
        self.refused = (
            ""  # the token that the server does not take, though it should not have ended
        )

    def read(self) -> Kept | None:
        """
        The login; None if there is none, or none that can be used.

        Raises:
            CredentialsError: the keychain cannot be asked.
        """
        try:
            return msgspec.json.decode(self._credentials.read() or "null", type=Kept | None)
        except msgspec.DecodeError:  # of another version
            return None

    def store(self, kept: Kept) -> None:
        """
        Keep it in place of any other.

        Raises:
            CredentialsError: the keychain does not.
        """
        self._credentials.store(json.dumps(msgspec.to_builtins(kept), separators=(",", ":")))
