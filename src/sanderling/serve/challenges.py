"""The server's half of the proof (`acp/proof.py`): challenges, each of which can be answered once."""

import hmac
import secrets
from time import monotonic

from sanderling.acp.proof import Proof, is_proof, proof_of

LIFETIME_S = 30


class Challenges:
    """
    Makes challenges, and checks the answers to them.

    A challenge carries its own expiry and a keyed digest of it, so nothing is stored for strangers, who could otherwise push out the
    challenges of others by asking for many. Only answered ones are remembered, until they expire: an answer counts once.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._answered: dict[str, float] = {}

    def challenge(self, asked: Proof) -> str:
        """Return the value of the `WWW-Authenticate` header for a client that has sent its nonce."""
        head = f"{int(monotonic()) + LIFETIME_S}.{secrets.token_hex(16)}"
        nonce = f"{head}.{self._digest(head, asked.nonce)}"
        return Proof(nonce, "", proof_of("server", self._token, asked.nonce, nonce)).header()

    def is_answered_by(self, answer: Proof) -> bool:
        """Check whether `answer` answers a challenge of ours, in time, for the first time, and with the token."""
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
