"""The language servers of a face that has some, for the tools: what they are asked, and what they answer."""

from typing import Protocol

import msgspec

from sanderling.tools.editor import Diagnostic


class CodeFile(msgspec.Struct, frozen=True):
    """A file as the sandbox has opened it: the editor loads only what is that very file."""

    path: str
    device: int
    inode: int
    place: str = ""


class Places(msgspec.Struct, frozen=True):
    """Places in the file `path`: rows count from 0; `names` say what each is in. `is_modified`: a buffer has it with unsaved changes."""

    path: str
    rows: tuple[int, ...]
    names: tuple[str, ...] = ()
    is_modified: bool = False


class Candidates(msgspec.Struct, frozen=True):
    """Rows of a file in which the symbol could be meant, and why that is not clear."""

    why: str
    rows: tuple[int, ...]


class Symbol(msgspec.Struct, frozen=True):
    """A symbol of a file, `depth` others around it."""

    name: str
    kind: str
    depth: int
    row: int
    last_row: int


class Answer(msgspec.Struct, frozen=True):
    """
    The answer of the servers called `server`. Of `count` places `files` has as many as are of use.

    `row` is where the symbol stands; None: it was not found there, or could be one of the `candidates`. `still` says that a server
    is not ready, so that there may be more. `sources` are files that the words of a hover may come from.
    """

    server: str
    files: tuple[Places, ...] = ()
    count: int = 0
    hover: str = ""
    sources: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    row: int | None = None
    candidates: Candidates | None = None
    still: str = ""


class FileEdits(msgspec.Struct, frozen=True):
    """
    Edits of a file: row and character of a range's beginning and end, and its new text.

    If it `is_attached`, the server knows what the editor's buffer holds, else what the disk does.
    """

    path: str
    edits: tuple[tuple[int, int, int, int, str], ...]
    is_attached: bool


class WorkspaceChange(msgspec.Struct, frozen=True):
    """
    A change that a server proposes. `encoding` says how it counts characters.

    `operations` are what it would do with files beside that: kind, path, and new path. With `titles`, it is a list of actions instead.
    """

    server: str
    encoding: str
    files: tuple[FileEdits, ...] = ()
    operations: tuple[tuple[str, str, str], ...] = ()
    candidates: Candidates | None = None
    titles: tuple[str, ...] | None = None
    note: str = ""


class Said(msgspec.Struct, frozen=True):
    """Errors and warnings of now, errors first: `count` in all."""

    found: tuple[Diagnostic, ...]
    count: int
    servers: str
    still: str = ""


class LanguageServers(Protocol):
    """
    The servers that run in the editor. None is started for a question.

    Every method raises `ToolError` with what is wrong when there is none, it does not answer, or it has not read the project yet.
    """

    async def navigate(self, file: CodeFile, op: str, symbol: str, line: int | None) -> Answer:
        """Answer `op` about a symbol of the file, which is loaded for that if it was not."""
        ...

    async def symbols(self, project: str, symbol: str, *, is_like: bool) -> Answer:
        """Return the symbols of the project that have this name, or one like it; nothing where no server can say."""
        ...

    async def rename(
        self, file: CodeFile, symbol: str, line: int | None, new: str
    ) -> WorkspaceChange:
        """Return what has to change when the symbol is to be called `new`."""
        ...

    async def action(self, file: CodeFile, symbol: str, line: int, title: str) -> WorkspaceChange:
        """Return the actions that are offered there, or what the one with this title would change."""
        ...

    async def move(self, file: CodeFile, new: str) -> WorkspaceChange:
        """Return what has to change in others when the file gets the path `new`."""
        ...

    async def moved(self, old: str, new: str) -> None:
        """The file has got its new path."""
        ...

    async def diagnostics(self, file: CodeFile | None) -> Said:
        """Return what is said of a file now, or of all that the editor knows of."""
        ...
