"""The server's half of the proof (`acp/proof.py`): challenges that can each be answered once."""

import hmac
import secrets
from time import monotonic

from sanderling.acp.wire.proof import Proof, is_proof, proof_of

LIFETIME_S = 30


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
