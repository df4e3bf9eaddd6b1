"""Replaces updates that a client does not support by ones that it does."""

from sanderling.acp.agent.client import Client
from sanderling.acp.wire.base import EMPTY, PROTOCOL_VERSION
from sanderling.acp.wire.content import text_block
from sanderling.acp.wire.setup import (
    ClientCapabilities,
    ClientSessionCapabilities,
    InitializeRequest,
)
from sanderling.acp.wire.updates import AgentThoughtChunk, CompactionUpdate, Notice, SessionUpdate

FULL = Client(
    InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(
            session=ClientSessionCapabilities(notices=EMPTY, compaction=EMPTY)
        ),
    )
)
"""A client that supports everything, except streamed command output: every client gets that as content, because not all can stream it."""
SAID = {
    "in_progress": "Summarizing the conversation.",
    "completed": "The conversation was summarized.",
    "failed": "The conversation could not be summarized.",
    "cancelled": "The conversation was not summarized.",
}


def for_client(update: SessionUpdate, client: Client) -> SessionUpdate:
    """Return `update`, or a replacement if `client` does not support it."""
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
