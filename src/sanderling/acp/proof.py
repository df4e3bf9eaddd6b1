"""
The proof between a client and a server that share a token, in the headers of the WebSocket handshake. The token itself is never sent.

    client  Authorization: Sanderling nonce="C"
    server  401 WWW-Authenticate: Sanderling nonce="S", proof="P(server)"
    client  Authorization: Sanderling nonce="C", answers="S", proof="P(client)"

P(who) is the hexadecimal HMAC-SHA256 of "sanderling 1 WHO C S" under the token.

A bearer token would be simpler, and was what we had: it goes to whoever listens. On loopback that can be another user, who binds the port
when the server ends and then has the token. Here the server proves first that it knows the token, so a stranger learns nothing. The
proof does not protect what follows: a machine in between can still pass everything on. TLS, ssh and the owner of the listening
socket (`remote/listeners.py`) are for that.
"""

import hmac
import re
import secrets
from typing import Literal, NamedTuple, Self

SCHEME = "Sanderling"
_FIELD = re.compile(r'(nonce|answers|proof)="([0-9A-Za-z.]{1,200})"')


class Proof(NamedTuple):
    """The fields of one header. `answers` is the other side's nonce; a client's first header has neither that nor a proof."""

    nonce: str
    answers: str = ""
    proof: str = ""

    @classmethod
    def in_header(cls, value: str) -> Self | None:
        """Read the value of an `Authorization` or `WWW-Authenticate` header; None if it has another scheme or no nonce."""
        scheme, _, rest = value.partition(" ")
        fields = dict(_FIELD.findall(rest))
        return cls(**fields) if scheme == SCHEME and "nonce" in fields else None

    def header(self) -> str:
        fields = (f'{name}="{value}"' for name, value in self._asdict().items() if value)
        return f"{SCHEME} {', '.join(fields)}"


def new_nonce() -> str:
    return secrets.token_hex(16)


def proof_of(who: Literal["server", "client"], token: str, client: str, server: str) -> str:
    """Return the proof that `who` knows `token`, for the nonces of the client and the server."""
    words = f"sanderling 1 {who} {client} {server}"
    return hmac.digest(token.encode(), words.encode(), "sha256").hex()


def is_proof(given: str, expected: str) -> bool:
    """Compare two proofs in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())
