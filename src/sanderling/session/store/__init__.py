"""The sessions on the disk: which there are, and what can be done with them. All of it blocks: call it from a thread."""

from sanderling.session.store.export import export_markdown, write_export
from sanderling.session.store.keeping import delete, fork, rename
from sanderling.session.store.listing import list_sessions, newest_session

__all__ = (
    "delete",
    "export_markdown",
    "fork",
    "list_sessions",
    "newest_session",
    "rename",
    "write_export",
)
