"""Updates for clients that know less than the protocol has: what they would not show is said in another way."""

from sanderling.acp.base import EMPTY, PROTOCOL_VERSION
from sanderling.acp.content import text_block
from sanderling.acp.setup import (
    ClientCapabilities,
    ClientSessionCapabilities,
    InitializeRequest,
)
from sanderling.acp.updates import AgentThoughtChunk, CompactionUpdate, Notice, SessionUpdate
from sanderling.acp_agent.client import Client

FULL = Client(
    InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(
            session=ClientSessionCapabilities(notices=EMPTY, compaction=EMPTY)
        ),
    )
)
"""A client that can be told all; a command's output comes to each as contents, for not all show it in another way."""
SAID = {
    "in_progress": "The conversation is summarized.",
    "completed": "A summary takes the place of what was said.",
    "failed": "The conversation could not be summarized.",
    "cancelled": "The conversation was not summarized.",
}


def for_client(update: SessionUpdate, client: Client) -> SessionUpdate:
    """`update` as `client` knows it."""
    match update:
        case Notice(title=title, description=more) if not client.takes_notices:
            return _thought("\n".join(filter(None, (title, more))))
        case CompactionUpdate(status=status) if not client.takes_compaction:
            said = SAID.get(status, status)
            return Notice(severity="info", title=said) if client.takes_notices else _thought(said)
        case _:
            return update


def _thought(text: str) -> SessionUpdate:
    return AgentThoughtChunk(content=text_block(f"{text}\n"))
