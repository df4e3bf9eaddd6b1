"""The token that clients need. It is created at the first start, and only the user can read it."""

import hmac
import os
import secrets
from pathlib import Path

from sanderling.errors import ConfigError
from sanderling.paths import replacing
from sanderling.state_file import locked

NAME = "serve-token"
SCHEME = "Bearer "


def own_token(state_dir: Path) -> str:
    """
    Return the user's token for servers; create it if there is none.

    Raises:
        ConfigError: it cannot be read or created, or other users could have read it.
    """
    path = state_dir / NAME
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(path)
        return _read(path)
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the token in {path}: {words}") from error


def current_token(state_dir: Path, before: str) -> str:
    """Return the token in the file; the one `before` if the file is gone. `serve --token` makes a new file, which a running server uses."""
    try:
        return _read(state_dir / NAME)
    except (OSError, UnicodeDecodeError, ConfigError):
        return before


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor) as file:
        if (mode := os.fstat(descriptor).st_mode) & 0o077:
            raise ConfigError(
                f"others can read {path} (mode {mode & 0o777:o}): remove it to create a new token"
            )
        token = file.read(1_000).strip()
    if not token:
        raise ConfigError(f"{path} is empty: remove it to create a new token")
    return token


def _make(path: Path) -> None:
    """Create a token file if there is none. If two servers start at once, one of them creates it."""
    if os.path.lexists(path):
        return
    with locked(path):
        if not os.path.lexists(path):
            with replacing(path) as file:
                file.write(f"{secrets.token_urlsafe(32)}\n".encode())


def is_right(headers: list[str], token: str) -> bool:
    """Compare the `Authorization` headers with the token in constant time."""
    if len(headers) != 1 or not headers[0].startswith(SCHEME):
        return False
    given = headers[0].removeprefix(SCHEME).strip()
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
