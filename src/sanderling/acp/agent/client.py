"""The client at the other end of the connection, and its capabilities."""

from typing import TYPE_CHECKING, Any

from sanderling.acp.wire.ours import OURS, OfClient, ours_in
from sanderling.acp.wire.setup import (
    ClientCapabilities,
    ClientSessionCapabilities,
    ElicitationCapabilities,
    FileCapabilities,
    InitializeRequest,
)

if TYPE_CHECKING:
    from sanderling.acp.wire.base import Implementation

TERMINAL_OUTPUT = "terminal_output"
"""Key of `_meta` with which a client announces that it streams command output of the agent's own terminals."""


class Client:
    """The client of a connection. Before `initialize` it has no capabilities."""

    def __init__(self, said: InitializeRequest | None = None) -> None:
        can = (said and said.client_capabilities) or ClientCapabilities()
        files, session = can.fs or FileCapabilities(), can.session or ClientSessionCapabilities()
        asks = can.elicitation or ElicitationCapabilities()
        meta: dict[str, Any] = can.meta or {}
        self.is_ours, self.ours = OURS in meta, ours_in(meta, OfClient)
        self.info: Implementation | None = said.client_info if said else None
        self.reads_files = files.read_text_file
        self.writes_files = files.write_text_file
        self.has_terminals = can.terminal
        self.takes_notices = session.notices is not None
        self.takes_compaction = session.compaction is not None
        self.takes_booleans = bool(session.config_options and session.config_options.boolean)
        self.fills_in_forms = asks.form is not None
        self.opens_links = asks.url is not None
        self.logs_in_terminals = bool(can.auth and can.auth.terminal)
        self.shows_output = meta.get(TERMINAL_OUTPUT) is True
