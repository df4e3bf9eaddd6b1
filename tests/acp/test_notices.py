"""The sentences that a client is told beside the answer."""

from sanderling.acp_agent.notices import sentence_of
from sanderling.protocol.events import GuardActed


def test_what_the_guard_has_done_is_a_sentence():
    moved = GuardActed("quarantined", ".envrc", "was written by a command", "/kept/.envrc")
    assert sentence_of(moved) == (
        "warning",
        "The sandbox undid a change: .envrc (was written by a command). What was written is kept at /kept/.envrc.",
    )
    new = GuardActed("noticed", "{x}", "is new, and may run something")
    assert sentence_of(new) == ("warning", "Look at {x}: it is new, and may run something.")


def test_what_the_host_itself_replaced_is_not_told():
    assert sentence_of(GuardActed("replaced", ".git/commondir", "was replaced by the host")) is None
