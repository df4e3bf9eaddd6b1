"""The language servers of a frontend: requests and answers, for the tools."""

from typing import Protocol

import msgspec

from sanderling.tools.editor import Diagnostic


class CodeFile(msgspec.Struct, frozen=True):
    """A file as opened in the sandbox: the editor only loads the same file (device and inode)."""

    path: str
    device: int
    inode: int
    place: str = ""


class Locations(msgspec.Struct, frozen=True):
    """Rows in the file `path`, from 0; `names` are their containers. `is_modified`: a buffer has unsaved changes to it."""

    path: str
    rows: tuple[int, ...]
    names: tuple[str, ...] = ()
    is_modified: bool = False


class Candidates(msgspec.Struct, frozen=True):
    """Rows where an ambiguous symbol occurs, and the reason."""

    why: str
    rows: tuple[int, ...]


class Symbol(msgspec.Struct, frozen=True):
    """A symbol of a file at nesting level `depth`."""

    name: str
    kind: str
    depth: int
    row: int
    last_row: int


class LanguageServerAnswer(msgspec.Struct, frozen=True):
    """
    An answer from `server`. `files` has the useful ones of `count` places.

    `row` is the symbol's row; None: it was not found, or is ambiguous (`candidates`). `still` says that a server is not ready, so the
    answer may be incomplete. `sources` are files from which hover text may come.
    """

    server: str
    files: tuple[Locations, ...] = ()
    count: int = 0
    hover: str = ""
    sources: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    row: int | None = None
    candidates: Candidates | None = None
    still: str = ""


class FileEdits(msgspec.Struct, frozen=True):
    """
    Edits of a file: row and character of each range's start and end, and the new text.

    If it `is_attached`, the server knows the editor's buffer; otherwise the file on disk.
    """

    path: str
    edits: tuple[tuple[int, int, int, int, str], ...]
    is_attached: bool


class WorkspaceChange(msgspec.Struct, frozen=True):
    """
    A change that a server proposes. `encoding` is its position encoding.

    `operations` are other file operations: kind, path, and new path. With `titles`, it is a list of actions instead.
    """

    server: str
    encoding: str
    files: tuple[FileEdits, ...] = ()
    operations: tuple[tuple[str, str, str], ...] = ()
    candidates: Candidates | None = None
    titles: tuple[str, ...] | None = None
    note: str = ""


class DiagnosticList(msgspec.Struct, frozen=True):
    """
    Current errors and warnings, errors first; `count` is their total.

    `late` names servers that have not reported since the last edit.
    """

    found: tuple[Diagnostic, ...]
    count: int
    servers: str
    still: str = ""
    late: str = ""


class LanguageServers(Protocol):
    """
    The language servers running in the editor. A request starts none.

    Every method raises `ToolError` with the reason if there is no server, it does not answer, or it is still loading the project.
    """

    async def navigate(
        self, file: CodeFile, op: str, symbol: str, line: int | None
    ) -> LanguageServerAnswer:
        """Answer `op` about a symbol of the file, loading the file if needed."""
        ...

    async def symbols(self, project: str, symbol: str, *, is_like: bool) -> LanguageServerAnswer:
        """Return the project's symbols with this name, or similar ones; nothing if no server supports it."""
        ...

    async def rename(
        self, file: CodeFile, symbol: str, line: int | None, new: str
    ) -> WorkspaceChange:
        """Return the changes that rename the symbol to `new`."""
        ...

    async def action(self, file: CodeFile, symbol: str, line: int, title: str) -> WorkspaceChange:
        """Return the available actions, or the changes by the one with this title."""
        ...

    async def move(self, file: CodeFile, new: str) -> WorkspaceChange:
        """Return the changes to other files when the file moves to `new`."""
        ...

    async def moved(self, old: str, new: str) -> None:
        """Notify the servers that the file moved."""
        ...

    async def diagnostics(self, file: CodeFile | None) -> DiagnosticList:
        """Return current diagnostics of a file, or of all files known to the editor."""
        ...
