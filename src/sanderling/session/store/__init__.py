"""The sessions on disk: list, rename, delete, fork, export. All functions block: call them from a thread."""

from sanderling.session.store.export import export_markdown, write_export
from sanderling.session.store.keeping import delete, fork, rename
from sanderling.session.store.listing import last_exchange, list_sessions, newest_session

__all__ = (
    "delete",
    "export_markdown",
    "fork",
    "last_exchange",
    "list_sessions",
    "newest_session",
    "rename",
    "write_export",
)
