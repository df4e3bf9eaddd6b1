"""The token that clients need, and the server's half of the proof that both sides know it (`acp/proof.py`)."""

import hmac
import os
import secrets
from pathlib import Path
from time import monotonic

from sanderling.acp.wire.proof import Proof, is_proof, proof_of
from sanderling.errors import ConfigError
from sanderling.paths import replacing
from sanderling.state_file import locked

NAME = "serve-token"
SCHEME = "Bearer "
LIFETIME_S = 30  # of a challenge


def own_token(state_dir: Path) -> str:
    """
    Return the user's token for servers; create it if it does not exist.

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
    """Create a token file if it does not exist. If two servers start at once, one of them creates it."""
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


class Challenges:
    """
    Creates challenges and checks the answers.

    A challenge carries its expiry and a keyed digest, so nothing is stored for unauthenticated clients. Otherwise they could push out the
    challenges of others by requesting many. Only answered challenges are remembered until they expire, so that each counts once.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._answered: dict[str, float] = {}

    def challenge(self, asked: Proof) -> str:
        """Return the `WWW-Authenticate` value for a client that sent its nonce."""
        head = f"{int(monotonic()) + LIFETIME_S}.{secrets.token_hex(16)}"
        nonce = f"{head}.{self._digest(head, asked.nonce)}"
        return Proof(nonce, "", proof_of("server", self._token, asked.nonce, nonce)).header()

    def is_answered_by(self, answer: Proof) -> bool:
        """Return whether `answer` is the first answer to one of the challenges, in time and with the token."""
        now = monotonic()
        self._answered = {nonce: until for nonce, until in self._answered.items() if until > now}
        head, _, digest = answer.answers.rpartition(".")
        if not is_proof(digest, self._digest(head, answer.nonce)):
            return False
        expires_at = int(head.partition(".")[0])
        if expires_at <= now or answer.answers in self._answered:
            return False
        if not is_proof(
            answer.proof, proof_of("client", self._token, answer.nonce, answer.answers)
        ):
            return False
        self._answered[answer.answers] = expires_at
        return True

    def _digest(self, head: str, client_nonce: str) -> str:
        return hmac.digest(self._secret, f"{head} {client_nonce}".encode(), "sha256").hex()
