"""The proof that client and server know the same token: its wire format, and what a server accepts."""

import json
from pathlib import Path

import pytest

from sanderling.acp.wire.proof import Proof, proof_of
from sanderling.serve import challenges
from sanderling.serve.challenges import LIFETIME_S, Challenges

GOLDEN = Path(__file__).parent.parent / "golden" / "serve_proof_v1.json"
TOKEN = "token"


def answer_to(challenge: str, nonce: str = "c1", token: str = TOKEN) -> Proof:
    asked = Proof.in_header(challenge)
    return Proof(nonce, asked.nonce, proof_of("client", token, nonce, asked.nonce))


def test_the_headers_are_those_of_the_documented_format():
    golden = json.loads(GOLDEN.read_text())
    client, server = golden["client_nonce"], golden["server_nonce"]
    proofs = {who: proof_of(who, golden["token"], client, server) for who in ("server", "client")}
    assert [
        Proof(client).header(),
        Proof(server, "", proofs["server"]).header(),
        Proof(client, server, proofs["client"]).header(),
    ] == golden["headers"]
    assert [Proof.in_header(header).header() for header in golden["headers"]] == golden["headers"]


def test_a_server_proves_that_it_knows_the_token():
    asked = Proof.in_header(Challenges(TOKEN).challenge(Proof("c1")))
    assert asked.proof == proof_of("server", TOKEN, "c1", asked.nonce)


def test_a_challenge_is_answered_once():
    server = Challenges(TOKEN)
    answer = answer_to(server.challenge(Proof("c1")))
    assert server.is_answered_by(answer)
    assert not server.is_answered_by(answer)


def test_a_challenge_expires(monkeypatch):
    server, now = Challenges(TOKEN), challenges.monotonic()
    answer = answer_to(server.challenge(Proof("c1")))
    monkeypatch.setattr(challenges, "monotonic", lambda: now + LIFETIME_S + 1)
    assert not server.is_answered_by(answer)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: answer._replace(proof=""),
        lambda answer: answer._replace(proof=answer.proof[:-1] + "x"),
        lambda answer: answer._replace(nonce="c2"),
        lambda answer: answer._replace(answers=answer.answers.replace(".", "9.", 1)),
        lambda answer: answer._replace(answers="1.2.3"),
        lambda answer: answer._replace(answers=""),
        lambda answer: answer._replace(
            proof=proof_of("server", TOKEN, answer.nonce, answer.answers)  # reflected
        ),
        lambda _: answer_to(Challenges(TOKEN).challenge(Proof("c1"))),  # another server's
        lambda answer: answer._replace(proof=proof_of("client", "x", "c1", answer.answers)),
    ],
)
def test_a_spoilt_answer_is_none(spoil):
    server = Challenges(TOKEN)
    answer = answer_to(server.challenge(Proof("c1")))
    assert not server.is_answered_by(spoil(answer))
    assert server.is_answered_by(answer)


@pytest.mark.parametrize(
    "header",
    [
        *("", "Sanderling", "Bearer x", 'Sanderling nonce=""', 'Sanderling nonce="ü"'),
        'Basic nonce="c1"',
    ],
)
def test_what_is_no_proof_is_read_as_none(header):
    assert Proof.in_header(header) is None
