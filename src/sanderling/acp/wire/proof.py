"""
A proof that a client and a server share a token, in the headers of the WebSocket handshake. The token itself is never sent.

    client  Authorization: Sanderling nonce="C"
    server  401 WWW-Authenticate: Sanderling nonce="S", proof="P(server)"
    client  Authorization: Sanderling nonce="C", answers="S", proof="P(client)"

P(who) is the hexadecimal HMAC-SHA256 of "sanderling 1 WHO C S" under the token.

We used a bearer token first, which is simpler. But it goes to whatever process listens: on loopback, another user can bind the port after
the server has ended, and then has the token. Here the server proves first that it knows the token, so a stranger learns nothing. The
proof does not protect the rest of the connection, which a machine in between can relay. That is up to TLS, ssh and the check of the
listening socket's owner (`remote/listeners.py`).
"""

import hmac
import re
import secrets
from typing import Literal, NamedTuple, Self

SCHEME = "Sanderling"
_FIELD = re.compile(r'(nonce|answers|proof)="([0-9A-Za-z.]{1,200})"')


class Proof(NamedTuple):
    """The fields of a header. `answers` is the other side's nonce; a client's first header has neither `answers` nor `proof`."""

    nonce: str
    answers: str = ""
    proof: str = ""

    @classmethod
    def in_header(cls, value: str) -> Self | None:
        """Parse an `Authorization` or `WWW-Authenticate` value; None if it has another scheme or no nonce."""
        scheme, _, rest = value.partition(" ")
        fields = dict(_FIELD.findall(rest))
        return cls(**fields) if scheme == SCHEME and "nonce" in fields else None

    def header(self) -> str:
        fields = (f'{name}="{value}"' for name, value in self._asdict().items() if value)
        return f"{SCHEME} {', '.join(fields)}"


def new_nonce() -> str:
    return secrets.token_hex(16)


def proof_of(who: Literal["server", "client"], token: str, client: str, server: str) -> str:
    """Return the proof that `who` knows `token`, for the nonces of client and server."""
    words = f"sanderling 1 {who} {client} {server}"
    return hmac.digest(token.encode(), words.encode(), "sha256").hex()


def is_proof(given: str, expected: str) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
